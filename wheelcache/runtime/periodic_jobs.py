"""What is done every so many seconds for a cache: the line on the log, a sample of its figures, publishing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from wheelcache.errors import CacheClosed, WheelClosed
from wheelcache.runtime.clock import Clock, ManualClock
from wheelcache.timers import STOP, Timers

SLOTS: Final = 64


class PeriodicJob(Protocol):
    """Something to do every ``period`` seconds.

    Attributes:
        matters: how many of its last runs leave anything to be seen.
    """

    @property
    def period(self) -> float: ...
    @property
    def matters(self) -> int: ...

    def begin(self) -> None: ...
    def run(self) -> None: ...
    def start_over(self) -> None: ...
    def close(self) -> None: ...


class PeriodicJobs:
    """Jobs that run while there is something to hit, or somebody asks; else they rest, and the wheel thread may sleep.

    Args:
        tick: seconds by which a job may be late, at least.
        clock: seconds.
        is_idle: whether nothing was asked for since it was last called, and nothing could be hit.
        jobs: what to do.

    Attributes:
        resting: not empty while no job is scheduled. Whoever writes then calls ``start``.
    """

    __slots__ = ("_clock", "_closed", "_due", "_is_idle", "_jobs", "_judge", "_round", "_tick", "_timers", "resting")

    def __init__(self, tick: float, clock: Clock, is_idle: Callable[[], bool], jobs: Sequence[PeriodicJob]) -> None:
        self._tick = min([tick, *(job.period for job in jobs)])
        self._clock = clock
        self._is_idle = is_idle
        self._jobs = jobs
        # The one that finds out whether all may rest: were it two, the first would leave the second nothing to see.
        self._judge = max(jobs, key=lambda job: job.period, default=None)
        self._closed = False
        # Of the last start: jobs of an earlier one stop.
        self._round = 0
        self._timers: Timers | None = None
        self._due: dict[PeriodicJob, float] = {}
        # Holds one item, which whoever starts them takes: one C call, so no lock.
        self.resting: list[bool] = [True] if jobs else []

    def start(self) -> None:
        """Have the jobs run, for the first time after a period of each."""
        with suppress(IndexError, WheelClosed):
            self.resting.pop()
            self._round += 1
            if self._timers is None:
                self._timers = Timers(self._tick, SLOTS, _nothing, clock=self._clock)
            for job in self._jobs:
                job.begin()
                self._due[job] = self._clock() + job.period
                self._timers.every(job.period, partial(self._turn, job, self._round))
            if self._closed:
                # By another thread, just now.
                self._timers.stop()

    def close(self) -> None:
        """No job runs any more."""
        self._closed = True
        self.resting.clear()
        if self._timers is not None:
            self._timers.stop()
        for job in self._jobs:
            job.close()

    def start_over(self) -> None:
        """In the child of a fork."""
        self._round += 1
        self.resting = [True] if self._jobs else []
        for job in self._jobs:
            job.start_over()

    def _turn(self, job: PeriodicJob, number: int) -> object:
        if number != self._round:
            return STOP
        try:
            job.run()
            if job is self._judge and self._is_idle():
                self._rest()
                return STOP
        except CacheClosed:
            # By another thread, just now.
            return STOP
        return self._pause(job)

    def _rest(self) -> None:
        """Nothing can be hit, and a write starts the jobs again."""
        self._round += 1
        try:
            for each in self._jobs:
                if each is not self._judge:
                    # What they know is the last for a while.
                    each.run()
        finally:
            self.resting.append(True)
        if not self._is_idle():
            # Written after the first look, when nobody rested, and maybe for the last time.
            self.start()

    def _pause(self, job: PeriodicJob) -> float:
        """Seconds to the next run, by when it was due: counted from its end, each would come a tick later."""
        now = self._clock()
        due = self._due[job] + job.period
        if due <= now:
            due = now + job.period
        if isinstance(self._clock, ManualClock):
            # In a jump of ten years a sample would be taken 30 million times.
            due = max(due, self._clock.target - job.matters * job.period)
        self._due[job] = due
        return due - now


def _nothing(key: Any, value: Any) -> None:
    """These timers are periodic jobs; none has a key."""
