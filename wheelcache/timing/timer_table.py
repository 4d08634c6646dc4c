"""The timers of one ``Timers``: keyed ones, broadcasts and periodic jobs, in one wheel under one lock.

A change is atomic: CPython switches threads, collects garbage and delivers exceptions from
outside after a call, at the start of a function and where a loop goes back, so a change is a few lines that neither
call nor loop. What is due moves to ``taken_out``, and leaves that when it runs: no timer is ever in neither.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from math import inf
from typing import Any

from wheelcache.core import Timer, TimingWheel
from wheelcache.errors import WheelClosed
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.held_lock import HeldLock
from wheelcache.timing.timer_kinds import Broadcast, JobTimer, KeyedTimer


class TimerTable:
    """Every method may be called by any thread. Keys are plain, as ``KeyProxies`` makes them.

    Args:
        wheel: an empty one.
        clock: seconds.

    Attributes:
        interval: seconds a tick.
        clock: the clock.
        jobs: those that run until they are removed from here.
        next_due: when ``take_due`` has work, or what it took out is to be run, in seconds; inf if nothing is scheduled.
        needs_driver: ``next_due`` became earlier, or a timer was set while the wheel is over two intervals late. The
            caller resets it, and has the wheel advanced.
        taken_out: what is due and was not run yet, in order.
    """

    __slots__ = (
        "_broadcasts",
        "_held",
        "_is_closed",
        "_lock",
        "_timers",
        "_wheel",
        "clock",
        "interval",
        "jobs",
        "needs_driver",
        "next_due",
        "taken_out",
    )

    def __init__(self, wheel: TimingWheel, clock: Clock) -> None:
        self._wheel = wheel
        self.interval = wheel.interval
        self.clock = clock
        # Re-entrant, since a finalizer that the collector runs amid a change may set a timer.
        self._lock = threading.RLock()
        self._held = HeldLock()
        self._is_closed = False
        # Each in the order of their setting.
        self._timers: dict[Hashable, KeyedTimer] = {}
        self._broadcasts: dict[int, Broadcast] = {}
        self.jobs: dict[JobTimer, None] = {}
        self.taken_out: dict[Timer, None] = {}
        self.next_due = inf
        self.needs_driver = False

    def __len__(self) -> int:
        with self._lock:
            self.check()
            return len(self._timers)

    def check(self) -> None:
        """
        Raises:
            WheelClosed: the timers were stopped.
        """
        if self._is_closed:
            raise WheelClosed("these timers were stopped")

    def set(self, key: Hashable, value: Any, delay: float) -> None:
        """Set the timer of a key, in the place of the one that it may have."""
        timer = KeyedTimer(key, value)
        now = self.clock()
        with self._lock:
            self.check()
            self._file(timer, now + delay, now)
            # No call until the key has the new timer.
            timers, old = self._timers, None
            if key in timers:
                old = timers[key]
                del timers[key]
            timers[key] = timer
            if old is not None:
                self._wheel.cancel(old)

    def restore(self, key: Hashable, value: Any, delay: float) -> bool:
        """Set the timer of a key that has none, or take it out at once if ``delay`` is over. False if it has one."""
        timer = KeyedTimer(key, value)
        now = self.clock()
        with self._lock:
            self.check()
            if key in self._timers:
                return False
            if delay > 0:
                self._file(timer, now + delay, now)
                self._timers[key] = timer
            else:
                self.taken_out[timer] = None
        return True

    def move(self, key: Hashable, delay: float) -> bool:
        """Give a timer another time, or take it out at once if that is within an interval. False if there is none."""
        now = self.clock()
        with self._lock:
            self.check()
            timer = self._timers.get(key)
            if timer is None:
                return False
            if delay >= self.interval:
                self._file(timer, now + delay, now)
            else:
                timers = self._timers
                if key in timers and timers[key] is timer:
                    self.taken_out[timer] = None
                    del timers[key]
                self._wheel.cancel(timer)
        return True

    def remove(self, key: Hashable) -> bool:
        """Take a timer away. False if there is none."""
        with self._lock:
            self.check()
            timers = self._timers
            if key not in timers:
                return False
            timer = timers[key]
            del timers[key]
            self._wheel.cancel(timer)
        return True

    def remove_all(self) -> list[KeyedTimer]:
        """Take all keyed timers away. All at once, or one could both be here and come out in time."""
        with self._lock:
            self.check()
            timers, self._timers = self._timers, {}
        removed = list(timers.values())
        for timer in removed:
            # By one, or the lock would be held for as long as there are timers. The wheel may not have one any more.
            with self._lock:
                self._wheel.cancel(timer)
        return removed

    def keyed(self) -> tuple[list[KeyedTimer], float]:
        """All keyed timers, in the order of their setting, and the time."""
        with self._lock:
            self.check()
            return list(self._timers.values()), self.clock()

    def event(self, delay: float) -> threading.Event:
        """The event that is set in ``delay`` seconds, together with all of the same tick."""
        now = self.clock()
        due = now + delay
        with self._lock:
            self.check()
            tick = self._wheel.tick_of(due)
            broadcast = self._broadcasts.get(tick)
            if broadcast is None:
                broadcast = Broadcast(tick)
                self._file(broadcast, due, now)
                self._broadcasts[tick] = broadcast
            return broadcast.event

    def add_job(self, job: JobTimer) -> None:
        now = self.clock()
        with self._lock:
            self.check()
            self._file(job, now + job.period, now)
            self.jobs[job] = None

    def repeat_job(self, job: JobTimer, pause: float) -> None:
        """Have a job come out again in ``pause`` seconds, unless it was removed meanwhile."""
        now = self.clock()
        with self._lock:
            if job in self.jobs:
                self._file(job, now + pause, now)

    def take_due(self, budget: int) -> None:
        """Move what is due to ``taken_out``, looking at no more than ``budget`` timers.

        ``next_due`` stays as it is until ``settle``: an exception from outside that comes in between loses nothing.
        """
        # What was replaced or removed goes when the lock is free: its value may have a finalizer.
        gone: list[Any] = []
        with self._lock:
            now, wheel = self.clock(), self._wheel
            while budget > 0 and (slot := wheel.turn(now)) is not None:
                reached = wheel.time_of(wheel.tick)
                while budget > 0 and (timer := slot.next) is not slot and timer is not None:
                    budget -= 1
                    if timer.due > reached:
                        wheel.schedule(timer, timer.due)
                    else:
                        gone.append(timer)
                        self._take_out(timer)

    def settle(self) -> None:
        """What was taken out has run: set ``next_due`` anew, unless more was taken out meanwhile.

        It never gets earlier: no timer that is left is due before.
        """
        with self._lock:
            if not self.taken_out:
                self.next_due = max(self.next_due, self._wheel.next_wake())

    def hurry(self) -> None:
        """An exception from outside came: what was taken out and did not run is due now."""
        with self._lock:
            if self.taken_out:
                self.next_due = min(self.next_due, self.clock())

    def close(self) -> list[threading.Event]:
        """Drop all timers and jobs; from here on ``check`` raises. The events that were still to be set."""
        with self._lock:
            # First, since a finalizer may run amid the rest. May be called again after an interruption.
            self._is_closed = True
            timers, self._timers, self.jobs = self._timers, {}, {}
            self._wheel = self._wheel.emptied()
            self.next_due = inf
        for timer in timers.values():
            # Timers of a wheel that was left point at each other, and would wait for the garbage collector.
            timer.prev = timer.next = None
        pending = (*self._broadcasts.values(), *tuple(self.taken_out))
        return [timer.event for timer in pending if isinstance(timer, Broadcast)]

    def before_fork(self) -> None:
        self._held.hold(self._lock)

    def after_fork(self, *, in_child: bool) -> None:
        """In the child: there are no timers."""
        if not in_child:
            self._held.release()
            return
        self._held.forget()
        self._lock = threading.RLock()
        self._timers, self._broadcasts, self.jobs = {}, {}, {}
        # In place: a job that forked is amid a walk through it.
        self.taken_out.clear()
        self._wheel = self._wheel.emptied()
        self.next_due = inf
        self.needs_driver = False

    # Below: under the lock.

    def _file(self, timer: Timer, due: float, now: float) -> None:
        """File a timer in the wheel, out of the slot that it may be in. No call comes after it is filed."""
        wheel = self._wheel
        while True:
            if self.next_due == inf:
                # Idle until now: the wheel's tick is an old one, from which the new timer would look far off.
                wheel.turn(now)
            tick = wheel.tick
            wakes_at = wheel.next_time(due)
            wheel.schedule(timer, due)
            if wheel.tick == tick:
                break
            # A finalizer that the collector ran meanwhile turned the wheel, perhaps past the slot.
        if wakes_at < self.next_due or now - self.next_due > 2 * self.interval:
            self.needs_driver = True
        if wakes_at < self.next_due:
            self.next_due = wakes_at

    def _take_out(self, timer: Any) -> None:
        """Out of the wheel, and to ``taken_out`` if it is live. Nothing here is a call, so it happens as one step."""
        timer.prev.next, timer.next.prev = timer.next, timer.prev
        timer.prev = timer.next = None
        kind = timer.__class__
        if kind is KeyedTimer:
            timers = self._timers
            if timer.key in timers and timers[timer.key] is timer:
                self.taken_out[timer] = None
                del timers[timer.key]
        elif kind is Broadcast:
            self.taken_out[timer] = None
            broadcasts = self._broadcasts
            if timer.tick in broadcasts and broadcasts[timer.tick] is timer:
                del broadcasts[timer.tick]
        elif timer in self.jobs:
            self.taken_out[timer] = None
