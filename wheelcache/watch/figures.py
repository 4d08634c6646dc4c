"""The figures of a cache in one process or in all processes of a site, and their sums."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, NamedTuple

from wheelcache.engine.stats import Stats
from wheelcache.pages.busiest import FULL, NOT_STORED, NamedPaths
from wheelcache.watch.key_groups import Groups, merged
from wheelcache.watch.page_paths import FullPage, full_pages, no_paths
from wheelcache.watch.rows import GAUGES, NOTHING, Row, added, stats_of
from wheelcache.watch.tables import MINUTE


@dataclass(frozen=True, slots=True)
class Rate:
    """The look-ups in the last minute.

    Attributes:
        hits, stale_hits, misses: see ``Stats``.
        store_hits: misses for which the store behind had a value; None without a store.
        seconds: the length of the period, which is less than a minute if the cache is younger.
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
        """The share of look-ups that were hits, 0.0 to 1.0; None without requests."""
        return self._share(self.hits)

    @property
    def stale_ratio(self) -> float | None:
        """The share of look-ups that were stale hits, 0.0 to 1.0; None without requests."""
        return self._share(self.stale_hits)

    @property
    def answered_ratio(self) -> float | None:
        """The share of look-ups that the cache or the store behind it answered; None without a store or requests."""
        return None if self.store_hits is None else self._share(self.hits + self.store_hits)

    def _share(self, count: int) -> float | None:
        return count / self.requests if self.requests else None


class Process(NamedTuple):
    """A living process of a site.

    Attributes:
        started, published: the times at which it was started and has published, in seconds since 1970.
        thread: the state of its wheel thread: "running", "parked", "not started", or "refused" by the system.
        core: the core that it runs, "compiled" or "python".
    """

    pid: int
    started: float
    published: float
    thread: str
    core: str


@dataclass(slots=True, kw_only=True)
class Figures:
    """The figures of one cache, in one process or in several.

    Attributes:
        stats: all counts, including those of processes that have exited, and the gauges of living ones.
        minute: the look-ups of the living workers in the last minute.
        peak: the most entries that a worker has held.
        max_entries, max_weight: the bounds; None if there is no bound.
        weighs_bytes: whether weights are bytes.
        is_shared: whether all workers of the machine have the same entries, to which the bounds apply.
        lag: seconds since the wheel should have been advanced; None without a living worker.
    """

    stats: Stats
    minute: Rate
    peak: int
    max_entries: int | None
    max_weight: int | None
    weighs_bytes: bool
    is_shared: bool
    lag: float | None

    @property
    def memory(self) -> int | None:
        """The bytes that the entries use; None unless entries are weighed in bytes."""
        return self.stats.weight if self.weighs_bytes else None


@dataclass(slots=True, kw_only=True)
class WorkerFigures(Figures):
    """The figures of one cache in one process. Two caches of the same name in a process count as one.

    Attributes:
        worker: distinguishes the process from all others, even from a later one with the same ``pid``.
        pid, started, published, thread, core: see ``Process``.
    """

    worker: int
    pid: int
    started: float
    published: float
    thread: str
    core: str


@dataclass(slots=True, kw_only=True)
class CacheFigures(Figures):
    """The figures of one cache in all processes of a site.

    Bytes and bounds are sums over all living workers; bounds of entries that workers share apply to all of them
    together. Without a living worker, the bounds are those of the last worker. The lag is that of the slowest wheel.

    Attributes:
        processes: the processes that have the cache.
        since: the start of the first process whose counts are included, in seconds since 1970; None without one.
        killed: the number of workers that ended abruptly, since the first one.
        published: the time of the last publication, in seconds since 1970; None if there was none.
        full_pages: the pages that had too many variants, those with most of them first.
        rises: the points by which the miss ratios of groups of keys have risen since the last release, by name, as far
            as they are a problem: see ``comparison.worse_groups``. Empty unless the reader has looked for them.
    """

    name: str
    processes: Collection[Process]
    since: float | None
    killed: int
    published: float | None
    full_pages: tuple[FullPage, ...]
    rises: Mapping[str, float] = field(default_factory=dict)

    @property
    def workers(self) -> int:
        """The number of processes that have the cache."""
        return len(self.processes)

    @property
    def refused(self) -> int:
        """The number of workers to which the system refused a wheel thread."""
        return sum(each.thread == "refused" for each in self.processes)

    @property
    def cores(self) -> list[str]:
        """The cores that the processes run."""
        return sorted({each.core for each in self.processes})

    @property
    def fullness(self) -> float | None:
        """The share of the limit on entries or on weight in use, the greater one; None without a limit in use."""
        limits = (self.stats.size, self.max_entries), (self.stats.weight, self.max_weight)
        return max((now / most for now, most in limits if most and self.workers), default=None)


