"""The statistics of the store behind a near cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from wheelcache.engine.stats import LOAD_BOUNDS

NO_CALLS: Final = (0,) * (len(LOAD_BOUNDS) + 1)


@dataclass(frozen=True, slots=True)
class CallStats:
    """The reads, or the writes, of a store behind a near cache.

    Attributes:
        errors: calls that failed because of the store. An error about the key or the value does not count.
        refused: calls that were not made, because the store had failed recently.
        seconds: the time spent in calls, in seconds.
        buckets: the histogram of the call times, as in ``Stats.load_buckets``. A call is counted when it ends with an
            answer, with an error, or by the cancellation of its task.
    """

    errors: int = 0
    refused: int = 0
    seconds: float = 0
    buckets: tuple[int, ...] = NO_CALLS

    @property
    def calls(self) -> int:
        """The number of calls that were made and have ended."""
        return sum(self.buckets)

    @property
    def uses(self) -> int:
        """The number of calls, including refused ones."""
        return self.calls + self.refused

    def counts(self) -> tuple[float, ...]:
        """Return the numbers, all of which only grow."""
        return (*_call_counters(self), *self.buckets)

    @classmethod
    def of(cls, counts: Sequence[Any]) -> CallStats:
        """Return the statistics that have these ``counts()``."""
        counters = dict(zip(CALL_COUNTERS, counts, strict=False))
        return cls(**counters, buckets=tuple(counts[len(counters) :]))


@dataclass(frozen=True, slots=True)
class StoreStats:
    """The statistics of the store behind a near cache, since the near cache was made, or since the fork.

    Attributes:
        hits, misses: look-ups without a copy for which the store had a value, or had none. Callers that share a read
            are counted individually.
        reads, writes: the calls of the store.
        breakers: processes with a circuit breaker for the store: 0 or 1 for one process.
        open_breakers: processes whose circuit breaker is open now.
        trackers: processes that read from the store, if it can notify them of writes; otherwise 0.
        trusted: processes that it notifies now.
        refused_trackers: processes that it refuses to notify.
    """

    hits: int = 0
    misses: int = 0
    reads: CallStats = CallStats()
    writes: CallStats = CallStats()
    breakers: int = 0
    open_breakers: int = 0
    trackers: int = 0
    trusted: int = 0
    refused_trackers: int = 0

    @property
    def uses(self) -> int:
        """The number of calls, including refused ones."""
        return self.reads.uses + self.writes.uses

    @property
    def answered(self) -> int:
        return self.hits

    @property
    def lost_trackers(self) -> int:
        """The number of processes that it does not notify now, although it does not refuse to."""
        return self.trackers - self.trusted - self.refused_trackers

    def counts(self) -> tuple[float, ...]:
        """Return the numbers that only grow."""
        return (*_store_counters(self), *self.reads.counts(), *self.writes.counts())

    def gauges(self) -> tuple[float, ...]:
        """Return the numbers that go up and down, in the order of ``STORE_GAUGES``."""
        return _store_gauges(self)

    @classmethod
    def of(cls, counts: Sequence[Any], gauges: Sequence[Any]) -> StoreStats:
        """Return the statistics that have these ``counts()`` and gauges."""
        counters = dict(zip(STORE_COUNTERS, counts, strict=False))
        half = (len(counters) + len(counts)) // 2
        reads, writes = CallStats.of(counts[len(counters) : half]), CallStats.of(counts[half:])
        return cls(**counters, reads=reads, writes=writes, **dict(zip(STORE_GAUGES, gauges, strict=True)))


CALL_COUNTERS: Final = ("errors", "refused", "seconds")
STORE_COUNTERS: Final = ("hits", "misses")
COUNTS: Final = (
    *(f"store_{name}" for name in STORE_COUNTERS),
    *(f"{kind}_{name}" for kind in ("read", "write") for name in (*CALL_COUNTERS, *range(len(NO_CALLS)))),
)
"""The names of ``StoreStats.counts``."""

STORE_GAUGES: Final = ("breakers", "open_breakers", "trackers", "trusted", "refused_trackers")

_call_counters: Final = attrgetter(*CALL_COUNTERS)
_store_counters: Final = attrgetter(*STORE_COUNTERS)
_store_gauges: Final = attrgetter(*STORE_GAUGES)
