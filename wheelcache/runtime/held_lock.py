"""A lock that is free in the child of a fork, and whose work is never half done there."""

from __future__ import annotations

import threading
from typing import Any

from wheelcache.runtime.shared_objects import Lazy, acquiring


class HeldLock:
    """A lock for one thread of the process at a time. The fork waits until no other thread has it.

    To be added to ``lifecycle.HELD``.
    """

    def __init__(self) -> None:
        # Re-entrant, because a signal handler may fork while the lock is held.
        self._lock: Lazy[Any] = Lazy(lambda: threading.RLock())
        self._is_held = False

    @property
    def lock(self) -> Any:
        """The lock itself, for ``with``: an asynchronous exception could interrupt a method that acquires it."""
        return self._lock.get()

    def is_free(self) -> bool:
        """Return whether no thread has the lock. This does not wait, so the answer may be outdated when it returns."""
        lock = self._lock.get()
        if lock._is_owned() or not lock.acquire(blocking=False):
            return False
        lock.release()
        return True

    def before_fork(self) -> None:
        if not self._is_held:
            (self._is_held,) = acquiring(self._lock.get())

    def after_fork(self, *, in_child: bool) -> None:
        lock = self._lock.get()
        if in_child:
            self._is_held = False
            self._lock.forget()
        elif self._is_held:
            # There is no call between these two lines, hence no asynchronous exception.
            self._is_held = False
            lock.release()
