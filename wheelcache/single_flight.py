"""Single flight: many ask for the same missing value, one computes it, all get what it got.

The idea is that of Go's ``golang.org/x/sync/singleflight``. Three things are added. A flight can be superseded: its key
was written or deleted meanwhile, so its result is for its leader only, and who waits has to look again. A flight can
be abandoned: its leader was cancelled or is being torn down, so one of the waiters leads the next. And a
wait that could never end is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Hashable
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from wheelcache.errors import LoadDeadlock
from wheelcache.keys import original

_leading: ContextVar[tuple[Flight, ...]] = ContextVar("wheelcache_leading", default=())
"""The flights that the running code is part of. Tasks and ``asyncio.to_thread`` inherit it."""


class Flight:
    """One computation of one key's value, and the place where its result will be."""

    __slots__ = ("_outer", "blocked_on", "future", "key", "loop", "superseded")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.superseded = False
        self.blocked_on: list[Flight] = []
        self.loop = asyncio._get_running_loop()
        self.future: Future[tuple[Any, BaseException | None]] = Future()
        # Running futures cannot be cancelled: a waiter that is cancelled must not take the others with it.
        self.future.set_running_or_notify_cancel()
        self._outer: tuple[Flight, ...] = ()

    def take_off(self) -> None:
        """The leader starts to load."""
        self._outer = _leading.get()
        _leading.set((*self._outer, self))

    def touch_down(self) -> None:
        """The leader stopped loading."""
        # Not by a token: a coroutine may be resumed in another context than it began in.
        _leading.set(self._outer)

    def end(self, value: Any, error: BaseException | None) -> None:
        """Tell the waiters. The error is part of the result: an asyncio future refuses to raise some, StopIteration."""
        self.future.set_result((value, error))


class SingleFlight:
    """The flights in progress, at most one a key. The owner calls every method under its own lock."""

    __slots__ = ("in_progress",)

    def __init__(self) -> None:
        self.in_progress: dict[Hashable, Flight] = {}

    def join(self, key: Hashable, *, blocking: bool) -> tuple[Flight, bool]:
        """The flight for ``key``, and whether the caller is to lead it. A caller that is not calls ``leave`` later.

        Args:
            blocking: the caller's thread will wait, and with it any event loop that runs in it.

        Raises:
            LoadDeadlock: the flight waits for a loader that is calling this.
        """
        flight = self.in_progress.get(key)
        if flight is None:
            flight = self.in_progress[key] = Flight(key)
            return flight, True
        mine = _leading.get()
        if any(each in mine for each in _everything_awaited_by(flight)):
            raise LoadDeadlock(original(key))
        if blocking and flight.loop is not None and flight.loop is asyncio._get_running_loop():
            # Led by a task of the very loop that waiting would stop. Load apart, outside the table.
            return Flight(key), True
        for each in mine:
            each.blocked_on.append(flight)
        return flight, False

    def leave(self, flight: Flight) -> None:
        """The caller no longer waits for ``flight``."""
        for each in _leading.get():
            with suppress(ValueError):
                each.blocked_on.remove(flight)

    def land(self, flight: Flight) -> bool:
        """The leader is done. False if the flight was superseded, so that its value is not to be kept."""
        if self.in_progress.get(flight.key) is flight:
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
        """After a fork: the leaders are in the other process."""
        self.in_progress = {}


def _everything_awaited_by(flight: Flight) -> list[Flight]:
    seen = [flight]
    for each in seen:
        seen.extend(other for other in each.blocked_on if other not in seen)
    return seen
