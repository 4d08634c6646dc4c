"""The figures of a cache, and of the store behind a near cache: exact counts that cost a hit 20 ns, and their sums."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from math import floor
from operator import attrgetter, sub
from typing import Any, Final

LOAD_BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""Seconds. How many loads took up to each, and more than the one before, is counted; beyond the last as well. Calls of
a store behind a near cache are counted between the same."""

_PARTS: Final = 2**20

GAUGES: Final = ("size", "weight")
"""What is now, where all else has been counted since the cache was made."""


class LoadTimes:
    """How long loads, or other calls, took: their sum, and how many fell between which bounds. Written and read under a
    lock."""

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
class CallStats:
    """The reads, or the writes, of a store behind a near cache.

    Attributes:
        errors: calls that found the store failing. An error about the key or the value is none.
        refused: calls that were not made, because the store had failed lately.
        seconds: the time spent in calls, in seconds.
        buckets: how many calls took how long, as ``Stats.load_buckets``. A call is counted when it has ended, by
            whatever: an answer, an error or the cancellation of its task.
    """

    errors: int = 0
    refused: int = 0
    seconds: float = 0.0
    buckets: tuple[int, ...] = (0,) * (len(LOAD_BOUNDS) + 1)

    @property
    def calls(self) -> int:
        """Calls that were made, and have ended."""
        return sum(self.buckets)

    @property
    def uses(self) -> int:
        """Calls, also those that were refused."""
        return self.calls + self.refused


@dataclass(frozen=True, slots=True)
class StoreStats:
    """How the store behind a near cache does, since that was made, or since the fork. They add up as ``Stats`` do.

    Attributes:
        reads, writes: its calls.
        breakers: processes that leave the store alone when it fails: 0 or 1 of one.
        open_breakers: processes that leave it alone now.
        trackers: processes that the store is to tell of writes: those that read, if it is one that does.
        trusted: processes that it tells of them now.
    """

    reads: CallStats = CallStats()
    writes: CallStats = CallStats()
    breakers: int = 0
    open_breakers: int = 0
    trackers: int = 0
    trusted: int = 0

    @property
    def uses(self) -> int:
        """Calls, also those that were refused."""
        return self.reads.uses + self.writes.uses

    def as_row(self) -> tuple[float, ...]:
        """All numbers, those that say what is now last."""
        reads, writes = self.reads, self.writes
        return (
            *(reads.errors, reads.refused, reads.seconds, *reads.buckets),
            *(writes.errors, writes.refused, writes.seconds, *writes.buckets),
            *(self.breakers, self.open_breakers, self.trackers, self.trusted),
        )

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> StoreStats:
        """What ``as_row`` made the row of.

        Raises:
            TypeError, ValueError: it is none, or does not add up with others.
        """
        if len(row) != 2 * _CALLS + STORE_GAUGES:
            raise ValueError("the calls of a store are counted between other bounds")
        sum(row)
        halves = (row[:_CALLS], row[_CALLS : 2 * _CALLS])
        reads, writes = (CallStats(half[0], half[1], half[2], tuple(half[3:])) for half in halves)
        return cls(reads, writes, *row[2 * _CALLS :])

    @classmethod
    def total(cls, several: Iterable[StoreStats | None]) -> StoreStats | None:
        """Their sum; None without any."""
        rows = [each.as_row() for each in several if each is not None]
        return cls.from_row([sum(column) for column in zip(*rows, strict=True)]) if rows else None

    def __sub__(self, earlier: StoreStats) -> StoreStats:
        here, there = self.as_row(), earlier.as_row()[:-STORE_GAUGES]
        counts = (one - other for one, other in zip(here, there, strict=False))
        return self.from_row([*counts, *here[-STORE_GAUGES:]])

    def exited(self) -> StoreStats:
        """What stays of it when its processes are gone."""
        return StoreStats(self.reads, self.writes)


