"""Walks over all entries, such as that of ``delete_pattern``, while others write."""

import pytest

from tests.host_cache.test_operators import make
from wheelcache import ManualClock
from wheelcache.engine import cache_parts


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def cache(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(cache_parts, "BATCH", 3)
    cache = make(tmp_path, figures_dir=None, clock=clock, max_entries=1000)
    yield cache
    cache.close()


@pytest.mark.parametrize("size", [10, 900], ids=["half empty", "nearly full"])
def test_a_walk_finds_the_keys_that_are_written_again_and_ends(cache, clock, size):
    for number in range(size):
        cache.set(f"{number}", 1)
    # From the next tick on, a write moves an entry to the end of a cache that is over half full.
    clock.advance(20)
    found = []
    for number, keys in enumerate(cache.engine.key_batches()):
        found += keys
        assert number < size
        cache.set(f"{size - 1 - number}", 2)
        cache.set(f"new-{number}", 1)
    assert {f"{number}" for number in range(size)} <= {*found}


def test_the_keys_of_a_large_cache_are_those_that_are_fresh_in_the_order_of_use(tmp_path, clock):
    cache = make(tmp_path, figures_dir=None, clock=clock)
    for number in range(5_000):
        cache.set(f"{number}", 1, 10 if number % 5 == 0 else 30)
    clock.advance(20)
    cache.set("7", 2)
    assert cache.keys() == [f"{number}" for number in range(5_000) if number % 5]
