"""The facade, one promise at a time. ``tests/core`` tests the behavior of the cores."""

import resource
import threading
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest

from tests.engine import invariants
from tests.waiting import PATIENCE
from wheelcache import Cache, CacheClosed, RemovalCause
from wheelcache.core.contract import BATCH

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


@pytest.fixture
def removals():
    return []


@pytest.fixture
def make(clock, removals):
    """Make a cache without jitter that records its removals. It is checked at the end."""
    made = []

    def make_cache(**options):
        given = {"clock": clock, "jitter": 0, "on_removal": lambda *removal: removals.append(removal)}
        made.append(Cache(**{**given, **options}))
        return made[-1]

    yield make_cache
    for each in made:
        invariants.check(each)


@pytest.fixture
def cache(make):
    return make(ttl=10, max_entries=3)


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
    clock.advance(55)
    assert len(cache) == 0
    assert removals == [("a", 1, EXPIRED)]
    assert cache.stats().expirations == 1


def test_every_removal_is_told_with_its_cause(cache, clock, removals):
    for key in "abcd":
        cache.set(key, key)
    cache.set("b", "B")
    assert cache.delete("b") is True
    assert cache.delete("b") is False
    assert cache.pop("c") == "c"
    assert cache.pop("c", None) is None
    with pytest.raises(KeyError, match="'c'"):
        cache.pop("c")
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


# Weights.


def test_an_entry_heavier_than_the_cache_is_refused_evicts_nothing_and_leaves_no_old_value(make, removals):
    cache = make(max_weight=10, weigher=lambda key, value: value)
    assert cache.set_many({"a": 4, "b": 5}) == []
    assert cache.set("heavy", 11) is False
    assert cache.add("heavy", 11) is False
    assert cache.keys() == ["a", "b"]
    assert cache.set_many({"a": 11}) == ["a"]
    assert cache.get("a") is None, "a value that was overwritten must not be served"
    assert removals == [("a", 4, REPLACED)]
    assert cache.get_or_load("heavy", lambda: 11) == 11


@pytest.mark.parametrize("write", [Cache.set, Cache.add, lambda cache, key, value: not cache.set_many({key: value})])
def test_one_heavy_entry_may_cost_any_number_of_light_ones(make, write):
    size = 2 * BATCH + 1
    cache = make(max_weight=size, weigher=lambda key, value: value)
    cache.set_many(dict.fromkeys(range(size), 1))
    assert write(cache, "heavy", size)
    assert cache.keys() == ["heavy"]
    assert cache.stats().evictions == size


@pytest.mark.parametrize("weight", [-1, 1.5, None])
def test_a_weigher_must_return_a_whole_number(make, weight):
    cache = make(max_weight=5, weigher=lambda key, value: weight)
    with pytest.raises((TypeError, ValueError), match="the result of the weigher must be a whole number >= 0, not"):
        cache.set("a", 1)


# Listeners and finalizers.


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


@pytest.mark.alone
@pytest.mark.compiled
def test_the_caller_of_clear_does_not_touch_memory_for_each_entry():
    cache = Cache(max_entries=200_000)
    for key in range(200_000):
        cache.set(key, "value")

    def page_faults():
        return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt

    before = page_faults()
    cache.clear()
    # The table of departed keys has 300 pages, and a batch of random keys touches nearly all of them.
    assert page_faults() - before < 50
    assert len(cache) == 0


# The end.


def test_a_closed_cache_says_so_and_closing_again_is_nothing(cache):
    cache.set("a", 1)
    cache.close()
    cache.close()
    for use in (
        *(
            lambda: cache.get("a"),
            lambda: cache.set("a", 1),
            lambda: cache.add("a", 1),
            lambda: cache.get_or_load("a", int),
        ),
        *(lambda: cache.touch("a"), lambda: cache.delete("a"), lambda: cache.get_many(["a"]), lambda: "a" in cache),
        *(cache.keys, cache.stats, cache.clear),
    ):
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


def test_a_listener_cannot_revive_a_cache_that_closes(make):
    def listener(key, value, cause):
        told.append(cause)
        with pytest.raises(CacheClosed):
            cache.set("again", 1)

    told = []
    cache = make(on_removal=listener)
    cache.set("a", 1)
    cache.close()
    assert len(cache) == 0
    assert told == [CLEARED]


@pytest.mark.parametrize("write", [Cache.set, Cache.add, lambda cache, key, value: cache.set_many({key: value})])
def test_a_write_that_meets_a_closing_raises_and_stores_nothing(make, write):
    weighing, go = threading.Event(), threading.Event()

    def weigh(key, value):
        weighing.set()
        assert go.wait(PATIENCE)
        return 1

    cache = make(max_weight=5, weigher=weigh)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write, cache, "a", 1)
        assert weighing.wait(PATIENCE)
        cache.close()
        go.set()
        assert isinstance(writer.exception(PATIENCE), CacheClosed)
    assert len(cache) == 0


# Keys.


# Arguments.


@pytest.mark.parametrize("ttl", [None, inf, 1e300, 10**400])
def test_no_ttl_and_one_beyond_all_clocks_mean_for_ever(cache, clock, ttl):
    cache.set("set", 1, ttl)
    cache.add("added", 1, ttl)
    clock.advance(10**9)
    assert cache.keys() == ["set", "added"]


# The facade.


def test_the_facade_shows_only_calls_that_users_need():
    assert len([name for name in dir(Cache) if not name.startswith("_")]) <= 32


def test_take_is_another_name_of_get_or_load(cache):
    assert cache.take("k", lambda: 1) == cache.get("k") == 1
