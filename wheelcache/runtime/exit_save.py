"""Saves every cache when the process exits, in a thread of its own.

A value that takes forever to pickle must not keep the process from exiting, so the exit waits for that thread only for
a limited time. The thread starts early, since some interpreters start no threads during the exit. It ends before a fork
and starts again in the parent.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Final, Protocol

from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.shared_objects import Lazy, WeakRegistry
from wheelcache.runtime.threads import end_under_a_patch, wait_for_end

SECONDS: Final = 10.0
"""The time for all caches of a process together when it exits: a third of the time that servers give their workers."""


class Saved(Protocol):
    """An object that is saved at the exit."""

    def save(self, seconds: float) -> object:
        """Save in at most ``seconds``, unless there is nothing to save."""


class ExitSave:
    """The objects that are saved at the exit, and the thread that saves them.

    Attributes:
        seconds: the longest time for all saves together.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._saved: WeakRegistry[Saved] = WeakRegistry()
        # With events made before gevent patches threading, a waiting greenlet would block all others.
        self._watch: Lazy[_Watch] = Lazy(_Watch)
        self._is_wanted = False

    def add(self, saved: Saved) -> None:
        """Save ``saved`` at the exit. The reference to it is weak."""
        self._saved.add(saved)

    def start(self) -> None:
        """Start the thread unless it was started, since there is something to save at the exit."""
        self._is_wanted = True
        watch = self._watch.get()
        with watch.starting:
            if watch.has_thread():
                return
            watch.thread = threads.make("wheelcache-save", self._wait, watch)
            # The system may refuse to start a thread: ``run`` then saves in the exiting thread.
            with suppress(RuntimeError):
                threads.start(watch.thread)

    def run(self) -> None:
        """Save everything once. Return soon after ``seconds`` have passed at the latest."""
        watch = next((each for each in self._watch.all() if each.saves()), None)
        if watch is None:
            self.save_all()
        else:
            watch.asked.set()
            if watch.done.wait(self.seconds + 1) and watch.thread is not None:
                # An interpreter must not end before its threads.
                wait_for_end(watch.thread)

    def save_all(self) -> None:
        """Save everything in the calling thread."""
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

    def _wait(self, watch: _Watch) -> None:
        watch.asked.wait(None)
        try:
            if not watch.called_off:
                self.save_all()
        finally:
            watch.done.set()
            end_under_a_patch()


class _Watch:
    """A thread that waits for the exit, and the events between it and the thread that exits.

    Attributes:
        starting: held while the thread is being started.
        thread: the thread; None until it is started for the first time.
        asked: set when the thread must save or end.
        done: set when the thread has finished.
        called_off: whether the thread must end without saving.
    """

    def __init__(self) -> None:
        self.starting = threading.RLock()
        self.thread: threading.Thread | None = None
        self.asked = Alarm()
        self.done = threading.Event()
        self.called_off = False

    def has_thread(self) -> bool:
        return self.thread is not None and self.thread.is_alive()

    def saves(self) -> bool:
        """Return whether the thread saves when it is asked, or has done so."""
        return not self.called_off and (self.has_thread() or self.done.is_set())


exit_save: Final = ExitSave(SECONDS)
lifecycle.EXIT_SAVER.add(exit_save)
lifecycle.SAVE.add(exit_save.run)
