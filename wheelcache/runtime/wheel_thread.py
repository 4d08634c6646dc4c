"""The one daemon thread of the process that advances every wheel. The only place that sleeps.

It starts with the first timer, waits until the next one is due, and is parked, with no wake-ups at all, while nothing
is scheduled. It ends before a fork and starts again after it if timers are pending; a child starts its own with the
first write that needs it. The loop is the one of Redis's ``ae.c``: find the nearest time event, sleep until then, do
what is due, a bounded amount at a time.
"""

from __future__ import annotations

import logging
import threading
import time
from math import inf
from typing import Final

from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.clock import Steppable
from wheelcache.runtime.lazy import Lazy, end_under_a_patch
from wheelcache.runtime.lifecycle import is_forking
from wheelcache.runtime.threads import wait_for_end
from wheelcache.runtime.weak_registry import WeakRegistry

logger = logging.getLogger("wheelcache")

LONGEST_SLEEP: Final = 86_400.0
"""Seconds. Lock waits overflow at some 9e9 s; waking once a day costs nothing."""

PAUSE_AFTER_ERROR: Final = 1.0
"""Seconds until a wheel whose owner raised is tried again."""


class _Sleep:
    """What a thread sleeps on.

    Attributes:
        lock: guards the others. A ``with`` of the condition would do the same by a method in Python, and an exception
            from outside on the return of that would leave the lock taken for ever.
        condition: notified when there is something to do.
        thread: the one that sleeps here, or is about to start; None if there is none.
        ticket: what that thread was started with. Another thread that finds itself here ends.
        woken: the thread is to look at the wheels once more before it sleeps.
        parked: it sleeps until it is woken.
        advancing: it advances a wheel, so it may be running the user's code.
    """

    __slots__ = ("advancing", "condition", "lock", "parked", "thread", "ticket", "woken")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.condition = threading.Condition(self.lock)
        self.thread: threading.Thread | None = None
        # Not the thread itself: once gevent has patched, current_thread() no longer finds a thread started before.
        self.ticket: object = None
        self.woken = False
        self.parked = False
        self.advancing = False

    def is_taken(self) -> bool:
        """Whether a thread runs, or is about to: without an identity yet, it is being started."""
        return self.thread is not None and (self.thread.ident is None or self.thread.is_alive())

    def is_advancing(self) -> bool:
        return self.advancing

    def wake(self) -> None:
        with self.lock:
            self.woken = True
            self.condition.notify()

    def dismiss(self) -> None:
        """Have the thread end as soon as it looks."""
        self.thread = self.ticket = None
        self.wake()


