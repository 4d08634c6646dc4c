"""Runs the periodic jobs of a cache: the line on the log, a sample of its figures, and their publication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from typing import Protocol, runtime_checkable

from wheelcache.errors import CacheClosed
from wheelcache.runtime.clock import Clock, ManualClock, Steppable

logger = logging.getLogger("wheelcache")


class PeriodicJob(Protocol):
    """Something to do every ``period`` seconds.

    Attributes:
        matters: the number of last runs whose effects are visible.
    """

    @property
    def period(self) -> float: ...
    @property
    def matters(self) -> int: ...

    def begin(self) -> None: ...
    def run(self) -> None: ...
    def start_over(self) -> None: ...
    def close(self) -> None: ...


@runtime_checkable
class Aligned(Protocol):
    """A job that runs at certain times instead of every so many seconds."""

    def until_next(self) -> float:
        """Return the seconds until its next run."""


class Driver(Protocol):
    """The wheel thread, or a ``ManualClock``."""

    def attach(self, driven: Steppable) -> None: ...
    def wake(self) -> None: ...


class _IdleChecker:
    """The job that pauses all jobs. It has the longest period, so that each job runs between two of its runs.

    There is only one: of two, the first would leave the second nothing to find.
    """

    __slots__ = ("matters", "period", "run")

    def __init__(self, slowest: PeriodicJob, run: Callable[[], None]) -> None:
        self.period = slowest.period
        self.matters = slowest.matters
        self.run = run


_Runnable = PeriodicJob | _IdleChecker


class PeriodicJobs:
    """Runs jobs while their cache is used; then they are paused, and the wheel thread may sleep.

    Args:
        clock: seconds.
        driver: advances this when a job is due.
        is_idle: returns whether the cache was not used since the last call and has no entries.
        jobs: the jobs. Jobs that are due together run in this order.

    Attributes:
        paused: before the first write, and since the cache was found idle. The next use calls ``cache_is_used``.
    """

    __slots__ = ("__weakref__", "_closed", "_driver", "_generation", "_is_idle", "_jobs", "clock", "paused")

    def __init__(self, clock: Clock, driver: Driver, is_idle: Callable[[], bool], jobs: Sequence[PeriodicJob]) -> None:
        self.clock = clock
        self._driver = driver
        self._is_idle = is_idle
        self._jobs = tuple(jobs)
        self._closed = False
        # When each job of the last start is due. A run that began before belongs to another generation, and changes
        # nothing in this one. A generation never changes its size, so it may be read while another thread writes.
        self._generation: dict[_Runnable, float] = {}
        self.paused = bool(self._jobs)

    @property
    def wake_at(self) -> float:
        return min(self._generation.values(), default=inf)

    def cache_is_used(self) -> None:
        """Start the jobs, each for the first time after its period. Do nothing unless they are paused.

        Called at the first write, at a failed load, and at a call of the store behind, since the cache of a store that
        fails is not written to.
        """
        # No call comes in between, so no other thread and no exception from outside does.
        self.paused, was_paused = False, self.paused
        if not was_paused:
            return
        try:
            now = self.clock()
            for job in self._jobs:
                job.begin()
            slowest = max(self._jobs, key=lambda job: job.period)
            jobs: list[_Runnable] = [*self._jobs, _IdleChecker(slowest, self._check_idle)]
            self._generation = {job: now + _delay(job) for job in jobs}
            if self._closed:
                # By another thread, just now.
                self._generation = {}
                return
            self._driver.attach(self)
            self._driver.wake()
        except BaseException:
            # Interrupted: the next write starts them.
            self._pause()
            raise

    def advance(self, now: float) -> None:
        """Run the jobs that are due at ``now``."""
        generation = self._generation
        for job in tuple(generation):
            if generation is not self._generation:
                return
            if generation[job] <= now:
                self._run(job, generation)

    def close(self) -> None:
        """End all jobs."""
        self._closed = True
        self.paused = False
        self._generation = {}
        for job in self._jobs:
            job.close()

    def start_over(self) -> None:
        """Let the next write start the jobs, in the child of a fork."""
        self._generation = {}
        self.paused = bool(self._jobs) and not self._closed
        for job in self._jobs:
            job.start_over()

    def _run(self, job: _Runnable, generation: dict[_Runnable, float]) -> None:
        # Before the run, since that may be interrupted.
        generation[job] = self._next_due(job, generation[job])
        try:
            job.run()
        except CacheClosed:
            # By another thread, just now.
            self._generation = {}
        except Exception:
            logger.exception("The periodic job %r raised.", job)
        if generation[job] <= self.clock():
            # It took longer than its period.
            generation[job] = self.clock() + job.period

    def _next_due(self, job: _Runnable, due: float) -> float:
        """By when it was due: counted from the end of its run, each run would come a little later."""
        now = self.clock()
        following = (now if isinstance(job, Aligned) else due) + _delay(job)
        if following <= now:
            following = now + job.period
        if isinstance(self.clock, ManualClock):
            # In a jump of ten years a sample would be taken 30 million times.
            following = max(following, self.clock.target - job.matters * job.period)
        return following

    def _check_idle(self) -> None:
        if self._is_idle():
            try:
                # What they know is the last for a while. Those of the longest period have run just now.
                longest = max(job.period for job in self._jobs)
                for job in self._jobs:
                    if job.period < longest:
                        job.run()
            finally:
                self._pause()
            if not self._is_idle():
                # Written after the first look, when the jobs were not paused, and maybe for the last time.
                self.cache_is_used()

    def _pause(self) -> None:
        self._generation = {}
        self.paused = not self._closed


def _delay(job: _Runnable) -> float:
    """Seconds to the next run of ``job``."""
    return job.until_next() if isinstance(job, Aligned) else job.period
