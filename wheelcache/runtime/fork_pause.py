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
from functools import partial
from typing import Final, Protocol

COUNTS_LATE: Final = (3, 13) <= sys.version_info < (3, 13, 10) or (3, 14) <= sys.version_info < (3, 14, 1)
"""These versions count threads after the hooks of the fork have run in the parent (python/cpython#137109), so a thread
that a hook starts makes them warn. With them it starts in a pending call, which Python makes right after the fork."""

PATIENCE: Final = 1.0
"""Seconds to wait for a thread that only has to wake up and return. It takes 0.1 ms, on a busy machine far more."""

PATIENCE_IF_BUSY: Final = 0.1
"""Seconds to wait for a thread that runs a listener. It may be waiting for a lock that the forking thread holds."""

LOOK: Final = 0.01
"""Seconds between two looks at whether the thread is busy."""


KERNEL_LOOK: Final = 0.0001
KERNEL_LOOKS: Final = 1000
"""Seconds between two looks at whether the kernel still lists a thread, and how many."""


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
    # Where another thread than the main one forks, there are two, and Python warns anyway.
    if not COUNTS_LATE or threading.current_thread() is not threading.main_thread():
        _resume()


def _resume() -> None:
    if not _forks:
        for pausable in _pausables:
            pausable.resume()


def wait_for_end(thread: threading.Thread, is_busy: Callable[[], bool] = lambda: False) -> None:
    """Wait until ``thread``, which was asked to end, has ended: for ``PATIENCE``, or less while it is busy."""
    if thread.ident == threading.get_ident():
        return
    looks = 0
    while thread.is_alive():
        # Looks are counted, since a test may have frozen the time.
        if looks * LOOK >= (PATIENCE_IF_BUSY if is_busy() else PATIENCE):
            return
        thread.join(LOOK)
        looks += 1
    if sys.platform == "linux":
        _wait_for_kernel(thread)


def _wait_for_kernel(thread: threading.Thread) -> None:
    """Wait until the kernel no longer lists ``thread``: Python warns by the kernel's count, which goes down a moment
    after ``join`` returned."""
    # A greenlet has the number of the OS thread that it runs in.
    if thread.native_id is None or thread.native_id in (os.getpid(), threading.get_native_id()):
        return
    task = f"/proc/self/task/{thread.native_id}"
    for _ in range(KERNEL_LOOKS):
        if not os.path.exists(task):
            return
        time.sleep(KERNEL_LOOK)


def register_hooks() -> None:
    """Have threads end before forks from now on.

    Hooks before a fork run in reverse order of registration, and those after it in order. So threads end before the
    hooks run that were registered before these, which take locks that threads need to end.
    """
    os.register_at_fork(before=before_fork, after_in_parent=after_fork_in_parent, after_in_child=_forks.clear)
    if COUNTS_LATE:
        # Imported here, since other versions need not have it, nor the 3 ms that it takes.
        import ctypes

        resume = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_resume_from_c)
        # No function in Python: it would make the pending call itself, within the fork.
        os.register_at_fork(after_in_parent=partial(ctypes.pythonapi.Py_AddPendingCall, resume, None))


def _resume_from_c(_: object) -> int:
    _resume()
    return 0
