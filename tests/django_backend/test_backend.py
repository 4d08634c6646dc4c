"""Timeouts of zero, culling and stores, in addition to Django's own contract suite."""

import threading

import pytest

from tests.django_backend.conftest import finish_request
from tests.engines import engine
from wheelcache.django_backend import WheelCache

# Timeouts


@pytest.mark.parametrize("timeout", [0, -1, 0.0])
def test_a_timeout_of_zero_is_over_at_once_as_one_below_it(make, timeout):
    cache = make()
    cache.set("key", 1, timeout)
    assert cache.add("key", 1, timeout) is True
    assert cache.get_or_set("key", lambda: 7, timeout) == 7
    assert cache.set_many({"key": 1, "other": 2}, timeout) == []
    assert len(engine(cache)) == 0
    cache.set("key", 1)
    assert cache.add("key", 2, timeout) is False
    assert cache.get_or_set("key", 2, timeout) == 1
    assert cache.touch("key", timeout) is True
    assert cache.touch("key", timeout) is False
    assert len(engine(cache)) == 0


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


def test_a_value_that_cannot_be_pickled_evicts_nothing(make, clock):
    cache = make({"MAX_ENTRIES": 3})
    cache.set_many({"a": 1, "b": 2, "c": 3})
    for write in (cache.set, cache.add):
        with pytest.raises((TypeError, AttributeError)):
            write("d", threading.Lock())
    assert cache.get_many("abc") == {"a": 1, "b": 2, "c": 3}


def test_references_are_kept_as_they_are(make, clock):
    cache = make({"SERIALIZER": "reference"})
    value = {"lock": threading.Lock()}
    cache.set("key", value)
    assert cache.get("key") is cache.get_many(["key"])["key"] is cache.get_or_set("key", None) is value
    assert cache.get_or_set("loaded", lambda: value) is value


def test_evicting_and_clearing_under_many_writers_breaks_nothing(make, together):
    cache = make({"MAX_ENTRIES": 20})

    def write(number):
        for step in range(30):
            cache.set(f"{number}-{step}", step, 60)
            cache.get_many([f"{number}-{each}" for each in range(step)])
            if step % 10 == 0:
                cache.clear()

    assert together(write) == [None] * 32
    assert len(engine(cache)) <= 20


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_max_bytes_counts_a_key_that_django_warns_of(make):
    cache = make({"MAX_BYTES": 100_000})
    cache.set("k" * 10_000, 1)
    assert engine(cache).stats().weight > 10_000
    cache.clear()
    assert engine(cache).stats().weight == len(engine(cache)) == 0


WRITES = {
    "set": lambda cache, key, value=1: cache.set(key, value),
    "add": lambda cache, key, value=1: cache.add(key, value),
    "set_many": lambda cache, key, value=1: cache.set_many({key: value}),
    "get_or_set": lambda cache, key, value=1: cache.get_or_set(key, value),
    "aget_or_set": lambda cache, key, value=1: run(cache.aget_or_set(key, value)),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


def run(coroutine):
    """Return the result of a coroutine that never waits."""
    with pytest.raises(StopIteration) as returned:
        coroutine.send(None)
    return returned.value.value


@writes
@pytest.mark.parametrize("frequency", [0, 1, 3])
def test_the_cull_frequency_is_ignored_and_a_full_cache_evicts_one_entry(make, write, frequency):
    cache = make({"MAX_ENTRIES": 30, "CULL_FREQUENCY": frequency})
    cache.set_many({str(number): number for number in range(30)})
    cache.get("0")
    write(cache, "new")
    assert (len(engine(cache)), cache.get("new")) == (30, 1)
    # The least recently used entry has left.
    assert ("0" in cache, "1" in cache, "2" in cache) == (True, False, True)


@pytest.mark.pairs(full="value", of="value")
@writes
@pytest.mark.parametrize("value", ["text", 1.5, [], True])
def test_a_serializer_of_ones_own_gets_every_value_but_ints_and_none_by_every_write(make, write, value):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.Json"})
    for number, each in enumerate((value, 1, None)):
        write(cache, f"{number}", each)
    assert isinstance(engine(cache).get(":1:0"), bytes)
    assert cache.get("0", "missing") == value
    assert (engine(cache).get(":1:1"), engine(cache).get(":1:2", "missing")) == (1, None)


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


@pytest.mark.alone
def test_making_another_backend_of_a_store_starts_nothing(make):
    first = make(location="made again")
    threads = set(threading.enumerate())
    assert all(make(location="made again").store is first.store for _ in range(1000))
    assert set(threading.enumerate()) <= threads


def test_close_leaves_entries_store_and_wheel_alone(make, clock):
    cache = make()
    cache.set_many({"short": 1, "long": 2}, 10)
    cache.touch("long", 100)
    cache.close()
    finish_request()
    assert cache.get_many(["short", "long"]) == {"short": 1, "long": 2}
    cache.close()
    clock.advance(10)
    assert len(engine(cache)) == 1
    cache.set("key", 1)
    assert cache.get("key") == 1
