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

import asyncio
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import ref

from wheelcache.core import WriteState
from wheelcache.core.contract import MISSING, Core, Watch
from wheelcache.engine.loading.loads import stale_record, wait_for_claim
from wheelcache.engine.loading.misses import Misses
from wheelcache.engine.loading.steps import BLOCKS, StepsTo, Wait
from wheelcache.engine.runtime.clock import SystemClock
from wheelcache.engine.runtime.request_scope import RequestScope, current_scope, running_scope
from wheelcache.engine.stats import Meter
from wheelcache.engine.turns import End, Turn, Turns, led

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
    """The turn of a scope to fill a key until a certain time. Its owner is a weak reference to the scope, which has
    ended if only its leases refer to it."""

    __slots__ = ()

    turns: FillTurns
    owner: ref[RequestScope]
    watch: Watch

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


class FillTurns(Turns):
    """The leases on the keys of one cache. Keys are those of its core.

    Args:
        core: reports the values that were set.
        clock: returns seconds; frozen time does not affect it.
    """

    open: dict[Hashable, Any]

    def __init__(self, core: Core, clock: Callable[[], float]) -> None:
        super().__init__(core, partial(core.watch, wants_value=True), clock)

    def _forget(self) -> None:
        super()._forget()
        self.unfilled = Unfilled()

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

    def refuse(self, key: Hashable) -> None:
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


@dataclass(slots=True, eq=False)
class LeasedReads:
    """The look-ups of one cache by callers that will set a missing value. Keys are those of its core."""

    _core: Core
    _check_open: Callable[[], None]
    _leases: FillTurns
    _misses: Misses
    _writes: WriteState
    _counts: Meter

    def get(self, key: Any, wait: float, may_wait: bool, grace: float) -> StepsTo[Any]:
        """Return the value, or MISSING if the caller must compute it, with or without the lease. See
        ``Engine.look_up_leased``."""
        found = self._core.find(key, MISSING)
        if found is not MISSING:
            return found
        scope = current_scope()
        if grace:
            found = self._stale(key, grace, scope)
            if found is not MISSING:
                return found
        now = self._leases.clock()
        deadline = now + wait
        while True:
            lease = Lease(self._leases, key, owner=ref(scope), until=now + wait)
            try:
                if self._writes.records_misses:
                    self._writes.missed(key)
                yield from self._ask(lease, scope, now, deadline, may_wait)
                found = self._look_again(key, grace, scope)
                if found is not MISSING:
                    return found
                other = lease.waits_on
                if other is None:
                    self._core.count_miss(key)
                    return MISSING
                asked = self._core.now()
                yield Wait(other.alarm, SystemClock.steady() + min(deadline, other.until) - now)
                self._leases.completed()
                how, value = lease.result
                if how is End.VALUE:
                    if self._leases.claims is not None:
                        # Another process may have deleted it before this caller came, which the watch does not show.
                        # It may have expired since.
                        record = self._core.peek(key, use=True)
                        value = MISSING if record is None or record.times.fresh_until <= asked else record.value
                    if value is not MISSING:
                        self._core.count_hit(key)
                        self._counts.add("coalesced")
                        # A later set by this caller does not answer this miss.
                        self._misses.pop_miss(key)
                        return value
            except BaseException:
                # Twice: the second call completes an interrupted one.
                try:
                    lease.close()
                finally:
                    lease.close()
                raise
            # Raises if the cache was closed during the wait.
            self._check_open()
            now = self._leases.clock()

    def fill(self, key: Any) -> Callable[[Any, tuple[str, ...]], None]:
        """Return a function that gives a value, with its tags, to the callers that wait for a lease on ``key``, without
        storing it.

        The value must be read or written elsewhere after this call. No caller receives it if ``key`` is written or a
        tag dropped in between, or if there is no lease on ``key`` yet.
        """
        return partial(self._leases.fill, self._core.watch(key)) if key in self._leases.open else _discard

    def _ask(self, lease: Lease, scope: RequestScope, now: float, deadline: float, may_wait: bool) -> StepsTo[None]:
        """Let ``scope`` have ``lease``, after a wait for another process, or let ``lease`` wait for that of another
        scope, or neither of them."""
        leases = self._leases
        leases.end_overdue(now)
        if leases.is_full(scope, now):
            return
        if not leases.claim(lease) and (yield from self._may_wait(lease, scope, now, deadline, may_wait)):
            leases.begin(lease)
        if lease.is_behind and (yield from self._may_wait(lease, scope, now, deadline, may_wait)):
            yield from wait_for_claim(lease, SystemClock.steady() + deadline - now)
            # The time of the lease begins now.
            lease.until += leases.clock() - now

    def _may_wait(
        self, lease: Lease, scope: RequestScope, now: float, deadline: float, may_wait: bool
    ) -> StepsTo[bool]:
        if now >= deadline or scope.is_waited_for(now, lease) or led() or lease.key in self._leases.unfilled:
            return False
        # A waiting task does not block its thread.
        return not (yield BLOCKS) or (may_wait and asyncio._get_running_loop() is None)

    def _look_again(self, key: Any, grace: float, scope: RequestScope) -> Any:
        """Look up a key once more, since it may have been set before the lease began to watch it."""
        found = self._core.find(key, MISSING)
        if found is MISSING and grace:
            found = self._stale(key, grace, scope)
        if found is not MISSING:
            # It may be written again before the waiters receive it, so they look it up themselves.
            self._leases.found(key, scope)
            self._misses.pop_miss(key)
        return found

    def _stale(self, key: Any, grace: float, scope: RequestScope) -> Any:
        """Return the value within its grace if another scope has the lease on it; otherwise MISSING."""
        if not self._leases.is_of_another(key, scope):
            return MISSING
        record = stale_record(self._core, key, grace)
        if record is None:
            return MISSING
        self._counts.add("stale_hits")
        self._core.count_stale_hit(key)
        return record.value


def _discard(value: object, names: object) -> None:
    """Do nothing with the value, since no caller waits for it."""
