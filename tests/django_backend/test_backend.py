"""Timeouts of zero, culling and stores, in addition to Django's own contract suite."""

import pytest

from tests.engines import engine
from wheelcache.django_backend import WheelCache

# Timeouts


@pytest.mark.parametrize(("timeout", "left"), [({}, 300), ({"timeout": 10}, 10), ({"timeout": None}, None)], ids=repr)
def test_touch_gives_a_new_timeout_shorter_or_longer(make, clock, timeout, left):
    cache = make()
    cache.set("key", 1, 20)
    clock.advance(10)
    assert cache.touch("key", **timeout)
    assert engine(cache).expires_in(":1:key") == left
    with pytest.raises((TypeError, ValueError)):
        cache.touch("key", "300")
    assert engine(cache).expires_in(":1:key") == left


# Values and bounds


@pytest.mark.parametrize("frequency", [0, 1, 3])
def test_the_cull_frequency_is_ignored_and_a_full_cache_evicts_one_entry(make, frequency):
    cache = make({"MAX_ENTRIES": 30, "CULL_FREQUENCY": frequency})
    cache.set_many({str(number): number for number in range(30)})
    cache.set("new", 1)
    assert (len(engine(cache)), "0" in cache, "1" in cache) == (30, False, True)


# Stores and backend objects


def test_aliases_with_one_location_and_the_same_options_share_entries(make, clock):
    one = make({"JITTER": 0.8}, location="shared")
    other = make({"JITTER": 0.8}, location="shared", TIMEOUT=5, VERSION=2)
    one.set("key", [1], version=2)
    assert other.get("key") == [1]
    other.delete("key")
    assert one.get("key", version=2) is None
    for options in ({}, {"JITTER": 0.16}, {"JITTER": 0.8, "MAX_ENTRIES": 5}):
        assert make(options, location="shared").store is not one.store
    unnamed = WheelCache("", {})
    unnamed.set("key", 1)
    assert WheelCache("", {}).get("key") == 1


def test_many_threads_that_make_a_backend_first_all_get_one_store(make, together):
    made = together(lambda _: make({"JITTER": 0.16}, location="first").store)
    assert len(set(map(id, made))) == 1
