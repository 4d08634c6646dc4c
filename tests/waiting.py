"""For what another thread or process does in its own time: look until it is done, or give up."""

import asyncio
import sys
import threading
import time

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
        frame = innermost
        while frame is not None:
            if frame.f_code is asyncio.BaseEventLoop.run_forever.__code__:
                count += sum(map(_waits, asyncio.all_tasks(frame.f_locals["self"])))
            frame = frame.f_back
    return count


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


def _waits(task):
    awaited = task.get_coro()
    while awaited is not None:
        if getattr(awaited, "cr_code", None) is Alarm.wait_async.__code__:
            return True
        awaited = getattr(awaited, "cr_await", None)
    return False
