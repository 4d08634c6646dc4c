"""The figures of a cache: in one process, in all processes of a site, and how several are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from wheelcache.observability.tables import MINUTE
from wheelcache.stats import GAUGES, NOTHING, Row, Stats, added, subtracted


@dataclass(frozen=True, slots=True)
class Rate:
    """Look-ups in a time.

    Attributes:
        hits, stale_hits, misses: see ``Stats``.
        store_hits: misses for which the store behind had a value; None without a store.
        seconds: how long it is: shorter than a minute if the cache is younger.
    """

    hits: int = 0
    stale_hits: int = 0
    misses: int = 0
    store_hits: int | None = None
    seconds: float = 0.0

    @property
    def requests(self) -> int:
        return self.hits + self.stale_hits + self.misses

    @property
    def requests_per_second(self) -> float:
        return self.requests / self.seconds if self.seconds else 0.0

    @property
    def hit_ratio(self) -> float | None:
        """0.0 to 1.0; None without requests."""
        return self._share(self.hits)

    @property
    def stale_ratio(self) -> float | None:
        """0.0 to 1.0; None without requests."""
        return self._share(self.stale_hits)

    @property
    def answered_ratio(self) -> float | None:
        """The share that the cache or the store behind it answered, 0.0 to 1.0; None without a store or requests."""
        return None if self.store_hits is None else self._share(self.hits + self.store_hits)

    def _share(self, count: int) -> float | None:
        return count / self.requests if self.requests else None


@dataclass(slots=True, kw_only=True)
class Figures:
    """What there is to know of one cache, wherever it is.

    Attributes:
        stats: the figures, since the reset.
        minute: the last minute.
        max_entries, max_weight: None for no bound.
        weighs_bytes: whether weights are bytes.
        memory: bytes that the entries take: an estimate unless ``weighs_bytes``; None if it is not known.
        lag: seconds since the wheel should have been advanced; None without a living worker.
    """

    stats: Stats
    minute: Rate
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    memory: int | None
    lag: float | None


@dataclass(slots=True, kw_only=True)
class WorkerFigures(Figures):
    """One cache in one process. Two caches of a name in a process are one.

    Attributes:
        worker: distinguishes the process from all others, also from a later one with the same ``pid``.
        started, published: when the process was started, and when the figures were published. Seconds since 1970.
        thread: the wheel thread of the process: "running", "parked", "not started", or "refused" by the system.
        core: which one the process runs, "compiled" or "python".
    """

    worker: int
    pid: int
    started: float
    published: float
    thread: str
    core: str


@dataclass(slots=True, kw_only=True)
class CacheFigures(Figures):
    """One cache in all processes of a site. Bounds and bytes are of all living workers together; without one, bounds
    are those of the last. The lag is the worst.

    Attributes:
        counted: all that was counted, also by processes that are gone; the gauges are those of living workers.
        minute: six whole steps.
        workers: how many processes have the cache.
        since: when the first process started whose counts are included, in seconds since 1970; None without one.
        reset_at: when the figures were reset; None if they never were.
        refused: how many of the workers were refused a wheel thread by the system.
        published: when a worker last published it, in seconds since 1970; None if none has.
        cores: those that the processes run.
        pids: the numbers of the processes.
    """

    name: str
    counted: Stats
    workers: int
    since: float | None
    reset_at: float | None
    refused: int
    published: float | None
    cores: tuple[str, ...]
    pids: tuple[int, ...]


@dataclass(slots=True)
class Sum:
    """What is found about a cache, in one process or in several, in one directory or in this process.

    Attributes:
        counts, base: all that was counted, and how much of it before the reset.
        settings: those that were published last, for a cache without a living worker.
        processes: those that have it.
        gauges: those of ``GAUGES_OF_WORKER``, of all of them together.
        minute: ``LOOKUPS`` of the last minute, and its seconds.
    """

    counts: Row = NOTHING
    base: Row = NOTHING
    since: float = inf
    reset_at: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    processes: frozenset[int] = frozenset()
    gauges: Mapping[str, Any] = field(default_factory=dict)
    refused: int = 0
    published: float | None = None
    cores: frozenset[str] = frozenset()
    pids: frozenset[int] = frozenset()
    minute: Row = (0,) * len(MINUTE)

    def add(self, other: Sum) -> None:
        self.counts, self.base = added(self.counts, other.counts), added(self.base, other.base)
        self.since = min(self.since, other.since)
        self.reset_at = _latest(self.reset_at, other.reset_at)
        self.published = _latest(self.published, other.published)
        self.refused += other.refused
        self.settings = self.settings or other.settings
        if self.gauges and other.gauges:
            self.gauges = {
                name: TOGETHER.get(name, _sum)((self.gauges[name], other.gauges[name])) for name in self.gauges
            }
        self.gauges = self.gauges or other.gauges
        self.processes |= other.processes
        self.cores |= other.cores
        self.pids |= other.pids
        self.minute = (*added(self.minute[:-1], other.minute[:-1]), max(self.minute[-1], other.minute[-1]))

    def of_cache(self, name: str) -> CacheFigures:
        """The figures of all that was added."""
        return CacheFigures(
            **self._common(),
            name=name,
            counted=self._stats(self.counts),
            workers=len(self.processes),
            since=None if self.since == inf else self.since,
            reset_at=self.reset_at,
            refused=self.refused,
            published=self.published,
            cores=tuple(sorted(self.cores)),
            pids=tuple(sorted(self.pids)),
        )

    def of_worker(self, **given: Any) -> WorkerFigures:
        """The figures of one process."""
        return WorkerFigures(**self._common(), **given)

    def _common(self) -> dict[str, Any]:
        bounds = self.gauges or self.settings
        hits, stale_hits, misses, store_hits, seconds = map(int, self.minute)
        return {
            "stats": self._stats(subtracted(self.counts, self.base)),
            "minute": Rate(hits, stale_hits, misses, store_hits if self._has_store() else None, seconds),
            "max_entries": _whole(bounds.get("max_entries")),
            "max_weight": _whole(bounds.get("max_weight")),
            "weighs_bytes": bool(bounds.get("weighs_bytes")),
            "memory": _whole(self.gauges.get("memory", 0)),
            "lag": self.gauges.get("lag"),
        }

    def _stats(self, counts: Row) -> Stats:
        return Stats.of(counts, [self.gauges.get(name, 0) for name in GAUGES], has_store=self._has_store())

    def _has_store(self) -> bool:
        return bool((self.gauges or self.settings).get("has_store"))


def _sum(numbers: Iterable[Any]) -> Any:
    """None if one of them is None: it is not known, or has no bound."""
    known = list(numbers)
    return None if None in known else sum(known)


TOGETHER: Final = {"lag": max, "weighs_bytes": min, "has_store": max, "minute_seconds": max}
"""How gauges of several workers become one, if not by a sum."""


def _latest(*times: float | None) -> float | None:
    return max((each for each in times if each is not None), default=None)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
