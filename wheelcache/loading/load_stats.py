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

    __slots__ = (
        "coalesced",
        "load_failures",
        "load_timeouts",
        "load_times",
        "loads",
        "refreshes",
        "refreshes_dropped",
        "stale_hits",
    )

    def __init__(self) -> None:
        self.count_from_zero()

    def count_from_zero(self) -> None:
        self.loads = 0
        self.load_failures = 0
        self.load_times = LoadTimes()
        self.load_timeouts = 0
        self.coalesced = 0
        self.stale_hits = 0
        self.refreshes = 0
        self.refreshes_dropped = 0

    def snapshot(self) -> LoadStats:
        return LoadStats(
            self.loads,
            self.load_failures,
            (self.load_times.seconds, tuple(self.load_times.buckets)),
            self.load_timeouts,
            self.coalesced,
            self.stale_hits,
            self.refreshes,
            self.refreshes_dropped,
        )
