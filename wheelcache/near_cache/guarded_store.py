"""Calls of the store behind a near cache. While it is down, they fail immediately instead of after a timeout each."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from wheelcache.errors import StoreUnavailable
from wheelcache.loading.steps import Call, StepsTo, result
from wheelcache.near_cache.call_meter import CallMeter
from wheelcache.near_cache.circuit_breaker import CircuitBreaker
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.near_cache.written_timeouts import NewTimeout, WrittenTimeouts
from wheelcache.runtime.clock import Clock
from wheelcache.stats import StoreStats

logger = logging.getLogger("wheelcache")


def _nothing() -> None:
    """Do nothing: the store has no observer."""


class GuardedStore:
    """The calls of one store.

    Args:
        name: the name of the cache in front of it, for logs.
        clock: returns seconds.
        rule: decides which errors are outages.
        timeouts: remembers the timeouts of the values that this process writes.
        epoch: shows whether a connection reports writes to the store; None if there is no such connection.
        watches_outages: whether the store is left alone after repeated failures. Otherwise every call is made.

    Attributes:
        on_call: called before each call.
        rule, timeouts: see above.
    """

    __slots__ = (
        *("_breaker", "_clock", "_epoch", "_name", "_reads", "_watches_outages", "_writes"),
        *("on_call", "rule", "timeouts"),
    )

    def __init__(
        self,
        name: str,
        clock: Clock,
        rule: OutageRule,
        timeouts: WrittenTimeouts,
        *,
        epoch: TrustEpoch | None,
        watches_outages: bool,
    ) -> None:
        self._name = name
        self._clock = clock
        self.rule = rule
        self.timeouts = timeouts
        self._epoch = epoch
        self._watches_outages = watches_outages
        self._breaker = CircuitBreaker()
        self._reads = CallMeter()
        self._writes = CallMeter()
        self.on_call: Callable[[], object] = _nothing

    def read(self, function: Callable[[], Any]) -> StepsTo[Any]:
        """Return the result of ``function()``, which reads from the store; in a task, the result is awaited.

        Raises:
            StoreUnavailable: if the store failed recently, so the call is not made.
        """
        return self._call(function, self._reads)

    def write(
        self, function: Callable[[], Any], keys: Sequence[Any] = (), new_timeout: NewTimeout | None = None
    ) -> StepsTo[Any]:
        """Return the result of ``function()``, which writes to the store, as ``read`` does.

        Args:
            keys: the keys whose timeouts the write changes.
            new_timeout: their new timeout; None if they keep theirs.
        """
        if new_timeout is None:
            return (yield from self._call(function, self._writes))
        write = self.timeouts.start()
        took_effect: bool | None = None
        try:
            written = yield from self._call(function, self._writes)
            took_effect = new_timeout.took_effect(written)
        except StoreUnavailable:
            took_effect = False
            raise
        finally:
            if took_effect is not False:
                self.timeouts.end(keys, write, new_timeout, is_certain=took_effect is True)
        return written

    def stats(self) -> StoreStats:
        """Return the statistics of the store in this process."""
        reads = self._reads.stats()
        # The connection is made at the first read.
        epoch = self._epoch if reads.uses else None
        return StoreStats(
            reads=reads,
            writes=self._writes.stats(),
            breakers=int(self._watches_outages),
            open_breakers=int(self._breaker.is_open()),
            trackers=int(epoch is not None),
            trusted=int(epoch is not None and epoch.is_told),
        )

    def after_fork_in_child(self) -> None:
        """Start counting from zero."""
        self._reads.count_from_zero()
        self._writes.count_from_zero()
        self.timeouts.after_fork_in_child()

    def _call(self, function: Callable[[], Any], meter: CallMeter) -> StepsTo[Any]:
        self.on_call()
        if self._watches_outages and not self._breaker.allows(self._clock()):
            meter.refuse()
            raise StoreUnavailable(f"the store behind the cache {self._name!r} failed lately and is left alone")
        began = self._clock()
        outcome = yield Call(function)
        meter.made(self._clock() - began, is_error=self.rule.is_outage(outcome[1]))
        if self._watches_outages:
            self._note(outcome[1])
        return result(outcome)

    def _note(self, error: BaseException | None) -> None:
        if error is None:
            if self._breaker.succeeded():
                logger.warning("The store behind the cache %r answers again.", self._name)
        elif self.rule.is_outage(error) and self._breaker.failed(self._clock()):
            logger.warning("The store behind the cache %r fails, and is left alone: %r", self._name, error)
