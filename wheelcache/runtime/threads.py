"""Starting a thread, and waiting for its end before a fork."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Final

PATIENCE: Final = 1.0
"""Seconds to wait for a thread that only has to wake up and return. It takes 0.1 ms, on a busy machine far more."""

PATIENCE_IF_BUSY: Final = 0.1
"""Seconds to wait for a thread that runs a listener. It may be waiting for a lock that the forking thread holds."""

LOOK: Final = 0.01
"""Seconds between two looks at whether the thread is busy."""

KERNEL_LOOK: Final = 0.0001
KERNEL_LOOKS: Final = 1000
"""Seconds between two looks at whether the kernel still lists a thread, and how many."""


def start(thread: threading.Thread) -> None:
    """Start ``thread``.

    Raises:
        RuntimeError: the system refuses it.
        BaseException: what interrupted the call from outside. The thread may come up all the same; as long as its
            ``ident`` is None, it has not.
    """
    handled = sys.exception()
    try:
        thread.start()
    except (RuntimeError, KeyError) as error:
        interruption = error.__context__
        if interruption is None or interruption is handled:
            raise
        # Interrupted while the thread comes up, start() releases a lock that it no longer has, or takes the thread off
        # a list that it has left.
        raise interruption from None


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
