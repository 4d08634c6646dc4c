"""Records which loader waits for which, across all caches of the process, and refuses a wait that could never end.

A *lead* stands for one running load. The context of the loading code carries it, so tasks and ``asyncio.to_thread``
inherit it. A wait adds edges from the leads of the waiting code to the lead that it waits for.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from contextlib import suppress
from contextvars import ContextVar, Token

from wheelcache.errors import LoadDeadlock
from wheelcache.keys import unwrap
from wheelcache.runtime import lifecycle, threads

_lock = threading.RLock()
"""Guards the edges. The lock of a cache may be held when this one is acquired, and none is acquired under it."""

_blocked_loops: dict[asyncio.AbstractEventLoop, Lead] = {}
"""Event loops whose thread waits for a load. All code that runs on such a loop waits for it, too."""


def _renew_lock() -> None:
    global _lock
    _lock = threading.RLock()


lifecycle.RENEWED.add(_renew_lock)


class Lead:
    """One load. It holds no value, so code that a loader left running keeps no value alive.

    Attributes:
        table: the object that the key belongs to: equal keys of two caches are different loads.
        loop: the event loop that the load runs on or blocks; None if there is none.
        thread: the identifier of the thread that the load blocks; 0 if it runs on an event loop or is handed over.
        blocked_on: the leads that the loading code waits for.
        over: whether the loader returned or its flight ended. Code that it left running is not part of the load.
    """

    __slots__ = ("blocked_on", "key", "loop", "over", "table", "thread")

    def __init__(self, table: object, key: Hashable) -> None:
        self.table = table
        self.key = key
        self.loop = asyncio._get_running_loop()
        self.thread = threading.get_ident() if self.loop is None else 0
        self.blocked_on: list[Lead] = []
        self.over = False

    def hand_over(self) -> None:
        """Let a thread of a pool run the load, which then needs neither the caller's loop nor its thread."""
        self.loop = None
        self.thread = 0

    def take_back(self) -> None:
        """Let the caller run the load after all."""
        self.loop = asyncio._get_running_loop()
        self.thread = threading.get_ident() if self.loop is None else 0


_leading: ContextVar[tuple[Lead, ...]] = ContextVar("wheelcache_leading", default=())


def leads() -> tuple[Lead, ...]:
    """Return the loads that the running code is part of."""
    return tuple(lead for lead in _leading.get() if not lead.over)


def is_loading() -> bool:
    """Return whether the running code is part of a loader, for whose value other callers may wait."""
    return any(not lead.over for lead in _leading.get())


def on_its_own() -> None:
    """Detach the code that runs in this context from here on from every loader."""
    _leading.set(())


threads.resetters.append(on_its_own)


def in_step() -> bool:
    """Return whether the running thread holds the lock of the graph, in code that the garbage collector runs."""
    return bool(_lock._is_owned())  # type: ignore[attr-defined]


class Leading:
    """A context manager: the code in its block loads on behalf of ``leads``."""

    __slots__ = ("_leads", "_token")

    def __init__(self, leads: tuple[Lead, ...]) -> None:
        self._leads = leads
        self._token: Token[tuple[Lead, ...]] | None = None

    def __enter__(self) -> None:
        # A leader that was interrupted in this method or in __exit__ has left its lead here. That lead is over.
        self._token = _leading.set((*leads(), *self._leads))

    def __exit__(self, *exc_info: object) -> None:
        for lead in self._leads:
            lead.over = True
        if self._token is not None:
            # A coroutine that is closed from outside ends in another context than it began in.
            with suppress(ValueError):
                _leading.reset(self._token)


class Edge:
    """A wait of the running code for one lead, made before the wait begins, so that its maker can always end it."""

    __slots__ = ("_awaited", "_loop", "_waiting")

    def __init__(self) -> None:
        self._awaited: Lead | None = None
        self._waiting: list[Lead] = []
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self, awaited: Lead, *, blocking: bool) -> bool:
        """Begin to wait. Return False if the load needs the very thread, or the event loop, that would wait.

        Args:
            blocking: the caller's thread waits, and with it an event loop that runs in it.

        Raises:
            LoadDeadlock: if the load waits for a loader that is calling this.
        """
        waiting = leads()
        loop = asyncio._get_running_loop() if blocking else None
        me = threading.get_ident() if blocking else -1
        with _lock:
            needed = _everything_awaited_by(awaited)
            if any(lead in needed for lead in waiting):
                raise LoadDeadlock(unwrap(awaited.key))
            if any(lead.thread == me or (loop is not None and lead.loop is loop) for lead in needed):
                return False
            self._awaited, self._waiting, self._loop = awaited, [*waiting], loop
            if loop is not None:
                _blocked_loops[loop] = awaited
            for lead in waiting:
                lead.blocked_on.append(awaited)
        return True

    def end(self) -> None:
        """End the wait. Do nothing if it never began, or at a second call."""
        awaited = self._awaited
        if awaited is None:
            return
        with _lock:
            if self._loop is not None and _blocked_loops.get(self._loop) is awaited:
                del _blocked_loops[self._loop]
            while self._waiting:
                # The edge is missing if ``begin`` was interrupted.
                with suppress(ValueError):
                    self._waiting[-1].blocked_on.remove(awaited)
                self._waiting.pop()
            self._awaited = None


def _everything_awaited_by(lead: Lead) -> set[Lead]:
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
