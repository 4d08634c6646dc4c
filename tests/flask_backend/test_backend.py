"""cachelib's BaseCache, method by method, and the additions of the backend: beyond ``tests/backends``."""

import gc
import weakref
from datetime import timedelta

import pytest
from cachelib import BaseCache
from cachelib.serializers import BaseSerializer

from tests.engines import engine
from tests.flask_backend.conftest import JSONSerializer
from tests.waiting import until
from wheelcache.flask_backend import WheelCache


def test_every_public_method_of_cachelibs_base_is_the_backends_own():
    public = [name for name in vars(BaseCache) if not name.startswith("_")]
    assert len(public) >= 12
    for name in public:
        assert getattr(WheelCache, name) is not getattr(BaseCache, name), name


@pytest.mark.parametrize("ignored", [True, False])
def test_the_many_key_calls_return_the_keys_as_cachelib_documents(make, ignored):
    cache = make(key_prefix="p:", ignore_delete_many_errors=ignored)
    assert cache.set_many({"a": 1, "b": [2]}) == ["a", "b"]
    assert cache.get_many("a", "missing", "b") == [1, None, [2]]
    assert cache.get_dict("a", "missing") == {"a": 1, "missing": None}
    assert cache.delete_many("a", "missing", "b") == ["a", "missing", "b"]
    assert (cache.set_many({}), cache.delete_many(), cache.get_many(), cache.get_dict()) == ([], [], [], {})
    assert cache.clear() is True


# Counters.


def test_a_counter_starts_at_zero_also_on_none_and_returns_the_new_value(make):
    cache = make()
    assert [cache.inc("up"), cache.inc("up", 4), cache.dec("up", 7), cache.dec("down")] == [1, 5, -2, -1]
    assert [cache.inc("float", 0.5), cache.inc("float")] == [0.5, 1.5]
    assert cache.get_dict("up", "down", "float") == {"up": -2, "down": -1, "float": 1.5}
    cache.set("none", None)
    assert cache.inc("none", 3) == 3


def test_a_new_counter_has_the_default_timeout_exactly(make, clock):
    cache = make(default_timeout=10, jitter=0.5)
    for key in map(str, range(50)):
        cache.inc(key)
    assert {engine(cache).expires_in(key) for key in map(str, range(50))} == {10}
    over = make(default_timeout=-1)
    assert [over.inc("key", 3), over.inc("key", 3)] == [3, 3]
    assert over.has("key") is False


@pytest.mark.parametrize("count", [WheelCache.inc, WheelCache.dec])
def test_what_max_bytes_refuses_is_none_or_false_as_cachelib_documents(make, count):
    assert count(make(max_bytes=1), "key") is None
    cache = make(max_bytes=400)
    assert cache.inc("key") == 1
    assert count(cache, "key", 1 << 8000) is None
    assert cache.has("key") is False
    assert (cache.set("big", "x" * 600), cache.add("big", "x" * 600)) == (False, False)
    assert cache.set_many({"big": "x" * 600, "small": 1}) == ["small"]


# Timeouts.

WRITES = {
    "set": lambda cache, timeout: cache.set("key", [1], timeout),
    "add": lambda cache, timeout: cache.add("key", [1], timeout=timeout),
    "set_many": lambda cache, timeout: cache.set_many({"key": [1]}, timeout),
    "get_or_load": lambda cache, timeout: cache.get_or_load("key", lambda: [1], timeout),
}


@pytest.mark.pairs(full="write", of="timeout")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize(
    ("timeout", "left"),
    [
        *((ten, 10) for ten in (10, 10.0, timedelta(seconds=10))),
        *((never, None) for never in (0, 0.0, -0.0, timedelta(), float("inf"))),
        *((over, "over") for over in (-1, -0.5, timedelta(microseconds=-1), float("-inf"))),
    ],
    ids=repr,
)
def test_a_timeout_may_be_spelled_in_several_ways(make, clock, write, timeout, left):
    given, by_default = make(), make(default_timeout=timeout)
    for _ in range(2):
        assert write(given, timeout) in (True, False, ["key"], [1])
        write(by_default, None)
        for cache in (given, by_default):
            assert cache.has("key") is (left != "over")
            assert left == "over" or engine(cache).expires_in("key") == left


def test_a_timeout_may_be_a_bool_as_in_simplecache_and_a_value_that_is_over_at_once_counts_as_stored(make, clock):
    cache = make()
    for timeout, left in ((True, 1), (False, None)):
        cache.set("key", 1, timeout)
        assert engine(cache).expires_in("key") == left
    assert cache.set("missing", 1, -1) is cache.set("missing", 1, -1, tags=("a",)) is True


def test_the_version_that_memoized_values_are_kept_under_lives_exactly_as_long_as_it_is_set_for(make, clock):
    cache = make(jitter=0.5)
    versions = {f"module.function{number}_memver": "version" for number in range(300)}
    assert cache.set_many(versions, 100) == [*versions]
    assert {engine(cache).expires_in(key) for key in versions} == {100}


# Serializers.


class Own(WheelCache):
    serializer = JSONSerializer()


def test_a_serializer_of_the_class_gets_every_value_but_ints_and_none(make):
    cache = make(cls=Own)
    values = {"dict": {"a": (1, 2)}, "text": "a", "bool": True, "float": 0.5}
    for key, value in values.items():
        cache.set(key, value)
        assert isinstance(engine(cache).get(key), bytes)
    assert cache.get_dict(*values) == {**values, "dict": {"a": [1, 2]}}
    cache.set_many({"count": 41, "none": None})
    assert engine(cache).get_many(["count", "none"]) == {"count": 41, "none": None}
    assert [cache.inc("new"), cache.inc("count"), cache.inc("float")] == [1, 42, 1.5]


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


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_serializer_that_returns_no_bytes_is_an_error_at_the_write_that_stores_nothing(make, write):
    cache = make()
    cache.serializer = ReturnsText()
    with pytest.raises(TypeError, match=r"dumps\(\) must return bytes, not '\[1\]'"):
        write(cache, 60)
    assert cache.has("key") is False


# Keys, stores, memory.


def test_a_prefix_keeps_nothing_from_its_own_cache(make):
    cache = make(key_prefix="p:")
    cache.set("key", 1)
    assert engine(cache).keys() == ["p:key"]
    assert cache.get("p:key") is None


def test_each_object_has_a_store_of_its_own_that_leaves_memory_with_it(make):
    first, second = make(name="same"), make(name="same")
    first.set("key", 1)
    assert second.get("key") is None
    second.clear()
    assert first.get("key") == 1
    store = weakref.ref(engine(first))
    del first
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
