"""Single flight: many ask for the same missing value, one computes it, all get what it got.

The idea is that of Go's ``golang.org/x/sync/singleflight``. Three things are added. A flight can be superseded: its key
was written or deleted meanwhile, so its result is for those who wait for it already; who comes later waits too, lest
two loads run at once, and then looks again. A flight can be abandoned: its leader was cancelled or is being torn down,
so one of the waiters leads the next. And a wait that could never end is refused.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from contextlib import suppress
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any

from wheelcache.errors import LoadDeadlock
from wheelcache.keys import original
from wheelcache.runtime import contexts, lifecycle
from wheelcache.runtime.alarm import Alarm

_graph_lock = threading.RLock()
"""Guards who waits for whom, which goes across caches; taken under a cache's own lock."""


_blocked_loops: dict[asyncio.AbstractEventLoop, _Lead] = {}
"""Event loops that stand still, since their thread waits for a flight; whatever runs on one waits for it, too."""


def _renew_graph_lock() -> None:
    global _graph_lock
    _graph_lock = threading.RLock()


lifecycle.RENEWED.add(_renew_graph_lock)


class _Lead:
    """Somebody's loading: what the context of the loading code carries. It knows no value, so it keeps none alive.

    Attributes:
        loop: the event loop that the leader would block, or is run by; None outside of one.
        blocked_on: the leads whose ends this one's code waits for.
        over: the loader returned, or its flight ended; code that it left running is on its own.
    """

    __slots__ = ("blocked_on", "key", "loop", "over", "table")

    def __init__(self, table: SingleFlight, key: Hashable) -> None:
        self.table = table
        self.key = key
        self.loop = asyncio._get_running_loop()
        self.blocked_on: list[_Lead] = []
        self.over = False


_leading: ContextVar[tuple[_Lead, ...]] = ContextVar("wheelcache_leading", default=())
"""What the running code is part of. Tasks and ``asyncio.to_thread`` inherit it."""


def is_loading() -> bool:
    """Whether the running code is part of a loader, for whose value others may be waiting."""
    return any(not lead.over for lead in _leading.get())


def on_its_own() -> None:
    """What runs from here on in this context is part of no loader."""
    _leading.set(())


contexts.resetters.append(on_its_own)


class Flight:
    """One computation of one key's value, and the place where its result will be.

    Attributes:
        started: when, in seconds on the cache's clock.
        seen: what the board showed when the leader began.
        outcome: value and error, when it has ended.
        ended: set when it has.
    """

    __slots__ = ("_token", "ended", "key", "lead", "outcome", "seen", "started", "superseded", "waited_for")

    def __init__(self, table: SingleFlight, key: Hashable, started: float) -> None:
        self.key = key
        self.started = started
        self.superseded = False
        self.waited_for = False
        self.seen: tuple[int, int] = (0, 0)
        self.lead = _Lead(table, key)
        self.outcome: tuple[Any, BaseException | None] | None = None
        self.ended = Alarm()
        self._token: Token[tuple[_Lead, ...]] | None = None

    def __enter__(self) -> None:
        """The leader loads."""
        # A leader that was interrupted on its way in or out has left its lead here, which is over.
        self._token = _leading.set((*(lead for lead in _leading.get() if not lead.over), self.lead))

    def __exit__(self, *exc_info: object) -> None:
        self.lead.over = True
        if self._token is not None:
            # A coroutine that is closed from outside ends in another context than it began in.
            with suppress(ValueError):
                _leading.reset(self._token)

    def end(self, value: Any, error: BaseException | None) -> None:
        """Tell the waiters, once. Without waiters, keep nothing: error, traceback and flight would be a cycle.

        If it was interrupted, the next call wakes the waiters that are left.
        """
        self.lead.over = True
        if self.outcome is None:
            self.outcome = (value, error) if self.waited_for else (None, None)
        self.ended.set()


