"""A computation between a miss of ``get`` and the ``set`` that follows counts as a load, and for how long.

``tests/backends/test_load_counts`` tests that each computation is one load, however the value is cached.
"""

import pytest

from wheelcache.engine.loading import misses

SECOND = 10**9


@pytest.fixture
def moment(monkeypatch):
    """The time of misses, in a list."""
    now = [misses.moment()]
    monkeypatch.setattr(misses, "moment", lambda: now[0])
    return now


def loads(cache):
    stats = cache.engine.stats()
    assert sum(stats.load_buckets) == stats.loads
    return stats.loads, stats.load_seconds


@pytest.mark.parametrize("options", [{}, {"fill_wait": 5}])
@pytest.mark.parametrize(("seconds", "loaded"), [(0, (1, 0)), (60, (1, 60)), (61, (0, 0))])
def test_a_set_within_a_minute_of_the_miss_ends_its_computation(make, moment, options, seconds, loaded):
    cache = make(**options)
    assert cache.get("key") is None
    moment[0] += seconds * SECOND
    cache.set("key", "v")
    assert cache.get("key") == "v"
    assert loads(cache) == loaded


def test_a_set_without_a_miss_a_second_set_and_one_by_another_thread_or_request_are_none(make, in_thread):
    cache = make()
    cache.set("written", 1)
    cache.get("missed")
    in_thread(cache.set, "missed", 1).result()
    assert loads(cache) == (0, 0)
    cache.set("missed", 2)
    cache.set("missed", 3)
    assert loads(cache)[0] == 1
    cache.get("missed-before")
    cache.end_request()
    cache.set("missed-before", 1)
    assert loads(cache)[0] == 1
