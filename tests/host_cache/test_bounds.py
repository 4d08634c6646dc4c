"""Bounds, expiry and the order of eviction, as several processes keep them."""

from itertools import islice
from random import Random

import pytest

from benchmarks.policy import LruCache, hit_ratio
from benchmarks.policy_streams import STREAMS

MIB = 1 << 20
TICK = 60


def test_there_are_never_more_than_max_entries(view):
    caches = [view(max_entries=5) for _ in range(2)]
    for number in range(20):
        caches[number % 2].set(f"key {number}", number)
        assert len(caches[0]) == min(number + 1, 5)
    assert caches[1].keys() == [f"key {number}" for number in range(15, 20)]


def test_values_of_one_eighth_of_the_bound_stay_as_long_as_they_fit(view):
    cache = view(max_bytes=MIB)
    value = "x" * (MIB // 8 - 200)
    for number in range(20):
        assert cache.set(f"key {number}", value)
        assert cache.get(f"key {number}") == value
    assert cache.keys() == [f"key {number}" for number in range(12, 20)]


def test_a_large_value_takes_the_room_of_as_many_small_ones_as_it_needs(view):
    cache = view(max_bytes=MIB)
    for number in range(5000):
        cache.set(f"small {number}", "x" * 100)
    for number in range(6):
        cache.set(f"large {number}", "x" * (MIB // 8 - 200))
        assert cache.stats().weight <= MIB
    assert [key for key in cache.keys() if key.startswith("large")] == [f"large {number}" for number in range(6)]


def test_a_value_that_grows_in_place_evicts_others(view):
    cache = view(max_bytes=MIB)
    for number in range(12):
        cache.set(f"key {number}", "x" * 50_000)
    for number in range(12):
        cache.set(f"key {number}", "x" * 100_000)
        assert cache.stats().weight <= MIB
    assert cache.get("key 11") is not None


def test_a_write_does_not_evict_its_own_entry(view):
    cache = view(max_bytes=MIB)
    # Until its next tick, the process does not know that the cache is half full: its writes stay at their places.
    cache.set("oldest", 1)
    for number in range(8):
        cache.set(f"key {number}", "x" * 127_000)
    assert cache.set("oldest", "x" * 100_000)
    assert len(cache.get("oldest")) == 100_000
    assert cache.keys() == [*(f"key {number}" for number in range(1, 8)), "oldest"]


class FourProcesses:
    """Four processes that use one cache in turns, and advance their clock after every ``per_tick`` requests."""

    def __init__(self, view, clock, size, per_tick):
        self._views = [view(max_entries=size) for _ in range(4)]
        self._clock = clock
        self._per_tick = per_tick
        self._random = Random(1)
        self._requests = 0

    def get(self, key, now):
        self._requests += 1
        if self._requests % self._per_tick == 0:
            self._clock.advance(1)
        self._chosen = self._random.choice(self._views)
        return float(self._chosen.get(f"{key}", "0"))

    def set(self, key, until):
        self._chosen.set(f"{key}", f"{until}")


@pytest.mark.parametrize("stream", ["Zipf", "web", "recency", "sessions"])
def test_the_hit_ratio_of_four_processes_is_that_of_lru(view, clock, stream):
    size = 200
    requests = list(islice(STREAMS[stream](Random(1), size), 30 * size))
    shared = hit_ratio(FourProcesses(view, clock, size, per_tick=20), requests)
    assert shared == pytest.approx(hit_ratio(LruCache(size), requests), abs=0.005)


def test_an_entry_is_a_hit_until_its_ttl_is_over_and_is_removed_after_it(view, clock):
    cache, other = view(), view()
    cache.set("short", 1, 10)
    cache.set("long", 2, 1000)
    clock.advance(10 - 1e-6)
    assert other.get("short") == 1
    clock.advance(1e-6)
    assert other.get("short") is None
    clock.advance(TICK)
    assert (len(other), other.keys()) == (1, ["long"])


def test_the_end_of_an_entry_that_another_process_moves_is_exact(view, clock):
    cache, other = view(), view()
    cache.set("key", 1, 10)
    assert other.touch("key", 100)
    clock.advance(100 - 1e-6)
    assert cache.get("key") == 1
    clock.advance(1e-6)
    assert cache.get("key") is None
    clock.advance(TICK)
    assert len(cache) == 0


def test_of_several_processes_one_removes_expired_entries_and_another_one_does_so_after_its_end(view, clock):
    one, other = view(), view()
    for cache in (one, other):
        cache.set(f"{id(cache)}", 1, 10)
    clock.advance(TICK)
    removed = [cache.stats().removals["expired"] for cache in (one, other)]
    assert sorted(removed) == [0, 2]
    janitor, successor = (one, other) if removed[0] else (other, one)
    janitor.close()
    successor.set("key", 1, 10)
    clock.advance(TICK)
    assert len(successor) == 0
    assert successor.stats().removals["expired"] == 1


def test_set_returns_false_for_a_value_that_is_too_large(view):
    cache = view(max_bytes=MIB)
    assert cache.set("key", "small")
    assert not cache.set("key", "x" * (MIB // 8))
    assert cache.get("key") is None
