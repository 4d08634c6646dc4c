"""Calls of the store behind a near cache. While it is down, they fail at once instead of one timeout after another.

Whatever a call raises is an outage, unless it is about the key or the value: then a store that is well would raise it,
too.
"""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable
from typing import Any, Final

from wheelcache.errors import StoreUnavailable
from wheelcache.loading.steps import Call, StepsTo, result
from wheelcache.near_cache.call_meter import CallMeter
from wheelcache.near_cache.circuit_breaker import CircuitBreaker
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.runtime.clock import Clock
from wheelcache.stats import StoreStats

logger = logging.getLogger("wheelcache")

ABOUT_THE_VALUE: Final = (
    *(TypeError, ValueError, LookupError, AttributeError, pickle.PickleError),
    # What unpickling raises after a class was moved, or of a torn value.
    *(ImportError, EOFError, RecursionError),
)

ABOUT_THE_CALL: Final = ("ResponseError", "DataError", "MemcacheIllegalInputError")
"""The same in the words of redis-py and pymemcache, by exactly these names: what is derived of them may be outages."""


def is_about_the_value(error: Exception) -> bool:
    """Whether the same would be raised by a store that is well."""
    return isinstance(error, ABOUT_THE_VALUE) or type(error).__name__ in ABOUT_THE_CALL


def _nothing() -> None:
    """Nothing observes the store."""


class GuardedStore:
    """The calls of one store.

    Args:
        name: of the cache in front of it, for logs.
        clock: seconds.
        epoch: whether a connection tells this process of what is written to the store; None if none is to.
        watches_outages: without, every call is made, and its errors are the caller's.

    Attributes:
        on_call: called before each call.
    """

    __slots__ = ("_breaker", "_clock", "_epoch", "_name", "_reads", "_watches_outages", "_writes", "on_call")

    def __init__(self, name: str, clock: Clock, *, epoch: TrustEpoch | None, watches_outages: bool) -> None:
        self._name = name
        self._clock = clock
        self._epoch = epoch
        self._watches_outages = watches_outages
        self._breaker = CircuitBreaker()
        self._reads = CallMeter()
        self._writes = CallMeter()
        self.on_call: Callable[[], object] = _nothing

    def read(self, function: Callable[[], Any]) -> StepsTo[Any]:
        """What ``function()`` returns, which reads; in a task, it is awaited.

        Raises:
            StoreUnavailable: the store failed lately, and is left alone.
        """
        return self._call(function, self._reads)

    def write(self, function: Callable[[], Any]) -> StepsTo[Any]:
        """The same of a ``function`` that writes."""
        return self._call(function, self._writes)

    def stats(self) -> StoreStats:
        """How the store does, in this process."""
        reads = self._reads.stats()
        # The first read has the connection made.
        epoch = self._epoch if reads.uses else None
        return StoreStats(
            reads,
            self._writes.stats(),
            breakers=int(self._watches_outages),
            open_breakers=int(self._breaker.is_open()),
            trackers=int(epoch is not None),
            trusted=int(epoch is not None and epoch.is_told),
        )

    def after_fork_in_child(self) -> None:
        """Counts begin at zero."""
        self._reads.count_from_zero()
        self._writes.count_from_zero()

    def _call(self, function: Callable[[], Any], meter: CallMeter) -> StepsTo[Any]:
        self.on_call()
        if self._watches_outages and not self._breaker.allows(self._clock()):
            meter.refuse()
            raise StoreUnavailable(f"the store behind the cache {self._name!r} failed lately and is left alone")
        began = self._clock()
        outcome = yield Call(function)
        meter.made(self._clock() - began, is_error=_is_outage(outcome[1]))
        if self._watches_outages:
            self._note(outcome[1])
        return result(outcome)

    def _note(self, error: BaseException | None) -> None:
        if error is None:
            if self._breaker.succeeded():
                logger.warning("The store behind the cache %r answers again.", self._name)
        elif _is_outage(error) and self._breaker.failed(self._clock()):
            logger.warning("The store behind the cache %r fails, and is left alone: %r", self._name, error)


def _is_outage(error: BaseException | None) -> bool:
    """Whether a call ended because the store fails: neither by the key or the value, nor by its task or thread."""
    return isinstance(error, Exception) and not is_about_the_value(error)
