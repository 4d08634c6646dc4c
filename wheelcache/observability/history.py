"""The history of a cache: what all workers of a site counted together, step by step.

There are two rings: an hour in steps of ten seconds, and a day in steps of five minutes. Each worker adds what it
counted since its last sample to the steps that ended meanwhile, so a worker that exits, in whatever manner, takes
nothing away, and reading costs the same for one worker and for forty. Workers that share figures share the rings in a
file, 57 KB a cache; otherwise each has them in memory.

The newest steps are incomplete until every worker has added its part. Each worker publishes how far it got, and a
reader leaves out what comes after the slowest: see ``CacheStats.complete_until``.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from math import ceil, floor
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple, Protocol

from wheelcache.errors import CacheClosed, FileUnusable
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, ManualClock, SystemClock
from wheelcache.runtime.private_files import locked_file
from wheelcache.runtime.weak_registry import WeakRegistry
from wheelcache.stats import Stats

STEP: Final = 10.0
"""Seconds of a step. The step ``number`` ends at ``number * STEP``, in seconds since 1970."""

GAP: Final = 2.5
"""Intervals after which two samples do not belong to one run: the cache was paused, or the process was stopped."""

LAST_MINUTE: Final = 60.0
"""Seconds that "the last minute" means."""

PATIENCE: Final = 0.05
"""Seconds that a worker waits for another one that adds its part, which takes 30 us. Afterwards the next sample has
both parts."""


SETTLED: Final = 4.0
"""Seconds after the end of a step in which a worker publishes that began in its last moment, and so is known."""


def last_settled(time: float, settled: float = SETTLED) -> int:
    """The last step that ended so many seconds before ``time``."""
    return floor((time - settled) / STEP)


class Sample(NamedTuple):
    """What had been counted at one moment, in seconds on the clock of the cache."""

    at: float
    hits: int
    misses: int


class Step(NamedTuple):
    """What happened in a step, in all workers: sums, of which ``entries`` and ``memory`` are those at its end.

    The five minutes of a long step have the mean of ``entries`` and ``memory`` over them. ``started`` is how many
    workers began in it.
    """

    hits: float = 0.0
    misses: float = 0.0
    loads: float = 0.0
    load_seconds: float = 0.0
    evictions: float = 0.0
    expirations: float = 0.0
    entries: float = 0.0
    memory: float = 0.0
    started: float = 0.0

    @property
    def lookups(self) -> float:
        return self.hits + self.misses


_SLOT: Final = Struct(f"<q{len(Step._fields)}d")
_LEVELS: Final = frozenset(map(Step._fields.index, ("entries", "memory")))


class Ring(NamedTuple):
    """A ring of steps in a file of history.

    Attributes:
        steps: how many of ``STEP`` seconds are one of this ring.
        length: how many it has.
        offset: where it begins.
    """

    steps: int
    length: int
    offset: int

    @property
    def seconds(self) -> float:
        """Of a step."""
        return self.steps * STEP

    def slot(self, number: int) -> int:
        return self.offset + _SLOT.size * (number % self.length)

    def read(self, data: bytes) -> dict[int, Step]:
        """The steps in ``data``, by number."""
        ring = memoryview(data)[self.offset : self.offset + _SLOT.size * self.length]
        ring = ring[: len(ring) // _SLOT.size * _SLOT.size]
        return {number: Step(*values) for number, *values in _SLOT.iter_unpack(ring) if number}


HOUR: Final = Ring(1, 360, 0)
DAY: Final = Ring(30, 288, 360 * _SLOT.size)
SIZE: Final = DAY.offset + DAY.length * _SLOT.size


class Rings(Protocol):
    """Where the steps are.

    Attributes:
        settled: seconds after the end of a step by which every worker is known that adds to it.
    """

    @property
    def settled(self) -> float: ...

    def add(self, steps: Iterable[tuple[int, Step]]) -> None:
        """
        Raises:
            OSError, FileUnusable: they could not be added.
        """

    def read(self) -> bytes: ...


class RingsInMemory:
    """The rings of one process."""

    __slots__ = ("_data",)

    settled: Final = 0.0

    def __init__(self) -> None:
        self._data = bytearray(SIZE)

    def add(self, steps: Iterable[tuple[int, Step]]) -> None:
        data = self._data
        for place, slot in _changes(steps, lambda place: bytes(data[place : place + _SLOT.size])):
            data[place : place + _SLOT.size] = slot

    def read(self) -> bytes:
        return bytes(self._data)


class RingsInFile:
    """The rings of all workers. A worker that is killed in the middle has added to some steps and not to others."""

    __slots__ = ("_path",)

    settled: Final = SETTLED

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, steps: Iterable[tuple[int, Step]]) -> None:
        with locked_file(self._path, PATIENCE) as file:
            for place, slot in _changes(steps, lambda place: os.pread(file, _SLOT.size, place)):
                os.pwrite(file, slot, place)

    def read(self) -> bytes:
        """Two readings that are alike have no step that was being written."""
        with suppress(OSError):
            file = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                data = os.pread(file, SIZE, 0)
                for _ in range(10):
                    before, data = data, os.pread(file, SIZE, 0)
                    if data == before:
                        break
                return data
            finally:
                os.close(file)
        return b""


def _changes(steps: Iterable[tuple[int, Step]], read: Callable[[int], bytes]) -> Iterator[tuple[int, bytes]]:
    """The slots that ``steps`` change, and where they are."""
    for number, step in steps:
        for ring in (HOUR, DAY):
            of_ring = ceil(number / ring.steps)
            place = ring.slot(of_ring)
            found = read(place)
            values: Iterable[float] = (0.0,) * len(step)
            if len(found) == _SLOT.size and found[:8] == of_ring.to_bytes(8, "little", signed=True):
                _, *values = _SLOT.unpack(found)
            parts = (each / ring.steps if field in _LEVELS else each for field, each in enumerate(step))
            yield place, _SLOT.pack(of_ring, *map(sum, zip(values, parts, strict=True)))


class History:
    """Takes samples of a cache, and adds what it counted to the rings. A job of ``periodic_jobs``.

    Args:
        interval: seconds between samples.
        clock: seconds.
        stats: reads the figures.
        memory_use: tells the bytes that the entries take; None where that is not known.
        rings: where the steps go.

    Attributes:
        samples: of the last minute.
    """

    __slots__ = (
        "__weakref__",
        "_at",
        "_clock",
        "_epoch",
        "_is_new",
        "_last",
        "_memory_use",
        "_reached",
        "_stats",
        "period",
        "rings",
        "samples",
    )

    matters: Final = 360

    _reached: int | None
    _last: Stats | None

    def __init__(
        self,
        interval: float,
        clock: Clock,
        stats: Callable[[], Stats],
        memory_use: Callable[[], int | None],
        rings: Rings,
    ) -> None:
        self.period = interval
        self._clock = clock
        self._stats = stats
        self._memory_use = memory_use
        self.rings = rings
        # A clock of a test may run ahead of the time, so that one is read once.
        self._epoch = SystemClock.time() - clock()
        self.start_over()
        _histories.add(self)

    @property
    def reached(self) -> int | None:
        """The last step that has all that this worker counted; None before its first write."""
        return None if self._reached is None else min(self._reached, last_settled(self._time(), self.rings.settled))

    def begin(self) -> None:
        """After a pause nothing is known of the time in between, so the first sample is of now."""
        self._last, self._at, self._reached = self._sample(), self._clock(), floor(self._time() / STEP)

    def run(self) -> None:
        stats, at, now = self._sample(), self._clock(), floor(self._time() / STEP)
        if self._last is None or self._reached is None:
            self._last, self._at, self._reached = stats, at, now
            return
        seconds, numbers = at - self._at, range(self._reached + 1, now + 1)
        is_gap = not 0 < seconds <= GAP * max(self.period, STEP) or len(numbers) > seconds / STEP + 2
        if numbers and not is_gap:
            try:
                self._add(numbers, _between(self._last, stats, STEP / seconds, self._memory_use()))
            except (OSError, FileUnusable):
                # The next sample has this part too.
                return
        if numbers or is_gap:
            self._last, self._at, self._reached = stats, at, now

    def finish(self) -> None:
        """Add what was counted since the last sample, without the entries, unless they were there as a step ended."""
        if self._last is not None and self._reached is not None:
            step = _between(self._last, self._stats(), 1.0, self._memory_use())
            if floor(self._time() / STEP) <= self._reached:
                step = step._replace(entries=0.0, memory=0.0)
            with suppress(OSError, FileUnusable):
                self._add([self._reached + 1], step)
            self._last = None
            self._reached = None

    def start_over(self) -> None:
        self.samples: deque[Sample] = deque(maxlen=ceil(LAST_MINUTE / self.period) + 1)
        self._reached = None
        self._last = None
        self._at = 0.0
        self._is_new = True

    def close(self) -> None:
        self.finish()

    def _add(self, numbers: Iterable[int], step: Step) -> None:
        first, *others = numbers
        self.rings.add([(first, step._replace(started=float(self._is_new))), *((each, step) for each in others)])
        self._is_new = False

    def _sample(self) -> Stats:
        stats = self._stats()
        self.samples.append(Sample(round(self._clock(), 3), stats.hits, stats.misses))
        return stats

    def _time(self) -> float:
        """Seconds since 1970."""
        if not isinstance(self._clock, ManualClock):
            return SystemClock.time()
        return self._epoch + self._clock()


def _between(earlier: Stats, later: Stats, share: float, memory_use: int | None) -> Step:
    """What was counted in between, in one of the steps that it is spread over."""
    new = later - earlier
    return Step(
        share * new.hits,
        share * new.misses,
        share * (new.loads + new.load_failures),
        share * new.load_seconds,
        share * new.evictions,
        share * new.expirations,
        later.size,
        memory_use or 0.0,
    )


_histories: Final[WeakRegistry[History]] = WeakRegistry()


def _finish_all() -> None:
    for history in _histories:
        with suppress(CacheClosed):
            history.finish()


lifecycle.PUBLISH.add(_finish_all)
