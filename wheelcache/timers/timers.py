"""Keyed timers for general use: ten thousand delayed calls on one wheel and one thread.

The interface is that of go-zero's ``TimingWheel`` (SetTimer, MoveTimer, RemoveTimer, Drain), with two additions:
``after``, a broadcast to all callers that wait for the same tick, and ``every``, periodic jobs in the manner of Redis's
time events, which return the time until their next run. ``Timers`` is a thin layer over two cores: see ``timer_wheel``.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any

from wheelcache.core.contract import Removals
from wheelcache.engine import options
from wheelcache.engine.keys import unwrap
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.timers.saved_timers import load_timers, save_timers
from wheelcache.timers.timer_wheel import Execute, Job, PeriodicJob, TimerWheel


class Timers:
    """Timers by key, events after a delay, and periodic jobs.

    A timer never fires early, and fires at most one ``interval`` late unless the processor is busy; ``lag`` shows the
    delay. Timers belong to the process that set them: the child of a fork starts without timers.

    Args:
        interval: seconds per tick, > 0: the precision of timers.
        execute: ``execute(key, value)``, called on a pool of four threads when a timer fires. An exception in it is
            logged with the key.
        clock: returns seconds. A ``ManualClock`` advances the timers itself; with any other clock, the wheel thread of
            the process does.

    Raises:
        TypeError, ValueError: if an argument is invalid. The message names it.
    """

    def __init__(self, interval: float, execute: Execute, *, clock: Clock = SystemClock.steady) -> None:
        execute = options.function("execute", execute)
        interval = options.interval("interval", interval)
        self._wheel = TimerWheel(f"<Timers every {interval} s>", interval, options.function("clock", clock), execute)
        # Last: register with the wheel thread and the fork hooks.
        self._wheel.driver.start()
        lifecycle.HELD.add_weakly(self._wheel)

    def __repr__(self) -> str:
        return repr(self._wheel)

    def __len__(self) -> int:
        """Return the number of keys that have a timer."""
        self._wheel.check()
        return len(self._wheel.timers)

    @property
    def clock(self) -> Clock:
        """The clock that timers fire by. No test freezes it."""
        return self._wheel.clock

    @property
    def lag(self) -> float:
        """Seconds since the timers should have been advanced; 0.0 if nothing is due."""
        return self._wheel.driver.lag

    @property
    def thread_state(self) -> str:
        """The state of the wheel thread: see ``WheelThread.state``."""
        return self._wheel.driver.thread_state

    def set_timer(self, key: Hashable, value: Any, delay: float) -> None:
        """Call ``execute(key, value)`` in ``delay`` seconds. This replaces an existing timer of ``key``.

        Raises:
            ValueError, TypeError: if ``key`` is None or not hashable, or ``delay`` is not a finite number > 0.
            WheelClosed: after ``stop``.
        """
        key, delay = self._adapt(key), options.seconds("delay", delay)
        self._wheel.schedule(self._wheel.timers.set, key, value, delay)

    def move_timer(self, key: Hashable, delay: float) -> bool:
        """Give a timer a new delay. Return False if ``key`` has no timer.

        If ``delay`` is less than one interval, the timer fires immediately.

        Raises:
            ValueError, TypeError, WheelClosed: as in ``set_timer``.
        """
        key, delay = self._adapt(key), options.seconds("delay", delay)
        return self._wheel.move(key, delay)

    def remove_timer(self, key: Hashable) -> bool:
        """Remove a timer before it fires. Return False if ``key`` has no timer.

        Raises:
            ValueError, TypeError, WheelClosed: as in ``set_timer``.
        """
        # Not the result of ``delete``, which is None for a timer that is due before its tick.
        removed: Removals = []
        self._wheel.timers.delete(self._adapt(key), removed=removed)
        return bool(removed)

    def drain(self, fn: Callable[[Any, Any], object]) -> None:
        """Remove every pending timer, then call ``fn(key, value)`` for each, in this thread, in no particular order.

        An exception in ``fn`` is logged with the key; the other timers still get their call.

        Raises:
            TypeError: if ``fn`` is not callable.
            WheelClosed: after ``stop``.
        """
        options.function("fn", fn)
        self._wheel.check()
        for key, value, _ in self._wheel.remove_all():
            self._wheel.call(fn, key, value)

    def save(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Write every pending timer to a file, with the time left until it fires. Return their number.

        The timers stay pending. A timer that fires, is moved or is removed during the save is in the file nevertheless,
        and fires again when the file is loaded.

        Args:
            path: the file. It is replaced after everything was written and synced; otherwise the old file stays.
            secret: signs the file, so that ``load`` with the same secret refuses other files.

        Raises:
            TypeError: if a key or value cannot be pickled. The message names the key. No file is written.
            OSError: if the file cannot be written. The incomplete file is removed.
            WheelClosed: after ``stop``.
            FileUnusable: on Windows.
        """
        now, saved_at = self.clock(), time.time()
        timers = ((unwrap(each.key), each.value, each.times.expires_at - now) for each in self._wheel.pending())
        return save_timers(path, timers, saved_at=saved_at, secret=secret)

    def load(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Set the timers of a file that ``save`` wrote. Return their number. Overdue timers fire immediately, in order.

        The time between save and load counts. A key that has a timer keeps it. A file that is damaged, was saved with
        another secret, or can be accessed by other users is not loaded, but renamed to ``<name>.refused``, and one
        warning gives the reason. A missing file is not an error.

        Args:
            secret: the secret that the file must be signed with.

        Raises:
            WheelClosed: after ``stop``.
        """
        self._wheel.check()
        return load_timers(path, self._restore, owner=repr(self), clock=self.clock, secret=secret)

    def after(self, delay: float) -> threading.Event:
        """Return an event that is set in ``delay`` seconds, or when the timers stop.

        All callers whose time falls in the same tick get the same event: ten thousand waiters cost one object.

        Raises:
            ValueError, TypeError: if ``delay`` is not a finite number > 0.
            WheelClosed: after ``stop``.
        """
        return self._wheel.event(options.seconds("delay", delay))

    def every(self, period: float, fn: Job) -> None:
        """Call ``fn()`` every ``period`` seconds, on the wheel thread. The first call is in ``period`` seconds.

        If the wheel thread cannot run, writes advance the timers, and the job runs in the thread of a writer.

        Args:
            period: seconds from the end of one run to the next run, > 0.
            fn: returns None (run again after the period), a number > 0 (the seconds until the next run), or ``STOP``.
                An exception, or any other result, is logged, and the job runs again after the period.

        Raises:
            ValueError, TypeError: if an argument is invalid. The message names it.
            WheelClosed: after ``stop``.
        """
        job = PeriodicJob(options.seconds("period", period), options.function("fn", fn))
        self._wheel.schedule(self._wheel.events.set, job, job, job.period)

    def stop(self) -> None:
        """Drop all timers and jobs, and set all events. It may be called again; every other call raises WheelClosed."""
        self._wheel.stop()

    def _restore(self, key: Any, value: Any, left: float) -> bool:
        return self._wheel.restore(self._adapt(key), value, left)

    def _adapt(self, key: Hashable) -> Any:
        if key is None:
            raise ValueError("key must not be None")
        return self._wheel.keys.adapt(key)
