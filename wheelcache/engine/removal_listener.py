"""Calls the user's listener for removed entries, after writes and when the wheel thread advances the core."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from wheelcache.core.contract import Core, RemovalCause, Removals
from wheelcache.engine import options
from wheelcache.engine.keys import unwrap

logger = logging.getLogger("wheelcache")

Listener = Callable[[Any, Any, RemovalCause], object]


class RemovalListener:
    """Removes due entries of one core, as the wheel of a ``WheelDriver``, and calls the listener for all removals.

    Args:
        name: the name of the cache.
        function: the listener, ``function(key, value, cause)``, or None. It may be replaced at any time.
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
        """Return a list in which a step of the core collects removals; None if there is no listener."""
        return None if self.function is None else []

    def notify(self, done: Removals | None) -> None:
        """Call the listener for each removal, without a lock.

        Exceptions are logged, except for an exit or Ctrl-C, which is raised immediately: the listener misses the rest.
        """
        function = self.function
        if not done or function is None:
            return
        for key, value, cause in done:
            try:
                function(unwrap(key), value, cause)
            except Exception:
                logger.exception("on_removal of the cache %r raised for %r.", self._name, unwrap(key))

    @property
    def next_due(self) -> float:
        return self._core.next_due

    def take_due(self, budget: int) -> Removals | None:
        removed = self.list()
        self._core.advance(budget, removed)
        return removed

    def use_clock(self, clock: Callable[[], float]) -> None:
        self._core.use_clock(clock)
