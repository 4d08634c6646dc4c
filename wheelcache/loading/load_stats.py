"""The counts of loads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from wheelcache.stats import COUNTERS, LoadTimes


class LoadCounts(SimpleNamespace):
    """The counters of ``Stats``, of which loads count some. Changed and read under the lock of the flights.

    Attributes:
        stale_hits: hits that the core has not counted.
        load_times: how long loads took.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count_from_zero()

    def count_from_zero(self) -> None:
        vars(self).update(dict.fromkeys(COUNTERS, 0), load_times=LoadTimes())

    def read(self) -> dict[str, Any]:
        """Return all of them by the names of ``Stats``. None of them decreases."""
        seconds, buckets = self.load_times.read()
        return vars(self) | {"load_seconds": seconds, "load_buckets": buckets}