STORE_GAUGES: Final = 4
"""Numbers at the end of a row of ``StoreStats`` that say what is now."""

_CALLS: Final = len(LOAD_BOUNDS) + 4
"""Numbers in a row of ``StoreStats`` that are of its reads, or of its writes."""


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
        load_buckets: how many loads and failures took up to each of ``LOAD_BOUNDS`` and more than the one before, and
            how many more than the last.
        store: of the store behind a near cache; None of any other.
    """

    hits: int = 0
    misses: int = 0
    puts: int = 0
    loads: int = 0
    load_failures: int = 0
    load_seconds: float = 0.0
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
    load_buckets: tuple[int, ...] = (0,) * (len(LOAD_BOUNDS) + 1)
    store: StoreStats | None = None

    @property
    def requests(self) -> int:
        """Hits and misses."""
        return self.hits + self.misses

    @property
    def uses(self) -> int:
        """Requests, and calls of the store behind: it grows whenever the cache is used."""
        return self.requests + (0 if self.store is None else self.store.uses)

    @property
    def is_used(self) -> bool:
        """Whether anything was counted."""
        return any(_numbers(self)) or any(self.load_buckets) or (self.store is not None and self.store.uses > 0)

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
        return Stats.total((self, other))

    def __sub__(self, earlier: Stats) -> Stats:
        counted = {name: getattr(self, name) - getattr(earlier, name) for name in COUNTS}
        buckets = tuple(map(sub, self.load_buckets, earlier.load_buckets))
        store = self.store if self.store is None or earlier.store is None else self.store - earlier.store
        return replace(self, load_buckets=buckets, store=store, **counted)

    @classmethod
    def total(cls, several: Iterable[Stats]) -> Stats:
        """Their sum."""
        several = list(several)
        if not several:
            return cls()
        columns = zip(*((*_numbers(each), *each.load_buckets) for each in several), strict=True)
        store = StoreStats.total(each.store for each in several)
        return cls.from_row([*map(sum, columns), *(() if store is None else store.as_row())])

    def as_row(self) -> tuple[float, ...]:
        """All numbers: a reader may have a thousand of these to parse, and names would take as long again."""
        store = () if self.store is None else self.store.as_row()
        return (*_numbers(self), *self.load_buckets, *store)

    @classmethod
    def from_row(cls, row: Sequence[Any]) -> Stats:
        """What ``as_row`` made the row of.

        Raises:
            TypeError, ValueError: it is none, or does not add up with others.
        """
        sum(row)
        store = StoreStats.from_row(row[_OF_CACHE:]) if len(row) > _OF_CACHE else None
        buckets = tuple(row[_NUMBERS:_OF_CACHE])
        if len(buckets) != len(LOAD_BOUNDS) + 1:
            raise ValueError("there are other figures than those of this version")
        given: Sequence[Any] = (*row[:_NUMBERS], buckets, store)
        return cls(*given)

    def exited(self) -> Stats:
        """What stays of it when its processes are gone."""
        return replace(self, size=0, weight=0, store=None if self.store is None else self.store.exited())


NUMBERS: Final = tuple(each.name for each in fields(Stats) if each.name not in ("load_buckets", "store"))
COUNTS: Final = tuple(name for name in NUMBERS if name not in GAUGES)
_numbers: Final = attrgetter(*NUMBERS)
_NUMBERS: Final = len(NUMBERS)
_OF_CACHE: Final = _NUMBERS + len(LOAD_BOUNDS) + 1
"""Numbers in a row of ``Stats`` without a store."""


def hit_ratio(hits: int, misses: int) -> float:
    """Hits per request, 0.0 to 1.0; 0.0 without requests."""
    return hits / (hits + misses) if hits or misses else 0.0


def whole_parts(seconds: float) -> float:
    """Cut to parts of 2**-20, about a microsecond: sums of such are exact in any order, so those of several processes
    never go down by a bit.
    """
    return floor(seconds * _PARTS) / _PARTS
