"""The facade, one promise at a time. ``test_model`` compares its calls with those of a model in random order."""

from functools import partial
from math import inf

import pytest

from wheelcache import Cache, CacheClosed, RemovalCause
from wheelcache.core.contract import BATCH

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


@pytest.fixture
def cache(make):
    return make(max_entries=3)


# Reading and writing.


def test_an_expired_entry_is_never_returned_before_the_wheel_removes_it(make, clock, removals, ticks):
    ticks(60)
    cache = make()
    cache.set("a", 1, ttl=5)
    clock.advance(4.875)
    assert cache.get("a") == 1
    clock.advance(0.125)
    assert len(cache) == 1
    assert ("a" in cache, cache.get("a"), cache.get_many(["a"]), cache.keys()) == (False, None, {}, [])
    for call in (cache.expires_in, cache.incr, cache.pop):
        with pytest.raises(KeyError, match="'a'"):
            call("a")
    cache.set("a", 1, ttl=5)
    clock.advance(55)
    assert len(cache) == 0
    assert removals == [("a", 1, EXPIRED)] * 2
    assert cache.stats().expirations == 2


def test_every_removal_is_told_with_its_cause(cache, clock, removals):
    for key in "abcd":
        cache.set(key, key)
    cache.set("b", "B")
    assert (cache.delete("b"), cache.delete("b")) == (True, False)
    assert (cache.pop("c"), cache.pop("c", None)) == ("c", None)
    clock.advance(10)
    for key in "efg":
        cache.set(key, key)
    cache.engine.evict_to(1)
    cache.clear()
    assert removals == [
        *(("a", "a", EVICTED), ("b", "b", REPLACED), ("b", "B", DELETED), ("c", "c", DELETED), ("d", "d", EXPIRED)),
        *(("e", "e", EVICTED), ("f", "f", EVICTED), ("g", "g", CLEARED)),
    ]


def test_an_increment_that_calls_back_into_the_cache_does_not_lose_what_it_wrote(cache):
    calls = []

    class Number(int):
        def __add__(self, other):
            calls.append(int(self))
            if len(calls) == 1:
                cache.set("a", Number(10))
            return Number(int(self) + other)

    cache.set("a", Number(1))
    assert cache.incr("a") == 11
    assert calls == [1, 10]


def test_an_invalid_item_of_set_many_or_delete_many_changes_nothing(cache, removals):
    cache.set("a", 1)
    with pytest.raises(TypeError, match="read only once"):
        cache.set_many({"a": 2, "b": (each for each in ())})
    with pytest.raises(TypeError, match="unhashable"):
        cache.delete_many(["a", []])
    assert (cache.get("a"), cache.keys(), removals) == (1, ["a"], [])


def test_only_an_entry_of_this_very_value_is_renewed_and_its_ttl_is_exact(clock):
    cache = Cache(clock=clock)
    cache.set("a", 1, 10)
    for value in (2, True, 1.0):
        assert not cache.engine.renew("a", value, 50)
    assert cache.expires_in("a") <= 10
    assert cache.engine.renew("a", 1, 50)
    assert cache.expires_in("a") == 50
    clock.advance(50)
    assert not cache.engine.renew("a", 1, 50)
    assert not cache.engine.replace("a", 2, 50, 0.0)
    assert len(cache) == 0


@pytest.mark.parametrize("ttl", [None, inf, 1e300, 10**400])
def test_no_ttl_and_one_beyond_all_clocks_mean_for_ever(cache, clock, ttl):
    cache.set("set", 1, ttl)
    cache.add("added", 1, ttl)
    clock.advance(10**9)
    assert cache.keys() == ["set", "added"]
    assert cache.expires_in("set") is None or ttl == 1e300


def test_take_is_another_name_of_get_or_load_and_the_facade_shows_few_names(cache):
    assert cache.take("k", lambda: 1) == cache.get("k") == 1
    assert len([name for name in dir(Cache) if not name.startswith("_")]) <= 32


# Weights.


