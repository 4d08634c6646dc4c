"""Daemon threads: the context of their work, their start, and their end before a fork or at the exit."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Final

PATIENCE: Final = 1.0
"""Seconds to wait for a thread that only has to wake up and return: usually 0.1 ms, far longer on a busy machine."""

PATIENCE_IF_BUSY: Final = 0.1
"""Seconds to wait for a thread that runs a listener. It may be waiting for a lock that the forking thread holds."""

CHECK_INTERVAL: Final = 0.01
"""Seconds between two checks of whether the thread is busy."""

KERNEL_CHECK_INTERVAL: Final = 0.0001
KERNEL_CHECKS: Final = 1000
"""Seconds between two checks of whether the kernel still lists a thread, and the maximum number of checks."""


resetters: Final[list[Callable[[], object]]] = []
"""Functions that are called in each new context. They reset context variables that name the load or request to which
the running code belongs: a refresh belongs to none, although a load or request started it."""


not_copied: Final[list[type]] = []
"""Classes of values of context variables that are left out of copied contexts, because only their own thread may use
them: a request of Flask, for instance."""


def copied_context() -> Context:
    """Return a copy of the caller's context for work in another thread or task."""
    context = copy_context()
    if not not_copied:
        return context
    copied, left_out = Context(), tuple(not_copied)
    for variable, value in context.items():
        # Not ``isinstance``, which would evaluate a lazy object.
        if not issubclass(type(value), left_out):
            copied.run(variable.set, value)
    return copied


def own_context() -> Context:
    """Return a copy of the caller's context for work that goes on without the caller."""
    context = copied_context()
    for reset in resetters:
        context.run(reset)
    return context


def make(name: str, target: Callable[..., object], *args: object) -> threading.Thread:
    """Return a thread for ``start``, which makes it a daemon.

    It is not a daemon yet, because an isolated subinterpreter refuses daemons in the constructor. This way, only
    ``start`` can raise.
    """
    return threading.Thread(target=target, args=args, name=name, daemon=False)


def start(thread: threading.Thread) -> None:
    """Start ``thread`` as a daemon.

    Raises:
        RuntimeError: if the system or the interpreter refuses the thread.
        BaseException: an asynchronous exception. The thread may start nevertheless.
    """
    handled = sys.exception()
    try:
        thread.daemon = True
        thread.start()
    except (RuntimeError, KeyError) as error:
        interruption = error.__context__
        if interruption is None or interruption is handled:
            raise
        # This error is a consequence: an interrupted start() releases a lock that it no longer holds, or removes the
        # thread from a list that the thread has already left. Callers that took it for a refusal would not start the
        # thread again, and it would be lost for good.
        raise interruption from None


def wait_for_end(thread: threading.Thread, is_busy: Callable[[], bool] = lambda: False) -> None:
    """Wait until ``thread``, which was asked to end, has ended: for at most ``PATIENCE``, or less while it is busy."""
    if thread.ident == threading.get_ident():
        return
    checks = 0
    while thread.is_alive():
        # Count the checks instead of reading a clock: a test may have frozen the time.
        if checks * CHECK_INTERVAL >= (PATIENCE_IF_BUSY if is_busy() else PATIENCE):
            return
        thread.join(CHECK_INTERVAL)
        checks += 1
    if sys.platform == "linux":
        _wait_for_kernel(thread)


def _wait_for_kernel(thread: threading.Thread) -> None:
    """Wait until the kernel no longer lists ``thread``.

    At a fork, Python warns if the kernel counts several threads, and the kernel's count drops shortly after ``join``
    has returned.
    """
    # A greenlet has the number of the OS thread that it runs in.
    if thread.native_id is None or thread.native_id in (os.getpid(), threading.get_native_id()):
        return
    task = f"/proc/self/task/{thread.native_id}"
    for _ in range(KERNEL_CHECKS):
        if not os.path.exists(task):
            return
        time.sleep(KERNEL_CHECK_INTERVAL)


def end_under_a_patch() -> None:
    """Prepare the end of the running thread, which may have been started before gevent patched ``threading``.

    The number of such a thread differs from the number that it was registered with, and ``threading`` would print a
    KeyError when it removes the thread from its list. Looking up the current thread registers a dummy under the new
    number.
    """
    threading.current_thread()
