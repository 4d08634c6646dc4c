"""For what another thread or process does in its own time: look until it is done, or fail and say what was not."""

import asyncio
import gc
import inspect
import os
import sys
import threading
import time
from reprlib import Repr
from weakref import WeakSet

from wheelcache.runtime.alarm import Alarm

THREADS = 32


def _load():
    """Return how many times as long as on an idle machine a thread takes for its work: 1 to 6."""
    began, used = time.monotonic(), time.thread_time()
    while time.thread_time() < used + 0.2:
        pass
    return min(max((time.monotonic() - began) / 0.2, 1), 6)


# The first process of a run measures it before it starts others, which inherit it.
if "LOAD_AT_START" not in os.environ:
    os.environ["LOAD_AT_START"] = f"{_load():.1f}"
PATIENCE = round(10 * float(os.environ["LOAD_AT_START"]))
"""Seconds that a test waits for an event before it fails: 10 on an idle machine."""


def happens(condition, seconds=PATIENCE):
    """Return whether ``condition()`` becomes true within ``seconds``."""
    began = time.monotonic()
    deadline = began + seconds
    while not condition():
        now = time.monotonic()
        if now > deadline:
            return False
        # A condition that asks a server or a browser leaves most of the time to it.
        time.sleep(min(max(0.01, 3 * (now - began)), 0.1))
        began = time.monotonic()
    return True


def until(condition, seconds=PATIENCE, note=""):
    """Wait until ``condition()`` is true, and return True. Fail and show the condition if it is not within ``seconds``.

    Args:
        note: a text to show with it, or a function that returns one.
    """
    if not happens(condition, seconds):
        raise AssertionError(f"not within {seconds} s: {_described(condition)}\n{note() if callable(note) else note}")
    return True


def start(function, *args):
    """Call a function in a new thread, and return the thread."""
    thread = threading.Thread(target=function, args=args)
    thread.start()
    return thread


def join(*threads):
    """Wait until these threads or processes have ended."""
    for each in threads:
        each.join(PATIENCE)
        assert not each.is_alive(), f"{each} has not ended within {PATIENCE} s"


def current_frames():
    """Return the innermost frames of all threads.

    Python 3.11 holds a lock of the interpreter during this call. A collection in it would let other threads run, and
    the next one that starts a thread would wait for that lock with the GIL, forever (gh-106883).
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return sys._current_frames()
    finally:
        if collects:
            gc.enable()


def waiting():
    """Return the number of threads and tasks of running event loops that wait for a load or a lease of another one.

    Those that were woken and have not run since are still counted.
    """
    count = 0
    # That thread waits for the exit.
    at_exit = {thread.ident for thread in threading.enumerate() if thread.name == "wheelcache-save"}
    for ident, innermost in current_frames().items():
        count += innermost.f_code is Alarm.wait.__code__ and ident not in at_exit
    # The frames below the innermost one belong to a running thread, and may be gone before they are read.
    with _noting:
        tasks = list(_tasks)
    return count + sum(_waits(task) for task in tasks if task.get_loop().is_running())


def until_waiting(count=1, seconds=PATIENCE):
    """Wait until exactly ``count`` threads and tasks wait for a load or a lease of another one.

    For use outside an event loop; a coroutine calls ``auntil_waiting``.
    """
    until(lambda: waiting() == count, seconds, note=lambda: f"{waiting()} wait")


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


_short = Repr()
_short.maxstring = _short.maxother = 200


def _described(condition):
    """Return the source of a function, and the values that it refers to."""
    if not inspect.isfunction(condition):
        return repr(condition)
    names = {**inspect.getclosurevars(condition).nonlocals, **inspect.signature(condition).parameters}
    try:
        source = inspect.getsource(condition).strip()
    except OSError:
        source = repr(condition)
    return "\n".join([source, *(f"{name}: {_short.repr(value)}" for name, value in names.items())])
