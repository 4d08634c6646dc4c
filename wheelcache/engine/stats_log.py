"""Log the core of a process, and the performance of a cache in the manner of go-zero's ``cacheStat``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from math import inf
from typing import Final

from wheelcache.core import HOW_TO_CHANGE, REPORT
from wheelcache.engine.stats import Stats
from wheelcache.errors import CacheClosed
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.shared_objects import WeakRegistry

logger = logging.getLogger("wheelcache.stats")

_UNREPORTED: Final = iter((f"{REPORT}. {HOW_TO_CHANGE}",))
"""An iterator with one item, so that only one thread receives it."""


def report_core() -> str | None:
    """Return which core runs and how to change it, or None if this process or its parent has already reported it."""
    return next(_UNREPORTED, None)


class StatsLog(PeriodicJob):
    """Logs the figures of every minute with traffic, and of the last one when the process exits. A job of
    ``periodic_jobs``.

    Args:
        name: the name of the cache.
        clock: the clock of the cache, in seconds.
        stats: returns the figures since the start.
    """

    period = 60.0
    matters = 360

    def __init__(self, name: str, clock: Clock, stats: Callable[[], Stats]) -> None:
        self._name = name
        self._clock = clock
        self._stats = stats
        self._last = Stats()
        self._then = inf
        _LOGS.add(self)

    def begin(self) -> None:
        # At the first use, since a command that only looks at the settings creates the caches, too.
        if report := report_core():
            logging.getLogger("wheelcache").info("%s", report)
        self._then = self._clock()

    def run(self) -> None:
        stats, now = self._stats(), self._clock()
        last, seconds = self._last, now - self._then
        self._last, self._then = stats, now
        hits, misses, stale = stats.hits - last.hits, stats.misses - last.misses, stats.stale_hits - last.stale_hits
        requests = hits + misses + stale
        if requests and seconds:
            both = None if stats.answered is None else (stats.answered - (last.answered or 0)) / requests
            figures = {
                "cache": self._name,
                "qpm": round(requests * 60 / seconds),
                **({} if both is None else {"both_tiers": round(100 * both, 1)}),
                "hit_ratio": round(100 * hits / requests, 1),
                "elements": stats.size,
                "hit": hits,
                "miss": misses,
                "stale": stale,
            }
            line = (
                "cache(%(cache)s) - qpm: %(qpm)d, "
                + ("" if both is None else "both_tiers: %(both_tiers).1f%%, ")
                + "hit_ratio: %(hit_ratio).1f%%, elements: %(elements)d, "
                "hit: %(hit)d, miss: %(miss)d"
            )
            logger.info(line + (", stale: %(stale)d" if stale else ""), figures, extra=figures)

    def run_last(self) -> None:
        """Log the figures since the last line, if there could be one."""
        if self._then < inf:
            self.run()

    def start_over(self) -> None:
        self._last = Stats()
        self._then = inf


_LOGS: Final[WeakRegistry[StatsLog]] = WeakRegistry()


def _log_last() -> None:
    """Log the figures since the last line, when the process exits."""
    for log in _LOGS:
        with suppress(CacheClosed):
            log.run_last()


lifecycle.PUBLISH.add(_log_last)
