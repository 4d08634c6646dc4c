"""Runs the periodic jobs of a cache: the log line, the samples of its figures, and their publication."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import inf

from wheelcache.errors import CacheClosed
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.wheel_driver import ManualClock, driver_of

logger = logging.getLogger("wheelcache")


class PeriodicJob:
    """A job that runs every ``period`` seconds.

    Attributes:
        matters: the number of most recent runs that have a visible effect. If a ``ManualClock`` jumps over more runs,
            the earlier ones are skipped.
    """

    period: float
    matters: int = 1

    def begin(self) -> None:
        """Prepare for the runs, after the start and after each pause."""

    def run(self) -> None:
        raise NotImplementedError

    def next_run(self, due: float, now: float) -> float:
        """Return the time of the run that follows the one that was due at ``due``."""
        return due + self.period

    def start_over(self) -> None:
        """Set the initial state, in the child of a fork."""

    def close(self) -> None:
        """Release the resources of the job."""


class _PauseWhenIdle(PeriodicJob):
    """The job that pauses all jobs of an idle cache. It has the longest period: each job runs between two of its runs.

    A cache must have only one, because ``is_idle`` compares with the previous call.
    """

    def __init__(self, slowest: PeriodicJob, check: Callable[[], None]) -> None:
        self.period = slowest.period
        self.matters = slowest.matters
        self._check = check

    def run(self) -> None:
        self._check()


@dataclass(eq=False)
class IdleCheck:
    """Checks whether a cache is idle: it was already empty at the last call, and has not been used since.

    Between two calls, every job runs. So the cache has been published as empty before its jobs are paused, even if an
    operator's clear or an expiry emptied it.

    Args:
        activity: returns the numbers of uses, of stored values and of entries.
        expect_write: lets the next write report that the cache is used.

    Attributes:
        is_computing: returns whether values are being computed. Until they are stored, the cache must receive the
            requests of operators that outdate them.
    """

    _activity: Callable[[], tuple[int, int, int]]
    _expect_write: Callable[[], object]
    is_computing: Callable[[], bool]
    _before: tuple[int, int, int] = (0, 0, 0)

    def __call__(self) -> bool:
        # This comes first, so that a write after the check below starts the jobs again.
        self._expect_write()
        before, self._before = self._before, self._activity()
        entries = self._before[-1]
        return before == self._before and not entries and not self.is_computing()


class PeriodicJobs:
    """Runs jobs while their cache is used. While the cache is idle, they are paused, so the wheel thread can sleep.

    Args:
        clock: returns seconds.
        is_idle: returns whether the cache was not used since the last call and has no entries.
        jobs: the jobs: see ``add``.
    """

    def __init__(self, clock: Clock, is_idle: Callable[[], bool], jobs: Iterable[PeriodicJob] = ()) -> None:
        self.clock = clock
        self._driver = driver_of(clock)
        self._is_idle = is_idle
        self._jobs: tuple[PeriodicJob, ...] = ()
        self._closed = False
        # The due times of the jobs since the last start. A run that began earlier belongs to another generation, and
        # does not change this one. A generation never changes its size, so a thread may read it while another writes.
        self._generation: dict[PeriodicJob, float] = {}
        # Has an item while the jobs are paused. The caller that removes it starts them: ``pop`` is atomic, also without
        # the global interpreter lock.
        self._right_to_start: list[bool] = []
        self.add(*jobs)

    def add(self, *jobs: PeriodicJob) -> None:
        """Add jobs before the first start. Jobs that are due together run in the order in which they were added."""
        if jobs:
            self._jobs += jobs
            self._right_to_start = [True]

    @property
    def paused(self) -> bool:
        """Whether the jobs are paused: before the first write, and while the cache is idle. The next use calls
        ``start_jobs``."""
        return bool(self._right_to_start)

    @property
    def wake_at(self) -> float:
        return min(self._generation.values(), default=inf)

    def start_jobs(self) -> None:
        """Start the jobs. Each runs for the first time after its period. Do nothing unless they are paused.

        This is called at the first look-up of a cache that publishes, at the first write, at a failed
        load, and at a call of the store behind: while that store fails, there are no writes.
        """
        if not self._right_to_start:
            return
        try:
            try:
                self._right_to_start.pop()
            except IndexError:
                # Another thread starts them.
                return
            now = self.clock()
            for job in self._jobs:
                job.begin()
            slowest = max(self._jobs, key=lambda job: job.period)
            jobs: list[PeriodicJob] = [*self._jobs, _PauseWhenIdle(slowest, self._check_idle)]
            self._generation = {job: job.next_run(now, now) for job in jobs}
            if self._closed:
                # Another thread has just closed the cache.
                self._generation = {}
                return
            self._driver.attach(self)
            self._driver.wake()
        except BaseException:
            # Interrupted: the next write starts the jobs.
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
        self._right_to_start = []
        self._generation = {}
        for job in self._jobs:
            job.close()

    def start_over(self) -> None:
        """Let the next write start the jobs, in the child of a fork."""
        self._generation = {}
        self._right_to_start = [True] if self._jobs and not self._closed else []
        for job in self._jobs:
            job.start_over()

    def _run(self, job: PeriodicJob, generation: dict[PeriodicJob, float]) -> None:
        # Assigned before the run, which may be interrupted.
        generation[job] = self._next_due(job, generation[job])
        try:
            job.run()
        except CacheClosed:
            # Another thread has just closed the cache.
            self._generation = {}
        except Exception:
            logger.exception("The periodic job %r raised.", job)
        if generation[job] <= self.clock():
            # The run took longer than its period.
            generation[job] = self.clock() + job.period

    def _next_due(self, job: PeriodicJob, due: float) -> float:
        """Return the next due time of ``job``, counted from the last one, ``due``, so that the runs do not drift."""
        now = self.clock()
        following = job.next_run(due, now)
        if following <= now:
            following = now + job.period
        if isinstance(self.clock, ManualClock):
            # Otherwise a jump of ten years would take 30 million samples.
            following = max(following, self.clock.target - job.matters * job.period)
        return following

    def _check_idle(self) -> None:
        if self._is_idle():
            try:
                # A last run before the pause. Jobs with the longest period have just run.
                longest = max(job.period for job in self._jobs)
                for job in self._jobs:
                    if job.period < longest:
                        job.run()
            finally:
                self._pause()
            if not self._is_idle():
                # The cache was written to after the first check, while the jobs were not paused. There may be no later
                # write that starts them.
                self.start_jobs()

    def _pause(self) -> None:
        self._generation = {}
        self._right_to_start = [] if self._closed else [True]
