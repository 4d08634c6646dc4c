"""The scope of a thread, task or request, which records its misses and holds its leases.

A scope belongs to a thread, or, if an event loop runs in it, to a task, and ends with it. Tasks that a task starts
after its first miss, and threads that inherit its context, act for that task as well.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final, Protocol
from weakref import WeakSet, ref

from wheelcache.runtime import threads

MAX_MISSES: Final = 1024
"""The largest number of missed keys of one cache that a scope notes. Beyond it, all are forgotten, including keys that
are never set. The computation of a forgotten key is not counted."""

NO_MISSES: Final[Mapping[Hashable, int]] = MappingProxyType({})


class Lease(Protocol):
    """The right of a scope to fill a key until a certain time."""

    until: float

    def give_up(self) -> None:
        """End the lease with its scope."""

    def abandon(self) -> None:
        """Do the same in a finalizer."""


class NotedMisses:
    """The misses of one cache, in the scopes that missed. It refers to no cache: the scope of a thread may live long.

    The note of a miss is its moment, below zero after it was outdated: a later write then only ends the computation,
    and does not answer the miss. ``core/access.pxi`` adds notes, too.

    Attributes:
        scopes: the ids of the scopes with misses.
        missed_keys: receives the keys whose notes a scope forgets, and those of computations; None if nothing needs
            them.
    """

    __slots__ = ("missed_keys", "scopes")

    def __init__(self) -> None:
        self.scopes: set[int] = set()
        self.missed_keys: deque[Hashable] | None = None

    def add(self, key: Hashable, note: int) -> None:
        """Note that the running scope missed ``key``, unless that is None."""
        if key is None:
            return
        scope = _running.get()
        if scope is None or scope._task is not None or asyncio._get_running_loop() is not None:
            # Otherwise, it is that of the thread.
            scope = current_scope()
        misses = scope.misses.get(self)
        if misses is None:
            misses = scope.misses.setdefault(self, {})
        elif len(misses) >= MAX_MISSES:
            # Forget all of them, since two threads of one task could not safely remove the oldest one.
            misses.clear()
        misses[key] = note
        # After the note, since another thread of the task may be removing the last one.
        self.scopes.add(id(scope))

    def get(self, key: Hashable) -> int:
        """Return the note of a miss of ``key`` in the running scope or one that it acts for; 0 if there is none."""
        scope = _running.get()
        while scope is not None:
            note = scope.misses.get(self, NO_MISSES).get(key)
            if note is not None:
                return note
            scope = scope.parent
        return 0

    def pop(self, key: Hashable) -> int:
        """Do the same, and remove the note."""
        scope = _running.get()
        while scope is not None:
            misses = scope.misses.get(self)
            note: int | None = misses.pop(key, None) if misses else None
            if note is not None:
                if not misses:
                    self._is_empty(scope, misses)
                return note
            scope = scope.parent
        return 0

    def outdate_all(self) -> None:
        """Outdate the misses of this cache by the running scope and by those that it acts for."""
        scope = _running.get()
        while scope is not None:
            misses = scope.misses.get(self, {})
            misses.update([(key, -abs(note)) for key, note in list(misses.items())])
            scope = scope.parent

    def _is_empty(self, scope: RequestScope, misses: Any) -> None:
        self.scopes.discard(id(scope))
        if misses:
            # Another thread of the task has missed a key in between.
            self.scopes.add(id(scope))


class RequestScope:
    """The leases and misses of a thread or a task.

    Attributes:
        misses: by cache and key, the notes of the misses that may be followed by a ``set``.
        leases: the leases that the scope holds on keys of any cache, oldest first.
        parent: the scope that this one acts for, whose context its thread or task inherited; None if there is none.
    """

    __slots__ = ("__weakref__", "_task", "leases", "misses", "parent")

    def __init__(self, task: asyncio.Task[Any] | None = None, parent: RequestScope | None = None) -> None:
        self.leases: dict[Any, None] = {}
        self.parent = parent
        self.misses: dict[NotedMisses, dict[Hashable, int]] = {}
        self._task = None if task is None else ref(task)
        if task is not None:
            task.add_done_callback(lambda _: self.end())

    def with_parents(self) -> Iterator[RequestScope]:
        """Iterate over the scope and the scopes that it acts for."""
        scope: RequestScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def is_of(self, task: asyncio.Task[Any] | None) -> bool:
        return self._task is not None and self._task() is task

    def is_over(self) -> bool:
        """Return whether the scope belongs to a task that is done."""
        if self._task is None:
            return False
        task = self._task()
        return task is None or task.done()

    def is_waited_for(self, now: float, new: Lease) -> bool:
        """Return whether the scope, or one that it acts for, holds a lease that has not timed out, apart from one that
        it has just received."""
        leases = [lease for scope in self.with_parents() for lease in list(scope.leases)]
        return any(lease.until > now and lease is not new for lease in leases)

    def forget_misses(self) -> None:
        """Forget the misses of all caches."""
        misses, self.misses = self.misses, {}
        for noted, keys in misses.items():
            noted.scopes.discard(id(self))
            if noted.missed_keys is not None:
                noted.missed_keys.extend(list(keys))

    def end(self) -> None:
        """End all leases and forget the misses, since the request is over."""
        self.forget_misses()
        for lease in list(self.leases):
            lease.give_up()

    def __del__(self) -> None:
        # Called after the end of a thread, or of a request of an ASGI server, for which Django closes its caches in
        # another context. The garbage collector may call this at any point. The attribute is missing if an asynchronous
        # exception interrupted __init__ before its first line.
        self.abandon()

    def abandon(self) -> None:
        """End all leases in a finalizer, and forget the misses."""
        for lease in list(getattr(self, "leases", ())):
            lease.abandon()
        for noted in getattr(self, "misses", ()):
            noted.scopes.discard(id(self))


class _OfThread(WeakSet[RequestScope]):
    """The scopes of a thread, which end with it: from Python 3.14 on, the Thread object keeps their context."""

    def __del__(self) -> None:
        for scope in self:
            scope.abandon()


class _Threads(threading.local):
    def __init__(self) -> None:
        self.scopes = _OfThread()


_of_thread: Final = _Threads()

_running: ContextVar[RequestScope | None] = ContextVar("wheelcache_request_scope", default=None)


def current_scope() -> RequestScope:
    """Return the scope of the running code. The first call creates it."""
    scope = _running.get()
    task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
    # A thread may run in the context of a finished task: ``async_to_sync`` passes its context back, and a call of
    # ``asyncio.to_thread`` continues after the task was cancelled.
    if scope is not None and (scope.is_of(task) if task is not None else not scope.is_over()):
        return scope
    parent = _living(scope)
    if parent is not None:
        if task is None and parent in _of_thread.scopes:
            # This thread has called the task. With a new scope for each such call, the chain would grow forever.
            _running.set(parent)
            return parent
        # If each task starts the next one, the chain must not keep all of them in memory.
        parent.parent = _living(parent.parent)
    scope = RequestScope(task, parent)
    if task is None:
        _of_thread.scopes.add(scope)
    _running.set(scope)
    return scope


running_scope: Final[Callable[[], RequestScope | None]] = _running.get
"""Return the scope of the running code, or None."""


def end_request() -> None:
    """End the leases of the running thread or task, and forget its misses."""
    scope = _running.get()
    if scope is not None:
        scope.end()


def forget_misses() -> None:
    """Forget the misses of the running scope, since its request is over: no later ``set`` fills them."""
    scope = _running.get()
    if scope is not None:
        scope.forget_misses()


def on_its_own() -> None:
    """Leave the scope: code that runs in this context from now on acts for no other thread or task."""
    _running.set(None)


threads.resetters.append(on_its_own)


def _living(scope: RequestScope | None) -> RequestScope | None:
    while scope is not None and scope.is_over():
        scope = scope.parent
    return scope
