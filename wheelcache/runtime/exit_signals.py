"""Turns a SIGTERM that would kill the process into an exit, whose hooks save the caches."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Any

from wheelcache.runtime import threads
from wheelcache.runtime.exit_save import exit_save


def exit_on_sigterm() -> None:
    """If SIGTERM would kill the process immediately, make it exit instead. Only the main thread can do this.

    An exit waits for threads and may be caught. If the process is still alive after 10 seconds, it saves and ends.

    Under uvicorn, the process exits when uvicorn has shut down. Otherwise uvicorn would restore the previous handler,
    which is the system's, and raise the signal again: the process would be killed, and no exit hook would run.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    handler: Any = signal.getsignal(signal.SIGTERM)
    # A subinterpreter has a main thread too, but cannot handle signals. Its server decides how the process ends.
    with suppress(ValueError):
        if handler is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit)
        elif str(getattr(handler, "__module__", "")).partition(".")[0] == "uvicorn" and sys.platform != "win32":

            def shut_down(number: int, frame: FrameType | None) -> None:
                # Block the signal in this thread, in which uvicorn raises it again. A signal from another process still
                # reaches another thread.
                signal.pthread_sigmask(signal.SIG_BLOCK, {number})
                handler(number, frame)

            signal.signal(signal.SIGTERM, shut_down)


def _exit(number: int, frame: FrameType | None) -> None:
    # A second SIGTERM must not end the saving. A process receives two if it is signalled together with its parent.
    signal.signal(number, signal.SIG_IGN)
    with suppress(RuntimeError):
        threads.start(threads.make("wheelcache-end", _end, 128 + number))
    sys.exit(128 + number)


def _end(status: int) -> None:
    time.sleep(exit_save.seconds)
    exit_save.run()
    os._exit(status)
