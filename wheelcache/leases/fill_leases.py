"""Fill leases: of several callers that miss a key with a plain ``get``, one computes it, and the others wait for its
``set``.

The idea is the lease of "Scaling Memcache at Facebook" (NSDI 2013): a miss gives the right to fill. A caller that
misses a key on which another one has a lease waits until the value is set, which it then returns; until the lease
passes to it (its holder deleted the key, its request ended, or it took too long); or until its patience ends, when it
goes on as after any miss.

No two callers wait for each other, since **a caller that others may wait for does not wait**. The holder of a lease, on
any key of any cache, and a loader under single flight get a miss at once where others would wait. So each wait ends at
a caller that is at work. Several threads that act for one task at the same time, or tasks that it began before, could
still come to wait for each other, for as long as a lease lasts.

A lease watches its key in the core, which tells of the value that completes it. Its holder looks the key up once more
after it got the lease: what was set before the watch began is found then.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import ref

from wheelcache.core.contract import MISSING, Core, Watch
from wheelcache.leases.fill_scope import FillScope, running_scope
from wheelcache.runtime.alarm import Alarm

MAX_LEASES: Final = 1024
"""Leases of a scope at once. A program that asks for a million keys that are not there, and sets none, gets no more of
them until the first time out."""


class Lease:
    """The right to fill a key, until a time in seconds."""

    __slots__ = ("_scope", "key", "table", "until", "value", "waiters", "watch")

    def __init__(
        self,
        table: FillLeases,
        key: Hashable,
        scope: FillScope,
        until: float,
        waiters: deque[Waiter],
        watch: Watch,
    ) -> None:
        self.table = table
        self.key = key
        self.until = until
        self.waiters = waiters
        self.watch = watch
        self.value: Any = MISSING
        # Weak: a scope that only its leases refer to is over.
        self._scope = ref(scope)

    def begin(self) -> None:
        scope = self._scope()
        if scope is not None:
            scope.leases[self] = None

    def is_of(self, scope: FillScope | None) -> bool:
        """Whether ``scope`` has it, or acts for the scope that has it."""
        mine = self._scope()
        return scope is not None and any(each is mine for each in scope)

    def end(self) -> None:
        scope = self._scope()
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
        deadline: in seconds; then it goes on without the value.
        told: set when one of the next two becomes true. They are read under the lock.
        is_filled: the key was set, to ``value``.
        has_lease: the lease has passed to it.
    """

    key: Hashable
    slot: int
    scope: FillScope
    wait: float
    deadline: float
    is_filled: bool = False
    has_lease: bool = False
    value: Any = None
    told: Alarm = field(default_factory=Alarm)