def test_an_entry_heavier_than_the_cache_is_refused_evicts_nothing_and_leaves_no_old_value(make, removals):
    cache = make(max_weight=10, weigher=lambda key, value: value)
    assert cache.set_many({"a": 4, "b": 5}) == []
    assert (cache.set("heavy", 11), cache.add("heavy", 11)) == (False, False)
    assert cache.keys() == ["a", "b"]
    assert cache.set_many({"a": 11}) == ["a"]
    assert cache.get("a") is None, "a value that was overwritten must not be served"
    assert removals == [("a", 4, REPLACED)]
    assert cache.get_or_load("heavy", lambda: 11) == 11


WRITES = [Cache.set, Cache.add, lambda cache, key, value: not cache.set_many({key: value})]


@pytest.mark.parametrize("write", WRITES)
def test_one_heavy_entry_may_cost_any_number_of_light_ones(make, write):
    size = 2 * BATCH + 1
    cache = make(max_weight=size, weigher=lambda key, value: value)
    cache.set_many(dict.fromkeys(range(size), 1))
    assert write(cache, "heavy", size)
    assert cache.keys() == ["heavy"]
    assert cache.stats().evictions == size


def test_entries_are_evicted_to_a_number_and_a_weight(make):
    cache = make(max_weight=10 * BATCH, weigher=lambda key, value: value)
    cache.set_many(dict.fromkeys(range(2 * BATCH + 1), 2))
    cache.engine.evict_to(7)
    assert len(cache) == 7
    cache.engine.evict_to(6, weight=5)
    assert (len(cache), cache.stats().weight) == (2, 4)


# Listeners.


def test_a_listener_that_raises_is_logged_and_harms_nothing(make, caplog):
    cache = make(max_entries=1, on_removal=lambda key, value, cause: 1 / 0)
    cache.set("a", 1)
    assert cache.set("b", 2)
    assert cache.get("b") == 2
    assert "raised for 'a'" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_a_listener_may_use_the_cache(make, clock):
    cache = make(max_entries=2, ttl=5)
    told = []

    def listener(key, value, cause):
        told.append((key, cause))
        if key != "last":
            cache.set("last", key)

    cache.on_removal = listener
    for key in "abc":
        cache.set(key, key)
    assert cache.keys() == ["c", "last"]
    clock.advance(5)
    assert cache.keys() == ["last"]
    assert ("c", EXPIRED) in told


def test_the_listener_is_notified_of_every_entry_that_clear_removes(cache, make, removals):
    cache = make()
    cache.set_many(dict.fromkeys(range(2 * BATCH + 1), 1))
    cache.clear()
    assert {*removals} == {(key, 1, CLEARED) for key in range(2 * BATCH + 1)}


# The end.


def test_a_closed_cache_says_so_and_closing_again_is_nothing(cache):
    cache.set("a", 1)
    cache.close()
    cache.close()
    by_key = (cache.get, cache.touch, cache.delete, cache.__contains__, cache.pop, cache.incr, cache.expires_in)
    uses = [partial(each, "a") for each in by_key]
    uses += [partial(cache.set, "a", 1), partial(cache.add, "a", 1), partial(cache.get_or_load, "a", int)]
    uses += [partial(cache.get_many, ["a"]), partial(cache.delete_many, ["a"]), partial(cache.set_many, {"a": 1})]
    uses += [partial(cache.delete_tags, "a"), partial(cache.delete_where, bool), cache.keys, cache.stats, cache.clear]
    for use in uses:
        with pytest.raises(CacheClosed, match="'default' was closed"):
            use()


def test_a_listener_that_closes_a_cache_that_is_being_closed_is_called_once_for_each_entry_and_not_within_itself(make):
    calls = [0, 0, 0]

    def listener(key, value, cause):
        calls[0] += 1
        calls[1] += 1
        calls[2] = max(calls[1:])
        cache.close()
        calls[1] -= 1

    cache = make(on_removal=listener)
    cache.set_many(dict.fromkeys(range(5 * BATCH)))
    cache.close()
    assert calls == [5 * BATCH, 0, 1]
