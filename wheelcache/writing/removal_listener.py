"""Notifies the user's listener of the entries that left, on writes and when the wheel thread advances the core."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from wheelcache import options
from wheelcache.core.contract import Core, RemovalCause, Removals
from wheelcache.keys import unwrap

logger = logging.getLogger("wheelcache")

Listener = Callable[[Any, Any, RemovalCause], object]


class RemovalListener:
    """Removes due entries of one core, as a wheel of ``WheelDriver``, and notifies the listener of all removals.

    Args:
        name: the name of the cache.
        function: ``function(key, value, cause)``, or None. It may be exchanged at any time.
    """

    __slots__ = ("_core", "_name", "function")

    def __init__(self, name: str, core: Core, function: Listener | None) -> None:
        self._name = name
        self._core = core
        self.set(function)

    def __repr__(self) -> str:
        return f"<Cache {self._name!r}, {len(self._core)} entries>"

    def set(self, function: Listener | None) -> None:
        self.function = options.function_or_none("on_removal", function)

    def list(self) -> Removals | None:
        """Return a list for a step of the core, which collects removals; None if there is no listener."""
        return None if self.function is None else []

    def tell(self, done: Removals | None) -> None:
        """Call the listener, without a lock. Its errors are logged; an exit or Ctrl-C is raised after the last call."""
        function = self.function
        if not done or function is None:
            return
        call_all(partial(self._call, function, removal) for removal in done)

    @property
    def next_due(self) -> float:
        return self._core.next_due

    def take_due(self, budget: int) -> Removals | None:
        removed = self.list()
        self._core.advance(budget, removed)
        return removed

    def use_clock(self, clock: Callable[[], float]) -> None:
        self._core.use_clock(clock)

    def _call(self, function: Listener, removal: tuple[Any, Any, RemovalCause]) -> None:
        key = unwrap(removal[0])
        try:
            function(key, *removal[1:])
        except Exception:
            logger.exception("on_removal of the cache %r raised for %r.", self._name, key)


def call_all(functions: Iterable[Callable[[], object]]) -> None:
    """Call each of ``functions``. An exit or Ctrl-C in one of them is raised after the last."""
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
