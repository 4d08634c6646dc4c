"""The figures of a cache in one process, of the same cache in all processes of a site, and over time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import chain
from math import isfinite
from types import NoneType
from typing import Any, Final

from wheelcache.core import IMPLEMENTATION
from wheelcache.observability.history import GAP, HOUR, LAST_MINUTE, STEP, Ring, Sample, Step
from wheelcache.stats import Stats


# Not frozen, which takes 3 us more to make: a reader makes a thousand.
@dataclass(slots=True)
class WorkerStats:
    """One cache in one process, at one moment.

    Attributes:
        name: of the cache.
        worker: what tells this cache in this process from all others, also after a process with the same number.
        pid: of the process.
        started: when the process was, taken: when these figures were read. Seconds since 1970.
        thread: the wheel thread of the process: "running", "parked", "not started", or "refused" by the system.
        lag: seconds since the wheel should have been advanced.
        interval: seconds between samples; None without.
        reached: the last step of the history that has all this worker counted; None before its first write.
        max_entries, max_weight: None for no bound.
        weighs_bytes: whether weights are bytes.
        memory: bytes that the entries take: an estimate unless ``weighs_bytes``; None if it is not known.
        now: ``taken``, on the clock of the samples.
        samples: of the last minute.
        core: which one the process runs, "compiled" or "python".
        is_last: these are the last figures, as the cache is closed or its process exits.
    """

    name: str
    worker: str
    pid: int
    started: float
    taken: float
    thread: str
    lag: float
    interval: float | None
    reached: int | None
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    memory: int | None
    stats: Stats
    now: float
    samples: tuple[Sample, ...]
    core: str = IMPLEMENTATION
    is_last: bool = False

    def last_minute(self) -> Rate:
        """The last minute, as far as there are samples of it."""
        then = self._minute_ago()
        if then is None:
            return Rate()
        hits, misses, seconds = self.stats.hits - then.hits, self.stats.misses - then.misses, self.now - then.at
        return Rate(hits, misses, (hits + misses) / seconds if seconds > 0 else 0.0)

    def since(self, earlier: Stats) -> WorkerStats:
        """These, without what had been counted ``earlier``; also in the samples, as ``last_minute`` compares them."""
        samples = (
            each._replace(hits=each.hits - earlier.hits, misses=each.misses - earlier.misses) for each in self.samples
        )
        return replace(self, stats=self.stats - earlier, samples=tuple(samples))

    def _minute_ago(self) -> Sample | None:
        return next((each for each in self.samples if each.at >= self.now - LAST_MINUTE), None)

    def as_json(self) -> dict[str, Any]:
        """What ``from_json`` makes the same of again, with the only sample that ``last_minute`` takes.

        A reader may have a thousand of these to read.
        """
        then = self._minute_ago()
        return {
            **{each.name: getattr(self, each.name) for each in fields(self)},
            "stats": self.stats.as_row(),
            "samples": () if then is None else (then,),
        }

    @classmethod
    def from_json(cls, document: Any) -> WorkerStats:
        """
        Raises:
            TypeError, KeyError, ValueError: ``document`` is not of this version.
        """
        stats = Stats.from_row(document["stats"])
        samples = tuple(map(Sample._make, document["samples"]))
        # Only numbers add up.
        sum(chain.from_iterable(samples))
        for name, kinds in _KINDS.items():
            if type(document[name]) not in kinds:
                raise TypeError(f"{name} must not be {document[name]!r}")
        return cls(**{**document, "stats": stats, "samples": samples})


_KINDS: Final[Mapping[str, tuple[type, ...]]] = {
    **dict.fromkeys(("name", "worker", "thread", "core"), (str,)),
    **dict.fromkeys(("pid", "weighs_bytes", "is_last"), (int, bool)),
    **dict.fromkeys(("started", "taken", "lag", "now"), (float, int)),
    "interval": (float, int, NoneType),
    **dict.fromkeys(("reached", "max_entries", "max_weight", "memory"), (int, NoneType)),
}


@dataclass(frozen=True, slots=True)
class Rate:
    """Hits and misses in a time, and requests a second."""

    hits: int = 0
    misses: int = 0
    requests_per_second: float = 0.0

    @property
    def hit_ratio(self) -> float | None:
        """0.0 to 1.0; None without requests."""
        requests = self.hits + self.misses
        return self.hits / requests if requests else None


@dataclass(frozen=True, slots=True)
class CacheStats:
    """One cache in all processes of a site.

    Attributes:
        name: of the cache.
        workers: it in each process that lives, oldest first.
        exited_workers: what was counted by those that are gone.
        exited_since: when the first of those started, in seconds since 1970; None if none is known.
        reset_at: when the figures were reset; None if they are of all that was counted.
    """

    name: str
    workers: tuple[WorkerStats, ...]
    exited_workers: Stats = field(default_factory=Stats)
    exited_since: float | None = None
    reset_at: float | None = None

    @property
    def stats(self) -> Stats:
        """Of the processes that live."""
        return Stats.total(each.stats for each in self.workers)

    @property
    def total(self) -> Stats:
        """Of all processes, also of those that are gone: it never goes down. Size and weight are of those that live."""
        return Stats.total([self.exited_workers, *(each.stats for each in self.workers)])

    @property
    def counted_since(self) -> float | None:
        """When the first process started that is in ``total``; None without one."""
        started = [each.started for each in self.workers]
        return min(started if self.exited_since is None else [*started, self.exited_since], default=None)

    @property
    def max_entries(self) -> int | None:
        """In all of them together."""
        return _sum_or_none(each.max_entries for each in self.workers)

    @property
    def max_weight(self) -> int | None:
        """In all of them together."""
        return _sum_or_none(each.max_weight for each in self.workers)

    @property
    def memory(self) -> int | None:
        """Bytes that the entries take in all of them; None if that is not known of one."""
        return _sum_or_none(each.memory for each in self.workers)

    @property
    def weighs_bytes(self) -> bool:
        return bool(self.workers) and all(each.weighs_bytes for each in self.workers)

    def last_minute(self) -> Rate:
        """The last minute."""
        rates = [each.last_minute() for each in self.workers]
        return Rate(
            sum(each.hits for each in rates),
            sum(each.misses for each in rates),
            sum(each.requests_per_second for each in rates),
        )

    def by_process(self) -> list[CacheStats]:
        """The same, of each process by itself, which may have several caches of the name."""
        pids = dict.fromkeys(each.pid for each in self.workers)
        return [CacheStats(self.name, tuple(each for each in self.workers if each.pid == pid)) for pid in pids]

    def process(self) -> dict[str, Any]:
        """Of one process: its number, when it was made and published, and how its wheel thread does."""
        first = self.workers[0]
        return {
            "pid": first.pid,
            "started": first.started,
            "published": max(each.taken for each in self.workers),
            "thread": first.thread,
            "core": first.core,
            "lag": max(each.lag for each in self.workers),
        }

    @property
    def complete_until(self) -> int | None:
        """The last step of the history to which every worker has added its part; None if no worker has reached any.

        A worker whose cache is paused, or which was stopped, is not waited for.
        """
        reached = [(each.reached, each.interval or STEP) for each in self.workers if each.reached is not None]
        newest = max((number for number, _ in reached), default=0)
        at_work = (number for number, interval in reached if (newest - number) * STEP <= GAP * max(interval, STEP))
        return min(at_work, default=None)

    def since(self, reset: Reset) -> CacheStats:
        """These, without what had been counted before ``reset``."""
        before = reset.workers
        workers = tuple(each.since(before[each.worker]) if each.worker in before else each for each in self.workers)
        living = Stats.total(before[each.worker] for each in self.workers if each.worker in before)
        # What the total had then, less what those had that live, had been counted by those that are gone by now.
        gone = (self.exited_workers - (reset.total - living)).exited()
        return replace(self, workers=workers, exited_workers=gone, reset_at=reset.at)


@dataclass(frozen=True, slots=True)
class Reset:
    """What had been counted of a cache when its figures were reset.

    Attributes:
        at: the time, in seconds since 1970.
        workers: by ``WorkerStats.worker``.
    """

    at: float
    total: Stats
    workers: Mapping[str, Stats] = field(default_factory=dict)

    @classmethod
    def of(cls, at: float, figures: CacheStats) -> Reset:
        return cls(at, figures.total, {each.worker: each.stats for each in figures.workers})

    def as_json(self) -> dict[str, Any]:
        """What ``from_json`` makes the same of again."""
        workers = {name: stats.as_row() for name, stats in self.workers.items()}
        return {"at": self.at, "total": self.total.as_row(), "workers": workers}

    @classmethod
    def from_json(cls, document: Any) -> Reset | None:
        """None if it cannot be read."""
        try:
            workers = {name: Stats.from_row(each) for name, each in document["workers"].items()}
            return cls(_time(document["at"]), Stats.from_row(document["total"]), workers)
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            return None


@dataclass(frozen=True, slots=True)
class Resets:
    """The last reset of each cache.

    Attributes:
        at: when all were reset together, in seconds since 1970; None if they never were.
        caches: by name, the reset that counts: that one, or a later one of this cache alone.
    """

    at: float | None = None
    caches: Mapping[str, Reset] = field(default_factory=dict)

    def apply(self, figures: Iterable[CacheStats]) -> list[CacheStats]:
        """``figures``, without what had been counted by then."""
        return [each.since(self.caches[each.name]) if each.name in self.caches else each for each in figures]

    def as_json(self) -> dict[str, Any]:
        """What ``from_json`` makes the same of again."""
        return {"at": self.at, "caches": {name: each.as_json() for name, each in self.caches.items()}}

    @classmethod
    def from_json(cls, document: Any) -> Resets:
        """Without what cannot be read."""
        try:
            found = {name: Reset.from_json(each) for name, each in document["caches"].items()}
            at = None if document["at"] is None else _time(document["at"])
        except (TypeError, KeyError, ValueError, AttributeError, OverflowError):
            return cls()
        return cls(at, {name: each for name, each in found.items() if each is not None})


def _time(value: Any) -> float:
    """
    Raises:
        TypeError, ValueError, OverflowError: it is none.
    """
    if not isfinite(found := float(value)):
        raise ValueError(f"{value!r} is no time")
    return found


def by_name(
    workers: Iterable[WorkerStats], exited_workers: Mapping[str, Stats], exited_since: Mapping[str, float]
) -> list[CacheStats]:
    """Each cache by its name: the workers that have it, oldest first, and the counts of those that are gone."""
    found: dict[str, list[WorkerStats]] = {}
    for each in sorted(workers, key=lambda worker: (worker.started, worker.pid)):
        found.setdefault(each.name, []).append(each)
    return [
        CacheStats(name, tuple(found.get(name, ())), exited_workers.get(name, Stats()), exited_since.get(name))
        for name in sorted({*found, *exited_workers})
    ]


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """How the figures went: of each, a value for every ``at``, oldest first, with gaps where nothing is known.

    Attributes:
        step: seconds between two of ``at`` that follow each other.
        at: seconds since 1970.
        hit_ratio: 0.0 to 1.0, None where there were no look-ups.
        requests, misses, evictions, expirations: a second.
        entries: how many.
        memory: bytes that they take; None where it is not known.
        load_seconds: a load on average, None where there were none.
        started: how many workers began.
    """

    step: float
    at: tuple[float, ...]
    hit_ratio: tuple[float | None, ...]
    requests: tuple[float, ...]
    misses: tuple[float, ...]
    entries: tuple[float, ...]
    memory: tuple[float | None, ...]
    evictions: tuple[float, ...]
    expirations: tuple[float, ...]
    load_seconds: tuple[float | None, ...]
    started: tuple[int, ...]

    @classmethod
    def of(
        cls, data: Iterable[bytes], ring: Ring = HOUR, *, until: int | None = None, since: float = 0.0
    ) -> TimeSeries:
        """
        Args:
            data: of the rings of a cache, which add up.
            until: the last step of ``STEP`` seconds that is wanted, None for all.
            since: the time after which a step begins, in seconds since 1970.
        """
        found: dict[int, Step] = {}
        for each in data:
            for number, step in ring.read(each).items():
                found[number] = Step(*map(sum, zip(found[number], step, strict=True))) if number in found else step
        last = max(found, default=0) if until is None else until // ring.steps
        numbers = sorted(
            each for each in found if last - ring.length < each <= last and (each - 1) * ring.seconds >= since
        )
        steps, seconds = [found[number] for number in numbers], ring.seconds
        return cls(
            step=seconds,
            at=tuple(number * seconds for number in numbers),
            hit_ratio=tuple(each.hits / each.lookups if each.lookups else None for each in steps),
            requests=tuple(each.lookups / seconds for each in steps),
            misses=tuple(each.misses / seconds for each in steps),
            entries=tuple(each.entries for each in steps),
            memory=tuple(each.memory or (None if each.entries else 0.0) for each in steps),
            evictions=tuple(each.evictions / seconds for each in steps),
            expirations=tuple(each.expirations / seconds for each in steps),
            load_seconds=tuple(each.load_seconds / each.loads if each.loads else None for each in steps),
            started=tuple(round(each.started) for each in steps),
        )


def _sum_or_none(bounds: Iterable[int | None]) -> int | None:
    total = 0
    for bound in bounds:
        if bound is None:
            return None
        total += bound
    return total
