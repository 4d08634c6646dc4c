"""The figures of a cache: exact counts that cost a hit 20 ns, and what they add up to."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any, Final

LOAD_BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""Seconds. How many loads took up to each, and more than the one before, is counted; beyond the last as well."""

GAUGES: Final = ("size", "weight")
"""What is now, where all else has been counted since the cache was made."""


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
        # The loop goes once, and without a call: an exception that comes from outside is raised after calls, and the
        # reading would be taken for a count for ever.
        total = 0
        for ticks in self.ticks:
            total = ticks - self._readings
            self._readings += 1
            break
        return total


class LoadTimes:
    """How long loads took: their sum, and how many fell between which bounds. Written and read under a lock."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.buckets = [0] * (len(LOAD_BOUNDS) + 1)

    def add(self, seconds: float) -> None:
        # Negative where a test moved the time back meanwhile.
        seconds = max(0.0, seconds)
        self.seconds += seconds
        self.buckets[bisect_left(LOAD_BOUNDS, seconds)] += 1


@dataclass(frozen=True, slots=True)
class Stats:
    """A cache's figures since it was made, or since the fork, in a child of one.

    Those of several processes add up, and earlier ones can be taken away: what is counted is then what was counted in
    between, while ``size`` and ``weight`` are what they are.

    Attributes:
        hits, misses: of ``get``, ``get_or_lease``, ``get_many``, ``take`` and ``atake``. A stale value is a hit.
        puts: values that were stored, also by loads; not those that a snapshot had.
        loads, load_failures: loaders that returned, loaders that raised. What a caller computes between a miss of a
            backend's ``get`` and its ``set`` is a load as well.
        load_seconds: the time spent in both, in seconds.
        load_buckets: how many of both took up to each of ``LOAD_BOUNDS`` and more than the one before, and how many
            more than the last.
        load_timeouts: callers that did not wait for the end of a load.
        coalesced: callers that got a value that another one computed meanwhile: stampedes prevented.
        stale_hits: hits on a value past its TTL, within its grace.
        refreshes: background loads that were started.
        refreshes_dropped: those that were not, and loads with a timeout, because the pool had too much to do.
        evictions: entries that left because the cache was full.
        evicted_weight: the sum of their weights; 0 without a weigher.
        expirations: entries that left after their time had come.
        replacements, deletions, clearings: entries that left for a new value, one by one, and with all others.
        size: entries in memory now.
        weight: the sum of their weights; 0 without a weigher.
    """

    hits: int = 0
    misses: int = 0
    puts: int = 0
    loads: int = 0
    load_failures: int = 0
    load_seconds: float = 0.0
    load_buckets: tuple[int, ...] = (0,) * (len(LOAD_BOUNDS) + 1)
    load_timeouts: int = 0
    coalesced: int = 0
    stale_hits: int = 0
    refreshes: int = 0
    refreshes_dropped: int = 0
    evictions: int = 0
    evicted_weight: int = 0
    expirations: int = 0
    replacements: int = 0
    deletions: int = 0
    clearings: int = 0
    size: int = 0
    weight: int = 0

    @property
    def requests(self) -> int:
        """Hits and misses."""
        return self.hits + self.misses

    @property
    def hit_ratio(self) -> float:
        """Hits per request, 0.0 to 1.0; 0.0 without requests."""
        return hit_ratio(self.hits, self.misses)

    @property
    def removals(self) -> dict[str, int]:
        """How many entries left, by the value of their ``RemovalCause``."""
        return {
            "expired": self.expirations,
            "evicted": self.evictions,
            "replaced": self.replacements,
            "deleted": self.deletions,
            "cleared": self.clearings,
        }

    def __add__(self, other: Stats) -> Stats:
        return self._combined(other, 1, COUNTS + GAUGES)

    @classmethod
    def total(cls, several: Iterable[Stats]) -> Stats:
        """Their sum, in 2 us for each, where ``sum`` takes 15."""
        rows = [(*_numbers(each), *each.load_buckets) for each in several]
        if not rows:
            return cls()
        totals = [sum(column) for column in zip(*rows, strict=True)]
        count = len(COUNTS + GAUGES)
        return cls(**dict(zip(COUNTS + GAUGES, totals, strict=False)), load_buckets=tuple(totals[count:]))

    def check(self) -> None:
        """
        Raises:
            TypeError, ValueError: it does not add up with others, being read from what may be anything.
        """
        sum((*_numbers(self), *self.load_buckets))
        if len(self.load_buckets) != len(LOAD_BOUNDS) + 1:
            raise ValueError("the times of loads are counted between other bounds")

    def as_dict(self) -> dict[str, Any]:
        """Every field by its name."""
        return {name: getattr(self, name) for name in FIELDS}

    def __sub__(self, earlier: Stats) -> Stats:
        return self._combined(earlier, -1, COUNTS)

    def _combined(self, other: Stats, sign: int, names: tuple[str, ...]) -> Stats:
        combined = {name: getattr(self, name) + sign * getattr(other, name) for name in names}
        buckets = zip(self.load_buckets, other.load_buckets, strict=True)
        return replace(self, load_buckets=tuple(here + sign * there for here, there in buckets), **combined)


FIELDS: Final = tuple(each.name for each in fields(Stats))
COUNTS: Final = tuple(name for name in FIELDS if name not in (*GAUGES, "load_buckets"))
_numbers: Final = attrgetter(*COUNTS, *GAUGES)


def hit_ratio(hits: int, misses: int) -> float:
    """Hits per request, 0.0 to 1.0; 0.0 without requests."""
    return hits / (hits + misses) if hits or misses else 0.0
