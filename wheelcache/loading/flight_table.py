"""Single flight: many callers ask for the same missing value, one computes it, and all get it.

The idea is that of Go's ``golang.org/x/sync/singleflight``, with three additions. A flight is *outdated* when its key
was written or deleted during the load: the callers that wait already receive its value, which is not stored; callers
that come later wait too, so that no two loads run at the same time, and then look again. A flight is *abandoned* when
its leader was cancelled or interrupted: a waiter leads the next flight. And a wait that could never end is refused.

A leader claims the key in the table, then watches it, then looks again. It stores the value under that watch, leaves
the table, and only then closes the watch: a caller that finds the flight in the table sees every write since.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from typing import Any

from wheelcache.core.contract import TagName, Watch
from wheelcache.errors import LoadDeadlock
from wheelcache.keys import unwrap
from wheelcache.loading import wait_graph
from wheelcache.loading.wait_graph import Edge, Lead
from wheelcache.runtime.alarm import Alarm


class Flight:
    """One computation of one key's value, and its result.

    Attributes:
        started: the time of its start, in seconds on the cache's clock.
        names: the tags of the value, by their names in the core. The loader may learn them: see ``request.Tagged``.
        watch: the leader's watch on the key; None until it begins. The loader starts after that.
        superseded: whether the store behind was read during this flight, so that its value is not stored.
        waited_for: whether other callers wait for it, or are about to.
        outcome: value and error, after the end.
        ended: set at the end.
    """

    __slots__ = ("ended", "key", "lead", "names", "outcome", "started", "superseded", "waited_for", "watch")

    def __init__(self, table: FlightTable, key: Hashable, started: float, names: tuple[TagName, ...] = ()) -> None:
        self.key = key
        self.names = names
        self.started = started
        self.watch: Watch | None = None
        self.superseded = False
        self.waited_for = False
        self.lead = Lead(table, key)
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.ended = Alarm()

    def end(self, value: Any, error: BaseException | None) -> None:
        """Wake the waiters, after the flight has left the table. A second call completes an interrupted one.

        Without waiters, nothing is kept: error, traceback and flight would be a cycle.
        """
        self.lead.over = True
        if self.outcome is None:
            self.outcome = (value, error) if self.waited_for else (None, None)
            if self.watch is not None:
                self.watch.close()
        self.ended.set()


class Ticket:
    """A caller's place on a flight, made before the caller joins, so that the caller can always give it back.

    Attributes:
        own: the flight that the caller leads, if there is no other.
        flight: the flight that the caller is on.
        leads: whether the caller loads; otherwise it waits.
        owns: whether the caller still has ``own``, and did not hand it over to a pool.
    """

    __slots__ = ("edge", "flight", "leads", "own", "owns")

    def __init__(self, own: Flight) -> None:
        self.own = self.flight = own
        self.leads = False
        self.owns = True
        self.edge = Edge()


class FlightTable:
    """The flights in progress, at most one per key.

    Attributes:
        lock: guards the table. Re-entrant, since the garbage collector may at any point run a finalizer that loads.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._in_progress: dict[Hashable, Flight] = {}

    def __len__(self) -> int:
        return len(self._in_progress)

    @property
    def in_step(self) -> bool:
        """Whether the running thread holds the lock already, in code that the garbage collector runs."""
        return bool(self.lock._is_owned())  # type: ignore[attr-defined]

    def keys(self) -> list[Any]:
        """Return the keys of the flights in progress."""
        return list(self._in_progress)

    def join(self, ticket: Ticket, *, blocking: bool, may_wait: bool = True) -> None:
        """Lead the ticket's own flight, or wait for the one in progress.

        A caller that cannot wait leads its own flight outside the table, whose value is not stored.

        Args:
            blocking: the caller's thread will wait, and with it any event loop that runs in it.
            may_wait: False if the caller holds a lock without which the flight may be unable to end.

        Raises:
            LoadDeadlock: if the flight waits for a loader that is calling this.
        """
        own = ticket.own
        key = own.key
        if any(lead.table is self and lead.key == key for lead in wait_graph.leads()):
            raise LoadDeadlock(unwrap(key))
        with self.lock:
            flight = self._current(key)
            if flight is None:
                self._in_progress[key] = own
                ticket.leads = True
            elif may_wait and ticket.edge.begin(flight.lead, blocking=blocking):
                flight.waited_for = True
                ticket.flight = flight
            else:
                ticket.leads = True

    def claim(self, flight: Flight) -> bool:
        """Put ``flight`` into the table unless its key has one. Return whether it was put there."""
        with self.lock:
            if self._current(flight.key) is not None:
                return False
            self._in_progress[flight.key] = flight
        return True

    def is_claimed(self, key: Hashable) -> bool:
        """Return whether a flight for ``key`` is in progress."""
        with self.lock:
            return self._current(key) is not None

    def leads(self, flight: Flight) -> bool:
        """Return whether ``flight`` is in the table."""
        return self._in_progress.get(flight.key) is flight

    def land(self, flight: Flight) -> None:
        """Remove ``flight`` from the table, so that no more callers join it."""
        with self.lock:
            if self.leads(flight):
                del self._in_progress[flight.key]

    def supersede(self, key: Hashable) -> None:
        """Keep the value of the flight in progress for ``key`` from being stored."""
        with self.lock:
            flight = self._in_progress.get(key)
            if flight is not None:
                # In this order: if the leader begins its watch in between, it checks ``superseded`` before it stores.
                flight.superseded = True
                if flight.watch is not None:
                    flight.watch.broken = True

    def after_fork_in_child(self) -> None:
        """Forget all flights: their leaders are in the parent process."""
        self.lock = threading.RLock()
        self._in_progress = {}

    def _current(self, key: Hashable) -> Flight | None:
        flight = self._in_progress.get(key)
        if flight is None:
            return None
        loop = flight.lead.loop
        if loop is not None and not loop.is_running():
            # Its leader is a task of an event loop that has stopped, and may never run again.
            flight.end(None, asyncio.CancelledError())
        # A flight that has ended is still here if its loop has stopped, or if its leader was interrupted twice.
        return flight if flight.outcome is None else None
