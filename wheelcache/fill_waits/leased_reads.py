"""The look-ups of callers that get and set a key: one of those that miss it receives the lease, the others wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any
from weakref import ref

from wheelcache.core.contract import MISSING
from wheelcache.engine.calls import Engine
from wheelcache.engine.keys import CALLERS
from wheelcache.engine.loading.waiting_loads import stale_record, wait_for_claim
from wheelcache.engine.options import seconds
from wheelcache.engine.turns import End, led
from wheelcache.fill_waits.fill_turns import FillTurns, Lease
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.request_scope import RequestScope, current_scope
from wheelcache.runtime.steps import BLOCKS, StepsTo, Wait


class LeasedReads:
    """The look-ups of one cache by callers that will set a missing value. Keys are those of the callers.

    The first object of a cache attaches the leases to it.
    """

    __slots__ = ("_core", "_counts", "_engine", "_leases", "_misses")

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._core = engine.core()
        self._leases = engine.watcher(FillTurns, partial(FillTurns, engine))
        self._misses = engine.misses()
        self._counts = engine.loads().counts

    @property
    def are_any(self) -> bool:
        """Whether any caller has a lease."""
        return bool(self._leases.open)

    def is_held(self, key: Any) -> bool:
        """Return whether the running thread or task has a lease on ``key``."""
        return self._leases.is_of(self._engine.adapt(key), current_scope())

    def get(self, key: Any, wait: float, may_wait: bool = True, grace: float = 0.0) -> StepsTo[Any]:
        """Return the steps of a look-up by a caller that will compute and set the value if it is missing.

        The steps return the value, or MISSING if the caller must compute it. Of several callers that miss a key at the
        same time, one receives MISSING and a lease, and the others wait for the value that it sets. If the holder of
        the lease deletes the key, its request ends, or ``wait`` is over, one waiter receives MISSING and the lease. A
        caller that holds a lease, runs a loader, or runs under an event loop never waits. See ``fill_turns``.

        Args:
            wait: the maximum seconds to wait, > 0.
            may_wait: False if the holder of the lease may need the same thread that would wait.
            grace: for so many seconds past the TTL of a value, which must be stored with that grace, the others receive
                the old value and do not wait.
        """
        self._engine.open()
        return self._get(self._engine.adapt(key), seconds("wait", wait), may_wait, grace)

    def _get(self, key: Any, wait: float, may_wait: bool, grace: float) -> StepsTo[Any]:
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
            lease = Lease(self._leases, key, ref(scope), now + wait)
            try:
                self._engine.missed(key)
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
                with lease, lease:
                    raise
            # Raises if the cache was closed during the wait.
            self._engine.open()
            now = self._leases.clock()

    def fill(self, key: Any) -> Callable[[Any, Iterable[str]], None]:
        """Return a function that gives a value, with its tags, to the callers that wait for a lease on ``key``, without
        storing it.

        The value must be read or written elsewhere after this call. No caller receives it if ``key`` is written or a
        tag dropped in between, or if there is no lease on ``key`` yet.
        """
        key = self._engine.adapt(key)
        if key not in self._leases.open:
            return _discard
        watch = self._core.watch(key)
        return lambda value, tags: self._leases.fill(watch, value, tuple([CALLERS + tag for tag in tags]))

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
