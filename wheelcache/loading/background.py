"""Runs loads in the background, in threads or in tasks: loads without a waiting caller, and loads with a timeout."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from enum import Enum
from functools import partial
from typing import Final

from wheelcache.loading.steps import ByDriver, Steps, run, run_async, seconds_until
from wheelcache.loading.wait_graph import Lead
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool


class Handed(Enum):
    """The result of handing a load over to a pool of threads or to a task."""

    TAKEN = "it runs, or will run"
    REFUSED = "the caller has to run it"
    NO_ROOM = "the deadline passed before there was room"


class Threads:
    """The pools of threads. A caller blocks its thread while it waits."""

    blocking = True

    def refresh(self, steps: Steps, done: Callable[[], object]) -> bool:
        """Run ``steps`` outside of any load. Return False if they will not run."""
        try:
            return refresh_pool.submit(partial(run, steps))
        except RuntimeError:
            # The system refuses threads.
            return False

    def load(self, steps: Steps, lead: Lead, deadline: float, done: Callable[[], object]) -> Handed:
        """Run ``steps`` in the caller's context. ``deadline`` is on the system's clock."""
        # A caller in a thread of the pool has a timeout already. If threads of the pool waited for further loads, these
        # could occupy every thread.
        if timed_load_pool.runs_here():
            return Handed.REFUSED
        lead.hand_over()
        try:
            patience = seconds_until(deadline) or 0.0
            taken = timed_load_pool.submit(partial(run, steps), context=copy_context(), patience=patience)
        except RuntimeError:
            # The system refuses threads.
            lead.take_back()
            return Handed.REFUSED
        return Handed.TAKEN if taken else Handed.NO_ROOM


class Tasks:
    """Tasks of the caller's event loop. They may be cancelled."""

    blocking = False

    def refresh(self, steps: Steps, done: Callable[[], object]) -> bool:
        """Run ``steps`` outside of any load. Return False if they will not run. Call ``done`` when the task ends, even
        if the steps never began."""
        task = refresh_pool.spawn(run_async(steps))
        if task is None:
            return False
        # A task that is cancelled before its first step never runs a ``finally``.
        task.add_done_callback(lambda _: done())
        return True

    def load(self, steps: Steps, lead: Lead, deadline: float, done: Callable[[], object]) -> Handed:
        """Run ``steps`` in the caller's context. Call ``done`` when the task ends, even if the steps never began."""
        # Their number is not limited, since a task waits for each of them.
        task = timed_load_pool.spawn(run_async(steps), copy_context(), bounded=False)
        if task is None:
            # The interpreter is exiting.
            return Handed.REFUSED
        task.add_done_callback(lambda _: done())
        return Handed.TAKEN


Background = Threads | Tasks

BACKGROUND: Final = ByDriver(Threads(), Tasks())
