"""Counts and times the calls of a store behind a near cache."""

from __future__ import annotations

import threading

from wheelcache.stats import CallStats, LoadTimes, whole_parts


class CallMeter:
    """The reads of one store, or its writes. Any thread may count: a call takes 30 us and more, this less than 1."""

    __slots__ = ("_errors", "_lock", "_refused", "_times")

    def __init__(self) -> None:
        self.count_from_zero()

    def count_from_zero(self) -> None:
        """Also in the child of a fork, where a thread that is gone may have the lock."""
        # Re-entrant, as the garbage collector may run a finalizer that calls the store, anywhere.
        self._lock = threading.RLock()
        self._errors = self._refused = 0
        self._times = LoadTimes()

    def made(self, seconds: float, *, is_error: bool) -> None:
        """A call has ended."""
        with self._lock:
            self._errors += is_error
            self._times.add(seconds)

    def refuse(self) -> None:
        """A call was not made."""
        with self._lock:
            self._refused += 1

    def stats(self) -> CallStats:
        with self._lock:
            seconds = whole_parts(self._times.seconds)
            return CallStats(self._errors, self._refused, seconds, tuple(self._times.buckets))
