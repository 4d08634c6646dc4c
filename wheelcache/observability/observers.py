"""Observe a cache from outside: log lines, steps, published figures and requests of operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from typing import Any, Final, Protocol

from wheelcache.codec import size_of
from wheelcache.core.contract import Core, RemovalCause
from wheelcache.loading.recent_failures import RecentFailures
from wheelcache.observability.cache_events import CacheEvents
from wheelcache.observability.event_log import MAX_EVENTS, Event, merged
from wheelcache.observability.inquiries import Inquiries, Inspector
from wheelcache.observability.memory_use import MemoryUse
from wheelcache.observability.publisher import INTERVAL, Publication, publisher_of
from wheelcache.observability.recorder import Recorder, State
from wheelcache.observability.stats_log import StatsLog
from wheelcache.observability.tables import encoded
from wheelcache.observability.worker_requests import WorkerRequests
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.stats import (
    COUNTERS,
    NO_PAGES,
    NO_STORE,
    NO_STORE_GAUGES,
    REMOVALS,
    Meter,
    PageStats,
    Row,
    Stats,
    StoreStats,
)


class ObservedStore(Protocol):
    """The store behind a near cache, as its observers see it."""

    def stats(self) -> StoreStats: ...
    def after_fork_in_child(self) -> None: ...


class ObservedPages(Protocol):
    """The pages of an HTTP cache, as its observers see them."""

    def stats(self) -> PageStats: ...


class StatsReader:
    """Reads the figures of a cache from its core and its loads, and from its store behind or its pages if it has them.

    Attributes:
        store: the store behind, or None.
        pages: the pages of an HTTP cache, or None.
    """

    def __init__(self, core: Core, loads: Meter) -> None:
        self._core = core
        self._loads = loads
        self.store: ObservedStore | None = None
        self.pages: ObservedPages | None = None

    def __call__(self) -> Stats:
        counts, gauges = self.read()
        return Stats.of(counts, gauges, has_store=self.store is not None, has_pages=self.pages is not None)

    def read(self) -> tuple[Row, Row]:
        """Return the counts and the gauges of the cache."""
        (loads, seconds, buckets), core = self._loads.read(), self._core.counts()
        values: dict[str, Any] = loads | core._asdict() | {"load_seconds": seconds}
        values.update((name, core.removals[cause]) for cause, name in _REMOVALS)
        store = None if self.store is None else self.store.stats()
        of_pages = NO_PAGES if self.pages is None else self.pages.stats().counts()
        counts = (*_counters(values), *buckets, *(NO_STORE if store is None else store.counts()), *of_pages)
        of_store = NO_STORE_GAUGES if store is None else store.gauges()
        return counts, (len(self._core), self._core.weight, *of_store)


_REMOVALS: Final = tuple((RemovalCause(cause), name) for cause, name in REMOVALS.items())
_counters: Final = itemgetter(*COUNTERS)


class Observer:
    """The objects that observe one cache.

    Args:
        options: the arguments of ``Cache``, checked.
        core: the entries of the cache.
        stats: reads the figures.
        failures: the exceptions that loaders raised.
        driver: advances the core.
        actions: the functions that run the requests of operators, by action.
        is_in_use: returns whether the cache was used and not closed since.

    Attributes:
        jobs: the periodic jobs of the observers.
        recorder: records the counts by steps.
        events: the events that are not published yet.
        publication: publishes the figures; None if they are not published.
        memory_log: the recent events, if they are not published.
        keeps_history: whether steps are kept, for charts.
    """

    def __init__(
        self,
        options: Any,
        core: Core,
        stats: StatsReader,
        failures: RecentFailures,
        driver: WheelDriver,
        actions: Mapping[str, Callable[..., object]],
        inspector: Inspector,
        is_in_use: Callable[[], bool],
    ) -> None:
        self._options = options
        self._driver = driver
        self.stats = stats
        name, directory = options.name, options.figures_dir
        self.keeps_history = options.sample_interval is not None
        period = INTERVAL if directory is not None or options.sample_interval is None else options.sample_interval
        self.memory_use = MemoryUse(core, period, is_weighed=options.weigher is size_of)
        self.recorder = Recorder(name, stats, self.state, driver.clock, keeps_steps=self.keeps_history)
        self.events = CacheEvents(name, failures)
        # Unmerged: adding an event is atomic, so no thread loses the events that another one adds.
        self.memory_log: deque[Event] = deque(maxlen=2 * MAX_EVENTS)
        self.publication: Publication | None = None
        if directory is not None:
            requests = WorkerRequests(encoded(name), actions)
            inquiries = Inquiries(encoded(name), inspector.answer)
            publisher, thread, clock = publisher_of(directory), self.thread, driver.clock
            self.publication = Publication(
                publisher, self.recorder, requests, inquiries, self.events, thread, is_in_use, clock
            )
        self.jobs = list(self._all_jobs())

    def thread(self) -> str:
        """Return the state of the wheel thread: see ``WheelThread.state``."""
        return self._driver.thread_state

    def state(self) -> State:
        """Return the state of the cache that is not part of its counts."""
        options = self._options
        return State(
            memory=self.memory_use(),
            lag=self._driver.lag,
            max_entries=options.max_entries,
            max_weight=options.max_weight,
            weighs_bytes=self.memory_use.is_weighed,
            has_store=self.stats.store is not None,
            has_pages=self.stats.pages is not None,
        )

    def observe_pages(self, pages: ObservedPages) -> None:
        """Include the statistics of ``pages``, whose weights are bytes."""
        self.stats.pages = pages
        self.memory_use.is_weighed = True

    def recent_events(self) -> list[Event]:
        """Return the events of a cache that does not publish, oldest first."""
        self.memory_log.extend(self.events.take())
        return merged((), self.memory_log.copy())

    def after_fork_in_child(self) -> None:
        self.events.start_over()
        if self.stats.store is not None:
            self.stats.store.after_fork_in_child()

    def _all_jobs(self) -> Iterator[PeriodicJob]:
        options = self._options
        if options.log_interval is not None:
            yield StatsLog(options.name, options.log_interval, self._driver.clock, self.stats)
        if self.keeps_history or self.publication is not None:
            if options.weigher is not size_of:
                # First, because the other jobs use the result.
                yield self.memory_use
            yield self.recorder
        if self.publication is not None:
            yield self.publication


class IdleChecker:
    """Checks whether a cache is idle: it was already empty at the last call, and has not been used since.

    Between two calls, every job runs. So the cache has been published as empty before its jobs are paused, even if an
    operator's clear or an expiry emptied it.

    Attributes:
        is_computing: returns whether values are being computed. Until they are stored, the cache must receive the
            requests of operators that outdate them.
    """

    def __init__(
        self, stats: StatsReader, expect_write: Callable[[], object], is_computing: Callable[[], bool]
    ) -> None:
        self._stats = stats
        self._expect_write = expect_write
        self.is_computing = is_computing
        self._before = (0, 0, 0)

    def __call__(self) -> bool:
        # This comes first, so that a write after the check below starts the jobs again.
        self._expect_write()
        stats = self._stats()
        before, self._before = self._before, (stats.uses, stats.puts, stats.size)
        return before == self._before and not stats.size and not self.is_computing()
