"""Lets a process under uvicorn exit.

When uvicorn has shut down because of a SIGTERM, it restores the previous handler, which is the system's, and raises the
signal again: the process is killed, and no exit hook runs.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


def exit_after_uvicorn() -> None:
    """Where uvicorn handles SIGTERM, have the process exit once uvicorn has shut down. For the main thread."""
    handler: Any = signal.getsignal(signal.SIGTERM)
    if threading.current_thread() is threading.main_thread() and _is_of_uvicorn(handler) and sys.platform != "win32":
        signal.signal(signal.SIGTERM, lambda number, frame: _handle(handler, number, frame))


def _is_of_uvicorn(handler: Any) -> bool:
    return str(getattr(handler, "__module__", "")).partition(".")[0] == "uvicorn"


def _handle(handler: Callable[[int, FrameType | None], object], number: int, frame: FrameType | None) -> None:
    # Blocked for this thread, which raises it again. A signal from outside is delivered to another thread.
    signal.pthread_sigmask(signal.SIG_BLOCK, {number})
    handler(number, frame)
