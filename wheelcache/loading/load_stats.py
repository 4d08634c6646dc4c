"""The counts of loads."""

from __future__ import annotations

from typing import NamedTuple

from wheelcache.stats import LoadTimes


class LoadStats(NamedTuple):
    """Since construction, or since the fork in a child: see ``stats.Stats``. None of them decreases.

    Attributes:
        load_times: (seconds, counts by bucket).
        stale_hits: hits that the core has not counted.
    """

    loads: int
    load_failures: int
    load_times: tuple[float, tuple[int, ...]]
    load_timeouts: int
    coalesced: int
    stale_hits: int
    refreshes: int
    refreshes_dropped: int


class LoadCounts:
    """The same while it is counted. Changed and read under the lock of the flights."""

    def __init__(self) -> None:
        self.count_from_zero()

    def count_from_zero(self) -> None:
        self.loads = self.load_failures = self.load_timeouts = self.coalesced = 0
        self.stale_hits = self.refreshes = self.refreshes_dropped = 0
        self.load_times = LoadTimes()

    def snapshot(self) -> LoadStats:
        times = (self.load_times.seconds, tuple(self.load_times.buckets))
        return LoadStats(**vars(self) | {"load_times": times})
