"""Times the computation of missing values by callers: from a miss of ``get`` to the ``set`` by the same thread or task.

Most sites load values that way: with ``cache_page``, with template fragments, with ``@cached`` and ``@memoize`` of
Flask-Caching, and in their own code. The loads of a loader that is passed to the cache are timed separately.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from wheelcache.core.tags import moment
from wheelcache.stats import Meter

LONGEST: Final = 60.0
"""Seconds. A ``set`` that comes later after a miss is not attributed to it."""

MAX_KEY_LENGTH: Final = 250
"""Characters. Longer keys are rare and are not recorded, since they could occupy any number of bytes."""

MOST: Final = 1024
"""The most misses to remember. Beyond it, all are forgotten, including misses of keys that are never set."""


class FillTimes:
    """The misses of one cache that may be followed by a ``set``.

    Args:
        counts: records the computations.
        clock: returns seconds.

    Attributes:
        missed_at: the times and moments of the misses, by thread or task and by key. While it is empty, ``filled`` need
            not be called.
    """

    __slots__ = ("_clock", "_counts", "_keys", "missed_at")

    def __init__(self, counts: Meter, clock: Callable[[], float]) -> None:
        self._counts = counts
        self._clock = clock
        self.missed_at: dict[tuple[int, Any], tuple[float, int]] = {}
        # All keys in ``missed_at``, and some former ones. Most sets are of other keys, and this saves them 0.3 us.
        self._keys: set[str] = set()

    def missed(self, key: Any) -> None:
        """Record that the running thread or task missed ``key``."""
        if type(key) is not str or len(key) > MAX_KEY_LENGTH:
            return
        if len(self._keys) >= MOST or len(self.missed_at) >= MOST:
            self._keys.clear()
            self.missed_at.clear()
        self._keys.add(key)
        self.missed_at[_caller(), key] = self._clock(), moment()

    def filled(self, key: Any) -> None:
        """Record that the running thread or task sets ``key``."""
        if key not in self._keys:
            return
        missed_at = self.missed_at.pop((_caller(), key), None)
        if missed_at is not None:
            seconds = self._clock() - missed_at[0]
            if seconds <= LONGEST:
                self._counts.ended(seconds, "loads")

    def missed_since(self, key: Any, *, forget: bool = False) -> int:
        """Return the moment at which the running thread or task missed ``key``; 0 if it did not, or long ago."""
        look = self.missed_at.pop if forget else self.missed_at.get
        missed_at = look((_caller(), key), None) if key in self._keys else None
        return 0 if missed_at is None or self._clock() - missed_at[0] > LONGEST else missed_at[1]

    def forget(self) -> None:
        """Forget the misses of the running thread or task: its request is over, so no later ``set`` answers them."""
        if self.missed_at:
            caller = _caller()
            for missed in self.missed_at.copy():
                if missed[0] == caller:
                    self.missed_at.pop(missed, None)


def _caller() -> int:
    """Return an identifier of the running task or thread: tasks of one thread interleave between a miss and a
    ``set``."""
    task = None if asyncio._get_running_loop() is None else asyncio.current_task()
    return threading.get_ident() if task is None else id(task)
