"""The figures of a cache: exact counts that cost a hit 20 ns, and what they add up to."""

from __future__ import annotations

import itertools
from dataclasses import dataclass


class Tally:
    """An exact count that any thread may raise without a lock.

    ``next(tally.ticks)`` adds one: a single C call, hence atomic, where ``x += 1`` on an attribute is three steps that
    threads can interleave. Reading takes a number as well, so the readings are counted and subtracted.
    """

    __slots__ = ("_readings", "ticks")

    def __init__(self) -> None:
        self.ticks = itertools.count()
        self._readings = 0

    def read(self) -> int:
        """The count. One reader at a time: call it under a lock."""
        total = next(self.ticks) - self._readings
        self._readings += 1
        return total


@dataclass(frozen=True, slots=True)
class Stats:
    """A cache's figures since it was made.

    Attributes:
        hits, misses: of ``get``, ``get_or_lease``, ``get_many``, ``take`` and ``atake``. A stale value is a hit.
        hit_ratio: hits / (hits + misses), 0.0 to 1.0; 0.0 before the first request.
        loads, load_failures: loaders that returned, loaders that raised.
        load_seconds: the time spent in both, in seconds.
        load_timeouts: callers who did not wait for the end of a load.
        coalesced: callers who got a value that somebody else computed meanwhile: stampedes prevented.
        stale_hits: hits on a value past its TTL, within its grace.
        refreshes: background loads that were started.
        refreshes_dropped: those that were not, and loads with a timeout, because the pool had too much to do.
        evictions: entries that left because the cache was full.
        expirations: entries that left after their time had come.
        size: entries in memory now.
        weight: the sum of their weights; 0 without a weigher.
    """

    hits: int
    misses: int
    hit_ratio: float
    loads: int
    load_failures: int
    load_seconds: float
    load_timeouts: int
    coalesced: int
    stale_hits: int
    refreshes: int
    refreshes_dropped: int
    evictions: int
    expirations: int
    size: int
    weight: int


def hit_ratio(hits: int, misses: int) -> float:
    """Hits per request, 0.0 to 1.0; 0.0 without requests."""
    return hits / (hits + misses) if hits or misses else 0.0
