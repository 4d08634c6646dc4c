"""A daemon thread that repeats a turn: it ends before a fork, goes on in the parent, and ends at the exit."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Iterable
from typing import Final, Protocol

from wheelcache.near_cache.waker import Waker
from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.shared_objects import WeakRegistry, lazy_lock

logger = logging.getLogger("wheelcache")


class Work(Protocol):
    """The work of a ``RepeatingThread``."""

    def turn(self) -> float:
        """Work, and return the seconds until the next turn. Return soon after ``must_end``. Raise nothing."""

    def leave(self) -> object:
        """Give up what the turns have acquired: after the last one, on the thread, or in ``stop`` without a thread."""

    def stop(self) -> object:
        """Stop the thread, at the exit of the interpreter."""

    def after_fork_in_child(self) -> object:
        """Forget the objects that belong to the parent, in a child without the thread."""


class RepeatingThread:
    """Repeats the turns of ``work`` on a thread.

    Args:
        name: the name of the thread.
        work: see ``Work``.
        consequence: for the log: the effect if the thread cannot start.

    Attributes:
        is_stopped: whether ``stop`` was called.
        is_busy: whether the turn waits for others, such as a listener, so that it may not end soon. The turn sets this.
    """

    def __init__(self, name: str, work: Work, consequence: str) -> None:
        self._name = name
        self.work = work
        self._consequence = consequence
        self.is_stopped = False
        self._start_failed = False
        self._reset()
        _all.add(self)
        lifecycle.TRACKING.add_weakly(self)

    def _reset(self) -> None:
        self._thread: threading.Thread | None = None
        # There is no thread because of a fork, in progress or past.
        self._is_paused = False
        self.is_busy = False
        self._waker: Waker | None = None
        self._lock = lazy_lock()

    def _has_thread(self) -> bool:
        """Return whether the thread runs or is being started (then it has no identity yet)."""
        thread = self._thread
        return thread is not None and (thread.ident is None or thread.is_alive())

    def start(self) -> None:
        """Start the thread. Do nothing if it is running, or after ``stop``."""
        if self._has_thread() or self.is_stopped:
            return
        thread = threads.make(self._name, self._run)
        try:
            with self._lock.get():
                if self._has_thread() or self.is_stopped:
                    return
                if lifecycle.is_forking():
                    self._is_paused = True
                    return
                self._thread, self._is_paused = thread, False
            # Without the lock: under gevent, start() lets the new greenlet run, which acquires it.
            threads.start(thread)
        except BaseException as error:
            # Otherwise, no call would start another thread. If this one starts nevertheless, it ends.
            with self._lock.get():
                if self._thread is thread and not thread.is_alive():
                    self._thread = None
                    self._is_paused = not isinstance(error, RuntimeError)
            if not isinstance(error, RuntimeError):
                raise
            if not self._start_failed:
                self._start_failed = True
                logger.warning("The thread %s cannot start (%s); %s.", self._name, error, self._consequence)

    def _run(self) -> None:
        me, waker = threading.current_thread(), Waker()
        try:
            with self._lock.get():
                if self._thread is me:
                    self._waker = waker
            while not self.is_stopped:
                with self._lock.get():
                    if self._thread is not me:
                        # An exception interrupted the start, or the turn forked. Two threads must not share the work.
                        return
                    if lifecycle.is_forking():
                        self._thread, self._is_paused = None, True
                        return
                seconds = self.work.turn()
                if self._thread is me:
                    self.wait((), seconds)
            self.work.leave()
        finally:
            waker.close()

    def must_end(self) -> bool:
        """Return whether the present turn must end: because of ``stop``, or for a fork."""
        return self.is_stopped or lifecycle.is_forking()

    def wait(self, sockets: Iterable[socket.socket], seconds: float) -> None:
        """Wait, on the thread, for one of ``sockets`` to be readable, at most ``seconds`` and until ``must_end``."""
        if self._waker is not None and not self.must_end():
            self._waker.wait(sockets, seconds)

    def stop(self) -> None:
        """End the thread for good after its turn, which ``join`` waits for."""
        with self._lock.get():
            self.is_stopped = True
        self._wake()
        if not self._has_thread():
            self.work.leave()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, unless the caller is that thread."""
        thread = self._thread
        if thread is not None and thread.is_alive() and thread is not threading.current_thread():
            thread.join(seconds)

    def _wake(self) -> None:
        if self._waker is not None:
            self._waker.wake()

    def pause(self) -> None:
        thread = self._thread
        self._wake()
        if thread is not None:
            threads.wait_for_end(thread, lambda: self.is_busy)

    def resume(self) -> None:
        if self._is_paused:
            self.start()

    def after_fork_in_child(self) -> None:
        waker = self._waker
        self._reset()
        if waker is not None:
            waker.close()
        self.work.after_fork_in_child()


def _stop_all() -> None:
    for each in _all:
        each.work.stop()


_all: Final[WeakRegistry[RepeatingThread]] = WeakRegistry()
lifecycle.STOP_TRACKING.add(_stop_all)
