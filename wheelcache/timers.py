"""Keyed timers for anyone: ten thousand delayed calls on one wheel and one thread.

The interface is that of go-zero's ``TimingWheel`` (SetTimer, MoveTimer, RemoveTimer, Drain), with two things beside it:
``after``, a broadcast to everyone who waits for the same tick, and ``every``, periodic jobs in the manner of Redis's
time events, where the job says when it wants to run again.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context
from enum import Enum
from functools import partial
from math import inf
from operator import attrgetter
from typing import Any, Final

from wheelcache import options
from wheelcache.core.timing_wheel import Timer
from wheelcache.driven import Driven
from wheelcache.errors import WheelClosed
from wheelcache.keys import KeyProxies, unwrap
from wheelcache.persistence.saved_timers import load_timers, save_timers
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.runtime.worker_pool import PoolStopped, WorkerPool

logger = logging.getLogger("wheelcache")

WORKERS: Final = 4
"""Threads that run ``execute``. Timers are for short calls; a long one should hand its work on."""


class _Stop(Enum):
    STOP = "stop"

    def __repr__(self) -> str:
        return "STOP"


STOP: Final = _Stop.STOP
"""What a periodic job returns to be the last of its runs."""

Job = Callable[[], Any]


class _KeyedTimer(Timer):
    __slots__ = ("key", "value")

    def __init__(self, key: Hashable, value: Any) -> None:
        super().__init__()
        self.key = key
        self.value = value


class _Broadcast(Timer):
    __slots__ = ("event", "tick")

    def __init__(self, tick: int) -> None:
        super().__init__()
        self.tick = tick
        self.event = threading.Event()


class _PeriodicJob(Timer):
    __slots__ = ("function", "period")

    def __init__(self, period: float, function: Job) -> None:
        super().__init__()
        self.period = period
        self.function = function


class Timers(Driven):
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

    __slots__ = ("_broadcasts", "_execute", "_handles", "_jobs", "_pool", "_timers")

    def __init__(
        self,
        interval: float,
        slots: int,
        execute: Callable[[Any, Any], object],
        *,
        clock: Clock = SystemClock.steady,
    ) -> None:
        self._execute = options.function("execute", execute)
        self._handles = KeyProxies()
        self._timers: dict[Hashable, _KeyedTimer] = {}
        self._broadcasts: dict[int, _Broadcast] = {}
        self._jobs: set[_PeriodicJob] = set()
        self._pool = WorkerPool(WORKERS, inf, name="wheelcache-timers", finishes=True)
        # Last: from here on the wheel thread and forks know of this object.
        super().__init__(interval, slots, clock)

    def __repr__(self) -> str:
        return f"<Timers every {self._wheel.interval} s on {self._wheel.slots} slots>"

    def set_timer(self, key: Hashable, value: Any, delay: float) -> None:
        """Call ``execute(key, value)`` in ``delay`` seconds. A key that has a timer gets the new value and time.

        Raises:
            ValueError, TypeError: ``key`` is None or not hashable, or ``delay`` is not a finite number > 0.
            WheelClosed: after ``stop``.
        """
        key = self._plain(key)
        timer = _KeyedTimer(key, value)
        now, due = self._due(delay)
        with self._lock:
            self._check_open()
            # Out and in again: they are in the order of their setting.
            old = self._timers.get(key)
            if old is not None:
                self._wheel.cancel(old)
                del self._timers[key]
            self._wheel.schedule(timer, due)
            self._timers[key] = timer
        self._scheduled(due, now)

    def move_timer(self, key: Hashable, delay: float) -> bool:
        """Give a timer ``delay`` seconds from now; under one interval means at once. False if ``key`` has no timer.

        Raises:
            ValueError, TypeError, WheelClosed: as ``set_timer``.
        """
        key = self._plain(key)
        now, due = self._due(delay)
        with self._lock:
            timer = self._timers.get(key)
            if timer is None:
                return False
            if delay < self._wheel.interval:
                self._wheel.cancel(timer)
                del self._timers[key]
            else:
                self._wheel.move(timer, due)
        if delay < self._wheel.interval:
            self._submit(timer)
        else:
            self._scheduled(due, now)
        return True

    def remove_timer(self, key: Hashable) -> bool:
        """Take a timer away before its time. False if ``key`` has none.

        Raises:
            ValueError, TypeError, WheelClosed: as ``set_timer``.
        """
        key = self._plain(key)
        with self._lock:
            timer = self._timers.get(key)
            if timer is not None:
                self._wheel.cancel(timer)
                del self._timers[key]
        return timer is not None

    def drain(self, fn: Callable[[Any, Any], object]) -> None:
        """Take every pending timer away, then call ``fn(key, value)`` for each, here, in no particular order.

        An exception in ``fn`` is logged with the key; the others still get their call.

        Raises:
            TypeError: ``fn`` is not callable.
            WheelClosed: after ``stop``.
        """
        options.function("fn", fn)
        with self._lock:
            # All of them at once, or a timer could both fire and be drained; and by leaving them the old wheel, or the
            # lock would be held for as long as there are timers.
            timers, self._timers = self._timers, {}
            self._wheel = self._wheel.emptied()
            for timer in (*self._broadcasts.values(), *self._jobs):
                if timer.next is not None:
                    # A job that runs at this moment is in no slot, and will be when it has run.
                    self._wheel.schedule(timer, timer.due)
        for keyed in timers.values():
            _cut_loose(keyed)
            self._call(fn, keyed)

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
        with self._lock:
            self._check_open()
            pending = list(self._timers.values())
            now, saved_at = self.clock(), time.time()
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
        return load_timers(path, self._set_again, owner=repr(self), clock=self.clock, secret=secret)

    def _set_again(self, key: Any, value: Any, left: float) -> bool:
        plain = self._plain(key)
        timer = _KeyedTimer(plain, value)
        now = self.clock()
        due = now + left
        with self._lock:
            self._check_open()
            if plain in self._timers:
                return False
            if due > now:
                self._wheel.schedule(timer, due)
                self._timers[plain] = timer
        if due > now:
            self._scheduled(due, now)
        else:
            self._submit(timer)
        return True

    def after(self, delay: float) -> threading.Event:
        """An event that is set in ``delay`` seconds, or when the timers stop.

        Everyone whose time falls in the same tick gets the same event: ten thousand waiters cost one object.

        Raises:
            ValueError, TypeError: ``delay`` is not a finite number > 0.
            WheelClosed: after ``stop``.
        """
        now, due = self._due(delay)
        with self._lock:
            self._check_open()
            tick = self._wheel.tick_of(due)
            broadcast = self._broadcasts.get(tick)
            if broadcast is None:
                broadcast = _Broadcast(tick)
                self._wheel.schedule(broadcast, due)
                self._broadcasts[tick] = broadcast
        self._scheduled(due, now)
        return broadcast.event

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
        job = _PeriodicJob(options.seconds("period", period), options.function("fn", fn))
        now = self.clock()
        with self._lock:
            self._check_open()
            self._jobs.add(job)
            self._wheel.schedule(job, now + job.period)
        self._scheduled(now + job.period, now)

    def __len__(self) -> int:
        """How many keys have a timer."""
        with self._lock:
            return len(self._timers)

    def stop(self) -> None:
        """Drop what is pending and release who waits in ``after``. May be called again; all else raises WheelClosed."""
        if self._is_closed():
            return
        with self._lock:
            broadcasts, timers = self._broadcasts, self._timers
            self._forget_all()
            self._close(WheelClosed("these timers were stopped"))
        for broadcast in broadcasts.values():
            broadcast.event.set()
        for timer in timers.values():
            _cut_loose(timer)
        self._pool.stop()

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        self._handles.forget_locks()
        self._forget_all()

    def _take_out(self, due: list[Any]) -> list[Any]:
        for timer in due:
            if type(timer) is _KeyedTimer:
                if self._timers.get(timer.key) is timer:
                    del self._timers[timer.key]
            elif type(timer) is _Broadcast and self._broadcasts.get(timer.tick) is timer:
                del self._broadcasts[timer.tick]
        return due

    def _finish(self, done: list[Any]) -> None:
        # Events first: they take no time, and cannot go wrong.
        for timer in done:
            if type(timer) is _Broadcast:
                timer.event.set()
        for timer in done:
            if type(timer) is _KeyedTimer:
                self._submit(timer)
        interruption: BaseException | None = None
        for timer in done:
            if type(timer) is _PeriodicJob:
                try:
                    self._run_job(timer)
                except BaseException as error:
                    # An exit or Ctrl-C: after the others have run.
                    interruption = error
        if interruption is not None:
            raise interruption

    def _submit(self, timer: _KeyedTimer) -> None:
        try:
            # In a context of its own: what drives the wheel is part of some load or request, or of none.
            self._pool.submit(partial(self._call, self._execute, timer), context=Context())
        except PoolStopped:
            # After stop(), and while the interpreter exits: these timers have come to their end.
            pass
        except RuntimeError:
            logger.exception("The timer of %r found no thread to run on.", unwrap(timer.key))

    def _call(self, fn: Callable[[Any, Any], object], timer: _KeyedTimer) -> None:
        key = unwrap(timer.key)
        try:
            fn(key, timer.value)
        except Exception:
            logger.exception("The timer of %r raised.", key)

    def _run_job(self, job: _PeriodicJob) -> None:
        pause = job.period
        try:
            answer = job.function()
            if answer is STOP:
                self._jobs.discard(job)
            elif answer is not None:
                pause = options.seconds("what a periodic job returns", answer)
        except Exception:
            logger.exception("The periodic job %r raised.", job.function)
        finally:
            now = self.clock()
            with suppress(WheelClosed):
                with self._lock:
                    if job in self._jobs:
                        self._wheel.move(job, now + pause)
                self._scheduled(now + pause, now)

    def _plain(self, key: Hashable) -> Any:
        if key is None:
            raise ValueError("key must not be None")
        return self._handles.adapt(key)

    def _due(self, delay: float) -> tuple[float, float]:
        now = self.clock()
        return now, now + options.seconds("delay", delay)

    def _forget_all(self) -> None:
        self._timers = {}
        self._broadcasts = {}
        self._jobs = set()
        self._wheel = self._wheel.emptied()


def _cut_loose(timer: Timer) -> None:
    """Timers of a wheel that was left point at each other, and would wait for the garbage collector."""
    timer.prev = timer.next = None
