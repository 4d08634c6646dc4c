"""What everything on a wheel shares: the lock, the clock, being advanced, and surviving a fork.

``Cache`` and ``Timers`` each own a wheel. Both guard it with one lock (re-entrant, because the garbage collector may
run a ``__del__`` that writes in the middle of a write), hold that lock for one batch at a time, and are advanced by
the wheel thread, by a ``ManualClock``, or, where no thread runs, by their own writes.
"""

from __future__ import annotations

import logging
import threading
from math import inf
from typing import Any, Final

from wheelcache import options
from wheelcache.core.timing_wheel import TimingWheel
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, ManualClock, steady, unfrozen
from wheelcache.runtime.frozen_time import find_time_machine
from wheelcache.runtime.held_lock import HeldLock
from wheelcache.runtime.wheel_thread import WheelThread, wheel_thread

logger = logging.getLogger("wheelcache")

BATCH: Final = 1024
"""Timers a hold of the lock: about 0.6 ms."""

BATCH_IN_LINE: Final = 32
"""Timers a write takes out where no thread does: more than the one it may add, so the wheel catches up."""

FAR_BEHIND: Final = 10
"""Intervals (but at least one second) of lag that are worth a warning."""


class _Closed:
    """Stands in for the lock of what was closed, so that every use raises that needs it."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __enter__(self) -> None:
        raise self._error

    _is_owned = __enter__

    def __exit__(self, *exc_info: object) -> None:
        """Never reached: nothing gets in."""


def driver_of(clock: Clock) -> WheelThread | ManualClock:
    """What advances the wheels that go by ``clock``."""
    return clock if isinstance(clock, ManualClock) else wheel_thread


class Driven:
    """A wheel, its lock and its clocks.

    Args:
        interval, slots: of the wheel.
        clock: a ``ManualClock``, which then drives this wheel, or any callable that returns seconds.

    Attributes:
        clock: tells what has expired. While time is frozen in a test, it tells the frozen time.
        steady: the clock that was given, which is never frozen. The wheel and everything that waits go by it.
        wake_at: when there is something to do next, in seconds on ``steady``; inf if nothing is scheduled.
    """

    __slots__ = (
        "__weakref__",
        "_driver",
        "_far_behind",
        "_finishing",
        "_forked",
        "_frozen",
        "_held",
        "_lag_warned",
        "_lock",
        "_patience",
        "_thawed_clock",
        "_wheel",
        "clock",
        "steady",
        "wake_at",
    )

    clock: Clock
    steady: Clock
    wake_at: float

    def __init__(self, interval: float, slots: int, clock: Clock) -> None:
        self.clock = unfrozen(options.function("clock", clock))
        self.steady = steady(self.clock)
        self._thawed_clock = self.clock
        self._wheel = TimingWheel(interval, slots, self.steady())
        self._lock: Any = threading.RLock()
        self._driver = driver_of(clock)
        self.wake_at = inf
        self._forked = False
        self._frozen = False
        self._patience = 2 * interval
        self._far_behind = max(1.0, FAR_BEHIND * interval)
        self._lag_warned = False
        self._finishing: set[int] = set()
        self._driver.attach(self)
        self._held = HeldLock()
        lifecycle.HELD.add_weakly(self)

    @property
    def lag(self) -> float:
        """Seconds since the wheel should have been advanced; 0.0 if it need not be."""
        return max(0.0, self.steady() - self.wake_at)

    @property
    def thread_state(self) -> str:
        """That of who advances the wheel: see ``WheelThread.state``."""
        return self._driver.state

    def freeze(self, clock: Clock) -> None:
        """Until ``thaw``, ``clock`` tells what has expired, and the wheel stands still.

        It takes nothing out, since what is expired now may not be when ``clock`` is moved back, or at the thaw. So the
        wheel never comes to a time that is still to come, whichever times ``clock`` shows.
        """
        lock = self._lock
        if isinstance(lock, _Closed):
            return
        with lock:
            self._frozen = True
            # In this order: what reads a time of the wheel and then the clock never mixes two time scales.
            self.wake_at = inf
            self.clock = clock

    def thaw(self) -> None:
        """Go by the clock that was given again."""
        lock = self._lock
        if isinstance(lock, _Closed) or not self._frozen:
            return
        with lock:
            self._frozen = False
            self.clock = self._thawed_clock
            self.wake_at = self._wheel.next_wake()
        if self.wake_at < inf:
            self._driver.wake()

    def advance(self, now: float, budget: int = BATCH) -> None:
        """Take out what is due at ``now``, at most ``budget`` timers of it. ``wake_at <= now`` tells there is more."""
        # A frozen time that was read just before the thaw may be years ahead.
        now = min(now, self.steady())
        self._warn_of_lag(now - self.wake_at)
        # What drives other wheels as well does not wait until a cache is loaded.
        with self._lock:
            if self._frozen:
                return
            due: list[Any] = []
            try:
                self._wheel.advance(now, budget, due)
                done = self._take_out(due)
                self.wake_at = self._wheel.next_wake()
            except BaseException:
                # Interrupted: they come out again at the next tick. Those that are gone by then are passed over.
                for timer in due:
                    self._wheel.schedule(timer, timer.due)
                raise
        thread = threading.get_ident()
        try:
            self._finishing.add(thread)
            self._finish(done)
        finally:
            self._finishing.discard(thread)

    def _take_out(self, due: list[Any]) -> list[Any]:
        """The timers in ``due`` left the wheel: take out what they are timers of. What that was, for ``_finish``.

        Called under the lock, and a second time with the same timers if it was interrupted. There may be timers of what
        is no longer there.
        """
        raise NotImplementedError

    def _finish(self, done: list[Any]) -> None:
        """What there is to do for what was taken out. Called without the lock; user code runs here."""
        raise NotImplementedError

    def _scheduled(self, due: float, now: float, written: int = 1) -> None:
        """Timers were set, now without the lock: wake who sleeps past ``due``, and do what is overdue."""
        wake_at = self.wake_at
        if due < wake_at or self._forked:
            self._forked = False
            if wake_at == inf:
                # Parked until now, so the wheel's tick is an old one, from which the new timers look far off. Moving
                # on to now files them as they should be.
                find_time_machine()
                self.advance(self.steady(), 2 * BATCH)
            else:
                with self._lock:
                    # Else another thread froze the time just now.
                    if not self._frozen:
                        self.wake_at = self._wheel.next_wake()
            if self.wake_at < wake_at:
                self._driver.wake()
        elif now - wake_at > self._patience and not self._finishing:
            # Not while somebody is at it: a listener that writes would be called by what it calls, as deep as there is
            # work, and periodic jobs would run in two threads at once.
            self.advance(now, max(BATCH_IN_LINE, 2 * written))

    def _interrupted(self) -> None:
        """A write was cut short by an exception: what it filed comes out in time all the same."""
        lock = self._lock
        if isinstance(lock, _Closed):
            return
        with lock:
            if self._frozen:
                # The thaw does it. Until then the wheel thread would look for what is due without end.
                return
            self.wake_at = min(self.wake_at, self._wheel.next_wake())
        if self.wake_at != inf:
            self._driver.wake()

    def _close(self, error: Exception) -> None:
        self.wake_at = inf
        self._lock = _Closed(error)

    def _check_open(self) -> None:
        """Called under a lock that may be the old one, by whoever waited for it when this was closed: then raises."""
        # Not _is_closed(): this is on the way of every set, and a call takes 40 ns.
        if isinstance(self._lock, _Closed):
            self._lock.__enter__()

    def _is_closed(self) -> bool:
        return isinstance(self._lock, _Closed)

    def _warn_of_lag(self, lag: float) -> None:
        if lag > self._far_behind:
            if not self._lag_warned:
                self._lag_warned = True
                logger.warning("%r is %.1f s behind; catching up.", self, lag)
        else:
            self._lag_warned = False

    def before_fork(self) -> None:
        """No other thread may be halfway through a change when memory is copied."""
        lock = self._lock
        if not isinstance(lock, _Closed):
            self._held.hold(lock)

    def after_fork(self, *, in_child: bool) -> None:
        if not in_child:
            self._held.release()
        elif not self._is_closed():
            self.after_fork_in_child()

    def after_fork_in_child(self) -> None:
        """Start afresh: a new lock, and nobody who advances the wheel until the next write sees that it has timers."""
        self._held.forget()
        self._lock = threading.RLock()
        self._finishing = set()
        self._forked = True
        self.wake_at = inf
