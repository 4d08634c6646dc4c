"""Collect the events of one cache in this process that operators see: clears, failed loads, and outages of a
store."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping

from wheelcache.engine.failures import Failure
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.event_log import CLEARED, LOAD_FAILED, STORE_FAILED, Event
from wheelcache.watch.held_file import this_process
from wheelcache.watch.recent_failures import RecentFailures


class CacheEvents:
    """Keeps events in memory until the next publication.

    Args:
        name: the name of the cache.
        failures: the exceptions that its loaders raised.

    Attributes:
        take_outage: returns the failed calls of the store behind since the last call, or None.
    """

    _clears: dict[str, tuple[float, float, int]]

    def __init__(self, name: str, failures: RecentFailures) -> None:
        self._name = name
        self._failures = failures
        self.take_outage: Callable[[], Failure | None] = _no_outage
        self.start_over()

    def note_clear(self, by: str) -> None:
        """Record a clear by the operator ``by``; an empty string stands for the code of the site.

        This takes 0.5 us and accesses no file.
        """
        now = SystemClock.time()
        with self._lock:
            first, _, count = self._clears.get(by, (now, now, 0))
            self._clears[by] = (first, now, count + 1)

    def take(self) -> list[Event]:
        """Remove and return the events since the last call."""
        outage = self.take_outage()
        if not (self._clears or self._failures or outage):
            return []
        with self._lock:
            clears, self._clears = self._clears, {}
        return list(self._events(clears, self._failures.take(), outage))

    def start_over(self) -> None:
        """Set the initial state, also in the child of a fork, where the events belong to the parent and the lock may
        be held.
        """
        # Re-entrant, because the garbage collector may run a finalizer that clears the cache while the lock is held.
        self._lock = threading.RLock()
        self._clears = {}

    def _events(
        self,
        clears: Mapping[str, tuple[float, float, int]],
        failures: Iterable[Failure],
        outage: Failure | None,
    ) -> Iterator[Event]:
        process, cache = this_process(), self._name
        for by, (first, last, count) in clears.items():
            yield Event.of(CLEARED, last, process, since=first, cache=cache, subject=by, count=count)
        for each in failures:
            yield Event.of(
                LOAD_FAILED,
                each.last,
                process,
                since=each.first,
                cache=cache,
                subject=each.kind,
                text=each.message,
                count=each.count,
                groups=each.groups,
            )
        if outage is not None:
            text = ": ".join(filter(None, (outage.kind, outage.message)))
            yield Event.of(
                STORE_FAILED, outage.last, process, since=outage.first, cache=cache, text=text, count=outage.count
            )


def _no_outage() -> None:
    """Return None: there is no store behind."""
