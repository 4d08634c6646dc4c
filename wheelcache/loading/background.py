"""Where loads run that no caller waits for, or that a caller waits for only so long: in threads, or in tasks."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from enum import Enum
from functools import partial
from typing import Final, Protocol

from wheelcache.loading.steps import ByDriver, Steps, run, run_async, seconds_until
from wheelcache.loading.wait_graph import Lead
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool


class Handed(Enum):
    """What became of a load that a caller hands over."""

    TAKEN = "it runs, or will"
    REFUSED = "the caller has to run it"
    NO_ROOM = "the deadline passed before there was room"


class Background(Protocol):
    """Runs steps in the background.

    Attributes:
        blocking: the caller blocks its thread while it waits.
        is_task: what is run may be cancelled.
    """

    blocking: bool
    is_task: bool

    def refresh(self, steps: Steps, done: Callable[[], object]) -> bool:
        """Have ``steps`` run as part of no load. Whether they will. ``done`` is called if they may never have begun."""

    def load(self, steps: Steps, lead: Lead, deadline: float, done: Callable[[], object]) -> Handed:
        """Have ``steps`` run in the caller's context. ``deadline`` is on the system's clock."""


class Threads:
    """The pools."""

    blocking = True
    is_task = False

    def refresh(self, steps: Steps, done: Callable[[], object]) -> bool:
        try:
            return refresh_pool.submit(partial(run, steps))
        except RuntimeError:
            # No thread can be had.
            return False

    def load(self, steps: Steps, lead: Lead, deadline: float, done: Callable[[], object]) -> Handed:
        # In a thread of the pool, the caller has a timeout already; and if threads of the pool waited for loads of
        # their own, these could take up all threads.
        if timed_load_pool.runs_here():
            return Handed.REFUSED
        lead.hand_over()
        try:
            patience = seconds_until(deadline) or 0.0
            taken = timed_load_pool.submit(partial(run, steps), context=copy_context(), patience=patience)
        except RuntimeError:
            # No thread can be had.
            lead.take_back()
            return Handed.REFUSED
        return Handed.TAKEN if taken else Handed.NO_ROOM


class Tasks:
    """Tasks of the caller's event loop."""

    blocking = False
    is_task = True

    def refresh(self, steps: Steps, done: Callable[[], object]) -> bool:
        task = refresh_pool.spawn(run_async(steps))
        if task is None:
            return False
        # A task that is cancelled before its first step never runs a ``finally``.
        task.add_done_callback(lambda _: done())
        return True

    def load(self, steps: Steps, lead: Lead, deadline: float, done: Callable[[], object]) -> Handed:
        # Without a bound, since each has a task that waits for it.
        task = timed_load_pool.spawn(run_async(steps), copy_context(), bounded=False)
        if task is None:
            # The interpreter exits.
            return Handed.REFUSED
        task.add_done_callback(lambda _: done())
        return Handed.TAKEN


THREADS: Final = Threads()
TASKS: Final = Tasks()
BACKGROUND: Final = ByDriver(THREADS, TASKS)