@dataclass(slots=True)
class Seat:
    """A place on a flight.

    Attributes:
        leads: the caller is to load; otherwise it waits, and calls ``leave`` when it no longer does.
        late: the flight was superseded already.
        blocked: the leads whose code waits.
        loop: the event loop that stands still meanwhile.
    """

    flight: Flight
    leads: bool
    late: bool = False
    blocked: tuple[_Lead, ...] = ()
    loop: asyncio.AbstractEventLoop | None = None


class SingleFlight:
    """The flights in progress, at most one a key. The owner calls its methods under a lock of its own."""

    __slots__ = ("in_progress",)

    def __init__(self) -> None:
        self.in_progress: dict[Hashable, Flight] = {}

    def flight(self, key: Hashable, now: float) -> Flight:
        """A flight that nobody knows of yet. Made before it is joined, so that its maker can end it come what may."""
        return Flight(self, key, now)

    def leads(self, flight: Flight) -> bool:
        """Whether others wait for this flight, or will."""
        return self.in_progress.get(flight.key) is flight

    def join(self, new: Flight, *, blocking: bool) -> Seat:
        """A seat on the flight for the key of ``new``: on the one in progress, or on ``new``, which then is.

        Args:
            blocking: the caller's thread will wait, and with it any event loop that runs in it.

        Raises:
            LoadDeadlock: the flight waits for a loader that is calling this.
        """
        key = new.key
        mine = tuple(lead for lead in _leading.get() if not lead.over)
        if any(lead.table is self and lead.key == key for lead in mine):
            raise LoadDeadlock(original(key))
        flight = self.in_progress.get(key)
        if flight is not None and flight.lead.loop is not None and not flight.lead.loop.is_running():
            # Its leader is a task of a loop that was closed, or left, and may never run again.
            flight.end(None, asyncio.CancelledError())
        if flight is None or flight.outcome is not None:
            # Done and still here: its leader was cut short by a signal, or by the above.
            self.in_progress[key] = new
            return Seat(new, leads=True)
        with _graph_lock:
            awaited = _everything_awaited_by(flight.lead)
            if any(lead in awaited for lead in mine):
                raise LoadDeadlock(original(key))
            loop = asyncio._get_running_loop() if blocking else None
            if loop is not None and any(lead.loop is loop for lead in awaited):
                # It ends by way of a task of the very loop that waiting would stop. Load apart, and store nothing.
                return Seat(new, leads=True)
            if loop is not None:
                _blocked_loops[loop] = flight.lead
            flight.waited_for = True
            for lead in mine:
                lead.blocked_on.append(flight.lead)
        return Seat(flight, leads=False, late=flight.superseded, blocked=mine, loop=loop)

    def leave(self, seat: Seat) -> None:
        """The caller no longer waits. Needs no lock of the owner's."""
        with _graph_lock:
            if seat.loop is not None:
                _blocked_loops.pop(seat.loop, None)
            for lead in seat.blocked:
                lead.blocked_on.remove(seat.flight.lead)

    def land(self, flight: Flight) -> bool:
        """The leader is done. Whether its value is to be kept: not if it was superseded, or loaded apart."""
        if self.in_progress.get(flight.key) is not flight:
            return False
        del self.in_progress[flight.key]
        return not flight.superseded

    def supersede(self, key: Hashable) -> None:
        """``key`` was written or deleted: what its flight brings is old."""
        flight = self.in_progress.get(key)
        if flight is not None:
            flight.superseded = True

    def supersede_all(self) -> None:
        for flight in self.in_progress.values():
            flight.superseded = True

    def forget_all(self) -> None:
        """After a fork the leaders are in the other process, after closing there is nothing to land on."""
        self.in_progress = {}


def _everything_awaited_by(lead: _Lead) -> set[_Lead]:
    seen = {lead}
    todo = [lead]
    while todo:
        each = todo.pop()
        new = set(each.blocked_on)
        if each.loop is not None and each.loop in _blocked_loops:
            new.add(_blocked_loops[each.loop])
        new -= seen
        seen |= new
        todo.extend(new)
    return seen
