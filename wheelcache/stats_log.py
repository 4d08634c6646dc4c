"""The line a minute that says how a cache does, in the manner of go-zero's ``cacheStat``."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from wheelcache.clock import Clock
from wheelcache.errors import WheelClosed
from wheelcache.stats import Stats, hit_ratio
from wheelcache.timers import STOP, Timers

logger = logging.getLogger("wheelcache.stats")

SLOTS: Final = 64


class StatsLog:
    """A line for every interval with traffic, with the figures of that interval, while there is something to hit.

    Args:
        name: of the cache.
        interval: seconds between lines; None for none at all.
        tick: seconds by which a line may be late.
        clock: seconds.
        stats: tells the figures up to now.
    """

    __slots__ = ("_clock", "_interval", "_last", "_name", "_stats", "_stopped", "_then", "_tick", "_timers")

    def __init__(
        self, name: str, interval: float | None, tick: float, clock: Clock, stats: Callable[[], Stats]
    ) -> None:
        self._name = name
        self._interval = interval
        self._tick = tick
        self._clock = clock
        self._stats = stats
        self._last = (0, 0)
        self._then = 0.0
        self._timers: Timers | None = None
        # Holds one item while no line is due, which whoever starts it takes: one C call, so no lock.
        self._stopped: list[bool] = [] if interval is None else [True]

    def start(self) -> None:
        """See that lines come, from an interval from now."""
        if not self._stopped or self._interval is None:
            return
        with suppress(IndexError, WheelClosed):
            self._stopped.pop()
            self._then = self._clock()
            if self._timers is None:
                self._timers = Timers(min(self._tick, self._interval), SLOTS, _nothing, clock=self._clock)
            self._timers.every(self._interval, self._line)

    def close(self) -> None:
        """No more lines."""
        self._stopped.clear()
        if self._timers is not None:
            self._timers.stop()

    def start_over(self, hits: int, misses: int) -> None:
        """In the child of a fork: what was counted so far is the parent's."""
        self._last = (hits, misses)
        self._stopped = [] if self._interval is None else [True]

    def _line(self) -> object:
        stats, now = self._stats(), self._clock()
        hits, misses = stats.hits - self._last[0], stats.misses - self._last[1]
        seconds = now - self._then
        self._last, self._then = (stats.hits, stats.misses), now
        if not hits and not misses and not stats.size:
            # Nothing can be hit, and a write starts the line again: until then the wheel thread may sleep.
            self._stopped.append(True)
            return STOP
        if hits or misses:
            figures = {
                "cache": self._name,
                "qpm": round((hits + misses) * 60 / seconds),
                "hit_ratio": round(100 * hit_ratio(hits, misses), 1),
                "elements": stats.size,
                "hit": hits,
                "miss": misses,
            }
            logger.info(
                "cache(%(cache)s) - qpm: %(qpm)d, hit_ratio: %(hit_ratio).1f%%, elements: %(elements)d, "
                "hit: %(hit)d, miss: %(miss)d",
                figures,
                extra=figures,
            )
        return None


def _nothing(key: Any, value: Any) -> None:
    """These timers are periodic jobs; none has a key."""
