"""The timers as a wheel that the wheel thread advances: events are set, keyed timers executed, and jobs run."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, TypeVar

from wheelcache import options
from wheelcache.core import Timer
from wheelcache.keys import unwrap
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.worker_pool import PoolStopped, WorkerPool
from wheelcache.timing.timer_kinds import STOP, Broadcast, JobTimer, KeyedTimer
from wheelcache.timing.timer_table import TimerTable

logger = logging.getLogger("wheelcache")

T = TypeVar("T", bound=Timer)

Execute = Callable[[Any, Any], object]


class TimerRunner:
    """See ``runtime.wheel_driver.Wheel``.

    Args:
        name: what the log calls the timers.
        table: has the timers.
        execute: ``execute(key, value)`` is called for keyed timers.
        pool: calls it.
    """

    __slots__ = ("_execute", "_name", "_pool", "_table")

    def __init__(self, name: str, table: TimerTable, execute: Execute, pool: WorkerPool) -> None:
        self._name = name
        self._table = table
        self._execute = execute
        self._pool = pool

    def __repr__(self) -> str:
        return self._name

    @property
    def next_due(self) -> float:
        return self._table.next_due

    def take_due(self, budget: int) -> None:
        self._table.take_due(budget)

    def tell(self, done: None = None) -> None:
        """Run what was taken out of the table, perhaps by another thread."""
        # Events first: they take no time, and cannot go wrong.
        self._run_each(Broadcast, _set)
        self.submit_all()
        exits: list[BaseException] = []
        self._run_each(JobTimer, partial(self._run_job, exits))
        self._table.settle()
        if exits:
            # After the others have run.
            raise exits[-1]

    def use_clock(self, clock: Clock) -> None:
        self._table.clock = clock

    def submit_all(self) -> None:
        """Have the pool execute the keyed timers that were taken out."""
        self._run_each(KeyedTimer, self._submit)

    def call(self, function: Execute, timer: KeyedTimer) -> None:
        """Call ``function(key, value)``; what it raises is logged."""
        key = unwrap(timer.key)
        try:
            function(key, timer.value)
        except Exception:
            logger.exception("The timer of %r raised.", key)

    def _run_each(self, kind: type[T], run: Callable[[T], None]) -> None:
        """``run(timer)`` for each of a kind that was taken out. An exception from outside leaves it there."""
        taken_out = self._table.taken_out
        for timer in tuple(taken_out):
            if type(timer) is not kind:
                continue
            claimed = False
            try:
                # No call comes in between, so no other thread does, and claims it too.
                if timer in taken_out:
                    del taken_out[timer]
                    claimed = True
                    run(timer)
                    claimed = False
            finally:
                if claimed:
                    taken_out[timer] = None
                    self._table.hurry()

    def _submit(self, timer: KeyedTimer) -> None:
        try:
            # In a context of its own: what drives the wheel is part of some load or request, or of none.
            self._pool.submit(partial(self._run_once, timer), context=Context())
        except PoolStopped:
            # After stop(), and while the interpreter exits: these timers have come to their end.
            pass
        except RuntimeError:
            logger.exception("The timer of %r found no thread to run on.", unwrap(timer.key))

    def _run_once(self, timer: KeyedTimer) -> None:
        # An exception from outside may have had it submitted twice. No call comes in between.
        has_run, timer.has_run = timer.has_run, True
        if not has_run:
            self.call(self._execute, timer)

    def _run_job(self, exits: list[BaseException], job: JobTimer) -> None:
        jobs = self._table.jobs
        if job not in jobs:
            # The timers were stopped meanwhile.
            return
        pause = job.period
        try:
            answer = job.function()
            if answer is STOP:
                jobs.pop(job, None)
            elif answer is not None:
                pause = options.seconds("what a periodic job returns", answer)
        except Exception:
            logger.exception("The periodic job %r raised.", job.function)
        except BaseException as error:
            exits.append(error)
        self._table.repeat_job(job, pause)


def _set(broadcast: Broadcast) -> None:
    broadcast.event.set()
