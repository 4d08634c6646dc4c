"""What advances one wheel: the wheel thread, a ``ManualClock``, or, where no thread runs, the writes themselves."""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import Any, Final, Protocol

from wheelcache.runtime.clock import Clock, ManualClock, steady, unfrozen
from wheelcache.runtime.frozen_time import find_time_machine
from wheelcache.runtime.wheel_thread import WheelThread, wheel_thread

logger = logging.getLogger("wheelcache")

BATCH: Final = 1024
"""Timers a step: about 0.6 ms."""

BATCH_IN_LINE: Final = 32
"""Timers a write takes out where no thread does: more than the one it may add, so the wheel catches up."""

FAR_BEHIND: Final = 10
"""Intervals (but at least one second) of lag that are worth a warning."""


def driver_of(clock: Clock) -> WheelThread | ManualClock:
    """What advances the wheels that go by ``clock``."""
    return clock if isinstance(clock, ManualClock) else wheel_thread


class Wheel(Protocol):
    """What is driven.

    Attributes:
        next_due: when there is something to do, in seconds on its clock; ``inf`` if nothing is scheduled.
    """

    @property
    def next_due(self) -> float: ...

    def take_due(self, budget: int) -> Any:
        """Take out what is due, looking at no more than ``budget`` timers. What there is to tell of it."""

    def tell(self, done: Any) -> None:
        """Run the user's code for what was taken out."""

    def use_clock(self, clock: Clock) -> None:
        """Read ``clock`` from now on."""


class WheelDriver:
    """Sees to it that a wheel is advanced.

    Args:
        wheel: what is driven.
        interval: seconds a tick of it.
        clock: a ``ManualClock``, which then drives the wheel, or any callable that returns seconds.

    Attributes:
        clock: the clock that was given, which is never frozen. What waits goes by it.
        is_frozen: a test has frozen the time. The wheel stands still until it thaws: what is expired now may not be
            when the test moves the time back.
        calls_for_thread: the next write has to wake the thread, whatever it wrote: after a fork there is none.
    """

    __slots__ = (
        "__weakref__",
        "_advancing",
        "_driver",
        "_far_behind",
        "_lag_warned",
        "_patience",
        "_thawed_clock",
        "_turning",
        "_wheel",
        "calls_for_thread",
        "clock",
        "is_frozen",
    )

    clock: Clock

    def __init__(self, wheel: Wheel, interval: float, clock: Clock) -> None:
        self._wheel = wheel
        self._thawed_clock = unfrozen(clock)
        self.clock = steady(self._thawed_clock)
        self._driver = driver_of(clock)
        self.is_frozen = False
        self.calls_for_thread = False
        self._patience = 2 * interval
        self._far_behind = max(1.0, FAR_BEHIND * interval)
        self._lag_warned = False
        # The threads that tell of what they took out.
        self._advancing: set[int] = set()
        # Re-entrant, since a finalizer that runs amid a step may write.
        self._turning: Any = threading.RLock()

    def start(self) -> None:
        """From here on the wheel thread, or the clock, knows of the wheel."""
        self._driver.attach(self)

    @property
    def wake_at(self) -> float:
        """When there is something to do next, in seconds on ``clock``."""
        return inf if self.is_frozen else self._wheel.next_due

    @property
    def lag(self) -> float:
        """Seconds since the wheel should have been advanced; 0.0 if it need not be."""
        wake_at = self.wake_at
        return 0.0 if wake_at == -inf else max(0.0, self.clock() - wake_at)

    @property
    def thread_state(self) -> str:
        """That of what advances the wheel: see ``WheelThread.state``."""
        return self._driver.state

    def freeze(self, clock: Clock) -> None:
        """Until ``thaw``, ``clock`` tells what has expired, and the wheel stands still."""
        # Under the lock, so that no step that began before takes out what expires by the frozen clock.
        with self._turning:
            self.is_frozen = True
            self._wheel.use_clock(clock)

    def thaw(self) -> None:
        """Go by the clock that was given again."""
        if self.is_frozen:
            self._wheel.use_clock(self._thawed_clock)
            self.is_frozen = False
            self.wake()

    def advance(self, now: float, budget: int = BATCH) -> None:
        """Take out what is due, at most ``budget`` timers of it. ``wake_at <= now`` tells that there is more."""
        self._warn_of_lag(now - self.wake_at)
        with self._turning:
            if self.is_frozen:
                return
            done = self._wheel.take_due(budget)
        thread = threading.get_ident()
        try:
            self._advancing.add(thread)
            self._wheel.tell(done)
        finally:
            self._advancing.discard(thread)

    def written(self, count: int = 1) -> None:
        """A write scheduled something earlier than all else, or found the wheel late.

        Args:
            count: how many timers it wrote.
        """
        if self.is_frozen:
            return
        now, wake_at = self.clock(), self.wake_at
        if self.calls_for_thread or now - wake_at <= self._patience:
            find_time_machine()
            self.wake()
            # Last, so that the next write wakes it if this one is interrupted.
            self.calls_for_thread = False
        elif not self._advancing:
            # Not while a thread is at it: a listener that writes would be called by what it calls, as deep as there is
            # work.
            self.advance(now, max(BATCH_IN_LINE, 2 * count))

    def wake(self) -> None:
        """Have the thread look at the wheel, if there is something to do."""
        if self.wake_at < inf:
            self._driver.wake()

    def after_fork_in_child(self) -> None:
        self._advancing = set()
        self._turning = threading.RLock()
        self.calls_for_thread = True

    def _warn_of_lag(self, lag: float) -> None:
        if self._far_behind < lag < inf:
            if not self._lag_warned:
                self._lag_warned = True
                logger.warning("%r is %.1f s behind; catching up.", self._wheel, lag)
        else:
            self._lag_warned = False
