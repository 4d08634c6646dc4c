"""Fill leases: one of many who miss a key with a plain ``get`` computes it, the others' ``get`` waits for its ``set``.

The idea is the lease of "Scaling Memcache at Facebook" (NSDI 2013): a miss gives the right to fill. Here, whoever
misses while somebody else has that right waits, until the value is set (then it is his), until the right passes to him
(its holder deleted the key, his request ended, or he took too long), or until his patience ends, and he goes on as
after any miss.

Why no two can wait for each other: **whoever others may be waiting for does not wait**. Who holds a lease, on any key
of any cache, and who runs a loader that single flight guards, gets a miss at once where others would wait. Every wait
therefore ends at somebody who is at work, and never comes back to where it began.

A lease belongs to a thread, or, where an event loop runs, to a task, and ends with it. What a task starts after its
first miss, or hands to a thread that inherits its context, acts for the task as well. Several threads that act for one
task at the same time, or tasks that it began before, could still come to wait for each other, for as long as a lease
lasts.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterable
from contextvars import ContextVar
from typing import Any, Final
from weakref import ref

from wheelcache.runtime import contexts
from wheelcache.runtime.alarm import Alarm

HELD_AT_MOST: Final = 1024
"""Leases a holder has at once. A program that asks for a million keys that are not there, and sets none, gets no more
of them until the first time out."""


MISSED_AT_MOST: Final = 1024
"""Keys that were missed and not set yet. A set of one that was forgotten is taken for news, and costs others a miss."""


class Holder:
    """Who has leases: a thread, or a task.

    Attributes:
        leases: what he holds on keys of any cache, oldest first.
        missed: what a board showed for the keys that he missed, of caches that have one.
        parent: on whose behalf he is running; None for a thread, or a task that none with leases started.
        held_back: by cache and key, what stores an entry that waits for another one to be stored first.
    """

    __slots__ = ("__weakref__", "_task", "held_back", "leases", "missed", "parent")

    def __init__(self, task: asyncio.Task[Any] | None = None, parent: Holder | None = None) -> None:
        self.leases: dict[Lease, None] = {}
        self.missed: dict[tuple[object, Hashable], Any] = {}
        self.parent = parent
        self.held_back: dict[tuple[object, Hashable], Callable[[], object]] = {}
        self._task = None if task is None else ref(task)
        if task is not None:
            task.add_done_callback(lambda _: self.give_up())

    def is_task(self, task: asyncio.Task[Any] | None) -> bool:
        return self._task is not None and self._task() is task

    def is_gone(self) -> bool:
        """A task that is over."""
        if self._task is None:
            return False
        task = self._task()
        return task is None or task.done()

    def is_waited_for(self, now: float) -> bool:
        """Whether he, or somebody on whose behalf he runs, holds a lease that has not timed out."""
        holder: Holder | None = self
        while holder is not None:
            if any(lease.until > now for lease in list(holder.leases)):
                return True
            holder = holder.parent
        return False

    def note_miss(self, key: tuple[object, Hashable], seen: Any) -> None:
        """He missed ``key``, and may set it soon."""
        if len(self.missed) >= MISSED_AT_MOST:
            # Emptied and not the oldest taken out, so that nothing can go wrong between two threads of one task.
            self.missed = {}
        self.missed[key] = seen

    def was_missed(self, key: tuple[object, Hashable]) -> Any:
        """What a board showed for ``key`` when he, or whom he runs for, missed it. It is forgotten now."""
        holder: Holder | None = self
        while holder is not None:
            seen = holder.missed.pop(key, None)
            if seen is not None:
                return seen
            holder = holder.parent
        return None

    def forget_misses(self, cache: object) -> None:
        """Of one cache: it was cleared."""
        holder: Holder | None = self
        while holder is not None:
            holder.missed = {key: seen for key, seen in list(holder.missed.items()) if key[0] is not cache}
            holder = holder.parent

    def give_up(self) -> None:
        """Store what is held back, and end all leases: the request is over."""
        try:
            for key in list(self.held_back):
                self._let_go(key)
        finally:
            # After that: what was held back fills what was missed.
            self.missed = {}
            while self.leases:
                for lease in list(self.leases):
                    lease.table.give_up(lease)
                    self.leases.pop(lease, None)

    def let_go(self, key: tuple[object, Hashable]) -> None:
        """Store the entry of a cache and key, if it is held back by this holder or by one that it acts for."""
        holder: Holder | None = self
        while holder is not None:
            holder._let_go(key)
            holder = holder.parent

    def _let_go(self, key: tuple[object, Hashable]) -> None:
        store = self.held_back.pop(key, None)
        if store is not None:
            store()

    def __del__(self) -> None:
        # A thread that ended without a word, or a request of an ASGI server, where Django closes its caches in another
        # context. This may be the garbage collector's doing, in the middle of anything: so no waiting for a lock.
        # None at all, if an exception came from outside before the first line of __init__.
        for lease in list(getattr(self, "leases", ())):
            lease.table.abandoned.append(lease)
            lease.table.give_up_soon()


_current: ContextVar[Holder | None] = ContextVar("wheelcache_holder", default=None)


def current_holder() -> Holder:
    """Who is asking."""
    holder = _current.get()
    task = asyncio.current_task() if asyncio._get_running_loop() is not None else None
    # A thread may find itself in the context of a task that is over: ``async_to_sync`` hands its context back, and what
    # ``asyncio.to_thread`` began goes on when the task is cancelled.
    if holder is not None and (holder.is_task(task) if task is not None else not holder.is_gone()):
        return holder
    parent = _living(holder)
    if parent is not None:
        # Tasks that start one another for ever must not hold each other for ever.
        parent.parent = _living(parent.parent)
    holder = Holder(task, parent)
    _current.set(holder)
    return holder


def end_request() -> None:
    """Give up what the running thread or task holds."""
    holder = _current.get()
    if holder is not None:
        holder.give_up()


def forget_misses() -> None:
    """The request is over: what it missed and did not set is nothing that it fills."""
    holder = _current.get()
    if holder is not None:
        holder.missed = {}


def on_its_own() -> None:
    """What runs from here on in this context acts for nobody who waits."""
    _current.set(None)


contexts.resetters.append(on_its_own)


def _oldest(leases: Iterable[Lease]) -> Lease | None:
    try:
        return next(iter(leases), None)
    except RuntimeError:
        # It changed between two steps: a holder's leases in other caches come and go under other locks, and any may at
        # a collection.
        return None


def _living(holder: Holder | None) -> Holder | None:
    while holder is not None and holder.is_gone():
        holder = holder.parent
    return holder


class Lease:
    """The right to fill a key, until a time in seconds."""

    __slots__ = ("_holder", "key", "table", "until", "waiters")

    def __init__(self, table: FillLeases, key: Hashable, holder: Holder, until: float, waiters: deque[Waiter]) -> None:
        self.table = table
        self.key = key
        self.until = until
        self.waiters = waiters
        # Weak, since a holder whom only his leases know of is gone.
        self._holder = ref(holder)
        holder.leases[self] = None

    def is_of(self, holder: Holder | None) -> bool:
        """Whether ``holder`` has it, or acts for who has."""
        mine = self._holder()
        while holder is not None:
            if holder is mine:
                return True
            holder = holder.parent
        return False

    def end(self) -> None:
        holder = self._holder()
        if holder is not None:
            holder.leases.pop(self, None)


class Waiter:
    """Somebody who waits for a key to be set.

    Attributes:
        deadline: in seconds; then he goes on without.
        told: set when one of the next two is so. What is so is read under the lock.
        filled: the key was set, and ``value`` is what it was set to.
        handed: the lease is his.
    """

    __slots__ = ("deadline", "filled", "handed", "holder", "key", "told", "value", "wait")

    def __init__(self, key: Hashable, holder: Holder, now: float, wait: float) -> None:
        self.key = key
        self.holder = holder
        self.wait = wait
        self.deadline = now + wait
        self.filled = False
        self.handed = False
        self.value: Any = None
        self.told = Alarm()


class FillLeases:
    """The leases on the keys of one cache.

    The owner calls its methods under a lock of its own, except ``wake``, which comes when the lock is free. The garbage
    collector may call back here from any line that makes an object, by ``Holder.__del__``; so what is looked up and
    what is changed stand side by side.

    Args:
        give_up: takes the owner's lock, calls ``pass_on`` with a lease, and then ``wake``.
        give_up_soon: takes the lock if it is free, calls ``collect``, and then ``wake``.
    """

    __slots__ = ("_to_wake", "abandoned", "give_up", "give_up_soon", "in_force")

    def __init__(self, give_up: Callable[[Lease], object], give_up_soon: Callable[[], object]) -> None:
        self.in_force: dict[Hashable, Lease] = {}
        self.abandoned: deque[Lease] = deque()
        self._to_wake: deque[Waiter] = deque()
        self.give_up = give_up
        self.give_up_soon = give_up_soon

    def miss(self, key: Hashable, holder: Holder, now: float, wait: float, *, may_wait: bool) -> Waiter | None:
        """``holder`` misses ``key``. None if he goes on, with the lease if nobody had it; else he waits.

        Args:
            now, wait: seconds; ``wait`` is how long a lease, and a wait for one, lasts.
            may_wait: False for code that others wait for, or that would stop an event loop.
        """
        self.collect(now)
        self._time_out(key, now)
        lease = self.in_force.get(key)
        if lease is None:
            self._grant(key, holder, now + wait, now)
            return None
        if not may_wait or holder.is_waited_for(now):
            return None
        waiter = Waiter(key, holder, now, wait)
        # Looked up again: making him may have started the collector, and with it the end of who held the lease.
        lease = self.in_force.get(key)
        if lease is None:
            self._grant(key, holder, now + wait, now)
            return None
        lease.waiters.append(waiter)
        return waiter

    def is_of(self, key: Hashable, holder: Holder) -> bool:
        """Whether ``holder`` has the lease on ``key``, or acts for who has."""
        lease = self.in_force.get(key)
        return lease is not None and lease.is_of(holder)

    def next_look(self, waiter: Waiter) -> float:
        """When ``waiter`` should look again if he isn't told anything before, in seconds."""
        lease = self.in_force.get(waiter.key)
        return waiter.deadline if lease is None else min(waiter.deadline, lease.until)

    def goes_on(self, waiter: Waiter, now: float) -> bool:
        """Whether the wait is over: ``waiter`` was told something, or it is his deadline."""
        self._time_out(waiter.key, now)
        if waiter.filled or waiter.handed:
            return True
        if waiter.deadline > now:
            return False
        self.leave(waiter, now)
        if waiter.key not in self.in_force:
            self._grant(waiter.key, waiter.holder, now + waiter.wait, now)
        return True

    def leave(self, waiter: Waiter, now: float) -> None:
        """``waiter`` no longer waits. A lease that was handed to him goes on to the next."""
        lease = self.in_force.get(waiter.key)
        if lease is None:
            return
        if waiter.handed:
            if lease.is_of(waiter.holder):
                self.pass_on(lease, now)
        elif waiter in lease.waiters:
            lease.waiters.remove(waiter)

    def filled(self, key: Hashable, value: Any) -> None:
        """``key`` was set, by whomever."""
        lease = self.in_force.pop(key, None)
        if lease is not None:
            lease.end()
            for waiter in lease.waiters:
                waiter.value = value
                waiter.filled = True
                self._to_wake.append(waiter)

    def refused(self, key: Hashable, now: float) -> None:
        """``key`` was set to what may be old by now: nobody is to get that."""
        lease = self.in_force.get(key)
        if lease is not None:
            self.pass_on(lease, now)

    def deleted(self, key: Hashable, now: float) -> None:
        """``key`` was deleted: if by who has the lease, he gives it up."""
        lease = self.in_force.get(key)
        if lease is not None and lease.is_of(_current.get()):
            self.pass_on(lease, now)

    def cleared(self, now: float) -> None:
        """All keys were deleted: who did it gives up what he has the leases of."""
        holder = _current.get()
        while holder is not None:
            for lease in list(holder.leases):
                if lease.table is self:
                    self.pass_on(lease, now)
            holder = holder.parent

    def pass_on(self, lease: Lease, now: float) -> None:
        """``lease`` ends without a value: the first of those who wait for it gets the next."""
        if self.in_force.get(lease.key) is lease:
            del self.in_force[lease.key]
            lease.end()
            waiters = lease.waiters
            while waiters:
                waiter = waiters.popleft()
                if waiter.deadline > now:
                    self.in_force[lease.key] = Lease(self, lease.key, waiter.holder, now + waiter.wait, waiters)
                    waiter.handed = True
                    self._to_wake.append(waiter)
                    break

    def collect(self, now: float) -> None:
        """End what was abandoned, and the oldest leases if they timed out: nobody else may ever ask for those keys."""
        while self.abandoned:
            self.pass_on(self.abandoned.popleft(), now)
        for _ in range(2):
            oldest = _oldest(self.in_force.values())
            if oldest is None or oldest.until > now:
                break
            self.pass_on(oldest, now)

    def end_all(self, now: float) -> None:
        """The owner is closed: everybody goes on."""
        for lease in list(self.in_force.values()):
            lease.waiters, waiters = deque(), lease.waiters
            self.pass_on(lease, now)
            for waiter in waiters:
                waiter.handed = True
                self._to_wake.append(waiter)

    def forget_all(self) -> None:
        """After a fork: holders and waiters are in the other process."""
        for lease in self.in_force.values():
            lease.end()
        self.in_force = {}
        self.abandoned = deque()
        self._to_wake = deque()

    def wake(self) -> None:
        """Tell the waiters. Any thread may do it, once the lock is free."""
        if self.abandoned:
            # While the lock was taken.
            self.give_up_soon()
        while self._to_wake:
            try:
                waiter = self._to_wake.popleft()
            except IndexError:
                break
            waiter.told.set()

    def _time_out(self, key: Hashable, now: float) -> None:
        lease = self.in_force.get(key)
        if lease is not None and lease.until <= now:
            self.pass_on(lease, now)

    def _grant(self, key: Hashable, holder: Holder, until: float, now: float) -> None:
        if len(holder.leases) >= HELD_AT_MOST:
            oldest = _oldest(holder.leases)
            if oldest is None or oldest.table is not self or oldest.until > now:
                return
            self.pass_on(oldest, now)
        self.in_force[key] = Lease(self, key, holder, until, deque())
