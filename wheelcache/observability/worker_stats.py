"""The figures of a cache in one process, of the same cache in all processes of a site, and over the last hour."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain, pairwise
from math import floor
from typing import Any, Final

from wheelcache.core import IMPLEMENTATION
from wheelcache.observability.history import Sample
from wheelcache.stats import Stats

LATELY: Final = 60.0
"""Seconds that "now" means, of figures which are a rate."""

GRID: Final = 10.0
"""Seconds between points of a ``Course``; more if samples are taken less often."""

GAP: Final = 2.5
"""Intervals between two samples that are not of one run: nothing is drawn in between."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """One cache in one process, at one moment.

    Attributes:
        name: of the cache.
        worker: what tells this cache in this process from all others, also after a process with the same number.
        pid: of the process.
        started: when the cache was made or its process forked, taken: when these figures were read. Seconds since 1970.
        thread: the wheel thread of the process: "running", "parked", "not started", or "refused" by the system.
        lag: seconds since the wheel should have been advanced.
        interval: seconds between samples; None without.
        max_entries, max_weight: None for no bound.
        weighs_bytes: whether weights are bytes.
        now: ``taken``, on the clock of the samples.
        samples: of at most the last hour.
        core: which one the process runs, "compiled" or "python".
    """

    name: str
    worker: str
    pid: int
    started: float
    taken: float
    thread: str
    lag: float
    interval: float | None
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    stats: Stats
    now: float
    samples: tuple[Sample, ...]
    core: str = IMPLEMENTATION

    def lately(self) -> Rate:
        """The last minute, as far as there are samples of it."""
        then = next((each for each in self.samples if each.at >= self.now - LATELY), None)
        if then is None:
            return Rate()
        hits, misses, seconds = self.stats.hits - then.hits, self.stats.misses - then.misses, self.now - then.at
        return Rate(hits, misses, (hits + misses) / seconds if seconds > 0 else 0.0)

    def since(self, earlier: Stats) -> WorkerFigures:
        """These, without what had been counted ``earlier``; also in the samples, as far as ``lately`` compares them."""
        samples = (
            each._replace(hits=each.hits - earlier.hits, misses=each.misses - earlier.misses) for each in self.samples
        )
        return replace(self, stats=self.stats - earlier, samples=tuple(samples))

    def as_json(self) -> dict[str, Any]:
        """What ``from_json`` makes the same of again."""
        return {**{each.name: getattr(self, each.name) for each in fields(self)}, "stats": asdict(self.stats)}

    @classmethod
    def from_json(cls, document: Any) -> WorkerFigures:
        """
        Raises:
            TypeError, KeyError, ValueError: ``document`` is not of this version.
        """
        stats = stats_from_json(document["stats"])
        samples = tuple(Sample(*each) for each in document["samples"])
        # Only numbers add up: one C call, where a look at the type of each would take as long as reading the file.
        sum(chain.from_iterable(samples))
        found = cls(**{**document, "stats": stats, "samples": samples})
        for name, kind in _KINDS.items():
            if not isinstance(getattr(found, name), kind):
                raise TypeError(f"{name} must not be {getattr(found, name)!r}")
        return found


_KINDS: Final = {
    **dict.fromkeys(("name", "worker", "thread", "core"), str),
    **dict.fromkeys(("pid", "weighs_bytes"), int),
    **dict.fromkeys(("started", "taken", "lag", "now"), int | float),
    "interval": int | float | None,
    **dict.fromkeys(("max_entries", "max_weight"), int | None),
}


def stats_from_json(document: Any) -> Stats:
    """The same as ``WorkerFigures.from_json``, of the ``stats`` in it."""
    stats = Stats(**{**document, "load_buckets": tuple(document["load_buckets"])})
    # They add up: all of them are there, and numbers.
    return Stats() + stats


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
class CacheFigures:
    """One cache in all processes of a site.

    Attributes:
        name: of the cache.
        workers: it in each process that lives, oldest first.
        departed: what was counted by those that are gone.
    """

    name: str
    workers: tuple[WorkerFigures, ...]
    departed: Stats = field(default_factory=Stats)

    @property
    def stats(self) -> Stats:
        """Of the processes that live."""
        return sum((each.stats for each in self.workers), Stats())

    @property
    def max_entries(self) -> int | None:
        """In all of them together."""
        return _sum_or_none(each.max_entries for each in self.workers)

    @property
    def max_weight(self) -> int | None:
        """In all of them together."""
        return _sum_or_none(each.max_weight for each in self.workers)

    @property
    def weighs_bytes(self) -> bool:
        return bool(self.workers) and all(each.weighs_bytes for each in self.workers)

    def lately(self) -> Rate:
        """The last minute."""
        rates = [each.lately() for each in self.workers]
        return Rate(
            sum(each.hits for each in rates),
            sum(each.misses for each in rates),
            sum(each.requests_per_second for each in rates),
        )

    def by_process(self) -> list[CacheFigures]:
        """The same, of each process by itself, which may have several caches of the name."""
        pids = dict.fromkeys(each.pid for each in self.workers)
        return [CacheFigures(self.name, tuple(each for each in self.workers if each.pid == pid)) for pid in pids]

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

    def course(self) -> Course:
        """The last hour."""
        return Course.of(self.workers)

    def since(self, earlier: Mapping[str, Stats]) -> CacheFigures:
        """These, without what each worker had counted before, given by ``WorkerFigures.worker``."""
        workers = tuple(each.since(earlier[each.worker]) if each.worker in earlier else each for each in self.workers)
        return replace(self, workers=workers)


def by_name(workers: Iterable[WorkerFigures], departed: Mapping[str, Stats]) -> list[CacheFigures]:
    """Each cache by its name: the workers that have it, oldest first, and the counts of those that are gone."""
    found: dict[str, list[WorkerFigures]] = {}
    for each in sorted(workers, key=lambda worker: (worker.started, worker.worker)):
        found.setdefault(each.name, []).append(each)
    return [
        CacheFigures(name, tuple(found.get(name, ())), departed.get(name, Stats()))
        for name in sorted({*found, *departed})
    ]


@dataclass(frozen=True, slots=True)
class Course:
    """How the figures went: of each, a value for every ``at``, oldest first, with gaps where nothing is known.

    Attributes:
        at: seconds since 1970.
        hit_ratio: 0.0 to 1.0, None where there were no requests.
        requests, evictions, expirations: a second.
        entries: how many.
        load_seconds: a load on average, None where there were none.
    """

    at: tuple[float, ...]
    hit_ratio: tuple[float | None, ...]
    requests: tuple[float, ...]
    entries: tuple[int, ...]
    evictions: tuple[float, ...]
    expirations: tuple[float, ...]
    load_seconds: tuple[float | None, ...]

    @classmethod
    def of(cls, workers: Iterable[WorkerFigures]) -> Course:
        """Of several workers together."""
        sampled = [each for each in workers if each.interval is not None]
        step = max([GRID, *(each.interval or GRID for each in sampled)])
        points: defaultdict[int, _Point] = defaultdict(_Point)
        for each in sampled:
            epoch = each.taken - each.now
            of_worker: defaultdict[int, list[tuple[Sample, Sample]]] = defaultdict(list)
            for earlier, later in pairwise(each.samples):
                if 0 < later.at - earlier.at <= GAP * (each.interval or GRID):
                    first, last = (floor((epoch + end.at) / step + 0.5) for end in (earlier, later))
                    # Samples further apart than the grid, as late ones are, stand for every point that they span.
                    for number in range(min(first + 1, last), last + 1):
                        of_worker[number].append((earlier, later))
            for number, pairs in of_worker.items():
                points[number].add(pairs[0][0], pairs[-1][1], sum(after.at - before.at for before, after in pairs))
        numbers = sorted(points)
        found = [points[number] for number in numbers]
        return cls(
            at=tuple(number * step for number in numbers),
            hit_ratio=tuple(point.hits / point.requests if point.requests else None for point in found),
            requests=tuple(point.request_rate for point in found),
            entries=tuple(point.entries for point in found),
            evictions=tuple(point.eviction_rate for point in found),
            expirations=tuple(point.expiration_rate for point in found),
            load_seconds=tuple(point.load_seconds / point.loads if point.loads else None for point in found),
        )


@dataclass(slots=True)
class _Point:
    """What happened in a step, in all workers."""

    hits: int = 0
    requests: int = 0
    loads: int = 0
    load_seconds: float = 0.0
    entries: int = 0
    request_rate: float = 0.0
    eviction_rate: float = 0.0
    expiration_rate: float = 0.0

    def add(self, first: Sample, last: Sample, seconds: float) -> None:
        requests = last.hits + last.misses - first.hits - first.misses
        self.hits += last.hits - first.hits
        self.requests += requests
        self.loads += last.loads - first.loads
        self.load_seconds += last.load_seconds - first.load_seconds
        self.entries += last.size
        self.request_rate += requests / seconds
        self.eviction_rate += (last.evictions - first.evictions) / seconds
        self.expiration_rate += (last.expirations - first.expirations) / seconds


def _sum_or_none(bounds: Iterable[int | None]) -> int | None:
    total = 0
    for bound in bounds:
        if bound is None:
            return None
        total += bound
    return total
