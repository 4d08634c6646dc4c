"""Tells the user's listener of the entries that left."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from wheelcache import options
from wheelcache.core.contract import RemovalCause, Removals
from wheelcache.keys import unwrap

logger = logging.getLogger("wheelcache")

Listener = Callable[[Any, Any, RemovalCause], object]


class RemovalListener:
    """The listener of one cache, which may be exchanged at any time.

    Args:
        name: of the cache.
        function: ``function(key, value, cause)``, or None.
    """

    __slots__ = ("_name", "function")

    def __init__(self, name: str, function: Listener | None) -> None:
        self._name = name
        self.set(function)

    def set(self, function: Listener | None) -> None:
        self.function = options.function_or_none("on_removal", function)

    def list(self) -> Removals | None:
        """For a step of the core: what collects removals, or None if there is no listener."""
        return None if self.function is None else []

    def tell(self, removed: Removals | None) -> None:
        """Call the listener, without a lock. What it raises is logged; an exit or Ctrl-C is raised after the last."""
        function = self.function
        if not removed or function is None:
            return
        call_all(partial(self._call, function, removal) for removal in removed)

    def _call(self, function: Listener, removal: tuple[Any, Any, RemovalCause]) -> None:
        key = unwrap(removal[0])
        try:
            function(key, *removal[1:])
        except Exception:
            logger.exception("on_removal of the cache %r raised for %r.", self._name, key)


def call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Call each of ``functions``. What one raises, an exit or Ctrl-C, is raised after the last."""
    interruption: BaseException | None = None
    for function in functions:
        try:
            function()
        except BaseException as error:
            interruption = error
    if interruption is not None:
        try:
            raise interruption
        finally:
            # Error, traceback and frame would be a cycle.
            del interruption
