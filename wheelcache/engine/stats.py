"""The statistics of a cache. Guests add their own: of the store behind a near cache, or of the pages of an HTTP cache.

The counts are exact, and cost a hit 20 ns.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import floor
from typing import Any, Final, Protocol

LOAD_BOUNDS: Final = (
    *(0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0),
)
"""The upper bounds of the histogram of load times, in seconds. A last bucket counts all longer loads. Calls of a store
behind a near cache are counted in the same buckets."""

PARTS: Final = 2**20
"""Parts of a second: see ``whole_parts``."""

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
    """Counts and times the loads of a cache, or the calls of a store. Any thread may count. This takes less than 1 us.

    Args:
        names: the names of the counts.
    """

    __slots__ = ("_buckets", "_counts", "_lock", "_names", "_seconds")

    def __init__(self, *names: str) -> None:
        self._names = names
        self.count_from_zero()

    def count_from_zero(self) -> None:
        """Reset the counts, also in the child of a fork, where a lost thread may hold the lock."""
        # Re-entrant, since the garbage collector may at any point run a finalizer that counts.
        self._lock = threading.RLock()
        self._counts = dict.fromkeys(self._names, 0)
        self._seconds = 0.0
        self._buckets = [0] * len(NO_BUCKETS)

    def add(self, name: str, number: int = 1) -> None:
        """Add ``number`` to the count ``name``."""
        with self._lock:
            self._counts[name] += number

    def ended(self, seconds: float, name: str | None = None) -> None:
        """Record a load or call that took ``seconds``. Add 1 to the count ``name`` if it is given."""
        # The time is negative if a test has moved the clock back.
        seconds = max(0.0, seconds)
        with self._lock:
            if name is not None:
                self._counts[name] += 1
            self._seconds += seconds
            self._buckets[bisect_left(LOAD_BOUNDS, seconds)] += 1

    def read(self) -> tuple[dict[str, int], float, Buckets]:
        """Return the counts by name, the sum of the seconds as rounded by ``whole_parts``, and the histogram."""
        with self._lock:
            return self._counts.copy(), whole_parts(self._seconds), tuple(self._buckets)


MOST_GROUPS: Final = 64
"""The number of groups of keys with a name."""


REMOVALS: Final = {
    "expired": "expirations",
    "evicted": "evictions",
    "replaced": "replacements",
    "deleted": "deletions",
    "cleared": "clearings",
}
"""The counters of removed entries, by the value of their ``RemovalCause``."""

MISSES: Final = {
    "expired": "misses_expired",
    "evicted": "misses_evicted",
    "not stored": "misses_not_stored",
    "deleted": "misses_deleted",
    "cleared": "misses_cleared",
    "tag": "misses_tag",
    "another process": "misses_other_process",
    "new or long gone": "misses_new",
    "unknown": "misses_unknown",
}
"""The counters of misses, by the value of their ``MissCause``."""


@dataclass(slots=True)
class GroupStats:
    """The statistics of keys of one kind: the pages of one view, the fragments of one name, the sessions, a memoized
    function, or the keys with the same text up to the first colon. A cache distinguishes 64 groups; all other keys are
    in the group with an empty name. The core in Python distinguishes none. The sums over all groups are the counts of
    the cache.

    Attributes:
        hits, stale_hits, puts: the look-ups that found a fresh value, and a stale one, and the values that were stored.
        loads, load_failures: the computations of values, and those of them that failed.
        load_seconds: the time spent in ``loads``, in seconds.
        misses_by_cause: the misses, by the value of their ``MissCause``.
    """

    hits: int = 0
    stale_hits: int = 0
    puts: int = 0
    loads: int = 0
    load_failures: int = 0
    load_seconds: float = 0.0
    misses_by_cause: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(MISSES, 0))

    @property
    def misses(self) -> int:
        return sum(self.misses_by_cause.values())

    @property
    def requests(self) -> int:
        """The number of look-ups: hits, stale hits and misses."""
        return self.hits + self.stale_hits + self.misses

    @property
    def hit_ratio(self) -> float:
        """The share of look-ups that were hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def miss_ratio(self) -> float:
        """The share of look-ups that missed, 0.0 to 1.0; 0.0 without look-ups."""
        return self.misses / self.requests if self.requests else 0.0


