"""The one daemon thread of the process that advances every wheel. The only place that sleeps.

It starts with the first timer, waits until the next one is due, and is parked, with no wake-ups at all, while nothing
is scheduled. A child of fork starts its own. The loop is the one of Redis's ``ae.c``: find the nearest time event,
sleep until then, do what is due, a bounded amount at a time.
"""

from __future__ import annotations

import atexit
import logging
import os
import threading
import time
from math import inf
from typing import Final

from wheelcache.clock import Steppable
from wheelcache.weak_registry import WeakRegistry

logger = logging.getLogger("wheelcache")

LONGEST_SLEEP: Final = 86_400.0
"""Seconds. Lock waits overflow at some 9e9 s; waking once a day costs nothing."""

PAUSE_AFTER_ERROR: Final = 1.0
"""Seconds until a wheel whose owner raised is tried again."""


class WheelThread:
    """Advances what is attached to it, each at its ``wake_at``."""

    def __init__(self) -> None:
        self._driven: WeakRegistry[Steppable] = WeakRegistry()
        self._exiting = False
        self._reset()

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._woken = False
        self._parked = False
        self._start_failed = False

    def attach(self, driven: Steppable) -> None:
        """Advance ``driven`` from now on. It is held weakly."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Something is due earlier than the thread knows. Starts the thread if there is none."""
        error = None
        with self._condition:
            self._woken = True
            self._condition.notify()
            if not self.is_alive() and not self._exiting:
                error = self._start()
        if error is not None and not self._start_failed:
            # Logged without the condition: a handler may write to a cache.
            self._start_failed = True
            logger.warning("The wheel thread cannot start (%s); writes advance the wheels instead.", error)

    def is_alive(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    @property
    def state(self) -> str:
        """\"running"; "parked", with nothing to wait for; "not started"; or "refused" by the system."""
        if self._start_failed:
            return "refused"
        if not self.is_alive():
            return "not started"
        return "parked" if self._parked else "running"

    def stop(self) -> None:
        """End the thread; for the exit of the interpreter."""
        with self._condition:
            self._exiting = True
            self._condition.notify()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(timeout=1.0)

    def _start(self) -> RuntimeError | None:
        self._thread = threading.Thread(target=self._run, name="wheelcache-wheel", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._thread = None
            return error
        return None

    def _run(self) -> None:
        while True:
            pause = self._advance_all()
            if pause <= 0:
                # More of the same batch of work: let a thread that waits for the interpreter go first.
                time.sleep(0)
            with self._condition:
                if self._exiting:
                    return
                if pause > 0 and not self._woken:
                    self._parked = pause == inf
                    self._condition.wait(None if pause == inf else min(pause, LONGEST_SLEEP))
                    self._parked = False
                self._woken = False

    def _advance_all(self) -> float:
        """One bounded step of every wheel that is due; seconds until the next one is."""
        pause = inf
        for driven in self._driven:
            if driven.wake_at == inf:
                # Perhaps because its clock is a test's, which may move on whenever it is read.
                continue
            try:
                now = driven.clock()
                if driven.wake_at <= now:
                    driven.advance(now)
                pause = min(pause, driven.wake_at - driven.clock())
            except BaseException:
                # SystemExit too: a listener that calls sys.exit() must not end the only wheel thread of the process.
                logger.exception("A wheel could not be advanced; trying again in %s s.", PAUSE_AFTER_ERROR)
                pause = min(pause, PAUSE_AFTER_ERROR)
        return pause

    def before_fork(self) -> None:
        self._condition.acquire()

    def after_fork_in_parent(self) -> None:
        self._condition.release()

    def after_fork_in_child(self) -> None:
        self._reset()


wheel_thread: Final = WheelThread()
atexit.register(wheel_thread.stop)
os.register_at_fork(
    before=wheel_thread.before_fork,
    after_in_parent=wheel_thread.after_fork_in_parent,
    after_in_child=wheel_thread.after_fork_in_child,
)
