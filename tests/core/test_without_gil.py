"""The core in Python where the interpreter has no global lock, decided by ``sys._is_gil_enabled``."""

import sys

import pytest

from tests.core.stamps import LocalStamps
from tests.waiting import THREADS
from wheelcache.core.contract import MISSING
from wheelcache.core.python_core import PythonCore


@pytest.fixture(params=[True, False], ids=["GIL", "no GIL"])
def gil(request, monkeypatch):
    monkeypatch.setattr(sys, "_is_gil_enabled", lambda: request.param, raising=False)
    return request.param


class Observed:
    """A table of stamps that records whether each read of a word is part of a step of ``core``."""

    core = None

    def __init__(self, words):
        self.words = words
        self.reads = []

    def __len__(self):
        return len(self.words)

    def __setitem__(self, slot, word):
        self.words[slot] = word

    def __getitem__(self, slot):
        self.reads.append(self.core.in_step)
        return self.words[slot]


def test_only_without_the_lock_of_the_interpreter_does_a_hit_take_that_of_the_core(gil):
    """An entry would be moved, and the stamps would be read, in the middle of another thread's step."""
    stamps = LocalStamps()
    stamps.table = Observed(stamps.table)
    core = stamps.table.core = PythonCore(stamps=stamps)
    core.set("k", 1, None, slot=3)
    for look in (lambda: core.find("k", MISSING), lambda: core.find(default=MISSING, key="k"), lambda: core.times("k")):
        stamps.table.reads.clear()
        assert look() not in (MISSING, None)
        assert set(stamps.table.reads) == {not gil}
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


@pytest.mark.usefixtures("gil")
def test_a_core_works_in_the_child_of_a_fork():
    core = PythonCore()
    core.set("k", 1, None)
    core.before_fork()
    core.after_fork(in_child=True)
    assert core.find("k") == 1
    assert not core.in_step
