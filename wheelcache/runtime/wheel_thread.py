"""The wheel thread: the daemon thread of the process that advances every wheel.

It starts with the first timer, waits until the next one is due, and is parked without any wake-ups while nothing is
scheduled. It ends before a fork and starts again afterwards if timers are pending; a child starts its own thread with
the first write that needs it. It ends at the exit of its interpreter. The loop is that of Redis's ``ae.c``: find the
nearest time event, sleep until then, process due events in bounded batches.
"""

from __future__ import annotations

import logging
import threading
import time
from functools import partial
from math import inf
from typing import Final, Protocol

from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.lifecycle import is_forking
from wheelcache.runtime.shared_objects import Lazy, WeakRegistry
from wheelcache.runtime.threads import end_under_a_patch, wait_for_end

logger = logging.getLogger("wheelcache")

LONGEST_SLEEP: Final = 60.0
"""Seconds. A condition waits by a clock that stands still while the machine is suspended. So after a suspension,
expired entries stay in memory for a minute at most, and a timer that has become due fires within a minute."""

PAUSE_AFTER_ERROR: Final = 1.0
"""Seconds until the thread retries a wheel whose ``advance`` raised."""


class Steppable(Protocol):
    """An object that a ``ManualClock`` or the wheel thread advances: ``advance(clock())`` when ``wake_at`` has come.

    Attributes:
        wake_at: the next time at which there is work, in seconds on ``clock``; inf if nothing is scheduled.
    """

    @property
    def clock(self) -> Clock: ...
    @property
    def wake_at(self) -> float: ...

    def advance(self, now: float) -> None: ...


