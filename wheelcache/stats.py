"""The figures of a cache, and of the store behind a near cache: exact counts that cost a hit 20 ns, and their sums."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import floor
from operator import add, attrgetter, sub
from typing import Any, Final

LOAD_BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""Seconds. How many loads took up to each, and more than the one before, is counted; beyond the last as well. Calls of
a store behind a near cache are counted between the same."""

_PARTS: Final = 2**20

Row = tuple[float, ...]
"""Numbers in the order of ``COUNTS``."""

Buckets = tuple[int, ...]

NO_BUCKETS: Final[Buckets] = (0,) * (len(LOAD_BOUNDS) + 1)

LOAD_COUNTS: Final = (
    "loads",
    "load_failures",
    "load_timeouts",
    "coalesced",
    "stale_hits",
    "refreshes",
    "refreshes_dropped",
)
"""The counters of ``Stats`` that loads raise by one."""


class Meter:
    """Counts and times the loads of a cache, or the calls of a store. Any thread may count: that takes less than 1 us.

    Args:
        names: the names of the counts.
    """

    __slots__ = ("_buckets", "_counts", "_lock", "_names", "_seconds")

    def __init__(self, *names: str) -> None:
        self._names = names
        self.count_from_zero()

    def count_from_zero(self) -> None:
        """Reset the counts, also in the child of a fork, where a lost thread may hold the lock."""
        # Re-entrant, since the garbage collector may run a finalizer that counts at any point.
        self._lock = threading.RLock()
        self._counts = dict.fromkeys(self._names, 0)
        self._seconds = 0.0
        self._buckets = [0] * len(NO_BUCKETS)

    def add(self, name: str) -> None:
        """Count one more."""
        with self._lock:
            self._counts[name] += 1

    def ended(self, seconds: float, name: str | None = None) -> None:
        """Record the end of a load or call that took ``seconds``, and count one more under ``name``, if given."""
        # The time is negative if a test has moved the clock back.
        seconds = max(0.0, seconds)
        with self._lock:
            if name is not None:
                self._counts[name] += 1
            self._seconds += seconds
            self._buckets[bisect_left(LOAD_BOUNDS, seconds)] += 1

    def read(self) -> tuple[dict[str, int], float, Buckets]:
        """Return the counts by name, the sum of the times, and how many fell between which bounds."""
        with self._lock:
            return self._counts.copy(), self._seconds, tuple(self._buckets)


