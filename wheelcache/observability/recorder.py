"""Assigns what a cache counts to the common steps of all processes.

A step begins at a multiple of ten seconds since 1970. At its end, a job marks what has been counted, so that each count
belongs to the step in which it happened, whatever the process does then: publish, exit, or go on. If the mark is late,
the counts since the mark before are split in proportion to the time. The parts are whole numbers whose sum is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import floor
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from wheelcache.observability.site_file import DAY, HOUR, LEVELS, LONG_STEP, STEP, USE
from wheelcache.runtime.clock import Clock, ManualClock, SystemClock
from wheelcache.stats import COUNTS, NOTHING, Row, Stats, added, subtracted

MINUTE: Final = 60 // STEP
"""Steps of the last minute."""

_LOOKUPS: Final = tuple(map(COUNTS.index, ("hits", "stale_hits", "misses")))

Steps = dict[tuple[int, int], Row]
"""By the seconds of a step and its start, in seconds since 1970: its levels, and the counts."""

_ENTRIES, _MEMORY, _STARTED = range(len(LEVELS))
_EMPTY: Final = (0.0,) * len(LEVELS) + NOTHING


class Gauges(NamedTuple):
    """What a cache is now, in one process. See ``SCHEMA`` of ``site_file``."""

    memory: int | None
    lag: float
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool


_epochs: Final[WeakKeyDictionary[ManualClock, float]] = WeakKeyDictionary()
"""When each ``ManualClock`` showed 0, in seconds since 1970."""


class Recorder:
    """What one cache of this process has counted, by steps. A job of ``periodic_jobs``, at the end of each step.

    It is used by one thread at a time, under ``site_file.USE``.

    Args:
        name: of the cache.
        stats: returns the figures.
        gauges: returns the state of the cache.
        clock: seconds.
        keeps_steps: whether there are charts.

    Attributes:
        steps: what has not been published; where nothing is published, all that is kept.
        row: all that has been counted since the cache was made, or since the fork.
        stats: the figures at the last mark.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_clock",
        "_epoch",
        "_is_new",
        "_keeps_steps",
        "_minute",
        "_read",
        "gauges",
        "name",
        "row",
        "stats",
        "steps",
    )

    period: Final = float(STEP)
    matters: Final = HOUR // STEP

    def __init__(
        self,
        name: str,
        stats: Callable[[], Stats],
        gauges: Callable[[], Gauges],
        clock: Clock,
        *,
        keeps_steps: bool,
    ) -> None:
        self.name = name
        self.gauges = gauges
        self._read = stats
        self._clock = clock
        self._keeps_steps = keeps_steps
        # A ManualClock may run ahead of the time, so that one is read once.
        self._epoch = _epochs.setdefault(clock, SystemClock.time() - clock()) if isinstance(clock, ManualClock) else 0.0
        self.start_over()

    def start_over(self) -> None:
        self.steps: Steps = {}
        self.row: Row = NOTHING
        self.stats = Stats()
        self._at = self._clock()
        self._is_new = True
        self._minute: deque[tuple[int, tuple[float, ...]]] = deque(maxlen=MINUTE + 2)

    def uses(self) -> int:
        """How often the cache has been used."""
        return self._read().uses

    def time(self) -> float:
        """Seconds since 1970. They move with a ``ManualClock``."""
        return self._epoch + self._clock() if isinstance(self._clock, ManualClock) else SystemClock.time()

    def until_next(self) -> float:
        """Seconds to the end of the step."""
        return STEP - self.time() % STEP

    def begin(self) -> None:
        """Assign all counts since the last mark to this moment.

        The cache was empty and paused, so they are most of all the miss before this write.
        """
        with USE.lock:
            self._at = self._clock()
            self.mark()

    def mark(self) -> None:
        """Assign what was counted since the last mark to the steps since then."""
        stats, now, time = self._read(), self._clock(), self.time()
        row = stats.counts()
        new = subtracted(row, self.row)
        # By the clock that nobody sets. Of a longer time there are no steps of ten seconds.
        seconds = min(max(now - self._at, 0.0), float(HOUR))
        memory = self.gauges().memory or 0
        for start, part, is_over in _split(new, time - seconds, time):
            if not (is_over or self._is_new or any(part)):
                continue
            self._add(start, part, stats.size if is_over else 0, memory if is_over else 0)
        self.row, self.stats, self._at = row, stats, now
        if len(self.steps) > 2 * HOUR // STEP:
            self.forget_old()

    def minute(self) -> tuple[tuple[float, ...], int]:
        """Hits, stale hits and misses of the six last steps that are over, and how many seconds they are."""
        over = floor(self.time() / STEP) * STEP
        parts = [counts for start, counts in self._minute if over - MINUTE * STEP <= start < over]
        return tuple(map(sum, zip(*parts, strict=True))) if parts else (0, 0, 0), len(parts) * STEP

    def published(self, steps: Steps) -> None:
        """``steps`` are in the database: they are taken out of ``steps``, and are no longer published."""
        while steps:
            place, row = steps.popitem()
            if self.steps.get(place) is row:
                del self.steps[place]
            else:
                self.steps[place] = subtracted(self.steps[place], row)

    def forget_old(self) -> None:
        """Drop the steps that no chart shows."""
        time = self.time()
        for seconds, start in list(self.steps):
            if not time - _KEPT[seconds] <= start <= time + HOUR:
                del self.steps[seconds, start]

    def run(self) -> None:
        with USE.lock:
            self.mark()

    def close(self) -> None:
        """There is nothing to let go."""

    def _add(self, start: int, part: Row, entries: int, memory: int) -> None:
        is_new, self._is_new = self._is_new, False
        for seconds in (STEP, LONG_STEP) if self._keeps_steps else ():
            place = seconds, start - start % seconds
            share = STEP / seconds
            row = (entries * share, memory * share, int(is_new), *part)
            self.steps[place] = added(self.steps.get(place, _EMPTY), row)
        counts = tuple(part[each] for each in _LOOKUPS)
        if self._minute and self._minute[-1][0] == start:
            counts = tuple(map(sum, zip(self._minute.pop()[1], counts, strict=True)))
        self._minute.append((start, counts))


_KEPT: Final = {STEP: HOUR, LONG_STEP: DAY}


def _split(new: Row, begin: float, end: float) -> Iterator[tuple[int, Row, bool]]:
    """The starts of the steps from ``begin`` to ``end``, the part of ``new`` for each, and whether it is over."""
    first, last = floor(begin / STEP), floor(end / STEP)
    before = NOTHING
    for number in range(first, last):
        share = ((number + 1) * STEP - begin) / (end - begin)
        upto = tuple(_share(each, share) for each in new)
        yield number * STEP, subtracted(upto, before), True
        before = upto
    yield last * STEP, subtracted(new, before), False


def _share(count: float, share: float) -> float:
    """A part of a count: a whole number, or for seconds a number of 2**-20."""
    return round(count * share) if isinstance(count, int) else floor(count * share * 2**20) / 2**20


def last_steps(steps: Steps, seconds: int, since: float, until: float) -> dict[int, Row]:
    """Return the steps of so many ``seconds`` that begin from ``since`` on and before ``until``, by their start."""
    wanted = ((start, row) for (length, start), row in steps.items() if length == seconds)
    return {start: row for start, row in wanted if since <= start < until}
