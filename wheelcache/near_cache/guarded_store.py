"""Calls of the store behind a near cache. While the store is down, they fail immediately instead of after a timeout.

The pattern of the circuit breaker is Michael Nygard's ("Release It!"). A closed breaker lets every call through. After
``FAILURES`` failures in a row it opens and lets no call through, except for an occasional try that shows whether the
breaker can close again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from wheelcache.engine.stats import Meter
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.outages import Outages
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.near_cache.written_timeouts import NewTimeout, WrittenTimeouts
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.runtime.steps import Call, Outcome, PerDriver, StepsTo, result
from wheelcache.watch.recent_failures import Failure

logger = logging.getLogger("wheelcache")


FAILURES: Final = 3
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds until the next try, doubled after every try that fails."""


class CircuitBreaker:
    """Decides whether to make a call. The owner passes the time in seconds. Any thread may call the methods.

    Concurrent threads may count one failure too few or let two tries through. Avoiding that is not worth a lock.
    """

    __slots__ = ("_failures", "_next_try", "_pause")

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._next_try = 0.0

    def is_open(self) -> bool:
        """Return whether calls are refused, except for an occasional try."""
        return self._failures >= FAILURES

    def allows(self, now: float) -> bool:
        """Return whether to make a call now."""
        if not self.is_open():
            return True
        if now < self._next_try:
            return False
        # This call is the try. Other calls are still refused.
        self._next_try = now + self._pause
        return True

    def failed(self, now: float) -> bool:
        """Record a failure. Return whether it opened the breaker."""
        was_open = self.is_open()
        self._failures += 1
        if not self.is_open():
            return False
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if was_open else FIRST_PAUSE
        self._next_try = now + self._pause
        return not was_open

    def succeeded(self) -> bool:
        """Record a success. Return whether it closed the breaker."""
        was_open = self.is_open()
        self._failures = 0
        return was_open


@dataclass(eq=False, slots=True)
class GuardedStore:
    """The calls of one store.

    Args:
        name: the name of the cache in front of it, for logs.
        clock: returns seconds.
        rule: decides which errors are outages.
        timeouts: remembers the timeouts of the values that this process writes.
        epoch: shows whether a connection reports writes to the store; None if there is no such connection.
        watches_outages: whether calls are refused after repeated failures. Otherwise every call is made.
        start_jobs: called before each call.

    Attributes:
        rule, timeouts: see above.
    """

    weight: ClassVar[int] = 0

    _name: str
    _clock: Clock
    rule: OutageRule
    timeouts: WrittenTimeouts
    _epoch: TrustEpoch | None
    _watches_outages: bool
    _start_jobs: Callable[[], object]
    _breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    _outages: Outages = field(default_factory=Outages)
    _reads: Meter = field(default_factory=lambda: Meter("errors", "refused"))
    _writes: Meter = field(default_factory=lambda: Meter("errors", "refused"))
    _look_ups: Meter = field(default_factory=lambda: Meter("hits", "misses"))

    def read(self, function: Callable[..., Any], here: PerDriver | None = None) -> StepsTo[Any]:
        """Return the result of ``function``, which reads from the store; in a task, the result is awaited.

        Args:
            here: the argument of ``function``, which depends on the driver.

        Raises:
            StoreUnavailable: if the store failed recently, so the call is not made.
        """
        began = self._begin(self._reads)
        return self._end((yield Call(function, here)), began, self._reads)

    def write(
        self,
        function: Callable[..., Any],
        keys: Sequence[Any] = (),
        new_timeout: NewTimeout | None = None,
        here: PerDriver | None = None,
    ) -> StepsTo[Any]:
        """Do the same as ``read`` for a function that writes to the store.

        Args:
            keys: the keys whose timeouts the write changes.
            new_timeout: their new timeout; None if they keep theirs.
        """
        write = None if new_timeout is None else self.timeouts.start()
        took_effect: bool | None = None
        try:
            began = self._begin(self._writes)
            written = self._end((yield Call(function, here)), began, self._writes)
            if new_timeout is not None:
                took_effect = new_timeout.took_effect(written)
        except StoreUnavailable:
            took_effect = False
            raise
        finally:
            if new_timeout is not None and write is not None and took_effect is not False:
                self.timeouts.end(keys, write, new_timeout, is_certain=took_effect is True)
        return written

    def answered(self, found: int, asked: int) -> None:
        """Count the look-ups of ``asked`` keys without a copy; the store had values for ``found`` of them."""
        if found:
            self._look_ups.add("hits", found)
        if asked > found:
            self._look_ups.add("misses", asked - found)

    def figures(self) -> StoreStats:
        """Return the statistics of the store in this process."""
        reads, writes = _call_stats(self._reads), _call_stats(self._writes)
        # The connection is made at the first read.
        epoch = self._epoch if reads.uses else None
        return StoreStats(
            **self._look_ups.read()[0],
            reads=reads,
            writes=writes,
            breakers=int(self._watches_outages),
            open_breakers=int(self._breaker.is_open()),
            trackers=int(epoch is not None),
            trusted=int(epoch is not None and epoch.is_notified),
            refused_trackers=int(epoch is not None and epoch.is_refused),
        )

    def take_outage(self) -> Failure | None:
        """Return the failed calls since the last call of this method: see ``Outages.take``."""
        return self._outages.take()

    def after_fork_in_child(self) -> None:
        """Start counting from zero."""
        self._outages.start_over()
        self._reads.count_from_zero()
        self._writes.count_from_zero()
        self._look_ups.count_from_zero()
        self.timeouts.after_fork_in_child()

    def _begin(self, meter: Meter) -> float:
        """Return the time at which a call begins."""
        self._start_jobs()
        if self._watches_outages and not self._breaker.allows(self._clock()):
            meter.add("refused")
            raise StoreUnavailable(f"the store behind the cache {self._name!r} failed recently and is not called yet")
        return self._clock()

    def _end(self, outcome: Outcome, began: float, meter: Meter) -> Any:
        """Record the outcome of a call. Return its value, or raise its error."""
        error = outcome[1]
        is_outage = isinstance(error, Exception) and self.rule.is_outage(error)
        meter.ended(self._clock() - began, "errors" if is_outage else None)
        if error is None:
            if self._outages.began is not None:
                self._outages.succeeded(SystemClock.time())
            if self._watches_outages and self._breaker.succeeded():
                logger.warning("The store behind the cache %r answers again.", self._name)
            return outcome[0]
        if isinstance(error, Exception) and is_outage:
            self._failed(error)
        return result(outcome)

    def _failed(self, error: Exception) -> None:
        self._outages.failed(error, SystemClock.time())
        if self._watches_outages and self._breaker.failed(self._clock()):
            logger.warning(
                "The store behind the cache %r fails (%r); calling it rarely until it answers.", self._name, error
            )


def _call_stats(meter: Meter) -> CallStats:
    counts, seconds, buckets = meter.read()
    return CallStats(**counts, seconds=seconds, buckets=buckets)
