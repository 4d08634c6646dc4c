"""cachelib's BaseCache, method by method, and the additions of the backend."""

import gc
import weakref
from collections import Counter
from datetime import timedelta

import pytest
from cachelib import BaseCache
from cachelib.serializers import BaseSerializer

from tests.engines import engine
from tests.flask_backend.conftest import JSONSerializer
from tests.waiting import THREADS, until
from wheelcache.flask_backend import WheelCache

# Return values.


def test_every_public_method_of_cachelibs_base_is_the_backends_own():
    public = [name for name in vars(BaseCache) if not name.startswith("_")]
    assert len(public) >= 12
    for name in public:
        assert getattr(WheelCache, name) is not getattr(BaseCache, name), name


def test_the_many_key_calls_return_the_keys_as_cachelib_documents(make):
    cache = make(key_prefix="p:")
    assert cache.set_many({"a": 1, "b": [2]}) == ["a", "b"]
    assert cache.delete_many("a", "missing", "b") == ["a", "missing", "b"]
    assert cache.set_many({}) == []
    assert cache.delete_many() == []
    assert cache.get_many() == []
    assert cache.get_dict() == {}


@pytest.mark.parametrize("ignored", [True, False])
def test_deleting_a_key_that_is_not_there_is_no_error(make, ignored):
    cache = make(ignore_delete_many_errors=ignored)
    assert cache.delete_many("missing") == ["missing"]
    assert cache.delete("missing") is False


# Counters.


def test_a_counter_starts_at_zero_also_on_none_and_returns_the_new_value(make):
    cache = make()
    assert [cache.inc("up"), cache.inc("up", 4), cache.dec("up", 7), cache.dec("down")] == [1, 5, -2, -1]
    assert [cache.inc("float", 0.5), cache.inc("float")] == [0.5, 1.5]
    assert cache.get_dict("up", "down", "float") == {"up": -2, "down": -1, "float": 1.5}
    cache.set("none", None)
    assert cache.inc("none", 3) == 3


def test_a_counter_keeps_the_expiry_of_its_key_and_a_new_one_has_the_default(make, clock):
    cache = make(default_timeout=10, jitter=0.5)
    cache.add("key", 1, timeout=100)
    cache.inc("new")
    clock.advance(9.875)
    assert (cache.inc("key"), cache.inc("new")) == (2, 2)
    clock.advance(0.125)
    assert cache.get_many("key", "new") == [2, None]
    clock.advance(90)
    assert cache.get("key") is None
    assert cache.inc("key") == 1


@pytest.mark.parametrize("count", [WheelCache.inc, WheelCache.dec])
def test_what_max_bytes_refuses_is_none_or_false_as_cachelib_documents(make, count):
    assert count(make(max_bytes=1), "key") is None
    cache = make(max_bytes=400)
    assert cache.inc("key") == 1
    assert count(cache, "key", 1 << 8000) is None
    assert cache.has("key") is False
    assert (cache.set("big", "x" * 600), cache.add("big", "x" * 600)) == (False, False)
    assert cache.set_many({"big": "x" * 600, "small": 1}) == ["small"]


def test_a_counter_whose_default_timeout_is_over_at_once_stores_nothing(make):
    cache = make(default_timeout=-1)
    assert [cache.inc("key", 3), cache.inc("key", 3)] == [3, 3]
    assert cache.has("key") is False


def test_a_counter_that_is_deleted_all_the_time_never_fails_and_never_hangs(make, together):
    cache = make()

    def count(number):
        if number % 4 == 0:
            return all(cache.delete("key") in (True, False) for _ in range(50))
        return all(cache.inc("key") >= 1 for _ in range(50))

    assert together(count) == [True] * THREADS


# Timeouts.

SPELLED = [
    *((ten, 10) for ten in (10, 10.0, timedelta(seconds=10))),
    *((never, None) for never in (0, 0.0, -0.0, timedelta(), float("inf"))),
    *((over, "over") for over in (-1, -0.5, timedelta(microseconds=-1), float("-inf"))),
]

