"""All fork hooks and exit hooks, in order. No other module registers one.

A part adds itself to a stage. Global objects stay forever; caches, pools and timers stay as long as they live.

Before a fork, in this order:

====================  =======================================  =======================================================
stage                 members                                  why here
====================  =======================================  =======================================================
(the turn to fork)                                             two forks would wait for each other's locks
``TRACKING``          each ``RepeatingThread``                 its thread writes to near caches
``WHEEL``             the wheel thread                         submits jobs to the pools
``POOLS``             refreshes, timed loads, each `Timers`'   run the jobs that the threads above submitted
``HELD``              the use of SQLite, then each cache and   the threads above need these locks to end; a
                      each ``Timers``                          publication waits for the locks of caches
====================  =======================================  =======================================================

A fork copies only the calling thread. Idle threads therefore end first: Python >= 3.12 warns about a fork of a process
with other threads. A thread that runs user code, such as a loader or a listener, cannot be ended; then the warning is
justified. Held members are consistent while the memory is copied. A cache holds its parts first, and then its core.
Members of ``HELD`` are held in order of registration. No thread waits for one of them while it is inside a later one,
so their order cannot cause a deadlock.

After the fork, in the parent: ``HELD`` in reverse, the turn to fork, then the threads in reverse. Threads that have
work start again.

In the child: ``RENEWED`` (locks and descriptors of the process), then ``WHEEL`` and ``POOLS`` forget their threads,
then ``HELD``, including members that were added after the others were held. ``TRACKING`` is last: it notifies near
caches, which must work by then.

At the exit of the interpreter, the following stages run. After them no thread is left, except those that run user code.
A subinterpreter that ends before one of its threads aborts the process:

=================  =================================================================================================
stage              effect, and why here
=================  =================================================================================================
``PUBLISH``        publishes the last figures. It takes a millisecond and comes first, so the figures are not lost if a
                   server kills the process soon.
``STOP_WHEEL``     ends the wheel thread. If the pools stopped first, they would refuse its jobs.
``STOP_POOLS``     stops the pools and ends their idle threads: refreshes are dropped, and timed loads run in the
                   threads of their callers.
``STOP_TRACKING``  disconnects from Redis. It comes last, because each connection waits for its listener.
=================  =================================================================================================

**Asynchronous exceptions.** A signal handler may raise anywhere in a hook, even at its entry, and Python forks
nevertheless: a lock might stay held in the parent, or in the child, where its owner is lost. Only a second call of the
hook can prevent this, so each hook is registered twice. If the first call raised, the second one calls all members
again, which has no effect on those that are done. Each stage of the exit is a hook of its own, so an exception in one
does not keep the next from running.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Final, Generic, Protocol, TypeVar

from wheelcache.runtime.shared_objects import WeakRegistry, acquiring

logger = logging.getLogger("wheelcache")

T = TypeVar("T")

COUNTS_LATE: Final = (3, 13) <= sys.version_info < (3, 13, 10) or (3, 14) <= sys.version_info < (3, 14, 1)
"""These versions of Python count threads after the hooks of the fork have run in the parent (python/cpython#137109), so
they warn if a hook starts a thread. There, threads start in a pending call instead, which runs right after the fork."""


class Threaded(Protocol):
    """An object that owns threads. A second call of a method has no effect."""

    def pause(self) -> None:
        """End the idle threads and wait for them, for a bounded time. ``is_forking()`` is true until ``resume``."""

    def resume(self) -> None:
        """Start the threads that have work, in the parent. This is called even if ``pause`` was not."""

    def after_fork_in_child(self) -> None:
        """Forget the threads and the locks that they may have held."""


class Held(Protocol):
    """An object that must be consistent while the memory is copied. A second call of a method has no effect."""

    def before_fork(self) -> None:
        """Wait until no step is in progress, and keep other threads from beginning one until ``after_fork``."""

    def after_fork(self, *, in_child: bool) -> None:
        """Release the locks of ``before_fork``; in the child, where it may not have been called, replace them."""


class Stage(Generic[T]):
    """The members of a stage: first those of the process, then weakly referenced ones, in order of registration."""

    def __init__(self) -> None:
        self._lasting: list[T] = []
        self._weak: WeakRegistry[T] = WeakRegistry()

    def add(self, member: T) -> None:
        self._lasting.append(member)

    def add_weakly(self, member: T) -> None:
        self._weak.add(member)

    def __iter__(self) -> Iterator[T]:
        yield from tuple(self._lasting)
        yield from self._weak


TRACKING: Final[Stage[Threaded]] = Stage()
WHEEL: Final[Stage[Threaded]] = Stage()
POOLS: Final[Stage[Threaded]] = Stage()
HELD: Final[Stage[Held]] = Stage()
RENEWED: Final[Stage[Callable[[], object]]] = Stage()

THREADS: Final = (TRACKING, WHEEL, POOLS)

PUBLISH: Final[Stage[Callable[[], object]]] = Stage()
STOP_WHEEL: Final[Stage[Callable[[], object]]] = Stage()
STOP_POOLS: Final[Stage[Callable[[], object]]] = Stage()
STOP_TRACKING: Final[Stage[Callable[[], object]]] = Stage()

EXIT: Final = (PUBLISH, STOP_WHEEL, STOP_POOLS, STOP_TRACKING)


class _Fork:
    """A fork in progress.

    Attributes:
        thread: the identity of the forking thread.
        is_ready: whether all steps before the fork are done.
        is_over: whether the locks are released, so that threads may start.
    """

    def __init__(self, thread: int) -> None:
        self.thread = thread
        self.is_ready = False
        self.is_over = False
        self._has_turn = False
        self._is_released = False
        self._held: list[Held] = []

    def prepare(self) -> None:
        if not self._has_turn:
            (self._has_turn,) = acquiring(_turn)
        _call_all(self._preparations())
        self.is_ready = True

    def _preparations(self) -> Iterator[Callable[[], None]]:
        for stage in THREADS:
            for member in stage:
                yield member.pause
        for held in HELD:
            # Noted first, so that it is released even if an exception comes right after it has acquired its lock.
            self._held.append(held)
            yield held.before_fork

    def release(self) -> None:
        # Another thread may hold the members for its own fork by the time of a second call.
        if not self._is_released:
            _call_all(chain((partial(held.after_fork, in_child=False) for held in reversed(self._held)), (self._end,)))
            self._is_released = True

    def _end(self) -> None:
        if self._has_turn:
            # There is no call between the two lines, hence no asynchronous exception.
            self._has_turn = False
            _turn.release()
        self.is_over = True


_forks: Final[list[_Fork]] = []
"""The forks in progress. Items are added and removed in one C call."""

_turn = threading.RLock()
"""Held by a fork from the end of the first thread to the release of the last lock, so that forks do not overlap."""


def is_forking() -> bool:
    """Return whether a fork is in progress. No thread should be started during it."""
    return bool(_forks) and not all(fork.is_over for fork in tuple(_forks))


def _own_fork() -> _Fork | None:
    """Return the fork that this thread is in; None if it is in none."""
    thread = threading.get_ident()
    return next((fork for fork in reversed(_forks) if fork.thread == thread), None)


def _before_fork() -> None:
    fork = _own_fork()
    if fork is None or fork.is_over:
        fork = _Fork(threading.get_ident())
        _forks.append(fork)
    if not fork.is_ready:
        fork.prepare()


def _after_fork_in_parent() -> None:
    fork = _own_fork()
    if fork is None:
        return
    fork.release()
    # If a thread other than the main one forks, there are at least two threads, and Python warns anyway.
    if not COUNTS_LATE or threading.current_thread() is not threading.main_thread():
        _resume()


def _resume() -> None:
    """Start the threads again, and remove the finished forks of this thread from the list."""
    if not is_forking():
        _call_all(member.resume for stage in reversed(THREADS) for member in stage)
    thread = threading.get_ident()
    for fork in tuple(_forks):
        if fork.is_over and fork.thread == thread:
            with suppress(ValueError):
                _forks.remove(fork)


def _resume_later(_: object) -> int:
    """Start the threads again after the fork. This is the pending call, in the main thread, if ``COUNTS_LATE``."""
    try:
        if _forks:
            _resume()
    except BaseException:
        # An exception would leave the result undefined, and the main thread would get a SystemError at any point.
        # Python itself only reports an exception of a hook.
        logger.exception("Starting the threads again after a fork failed.")
    return 0


def _after_fork_in_child() -> None:
    if not _forks:
        return
    _call_all(
        chain(
            RENEWED,
            (member.after_fork_in_child for stage in (WHEEL, POOLS) for member in stage),
            (partial(member.after_fork, in_child=True) for member in HELD),
            (_end_in_child,),
            (member.after_fork_in_child for member in TRACKING),
        )
    )
    _forks.clear()


def _end_in_child() -> None:
    global _turn
    _turn = threading.RLock()
    for fork in _forks:
        fork.is_over = True


def _call_all(calls: Iterable[Callable[[], object]]) -> None:
    """Make each call, also after another one has raised. Raise the last exception afterwards."""
    error: BaseException | None = None
    for call in calls:
        try:
            call()
        except BaseException as raised:
            error = raised
    if error is not None:
        raise error


def _run(stage: Stage[Callable[[], object]]) -> None:
    """Call the members of a stage of the exit."""
    for call in stage:
        try:
            call()
        except Exception:
            logger.exception("%r raised at the exit.", call)


def _register() -> None:
    # Python calls hooks before a fork in reverse order of registration, and those after it in order. Twice, since an
    # exception may come at the entry of a hook: see above.
    for _ in range(2):
        os.register_at_fork(
            before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
        )
    if COUNTS_LATE:
        # Imported here: it takes 3 ms, and other versions do not need it.
        import ctypes

        later = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(_resume_later)
        for _ in range(2):
            # A C function: Python would run the pending call during a Python function, within the fork.
            os.register_at_fork(after_in_parent=partial(ctypes.pythonapi.Py_AddPendingCall, later, None))


if sys.platform != "win32":
    _register()
for _stage in reversed(EXIT):
    # The hook that is registered last runs first.
    atexit.register(_run, _stage)
