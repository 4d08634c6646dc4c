"""A save walks through the core in short steps, so that other threads do not wait long."""

import time

from tests.persistence.calling import Calling
from wheelcache.core import CoreClass
from wheelcache.persistence import snapshots
from wheelcache.runtime.clock import SystemClock


class Steps:
    """A core whose scans record their steps.

    Attributes:
        counts: of each step, how many entries were asked for.
        before: called before each step.
    """

    def __init__(self, values):
        self._core = CoreClass()
        for key, value in values.items():
            self._core.set(key, value, None)
        self.counts = []
        self.before = lambda: None

    def __getattr__(self, name):
        return getattr(self._core, name)

    def __len__(self):
        return len(self._core)

    def save(self, path):
        own = snapshots.Snapshots(
            *("mine", self, None, None),
            max_entries=None,
            is_coherent=False,
            is_portable=lambda key: True,
            is_in_use=lambda: True,
        )
        return own.save(path)

    def scan(self, *, ordered):
        steps, scan = self, self._core.scan(ordered=ordered)

        class Noting:
            def step(self, count):
                steps.counts.append(count)
                steps.before()
                return scan.step(count)

            def close(self):
                scan.close()

        return Noting()


def test_a_batch_that_takes_long_halves_the_next_step(path, monkeypatch):
    now = 0.0
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: now))
    steps = Steps({number: Calling() if number in (0, 300) else number for number in range(800)})

    def take_long():
        nonlocal now
        now += 0.003

    Calling.saving = staticmethod(take_long)
    assert steps.save(path) == 800
    assert steps.counts[:5] == [256, 128, 64, 128, 256]


def test_where_another_thread_ran_during_a_step_it_is_let_run_again(path, monkeypatch):
    now, slept = 0.0, []
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: now))
    monkeypatch.setattr(time, "sleep", slept.append)
    steps = Steps({number: number for number in range(600)})

    def wait_for_the_lock():
        nonlocal now
        if len(steps.counts) == 2:
            now += 0.005

    steps.before = wait_for_the_lock
    assert steps.save(path) == 600
    assert slept == [0]
    # The delay came from the other thread; no batch took long.
    assert set(steps.counts) == {256}
