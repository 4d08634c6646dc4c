"""What fills keys on behalf of others: a thread, a task, or what such a task started.

A scope belongs to a thread, or, where an event loop runs, to a task, and ends with it. What a task starts after its
first miss, or hands to a thread that inherits its context, acts for the task as well.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from typing import Any, Final, Protocol
from weakref import ref

from wheelcache.runtime import contexts

MAX_MISSES: Final = 1024
"""Keys that were missed and not set yet. A set of one that was forgotten is taken for news, and costs others a miss."""


class HeldLease(Protocol):
    """A lease, as far as its scope is concerned."""

    until: float

    def give_up(self) -> None:
        """End it without a value."""

    def abandon(self) -> None:
        """The same, from a finalizer: without waiting for a lock."""


class FillScope:
    """What a thread or a task fills.

    Attributes:
        leases: what it holds on keys of any cache, oldest first.
        parent: the scope that it acts for; None for a thread, or a task that no task with leases started.
        held_back: by cache and key, what stores an entry that waits for another one to be stored first.
    """

    __slots__ = ("__weakref__", "_misses", "_task", "held_back", "leases", "parent")

    def __init__(self, task: asyncio.Task[Any] | None = None, parent: FillScope | None = None) -> None:
        self.leases: dict[HeldLease, None] = {}
        self.parent = parent
        self.held_back: dict[tuple[object, Hashable], Callable[[], object]] = {}
        self._misses: dict[tuple[object, Hashable], Any] = {}
        self._task = None if task is None else ref(task)
        if task is not None:
            task.add_done_callback(lambda _: self.end())

    def __iter__(self) -> Iterator[FillScope]:
        """The scope, and those that it acts for."""
        scope: FillScope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def is_of(self, task: asyncio.Task[Any] | None) -> bool:
        return self._task is not None and self._task() is task

    def is_over(self) -> bool:
        """Whether it belongs to a task that is done."""
        if self._task is None:
            return False
        task = self._task()
        return task is None or task.done()

    def is_waited_for(self, now: float) -> bool:
        """Whether it, or a scope that it acts for, holds a lease that has not timed out."""
        return any(lease.until > now for scope in self for lease in list(scope.leases))

    def note_miss(self, key: tuple[object, Hashable], note: Any) -> None:
        """``key`` was missed here, and may be set soon."""
        if len(self._misses) >= MAX_MISSES:
            # Emptied, since taking the oldest out could go wrong between two threads of one task.
            self._misses = {}
        self._misses[key] = note

    def take_miss(self, key: tuple[object, Hashable]) -> Any:
        """The note of a miss of ``key``, here or in a scope that this one acts for. It is gone now."""
        scope: FillScope | None = self
        note = None
        while note is None and scope is not None:
            note = scope._misses.pop(key, None)
            scope = scope.parent
        return note

    def forget_misses(self, cache: object = None) -> None:
        """Of one cache; of all, if none is given."""
        for scope in self:
            scope._misses = (
                {} if cache is None else {key: note for key, note in list(scope._misses.items()) if key[0] is not cache}
            )

    def end(self) -> None:
        """Store what is held back, and end all leases: the request is over."""
        try:
            for key in list(self.held_back):
                self._store(key)
        finally:
            # After that: what was held back fills what was missed.
            self._misses = {}
            while self.leases:
                for lease in list(self.leases):
                    lease.give_up()
                    self.leases.pop(lease, None)

    def store_held_back(self, key: tuple[object, Hashable]) -> None:
        """Store the entry of a cache and key, if this scope, or one that it acts for, holds it back."""
        for scope in self:
            scope._store(key)

    def _store(self, key: tuple[object, Hashable]) -> None:
        store = self.held_back.pop(key, None)
        if store is not None:
            store()

    def __del__(self) -> None:
        # A thread that ended, or a request of an ASGI server, where Django closes its caches in another context. The
        # garbage collector may call this amid anything. There are no leases if an exception came from outside before
        # the first line of __init__.
        for lease in list(getattr(self, "leases", ())):
            lease.abandon()


_running: ContextVar[FillScope | None] = ContextVar("wheelcache_fill_scope", default=None)


def current_scope() -> FillScope:
    """The scope of the running code, made at its first call."""
    scope = _running.get()
    task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
    # A thread may find itself in the context of a task that is over: ``async_to_sync`` hands its context back, and what
    # ``asyncio.to_thread`` began goes on when the task is cancelled.
    if scope is not None and (scope.is_of(task) if task is not None else not scope.is_over()):
        return scope
    parent = _living(scope)
    if parent is not None:
        # Tasks that start one another for ever must not hold each other for ever.
        parent.parent = _living(parent.parent)
    scope = FillScope(task, parent)
    _running.set(scope)
    return scope


def running_scope() -> FillScope | None:
    """The scope of the running code, if it has one."""
    return _running.get()


def end_request() -> None:
    """End what the running thread or task holds."""
    scope = _running.get()
    if scope is not None:
        scope.end()


def forget_misses() -> None:
    """The request is over: no later ``set`` fills what it missed."""
    scope = _running.get()
    if scope is not None:
        scope._misses = {}


def on_its_own() -> None:
    """What runs from here on in this context acts for no other code."""
    _running.set(None)


contexts.resetters.append(on_its_own)


def _living(scope: FillScope | None) -> FillScope | None:
    while scope is not None and scope.is_over():
        scope = scope.parent
    return scope
