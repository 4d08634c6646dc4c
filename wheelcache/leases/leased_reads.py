"""Look-ups that wait: of several callers that miss a key, one computes the value, the others wait for its ``set``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from wheelcache.core.contract import MISSING, Core
from wheelcache.leases.fill_leases import FillLeases, Waiter
from wheelcache.leases.fill_scope import current_scope
from wheelcache.loading.loads import Loads
from wheelcache.loading.steps import BLOCKS, StepsTo, Wait
from wheelcache.loading.wait_graph import is_loading
from wheelcache.runtime.clock import SystemClock


class Misses(Protocol):
    """What is noted of misses, for the writes that answer them."""

    @property
    def hears_misses(self) -> bool:
        """A miss is to be told to ``missed``."""

    def missed(self, key: Any) -> None:
        """``key`` was missed, and may be set soon."""

    @property
    def stamps(self) -> Any:
        """Have the slot of a key, and forget the miss that was noted of it."""


class LeasedReads:
    """The leased look-ups of one cache. Keys are those of its core."""

    __slots__ = ("_check_open", "_core", "_leases", "_loads", "_writer")

    def __init__(
        self, core: Core, check_open: Callable[[], None], leases: FillLeases, writer: Misses, loads: Loads
    ) -> None:
        self._core = core
        self._check_open = check_open
        self._leases = leases
        self._writer = writer
        self._loads = loads

    def get(self, key: Any, wait: float, may_wait: bool) -> StepsTo[Any]:
        """The value, or MISSING: then the caller computes it, perhaps with the lease. See ``Cache.get_or_lease``."""
        # Where tasks wait, their thread goes on.
        may_wait = not (yield BLOCKS) or (may_wait and asyncio._get_running_loop() is None)
        found, waiter = self._find_or_wait(key, wait, may_wait)
        if waiter is None:
            return found
        try:
            while not self._leases.is_done(waiter):
                yield Wait(waiter.told, SystemClock.steady() + self._leases.seconds_to_look(waiter))
        except BaseException:
            self._leases.leave(waiter)
            raise
        return self._waited(waiter)

    def _find_or_wait(self, key: Any, wait: float, may_wait: bool) -> tuple[Any, Waiter | None]:
        found = self._core.find(key, MISSING)
        if found is not MISSING:
            return found, None
        # Amid a step, in a __del__ that the collector runs, no other thread could set anything meanwhile.
        may_wait = may_wait and not is_loading() and not self._core.in_step and not self._leases.in_step
        if self._writer.hears_misses:
            self._writer.missed(key)
        slot = self._writer.stamps.slot(key)
        waiter = self._leases.miss(key, slot, current_scope(), wait, may_wait=may_wait)
        # Once more: what was set before the lease began to watch the key is found now.
        found = self._core.find(key, MISSING)
        if found is not MISSING:
            self._leases.fill(key, found)
            self._writer.stamps.noted(key)
            return found, None
        if waiter is None:
            self._core.count(misses=1)
        return found, waiter

    def _waited(self, waiter: Waiter) -> Any:
        if waiter.is_filled:
            self._core.count(hits=1)
            self._loads.count_coalesced()
            # A miss that was served explains no later set.
            self._writer.stamps.noted(waiter.key)
            return waiter.value
        # Raised to the waiters of a cache that was closed.
        self._check_open()
        self._core.count(misses=1)
        if self._writer.hears_misses:
            # The lease has passed to this caller, which computes the value from here on.
            self._writer.missed(waiter.key)
        return MISSING