WRITES = {
    "set": lambda cache, timeout: cache.set("key", [1], timeout),
    "add": lambda cache, timeout: cache.add("key", [1], timeout=timeout),
    "set_many": lambda cache, timeout: cache.set_many({"key": [1]}, timeout),
    "get_or_load": lambda cache, timeout: cache.get_or_load("key", lambda: [1], timeout),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@pytest.mark.pairs(full="write", of="timeout")
@writes
@pytest.mark.parametrize(("timeout", "left"), SPELLED, ids=repr)
def test_a_timeout_may_be_spelled_in_several_ways(make, clock, write, timeout, left):
    given, by_default = make(), make(default_timeout=timeout)
    for _ in range(2):
        assert write(given, timeout) in (True, False, ["key"], [1])
        write(by_default, None)
        for cache in (given, by_default):
            assert cache.has("key") is (left != "over")
            assert left == "over" or engine(cache).expires_in("key") == left


def test_the_version_that_memoized_values_are_kept_under_lives_exactly_as_long_as_it_is_set_for(clock):
    cache = WheelCache()
    versions = {f"module.function{number}_memver": "version" for number in range(300)}
    assert cache.set_many(versions, 100) == [*versions]
    clock.advance(99.875)
    assert all(cache.get_many(*versions))
    clock.advance(0.125)
    assert not any(cache.get_many(*versions))


# Serializers.


class Counting(BaseSerializer):
    """Pickles values, and counts the calls."""

    def __init__(self):
        self.calls = Counter()

    def dumps(self, value):
        self.calls["dumps"] += 1
        return super().dumps(value)

    def loads(self, data):
        self.calls["loads"] += 1
        return super().loads(data)


class Own(WheelCache):
    serializer = JSONSerializer()


def test_a_serializer_of_the_class_does_the_work_but_of_counters(make):
    cache = make(cls=Own)
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": [1, 2]}
    cache.set_many({"count": 41, "float": 0.5})
    assert [cache.inc("new"), cache.inc("count"), cache.inc("float")] == [1, 42, 1.5]
    assert cache.get_many("new", "count", "float") == [1, 42, 1.5]


def test_a_serializer_set_on_the_object_gets_every_value_but_ints_and_none(make):
    cache = make()
    cache.serializer = Counting()
    cache.set_many({"str": "a", "bool": True, "list": [1], "none": None, "int": 7})
    assert cache.serializer.calls == {"dumps": 3}
    assert cache.get_many("str", "bool", "list", "none", "int") == ["a", True, [1], None, 7]
    assert cache.serializer.calls == {"dumps": 3, "loads": 3}


def test_a_serializer_serves_from_when_it_is_set_until_it_is_taken_away_and_only_its_own_object(make):
    cache, other = make(), make()
    cache.set("before", "text")
    cache.serializer = JSONSerializer()
    cache.set("after", (1, 2))
    other.set("key", (1, 2))
    assert cache.get_many("before", "after") == ["text", [1, 2]]
    assert other.get("key") == (1, 2)
    del cache.serializer
    cache.set("key", (1, [2]))
    assert cache.get("key") == (1, [2])


class ReturnsText(BaseSerializer):
    def dumps(self, value):
        return repr(value)


def test_a_serializer_that_returns_no_bytes_is_an_error_at_the_write_that_stores_nothing(make):
    cache = make()
    cache.serializer = ReturnsText()
    for write in WRITES.values():
        with pytest.raises(TypeError, match=r"dumps\(\) must return bytes, not '\[1\]'"):
            write(cache, 60)
        assert cache.has("key") is False


# Keys, stores, memory.


def test_a_prefix_keeps_nothing_from_its_own_cache(make):
    cache = make(key_prefix="p:")
    cache.set("key", 1)
    assert engine(cache).keys() == ["p:key"]
    assert cache.get("p:key") is None
    assert cache.get_dict("key") == {"key": 1}


def test_each_object_has_a_store_of_its_own(make):
    first, second = make(name="same"), make(name="same")
    first.set("key", 1)
    assert second.get("key") is None
    second.clear()
    assert first.get("key") == 1


def test_a_backend_without_references_leaves_memory_with_its_entries(make):
    cache = make()
    cache.set_many({str(number): [number] for number in range(100)}, 1000)
    cache.get("missing")
    store = weakref.ref(engine(cache))
    del cache
    assert until(lambda: gc.collect() >= 0 and store() is None)


@pytest.mark.pairs(full="prefix", of="prefix")
@pytest.mark.parametrize("prefix", ["", "shop:"])
@pytest.mark.parametrize("key", ["", "a b\n", "é" * 1000, "\x00", "%s {}", "\ud800", 1])
def test_any_string_is_a_key_and_what_is_none_means_its_text(make, prefix, key):
    cache = make(key_prefix=prefix)
    assert cache.set(key, [1])
    first, second = cache.get_many(key, str(key))
    first.append(2)
    assert second == cache.get(key) == [1]
    assert cache.has(key)
    assert cache.delete(key)
