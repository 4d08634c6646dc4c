"""Advances one wheel: on the wheel thread, on a ``ManualClock``, or during writes if no thread can run.

A ``ManualClock`` stands still until a test moves it. No thread runs then: moving the clock advances the wheels.
"""

from __future__ import annotations

import logging
import threading
from math import inf, isfinite
from typing import Any, Final, Protocol

from wheelcache.runtime.clock import Clock, unfrozen
from wheelcache.runtime.shared_objects import WeakRegistry
from wheelcache.runtime.wheel_thread import Steppable, WheelThread, wheel_thread

logger = logging.getLogger("wheelcache")

BATCH: Final = 1024
"""Timers per step, which takes about 0.6 ms."""

BATCH_IN_LINE: Final = 32
"""Timers that a write removes if no thread runs. A write adds at most one timer, so the wheel catches up."""

FAR_BEHIND: Final = 10
"""The lag, in intervals, that is worth a warning if it is also at least one second."""

LATEST: Final = float(1 << 40)
"""The largest time of a ``ManualClock`` in seconds: 34,865 years, at which a float still resolves a quarter of a
millisecond. At much later times, adding a period would not change the time, and a periodic job would be due forever."""


class ManualClock:
    """A clock for tests: ``clock()`` returns the time, ``clock.advance(seconds)`` moves it.

    A move stops, in order, at every time at which one of its caches or timers has work, so a jump of an hour has the
    same effects as an hour. In a jump of years, samples of a cache's figures are taken for the last hour only.
    """

    state: Final = "not started"
    """The state of the wheel thread, which is not used here."""

    def __init__(self, now: float = 0.0) -> None:
        if not -LATEST <= now <= LATEST:
            raise ValueError(f"now must be a number of seconds from {-LATEST:.0f} to {LATEST:.0f}, not {now!r}")
        self._now = now
        self._target = now
        self._driven: WeakRegistry[Steppable] = WeakRegistry()
        self._moving = threading.Lock()
        self._mover: int | None = None

    def __call__(self) -> float:
        return self._now

    @property
    def target(self) -> float:
        """The time to which the clock is being moved; the time itself while it stands still."""
        return max(self._now, self._target)

    def attach(self, driven: Steppable) -> None:
        """Advance ``driven`` from now on. The reference to it is weak."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Do nothing: due work is done when the clock moves."""

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``, and do the work that falls due on the way.

        Raises:
            ValueError: ``seconds`` is negative or not finite, or the clock would show more than ``LATEST``.
            RuntimeError: called by work that this clock is advancing.
        """
        if not (seconds >= 0 and isfinite(seconds)):
            raise ValueError(f"seconds must be a finite number >= 0, not {seconds!r}")
        if self._mover == threading.get_ident():
            raise RuntimeError("a ManualClock cannot be advanced by work that it is advancing")
        if self._now + seconds > LATEST:
            raise ValueError(f"the clock shows {self._now!r}, and at most {LATEST:.0f}: it cannot move by {seconds!r}")
        with self._moving:
            self._mover = threading.get_ident()
            self._target = self._now + seconds
            try:
                self._advance(self._target)
            finally:
                # The current time, if this was interrupted.
                self._target = self._now
                self._mover = None

    def _advance(self, target: float) -> None:
        while True:
            driven = min(self._driven, key=lambda each: each.wake_at, default=None)
            if driven is None or driven.wake_at > target:
                break
            self._now = max(self._now, driven.wake_at)
            driven.advance(self._now)
        self._now = target


def driver_of(clock: Clock) -> WheelThread | ManualClock:
    """Return the object that advances the wheels on ``clock``."""
    return clock if isinstance(clock, ManualClock) else wheel_thread


class Wheel(Protocol):
    """The wheel that a driver advances.

    Attributes:
        next_due: the due time of the next timer, in seconds on the wheel's clock; ``inf`` if nothing is scheduled.
    """

    @property
    def next_due(self) -> float: ...

    def take_due(self, budget: int) -> Any:
        """Remove due timers, checking at most ``budget`` timers. Return the argument for ``notify``."""

    def notify(self, done: Any) -> None:
        """Run the user's code for the removed timers."""

    def use_clock(self, clock: Clock) -> None:
        """Read ``clock`` from now on."""


