"""The parts of a cache that its observers read, and the actions that operators request.

The engine knows no observer: ``cache.py`` hands the ``Readable`` of a cache to the factory of its observer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any, Final, Protocol

from wheelcache.core.contract import Core, RemovalCause
from wheelcache.engine.runtime.periodic_jobs import PeriodicJob
from wheelcache.engine.runtime.wheel_driver import WheelDriver
from wheelcache.engine.stats import (
    COUNTERS,
    GROUP_COUNTS,
    MISSES,
    MOST_GROUPS,
    NO_GROUP,
    NO_PAGES,
    NO_STORE,
    NO_STORE_GAUGES,
    REMOVALS,
    GroupStats,
    Meter,
    Row,
    Stats,
    StoreStats,
    added,
    whole_parts,
    with_groups,
)
from wheelcache.watch.busiest import NamedPaths, Occurrences
from wheelcache.watch.computed_keys import ComputedKeys
from wheelcache.watch.computing_time import ComputingTime
from wheelcache.watch.recent_failures import Failure, RecentFailures

CLEAR: Final = "clear"
PURGE: Final = "purge"
"""The actions that operators can request of the workers."""


class ObservedStore(Protocol):
    """The store behind a near cache, as its observers see it."""

    def stats(self) -> StoreStats: ...
    def take_outage(self) -> Failure | None: ...
    def after_fork_in_child(self) -> None: ...


class ObservedPages(Protocol):
    """The pages of an HTTP cache, as its observers see them."""

    @property
    def unsent(self) -> int: ...
    def row(self) -> Row: ...
    def refused_by_view(self) -> Mapping[str, int]: ...
    def paths(self) -> NamedPaths: ...
    def unpublished_paths(self) -> list[Occurrences]: ...
    def published_paths(self, occurrences: list[Occurrences]) -> None: ...
    def publish_paths_again(self) -> None: ...
    def rehearsed(self) -> Mapping[tuple[str, str], tuple[int, dict[str, Any]]]: ...
    def change_mode(self, mode: str) -> None: ...


class StatsReader:
    """Reads the figures of a cache from its core and its loads, and from its store behind or its pages if it has them.

    Attributes:
        computed: a sample of the keys that were loaded recently.
        store: the store behind, or None.
        pages: the pages of an HTTP cache, or None.
        own_part: returns the number and the weight of the entries that count among the figures of this process. Only
            some of the entries that processes share do.
        is_shared: whether processes share the entries.
    """

    def __init__(self, core: Core, loads: Meter, computed: ComputedKeys) -> None:
        self._core = core
        self._loads = loads
        self.computed = computed
        self.store: ObservedStore | None = None
        self.pages: ObservedPages | None = None
        self.own_part: Callable[[], tuple[int, int]] = lambda: (len(core), core.weight)
        self.is_shared = False
        # By group, at the last reading.
        self._hits: dict[str, int] = {}

    def __call__(self) -> Stats:
        counts, gauges, groups = self.read()
        stats = Stats.of(counts, gauges, has_store=self.store is not None, has_pages=self.pages is not None)
        return replace(stats, groups={name: GroupStats.of(row) for name, row in groups.items()})

    def activity(self) -> tuple[int, int, int]:
        """Return the numbers of uses, of stored values and of entries."""
        stats = self()
        return stats.uses, stats.puts, stats.size

    def groups(self) -> dict[str, Row]:
        """Return the counts of the groups of keys by name, each as in ``GroupStats.of``."""
        refused = {} if self.pages is None else dict(self.pages.refused_by_view())
        # A hit is taken back if its value cannot be decoded, and a reading in between may have shown it.
        groups = [each._replace(hits=max(each.hits, self._hits.get(each.name, 0))) for each in self._core.groups()]
        self._hits = {each.name: each.hits for each in groups}
        rows: dict[str, Row] = {
            each.name: (
                *(each.hits, each.stale_hits, each.puts, each.loads, whole_parts(each.load_seconds)),
                refused.pop(each.name, 0),
                *each.misses,
            )
            for each in groups
        }
        for view, number in refused.items():
            # The core does not distinguish this view, or has counted nothing else for it.
            name = view if len(rows) <= MOST_GROUPS else ""
            rows[name] = added(rows.get(name, NO_GROUP), _only_refused(number))
        return rows

    def read(self) -> tuple[Row, Row, dict[str, Row]]:
        """Return the counts and the gauges of the cache, and the counts of its groups of keys."""
        groups = self.groups()
        (loads, seconds, buckets), core = self._loads.read(), self._core.counts()
        values: dict[str, Any] = loads | core._asdict() | {"load_seconds": seconds}
        values.update((name, core.removals[cause]) for cause, name in _REMOVALS)
        values.update(zip(MISSES.values(), core.causes, strict=True))
        store = None if self.store is None else self.store.stats()
        of_pages = NO_PAGES if self.pages is None else self.pages.row()
        counts = (*_counters(values), *buckets, *(NO_STORE if store is None else store.counts()), *of_pages)
        of_store = NO_STORE_GAUGES if store is None else store.gauges()
        size, weight = self.own_part()
        gauges = (size, weight + self.unsent, *of_store)
        return with_groups(counts, groups.values()), gauges, groups

    def after_fork_in_child(self) -> None:
        """Count from zero."""
        self._hits = {}
        if self.store is not None:
            self.store.after_fork_in_child()

    @property
    def unsent(self) -> int:
        """The bytes of responses that are counted with the pages until their clients have received them."""
        return 0 if self.pages is None else self.pages.unsent


@dataclass(frozen=True, slots=True)
class Readable:
    """The parts of one cache, for its observer.

    Attributes:
        options: the arguments of ``Cache``, checked.
        core: the entries.
        driver: advances the core.
        stats: reads the figures.
        failures: the exceptions that loaders raised.
        computing: the time spent in loads in the last hour.
        actions: the functions that run the requests of operators, by action.
        delete_many: deletes keys, and returns the number of existing ones.
        deletions: deletes the keys that a function selects from lists of the callers' keys: see ``CacheParts``.
        delete_tags: deletes the entries of tags.
        is_in_use: returns whether the cache was used and not closed since.
        begin_use: does what the first use of an entry does.
    """

    options: Any
    core: Core
    driver: WheelDriver
    stats: StatsReader
    failures: RecentFailures
    computing: ComputingTime
    actions: Mapping[str, Callable[..., Any]]
    delete_many: Callable[[Iterable[Any]], int]
    deletions: Callable[[Callable[[list[Any]], Iterable[Any]]], Iterator[int]]
    delete_tags: Callable[[Iterable[str]], object]
    is_in_use: Callable[[], bool]
    begin_use: Callable[[], object]


class CacheObserver(Protocol):
    """The observer of a cache, as its parts see it.

    Attributes:
        jobs: its periodic jobs.
        publishes: whether other processes must learn that the cache is used.
    """

    jobs: list[PeriodicJob]
    publishes: bool

    def note_clear(self, by: str) -> None: ...
    def after_fork_in_child(self) -> None: ...


def _only_refused(number: int) -> Row:
    """Return the row of a group with no other counts."""
    place = GROUP_COUNTS.index("refused")
    return (*NO_GROUP[:place], number, *NO_GROUP[place + 1 :])


_REMOVALS: Final = tuple((RemovalCause(cause), name) for cause, name in REMOVALS.items())
_counters: Final = itemgetter(*COUNTERS)
