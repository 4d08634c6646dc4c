"""freezegun and time-machine under one interface: what freezes the time, and moves it."""

import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import freezegun
import time_machine

FAR = datetime(2035, 1, 1, tzinfo=UTC)
LONG_AGO = datetime(2005, 1, 1, tzinfo=UTC)


def in_real_time(seconds=0):
    """A moment that many seconds from now, by the real time or the frozen one."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


def real_seconds():
    """Return the time of a clock that neither library moves."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def real_seconds_for(function):
    began = real_seconds()
    function()
    return real_seconds() - began


class Freezegun:
    def __init__(self, clock):
        self.move_to = clock.move_to
        self._clock = clock

    def shift(self, seconds):
        self._clock.tick(timedelta(seconds=seconds))

    @classmethod
    @contextmanager
    def freeze(cls, moment, *, tick=False):
        with freezegun.freeze_time(moment, tick=tick) as clock:
            yield cls(clock)


class TimeMachine:
    def __init__(self, traveller):
        self.move_to = traveller.move_to
        self.shift = traveller.shift

    @classmethod
    @contextmanager
    def freeze(cls, moment, *, tick=False):
        with time_machine.travel(moment, tick=tick) as traveller:
            yield cls(traveller)


LIBRARIES = {"freezegun": Freezegun, "time-machine": TimeMachine}
