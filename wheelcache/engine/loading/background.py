"""Runs loads in the background, in threads or in tasks: loads without a waiting caller, and loads with a timeout.

Each runs in its own copy of the context of the caller that started it, since a ``Context`` cannot be entered twice at
the same time. A queued refresh keeps that copy in memory; the bound of the queue is its bound. Thread-locals cannot be
copied. The functions of the frameworks in ``surroundings`` are called by the caller that starts the load, and return
context managers, which the load enters in its own thread or task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import Enum
from functools import partial
from typing import Any, Final

from wheelcache.engine.turns import Turn
from wheelcache.runtime.steps import Outcome, PerDriver, Steps, result, run, run_async, seconds_until
from wheelcache.runtime.threads import copied_context
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool

MakeContext = Callable[[], AbstractContextManager[Any]]

surroundings: Final[list[MakeContext]] = []
"""The functions of the frameworks that return the context managers of a load."""


def made_for_load() -> list[AbstractContextManager[Any]]:
    """Return the context managers for a load that the caller starts."""
    return [make() for make in surroundings]


def within(contexts: Iterable[AbstractContextManager[Any]], steps: Steps) -> Steps:
    """Run ``steps`` with ``contexts`` entered. These see an error of the outcome as an exception in their block."""
    outcome: Outcome = None, None
    try:
        with ExitStack() as entered:
            for each in contexts:
                entered.enter_context(each)
            outcome = yield from steps
            result(outcome)
    except GeneratorExit as error:
        # Raised by the loader itself if it is the outcome's error. Otherwise, the driver closes these steps.
        if error is not outcome[1]:
            raise
    except BaseException as error:
        outcome = None, error
    try:
        return outcome
    finally:
        # Otherwise error, traceback and frame would be a cycle.
        del outcome


class _Switch:
    """Whether all loads run in the threads and tasks of their callers, as a test has requested."""

    is_on = False


_in_callers_thread: Final = _Switch()


def stay_with_callers() -> bool:
    """Return whether no load may run in the background."""
    return _in_callers_thread.is_on


@contextmanager
def loads_in_callers_thread() -> Iterator[None]:
    """Run all loads of all caches of the process in the threads and tasks of their callers, for tests.

    A refresh ends before the call that started it returns the old value. A load with a timeout takes as long as it
    takes. Such loads see the caller's thread-locals, and its database transaction, as all other loads do.
    """
    before = _in_callers_thread.is_on
    _in_callers_thread.is_on = True
    try:
        yield
    finally:
        _in_callers_thread.is_on = before


class Handed(Enum):
    """The result of handing a load over to a pool of threads or to a task."""

    TAKEN = "it runs, or will run"
    REFUSED = "the caller has to run it"
    NO_ROOM = "the deadline passed before there was room"


class Threads:
    """The pools of threads. A caller blocks its thread while it waits."""

    blocking = True

    def refresh(self, steps: Steps, turn: Turn) -> bool:
        """Run ``steps`` outside of any load. Return False if they will not run."""
        turn.hand_over()
        try:
            return refresh_pool.submit(partial(run, steps))
        except RuntimeError:
            # The system refuses threads.
            return False

    def load(self, steps: Steps, turn: Turn, deadline: float) -> Handed:
        """Run ``steps`` in a copy of the caller's context. ``deadline`` is on the system's clock."""
        # A caller in a thread of the pool has a timeout already. If threads of the pool waited for further loads, these
        # could occupy every thread.
        if timed_load_pool.runs_here():
            return Handed.REFUSED
        turn.hand_over()
        try:
            patience = seconds_until(deadline) or 0.0
            taken = timed_load_pool.submit(partial(run, steps), context=copied_context(), patience=patience)
        except RuntimeError:
            # The system refuses threads.
            turn.take_back()
            return Handed.REFUSED
        return Handed.TAKEN if taken else Handed.NO_ROOM


class Tasks:
    """Tasks of the caller's event loop. They may be cancelled."""

    blocking = False

    def refresh(self, steps: Steps, turn: Turn) -> bool:
        """Run ``steps`` outside of any load. Return False if they will not run. ``turn`` ends with the task."""
        task = refresh_pool.spawn(run_async(steps))
        if task is None:
            return False
        # A task that is cancelled before its first step never runs a ``finally``.
        task.add_done_callback(lambda _: turn.give_up())
        return True

    def load(self, steps: Steps, turn: Turn, deadline: float) -> Handed:
        """Run ``steps`` in a copy of the caller's context. ``turn`` ends with the task."""
        # Their number is not limited, since a task waits for each of them.
        task = timed_load_pool.spawn(run_async(steps), copied_context(), bounded=False)
        if task is None:
            # The interpreter is exiting.
            return Handed.REFUSED
        task.add_done_callback(lambda _: turn.give_up())
        return Handed.TAKEN


Background = Threads | Tasks

BACKGROUND: Final = PerDriver(Threads(), Tasks())
