"""Look-ups that wait: of several callers that miss a key, one computes the value, and the others wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from wheelcache.coherence.key_stamps import KeyStamps
from wheelcache.core import WriteState
from wheelcache.core.contract import MISSING, Core
from wheelcache.leases.fill_leases import FillLeases, Waiter
from wheelcache.loading.loads import stale_record
from wheelcache.loading.steps import BLOCKS, StepsTo, Wait
from wheelcache.loading.wait_graph import is_loading
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.request_scope import RequestScope, current_scope
from wheelcache.stats import Meter


@dataclass(slots=True, eq=False)
class LeasedReads:
    """The leased look-ups of one cache. Keys are those of its core."""

    _core: Core
    _check_open: Callable[[], None]
    _leases: FillLeases
    _stamps: KeyStamps
    _misses: WriteState
    _counts: Meter

    def get(self, key: Any, wait: float, may_wait: bool, grace: float, leader: Any) -> StepsTo[Any]:
        """Return the value, or MISSING if the caller must compute it, with or without the lease. See
        ``CacheParts.look_up_leased``."""
        # A waiting task does not block its thread.
        may_wait = not (yield BLOCKS) or (may_wait and asyncio._get_running_loop() is None)
        found = self._core.find(key, MISSING)
        if found is not MISSING:
            return found
        if grace:
            found = self._stale(key, grace, leader, current_scope())
            if found is not MISSING:
                return found
        # In a __del__ that the garbage collector runs during a step, no other thread could set anything.
        may_wait = may_wait and not is_loading() and not self._core.in_step and not self._leases.in_step
        found, waiter = self._find_or_wait(key, wait, may_wait, None, grace)
        while waiter is not None:
            try:
                while not self._leases.is_done(waiter):
                    yield Wait(waiter.alarm, SystemClock.steady() + self._leases.seconds_to_look(waiter))
            except BaseException:
                self._leases.leave(waiter)
                raise
            if not waiter.looks_again:
                return self._waited(waiter)
            found, waiter = self._find_or_wait(key, wait, may_wait, waiter.deadline, grace)
        return found

    def fill(self, key: Any) -> Callable[[Any], None]:
        """Return a function that gives a value to the callers that wait for a lease on ``key``, without storing it.

        The value must be read or written elsewhere after this call. No caller receives it if ``key`` is written in
        between, or if there is no lease on ``key`` yet.
        """
        if key not in self._leases.in_force:
            return _discard
        return partial(self._leases.fill, self._stamps.watch(key), self._stamps.seen)

    def _find_or_wait(
        self, key: Any, wait: float, may_wait: bool, deadline: float | None, grace: float
    ) -> tuple[Any, Waiter | None]:
        """Return the value, after a look-up that missed, and the waiter if the caller has to wait for it."""
        if self._misses.records_misses:
            self._misses.missed(key)
        stamps = self._stamps
        scope = current_scope()
        waiter = self._leases.miss(
            key, stamps.slot(key), stamps.seen(key), scope, wait, deadline=deadline, may_wait=may_wait
        )
        # Look again: this finds a value that was set before the lease began to watch the key.
        found = self._core.find(key, MISSING)
        if found is MISSING and grace:
            found = self._stale(key, grace, key, scope)
        if found is not MISSING:
            if waiter is not None:
                self._leases.leave(waiter)
            self._leases.found(key, scope)
            stamps.noted(key)
            return found, None
        if waiter is None:
            self._core.count(misses=1)
        return found, waiter

    def _stale(self, key: Any, grace: float, leader: Any, scope: RequestScope) -> Any:
        """Return the value within its grace if another scope has the lease on ``leader``; otherwise MISSING."""
        if not self._leases.is_of_another(leader, scope):
            return MISSING
        record = stale_record(self._core, key, grace)
        if record is None:
            return MISSING
        self._counts.add("stale_hits")
        return record.value

    def _waited(self, waiter: Waiter) -> Any:
        if waiter.is_filled:
            self._core.count(hits=1)
            self._counts.add("coalesced")
            # A later set by this caller does not answer this miss.
            self._stamps.noted(waiter.key)
            return waiter.value
        # Raises if the cache was closed during the wait.
        self._check_open()
        self._core.count(misses=1)
        if self._misses.records_misses:
            # The lease has passed to this caller, which computes the value from here on.
            self._misses.missed(waiter.key)
        return MISSING


def _discard(value: object) -> None:
    """Do nothing with the value, since no caller waits for it."""
