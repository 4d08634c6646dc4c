"""Counts and times the calls of a store behind a near cache."""

from __future__ import annotations

import threading

from wheelcache.stats import CallStats, LoadTimes


class CallMeter:
    """Counts the reads or the writes of one store. Any thread may count: that takes less than 1 us, a call 30."""

    __slots__ = ("_errors", "_lock", "_refused", "_times")

    def __init__(self) -> None:
        self.count_from_zero()

    def count_from_zero(self) -> None:
        """Reset the counts, also in the child of a fork, where a lost thread may hold the lock."""
        # Re-entrant, since the garbage collector may run a finalizer that calls the store at any point.
        self._lock = threading.RLock()
        self._errors = self._refused = 0
        self._times = LoadTimes()

    def made(self, seconds: float, *, is_error: bool) -> None:
        """Record a call that took ``seconds``."""
        with self._lock:
            self._errors += is_error
            self._times.add(seconds)

    def refuse(self) -> None:
        """Record a call that was not made."""
        with self._lock:
            self._refused += 1

    def stats(self) -> CallStats:
        """Return the counts and times."""
        with self._lock:
            return CallStats(self._errors, self._refused, *self._times.read())
