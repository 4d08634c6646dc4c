"""An event for threads and tasks, which keeps working if an asynchronous exception interrupts one of them.

``threading.Event``, ``Condition`` and ``concurrent.futures.Future`` enter their lock by a method in Python. An
asynchronous exception on its return (a time limit, Ctrl-C) leaves that lock acquired: every later waiter hangs, and so
does the thread that sets the event. An ``Alarm`` has no such lock.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial


class Alarm:
    """An event that is set once and stays set.

    Attributes:
        is_set: whether it was set.
    """

    __slots__ = ("_wake_ups", "is_set")

    def __init__(self) -> None:
        self.is_set = False
        self._wake_ups: list[Callable[[], object]] = []

    def set(self) -> None:
        """Wake all waiters. If this is interrupted, call it again."""
        # Set before the list is read: a waiter that is not in the list yet checks again before it sleeps.
        self.is_set = True
        for wake in tuple(self._wake_ups):
            # Raised if the waiter is awake already, or its event loop is closed.
            with suppress(RuntimeError):
                wake()

    def wait(self, seconds: float | None) -> bool:
        """Block the thread until the alarm is set, but at most ``seconds``. Return whether it is set."""
        if not self.is_set:
            sleep = threading.Lock()
            sleep.acquire()
            self._wake_ups.append(sleep.release)
            if not self.is_set:
                sleep.acquire(timeout=-1 if seconds is None else seconds)
            self._forget(sleep.release)
        return self.is_set

    async def wait_async(self, seconds: float | None) -> bool:
        """Do the same as ``wait`` in a task, without blocking its event loop."""
        if not self.is_set:
            loop = asyncio.get_running_loop()
            future = loop.create_future()
            wake = partial(loop.call_soon_threadsafe, _resolve, future)
            self._wake_ups.append(wake)
            if not self.is_set:
                await asyncio.wait((future,), timeout=seconds)
            self._forget(wake)
        return self.is_set

    def _forget(self, wake: Callable[[], object]) -> None:
        with suppress(ValueError):
            self._wake_ups.remove(wake)


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
