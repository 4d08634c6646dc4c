"""The figures of a cache: in one process, in all processes of a site, and how several are added up."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from wheelcache.observability.site_file import GAUGES
from wheelcache.stats import NOTHING, STORE_GAUGES, Row, Stats, added, subtracted


@dataclass(frozen=True, slots=True)
class Rate:
    """Look-ups in a time.

    Attributes:
        seconds: how long it is: shorter than a minute if the cache is younger.
    """

    hits: int = 0
    stale_hits: int = 0
    misses: int = 0
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
        return self.hits / self.requests if self.requests else None

    @property
    def stale_ratio(self) -> float | None:
        """0.0 to 1.0; None without requests."""
        return self.stale_hits / self.requests if self.requests else None


@dataclass(slots=True)
class WorkerFigures:
    """One cache in one process.

    Attributes:
        worker: distinguishes it from all others, also from those of a later process with the same number.
        started, published: when the process was started, and when the figures were published. Seconds since 1970.
        thread: the wheel thread of the process: "running", "parked", "not started", or "refused" by the system.
        lag: seconds since the wheel should have been advanced.
        core: which one the process runs, "compiled" or "python".
        max_entries, max_weight: None for no bound.
        weighs_bytes: whether weights are bytes.
        memory: bytes that the entries take: an estimate unless ``weighs_bytes``; None if it is not known.
        stats: the figures, since the reset.
        minute: the last minute.
    """

    worker: str
    pid: int
    started: float
    published: float
    thread: str
    lag: float
    core: str
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    memory: int | None
    stats: Stats
    minute: Rate

    def together_with(self, other: WorkerFigures) -> WorkerFigures:
        """Both, which are caches of one name in one process."""
        stats, others, rate = self.stats, other.stats, other.minute
        stores = [each.store for each in (stats, others) if each.store is not None]
        gauges = {name: sum(getattr(store, name) for store in stores) for name in STORE_GAUGES} if stores else {}
        gauges |= {"size": stats.size + others.size, "weight": stats.weight + others.weight}
        return replace(
            self,
            published=max(self.published, other.published),
            lag=max(self.lag, other.lag),
            max_entries=_sum_or_none(self.max_entries, other.max_entries),
            max_weight=_sum_or_none(self.max_weight, other.max_weight),
            weighs_bytes=self.weighs_bytes and other.weighs_bytes,
            memory=_sum_or_none(self.memory, other.memory),
            stats=Stats.of(added(stats.counts(), others.counts()), has_store=bool(stores), **gauges),
            minute=Rate(
                self.minute.hits + rate.hits,
                self.minute.stale_hits + rate.stale_hits,
                self.minute.misses + rate.misses,
                max(self.minute.seconds, rate.seconds),
            ),
        )


@dataclass(slots=True)
class CacheFigures:
    """One cache in all processes of a site.

    Attributes:
        counted: all that was counted, also by processes that are gone; the gauges are those of living workers.
        stats: the same since the reset.
        minute: the last minute: six whole steps.
        workers: how many processes have the cache.
        since: when the first process started whose counts are included, in seconds since 1970; None without one.
        reset_at: when the figures were reset; None if they never were.
        max_entries, max_weight: of all workers together; without a living worker those of one. None for no bound.
        weighs_bytes: whether weights are bytes.
        memory: bytes that the entries take in all workers; None if it is not known of one.
        lag: the worst of all workers, in seconds; None without a living one.
        refused: how many of the workers were refused a wheel thread by the system.
        published: when a worker last published it, in seconds since 1970; None if none has.
        cores: those that the processes run.
        pids: the numbers of the processes.
    """

    name: str
    counted: Stats
    stats: Stats
    minute: Rate
    workers: int
    since: float | None
    reset_at: float | None
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    memory: int | None
    lag: float | None
    refused: int
    published: float | None
    cores: tuple[str, ...]
    pids: tuple[int, ...]


@dataclass(slots=True)
class Sum:
    """What is found about one cache in one directory, or in this process."""

    counts: Row = NOTHING
    base: Row = NOTHING
    since: float = inf
    reset_at: float | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    processes: frozenset[str] = frozenset()
    gauges: tuple[float, ...] = (0,) * len(GAUGES)
    memory: float | None = 0
    lag: float = 0.0
    refused: int = 0
    published: float | None = None
    max_entries: float | None = 0
    max_weight: float | None = 0
    weighs_bytes: bool = True
    has_store: bool = False
    cores: frozenset[str] = frozenset()
    pids: frozenset[int] = frozenset()
    minute: tuple[float, ...] = (0, 0, 0)
    seconds: float = 0.0

    def add(self, other: Sum) -> None:
        self.counts, self.base = added(self.counts, other.counts), added(self.base, other.base)
        self.since = min(self.since, other.since)
        self.reset_at = _latest(self.reset_at, other.reset_at)
        self.published = _latest(self.published, other.published)
        self.settings = self.settings or other.settings
        self.processes |= other.processes
        self.gauges = added(self.gauges, other.gauges)
        for name in ("memory", "max_entries", "max_weight"):
            setattr(self, name, _sum_or_none(getattr(self, name), getattr(other, name)))
        self.lag = max(self.lag, other.lag)
        self.refused += other.refused
        self.weighs_bytes &= other.weighs_bytes
        self.has_store |= other.has_store
        self.cores |= other.cores
        self.pids |= other.pids
        self.minute = added(self.minute, other.minute)
        self.seconds = max(self.seconds, other.seconds)

    def figures(self, name: str) -> CacheFigures:
        lives, settings = bool(self.processes), self.settings
        size, weight, *of_store = self.gauges
        has_store = self.has_store if lives else bool(settings.get("has_store"))
        gauges = dict(zip(STORE_GAUGES, of_store, strict=True)) if has_store else {}
        since_reset = self.counts if self.reset_at is None else subtracted(self.counts, self.base)
        gauges = {**gauges, "size": size, "weight": weight}
        return CacheFigures(
            name,
            Stats.of(self.counts, has_store=has_store, **gauges),
            Stats.of(since_reset, has_store=has_store, **gauges),
            rate_of(self.minute, self.seconds),
            len(self.processes),
            None if self.since == inf else self.since,
            self.reset_at,
            _whole(self.max_entries if lives else settings.get("max_entries")),
            _whole(self.max_weight if lives else settings.get("max_weight")),
            self.weighs_bytes if lives else bool(settings.get("weighs_bytes")),
            _whole(self.memory),
            self.lag if lives else None,
            self.refused,
            self.published,
            tuple(sorted(self.cores)),
            tuple(sorted(self.pids)),
        )


def rate_of(counts: Iterable[float], seconds: float) -> Rate:
    hits, stale_hits, misses = map(int, counts)
    return Rate(hits, stale_hits, misses, seconds)


def _sum_or_none(one: Any, other: Any) -> Any:
    return None if one is None or other is None else one + other


def _latest(*times: float | None) -> float | None:
    return max((each for each in times if each is not None), default=None)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
