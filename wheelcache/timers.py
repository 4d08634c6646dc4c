"""Keyed timers for anyone: ten thousand delayed calls on one wheel and one thread.

The interface is that of go-zero's ``TimingWheel`` (SetTimer, MoveTimer, RemoveTimer, Drain), with two things beside it:
``after``, a broadcast to all that wait for the same tick, and ``every``, periodic jobs in the manner of Redis's
time events, where the job says when it wants to run again.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from math import inf
from operator import attrgetter
from typing import Any, Final, TypeVar

from wheelcache import options
from wheelcache.core import TimingWheel
from wheelcache.keys import KeyProxies, unwrap
from wheelcache.persistence.saved_timers import load_timers, save_timers
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, SystemClock, steady, unfrozen
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.runtime.worker_pool import WorkerPool
from wheelcache.timing.timer_kinds import Job, JobTimer
from wheelcache.timing.timer_runner import Execute, TimerRunner
from wheelcache.timing.timer_table import TimerTable

T = TypeVar("T")

WORKERS: Final = 4
"""Threads that run ``execute``. Timers are for short calls; a long one should hand its work on."""


class Timers:
    """Timers by key, events after a delay, and periodic jobs.

    A timer never fires early, and at most one ``interval`` late, given a processor to run on; ``lag`` tells by how much
    it is behind. Timers belong to the process that set them: the child of a fork starts with none.

    Args:
        interval: seconds a tick, > 0: how exact timers are.
        slots: ticks a turn of the wheel's finest level, >= 1. Delays may be longer.
        execute: ``execute(key, value)``, called on a pool of four threads when a timer's time comes. An exception in it
            is logged with the key.
        clock: seconds; a ``ManualClock`` moves the wheel itself, otherwise the process's wheel thread does.

    Raises:
        TypeError, ValueError: naming the argument.
    """

    __slots__ = ("__weakref__", "_driver", "_keys", "_name", "_pool", "_runner", "_table")

    def __init__(self, interval: float, slots: int, execute: Execute, *, clock: Clock = SystemClock.steady) -> None:
        execute = options.function("execute", execute)
        # Timers do not follow the time that a test freezes.
        now = steady(unfrozen(options.function("clock", clock)))
        self._table = TimerTable(TimingWheel(interval, slots, now()), now)
        self._name = f"<Timers every {self._table.interval} s on {slots} slots>"
        self._pool = WorkerPool(WORKERS, inf, name="wheelcache-timers", finishes=True)
        self._runner = TimerRunner(self._name, self._table, execute, self._pool)
        self._driver = WheelDriver(self._runner, interval, clock)
        self._keys = KeyProxies()
        # Last: from here on the wheel thread and forks know of this object.
        self._driver.start()
        lifecycle.HELD.add_weakly(self)

    def __repr__(self) -> str:
        return self._name

    def __len__(self) -> int:
        """How many keys have a timer."""
        return len(self._table)

    @property
    def clock(self) -> Clock:
        """The clock that was given, which no test freezes."""
        return self._driver.clock

    @property
    def lag(self) -> float:
        """Seconds since the wheel should have been advanced; 0.0 if it need not be."""
        return self._driver.lag

    @property
    def thread_state(self) -> str:
        """That of what advances the wheel: see ``WheelThread.state``."""
        return self._driver.thread_state

    def set_timer(self, key: Hashable, value: Any, delay: float) -> None:
        """Call ``execute(key, value)`` in ``delay`` seconds. A key that has a timer gets the new value and time.

        Raises:
            ValueError, TypeError: ``key`` is None or not hashable, or ``delay`` is not a finite number > 0.
            WheelClosed: after ``stop``.
        """
        key, delay = self._adapt(key), options.seconds("delay", delay)
        self._scheduling(lambda: self._table.set(key, value, delay))

    def move_timer(self, key: Hashable, delay: float) -> bool:
        """Give a timer ``delay`` seconds from now; under one interval means at once. False if ``key`` has no timer.

        Raises:
            ValueError, TypeError, WheelClosed: as ``set_timer``.
        """
        key, delay = self._adapt(key), options.seconds("delay", delay)
        return self._scheduling(lambda: self._table.move(key, delay))

    def remove_timer(self, key: Hashable) -> bool:
        """Take a timer away before its time. False if ``key`` has none.

        Raises:
            ValueError, TypeError, WheelClosed: as ``set_timer``.
        """
        return self._table.remove(self._adapt(key))

    def drain(self, fn: Callable[[Any, Any], object]) -> None:
        """Take every pending timer away, then call ``fn(key, value)`` for each, here, in no particular order.

        An exception in ``fn`` is logged with the key; the others still get their call.

        Raises:
            TypeError: ``fn`` is not callable.
            WheelClosed: after ``stop``.
        """
        options.function("fn", fn)
        for timer in self._table.remove_all():
            self._runner.call(fn, timer)

    def save(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Write every pending timer to a file, with the time that is left until it fires. How many.

        They stay pending. One that fires while the others are written is in the file all the same, and fires again when
        that is loaded; so does one that was moved or removed meanwhile.

        Args:
            path: of the file, which is replaced when all is written and synced; what was there stays if it cannot be.
            secret: what the file is to be signed with, so that ``load`` with the same can tell it from others.

        Raises:
            TypeError: a key or value cannot be pickled; names the key. Nothing is written.
            OSError: the file cannot be written. Nothing is left of it.
            WheelClosed: after ``stop``.
            SnapshotRefused: this is Windows.
        """
        pending, now = self._table.keyed()
        saved_at = time.time()
        # A timer that is moved meanwhile has another time by now; of equal ones the order is that of their setting.
        pending.sort(key=attrgetter("due"))
        timers = ((unwrap(timer.key), timer.value, timer.due - now) for timer in pending)
        return save_timers(path, timers, saved_at=saved_at, secret=secret)

    def load(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Set the timers of a file that ``save`` wrote. Those that are due by now fire at once, in order. How many.

        The time between counts. A key that has a timer keeps it. A file that is damaged, foreign, or not this user's
        own to write, is not loaded, or not beyond the damage; it is renamed to ``<name>.refused``, and one warning says
        why. None is no error: then there is nothing to load.

        Args:
            secret: what the file must have been signed with.

        Raises:
            WheelClosed: after ``stop``.
        """
        self._table.check()
        return load_timers(path, self._restore, owner=repr(self), clock=self.clock, secret=secret)

    def after(self, delay: float) -> threading.Event:
        """An event that is set in ``delay`` seconds, or when the timers stop.

        All callers whose time falls in the same tick get the same event: ten thousand waiters cost one object.

        Raises:
            ValueError, TypeError: ``delay`` is not a finite number > 0.
            WheelClosed: after ``stop``.
        """
        delay = options.seconds("delay", delay)
        return self._scheduling(lambda: self._table.event(delay))

    def every(self, period: float, fn: Job) -> None:
        """Call ``fn()`` in ``period`` seconds, and again and again, on the thread that drives the wheel.

        Where that thread cannot run, writes drive the wheel, and the job runs in theirs.

        Args:
            period: seconds from one run's end to the next run, > 0.
            fn: returns None (again after the period), a number > 0 (seconds until the next run), or ``STOP``. If it
                raises, or returns anything else, that is logged, and it runs again after the period.

        Raises:
            ValueError, TypeError: naming the argument.
            WheelClosed: after ``stop``.
        """
        job = JobTimer(options.seconds("period", period), options.function("fn", fn))
        self._scheduling(lambda: self._table.add_job(job))

    def stop(self) -> None:
        """Drop all timers and jobs, and set all events. May be called again; all else raises WheelClosed."""
        for event in self._table.close():
            event.set()
        self._pool.stop()

    def before_fork(self) -> None:
        """No other thread may be amid a change when the memory is copied."""
        self._table.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        """In the child there are no timers, until it sets some."""
        self._table.after_fork(in_child=in_child)
        if in_child:
            self._keys.forget_locks()
            self._driver.after_fork_in_child()

    def _restore(self, key: Any, value: Any, left: float) -> bool:
        plain = self._adapt(key)
        return self._scheduling(lambda: self._table.restore(plain, value, left))

    def _scheduling(self, schedule: Callable[[], T]) -> T:
        """What ``schedule()`` returns. What it made due runs, and the wheel thread learns of what it scheduled."""
        table, driver = self._table, self._driver
        try:
            result = schedule()
            if table.taken_out:
                self._runner.submit_all()
            if table.needs_driver or driver.calls_for_thread:
                table.needs_driver = False
                driver.written()
                if table.needs_driver:
                    # A job that ran here was filed earlier than all else.
                    driver.wake()
        except BaseException:
            # Perhaps from outside, amid this.
            table.hurry()
            driver.wake()
            raise
        return result

    def _adapt(self, key: Hashable) -> Any:
        if key is None:
            raise ValueError("key must not be None")
        return self._keys.adapt(key)
