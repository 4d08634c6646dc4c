"""What the tests of timers share: executed calls, and a clock that the test moves."""

import threading

import pytest

from tests.waiting import PATIENCE
from wheelcache.timers import Timers


class Fired:
    """The executed calls and their threads. ``wait(n)`` waits for n calls."""

    def __init__(self):
        self.calls = []
        self.threads = set()
        self._changed = threading.Condition()

    def __call__(self, key, value):
        with self._changed:
            self.calls.append((key, value))
            self.threads.add(threading.current_thread().name)
            self._changed.notify_all()

    def wait(self, count):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.calls) >= count, PATIENCE), self.calls
            return list(self.calls)


@pytest.fixture
def fired():
    return Fired()


@pytest.fixture
def make(clock):
    """Make timers, which are stopped at the end of the test."""
    made = []

    def make_timers(interval=1.0, execute=print, **options):
        made.append(Timers(interval, execute, **{"clock": clock, **options}))
        return made[-1]

    yield make_timers
    for each in made:
        each.stop()


@pytest.fixture
def timers(make, fired):
    return make(execute=fired)
