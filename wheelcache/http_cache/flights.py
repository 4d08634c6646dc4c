"""Runs in progress: of the requests for one page, one runs the application, and the others wait for its page.

If the leading request is cancelled, one of the waiting ones becomes the leader, and the others keep waiting. When the
response turns out not to be storable, all of them are released immediately.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from typing import Final, Protocol

from wheelcache.runtime.shared_objects import lazy_lock

MOST_FLIGHTS: Final = 10_000
"""Beyond this number, requests run the application without waiting for each other."""


class Waiter(Protocol):
    """A request that waits for a page.

    Attributes:
        leads: whether the leader was cancelled, so that this request must run the application.
    """

    leads: bool

    def wake(self) -> None:
        """End the wait. Called under the lock of the flights."""


class ThreadWaiter:
    """A waiting thread, or a greenlet if ``threading`` is patched."""

    __slots__ = ("_event", "leads")

    def __init__(self) -> None:
        self.leads = False
        self._event = threading.Event()

    def wake(self) -> None:
        self._event.set()

    def wait(self, seconds: float) -> None:
        self._event.wait(seconds)


class TaskWaiter:
    """A waiting task."""

    __slots__ = ("_future", "_loop", "leads")

    def __init__(self) -> None:
        self.leads = False
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[None] = self._loop.create_future()

    def wake(self) -> None:
        # The leader may be a thread, or a task of another event loop. If this loop is closed, nothing waits.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._end)

    def _end(self) -> None:
        if not self._future.done():
            self._future.set_result(None)

    async def wait(self, seconds: float) -> None:
        await asyncio.wait([self._future], timeout=seconds)


class Flights:
    """The runs in progress and the requests that wait for them, by the key of the page."""

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._waiting: dict[str, dict[Waiter, None]] = {}

    @property
    def are_in_progress(self) -> bool:
        return self._waiting != {}

    def lead(self, key: str) -> bool:
        """Begin a run for a page. Return False if one is in progress, or if there are too many."""
        with self._lock.get():
            if key in self._waiting or len(self._waiting) >= MOST_FLIGHTS:
                return False
            self._waiting[key] = {}
            return True

    def join(self, key: str, waiter: Waiter) -> bool:
        """Wait for the run in progress. Return False if there is none."""
        with self._lock.get():
            waiting = self._waiting.get(key)
            if waiting is None:
                return False
            waiting[waiter] = None
            return True

    def leave(self, key: str, waiter: Waiter) -> None:
        """Stop waiting. Afterwards, ``waiter.leads`` is final."""
        with self._lock.get():
            self._waiting.get(key, {}).pop(waiter, None)

    def finish(self, key: str) -> None:
        """End a run, and release all requests that wait for it."""
        with self._lock.get():
            for waiter in self._waiting.pop(key, ()):
                waiter.wake()

    def abandon(self, key: str) -> None:
        """End a run that was cancelled. If requests wait for it, the first of them becomes the leader."""
        with self._lock.get():
            waiting = self._waiting.get(key)
            if not waiting:
                self._waiting.pop(key, None)
                return
            successor = next(iter(waiting))
            del waiting[successor]
            successor.leads = True
            successor.wake()

    def after_fork_in_child(self) -> None:
        self._lock.forget()
        self._waiting = {}
