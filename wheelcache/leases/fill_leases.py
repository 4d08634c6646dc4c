"""Fill leases: of several callers that miss a key with a plain ``get``, one computes it, and the others wait for its
``set``.

The idea is the lease of "Scaling Memcache at Facebook" (NSDI 2013): the first caller that misses a key gets a lease,
the right to fill the key. Another caller that misses the key waits. There are three ways in which its wait ends:

- The holder sets the value, which the waiting caller receives.
- The holder deletes the key, ends its request or takes too long. The lease passes to the waiting caller.
- The wait times out, and the caller continues as after any miss.

**A caller that others may wait for does not wait**, so no two callers wait for each other. Such callers are the holder
of a lease on any key of any cache, and a loader under single flight: where others would wait, they get a miss
immediately. There is one exception: several threads that act for one task at the same time, or tasks that it started
before, could wait for each other, for as long as a lease lasts.

**A caller never receives a value that was overwritten before the caller asked for it.** A key is set at one moment, the
waiting callers receive the value at a later moment, and another write may come in between. Therefore a lease watches
its key in the core, and the ``set`` that completes the watch also ends the lease, in the same step. Only callers that
joined before that step receive its value; a caller that comes later gets a lease of its own. Writes of other processes
break no watch, but change the stamps. If the stamps of the key have changed since the watch began, a caller that joins
looks the key up again when a value is set.

After it got the lease, the holder looks the key up once more, to find a value that was set before the watch began. The
key may be written again before the waiters receive this value, so they look it up themselves.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ref

from wheelcache.core.contract import MISSING, Core, Seen, TagName, Watch
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.request_scope import RequestScope, running_scope
from wheelcache.runtime.shared_objects import acquiring

MAX_LEASES: Final = 1024
"""The most leases that a scope holds. A program that asks for a million missing keys and sets none of them gets no more
leases until the first one times out."""

LOOK_AGAIN: Final = object()
"""Stands in for a value: the waiters look the key up again."""


@dataclass(slots=True, eq=False)
class Lease:
    """The right to fill a key until a certain time.

    Attributes:
        scope: a weak reference, since a scope has ended if only its leases refer to it.
        value: the value that the waiters receive, or LOOK_AGAIN; MISSING until then.
    """

    table: FillLeases
    key: Hashable
    scope: ref[RequestScope]
    until: float
    waiters: deque[Waiter]
    watch: Watch
    value: Any = MISSING

    def begin(self) -> None:
        scope = self.scope()
        if scope is not None:
            scope.leases[self] = None

    @property
    def outcome(self) -> Any:
        """The value that ended the lease; MISSING while other callers may join it."""
        return self.watch.value if self.value is MISSING else self.value

    def is_of(self, scope: RequestScope | None) -> bool:
        """Return whether ``scope`` has the lease, or acts for the scope that has it."""
        mine = self.scope()
        return scope is not None and any(each is mine for each in scope.with_parents())

    def end(self) -> None:
        scope = self.scope()
        if scope is not None:
            scope.leases.pop(self, None)

    def give_up(self) -> None:
        self.table.give_up(self)

    def abandon(self) -> None:
        self.table.abandoned.append(self)
        self.table.collect_soon()


@dataclass(slots=True, eq=False)
class Waiter:
    """A caller that waits for a key to be set.

    Attributes:
        deadline: the time, in seconds, at which the caller goes on without the value.
        is_late: the stamps showed a write since the watch of the lease began, perhaps from before the caller asked.
        is_filled: whether the key was set to ``value``.
        has_lease: whether the lease has passed to the caller.
        looks_again: whether the wait is over and the caller looks the key up again.
        alarm: set when one of the previous three becomes true. They are read under the lock.
    """

    key: Hashable
    slot: int
    scope: RequestScope
    wait: float
    deadline: float
    is_late: bool = False
    is_filled: bool = False
    has_lease: bool = False
    looks_again: bool = False
    value: Any = None
    alarm: Alarm = field(default_factory=Alarm)


class FillLeases:
    """The leases on the keys of one cache. Keys are those of its core.

    The garbage collector may call these methods, through ``RequestScope.__del__``, at any line that creates an object.
    So each look-up comes directly before the change that depends on it.

    Args:
        core: reports the values that were set.
        clock: returns seconds; frozen time does not affect it.

    Attributes:
        in_force: the leases by key. A caller may check without the lock whether there are any.
        abandoned: leases whose scope is gone.
    """

    def __init__(self, core: Core, clock: Callable[[], float]) -> None:
        self._core = core
        self._clock = clock
        self._forget()

    def _forget(self) -> None:
        self._lock: Any = threading.RLock()
        self.in_force: dict[Hashable, Lease] = {}
        self.abandoned: deque[Lease] = deque()
        self._to_wake: deque[Waiter] = deque()

    @property
    def in_step(self) -> bool:
        """Whether the garbage collector called the running code during a step, so that it must not wait."""
        return bool(self._lock._is_owned())

    def miss(
        self,
        key: Hashable,
        slot: int,
        seen: Seen | None,
        scope: RequestScope,
        wait: float,
        *,
        deadline: float | None = None,
        may_wait: bool,
    ) -> Waiter | None:
        """Handle a miss of ``key`` by ``scope``. Return a waiter if the caller must wait, otherwise None. In the latter
        case, ``scope`` has the lease on ``key`` now, unless there was one.

        Args:
            slot: the slot of ``key`` in the stamps of the core.
            seen: the stamps of that slot, read after the caller asked.
            wait: the seconds that a lease, or a wait for one, lasts.
            deadline: the end of the wait, if the caller has waited before.
            may_wait: False for code that others wait for, or that would stop an event loop.
        """
        now = self._clock()
        with self._lock:
            self._collect(now)
            waiter = None
            if self._current(key, now) is not None and may_wait and not scope.is_waited_for(now):
                waiter = Waiter(key, slot, scope, wait, now + wait if deadline is None else deadline)
            # Look up again: creating the waiter may have started the garbage collector, which may have ended the lease.
            lease = self._current(key, now)
            if lease is None:
                waiter = None
                self._grant(key, slot, scope, wait, now)
            elif waiter is not None:
                waiter.is_late = seen != lease.watch.seen
                lease.waiters.append(waiter)
        self.wake()
        return waiter

    def is_of(self, key: Hashable, scope: RequestScope) -> bool:
        """Return whether ``scope`` has the lease on ``key``, or acts for the scope that has it."""
        lease = self.in_force.get(key)
        return lease is not None and lease.is_of(scope)

    def is_of_another(self, key: Hashable, scope: RequestScope) -> bool:
        """Return whether another scope, for which ``scope`` does not act, is computing the value of ``key``."""
        lease = self.in_force.get(key)
        return lease is not None and lease.outcome is MISSING and lease.until > self._clock() and not lease.is_of(scope)

    def seconds_to_look(self, waiter: Waiter) -> float:
        """Return the seconds after which ``waiter`` checks again if nothing wakes it before."""
        lease = self.in_force.get(waiter.key)
        until = waiter.deadline if lease is None else min(waiter.deadline, lease.until)
        return min(max(0.0, until - self._clock()), threading.TIMEOUT_MAX)

    def is_done(self, waiter: Waiter) -> bool:
        """Return whether the wait is over: ``waiter`` was notified, or its deadline has passed."""
        now = self._clock()
        self.completed()
        with self._lock:
            self._current(waiter.key, now)
            is_over = waiter.is_filled or waiter.has_lease or waiter.looks_again
            if not is_over and waiter.deadline <= now:
                is_over = True
                self._leave(waiter, now)
                if waiter.key not in self.in_force:
                    self._grant(waiter.key, waiter.slot, waiter.scope, waiter.wait, now)
        self.wake()
        return is_over

    def leave(self, waiter: Waiter) -> None:
        """End the wait of ``waiter``. A lease that has passed to it goes on to the next waiter."""
        now = self._clock()
        with self._lock:
            self._leave(waiter, now)
        self.wake()

    def completed(self) -> None:
        """Give the waiters the values that the core has reported."""
        completed = self._core.completed
        while completed:
            try:
                watch = completed[0]
            except IndexError:
                # Another thread has handled it.
                break
            with self._lock:
                lease = self.in_force.get(watch.key)
                if lease is not None and lease.watch is watch:
                    self._end(lease, watch.value)
            # Last, so that the next caller does it again if this one is interrupted.
            with suppress(ValueError):
                completed.remove(watch)
        self.wake()

    def fill(
        self, watch: Watch, seen: Callable[[Any], Seen | None], value: Any, names: tuple[TagName, ...] = ()
    ) -> None:
        """Pass ``value``, which was read or written elsewhere after ``watch`` began, to the callers that wait for it.

        If the key was written again in the meantime, or one of its tags dropped, no caller receives the value, since
        some may have joined after that. The running scope then gives up the lease, if it has it.

        Args:
            seen: returns the current stamps of a key.
            names: the tags of the value.
        """
        self._surely(self._fill, watch, seen, value, names)

    def found(self, key: Hashable, scope: RequestScope) -> None:
        """End the lease on ``key`` if ``scope``, which has found a value, has it. The waiters look again."""
        self._surely(self._found, key, scope)

    def refuse(self, key: Hashable) -> None:
        """Pass on the lease on ``key``, which was set to a value that may be outdated: no waiter receives it."""
        now = self._clock()
        with self._lock:
            lease = self.in_force.get(key)
            if lease is not None:
                self._pass_on(lease, now)
        self.wake()

    def deleted(self, key: Hashable) -> None:
        """Pass on the lease on ``key`` if the running scope, which has deleted the key, has it."""
        now = self._clock()
        with self._lock:
            lease = self.in_force.get(key)
            if lease is not None and lease.is_of(running_scope()):
                self._pass_on(lease, now)
        self.wake()

    def cleared(self) -> None:
        """Pass on the leases of the running scope, which has deleted all keys of this cache."""
        now = self._clock()
        with self._lock:
            running = running_scope()
            for scope in () if running is None else running.with_parents():
                for lease in list(scope.leases):
                    if lease.table is self:
                        self._pass_on(lease, now)
        self.wake()

    def give_up(self, lease: Lease) -> None:
        """End ``lease`` without a value."""
        now = self._clock()
        with self._lock:
            self._pass_on(lease, now)
        self.wake()

    def collect_soon(self) -> None:
        """End the abandoned leases if the lock is free; otherwise the thread that holds the lock ends them."""
        (acquired,) = acquiring(self._lock, 0)
        try:
            if acquired:
                self._collect(self._clock())
        finally:
            if acquired:
                self._lock.release()
        if acquired:
            self.wake()

    def wake(self) -> None:
        """Wake the waiters, without the lock. Any thread may do so."""
        if self.abandoned:
            # Another thread held the lock.
            self.collect_soon()
        while self._to_wake:
            try:
                waiter = self._to_wake[0]
            except IndexError:
                break
            waiter.alarm.set()
            # Last, so that the next caller does it again if this one is interrupted.
            with suppress(ValueError):
                self._to_wake.remove(waiter)

    def close(self) -> None:
        """End all leases and waits, since the cache is closed."""
        now = self._clock()
        with self._lock:
            for lease in list(self.in_force.values()):
                lease.waiters, waiters = deque(), lease.waiters
                self._pass_on(lease, now)
                for waiter in waiters:
                    waiter.has_lease = True
                    self._to_wake.append(waiter)
        self.wake()

    def after_fork_in_child(self) -> None:
        """Forget all leases: their scopes and waiters are in the parent process."""
        for lease in self.in_force.values():
            lease.end()
        self._forget()

    # Implementation.

    def _surely(self, step: Callable[..., None], *args: Any) -> None:
        """Call ``step`` and wake the waiters. If that is interrupted, do it once more, so that no caller is left
        waiting."""
        try:
            step(*args)
            self.wake()
        except BaseException:
            step(*args)
            self.wake()
            raise

    def _fill(self, watch: Watch, seen: Callable[[Any], Seen | None], value: Any, names: tuple[TagName, ...]) -> None:
        now = self._clock()
        with self._lock:
            is_outdated = watch.broken or seen(watch.key) != watch.seen or self._core.dropped_since(names, watch.since)
            lease = self.in_force.get(watch.key)
            if lease is not None and not is_outdated:
                self._end(lease, value)
            elif lease is not None and lease.is_of(running_scope()):
                self._pass_on(lease, now)

    def _found(self, key: Hashable, scope: RequestScope) -> None:
        with self._lock:
            lease = self.in_force.get(key)
            if lease is not None and lease.is_of(scope):
                self._end(lease, LOOK_AGAIN)

    # The caller of the methods below holds the lock.

    def _current(self, key: Hashable, now: float) -> Lease | None:
        """Return the lease on ``key`` that callers may join, after ending one that is completed or timed out."""
        lease = self.in_force.get(key)
        while lease is not None and (lease.outcome is not MISSING or lease.until <= now):
            self._pass_on(lease, now)
            lease = self.in_force.get(key)
        return lease

    def _end(self, lease: Lease, value: Any) -> None:
        """End ``lease`` and give ``value`` to its waiters; they look again if it is LOOK_AGAIN."""
        if self.in_force.get(lease.key) is not lease:
            return
        # A finalizer may end the lease during this, and then gives its waiters the value, too.
        lease.value = value
        # The waiters first: this is done again if it is interrupted.
        for waiter in tuple(lease.waiters):
            if waiter.is_late or value is LOOK_AGAIN:
                waiter.looks_again = True
            else:
                waiter.value = value
                waiter.is_filled = True
            self._to_wake.append(waiter)
        if self.in_force.get(lease.key) is lease:
            del self.in_force[lease.key]
            lease.end()
            lease.watch.close()

    def _pass_on(self, lease: Lease, now: float) -> None:
        """End ``lease``. Unless it is completed, its first waiter gets the next lease."""
        value = lease.outcome
        if value is not MISSING:
            # A thread has completed the lease and not announced it yet.
            self._end(lease, value)
        if self.in_force.get(lease.key) is not lease:
            return
        del self.in_force[lease.key]
        lease.end()
        waiters = lease.waiters
        while waiters:
            waiter = waiters.popleft()
            if waiter.deadline > now:
                successor = Lease(self, lease.key, ref(waiter.scope), now + waiter.wait, waiters, lease.watch)
                self.in_force[lease.key] = successor
                successor.begin()
                waiter.has_lease = True
                self._to_wake.append(waiter)
                return
        lease.watch.close()

    def _leave(self, waiter: Waiter, now: float) -> None:
        lease = self.in_force.get(waiter.key)
        if lease is None:
            return
        if waiter.has_lease:
            if lease.is_of(waiter.scope):
                self._pass_on(lease, now)
        elif waiter in lease.waiters:
            lease.waiters.remove(waiter)

    def _collect(self, now: float) -> None:
        """End the abandoned leases, and the oldest ones if they timed out: their keys may never be asked for again."""
        while self.abandoned:
            self._pass_on(self.abandoned.popleft(), now)
        for _ in range(2):
            oldest = _oldest(self.in_force.values())
            if oldest is None or oldest.until > now:
                break
            self._pass_on(oldest, now)

    def _grant(self, key: Hashable, slot: int, scope: RequestScope, wait: float, now: float) -> None:
        if len(scope.leases) >= MAX_LEASES:
            oldest = _oldest(scope.leases)
            if oldest is None or oldest.table is not self or oldest.until > now:
                return
            self._pass_on(oldest, now)
        watch = self._core.watch(key, slot=slot, wants_value=True)
        lease = Lease(self, key, ref(scope), now + wait, deque(), watch)
        if key not in self.in_force:
            self.in_force[key] = lease
            lease.begin()


def _oldest(leases: Iterable[Lease]) -> Lease | None:
    try:
        return next(iter(leases), None)
    except RuntimeError:
        # The leases changed during the iteration: leases of the scope in other caches begin and end under other locks,
        # and any lease may end during a garbage collection.
        return None
