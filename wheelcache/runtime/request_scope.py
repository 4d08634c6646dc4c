"""The scope of a thread, task or request, which records its misses and holds its leases.

A scope belongs to a thread, or, if an event loop runs in it, to a task, and ends with it. Tasks that a task starts
after its first miss, and threads that inherit its context, act for that task as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from wheelcache.runtime import threads

if TYPE_CHECKING:
    from wheelcache.leases.fill_leases import Lease

MAX_MISSES: Final = 1024
"""The largest number of missed keys that a scope records. If a key is forgotten, its ``set`` invalidates, which
costs other processes a miss."""


class RequestScope:
    """The leases and misses of a thread or a task.

    Attributes:
        leases: the leases that the scope holds on keys of any cache, oldest first.
        parent: the scope that this one acts for, whose context its thread or task inherited; None if there is none.
        held_back: by cache and key, functions that store entries which must be stored after another entry.
    """

    __slots__ = ("__weakref__", "_misses", "_task", "held_back", "leases", "parent")

    def __init__(self, task: asyncio.Task[Any] | None = None, parent: RequestScope | None = None) -> None:
        self.leases: dict[Lease, None] = {}
        self.parent = parent
        self.held_back: dict[tuple[object, Hashable], Callable[[], object]] = {}
        self._misses: dict[tuple[object, Hashable], Any] = {}
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

    def is_waited_for(self, now: float) -> bool:
        """Return whether the scope, or one that it acts for, holds a lease that has not timed out."""
        return any(lease.until > now for scope in self.with_parents() for lease in list(scope.leases))

    def note_miss(self, key: tuple[object, Hashable], note: Any) -> None:
        """Record that ``key`` was missed here and may be set soon."""
        if len(self._misses) >= MAX_MISSES:
            # Forget all of them, since two threads of one task could not safely remove the oldest one.
            self._misses = {}
        self._misses[key] = note

    def take_miss(self, key: tuple[object, Hashable]) -> Any:
        """Remove and return the note of a miss of ``key`` in this scope or one that it acts for; otherwise None."""
        for scope in self.with_parents():
            note = scope._misses.pop(key, None)
            if note is not None:
                return note
        return None

    def forget_misses(self, cache: object = None) -> None:
        """Forget the misses of ``cache``, or of all caches if it is not given."""
        for scope in self.with_parents():
            scope._misses = (
                {} if cache is None else {key: note for key, note in list(scope._misses.items()) if key[0] is not cache}
            )

    def end(self) -> None:
        """Store the entries that are held back and end all leases, since the request is over."""
        try:
            for key in list(self.held_back):
                self._store(key)
        finally:
            # After the stores, since the entries that were held back fill misses.
            self._misses = {}
            while self.leases:
                for lease in list(self.leases):
                    lease.give_up()
                    self.leases.pop(lease, None)

    def store_held_back(self, key: tuple[object, Hashable]) -> None:
        """Store the entry of a cache and key, if this scope, or one that it acts for, holds it back."""
        for scope in self.with_parents():
            scope._store(key)

    def _store(self, key: tuple[object, Hashable]) -> None:
        store = self.held_back.pop(key, None)
        if store is not None:
            store()

    def __del__(self) -> None:
        # Called after the end of a thread, or of a request of an ASGI server, for which Django closes its caches in
        # another context. The garbage collector may call this at any point. The attribute is missing if an asynchronous
        # exception interrupted __init__ before its first line.
        for lease in list(getattr(self, "leases", ())):
            lease.abandon()


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
        # If each task starts the next one, the chain must not keep all of them in memory.
        parent.parent = _living(parent.parent)
    scope = RequestScope(task, parent)
    _running.set(scope)
    return scope


def running_scope() -> RequestScope | None:
    """Return the scope of the running code, or None."""
    return _running.get()


def end_request() -> None:
    """End the leases of the running thread or task, and store the entries that it holds back."""
    scope = _running.get()
    if scope is not None:
        scope.end()


def forget_misses() -> None:
    """Forget the misses of the running scope, since its request is over: no later ``set`` fills them."""
    scope = _running.get()
    if scope is not None:
        scope._misses = {}


def on_its_own() -> None:
    """Leave the scope: code that runs in this context from now on acts for no other thread or task."""
    _running.set(None)


threads.resetters.append(on_its_own)


def _living(scope: RequestScope | None) -> RequestScope | None:
    while scope is not None and scope.is_over():
        scope = scope.parent
    return scope
