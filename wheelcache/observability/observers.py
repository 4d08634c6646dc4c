"""Observe a cache from outside: log lines, steps, published figures and requests of operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from wheelcache.codec import size_of
from wheelcache.core.contract import Core
from wheelcache.loading.computing_time import ComputingTime
from wheelcache.loading.recent_failures import RecentFailures
from wheelcache.observability.cache_events import CacheEvents
from wheelcache.observability.event_log import MAX_EVENTS, Event, merged
from wheelcache.observability.inquiries import Inquiries, Inspector
from wheelcache.observability.key_groups import GroupLevels
from wheelcache.observability.memory_use import MemoryUse
from wheelcache.observability.publisher import INTERVAL, Publication, publisher_of
from wheelcache.observability.recorder import Recorder, State
from wheelcache.observability.stats_log import StatsLog
from wheelcache.observability.stats_reader import ObservedPages, ObservedStore, StatsReader
from wheelcache.observability.tables import encoded
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.stats import whole_parts


class Observer:
    """The objects that observe one cache.

    Args:
        options: the arguments of ``Cache``, checked.
        core: the entries of the cache.
        stats: reads the figures.
        failures: the exceptions that loaders raised.
        computing: the time spent in loads in the last hour.
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
        computing: ComputingTime,
        driver: WheelDriver,
        actions: Mapping[str, Callable[..., object]],
        inspector: Inspector,
        is_in_use: Callable[[], bool],
    ) -> None:
        self._options = options
        self._driver = driver
        self._actions = actions
        self._computing = computing
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
            inquiries = Inquiries(encoded(name), inspector)
            publisher, thread, clock = publisher_of(directory), self.thread, driver.clock
            self.publication = Publication(
                publisher, self.recorder, inquiries, self.events, stats, self.group_levels, thread, is_in_use, clock
            )
        self.jobs = list(self._all_jobs())

    def thread(self) -> str:
        """Return the state of the wheel thread: see ``WheelThread.state``."""
        return self._driver.thread_state

    def state(self) -> State:
        """Return the state of the cache that is not part of its counts."""
        options, memory = self._options, self.memory_use()
        return State(
            memory=None if memory is None else memory + self.stats.unsent,
            lag=self._driver.lag,
            max_entries=options.max_entries,
            max_weight=options.max_weight,
            weighs_bytes=self.memory_use.is_weighed,
            has_store=self.stats.store is not None,
            has_pages=self.stats.pages is not None,
            is_adaptive=options.policy == "adaptive",
        )

    def group_levels(self) -> GroupLevels:
        """Return the present state of the groups of keys, by name."""
        memory, computing = self.memory_use.by_group(), self._computing.by_group()
        return {name: (memory.get(name, 0), whole_parts(computing.get(name, 0.0))) for name in {*memory, *computing}}

    def run(self, action: str, *arguments: Any) -> Any:
        """Run a request of an operator in this process, and return its result. Cache events do not record it."""
        return self._actions[action](*arguments)

    def observe_store(self, store: ObservedStore) -> None:
        """Include the statistics of ``store`` and its outages."""
        self.stats.store = store
        self.events.take_outage = store.take_outage

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
            # First, because the other jobs use the result.
            yield self.memory_use
            yield self.recorder
        if self.publication is not None:
            yield self.publication


@dataclass(eq=False)
class IdleChecker:
    """Checks whether a cache is idle: it was already empty at the last call, and has not been used since.

    Between two calls, every job runs. So the cache has been published as empty before its jobs are paused, even if an
    operator's clear or an expiry emptied it.

    Attributes:
        is_computing: returns whether values are being computed. Until they are stored, the cache must receive the
            requests of operators that outdate them.
    """

    _stats: StatsReader
    _expect_write: Callable[[], object]
    is_computing: Callable[[], bool]
    _before: tuple[int, int, int] = (0, 0, 0)

    def __call__(self) -> bool:
        # This comes first, so that a write after the check below starts the jobs again.
        self._expect_write()
        stats = self._stats()
        before, self._before = self._before, (stats.uses, stats.puts, stats.size)
        return before == self._before and not stats.size and not self.is_computing()
