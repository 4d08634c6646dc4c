"""Raises an exception at every point, one after the other, at which the interpreter could deliver an asynchronous one.

A time limit (``PyThreadState_SetAsyncExc``) or a signal handler raises wherever the interpreter looks for such things:
when a function begins, when a loop goes round, and when a call of something that is not a Python function returns. A
``with`` statement, on the other hand, takes a lock and is armed without a look in between.
"""

import contextlib
import dis
import functools
import gc
import itertools
import logging
import sys
import threading
from collections import Counter
from concurrent.futures import Future, wait
from pathlib import Path

import pytest

import wheelcache
from tests.instructions import run_watched

compiled_core = pytest.mark.compiled
"""Marks the tests that raise an exception at every point: the core in Python is not exact under these."""

OURS = str(Path(wheelcache.__file__).parent)


ROUNDS = 3
"""The number of times that a point counts if it is passed repeatedly from the same place, as in a loop."""


class Interruption(Exception):
    """An Exception, as Celery's SoftTimeLimitExceeded is."""


class Delivery:
    """Raises ``Interruption`` at the ``target``-th point of the code that ``run`` calls."""

    def __init__(self, target):
        self.target = target
        self.passed = 0
        self._rounds = Counter()
        self.where = None
        # Frames whose last call was that of a Python function: its return is not such a point.
        self._after_python = set()
        self._steps = {}
        self._frame = None

    def run(self, function):
        """Call ``function()``. Return True if it was interrupted."""
        gc.disable()
        try:
            run_watched(function, self._began, lambda frame: self._steps[frame](frame))
        except Interruption:
            pass
        finally:
            sys.setprofile(None)
            gc.enable()
            # Otherwise the objects of the interrupted frames would live on.
            self._after_python.clear()
            self._steps.clear()
            self._frame = None
        return self.where is not None

    def _began(self, frame):
        code = frame.f_code
        if self.where is not None or code.co_filename == logging.__file__ or not _is_inside(frame):
            return False
        if code.co_name != "__init__":
            # A class is not a function, although its __init__ is one.
            self._after_python.add(frame.f_back)
        self._pass(frame)
        self._steps[frame] = self._steps_of(code)
        return True

    def _steps_of(self, code):
        """Return the function to call before each instruction of a frame of ``code``."""
        after, at_return, jumps, caught = _points(code)
        last = None

        def step(frame):
            nonlocal last
            here = frame.f_lasti
            # Not where a call has raised: the handler begins without a look. An exception from here would come before
            # the handled one is noted, and CPython would consider that one handled forever.
            returned = here not in caught
            if last in jumps or (returned and last in after and frame not in self._after_python):
                self._pass(frame)
            if here in after or here in at_return:
                self._after_python.discard(frame)
                if here in at_return:
                    self._frame = frame
                    sys.setprofile(self._returned)
            last = here

        return step

    def _returned(self, frame, event, arg):
        if event == "c_return" and frame is self._frame:
            sys.setprofile(None)
            self._pass(frame)

    def _pass(self, frame):
        back = frame.f_back
        point = (frame.f_code, frame.f_lasti, back.f_code, back.f_lasti)
        self._rounds[point] += 1
        if self._rounds[point] > ROUNDS:
            return
        self.passed += 1
        if self.where is None and self.passed == self.target:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            raise Interruption


@functools.cache
def _points(code):
    """Return the points of a function: the calls after which the next instruction may raise the exception, since it has
    the same handler; the calls that must raise it themselves; the backward jumps; and the starts of handlers."""
    instructions = list(dis.get_instructions(code))
    entries = dis.Bytecode(code).exception_entries
    handlers = {
        each.offset: next((entry.target for entry in entries if entry.start <= each.offset < entry.end), None)
        for each in instructions
    }
    after, at_return, jumps = set(), set(), set()
    caught = {each.offset for each in instructions if each.opname == "PUSH_EXC_INFO"}
    for this, following in itertools.pairwise(instructions):
        if this.opname.startswith("CALL"):
            same = handlers[this.offset] == handlers[following.offset]
            (after if same else at_return).add(this.offset)
        elif this.opname.startswith("JUMP_BACKWARD"):
            jumps.add(this.offset)
    return after, at_return, jumps, caught


def _is_inside(frame):
    """Return whether the code to interrupt calls this, directly or indirectly."""
    while frame is not None and not frame.f_code.co_filename.startswith(OURS):
        frame = frame.f_back
    outer = frame
    while outer is not None and outer.f_code.co_name != "_resume_later":
        outer = outer.f_back
    # ctypes calls ``_resume_later``. The result of such a call is undefined if it raises an exception.
    return frame is not None and outer is None


def returns_in_a_thread(job):
    """Run ``job()`` in another thread. Return whether it returned."""
    done = Future()

    def work():
        try:
            done.set_result(job())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=work, daemon=True).start()
    return done in wait([done], 3.0).done and (done.result(), True)[1]


@contextlib.contextmanager
def quiet():
    """Silence the log and unraisable exceptions: interruptions of listeners, loaders and finalizers are logged."""
    logger = logging.getLogger("wheelcache")
    before, hook = logger.disabled, sys.unraisablehook
    logger.disabled = True
    sys.unraisablehook = lambda _: None
    try:
        yield
    finally:
        logger.disabled = before
        sys.unraisablehook = hook
