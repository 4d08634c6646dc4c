"""Turns a SIGTERM that would kill the process into an exit, which saves its caches."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType

from wheelcache.persistence.exit_save import exit_save
from wheelcache.runtime import threads


def exit_on_sigterm() -> None:
    """If SIGTERM would kill the process immediately, make it exit instead. Only the main thread can do this.

    An exit waits for threads and may be caught. If the process is still alive after 10 seconds, it saves and ends.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # A subinterpreter has a main thread too, but cannot handle signals. Its server decides how the process ends.
        with suppress(ValueError):
            signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    # A second SIGTERM, which a process gets that is signalled together with its parent, must not end the saving.
    signal.signal(number, signal.SIG_IGN)
    with suppress(RuntimeError):
        threads.start(threads.make("wheelcache-end", _end, 128 + number))
    sys.exit(128 + number)


def _end(status: int) -> None:
    time.sleep(exit_save.seconds)
    exit_save.run()
    os._exit(status)
