"""The last hour of a cache: a ring of samples of its figures."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from wheelcache.runtime.clock import Clock
from wheelcache.stats import Stats

LENGTH: Final = 360
"""Samples: an hour of one every 10 seconds. Full, 215 KB."""


class Sample(NamedTuple):
    """The figures at one moment: those of ``Stats`` by the same names, and ``at``, and ``lag``, in seconds.

    ``loads`` are those that returned and those that raised.
    """

    at: float
    lag: float
    hits: int
    misses: int
    loads: int
    load_seconds: float
    coalesced: int
    expirations: int
    evictions: int
    replacements: int
    deletions: int
    clearings: int
    size: int
    weight: int


def sample(stats: Stats, at: float, lag: float) -> Sample:
    """``stats`` as they were ``at`` that time."""
    return Sample(
        round(at, 3),
        round(lag, 6),
        stats.hits,
        stats.misses,
        stats.loads + stats.load_failures,
        round(stats.load_seconds, 6),
        stats.coalesced,
        stats.expirations,
        stats.evictions,
        stats.replacements,
        stats.deletions,
        stats.clearings,
        stats.size,
        stats.weight,
    )


class History:
    """The samples of the last hour. A job of ``periodic_jobs``.

    Args:
        interval: seconds between samples.
        clock: seconds.
        stats: tells the figures up to now.
        lag: tells by how many seconds the wheel is late.
    """

    __slots__ = ("_clock", "_lag", "_stats", "period", "samples")

    matters: Final = LENGTH

    def __init__(self, interval: float, clock: Clock, stats: Callable[[], Stats], lag: Callable[[], float]) -> None:
        self.period = interval
        self._clock = clock
        self._stats = stats
        self._lag = lag
        self.samples: deque[Sample] = deque(maxlen=LENGTH)

    def begin(self) -> None:
        """After a rest nothing is known of the time in between, so the first sample is of now."""
        self.run()

    def run(self) -> None:
        self.samples.append(sample(self._stats(), self._clock(), self._lag()))

    def start_over(self) -> None:
        self.samples = deque(maxlen=LENGTH)

    def close(self) -> None:
        """There is nothing to let go."""