class PartStats(Protocol):
    """The statistics that a guest adds to those of a cache."""

    @property
    def uses(self) -> int:
        """The number of calls that the guest counts. It grows whenever the guest is used."""

    @property
    def answered(self) -> int | None:
        """The number of look-ups without an entry that the guest answered; None if it answers none."""


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of a cache since it was made, or since the fork in a child process.

    This class defines all counters: to add one, add a field here and the line of code that counts. The parts use the
    field names for their counts. The database of the site has a column for each number.

    Attributes:
        hits, misses: look-ups by ``get``, ``get_many``, ``get_or_load`` and ``aget_or_load`` that
            found a value within its TTL, or found none.
        stale_hits: look-ups that returned a value past its TTL, within its grace. They are neither hits nor misses.
        puts: values that were stored, including loaded ones.
        loads, load_failures: computations of values that returned, and that raised, each of which counts once: calls of
            a loader, and the time between a miss of a backend's ``get`` or ``get_many`` and the first ``set``, ``add``
            or ``set_many`` of the key that follows within 60 seconds in the same thread, task or request. Reads of the
            store behind count in ``store`` only, and a value that is given instead of a loader counts as no load.
        load_seconds: the time spent in loads, including failed ones, in seconds.
        load_timeouts: callers that did not wait for the end of a load.
        coalesced: callers that received a value that another caller was computing: stampedes prevented.
        refreshes: background loads that were started.
        refreshes_dropped: background loads, and loads with a timeout, that were not started because the pool was busy.
        evictions: entries that left because the cache was full.
        evicted_weight: the sum of their weights; 0 without a weigher.
        misses_expired, misses_evicted, misses_deleted, misses_cleared, misses_tag: misses of keys whose entry had
            expired, was evicted, deleted, removed by ``clear``, or outdated by the drop of a tag.
        misses_not_stored: misses of keys whose value was refused: it was too heavy, or outdated when it came.
        misses_other_process: misses of keys that another process may have written, since the connection on which the
            store behind reports writes was lost.
        misses_new: misses of keys that were never stored, or left long ago. For keys that left long ago, the causes are
            estimated from a sample.
        misses_unknown: in the core in Python, all misses of keys that have no entry. The sum of the nine counts is
            ``misses``.
        expirations: entries that expired.
        replacements, deletions, clearings: entries that were replaced by a new value, deleted individually, or removed
            by ``clear``.
        size: entries in memory now.
        weight: the sum of their weights; 0 without a weigher.
        load_buckets: the histogram of the times of loads and failures: the number for each of ``LOAD_BOUNDS``, and the
            number of longer ones.
        groups: the statistics of groups of keys, by name: see ``GroupStats``.
        by_guest: the statistics that guests add, by name.
    """

    hits: int = 0
    misses: int = 0
    puts: int = 0
    loads: int = 0
    load_failures: int = 0
    load_seconds: float = 0
    load_timeouts: int = 0
    coalesced: int = 0
    stale_hits: int = 0
    refreshes: int = 0
    refreshes_dropped: int = 0
    evictions: int = 0
    evicted_weight: int = 0
    misses_expired: int = 0
    misses_evicted: int = 0
    misses_not_stored: int = 0
    misses_deleted: int = 0
    misses_cleared: int = 0
    misses_tag: int = 0
    misses_other_process: int = 0
    misses_new: int = 0
    misses_unknown: int = 0
    expirations: int = 0
    replacements: int = 0
    deletions: int = 0
    clearings: int = 0
    size: int = 0
    weight: int = 0
    load_buckets: Buckets = NO_BUCKETS
    groups: Mapping[str, GroupStats] = field(default_factory=dict)
    by_guest: Mapping[str, PartStats] = field(default_factory=dict)

    @property
    def store(self) -> Any:
        """The statistics of the store behind a near cache; None for any other cache."""
        return self.by_guest.get("store")

    @property
    def pages(self) -> Any:
        """The statistics of the pages of an HTTP cache; None for any other cache."""
        return self.by_guest.get("pages")

    @property
    def requests(self) -> int:
        """The number of look-ups: hits, stale hits and misses."""
        return self.hits + self.stale_hits + self.misses

    @property
    def uses(self) -> int:
        """The number of requests, calls of the store behind, and pages. It grows whenever the cache is used."""
        return self.requests + sum(each.uses for each in self.by_guest.values())

    @property
    def hit_ratio(self) -> float:
        """The share of look-ups that were hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.hits / self.requests if self.requests else 0.0

    @property
    def answered(self) -> int | None:
        """The number of look-ups that the cache or the store behind it answered; None without a store."""
        numbers = [each.answered for each in self.by_guest.values() if each.answered is not None]
        return self.hits + sum(numbers) if numbers else None

    @property
    def answered_ratio(self) -> float | None:
        """The share of look-ups that the cache or the store behind it answered; None without a store or look-ups."""
        return None if self.answered is None or not self.requests else self.answered / self.requests

    @property
    def stale_ratio(self) -> float:
        """The share of look-ups that were stale hits, 0.0 to 1.0; 0.0 without look-ups."""
        return self.stale_hits / self.requests if self.requests else 0.0

    @property
    def removals(self) -> dict[str, int]:
        """The numbers of removed entries, by the value of their ``RemovalCause``."""
        return {cause: getattr(self, name) for cause, name in REMOVALS.items()}

    @property
    def misses_by_cause(self) -> dict[str, int]:
        """The numbers of misses, by the value of their ``MissCause``."""
        return {cause: getattr(self, name) for cause, name in MISSES.items()}


COUNTERS: Final = tuple(
    each.name for each in fields(Stats) if each.default == 0 and each.name not in ("size", "weight")
)
"""The fields of ``Stats`` that are single numbers and only grow."""


def hit_ratio(hits: int, misses: int) -> float:
    """Return the hits per request, 0.0 to 1.0; 0.0 without requests."""
    return hits / (hits + misses) if hits or misses else 0.0


def whole_parts(seconds: float) -> float:
    """Round ``seconds`` down to a multiple of 2**-20, about a microsecond.

    Sums of such numbers are exact in any order, so the sum over several processes never decreases by a rounding error.
    """
    return floor(seconds * PARTS) / PARTS
