"""For what another thread or process does in its own time: look until it is done, or give up."""

import asyncio
import sys
import threading
import time
from weakref import WeakSet

from wheelcache.runtime.alarm import Alarm

THREADS = 32
PATIENCE = 60
"""Seconds that a test waits for an event before it fails. On a busy machine a thread may not run for many seconds."""


def until(condition, seconds=PATIENCE):
    """Wait until ``condition()`` is true. Return False if it is not within ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def waiting():
    """Return the number of threads and tasks of running event loops that wait for a load or a lease of another one.

    Those that were woken and have not run since are still counted.
    """
    count = 0
    # That thread waits for the exit.
    at_exit = {thread.ident for thread in threading.enumerate() if thread.name == "wheelcache-save"}
    for ident, innermost in sys._current_frames().items():
        count += innermost.f_code is Alarm.wait.__code__ and ident not in at_exit
    # The frames below the innermost one belong to a running thread, and may be gone before they are read.
    with _noting:
        tasks = list(_tasks)
    return count + sum(_waits(task) for task in tasks if task.get_loop().is_running())


def until_waiting(count=1, seconds=PATIENCE):
    """Wait until exactly ``count`` threads and tasks wait for a load or a lease of another one.

    For use outside an event loop; a coroutine calls ``auntil_waiting``.
    """
    assert until(lambda: waiting() == count, seconds), f"{waiting()} wait, not {count}"


async def auntil_waiting(count=1, seconds=PATIENCE):
    """Wait as ``until_waiting`` does, in a coroutine, while other tasks of the event loop run."""
    deadline = time.monotonic() + seconds
    while waiting() != count:
        assert time.monotonic() < deadline, f"{waiting()} wait, not {count}"
        # Often: the tasks of the loop need several turns each, and each turn is short.
        await asyncio.sleep(0.001)


_tasks, _noting = WeakSet(), threading.Lock()
_wait_async = Alarm.wait_async


def _note_and_wait(alarm, seconds):
    with _noting:
        _tasks.add(asyncio.current_task())
    return _wait_async(alarm, seconds)


# The tasks of all event loops that have waited.
Alarm.wait_async = _note_and_wait


def _waits(task):
    awaited = task.get_coro()
    while awaited is not None:
        if getattr(awaited, "cr_code", None) is _wait_async.__code__:
            return True
        awaited = getattr(awaited, "cr_await", None)
    return False
