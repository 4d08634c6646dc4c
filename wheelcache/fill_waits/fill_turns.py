"""Fill leases: of several callers that miss a key with a plain ``get``, one computes it, and the others wait for its
``set``.

The idea is the lease of "Scaling Memcache at Facebook" (NSDI 2013): the first caller that misses a key gets a lease,
the right to fill the key. Here a lease is a ``Turn`` that belongs to the scope of a thread, task or request. Another
caller that misses the key waits. There are three ways in which its wait ends:

- Any caller sets the key. The waiting callers receive the value.
- The holder deletes the key, ends its request or takes too long. The waiting callers look again: one of them gets the
  lease, and the others wait for it.
- The wait times out, and the caller continues as after any miss.

**Only keys that get values are waited for.** Many keys are asked for and hardly ever set, such as a flag or the page of
a response that cannot be cached. If two leases in a row on a key end without a value, all waiting callers continue, and
no caller waits for that key until it gets a value. Leases are granted as before, and show when that happens. One such
lease may be a failed computation, after which the next caller tries alone.

**A caller that others may wait for does not wait**, so no two callers wait for each other. Such callers are the holder
of a lease on any key of any cache, and a loader under single flight: where others would wait, they get a miss
immediately. There is one exception: several threads that act for one task at the same time, or tasks that it started
before, could wait for each other, for as long as a lease lasts.

**If processes share the entries**, a caller that gets a lease waits, by the same rules, for a process that missed the
key before. Its own lease keeps only other callers from waiting for it.

**A caller never receives a value that was overwritten before the caller asked for it.** A key is set at one moment, the
waiting callers receive the value at a later moment, and another write may come in between. Therefore a lease watches
its key in the core, and the ``set`` that completes the watch also ends the lease, in the same step. Only callers that
joined before that step receive its value; a caller that comes later gets a lease of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from typing import Any, Final
from weakref import ref

from wheelcache.core.contract import MISSING, Watch
from wheelcache.engine.calls import Engine
from wheelcache.engine.turns import End, Is, Turn, Turns
from wheelcache.engine.write_watcher import WriteWatcher
from wheelcache.runtime.request_scope import RequestScope, running_scope
from wheelcache.runtime.shared_objects import acquiring

MAX_LEASES: Final = 1024
"""The most leases that a scope holds. A program that asks for a million missing keys and sets none of them gets no more
leases until the first one times out."""

MAX_UNFILLED: Final = 1024
"""The most keys that a cache remembers as not filled, in about 0.2 MB. Callers wait once or twice more for a key that
was forgotten. A visitor who chooses keys can cause that, but cannot keep callers from waiting for other keys."""


class Unfilled:
    """The keys whose last leases ended without a value.

    It contains hashes, since a key may be long. If two keys share one, callers may not wait for either.
    """

    def __init__(self) -> None:
        self._times: dict[int, int] = {}

    def add(self, key: Hashable) -> None:
        number = hash(key)
        self._times[number] = self._times.pop(number, 0) + 1
        if len(self._times) > MAX_UNFILLED:
            # Another thread may discard a key meanwhile, which needs no lock.
            with suppress(KeyError, RuntimeError):
                del self._times[next(iter(self._times))]

    def discard(self, key: Hashable) -> None:
        self._times.pop(hash(key), None)

    def __contains__(self, key: object) -> bool:
        """Return whether the last two leases on ``key``, or more, ended without a value."""
        return self._times.get(hash(key), 0) > 1


class Lease(Turn):
    """The turn of a scope to fill a key until a certain time.

    Attributes:
        owner: a weak reference to the scope, which has ended if only its leases refer to it.
    """

    is_of_code = False

    turns: FillTurns
    watch: Watch

    def __init__(self, turns: FillTurns, key: Hashable, owner: ref[RequestScope], until: float) -> None:
        super().__init__(turns, key, until=until)
        self.owner = owner

    def enter_scope(self) -> None:
        scope = self.owner()
        if scope is not None:
            scope.leases[self] = None
            if self.ended is not None:
                # Another thread has ended the turn meanwhile.
                scope.leases.pop(self, None)

    def leave_scope(self) -> None:
        scope = self.owner()
        if scope is not None:
            scope.leases.pop(self, None)

    def is_late_to_join(self) -> bool:
        # Any write by this process ends the lease, or is followed by the write of the scope.
        return self.watch is not None and self.turns.trust_has_changed(self.watch)

    def is_of(self, scope: RequestScope | None) -> bool:
        """Return whether ``scope`` has the lease, or acts for the scope that has it."""
        mine = self.owner()
        return scope is not None and any(each is mine for each in scope.with_parents())

    def end(self, how: End, value: Any = None) -> bool:
        if how is End.VALUE:
            self.turns.unfilled.discard(self.key)
        return super().end(how, value)

    def give_up(self) -> None:
        """End the lease, whose time is over or whose holder will not set the key."""
        value = self.watch.value
        if value is not MISSING:
            # A thread has set the key, and has not announced it yet.
            self.end(End.VALUE, value)
            return
        with self.turns.lock:
            if self.ended is None:
                self.turns.unfilled.add(self.key)
            super().end(End.AGAIN)

    def abandon(self) -> None:
        """Do the same in a finalizer, which must not wait for the lock."""
        self.turns.abandoned.append(self)
        self.turns.end_abandoned()


class FillTurns(Turns, WriteWatcher):
    """The leases on the keys of one cache. Keys are those of its core, which reports the values that were set.

    Attributes:
        abandoned: the leases whose scopes were freed, and which have not ended.
    """

    open: dict[Hashable, Any]

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.core(), partial(engine.core().watch, wants_value=True), engine.clock)
        self.claims = engine.claims()

    def _forget(self) -> None:
        super()._forget()
        self.unfilled = Unfilled()
        self.abandoned: deque[Lease] = deque()

    def after_fork_in_child(self) -> None:
        for lease in self.open.values():
            lease.leave_scope()
        super().after_fork_in_child()

    def begin(self, turn: Turn, *, blocking: bool = True, may_wait: bool = True) -> Is:
        if self.abandoned:
            self.end_abandoned()
        return super().begin(turn, blocking=blocking, may_wait=may_wait)

    def trust_has_changed(self, watch: Watch) -> bool:
        return self._core.trust != watch.trust

    def is_full(self, scope: RequestScope, now: float) -> bool:
        """Return whether ``scope`` holds as many leases as it may, after ending the oldest one if its time is over."""
        if len(scope.leases) < MAX_LEASES:
            return False
        oldest = next(iter(scope.leases.copy()), None)
        if oldest is None or oldest.until > now:
            return oldest is not None
        oldest.give_up()
        return False

    def is_of(self, key: Hashable, scope: RequestScope) -> bool:
        """Return whether ``scope`` has the lease on ``key``, or acts for the scope that has it."""
        lease = self.open.get(key)
        return lease is not None and lease.is_of(scope)

    def is_of_another(self, key: Hashable, scope: RequestScope) -> bool:
        """Return whether another scope, for which ``scope`` does not act, is computing the value of ``key``."""
        return self.open_turn_after_cleanup(key) is not None and not self.is_of(key, scope)

    def end_abandoned(self) -> None:
        """End the leases whose scopes were freed. If another thread has the lock, a later call does it."""
        while self.abandoned:
            (acquired,) = acquiring(self.lock, 0)
            try:
                if not acquired:
                    return
                # Last, so that the next caller does it again if this one is interrupted.
                self.abandoned[0].give_up()
                self.abandoned.popleft()
            except IndexError:
                # A finalizer has ended them all.
                return
            finally:
                if acquired:
                    self.lock.release()

    def end_overdue(self, now: float) -> None:
        """End the oldest leases if their time is over, since nobody may ever ask for their keys again."""
        with suppress(RuntimeError):
            # Otherwise, another thread has changed the table.
            oldest = next(iter(self.open.values()), None)
            if oldest is None or oldest.until > now:
                return
        # In one pass: a dict visits the places of all removed items before it finds the next one.
        for lease in list(self.open.values()):
            if lease.until > now:
                return
            lease.give_up()

    # The effects of writes.

    def completed(self) -> None:
        """Give the waiters the values that the core has reported."""
        completed = self._core.completed
        while completed:
            try:
                watch = completed[0]
                lease = self.open.get(watch.key)
                if lease is not None and lease.watch is watch:
                    lease.end(End.VALUE, watch.value)
                # Last, so that the next caller does it again if this one is interrupted.
                completed.remove(watch)
            except (IndexError, ValueError):
                # Another thread has handled it.
                continue
        self.end_abandoned()

    def fill(self, watch: Watch, value: Any, names: tuple[str, ...] = ()) -> None:
        """Pass ``value``, which was read or written elsewhere after ``watch`` began, to the callers that wait for it.

        If the key was written again in the meantime, or one of its tags dropped, no caller receives the value, since
        some may have joined after that. The running scope then gives up the lease, if it has it.

        Args:
            names: the tags of the value.
        """
        # With the lock, so that no caller joins between the check and the end.
        with self.lock:
            lease = self.open.get(watch.key)
            if lease is None:
                return
            if not self.is_outdated(watch, names):
                lease.end(End.VALUE, value)
            elif lease.is_of(running_scope()):
                lease.end(End.AGAIN)

    def found(self, key: Hashable, scope: RequestScope) -> None:
        """End the lease on ``key`` if ``scope``, which has found a value, has it. The waiters look again."""
        lease = self.open.get(key)
        if lease is not None and lease.is_of(scope):
            self.unfilled.discard(key)
            lease.end(End.AGAIN)

    def refused(self, key: Hashable) -> None:
        """End the lease on ``key``, which was set to a value that may be outdated: no waiter receives it."""
        lease = self.open.get(key)
        if lease is not None:
            lease.end(End.AGAIN)

    def deleted(self, key: Hashable) -> None:
        """End the lease on ``key`` if the running scope, which has deleted the key, has it."""
        lease = self.open.get(key)
        if lease is not None and lease.is_of(running_scope()):
            lease.give_up()

    def cleared(self) -> None:
        """End the leases of the running scope, which has deleted all keys of this cache."""
        running = running_scope()
        for lease in list(self.open.values()):
            if lease.is_of(running):
                lease.give_up()

    def close(self) -> None:
        """End all leases, since the cache is closed."""
        for lease in list(self.open.values()):
            lease.end(End.AGAIN)
