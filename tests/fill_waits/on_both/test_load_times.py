"""A computation between a miss of ``get`` and the ``set`` that follows counts as a load, and for how long.

``tests/backends/test_load_counts`` tests that each computation is one load, however the value is cached.
"""

import asyncio
import threading
import tracemalloc
import warnings

import pytest

from tests.memory import traced
from tests.waiting import PATIENCE
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


def test_values_that_are_set_together_share_the_time_of_their_computation(make, moment):
    cache = make()
    cache.get_many(["a", "b", "c", "d"])
    moment[0] += 2 * SECOND
    cache.set_many(dict.fromkeys("abcd", 1))
    assert loads(cache) == (4, 2)


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


def test_misses_that_no_set_follows_are_forgotten(make):
    cache = make()
    for number in range(5000):
        cache.get(f"missed-{number}")
    cache.set("missed-0", 1)
    cache.set("missed-4999", 1)
    assert loads(cache)[0] == 1


def test_threads_and_tasks_that_compute_at_once_are_timed_apart(make, together):
    cache = make()
    all_threads = threading.Barrier(32)

    async def compute(number, all_tasks):
        cache.get(f"{number}")
        await all_tasks.wait()
        cache.set(f"{number}", 1)

    async def compute_three_times(number):
        # The same key in each task.
        all_tasks = asyncio.Barrier(3)
        await asyncio.gather(*(compute(number, all_tasks) for _ in range(3)))

    def work(number):
        cache.get(f"thread-{number}")
        all_threads.wait(PATIENCE)
        cache.set(f"thread-{number}", 1)
        asyncio.run(compute_three_times(number))

    assert together(work) == [None] * 32
    assert loads(cache)[0] == 4 * 32


@pytest.mark.alone
def test_long_keys_that_were_missed_are_not_kept(make):
    cache = make()
    tracemalloc.start()
    try:
        with warnings.catch_warnings(action="ignore"):
            for number in range(100):
                cache.get(f"{number}" * 100_000)
        assert traced(__file__, "*/wheelcache/*") < 1_000_000
    finally:
        tracemalloc.stop()
