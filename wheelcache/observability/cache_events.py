"""What happens in one cache of this process that operators may want to know: loads that fail, clears by code."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.loading.recent_failures import Failure, RecentFailures
from wheelcache.observability.event_log import CLEARED, LOAD_FAILED, Event, EventLog, merged
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.process_start import this_process
from wheelcache.runtime.weak_registry import WeakRegistry


class CacheEvents:
    """Notes events in memory, and adds them to the log every few seconds. A job of ``periodic_jobs``.

    Args:
        name: of the cache.
        period: seconds between two additions.
        log: of the site; where nothing is published, of this cache.
        failures: what its loaders raise.
    """

    __slots__ = ("__weakref__", "_clears", "_failures", "_lock", "_name", "_unsaved", "log", "period")

    _clears: dict[str, tuple[float, float, int]]
    _unsaved: list[Event]

    matters: Final = 1

    def __init__(self, name: str, period: float, log: EventLog, failures: RecentFailures) -> None:
        self.period = period
        self._name = name
        self.log = log
        self._failures = failures
        self.start_over()
        _all.add(self)

    def note_clear(self, by: str) -> None:
        """The cache was cleared, by the code of the site if ``by`` is empty. Takes 0.5 us, and no file."""
        now = SystemClock.time()
        with self._lock:
            first, _, count = self._clears.get(by, (now, now, 0))
            self._clears[by] = (first, now, count + 1)

    def read(self, most: int) -> list[Event]:
        """The newest, oldest first, also those that were not added to the log yet."""
        with self._lock:
            clears, unsaved = dict(self._clears), list(self._unsaved)
        new = self._events(clears, self._failures.copies())
        return merged(self.log.read(), merged(unsaved, new))[-most:]

    def begin(self) -> None:
        """There is nothing to prepare."""

    def run(self) -> None:
        """Add what happened since the last run to the log."""
        if not (self._clears or self._unsaved or self._failures):
            return
        with self._lock:
            clears, self._clears = self._clears, {}
            unsaved, self._unsaved = self._unsaved, []
        events = merged(unsaved, self._events(clears, self._failures.take()))
        if events:
            try:
                self.log.add(events)
            except (OSError, FileUnusable):
                # The next run tries again.
                with self._lock:
                    self._unsaved = merged(events, self._unsaved)

    def start_over(self) -> None:
        """At first, and in the child of a fork: the events, and perhaps the lock, are the parent's."""
        # The garbage collector may run a finalizer that clears the cache inside it.
        self._lock = threading.RLock()
        self._clears = {}
        self._unsaved = []

    def close(self) -> None:
        self.run()

    def _events(self, clears: Mapping[str, tuple[float, float, int]], failures: Iterable[Failure]) -> Iterator[Event]:
        process, name = this_process(), self._name
        for by, (first, last, count) in clears.items():
            yield Event.of(CLEARED, last, process, since=first, cache=name, subject=by, count=count)
        for each in failures:
            yield Event.of(
                LOAD_FAILED,
                each.last,
                process,
                since=each.first,
                cache=name,
                subject=each.kind,
                text=each.message,
                count=each.count,
            )


_all: Final[WeakRegistry[CacheEvents]] = WeakRegistry()


def _run_all() -> None:
    for each in _all:
        each.run()


lifecycle.PUBLISH.add(_run_all)
