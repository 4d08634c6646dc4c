"""Keys, values and tags as they are stored, walks over them, the bounds, and the order of eviction."""

import pytest

from wheelcache.engine import cache_parts
from wheelcache.host_cache import host_core

MIB = 1 << 20
EIGHTH = "x" * (MIB // 8 - 200)
"""Nearly the largest value of a cache of 1 MiB."""

KEYS = [
    *("", "\0", "a\0b", "\1", "\2", "\ud800", "é", "\0é", "\1é", "\2é", "\2\2é", "x" * 50_000, "('a', 1)"),
    *(("é",), ("\0é",), ("a",), ("",), ("a", "b"), ("a", 1), ("é", 1), 7, -1, 2**70, 1.5, None, b"b"),
]


@pytest.fixture
def cache(view):
    return view(max_bytes=MIB)


# Keys, values and tags.


def test_each_key_has_an_entry_of_its_own_and_text_comes_back_from_a_walk(cache):
    for number, key in enumerate(KEYS):
        cache.set(key, number)
    assert [cache.get(key) for key in KEYS] == [*range(len(KEYS))]
    found = [*cache.keys()]
    assert {key for key in KEYS if isinstance(key, str)} < {*found}
    assert len(found) == len(KEYS)
    assert [cache.delete(key) for key in KEYS] == [True] * len(KEYS)
    assert len(cache) == 0


@pytest.mark.parametrize("value", ["", "a\0b", "é" * 1000, 2**63 - 1, -(2**63), None], ids=ascii)
def test_a_value_of_the_database_comes_back_as_it_was_given(cache, value):
    cache.set("k", value)
    assert cache.get("k") == value
    assert cache.get_many(["k"]) == {"k": value}


@pytest.mark.parametrize("tag", ["\0", "a\0b", "\ud800", "é", "\x7f", "\\u0000", "\\", '"', "["], ids=ascii)
def test_a_tag_may_have_any_characters(cache, tag):
    cache.set("k", 1, tags=[tag, "other"])
    assert {*cache.engine.core().peek("k").tags} == {f"#{tag}", "#other"}
    cache.delete_tags("\\0", "a\0", "\\ud800", "a\0bc", "\\\\")
    assert cache.get("k") == 1
    cache.delete_tags(tag)
    assert cache.get("k") is None


def test_two_processes_may_write_in_the_same_nanosecond(view, monkeypatch):
    now = host_core.moment()
    monkeypatch.setattr(host_core, "moment", lambda: now)
    caches = view(), view()
    assert [cache.set(key, 1) for cache, key in zip(caches, "ab", strict=True)] == [True, True]
    assert caches[0].get_many(["a", "b"]) == {"a": 1, "b": 1}


# Walks.


@pytest.mark.parametrize("size", [10, 900], ids=["half empty", "nearly full"])
def test_a_walk_finds_the_keys_that_are_written_again_and_ends(view, clock, monkeypatch, size):
    monkeypatch.setattr(cache_parts, "BATCH", 3)
    cache = view(max_entries=1000)
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


def test_the_keys_of_a_large_cache_are_those_that_are_fresh_in_the_order_of_use(view, clock):
    cache = view()
    for number in range(5_000):
        cache.set(f"{number}", 1, 10 if number % 5 == 0 else 30)
    clock.advance(20)
    cache.set("7", 2)
    fresh = [f"{number}" for number in range(5_000) if number % 5]
    assert cache.keys() == fresh
    assert cache.engine.core().keys(3) == fresh[-3:]


def test_a_walk_may_begin_within_the_entries(cache):
    keys = [f"{number}" for number in range(100)]
    for key in keys:
        cache.set(key, 1)
    found = cache.engine.core().scan(start=0.5).keys(100)
    assert 0 < len(found) < 100
    assert found == keys[-len(found) :]


# Bounds.


def test_the_weight_is_that_of_the_keys_twice_the_values_the_tags_and_90_bytes(cache):
    cache.set("key", "x" * 10)
    assert cache.stats().weight == 90 + 2 * 3 + 10
    cache.set("key", 1)
    assert cache.stats().weight == 90 + 2 * 3 + 8
    cache.set("key", 1, tags=["tag"])
    assert cache.stats().weight == 90 + 2 * 3 + 8 + len('["#tag"]')
    assert (cache.delete("key"), cache.stats().weight) == (True, 0)


def test_there_are_never_more_than_max_entries_and_the_oldest_leave(view):
    caches = [view(max_entries=5) for _ in range(2)]
    for number in range(20):
        caches[number % 2].set(f"key {number}", number)
        assert len(caches[0]) == min(number + 1, 5)
    assert caches[1].keys() == [f"key {number}" for number in range(15, 20)]
    caches[0].engine.evict_to(3)
    assert caches[1].keys() == ["key 17", "key 18", "key 19"]


def test_the_evictions_of_all_processes_are_counted_once(view, clock):
    caches = [view(max_entries=5) for _ in range(2)]
    for cache in caches:
        cache.set("first", 1)
    clock.advance(2)
    for number in range(20):
        caches[number % 2].set(f"key {number}", number)
    clock.advance(2)
    assert sum(cache.stats().removals["evicted"] for cache in caches) == 16


def test_values_of_one_eighth_of_the_bound_stay_as_long_as_they_fit(cache):
    for number in range(20):
        assert cache.set(f"key {number}", EIGHTH)
        assert cache.get(f"key {number}") == EIGHTH
    assert cache.keys() == [f"key {number}" for number in range(12, 20)]


@pytest.mark.parametrize("key", ["k", "k" * MIB], ids=["value", "key"])
def test_a_value_of_more_than_an_eighth_of_the_bound_is_not_stored_and_replaces_the_older_one(cache, key):
    too_large = "x" * (MIB // 8)
    assert not cache.add(key, too_large)
    assert cache.get_or_load(key, lambda: too_large) == too_large
    for store in (cache.set, lambda key, value: cache.set_many({key: value})):
        cache.set("k", "old")
        assert not cache.add("k", too_large)
        assert cache.get("k") == "old"
        store("k", too_large)
        assert not cache.set(key, too_large)
        assert len(cache) == 0


def test_a_large_value_takes_the_room_of_as_many_small_ones_as_it_needs(cache):
    for number in range(5000):
        cache.set(f"small {number}", "x" * 100)
    before = len(cache)
    for number in range(6):
        cache.set(f"large {number}", EIGHTH)
        assert cache.stats().weight <= MIB
    assert [key for key in cache.keys() if key.startswith("large")] == [f"large {number}" for number in range(6)]
    # No more small ones leave than the large ones need.
    assert before / 4 - 100 < len(cache) - 6 < before / 4 + 200


def test_a_value_that_grows_in_place_evicts_others_and_never_itself(cache):
    # Until its next tick, the process does not know that the cache is half full: its writes stay at their places.
    cache.set("oldest", 1)
    for number in range(8):
        cache.set(f"key {number}", "x" * 127_000)
    assert cache.set("oldest", "x" * 100_000)
    assert cache.stats().weight <= MIB
    assert len(cache.get("oldest")) == 100_000
    assert cache.keys() == [*(f"key {number}" for number in range(1, 8)), "oldest"]


def test_a_full_cache_evicts_in_the_order_of_use_by_all_processes(view, clock):
    caches = [view(max_entries=100) for _ in range(2)]
    for number in range(100):
        caches[number % 2].set(f"{number}", number)
    # From the next tick on, look-ups count as uses; from the one after that, other processes know of them.
    clock.advance(1)
    assert [caches[0].get(f"{number}") for number in range(50)] == [*range(50)]
    clock.advance(1)
    for number in range(50):
        caches[1].set(f"new {number}", 1)
    assert caches[0].keys() == [*(f"{number}" for number in range(50)), *(f"new {number}" for number in range(50))]


@pytest.mark.parametrize(("before", "after"), [((MIB, 5), (4 * MIB, 50)), ((4 * MIB, 50), (MIB, 5))])
def test_an_existing_file_gets_the_bounds_of_a_new_release(view, clock, before, after):
    old = view(max_bytes=before[0], max_entries=before[1])
    old.set("k", 1)
    old.close()
    new = view(max_bytes=after[0], max_entries=after[1])
    new.set("other", 1)
    clock.advance(2)
    for number in range(100):
        new.set(f"{number}", "x")
    assert len(new) == after[1]
