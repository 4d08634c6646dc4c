"""Observe a cache from outside: its steps, events and published figures, and the requests of operators."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from wheelcache.cache import Cache, caches
from wheelcache.engine.failures import Failure
from wheelcache.engine.observed import ObservedCache
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.watch.cache_events import CacheEvents
from wheelcache.watch.event_log import MAX_EVENTS, Event, merged
from wheelcache.watch.inquiries import Inquiries, Inspector
from wheelcache.watch.key_samples import KeySamples
from wheelcache.watch.publisher import Publication, publisher_of
from wheelcache.watch.recent_failures import RecentFailures
from wheelcache.watch.recorder import Recorder, State
from wheelcache.watch.tables import encoded

if TYPE_CHECKING:
    from wheelcache.near_cache.store_state import StoreState
    from wheelcache.pages.figures import Figures as PageFigures


class Observer:
    """The objects that observe one cache: an ``Observer`` of ``engine.observer``.

    Attributes:
        jobs: the periodic jobs of these objects.
        publishes: whether the figures are published.
        stats: reads the figures.
        recorder: records the counts by steps.
        events: the events that are not published yet.
        inspector: answers inquiries about the entries.
        samples: the samples of the keys, if they are published; None if all workers have the same entries.
        publication: publishes the figures; None if they are not published.
        memory_log: the recent events, if they are not published.
    """

    def __init__(self, cache: ObservedCache) -> None:
        self._cache = cache
        options, clock = cache.options, cache.clock
        self.stats = stats = cache.figures
        name, directory = options.name, options.figures_dir
        self.publishes = directory is not None
        self.recorder = Recorder(name, stats, self.state, clock, keeps_steps=self.publishes)
        self._failures = RecentFailures()
        self.events = CacheEvents(name, self._failures)
        self.failed, self.cleared = self._failures.note, self.events.note_clear
        self.events.take_outage = self._take_outage
        # Unmerged: adding an event is atomic, so no thread loses the events that another one adds.
        self.memory_log: deque[Event] = deque(maxlen=2 * MAX_EVENTS)
        self.inspector = Inspector(cache)
        self.samples: KeySamples | None = None
        self.publication: Publication | None = None
        if directory is not None:
            inquiries = Inquiries(encoded(name), self.inspector)
            publisher, thread, in_use = publisher_of(directory), self.thread, cache.is_in_use
            if not stats.is_shared:
                self.samples = KeySamples(cache, clock)
            self.publication = Publication(
                *(publisher, self.recorder, inquiries, self.events, lambda: self.pages),
                *(self.samples, thread, in_use, clock),
            )
        self.jobs = list(self._all_jobs())

    @property
    def pages(self) -> PageFigures | None:
        """The figures of the pages of an HTTP cache; None for any other cache."""
        return cast("PageFigures | None", self.stats.by_guest.get("pages"))

    def _take_outage(self) -> Failure | None:
        store = cast("StoreState | None", self.stats.by_guest.get("store"))
        return None if store is None else store.take_outage()

    def thread(self) -> str:
        """Return the state of the wheel thread: see ``WheelThread.state``."""
        return self._cache.thread_state

    def state(self) -> State:
        """Return the state of the cache that is not part of its counts."""
        options = self._cache.options
        return State(
            lag=self._cache.lag,
            max_entries=options.max_entries,
            max_weight=options.max_weight,
            # The weights of pages are bytes.
            weighs_bytes=self._cache.weighs_bytes or self.pages is not None,
            has_store="store" in self.stats.by_guest,
            has_pages=self.pages is not None,
            is_shared=self.stats.is_shared,
        )

    def run(self, action: str, *arguments: Any) -> Any:
        """Run a request of an operator in this process, and return its result. Cache events do not record it."""
        return self._cache.actions[action](*arguments)

    def recent_events(self) -> list[Event]:
        """Return the events of a cache that does not publish, oldest first."""
        self.memory_log.extend(self.events.take())
        return merged((), self.memory_log.copy())

    def after_fork_in_child(self) -> None:
        for each in (self.events, self._failures):
            each.start_over()

    def _all_jobs(self) -> Iterator[PeriodicJob]:
        if self.publication is not None:
            # The publication uses the results of the others.
            yield self.recorder
            if self.samples is not None:
                yield self.samples
            yield self.publication


def observer_of(cache: Cache) -> Observer:
    """Return the observer of a cache. If the options of the cache asked for none, it observes the cache from now on."""
    observed = cache.engine.observed
    if not isinstance(observed.observer, Observer):
        observed.observe(Observer(observed))
    return cast(Observer, observed.observer)


def page_caches() -> list[Cache]:
    """Return the caches of the pages of HTTP caches in this process, oldest first."""
    return [cache for cache in caches() if "pages" in cache.engine.observed.figures.by_guest]