class WheelDriver:
    """Advances a wheel when its timers are due.

    Args:
        wheel: the wheel to advance.
        interval: seconds per tick of the wheel.
        clock: a ``ManualClock``, which then drives the wheel, or any callable that returns seconds.

    Attributes:
        clock: the given clock, which no test freezes. Waiting threads use it.
        is_frozen: whether a test has frozen the time. The wheel stands still until the thaw, because the test may move
            the time back to before the expiry of an entry.
        calls_for_thread: whether the next write must wake the thread even if it scheduled no timer. True after a fork,
            since the child has no thread.
    """

    def __init__(self, wheel: Wheel, interval: float, clock: Clock) -> None:
        self._wheel = wheel
        self.clock = unfrozen(clock)
        self._driver = driver_of(clock)
        self.is_frozen = False
        self._thawed_at = -inf
        self.calls_for_thread = False
        self._patience = 2 * interval
        self._far_behind = max(1.0, FAR_BEHIND * interval)
        self._lag_warned = False
        # The threads that run the user's code for removed timers.
        self._advancing: set[int] = set()
        # Re-entrant, since a finalizer that runs during a step may write.
        self._turning: Any = threading.RLock()

    def start(self) -> None:
        """Attach the wheel to the wheel thread or to its clock."""
        self._driver.attach(self)

    @property
    def wake_at(self) -> float:
        """The due time of the next timer, in seconds on ``clock``; ``inf`` while the time is frozen."""
        return inf if self.is_frozen else self._wheel.next_due

    @property
    def lag(self) -> float:
        """Seconds since the wheel should have been advanced; 0.0 if no timer is due."""
        due = self._due_since
        return 0.0 if due == -inf else max(0.0, self.clock() - due)

    @property
    def _due_since(self) -> float:
        """The time since which the wheel could have advanced: entries set in the frozen past are due at the thaw."""
        return max(self.wake_at, self._thawed_at)

    @property
    def thread_state(self) -> str:
        """The state of the thread that advances the wheel: see ``WheelThread.state``."""
        return self._driver.state

    def freeze(self, clock: Clock) -> None:
        """Let ``clock`` decide which entries have expired, and stop the wheel, until ``thaw``."""
        # Under the lock, so that a step that began earlier does not remove entries by the frozen clock.
        with self._turning:
            self.is_frozen = True
            self._wheel.use_clock(clock)

    def thaw(self) -> None:
        """Use the given clock again."""
        if self.is_frozen:
            self._wheel.use_clock(self.clock)
            self._thawed_at = self.clock()
            self.is_frozen = False
            self.wake()

    def advance(self, now: float, budget: int = BATCH) -> None:
        """Remove due timers, at most ``budget`` of them. Afterwards, ``wake_at <= now`` if more are due."""
        self._warn_of_lag(now - self._due_since)
        with self._turning:
            if self.is_frozen:
                return
            done = self._wheel.take_due(budget)
        thread = threading.get_ident()
        try:
            self._advancing.add(thread)
            self._wheel.notify(done)
        finally:
            self._advancing.discard(thread)

    def written(self, count: int = 1) -> None:
        """Handle a write that scheduled the earliest timer, or found that the wheel is late.

        Args:
            count: the number of timers that the write added.
        """
        if self.is_frozen:
            return
        now, wake_at = self.clock(), self.wake_at
        if self.calls_for_thread or now - wake_at <= self._patience:
            self.wake()
            # Last, so that the next write wakes it if this one is interrupted.
            self.calls_for_thread = False
        elif not self._advancing:
            # Not while a thread runs the user's code: a listener that writes would call itself recursively, once per
            # batch of due timers.
            self.advance(now, max(BATCH_IN_LINE, 2 * count))

    def wake(self) -> None:
        """Wake the thread if a timer is scheduled."""
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