@dataclass(slots=True)
class Sum:
    """Adds up the figures of a cache from several processes and databases.

    Attributes:
        settings: the settings that were published last, for a cache without a living worker.
        processes: the processes that have the cache, by their number.
        gauges: the combined values of ``GAUGES_OF_WORKER``, by name.
        paths: the paths of pages.
        groups: the counts of the groups of keys.
    """

    counts: Row = NOTHING
    since: float = inf
    settings: Mapping[str, Any] = field(default_factory=dict)
    processes: Mapping[int, Process] = field(default_factory=dict)
    gauges: Mapping[str, Any] = field(default_factory=dict)
    killed: int = 0
    published: float | None = None
    paths: NamedPaths = field(default_factory=no_paths)
    groups: Groups = field(default_factory=dict)

    def add(self, other: Sum) -> None:
        self.counts = added(self.counts, other.counts)
        self.since = min(self.since, other.since)
        self.published = _latest(self.published, other.published)
        self.killed += other.killed
        self.settings = self.settings or other.settings
        if self.gauges and other.gauges:
            self.gauges = {
                name: COMBINERS.get(name, _sum)((self.gauges[name], other.gauges[name])) for name in self.gauges
            }
        self.gauges = self.gauges or other.gauges
        self.processes = {**self.processes, **other.processes}
        self.paths.merge(other.paths)
        self.groups = merged(self.groups, other.groups)

    def of_cache(self, name: str) -> CacheFigures:
        """Return the sum as the figures of the cache ``name``."""
        common = self._common()
        stats = common["stats"]
        if stats.pages is not None:
            pages = replace(stats.pages, **{kind: self.paths.numbers(kind) for kind in (NOT_STORED, FULL)})
            common["stats"] = replace(stats, by_guest={**stats.by_guest, "pages": pages})
        return CacheFigures(
            **common,
            name=name,
            processes=self.processes.values(),
            since=None if self.since == inf else self.since,
            killed=self.killed,
            published=self.published,
            full_pages=full_pages(self.paths),
        )

    def of_worker(self, **given: Any) -> WorkerFigures:
        """Return the sum as the figures of one process."""
        return WorkerFigures(**self._common(), **given)

    def _common(self) -> dict[str, Any]:
        bounds = self.gauges or self.settings
        hits, stale_hits, misses, store_hits, seconds = (int(self.gauges.get(name, 0)) for name in MINUTE)
        return {
            "stats": self._stats(),
            "minute": Rate(hits, stale_hits, misses, store_hits if self._has("store") else None, seconds),
            "peak": int(self.gauges.get("peak", 0)),
            "max_entries": _whole(bounds.get("max_entries")),
            "max_weight": _whole(bounds.get("max_weight")),
            "weighs_bytes": bool(bounds.get("weighs_bytes")),
            "is_shared": bool(bounds.get("is_shared")),
            "lag": self.gauges.get("lag"),
        }

    def _stats(self) -> Stats:
        gauges = [self.gauges.get(name, 0) for name in GAUGES]
        return stats_of(self.counts, gauges, [name for name in ("store", "pages") if self._has(name)], self.groups)

    def _has(self, part: str) -> bool:
        return bool((self.gauges or self.settings).get(f"has_{part}"))


def _sum(numbers: Iterable[Any]) -> Any:
    """Return the sum; None if one of the numbers is None, because it is unknown or unbounded."""
    known = list(numbers)
    return None if None in known else sum(known)


COMBINERS: Final = {
    "peak": max,
    "lag": max,
    "weighs_bytes": min,
    "has_store": max,
    "has_pages": max,
    "is_shared": max,
    "minute_seconds": max,
}
"""The functions that combine the gauges of several workers. All other gauges are added."""


def _latest(*times: float | None) -> float | None:
    return max((each for each in times if each is not None), default=None)


def _whole(number: float | None) -> int | None:
    return None if number is None else int(number)
