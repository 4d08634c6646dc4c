"""The core in Python where the interpreter has no global lock, decided by ``sys._is_gil_enabled``."""

import sys

import pytest

from tests.waiting import THREADS
from wheelcache.core.contract import MISSING
from wheelcache.core.python_core import PythonCore


@pytest.fixture(params=[True, False], ids=["GIL", "no GIL"])
def gil(request, monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: request.param, raising=False)
    return request.param


class Observed:
    """A word of trust that records whether each read of it is part of a step of ``core``."""

    core = None

    def __init__(self):
        self.reads = []

    def __getitem__(self, index):
        self.reads.append(self.core.in_step)
        return 1


def test_only_without_the_lock_of_the_interpreter_does_a_hit_take_that_of_the_core(gil):
    """An entry would be moved, and its trust would be read, in the middle of another thread's step."""
    trust = Observed()
    core = trust.core = PythonCore(trust=trust)
    core.set("k", 1, None)
    for look in (lambda: core.find("k", MISSING), lambda: core.find(default=MISSING, key="k"), lambda: core.times("k")):
        trust.reads.clear()
        assert look() not in (MISSING, None)
        assert set(trust.reads) == {not gil}
    assert core.find("missing", MISSING) is MISSING
    assert core.counts().hits == 2


@pytest.mark.usefixtures("gil")
def test_hits_and_writes_of_many_threads_leave_a_core_that_is_whole(together):
    core = PythonCore(max_entries=50)

    def use(number):
        hits = 0
        for turn in range(300):
            key = (number * turn) % 100
            if core.find(key, MISSING) is MISSING:
                core.set(key, key, 60.0)
            else:
                hits += 1
            if turn % 7 == 0:
                core.delete(key)
        return hits

    assert sum(together(use)) == core.counts().hits
    assert len(core) == len(core.keys()) <= 50
    assert len(together(lambda number: core.find(number))) == THREADS
