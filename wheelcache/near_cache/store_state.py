"""The knowledge of this process about the store behind a near cache: whether it answers, and its statistics.

The pattern of the circuit breaker is Michael Nygard's ("Release It!"). A closed breaker lets every call through. After
``FAILURES`` failures in a row it opens and lets no call through, except for an occasional try that shows whether the
breaker can close again.
"""

from __future__ import annotations

from typing import ClassVar, Final

from wheelcache.engine.failures import Failure
from wheelcache.engine.stats import Meter
from wheelcache.near_cache.outages import Outages
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.near_cache.trust_epoch import TrustEpoch
from wheelcache.near_cache.written_timeouts import WrittenTimeouts

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

    weight: ClassVar[int] = 0

    __slots__ = ("_epoch", "breaker", "look_ups", "outages", "reads", "timeouts", "writes")

    def __init__(self, epoch: TrustEpoch | None, timeouts: WrittenTimeouts, breaker: CircuitBreaker | None) -> None:
        self._epoch = epoch
        self.timeouts = timeouts
        self.breaker = breaker
        self.reads, self.writes = Meter("errors", "refused"), Meter("errors", "refused")
        self.look_ups = Meter("hits", "misses")
        self.outages = Outages()

    def figures(self) -> StoreStats:
        """Return the statistics."""
        reads, writes = _call_stats(self.reads), _call_stats(self.writes)
        # The connection is made at the first read.
        epoch = self._epoch if reads.uses else None
        return StoreStats(
            **self.look_ups.read()[0],
            reads=reads,
            writes=writes,
            breakers=int(self.breaker is not None),
            open_breakers=int(self.breaker is not None and self.breaker.is_open()),
            trackers=int(epoch is not None),
            trusted=int(epoch is not None and epoch.is_notified),
            refused_trackers=int(epoch is not None and epoch.is_refused),
        )

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


def _call_stats(meter: Meter) -> CallStats:
    counts, seconds, buckets = meter.read()
    return CallStats(**counts, seconds=seconds, buckets=buckets)