class _Sleep:
    """The condition that a wheel thread sleeps on, and the state of that thread.

    Attributes:
        lock: guards the other attributes. Entering the condition itself calls a method written in Python, and an
            asynchronous exception on the return from that method would leave the lock acquired forever.
        condition: notified when there is work.
        thread: the thread that sleeps here or is about to start; None if there is none. Any other thread ends.
        woken: the thread must check the wheels once more before it sleeps.
        parked: the thread sleeps until it is woken.
        advancing: the thread advances a wheel, so it may be running user code.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.thread: threading.Thread | None = None
        self.woken = False
        self.parked = False
        self.advancing = False

    def has_thread(self) -> bool:
        """Return whether a thread runs or is being started (then it has no identity yet)."""
        # Read once: the thread itself may remove it at any moment.
        thread = self.thread
        return thread is not None and (thread.ident is None or thread.is_alive())

    def wake(self) -> None:
        with self.lock:
            self.woken = True
            self.condition.notify()


class WheelThread:
    """Advances every attached object at its ``wake_at``."""

    def __init__(self) -> None:
        self._driven: WeakRegistry[Steppable] = WeakRegistry()
        self._exiting = False
        self._start_failed = False
        # Created at the first wake: a condition created before gevent patches threading admits two greenlets at the
        # same time, and blocks all of them when one waits.
        self._sleeps: Lazy[_Sleep] = Lazy(_Sleep)

    def attach(self, driven: Steppable) -> None:
        """Advance ``driven`` from now on. The reference to it is weak."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Notify the thread that something may be due earlier than it knows. Start the thread if there is none."""
        sleep = self._sleeps.get()
        sleep.wake()
        if not sleep.has_thread() and not self._is_patched_under(sleep):
            self._start(sleep)
            self._dismiss_all_but(sleep)

    def is_alive(self) -> bool:
        return any(sleep.has_thread() for sleep in self._sleeps.all())

    @property
    def state(self) -> str:
        """The state: "running", "parked" (nothing is scheduled), "not started" or "refused" (it could not start)."""
        if not self.is_alive():
            return "refused" if self._start_failed else "not started"
        return "parked" if self._sleeps.get().parked else "running"

    def stop(self) -> None:
        """End the thread at the exit of the interpreter, which must not end before its threads."""
        self._exiting = True
        for sleep in self._sleeps.all():
            sleep.wake()
            thread = sleep.thread
            if thread is not None and thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=1.0)

    def pause(self) -> None:
        for sleep in self._sleeps.all():
            thread = sleep.thread
            sleep.wake()
            if thread is not None:
                wait_for_end(thread, partial(getattr, sleep, "advancing"))

    def resume(self) -> None:
        # Without waiting for the next write, which may never come: expired entries would stay in memory.
        if any(driven.wake_at < inf for driven in self._driven):
            self.wake()

    def _is_patched_under(self, sleep: _Sleep) -> bool:
        """Return whether the caller is a wheel thread that was started before gevent patched threading.

        It must not start another thread: that would be a greenlet, which never runs. It checks the wheels itself.
        """
        others = [each.thread for each in self._sleeps.all() if each is not sleep]
        return any(thread is not None and thread.native_id == threading.get_native_id() for thread in others)

    def _dismiss_all_but(self, sleep: _Sleep) -> None:
        for each in self._sleeps.all():
            if each is not sleep and each.thread is not None:
                # Its thread ends at its next check.
                each.thread = None
                each.wake()

    def _start(self, sleep: _Sleep) -> None:
        thread = threads.make("wheelcache-wheel", self._run, sleep)
        try:
            with sleep.lock:
                if sleep.has_thread() or self._exiting or is_forking():
                    return
                sleep.thread = thread
            # Without the lock: under gevent, start() runs the new greenlet, which acquires it.
            threads.start(thread)
            self._start_failed = False
        except BaseException as error:
            # Otherwise, no write would start another thread. If this one starts nevertheless, it ends.
            with sleep.lock:
                if sleep.thread is thread and not thread.is_alive():
                    sleep.thread = None
            if not isinstance(error, RuntimeError):
                raise
            if not self._start_failed:
                self._start_failed = True
                logger.warning("The wheel thread cannot start (%s); writes advance the wheels instead.", error)

    def _run(self, sleep: _Sleep) -> None:
        # Both are looked up before gevent can patch them. Then, current_thread() would no longer find this thread, and
        # sleep() would create a hub in it while another thread creates its own: both import modules under locks that
        # gevent has patched, and hang.
        me, give_way = threading.current_thread(), time.sleep
        while sleep.thread is me:
            pause = self._advance_all(sleep)
            if pause <= 0:
                # More work is due: first let a thread run that waits for the interpreter.
                give_way(0)
            with sleep.lock:
                if sleep.thread is not me:
                    break
                if self._exiting or is_forking():
                    sleep.thread = None
                    break
                if pause > 0 and not sleep.woken:
                    sleep.parked = pause == inf
                    sleep.condition.wait(None if pause == inf else min(pause, LONGEST_SLEEP))
                    sleep.parked = False
                sleep.woken = False
        end_under_a_patch()

    def _advance_all(self, sleep: _Sleep) -> float:
        """Advance every due wheel by one bounded step, and return the seconds until the next one is due."""
        pause = inf
        for driven in self._driven:
            if is_forking():
                return 0.0
            if driven.wake_at == inf:
                # Do not read its clock: the clock of a test may advance with every read.
                continue
            sleep.advancing = True
            try:
                now = driven.clock()
                if driven.wake_at <= now:
                    driven.advance(now)
                pause = min(pause, driven.wake_at - driven.clock())
            except BaseException:
                # Including SystemExit: a listener that calls sys.exit() must not end the wheel thread of the process.
                logger.exception("A wheel could not be advanced; trying again in %s s.", PAUSE_AFTER_ERROR)
                pause = min(pause, PAUSE_AFTER_ERROR)
            finally:
                sleep.advancing = False
        return pause

    def after_fork_in_child(self) -> None:
        for sleep in self._sleeps.all():
            # If a listener forked, this thread was the wheel thread of the parent, and ends when the listener returns.
            sleep.thread = None
        self._sleeps.forget()
        self._start_failed = False


wheel_thread: Final = WheelThread()
lifecycle.WHEEL.add(wheel_thread)
lifecycle.STOP_WHEEL.add(wheel_thread.stop)
