"""What is done every so many seconds for a cache: the line on the log, a sample of its figures, publishing them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Protocol

from wheelcache.clock import Clock
from wheelcache.errors import WheelClosed
from wheelcache.timers import STOP, Timers

SLOTS: Final = 64


class PeriodicJob(Protocol):
    """Something to do every ``period`` seconds."""

    @property
    def period(self) -> float: ...

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

    __slots__ = ("_clock", "_is_idle", "_jobs", "_longest", "_round", "_tick", "_timers", "resting")

    def __init__(self, tick: float, clock: Clock, is_idle: Callable[[], bool], jobs: Sequence[PeriodicJob]) -> None:
        self._tick = min([tick, *(job.period for job in jobs)])
        self._clock = clock
        self._is_idle = is_idle
        self._jobs = jobs
        self._longest = max((job.period for job in jobs), default=0.0)
        # Of the last start: jobs of an earlier one stop.
        self._round = 0
        self._timers: Timers | None = None
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
                self._timers.every(job.period, partial(self._turn, job, self._round))

    def close(self) -> None:
        """No job runs any more."""
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
        job.run()
        if job.period == self._longest and self._is_idle():
            # Nothing can be hit, and a write starts them again.
            self._round += 1
            for each in self._jobs:
                if each is not job:
                    # What they know is the last for a while.
                    each.run()
            self.resting.append(True)
            return STOP
        return None


def _nothing(key: Any, value: Any) -> None:
    """These timers are periodic jobs; none has a key."""
