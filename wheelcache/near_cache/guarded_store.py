"""Calls of the store behind a near cache. While the store is down, they fail immediately instead of after a timeout.

The pattern of the circuit breaker is Michael Nygard's ("Release It!"). A closed breaker lets every call through. After
``FAILURES`` failures in a row it opens and lets no call through, except for an occasional try that shows whether the
breaker can close again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from wheelcache.engine.figures import Figures
from wheelcache.engine.stats import Meter
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.near_cache.outages import Outages
from wheelcache.near_cache.store_calls import StoreCall, Stores, StoreWrite, Written
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.near_cache.written_timeouts import WrittenTimeouts
from wheelcache.runtime.clock import Clock, SystemClock
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


class StoreState:
    """The knowledge of this process about one store, and its statistics.

    Args:
        epoch: shows whether a connection reports writes to the store; None if there is no such connection.
        timeouts: remembers the timeouts of the values that this process writes.
        breaker: refuses calls after repeated failures; None if every call is made.

    Attributes:
        timeouts, breaker: see above.
        reads, writes: the statistics of the calls.
        look_ups: those of the look-ups without a copy.
        outages: the failed calls.
    """

    __slots__ = ("_epoch", "breaker", "look_ups", "outages", "reads", "timeouts", "writes")

    def __init__(self, epoch: TrustEpoch | None, timeouts: WrittenTimeouts, breaker: CircuitBreaker | None) -> None:
        self._epoch = epoch
        self.timeouts = timeouts
        self.breaker = breaker
        self.reads, self.writes = Meter("errors", "refused"), Meter("errors", "refused")
        self.look_ups = Meter("hits", "misses")
        self.outages = Outages()

    def answered(self, found: int, asked: int) -> None:
        """Count the look-ups of ``asked`` keys without a copy; the store had values for ``found`` of them."""
        if found:
            self.look_ups.add("hits", found)
        if asked > found:
            self.look_ups.add("misses", asked - found)

    def figures(self) -> Figures:
        """Return the statistics."""
        reads, writes = _call_stats(self.reads), _call_stats(self.writes)
        # The connection is made at the first read.
        epoch = self._epoch if reads.uses else None
        stats = StoreStats(
            **self.look_ups.read()[0],
            reads=reads,
            writes=writes,
            breakers=int(self.breaker is not None),
            open_breakers=int(self.breaker is not None and self.breaker.is_open()),
            trackers=int(epoch is not None),
            trusted=int(epoch is not None and epoch.is_notified),
            refused_trackers=int(epoch is not None and epoch.is_refused),
        )
        return Figures(stats)

    def take_outage(self) -> Failure | None:
        """Return the failed calls since the last call of this method: see ``Outages.take``."""
        return self.outages.take()

    def after_fork_in_child(self) -> None:
        """Start counting from zero."""
        self.outages.start_over()
        self.reads.count_from_zero()
        self.writes.count_from_zero()
        self.look_ups.count_from_zero()
        self.timeouts.after_fork_in_child()


class GuardedStore:
    """The calls of one store.

    Args:
        name: the name of the cache in front of it, for logs.
        clock: returns seconds.
        rule: decides which errors are outages.
        state: records the calls.
        start_jobs: called before each call.

    Attributes:
        rule, state: see above.
    """

    __slots__ = ("_clock", "_name", "_start_jobs", "rule", "state")

    def __init__(
        self, name: str, clock: Clock, rule: OutageRule, state: StoreState, start_jobs: Callable[[], object]
    ) -> None:
        self._name = name
        self._clock = clock
        self._start_jobs = start_jobs
        self.rule = rule
        self.state = state

    def read(self, function: Callable[..., Any], stores: Stores | None = None) -> StoreCall:
        """Return the step of a ``function`` that reads from the store.

        It sends StoreUnavailable if the store failed recently, so the call is not made.
        """
        return StoreCall(self, self.state.reads, function, stores)

    def write(self, function: Callable[..., Any], stores: Stores | None, written: Written) -> StoreWrite:
        """Do the same for a function that writes to the store."""
        return StoreWrite(self, self.state.writes, function, stores, written)

    # The steps call these.

    def begin(self, meter: Meter) -> float:
        """Return the time at which a call begins.

        Raises:
            StoreUnavailable: if the call must not be made.
        """
        self._start_jobs()
        began, breaker = self._clock(), self.state.breaker
        if breaker is not None and not breaker.allows(began):
            meter.add("refused")
            raise StoreUnavailable(f"the store behind the cache {self._name!r} failed recently and is not called yet")
        return began

    def succeeded(self, meter: Meter, began: float) -> None:
        """Record a call that has returned."""
        meter.ended(self._clock() - began)
        state = self.state
        if state.outages.began is not None:
            state.outages.succeeded(SystemClock.time())
        if state.breaker is not None and state.breaker.succeeded():
            logger.warning("The store behind the cache %r answers again.", self._name)

    def failed(self, meter: Meter, began: float, error: BaseException) -> None:
        """Record a call that has raised ``error``."""
        now = self._clock()
        if not isinstance(error, Exception) or not self.rule.is_outage(error):
            meter.ended(now - began)
            return
        meter.ended(now - began, "errors")
        self.state.outages.failed(error, SystemClock.time())
        if self.state.breaker is not None and self.state.breaker.failed(now):
            logger.warning(
                "The store behind the cache %r fails (%r); calling it rarely until it answers.", self._name, error
            )


def _call_stats(meter: Meter) -> CallStats:
    counts, seconds, buckets = meter.read()
    return CallStats(**counts, seconds=seconds, buckets=buckets)
