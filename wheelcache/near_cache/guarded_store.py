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
from wheelcache.near_cache.circuit_breaker import CircuitBreaker
from wheelcache.runtime.clock import Clock

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


class GuardedStore:
    """The calls of one store.

    Args:
        name: of the cache in front of it, for logs.
        clock: seconds.
        watches_outages: without, every call is made, and its errors are the caller's.
    """

    __slots__ = ("_breaker", "_clock", "_name", "_watches_outages")

    def __init__(self, name: str, clock: Clock, *, watches_outages: bool) -> None:
        self._name = name
        self._clock = clock
        self._watches_outages = watches_outages
        self._breaker = CircuitBreaker()

    def call(self, function: Callable[[], Any]) -> StepsTo[Any]:
        """What ``function()`` returns; in a task, it is awaited.

        Raises:
            StoreUnavailable: the store failed lately, and is left alone.
        """
        if self._watches_outages and not self._breaker.allows(self._clock()):
            raise StoreUnavailable(f"the store behind the cache {self._name!r} failed lately and is left alone")
        outcome = yield Call(function)
        if self._watches_outages:
            self._note(outcome[1])
        return result(outcome)

    def _note(self, error: BaseException | None) -> None:
        if error is None:
            if self._breaker.succeeded():
                logger.warning("The store behind the cache %r answers again.", self._name)
        elif isinstance(error, Exception) and not is_about_the_value(error) and self._breaker.failed(self._clock()):
            logger.warning("The store behind the cache %r fails, and is left alone: %r", self._name, error)
