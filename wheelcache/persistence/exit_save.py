"""Saves every cache when the process exits, in a thread of its own.

A value that takes forever to pickle must not keep the process from exiting, so the exit waits for that thread only for
a limited time. The thread starts early, since some interpreters start none during the exit. It ends before a fork and
starts again in the parent.
"""

from __future__ import annotations

import threading
from typing import Final, Protocol

from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.lazy import Lazy, end_under_a_patch
from wheelcache.runtime.threads import wait_for_end
from wheelcache.runtime.weak_registry import WeakRegistry

SECONDS: Final = 10.0
"""That all caches of a process may take together when it exits: a third of what servers give their workers."""


class Saved(Protocol):
    """What is saved at the exit."""

    def save(self, seconds: float) -> object:
        """Save in at most so many seconds. What is not in use has nothing to save."""


class ExitSave:
    """What is saved at the exit, and the thread that does it.

    Attributes:
        seconds: what all saves may take together.
    """

    __slots__ = ("_is_wanted", "_saved", "_watch", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._saved: WeakRegistry[Saved] = WeakRegistry()
        # Events made before gevent patches would have the waiting greenlet stop all others.
        self._watch: Lazy[_Watch] = Lazy(lambda: _Watch(self))
        self._is_wanted = False

    def add(self, saved: Saved) -> None:
        """Save ``saved`` at the exit. It is held weakly."""
        self._saved.add(saved)

    def start(self) -> None:
        """There is something to save at the exit."""
        self._is_wanted = True
        self._watch.get().start()

    def run(self) -> None:
        """Save everything, once, and return soon after ``seconds`` at the latest."""
        watch = next((each for each in self._watch.all() if each.thread is not None and not each.called_off), None)
        if watch is None:
            self.save_all()
        else:
            watch.asked.set()
            if watch.done.wait(self.seconds + 1) and watch.thread is not None:
                # An interpreter must not end before its threads.
                wait_for_end(watch.thread)

    def save_all(self) -> None:
        """Save everything, here."""
        deadline = SystemClock.steady() + self.seconds
        for saved in self._saved:
            left = deadline - SystemClock.steady()
            if left > 0:
                saved.save(left)

    def pause(self) -> None:
        for watch in self._watch.all():
            if watch.thread is not None and (watch.called_off or not watch.asked.is_set):
                watch.called_off = True
                watch.asked.set()
                wait_for_end(watch.thread)

    def resume(self) -> None:
        if any(watch.called_off for watch in self._watch.all()):
            self._watch.forget()
        if self._is_wanted:
            self.start()

    def after_fork_in_child(self) -> None:
        self._watch.forget()
        self._is_wanted = False


class _Watch:
    """A thread that waits for the exit, and what it waits for.

    Attributes:
        thread: None if it was not started.
        called_off: the thread ends without saving.
    """

    __slots__ = ("_exit_save", "_ticket", "asked", "called_off", "done", "thread")

    def __init__(self, exit_save: ExitSave) -> None:
        self._exit_save = exit_save
        # What the thread was started with. One with another ticket ends at once: its start was interrupted.
        self._ticket: object = None
        self.thread: threading.Thread | None = None
        self.asked = Alarm()
        self.done = threading.Event()
        self.called_off = False

    def start(self) -> None:
        """Start the thread, unless it was started."""
        ticket = object()
        thread = threads.make("wheelcache-save", self._wait, ticket)
        # No call comes in between, so no other thread and no exception from outside does.
        before, self._ticket = self._ticket, self._ticket or ticket
        if before is not None:
            return
        try:
            threads.start(thread)
            self.thread = thread
        except RuntimeError:
            # Where no thread can be had, the thread that exits saves.
            self._ticket = None
        except BaseException:
            self._ticket = None
            self.asked.set()
            self.asked = Alarm()
            raise

    def _wait(self, ticket: object) -> None:
        asked = self.asked
        if self._ticket is ticket:
            asked.wait(None)
        try:
            if self._ticket is ticket and not self.called_off:
                self._exit_save.save_all()
        finally:
            self.done.set()
            end_under_a_patch()


exit_save: Final = ExitSave(SECONDS)
lifecycle.EXIT_SAVER.add(exit_save)
lifecycle.SAVE.add(exit_save.run)
