"""What bounds the steps of a walk in order of use, which only the core in Python needs."""

import pytest

from wheelcache.core import ordered_walk
from wheelcache.core.python_core import PythonCore


@pytest.fixture
def core(clock):
    made = PythonCore(max_entries=30, clock=clock)
    for key in range(30):
        made.set(key, key, None)
    return made


def test_a_search_for_the_oldest_passes_over_a_bounded_number(core, monkeypatch):
    monkeypatch.setattr(ordered_walk, "SKIPS", 5)
    scan = core.scan(ordered=True)
    scan.step(10)
    for key in range(10):
        core.get(key)
    core.set("new", 1, None)
    # The next best, which is the oldest that the walk has not passed.
    assert core.peek(10) is None
    while core.evict(size=3):
        pass
    assert len(core) == 3
    while scan.step(10):
        pass
    assert core.keys() == [8, 9, "new"]
