"""How long callers compute what they miss: from a miss of a backend's ``get`` to the ``set`` of the same thread.

Most sites load that way: ``cache_page``, template fragments, ``@cached`` and ``@memoize`` of Flask-Caching, and code of
their own. A loader that is given to the cache is timed by itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

from wheelcache.loading.loads import Loads

LONGEST: Final = 60.0
"""Seconds. A ``set`` later than that after a miss is not taken for what the miss has led to."""

MOST: Final = 1024
"""Misses that are remembered at once: keys that are asked for and never set are forgotten with the rest."""


class FillTimes:
    """The misses of one cache that may be followed by a ``set``.

    Args:
        loads: where they count.
        clock: seconds.

    Attributes:
        missed_at: by thread and key. While it is empty, ``filled`` need not be called.
    """

    __slots__ = ("_clock", "_loads", "missed_at")

    def __init__(self, loads: Loads, clock: Callable[[], float]) -> None:
        self._loads = loads
        self._clock = clock
        self.missed_at: dict[tuple[int, Any], float] = {}

    def missed(self, key: Any) -> None:
        """The running thread missed ``key``."""
        if len(self.missed_at) >= MOST:
            self.missed_at.clear()
        self.missed_at[threading.get_ident(), key] = self._clock()

    def filled(self, key: Any) -> None:
        """The running thread sets ``key``."""
        missed_at = self.missed_at.pop((threading.get_ident(), key), None)
        if missed_at is not None:
            seconds = self._clock() - missed_at
            if seconds <= LONGEST:
                self._loads.count_load(seconds)