@dataclass(frozen=True, slots=True)
class CallStats:
    """The reads, or the writes, of a store behind a near cache.

    Attributes:
        errors: calls that found the store failing. An error about the key or the value does not count.
        refused: calls that were not made, because the store had failed recently.
        seconds: the time spent in calls, in seconds.
        buckets: how many calls took how long, as ``Stats.load_buckets``. A call is counted when it has ended with an
            answer, with an error, or by the cancellation of its task.
    """

    errors: int = 0
    refused: int = 0
    seconds: float = 0.0
    buckets: Buckets = NO_BUCKETS

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
    """The figures of the store behind a near cache, since the near cache was made, or since the fork.

    Attributes:
        reads, writes: its calls.
        breakers: processes that leave the store alone when it fails: 0 or 1 for one process.
        open_breakers: processes that leave it alone now.
        trackers: processes that the store must notify of writes: those that read, if the store can notify.
        trusted: processes that it notifies now.
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


def counter(description: str = "", unit: str = "", name: str = "") -> Any:
    """A field of ``Stats`` that only grows.

    Args:
        description, unit, name: of the metric that has this number alone, without the prefix and the endings that a
            system of metrics adds. The name is that of the field unless it is given. No description for no such metric.
    """
    return field(default=0, metadata={"description": description, "unit": unit, "name": name})


@dataclass(frozen=True, slots=True)
class Stats:
    """A cache's figures since it was made, or since the fork in a child process.

    This is the table of all figures. The database of the site has a column for each number, and the numbers of several
    processes are added up, or earlier ones subtracted, as rows in the order of ``COUNTS``. The terminal's document, the
    dashboard and the metrics have an entry for each counter, so a new counter is a line here.

    Attributes:
        hits, misses: look-ups by ``get``, ``get_or_lease``, ``get_many``, ``take`` and ``atake`` that found a value
            within its TTL, and those that found none.
        stale_hits: look-ups that returned a value past its TTL, within its grace. They are neither hits nor misses.
        puts: values that were stored, also by loads; not those that a snapshot had.
        loads, load_failures: loaders that returned, loaders that raised. The time between a miss of a backend's ``get``
            and the ``set`` that follows is a load as well.
        load_seconds: the time spent in both, in seconds.
        load_timeouts: callers that did not wait for the end of a load.
        coalesced: callers that received a value that another caller was computing: stampedes prevented.
        refreshes: background loads that were started.
        refreshes_dropped: background loads, and loads with a timeout, that were not started because the pool was busy.
        evictions: entries that left because the cache was full.
        evicted_weight: the sum of their weights; 0 without a weigher.
        expirations: entries that left after their time had come.
        replacements, deletions, clearings: entries that left for a new value, one by one, and with all others.
        size: entries in memory now.
        weight: the sum of their weights; 0 without a weigher.
        load_buckets: how many loads and failures took up to each of ``LOAD_BOUNDS`` and more than the one before, and
            how many more than the last.
        store: the store behind a near cache; None for any other cache.
    """

    hits: int = counter()
    misses: int = counter()
    puts: int = counter("Values that were stored, also by loads.", "entry")
    loads: int = counter()
    load_failures: int = counter("Loads that raised an exception.", "load")
    load_seconds: float = counter()
    load_timeouts: int = counter("Callers that did not wait for the end of a load.", "request")
    coalesced: int = counter(
        "Callers that received a value which another caller was computing.", "request", "stampedes_prevented"
    )
    stale_hits: int = counter()
    refreshes: int = counter("Loads that were started in the background.", "load")
    refreshes_dropped: int = counter(
        "Loads in the background that were not started, because too many were under way.", "load"
    )
    evictions: int = counter()
    evicted_weight: int = counter()
    expirations: int = counter()
    replacements: int = counter()
    deletions: int = counter()
    clearings: int = counter()
    size: int = 0
    weight: int = 0
    load_buckets: Buckets = NO_BUCKETS
    store: StoreStats | None = None

    @property
    def requests(self) -> int:
        """Look-ups: hits, stale hits and misses."""
        return self.hits + self.stale_hits + self.misses

    @property
    def uses(self) -> int:
        """Requests, and calls of the store behind: it grows whenever the cache is used."""
        return self.requests + (0 if self.store is None else self.store.uses)

    @property
    def hit_ratio(self) -> float:
        """The share of look-ups that were hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def stale_ratio(self) -> float:
        """The share of look-ups that were stale hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.stale_hits / self.requests if self.requests else 0.0

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

    def counts(self) -> Row:
        """All numbers that only grow, in the order of ``COUNTS``, with exact parts of seconds."""
        store = StoreStats() if self.store is None else self.store
        counters = list(_counters(self))
        counters[_LOAD_SECONDS] = whole_parts(self.load_seconds)
        return (*counters, *self.load_buckets, *_calls(store.reads), *_calls(store.writes))

    @classmethod
    def of(cls, counts: Sequence[Any], *, has_store: bool = True, **gauges: Any) -> Stats:
        """Return the figures whose ``counts()`` these are.

        Args:
            counts: in the order of ``COUNTS``.
            has_store: whether there is a store behind.
            gauges: ``size`` and ``weight``, and those of the store; 0 unless given.
        """
        given = dict(zip(COUNTERS, counts, strict=False))
        buckets = tuple(counts[len(COUNTERS) : _STORE])
        size, weight = gauges.pop("size", 0), gauges.pop("weight", 0)
        store = None
        if has_store:
            halves = (counts[_STORE : _STORE + _CALLS], counts[_STORE + _CALLS :])
            reads, writes = (CallStats(half[0], half[1], half[2], tuple(half[3:])) for half in halves)
            store = StoreStats(reads, writes, **gauges)
        return cls(**given, size=size, weight=weight, load_buckets=buckets, store=store)

    def __sub__(self, earlier: Stats) -> Stats:
        """The figures since ``earlier``, with the gauges of now."""
        counts = subtracted(self.counts(), earlier.counts())
        gauges = {} if self.store is None else {name: getattr(self.store, name) for name in STORE_GAUGES}
        return Stats.of(counts, has_store=self.store is not None, size=self.size, weight=self.weight, **gauges)


def _calls(calls: CallStats) -> tuple[float, ...]:
    return (calls.errors, calls.refused, calls.seconds, *calls.buckets)


COUNTERS: Final = tuple(each.name for each in fields(Stats) if each.metadata)
"""The fields of ``Stats`` that are one number and only grow."""

STORE_GAUGES: Final = tuple(each.name for each in fields(StoreStats) if each.name not in ("reads", "writes"))

COUNTS: Final = (
    *COUNTERS,
    *(f"load_{place}" for place in range(len(NO_BUCKETS))),
    *(
        f"{kind}_{name}"
        for kind in ("read", "write")
        for name in ("errors", "refused", "seconds", *range(len(NO_BUCKETS)))
    ),
)
"""The names of the numbers in a row: all that is counted."""

NOTHING: Final[Row] = (0,) * len(COUNTS)

_counters: Final = attrgetter(*COUNTERS)
_CALLS: Final = 3 + len(NO_BUCKETS)
_LOAD_SECONDS: Final = COUNTERS.index("load_seconds")
_STORE: Final = len(COUNTS) - 2 * _CALLS


def added(one: Row, other: Row) -> Row:
    """Return the sums of two rows of ``COUNTS``."""
    return tuple(map(add, one, other))


def subtracted(later: Row, earlier: Row) -> Row:
    """Return the numbers of ``later`` without those of ``earlier``."""
    return tuple(map(sub, later, earlier))


def hit_ratio(hits: int, misses: int) -> float:
    """Hits per request, 0.0 to 1.0; 0.0 without requests."""
    return hits / (hits + misses) if hits or misses else 0.0


def whole_parts(seconds: float) -> float:
    """Cut to parts of 2**-20, about a microsecond: sums of such are exact in any order, so those of several processes
    never go down by a bit.
    """
    return floor(seconds * _PARTS) / _PARTS
