"""Observe a cache from outside: log lines, steps, published figures and requests of operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from wheelcache.engine.codec import size_of
from wheelcache.engine.readable import Readable
from wheelcache.engine.runtime.periodic_jobs import PeriodicJob
from wheelcache.watch.cache_events import CacheEvents
from wheelcache.watch.event_log import MAX_EVENTS, Event, merged
from wheelcache.watch.inquiries import Inquiries, Inspector
from wheelcache.watch.publisher import Publication, publisher_of
from wheelcache.watch.recorder import Recorder, State
from wheelcache.watch.stats_log import StatsLog
from wheelcache.watch.tables import encoded


class Observer:
    """The objects that observe one cache.

    Args:
        cache: the parts of the cache.

    Attributes:
        jobs: the periodic jobs of the observers.
        publishes: whether the figures are published.
        stats: reads the figures.
        recorder: records the counts by steps.
        events: the events that are not published yet.
        inspector: answers inquiries about the entries.
        publication: publishes the figures; None if they are not published.
        memory_log: the recent events, if they are not published.
        keeps_history: whether steps are kept, for charts.
    """

    def __init__(self, cache: Readable) -> None:
        self._cache = cache
        options, clock = cache.options, cache.driver.clock
        self.stats = stats = cache.stats
        name, directory = options.name, options.figures_dir
        self.publishes = directory is not None
        self.keeps_history = self.publishes or options.keep_history
        # Without a weigher, the core itself weighs the entries, in bytes. The weights of pages are bytes.
        self._weighs_bytes = options.max_weight is not None and options.weigher in (None, size_of)
        self.recorder = Recorder(name, stats, self.state, clock, keeps_steps=self.keeps_history)
        self.events = CacheEvents(name, cache.failures)
        self.events.take_outage = lambda: None if stats.store is None else stats.store.take_outage()
        # Unmerged: adding an event is atomic, so no thread loses the events that another one adds.
        self.memory_log: deque[Event] = deque(maxlen=2 * MAX_EVENTS)
        self.inspector = Inspector(
            cache.core,
            cache.begin_use,
            cache.computing,
            cache.delete_many,
            cache.deletions,
            cache.delete_tags,
            cache.actions,
        )
        self.publication: Publication | None = None
        if directory is not None:
            inquiries = Inquiries(encoded(name), self.inspector)
            publisher, thread, in_use = publisher_of(directory), self.thread, cache.is_in_use
            self.publication = Publication(
                publisher, self.recorder, inquiries, self.events, stats, thread, in_use, clock
            )
        self.jobs = list(self._all_jobs())

    def thread(self) -> str:
        """Return the state of the wheel thread: see ``WheelThread.state``."""
        return self._cache.driver.thread_state

    def state(self) -> State:
        """Return the state of the cache that is not part of its counts."""
        options = self._cache.options
        return State(
            lag=self._cache.driver.lag,
            max_entries=options.max_entries,
            max_weight=options.max_weight,
            weighs_bytes=self._weighs_bytes or self.stats.pages is not None,
            has_store=self.stats.store is not None,
            has_pages=self.stats.pages is not None,
            is_shared=self.stats.is_shared,
        )

    def run(self, action: str, *arguments: Any) -> Any:
        """Run a request of an operator in this process, and return its result. Cache events do not record it."""
        return self._cache.actions[action](*arguments)

    def note_clear(self, by: str) -> None:
        """Record a clear among the recent events: see ``CacheEvents.note_clear``."""
        self.events.note_clear(by)

    def recent_events(self) -> list[Event]:
        """Return the events of a cache that does not publish, oldest first."""
        self.memory_log.extend(self.events.take())
        return merged((), self.memory_log.copy())

    def after_fork_in_child(self) -> None:
        self.events.start_over()

    def _all_jobs(self) -> Iterator[PeriodicJob]:
        options = self._cache.options
        if options.log_interval is not None:
            yield StatsLog(options.name, options.log_interval, self._cache.driver.clock, self.stats)
        if self.keeps_history:
            # First, because the publication uses the result.
            yield self.recorder
        if self.publication is not None:
            yield self.publication