class FillLeases:
    """The leases on the keys of one cache. Keys are those of its core.

    The garbage collector may call back here from any line that makes an object, by ``FillScope.__del__``. So what is
    looked up and what is changed stand side by side.

    Args:
        core: tells of values that were set.
        clock: seconds, which no test freezes.

    Attributes:
        in_force: by key. A caller may look, without the lock, whether there are any.
        abandoned: leases whose scope is gone.
    """

    __slots__ = ("_clock", "_core", "_lock", "_to_wake", "abandoned", "in_force")

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
        """The running code was called amid a step by the garbage collector, and must not wait."""
        return bool(self._lock._is_owned())

    def miss(self, key: Hashable, slot: int, scope: FillScope, wait: float, *, may_wait: bool) -> Waiter | None:
        """``scope`` misses ``key``. None if it goes on, with the lease if there was none; else it waits.

        Args:
            slot: of ``key`` in the stamps of the core.
            wait: seconds that a lease, and a wait for one, lasts.
            may_wait: False for code that others wait for, or that would stop an event loop.
        """
        now = self._clock()
        with self._lock:
            self._collect(now)
            self._time_out(key, now)
            if key not in self.in_force:
                self._grant(key, slot, scope, wait, now)
                waiter = None
            elif not may_wait or scope.is_waited_for(now):
                waiter = None
            else:
                waiter = Waiter(key, slot, scope, wait, now + wait)
                # Looked up again: making the waiter may have started the collector, and with it ended the lease.
                lease = self.in_force.get(key)
                if lease is None:
                    self._grant(key, slot, scope, wait, now)
                    waiter = None
                else:
                    lease.waiters.append(waiter)
        self.wake()
        return waiter

    def is_of(self, key: Hashable, scope: FillScope) -> bool:
        """Whether ``scope`` has the lease on ``key``, or acts for the scope that has it."""
        lease = self.in_force.get(key)
        return lease is not None and lease.is_of(scope)

    def seconds_to_look(self, waiter: Waiter) -> float:
        """After how long ``waiter`` looks again if it is not told anything before."""
        lease = self.in_force.get(waiter.key)
        until = waiter.deadline if lease is None else min(waiter.deadline, lease.until)
        return min(max(0.0, until - self._clock()), threading.TIMEOUT_MAX)

    def is_done(self, waiter: Waiter) -> bool:
        """Whether the wait is over: ``waiter`` was told something, or it is its deadline."""
        now = self._clock()
        self.completed()
        with self._lock:
            self._time_out(waiter.key, now)
            is_over = waiter.is_filled or waiter.has_lease
            if not is_over and waiter.deadline <= now:
                is_over = True
                self._leave(waiter, now)
                if waiter.key not in self.in_force:
                    self._grant(waiter.key, waiter.slot, waiter.scope, waiter.wait, now)
        self.wake()
        return is_over

    def leave(self, waiter: Waiter) -> None:
        """``waiter`` no longer waits. A lease that has passed to it goes on to the next."""
        now = self._clock()
        with self._lock:
            self._leave(waiter, now)
        self.wake()

    def completed(self) -> None:
        """The core has told of values: give them to the waiters."""
        told = self._core.told
        while told:
            try:
                watch = told[0]
            except IndexError:
                # Another thread was first.
                break
            with self._lock:
                lease = self.in_force.get(watch.key)
                if lease is not None and lease.watch is watch:
                    self._fill(lease, watch.value)
            # Last, so that the next caller does it again if this one is interrupted.
            with suppress(ValueError):
                told.remove(watch)
        self.wake()

    def fill(self, key: Hashable, value: Any) -> None:
        """Give ``value`` to the callers that wait for ``key``."""
        with self._lock:
            lease = self.in_force.get(key)
            try:
                if lease is not None:
                    self._fill(lease, value)
            except BaseException:
                if lease is not None:
                    self._fill(lease, value)
                self.wake()
                raise
        self.wake()

    def refuse(self, key: Hashable) -> None:
        """``key`` was set to what may be old by now: no waiter gets that."""
        now = self._clock()
        with self._lock:
            lease = self.in_force.get(key)
            if lease is not None:
                self._pass_on(lease, now)
        self.wake()

    def deleted(self, key: Hashable) -> None:
        """``key`` was deleted: if by the holder of its lease, that gives it up."""
        now = self._clock()
        with self._lock:
            lease = self.in_force.get(key)
            if lease is not None and lease.is_of(running_scope()):
                self._pass_on(lease, now)
        self.wake()

    def cleared(self) -> None:
        """All keys were deleted: the running scope gives up the leases that it has here."""
        now = self._clock()
        with self._lock:
            for scope in running_scope() or ():
                for lease in list(scope.leases):
                    if isinstance(lease, Lease) and lease.table is self:
                        self._pass_on(lease, now)
        self.wake()

    def give_up(self, lease: Lease) -> None:
        """``lease`` ends without a value."""
        now = self._clock()
        with self._lock:
            self._pass_on(lease, now)
        self.wake()

    def collect_soon(self) -> None:
        """End what was abandoned, if the lock is free; otherwise the thread that has it does so."""
        # In one step: an exception from outside, between a call of acquire and the try, would leave the lock taken.
        (taken,) = map(self._lock.acquire, (False,))
        try:
            if taken:
                self._collect(self._clock())
        finally:
            if taken:
                self._lock.release()
        if taken:
            self.wake()

    def wake(self) -> None:
        """Tell the waiters, without the lock. Any thread may do it."""
        if self.abandoned:
            # While the lock was taken.
            self.collect_soon()
        while self._to_wake:
            try:
                waiter = self._to_wake[0]
            except IndexError:
                break
            waiter.told.set()
            # Last, so that the next caller does it again if this one is interrupted.
            with suppress(ValueError):
                self._to_wake.remove(waiter)

    def close(self) -> None:
        """The cache is closed: every waiter goes on."""
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
        """Scopes and waiters are in the other process."""
        for lease in self.in_force.values():
            lease.end()
        self._forget()

    # Below: under the lock.

    def _fill(self, lease: Lease, value: Any) -> None:
        if self.in_force.get(lease.key) is not lease:
            return
        # So that a finalizer, which may end the lease amid this, gives them the value too.
        lease.value = value
        # The waiters first: it is done again if it is interrupted.
        for waiter in tuple(lease.waiters):
            waiter.value = value
            waiter.is_filled = True
            self._to_wake.append(waiter)
        if self.in_force.get(lease.key) is lease:
            del self.in_force[lease.key]
            lease.end()
            lease.watch.close()

    def _pass_on(self, lease: Lease, now: float) -> None:
        """``lease`` ends without a value: the first of its waiters gets the next."""
        value = lease.watch.value if lease.value is MISSING else lease.value
        if value is not MISSING:
            # Completed, by a thread that has not told yet.
            self._fill(lease, value)
        if self.in_force.get(lease.key) is not lease:
            return
        del self.in_force[lease.key]
        lease.end()
        waiters = lease.waiters
        while waiters:
            waiter = waiters.popleft()
            if waiter.deadline > now:
                successor = Lease(self, lease.key, waiter.scope, now + waiter.wait, waiters, lease.watch)
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
        """End what was abandoned, and the oldest leases if they timed out: those keys may never be asked for again."""
        while self.abandoned:
            self._pass_on(self.abandoned.popleft(), now)
        for _ in range(2):
            oldest = _oldest(self.in_force.values())
            if oldest is None or oldest.until > now:
                break
            self._pass_on(oldest, now)

    def _time_out(self, key: Hashable, now: float) -> None:
        lease = self.in_force.get(key)
        if lease is not None and lease.until <= now:
            self._pass_on(lease, now)

    def _grant(self, key: Hashable, slot: int, scope: FillScope, wait: float, now: float) -> None:
        if len(scope.leases) >= MAX_LEASES:
            oldest = _oldest(scope.leases)
            if not isinstance(oldest, Lease) or oldest.table is not self or oldest.until > now:
                return
            self._pass_on(oldest, now)
        watch = self._core.watch(key, slot=slot, wants_value=True)
        lease = Lease(self, key, scope, now + wait, deque(), watch)
        if key not in self.in_force:
            self.in_force[key] = lease
            lease.begin()


def _oldest(leases: Iterable[Any]) -> Any:
    try:
        return next(iter(leases), None)
    except RuntimeError:
        # It changed between two steps: a scope's leases in other caches come and go under other locks, and any may at
        # a collection.
        return None
