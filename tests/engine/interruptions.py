"""Raises an exception at every point, one after the other, at which the interpreter could deliver an asynchronous one.

A time limit (``PyThreadState_SetAsyncExc``) or a signal handler raises wherever the interpreter looks for such things:
when a function begins, when a loop goes round, and when a call of something that is not a Python function returns. A
``with`` statement, on the other hand, takes a lock and is armed without a look in between.
"""

import contextlib
import dis
import gc
import logging
import queue
import sys
import threading

NOT_INTERRUPTED = {logging.__file__, __file__}


class Interruption(Exception):
    """As Celery's SoftTimeLimitExceeded, an Exception."""


class Delivery:
    """Raises ``Interruption`` at the ``target``-th point of what is run inside of ``run``."""

    def __init__(self, target):
        self.target = target
        self.passed = 0
        self.where = None
        # Frames whose last call was of a function in Python: its return is no such point.
        self._after_python = set()

    def run(self, function):
        """What came of ``function()``: True if it was interrupted on the way."""
        gc.disable()
        before, hook = sys.gettrace(), sys.unraisablehook
        # What is raised in a __del__ or a callback of a weak reference goes nowhere but there.
        sys.unraisablehook = lambda _: None
        sys.settrace(self._began)
        try:
            function()
        except Interruption:
            pass
        finally:
            sys.settrace(before)
            sys.unraisablehook = hook
            gc.enable()
        return self.where is not None

    def _began(self, frame, event, arg):
        if frame.f_code.co_filename in NOT_INTERRUPTED or self.where is not None:
            return None
        if frame.f_code.co_name != "__init__":
            # A class is no function, though its __init__ is one.
            self._after_python.add(frame.f_back)
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        self._pass(frame)
        last = None

        def step(frame, event, arg):
            nonlocal last
            if event == "opcode" and self.where is None:
                if last is not None and self._may_deliver_after(last, frame):
                    self._pass(frame)
                last = dis.opname[frame.f_code.co_code[frame.f_lasti]]
                if last.startswith("CALL"):
                    self._after_python.discard(frame)
            return step

        return step

    def _may_deliver_after(self, opname, frame):
        if opname.startswith("CALL"):
            return frame not in self._after_python
        return opname.startswith("JUMP_BACKWARD")

    def _pass(self, frame):
        self.passed += 1
        if self.passed == self.target:
            self.where = f"{frame.f_code.co_filename}:{frame.f_lineno} in {frame.f_code.co_name}"
            raise Interruption


class Worker:
    """A thread beside the one that is interrupted."""

    def __init__(self):
        self._start()

    def _start(self):
        self._jobs = queue.SimpleQueue()
        self._done = queue.SimpleQueue()
        threading.Thread(target=_work, args=(self._jobs, self._done), daemon=True).start()

    def does(self, job, seconds=3.0):
        """Run ``job()`` there. Whether it came back."""
        self._jobs.put(job)
        try:
            error = self._done.get(timeout=seconds)
        except queue.Empty:
            self._start()
            return False
        if error is not None:
            raise error
        return True


def _work(jobs, done):
    while True:
        try:
            jobs.get()()
        except BaseException as error:
            done.put(error)
        else:
            done.put(None)

@contextlib.contextmanager
def quiet():
    """Listeners and loaders are interrupted as well, and that is logged."""
    logger = logging.getLogger("wheelcache")
    before = logger.disabled
    logger.disabled = True
    try:
        yield
    finally:
        logger.disabled = before
