"""Threads end before a fork if they are idle, and start again after it.

A fork copies the calling thread alone, so Python >= 3.12 warns of every fork of a process that has other threads. A
thread that runs the user's code, such as a loader or a listener, cannot be ended: then Python warns, and is right to.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

PATIENCE: Final = 1.0
"""Seconds to wait for a thread that only has to wake up and return. It takes 0.1 ms, on a busy machine far more."""

PATIENCE_IF_BUSY: Final = 0.1
"""Seconds to wait for a thread that runs a listener. It may be waiting for a lock that the forking thread holds."""

LOOK: Final = 0.01
"""Seconds between two looks at whether the thread is busy."""


class Pausable(Protocol):
    """What has threads that end before a fork."""

    def pause(self) -> None:
        """End the idle threads, and wait for that, in a bounded time."""

    def resume(self) -> None:
        """No fork is in progress any more. Start what is needed without being asked."""


_pausables: Final[list[Pausable]] = []
_forks: Final[list[None]] = []
"""An item for each fork in progress. A list, because append and pop are atomic."""


def pause_at_forks(pausable: Pausable) -> None:
    """Call ``pausable`` around every fork from now on."""
    _pausables.append(pausable)


def is_forking() -> bool:
    """Whether a thread is in the middle of a fork. No thread should be started now."""
    return bool(_forks)


def before_fork() -> None:
    _forks.append(None)
    for pausable in _pausables:
        pausable.pause()


def after_fork_in_parent() -> None:
    with suppress(IndexError):
        _forks.pop()
    if not _forks:
        for pausable in _pausables:
            pausable.resume()


def wait_for_end(thread: threading.Thread, is_busy: Callable[[], bool] = lambda: False) -> None:
    """Wait until ``thread``, which was asked to end, has ended: for ``PATIENCE``, or less while it is busy."""
    if thread.ident == threading.get_ident():
        return
    began = time.monotonic()
    while thread.is_alive():
        left = began + (PATIENCE_IF_BUSY if is_busy() else PATIENCE) - time.monotonic()
        if left <= 0:
            return
        thread.join(min(left, LOOK))
    if sys.platform == "linux":
        _wait_for_kernel(thread, began + PATIENCE)


def _wait_for_kernel(thread: threading.Thread, deadline: float) -> None:
    """Wait until the kernel no longer lists ``thread``: it counts it for some 20 us after ``join`` returned, and Python
    warns by the kernel's count."""
    # A greenlet has the number of the OS thread that it runs in.
    if thread.native_id is None or thread.native_id in (os.getpid(), threading.get_native_id()):
        return
    task = f"/proc/self/task/{thread.native_id}"
    while os.path.exists(task) and time.monotonic() < deadline:
        time.sleep(0)


os.register_at_fork(after_in_child=_forks.clear)
