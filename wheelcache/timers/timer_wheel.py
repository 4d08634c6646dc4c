"""The timers of a ``Timers`` as entries of two cores: a timer is an entry that fires when it expires.

One core has the keyed timers, the other one the broadcasts and the periodic jobs. ``core.advance`` moves due timers to
a list of the wheel, from which they are removed one by one, so an exception in one of them does not lose the others.
``remove_all`` removes timers one by one, too: it cannot use ``core.clear``, because other threads would drop some of
the detached entries in ``set`` and ``advance``, and ``Timers.drain`` would not call its function for these.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable
from contextlib import suppress
from contextvars import Context
from enum import Enum
from functools import partial
from math import ceil, inf
from typing import Any, Final

from wheelcache.core import CoreClass
from wheelcache.core.contract import BATCH, WAKE, Core, Record, RemovalCause, Removals
from wheelcache.engine import options
from wheelcache.engine.keys import KeyProxies, unwrap
from wheelcache.errors import WheelClosed
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.wheel_driver import WheelDriver
from wheelcache.runtime.worker_pool import WorkerPool

logger = logging.getLogger("wheelcache")

WORKERS: Final = 4
"""Threads that run ``execute``, which should return soon."""

LAST_TICK: Final = 1 << 62
"""The tick of all times that are too far away for a float to count their ticks."""

Execute = Callable[[Any, Any], object]
Job = Callable[[], Any]


class _Stop(Enum):
    STOP = "stop"

    def __repr__(self) -> str:
        return "STOP"


STOP: Final = _Stop.STOP
"""A periodic job that returns this does not run again."""


class PeriodicJob:
    """A job whose ``function`` runs every ``period`` seconds. It is the key and the value of its own entry."""

    __slots__ = ("function", "period")

    def __init__(self, period: float, function: Job) -> None:
        self.period = period
        self.function = function


class AlarmEvent(threading.Event):
    """An ``Alarm`` with the interface of ``threading.Event``, for callers outside this package."""

    def __init__(self) -> None:
        super().__init__()
        self._alarm = Alarm()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} at {id(self):#x}: {'set' if self.is_set() else 'unset'}>"

    def is_set(self) -> bool:
        return self._alarm.is_set

    def set(self) -> None:
        self._alarm.set()

    def clear(self) -> None:
        if self._alarm.is_set:
            self._alarm = Alarm()

    def wait(self, timeout: float | None = None) -> bool:
        # A lock interprets a negative time as no limit.
        return self._alarm.wait(None if timeout is None else max(0.0, timeout))


class TimerWheel:
    """Schedules timers and runs them, as a ``runtime.wheel_driver.Wheel``.

    Args:
        name: the name of the timers in log lines.
        interval: seconds per tick.
        clock: see ``Timers``.
        execute: ``execute(key, value)``, called by a pool for each keyed timer.

    Attributes:
        clock: the clock of the timers. No test freezes it.
        keys: adapts the callers' keys, which the methods below expect in that form.
        driver: advances the wheel, once it is started.
        timers: the core with the keyed timers.
        events: the core with the broadcasts, by tick, and the periodic jobs.
    """

    def __init__(self, name: str, interval: float, clock: Clock, execute: Execute) -> None:
        self._name = name
        self.interval = interval
        self.driver = WheelDriver(self, interval, clock)
        self.clock = self.driver.clock
        self._origin = self.clock()
        self._execute = execute
        self.keys = KeyProxies()
        self._pool = WorkerPool(WORKERS, inf, name="wheelcache-timers", finishes=True)
        self._is_stopped = False
        self._due: Removals = []
        self._due_events: Removals = []
        self._start_empty()

    def __repr__(self) -> str:
        return self._name

    def check(self) -> None:
        """Raise WheelClosed if the timers were stopped."""
        if self._is_stopped:
            raise _stopped()

    # Scheduling. These methods raise WheelClosed after ``stop``.

    def schedule(self, store: Callable[..., int], key: Hashable, value: Any, delay: float) -> int:
        """Store an entry by ``store``, the ``set`` or ``add`` of one of the cores, and return the outcome."""
        outcome = WAKE
        try:
            outcome = store(key, value, delay)
        finally:
            # Also after an exception: the timer may be set, and then later timers rely on the thread that it wakes.
            self._scheduled(outcome)
        return outcome

    def move(self, key: Hashable, delay: float) -> bool:
        """Give a timer a new delay, or fire it immediately if ``delay`` is under one interval. Return whether there is
        a timer."""
        timers, is_soon = self.timers, delay < self.interval
        outcome = 0 if is_soon else timers.touch(key, delay)
        if outcome:
            self._scheduled(outcome)
            return True
        # For ``touch``, a timer that is due is expired even before its tick; ``delete`` removes it nevertheless.
        removed: Removals = []
        timers.delete(key, removed=removed)
        if removed and not is_soon:
            self.schedule(timers.add, key, removed[0][1], delay)
        else:
            self._due += removed
            self._submit_due()
        return bool(removed)

    def restore(self, key: Hashable, value: Any, delay: float) -> bool:
        """Set a timer, or fire it immediately if ``delay`` <= 0. Return False, and do nothing, if ``key`` has one."""
        if self.timers.times(key) is not None:
            return False
        if delay > 0:
            return bool(self.schedule(self.timers.add, key, value, delay))
        self._due.append((key, value, RemovalCause.EXPIRED))
        self._submit_due()
        return True

    def event(self, delay: float) -> threading.Event:
        """Return the event of the tick that comes in ``delay`` seconds."""
        now = self.clock()
        tick, time = self._tick_of(now + delay)
        outcome = 0
        try:
            with self._lock:
                record = self.events.peek(tick)
                event: threading.Event = AlarmEvent() if record is None else record.value
                if record is None:
                    outcome = WAKE
                    # Due in the middle of the tick's span, or halfway to its end. The core reads the clock again, and
                    # would round the end of the span up to the next tick.
                    outcome = self.events.set(tick, event, max(time - self.interval / 2 - now, (time - now) / 2))
        finally:
            self._scheduled(outcome)
        return event

    def remove_all(self) -> Removals:
        """Remove the keyed timers and return them."""
        removed: Removals = []
        delete, scan = self.timers.delete, self.timers.scan()
        while keys := scan.keys(BATCH):
            for key in keys:
                delete(key, removed=removed)
        return removed

    def pending(self) -> list[Record]:
        """Return the keyed timers, ordered by time."""
        records: dict[Any, Record] = {}
        scan = self.timers.scan()
        while batch := scan.step(BATCH):
            records.update((record.key, record) for record in batch)
        return sorted(records.values(), key=lambda record: record.times.expires_at)

    def stop(self) -> None:
        """Drop all timers and jobs, and set all events. It may be called again."""
        self._is_stopped = True
        self._pool.stop()
        for core in (self.timers, self.events):
            core.gate(_stopped)
            core.clear()
        while self.timers.drain():
            pass
        while self.events.drain(BATCH, self._due_events):
            pass
        self.notify()

    # Firing.

    @property
    def next_due(self) -> float:
        return -inf if self._due or self._due_events else min(self.timers.next_due, self.events.next_due)

    def take_due(self, budget: int) -> None:
        self.timers.advance(budget, self._due)
        self.events.advance(budget, self._due_events)

    def notify(self, done: None = None) -> None:
        """Run the due timers, including those that another thread removed from the cores."""
        # Set before any is removed from the list: an event that an exception loses would leave its waiters forever.
        for _, event, _ in tuple(self._due_events):
            if isinstance(event, AlarmEvent):
                event.set()
        self._submit_due()
        events, exits = self.events, []
        while self._due_events:
            # Another thread may have removed the last one.
            with suppress(IndexError):
                _, job, _ = self._due_events.pop(0)
                try:
                    if isinstance(job, AlarmEvent):
                        job.set()
                    elif not self._is_stopped:
                        self._run_job(events, job)
                except BaseException as error:
                    # A job that exits must not delay the others.
                    exits.append(error)
        if exits:
            raise exits[-1]

    def use_clock(self, clock: Clock) -> None:
        """Do nothing: frozen time does not apply to timers."""

    def call(self, function: Execute, key: Any, value: Any) -> None:
        """Call ``function(key, value)``, and log an exception."""
        key = unwrap(key)
        try:
            function(key, value)
        except Exception:
            logger.exception("The timer of %r raised.", key)

    # Forks.

    def before_fork(self) -> None:
        """Wait until no step is in progress, and let none begin while the memory is copied."""
        self.timers.before_fork()
        self.events.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        """Release the locks of ``before_fork``; in the child, start without timers."""
        # In the child, too: the garbage collector would otherwise end the hold of the lock in any thread.
        self.events.after_fork(in_child=in_child)
        self.timers.after_fork(in_child=in_child)
        if not in_child:
            return
        # Cleared in place: if a job forked, a loop over one of these lists is running.
        self._due.clear()
        self._due_events.clear()
        # New cores, since a job that forked schedules its next run in the core that it came from.
        self._start_empty()
        self.driver.after_fork_in_child()
        self.keys.forget_locks()

    def _start_empty(self) -> None:
        self._lock = threading.RLock()
        self.timers = self._new_core()
        self.events = self._new_core()

    def _new_core(self) -> Core:
        # A core counts ticks from the time of its creation. Both cores must count from ``_origin``; otherwise a
        # broadcast would be rounded twice.
        core: Core = CoreClass(interval=self.interval, clock=lambda: self._origin)
        core.use_clock(self.clock)
        if self._is_stopped:
            core.gate(_stopped)
        return core

    def _tick_of(self, due: float) -> tuple[int, float]:
        """Return the first tick that is not before ``due``, and its time."""
        origin, interval = self._origin, self.interval
        tick = ceil(min((due - origin) / interval, LAST_TICK))
        # The division rounds. The wheel of a core corrects it in the same way.
        if origin + tick * interval < due:
            tick += 1
        elif origin + (tick - 1) * interval >= due:
            tick -= 1
        return tick, origin + tick * interval

    def _scheduled(self, outcome: int) -> None:
        if outcome & WAKE or self.driver.calls_for_thread or self._due or self._due_events:
            self.driver.written()

    def _submit_due(self) -> None:
        while self._due:
            # Another thread may have removed the last one.
            with suppress(IndexError):
                key, value, _ = self._due.pop(0)
                try:
                    # In an empty context: the timer must not act for the load or request of the caller.
                    self._pool.submit(partial(self.call, self._execute, key, value), context=Context())
                except RuntimeError:
                    # After ``stop``, or while the interpreter exits, timers no longer fire.
                    if not self._pool.is_stopped:
                        logger.exception("The timer of %r found no thread to run on.", unwrap(key))

    def _run_job(self, events: Core, job: PeriodicJob) -> None:
        """Run a job, and schedule its next run in ``events``, the core that it came from.

        If the job forked, this is the parent's core, which the child does not use: the job does not run again there.
        """
        pause: float | None = job.period
        try:
            answer = job.function()
            if answer is STOP:
                pause = None
            elif answer is not None:
                pause = options.seconds("the result of a periodic job", answer)
        except Exception:
            logger.exception("The periodic job %r raised.", job.function)
        finally:
            if pause is not None:
                with suppress(WheelClosed):
                    if events.set(job, job, pause) & WAKE:
                        # The wheel thread may sleep past this run if a write has advanced the wheel.
                        self.driver.wake()


def _stopped() -> WheelClosed:
    return WheelClosed("these timers were stopped")
