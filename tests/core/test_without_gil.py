"""The core in Python where the interpreter has no global lock, decided by ``sys._is_gil_enabled``."""

import sys

import pytest

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