class WheelThread:
    """Advances what is attached to it, each at its ``wake_at``."""

    def __init__(self) -> None:
        self._driven: WeakRegistry[Steppable] = WeakRegistry()
        self._exiting = False
        self._start_failed = False
        # Made at the first wake: a condition made before gevent patches would let two greenlets in at once, and stop
        # all of them when one waits.
        self._sleeps: Lazy[_Sleep] = Lazy(_Sleep)

    def attach(self, driven: Steppable) -> None:
        """Advance ``driven`` from now on. It is held weakly."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Something is due earlier than the thread knows. Starts the thread if there is none."""
        sleep = self._sleeps.get()
        sleep.wake()
        if not sleep.is_taken() and not self._is_patched_under(sleep):
            self._start(sleep)
            self._dismiss_all_but(sleep)

    def is_alive(self) -> bool:
        return any(sleep.is_taken() for sleep in self._sleeps.all())

    @property
    def state(self) -> str:
        """\"running"; "parked", with nothing to wait for; "not started"; or "refused" by the system."""
        if self._start_failed:
            return "refused"
        if not self.is_alive():
            return "not started"
        return "parked" if self._sleeps.get().parked else "running"

    def stop(self) -> None:
        """End the thread; for the exit of the interpreter."""
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
                wait_for_end(thread, sleep.is_advancing)

    def resume(self) -> None:
        # At once, since a thread that only the next write starts might leave what expires in memory for ever.
        if any(driven.wake_at < inf for driven in self._driven):
            self.wake()

    def _is_patched_under(self, sleep: _Sleep) -> bool:
        """Whether this is a wheel thread that was started before gevent patched. A greenlet that it starts would never
        run, and it looks at the wheels itself."""
        return any(
            each is not sleep and each.thread is not None and each.thread.native_id == threading.get_native_id()
            for each in self._sleeps.all()
        )

    def _dismiss_all_but(self, sleep: _Sleep) -> None:
        for each in self._sleeps.all():
            if each is not sleep and each.thread is not None:
                each.dismiss()

    def _start(self, sleep: _Sleep) -> None:
        ticket = object()
        thread = threading.Thread(target=self._run, args=(sleep, ticket), name="wheelcache-wheel", daemon=True)
        error = None
        is_started = False
        try:
            with sleep.lock:
                if sleep.is_taken() or self._exiting or is_forking():
                    return
                sleep.thread, sleep.ticket = thread, ticket
            # Without the lock: under gevent, start() lets the new greenlet run, which takes it.
            threads.start(thread)
            is_started, self._start_failed = True, False
        except RuntimeError as refused:
            error = refused
        finally:
            # Refused, or interrupted: if it comes up all the same, it finds that its ticket is not good. No call comes
            # in between, so no exception from outside does.
            if not is_started and sleep.thread is thread:
                sleep.thread = sleep.ticket = None
        if error is not None and not self._start_failed:
            self._start_failed = True
            logger.warning("The wheel thread cannot start (%s); writes advance the wheels instead.", error)

    def _run(self, sleep: _Sleep, ticket: object) -> None:
        # As it is when this thread begins. If gevent patches it later, its sleep would make a hub in this thread,
        # while another thread makes its own: both import modules under locks that gevent has patched, and hang.
        give_way = time.sleep
        while sleep.ticket is ticket:
            pause = self._advance_all(sleep)
            if pause <= 0:
                # More of the same batch of work: let a thread that waits for the interpreter go first.
                give_way(0)
            with sleep.lock:
                if sleep.ticket is not ticket:
                    break
                if self._exiting or is_forking():
                    sleep.thread = sleep.ticket = None
                    break
                if pause > 0 and not sleep.woken:
                    sleep.parked = pause == inf
                    sleep.condition.wait(None if pause == inf else min(pause, LONGEST_SLEEP))
                    sleep.parked = False
                sleep.woken = False
        end_under_a_patch()

    def _advance_all(self, sleep: _Sleep) -> float:
        """One bounded step of every wheel that is due; seconds until the next one is."""
        pause = inf
        for driven in self._driven:
            if is_forking():
                return 0.0
            if driven.wake_at == inf:
                # Perhaps because its clock is a test's, which may move on whenever it is read.
                continue
            sleep.advancing = True
            try:
                now = driven.clock()
                if driven.wake_at <= now:
                    driven.advance(now)
                pause = min(pause, driven.wake_at - driven.clock())
            except BaseException:
                # SystemExit too: a listener that calls sys.exit() must not end the only wheel thread of the process.
                logger.exception("A wheel could not be advanced; trying again in %s s.", PAUSE_AFTER_ERROR)
                pause = min(pause, PAUSE_AFTER_ERROR)
            finally:
                sleep.advancing = False
        return pause

    def after_fork_in_child(self) -> None:
        for sleep in self._sleeps.all():
            # If a listener forked, this thread is the wheel thread of the parent, and ends when the listener returns.
            sleep.thread = sleep.ticket = None
        self._sleeps.forget()
        self._start_failed = False


wheel_thread: Final = WheelThread()
lifecycle.WHEEL.add(wheel_thread)
lifecycle.STOP_WHEEL.add(wheel_thread.stop)
