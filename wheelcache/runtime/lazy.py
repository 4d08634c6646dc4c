"""Locks, conditions and queues that are made at their first use.

gevent and eventlet replace the locks of ``threading`` when they patch, which may be after wheelcache was imported:
``gunicorn --preload -k gevent`` patches in its workers, after the application was loaded. A lock made before that
counts the greenlets of an OS thread as one owner, and a greenlet that waits for it stops all others.

The locks of caches and wheels are not made this way, since every write takes them: they are held for short steps that
never wait, so no greenlet is switched inside, and locks of either kind guard them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Lazy(Generic[T]):
    """What ``make`` returns, made at first use, and again if ``threading`` was patched since."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # By the lock class of the time. A dict, because setdefault is one atomic step: all threads get the same one.
        self._made: dict[object, T] = {}

    def get(self) -> T:
        made = self._made.get(threading.Lock)
        return self._made.setdefault(threading.Lock, self._make()) if made is None else made

    def all(self) -> list[T]:
        """All that was made: before and after ``threading`` was patched."""
        return list(self._made.values())

    def forget(self) -> None:
        """Make a new one at the next use: in the child of a fork, where the old one may be held by a lost thread."""
        self._made = {}


def end_under_a_patch() -> None:
    """Called by a thread that is about to return, and that may have been started before ``threading`` was patched.

    It then has another number than it was registered with, and ``threading`` would print a KeyError when it takes the
    thread off its list. Asked for the current thread, it registers a dummy under the new number.
    """
    threading.current_thread()


def lazy_lock() -> Lazy[threading.Lock]:
    # Looked up when it is made: by then it may be another class.
    return Lazy(lambda: threading.Lock())
