"""What observes a cache from outside: the line on the log, samples, published figures, the requests of operators."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Protocol

from wheelcache.codec import size_of
from wheelcache.core.contract import Core
from wheelcache.loading.loads import Loads
from wheelcache.loading.recent_failures import RecentFailures
from wheelcache.observability.cache_events import CacheEvents
from wheelcache.observability.event_log import EventsInFile, EventsInMemory
from wheelcache.observability.figures_directory import FiguresDirectory
from wheelcache.observability.history import History, RingsInMemory
from wheelcache.observability.memory_use import MemoryUse
from wheelcache.observability.publisher import INTERVAL, Publisher
from wheelcache.observability.stats_log import StatsLog
from wheelcache.observability.worker_requests import RequestBox, WorkerRequests
from wheelcache.observability.worker_stats import WorkerStats
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.process_start import process_started
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.stats import Stats, StoreStats


class ObservedOptions(Protocol):
    """The options of a cache that its observers read: see ``Cache``."""

    @property
    def name(self) -> str: ...
    @property
    def log_interval(self) -> float | None: ...
    @property
    def sample_interval(self) -> float | None: ...
    @property
    def figures_dir(self) -> Path | None: ...
    @property
    def max_entries(self) -> int | None: ...
    @property
    def max_weight(self) -> int | None: ...
    @property
    def weigher(self) -> Callable[..., int] | None: ...


class ObservedStore(Protocol):
    """The store behind a near cache, as far as the observers of the copies are concerned.

    Attributes:
        on_call: called before each call of the store.
    """

    on_call: Callable[[], object]

    def stats(self) -> StoreStats: ...
    def after_fork_in_child(self) -> None: ...


class StatsReader:
    """Reads the figures of a cache from its core, its loads and, if it has copies of one, the store behind.

    Attributes:
        store: the store behind, or None.
    """

    __slots__ = ("_core", "_loads", "store")

    def __init__(self, core: Core, loads: Loads) -> None:
        self._core = core
        self._loads = loads
        self.store: ObservedStore | None = None

    def __call__(self) -> Stats:
        counts, loads = self._core.counts(), self._loads.stats()
        removals = {cause.value: count for cause, count in counts.removals.items()}
        return Stats(
            hits=counts.hits + loads.stale_hits,
            misses=counts.misses,
            puts=counts.puts,
            loads=loads.loads,
            load_failures=loads.load_failures,
            load_seconds=loads.load_times[0],
            load_buckets=loads.load_times[1],
            load_timeouts=loads.load_timeouts,
            coalesced=loads.coalesced,
            stale_hits=loads.stale_hits,
            refreshes=loads.refreshes,
            refreshes_dropped=loads.refreshes_dropped,
            evictions=removals["evicted"],
            evicted_weight=counts.evicted_weight,
            expirations=removals["expired"],
            replacements=removals["replaced"],
            deletions=removals["deleted"],
            clearings=removals["cleared"],
            size=len(self._core),
            weight=self._core.weight,
            store=None if self.store is None else self.store.stats(),
        )


class Observers:
    """The observers of one cache.

    Args:
        options: of the cache.
        core: its entries.
        stats: reads the figures.
        failures: what loaders raise.
        driver: has the core advanced.
        actions: what operators may ask for, by name.
        is_in_use: whether the cache was used, and not closed since.

    Attributes:
        jobs: what is to be done every so many seconds.
        history: None if no samples are taken.
        memory_use: tells the bytes that the entries take.
        publisher: None if no figures are published; then there are no ``requests`` either.
        events: what operators may want to know.
    """

    __slots__ = ("_driver", "_options", "events", "history", "jobs", "memory_use", "publisher", "requests", "stats")

    def __init__(
        self,
        options: ObservedOptions,
        core: Core,
        stats: StatsReader,
        failures: RecentFailures,
        driver: WheelDriver,
        actions: Mapping[str, Callable[[], object]],
        is_in_use: Callable[[], bool],
    ) -> None:
        self._options = options
        self.stats = stats
        self._driver = driver
        directory = options.figures_dir
        # Once before each publication; where there is none, once before each sample.
        period = INTERVAL if directory is not None or options.sample_interval is None else options.sample_interval
        self.memory_use = MemoryUse(core, period, is_weighed=self._weighs_bytes)
        self.history: History | None = None
        self.publisher: Publisher | None = None
        self.requests: WorkerRequests | None = None
        log = EventsInMemory() if directory is None else EventsInFile(directory)
        self.events = CacheEvents(options.name, period, log, failures)
        self.jobs: list[PeriodicJob] = [
            *self._log_jobs(),
            *self._history_jobs(),
            *self._publishing_jobs(actions, is_in_use),
            *self._event_jobs(),
        ]

    def after_fork_in_child(self) -> None:
        self.events.start_over()
        if self.stats.store is not None:
            self.stats.store.after_fork_in_child()

    @property
    def _weighs_bytes(self) -> bool:
        return self._options.weigher is size_of

    def figures(self) -> WorkerStats:
        """All there is to say of the cache in this process."""
        publisher, history = self.publisher, self.history
        return WorkerStats(
            name=self._options.name,
            worker=f"{os.getpid()}-{id(self)}" if publisher is None else publisher.worker,
            pid=os.getpid(),
            started=process_started(),
            taken=SystemClock.time(),
            thread=self._driver.thread_state,
            lag=self._driver.lag,
            interval=None if history is None else history.period,
            reached=None if history is None else history.reached,
            max_entries=self._options.max_entries,
            max_weight=self._options.max_weight,
            weighs_bytes=self._weighs_bytes,
            memory=self.memory_use(),
            stats=self.stats(),
            now=self._driver.clock(),
            samples=() if history is None else tuple(history.samples),
        )

    def _log_jobs(self) -> Iterator[PeriodicJob]:
        period = self._options.log_interval
        if period is not None:
            yield StatsLog(self._options.name, period, self._driver.clock, self.stats)

    def _history_jobs(self) -> Iterator[PeriodicJob]:
        period = self._options.sample_interval
        if period is not None:
            path = self._options.figures_dir
            rings = RingsInMemory() if path is None else FiguresDirectory(path).rings(self._options.name)
            self.history = History(period, self._driver.clock, self.stats, self.memory_use, rings)
            if not self._weighs_bytes:
                # First, so that the others have it.
                yield self.memory_use
            yield self.history

    def _publishing_jobs(
        self, actions: Mapping[str, Callable[[], object]], is_in_use: Callable[[], bool]
    ) -> Iterator[PeriodicJob]:
        if self._options.figures_dir is not None:
            directory = FiguresDirectory(self._options.figures_dir)
            self.publisher = Publisher(directory, self._options.name, self.figures, is_in_use)
            yield self.publisher
            self.requests = WorkerRequests(RequestBox(directory.path), self._options.name, actions)
            yield self.requests

    def _event_jobs(self) -> Iterator[PeriodicJob]:
        if self.history is not None or self.publisher is not None:
            yield self.events


class IdleChecker:
    """Whether a cache is idle: nothing was asked for since the last call, and nothing can be hit."""

    __slots__ = ("_expect_write", "_stats", "_uses")

    def __init__(self, stats: StatsReader, expect_write: Callable[[], object]) -> None:
        self._stats = stats
        self._expect_write = expect_write
        self._uses = 0

    def __call__(self) -> bool:
        # First: a write that comes after the look below starts the jobs again.
        self._expect_write()
        stats = self._stats()
        before, self._uses = self._uses, stats.uses
        return before == stats.uses and not stats.size
