"""Assign the counts of a cache to time steps that all processes have in common.

A step begins at a multiple of ten seconds since 1970. At its end, a job marks the counts, so that each count belongs to
the step in which it happened, even if the process publishes later or exits. If the mark is late, the counts since the
previous mark are split in proportion to the time. The parts are whole numbers whose sum is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from math import floor, inf
from typing import Any, Final, NamedTuple
from weakref import WeakKeyDictionary

from wheelcache.engine.stats import Stats
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.wheel_driver import ManualClock
from wheelcache.watch.key_groups import Groups, GroupSteps, changes, merged
from wheelcache.watch.rows import COUNTS, NOTHING, Row, added, reading_of, subtracted, with_groups
from wheelcache.watch.site_file import USE
from wheelcache.watch.tables import DAY, HOUR, KEPT, LONG_STEP, LOOKUPS, NUMBERS, STEP

MINUTE: Final = 60 // STEP
"""Steps of the last minute."""

FORGET_EVERY: Final = 600.0
"""Seconds between two searches for steps that are older than an hour."""

EMPTY: Final[Row] = (0,) * len(NUMBERS)

_LOOKUPS: Final = tuple(map(COUNTS.index, LOOKUPS))

Steps = dict[tuple[int, int], Row]
"""The levels and counts of each step, by its length in seconds and its start, in seconds since 1970."""


class State(NamedTuple):
    """The present state of a cache in one process."""

    lag: float
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    has_store: bool
    has_pages: bool
    is_shared: bool


_epochs: Final[WeakKeyDictionary[ManualClock, float]] = WeakKeyDictionary()
"""The time when each ``ManualClock`` showed 0, in seconds since 1970."""


class Recorder(PeriodicJob):
    """Records the counts of one cache of this process by steps. A job of ``periodic_jobs``, at the end of each step.

    One thread at a time uses it, under ``site_file.USE``.

    Args:
        name: the name of the cache.
        stats: reads the figures.
        state: returns the state of the cache.
        clock: the clock of the cache, in seconds.
        keeps_steps: whether the steps are kept, for charts.

    Attributes:
        steps: the steps that are not over or not published; if the cache does not publish, the steps of the last day.
        groups: the counts of the groups of keys, as ``row``.
        group_steps: the counts of the groups that are not published, by steps; before the last hour, by minutes.
        row: all counts since the cache was made, or since the fork.
        now: the gauges at the last mark, in the order of ``GAUGES_OF_WORKER``.
    """

    period = float(STEP)
    matters = HOUR // STEP

    def __init__(
        self,
        name: str,
        stats: Callable[[], Stats],
        state: Callable[[], State],
        clock: Clock,
        *,
        keeps_steps: bool,
    ) -> None:
        self.name = name
        self._stats = stats
        self._state = state
        self._clock = clock
        self._keeps_steps = keeps_steps
        # The real time is read once, because a ManualClock may run ahead of it.
        self._epoch = _epochs.setdefault(clock, SystemClock.time() - clock()) if isinstance(clock, ManualClock) else 0.0
        self.start_over()

    def start_over(self) -> None:
        self.steps: Steps = {}
        self.group_steps: GroupSteps = {}
        self.row: Row = NOTHING
        self.groups: Groups = {}
        self.now: tuple[Any, ...] = ()
        self._at = self._clock()
        self._began = self.time()
        self._peak = 0.0
        self._is_new = True
        self._forget_at = -inf
        self._minute: deque[tuple[int, Row]] = deque(maxlen=MINUTE + 2)

    def uses(self) -> int:
        """Return how often the cache has been used."""
        return self._stats().uses

    def time(self) -> float:
        """Return the time in seconds since 1970. It moves with a ``ManualClock``."""
        return self._epoch + self._clock() if isinstance(self._clock, ManualClock) else SystemClock.time()

    def next_run(self, due: float, now: float) -> float:
        """Return the time at which the step ends."""
        return now + STEP - self.time() % STEP

    def begin(self) -> None:
        """Assign all counts since the last mark to this moment.

        The cache was empty and its jobs were paused, so the main count is the miss that preceded this write.
        """
        with USE.lock:
            self._at = self._clock()
            self.mark()

    def mark(self) -> None:
        """Assign the counts since the last mark to the steps since then."""
        now, time = self._clock(), self.time()
        (row, gauges, groups), state = reading_of(self._stats()), self._state()
        # Not by the wall clock, which may be set. Steps of ten seconds are kept for an hour.
        seconds = min(max(now - self._at, 0.0), float(HOUR))
        if self._is_new or (row, groups) != (self.row, self.groups) or time // STEP != (time - seconds) // STEP:
            size, weight = gauges[:2]
            at_its_end = (size * STEP, weight * STEP if state.weighs_bytes else 0)
            new = changes(groups, self.groups)
            for start, part, parts, is_over in _split(subtracted(row, self.row), new, time - seconds, time):
                if is_over or self._is_new or any(part) or parts:
                    self._add(start, part, parts, at_its_end if is_over else (0, 0))
        self.row, self.groups, self._at = row, groups, now
        self._peak = max(self._peak, gauges[0])
        self.now = self.row_of_worker(gauges, state)
        if now >= self._forget_at:
            self._forget_at = now + FORGET_EVERY
            self.forget_old()

    def minute(self) -> tuple[float, ...]:
        """Return the sums of ``LOOKUPS`` over the last six completed steps, and the seconds that these cover.

        If there were no look-ups in these steps, as after a restart, the present step is included, with its seconds.
        """
        time = self.time()
        over = floor(time / STEP) * STEP
        since = over - MINUTE * STEP
        parts = [counts for start, counts in self._minute if since <= start < over]
        seconds: float = len(parts) * STEP
        if not any(map(any, parts)):
            parts += [counts for start, counts in self._minute if start == over]
            seconds += min(time - over, time - self._began)
        return (*map(sum, zip(*parts, strict=True)), seconds) if parts else (0,) * (len(LOOKUPS) + 1)

    def row_of_worker(self, gauges: Row, state: State) -> tuple[Any, ...]:
        """Return the gauges, the last minute, the most entries at any mark, and the state in the order of
        ``GAUGES_OF_WORKER``."""
        return (*gauges, *self.minute(), max(self._peak, gauges[0]), *state)

    def published(self, steps: Steps) -> None:
        """Forget the published ``steps`` that are over, and those of the groups.

        They are removed from the argument as well, because a later count may begin such a step again.
        """
        time = self.time()
        self.group_steps = {}
        for place, row in list(steps.items()):
            if sum(place) <= time and self.steps.get(place) is row:
                del self.steps[place], steps[place]

    def forget_old(self) -> None:
        """Add the steps that are older than an hour to longer ones, and drop those that no chart shows."""
        time = self.time()
        for seconds, start in list(self.steps):
            if not time - (KEPT if seconds == STEP else DAY) <= start <= time + HOUR:
                row = self.steps.pop((seconds, start))
                if seconds == STEP:
                    self._put(LONG_STEP, start - start % LONG_STEP, row)
        for start in [each for each in self.group_steps if not time - KEPT <= each <= time + HOUR]:
            groups, minute = self.group_steps.pop(start), start - start % LONG_STEP
            if time - DAY <= start < time:
                self.group_steps[minute] = merged(self.group_steps.get(minute, {}), groups)

    def run(self) -> None:
        with USE.lock:
            self.mark()

    def _add(self, start: int, part: Row, parts: Groups, levels: tuple[float, float]) -> None:
        is_new, self._is_new = self._is_new, False
        if self._keeps_steps:
            self._put(STEP, start, (*levels, int(is_new), 0, *part))
            if parts:
                known = self.group_steps.get(start)
                self.group_steps[start] = dict(parts) if known is None else merged(known, parts)
        counts = tuple(part[each] for each in _LOOKUPS)
        if self._minute and self._minute[-1][0] == start:
            counts = added(self._minute.pop()[1], counts)
        self._minute.append((start, counts))

    def _put(self, seconds: int, start: int, row: Row) -> None:
        self.steps[seconds, start] = added(self.steps.get((seconds, start), EMPTY), row)


def _split(new: Row, groups: Groups, begin: float, end: float) -> Iterator[tuple[int, Row, Groups, bool]]:
    """Split ``new``, and the counts of the groups of keys, among the steps from ``begin`` to ``end``.

    Yields:
        The start of a step, its part of ``new``, the parts of the groups, and whether the step is over.
    """
    first, last = floor(begin / STEP), floor(end / STEP)
    for number in range(first, last):
        share = ((number + 1) * STEP - begin) / (end - begin)
        parts = {name: part for name, row in groups.items() if any(part := _part(row, share))}
        part = with_groups(_part(new, share), parts.values())
        yield number * STEP, part, parts, True
        new, begin = subtracted(new, part), (number + 1) * STEP
        groups = changes(groups, parts)
    yield last * STEP, new, groups, False


def _part(row: Row, share: float) -> Row:
    return tuple(each and _share(each, share) for each in row)


def _share(count: float, share: float) -> float:
    """Return a part of a count: a whole number, or for seconds a multiple of 2**-20."""
    return round(count * share) if isinstance(count, int) else floor(count * share * 2**20) / 2**20
