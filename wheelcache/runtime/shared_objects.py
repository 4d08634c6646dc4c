"""Objects that threads share: created at first use, referenced weakly, or locked safely under asynchronous exceptions.

**First use.** gevent and eventlet replace the locks of ``threading`` when they patch, which may be after wheelcache was
imported: ``gunicorn --preload -k gevent`` patches in its workers, after the application was loaded. A lock made before
that counts the greenlets of an OS thread as one owner, and a greenlet that waits for it blocks all others. So locks,
conditions and queues that are held during a wait are created at their first use.

The locks of caches and wheels are created immediately, since every write acquires them. They are held for short steps
that never wait, so no greenlet is switched inside, and both kinds of locks protect these steps.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar
from weakref import ref

T = TypeVar("T")


class Lazy(Generic[T]):
    """The result of ``make``, made at first use, and made again if ``threading`` was patched since."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        # By the class of locks at the time of creation. In a dict, because setdefault is atomic: all threads receive
        # the same object.
        self._made: dict[object, T] = {}

    def get(self) -> T:
        made = self._made.get(threading.Lock)
        return self._made.setdefault(threading.Lock, self._make()) if made is None else made

    def all(self) -> list[T]:
        """Return all objects that were made, before and after ``threading`` was patched."""
        return list(self._made.values())

    def forget(self) -> None:
        """Make a new object at the next use: in the child of a fork, where a lost thread may hold the old one."""
        self._made = {}


def lazy_lock() -> Lazy[threading.Lock]:
    """Return a lock that is created when it is first needed."""
    # A lambda, which looks the class up when the lock is created: gevent may have replaced it by then.
    return Lazy(lambda: threading.Lock())


def acquiring(lock: Any, seconds: float | None = None) -> Iterator[bool]:
    """Return an iterator that acquires ``lock`` when it is unpacked: ``(acquired,) = acquiring(lock, 5.0)``.

    The unpacking is one instruction, which calls only C code. Python delivers no asynchronous exception (a time limit,
    Ctrl-C) before the next line, so a ``try`` there releases the lock in any case. After a call of ``lock.acquire``,
    the exception would leave the lock acquired. ``with lock:`` has no such gap, but cannot give up after a time.

    Args:
        seconds: the longest time to wait; None for no limit.
    """
    return map(lock.acquire, (True,), (-1 if seconds is None else seconds,))


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


class WeakRegistry(Generic[T]):
    """Objects that are referenced weakly, in order of registration.

    Unlike a ``weakref.WeakSet``, it can be iterated in one thread while another thread adds objects. The references are
    copied in one C call, so no lock is needed. This matters in fork handlers and in the wheel thread.
    """

    def __init__(self) -> None:
        self._refs: dict[int, ref[T]] = {}

    def add(self, item: T) -> None:
        identity = id(item)
        refs = self._refs
        refs[identity] = ref(item, lambda _: refs.pop(identity, None))

    def __iter__(self) -> Iterator[T]:
        for reference in list(self._refs.values()):
            item = reference()
            if item is not None:
                yield item
