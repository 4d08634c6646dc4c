"""The cache, one promise at a time."""

import gc
import threading
import tracemalloc
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from math import inf, nan

import pytest

from tests.engine import invariants
from tests.runtime.interruptions import Worker
from tests.waiting import PATIENCE
from wheelcache import Cache, CacheClosed, RemovalCause
from wheelcache.loading.policy import PLAIN
from wheelcache.loading.steps import run

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

SILENT = {"log_interval": None, "sample_interval": None}


@pytest.fixture
def removals():
    return []


@pytest.fixture
def make(clock, removals):
    """Make a cache without jitter that tells of its removals. It is checked at the end."""
    made = []

    def make_cache(**options):
        given = {"clock": clock, "jitter": 0, "on_removal": lambda *removal: removals.append(removal), **SILENT}
        made.append(Cache(**{**given, **options}))
        return made[-1]

    yield make_cache
    for each in made:
        invariants.check(each)


@pytest.fixture
def cache(make):
    return make(ttl=10, max_entries=3)


def test_what_was_set_is_got(cache):
    assert cache.set("a", 1)
    assert cache.get("a") == 1
    assert cache.get("b") is None
    assert cache.get("b", "default") == "default"


def test_none_is_a_value(cache):
    cache.set("a", None)
    assert cache.get("a", "default") is None
    assert "a" in cache


def test_an_expired_entry_is_never_returned_before_the_wheel_removes_it(make, clock, removals):
    cache = make(interval=60)
    cache.set("a", 1, ttl=5)
    clock.advance(4.875)
    assert cache.get("a") == 1
    clock.advance(0.125)
    assert len(cache) == 1
    assert "a" not in cache
    assert cache.get("a") is None
    assert cache.get_many(["a"]) == {}
    assert cache.keys() == []
    clock.advance(55)
    assert len(cache) == 0
    assert removals == [("a", 1, EXPIRED)]
    assert cache.stats().expirations == 1


def test_the_wheel_takes_expired_entries_out_of_memory(cache, clock, removals):
    cache.set("a", 1, ttl=5)
    cache.set("b", 2)
    clock.advance(5)
    assert len(cache) == 1
    assert removals == [("a", 1, EXPIRED)]
    assert cache.stats().expirations == 1


def test_no_ttl_means_for_ever(cache, clock):
    for key, ttl in (("a", None), ("b", inf), ("c", 10**400)):
        cache.set(key, 1, ttl=ttl)
        assert cache.expires_in(key) is None
    clock.advance(10**9)
    assert cache.get_many(["a", "b"]) == {"a": 1, "b": 1}


def test_a_long_ttl_is_as_good_as_a_short_one(cache, clock):
    cache.set("a", 1, ttl=10**8)
    clock.advance(10**8 - 1)
    assert cache.get("a") == 1
    clock.advance(1)
    assert len(cache) == 0


@pytest.mark.parametrize("ttl", [0, -1, nan, "5", [], True])
def test_a_wrong_ttl_is_an_error_that_says_so(cache, ttl):
    for call in (cache.set, cache.add):
        with pytest.raises((TypeError, ValueError), match="ttl must be a number of seconds > 0, or None"):
            call("a", 1, ttl=ttl)
    cache.set("a", 1)
    with pytest.raises((TypeError, ValueError), match="ttl must be"):
        cache.touch("a", ttl=ttl)


def test_the_least_recently_used_leaves_first_and_hits_and_sets_are_uses(cache, removals):
    for key in "abc":
        cache.set(key, key)
    cache.get("a")
    cache.set("b", "B")
    cache.set("d", "d")
    assert cache.keys() == ["a", "b", "d"]
    assert removals == [("b", "b", REPLACED), ("c", "c", EVICTED)]
    assert cache.stats().evictions == 1


def test_looking_without_getting_is_no_use(cache):
    for key in "abc":
        cache.set(key, key)
    assert "a" in cache
    cache.expires_in("a")
    cache.touch("a")
    cache.set("d", "d")
    assert cache.keys() == ["b", "c", "d"]


def test_an_entry_that_a_write_removes_after_its_time_expired(make, clock, removals):
    cache = make(interval=60, max_entries=3)
    for key in "abc":
        cache.set(key, key, ttl=5)
    clock.advance(6)
    cache.set("d", 1)
    cache.set("b", 2)
    cache.delete("c")
    assert removals == [(key, key, EXPIRED) for key in "abc"]
    assert cache.stats().evictions == 0


def test_delete_pop_and_clear(cache, removals):
    for key in "abc":
        cache.set(key, key)
    assert cache.delete("a") is True
    assert cache.delete("a") is False
    assert cache.pop("b") == "b"
    assert cache.pop("b", None) is None
    with pytest.raises(KeyError, match="'b'"):
        cache.pop("b")
    cache.clear()
    assert len(cache) == 0
    assert removals == [("a", "a", DELETED), ("b", "b", DELETED), ("c", "c", CLEARED)]


def test_add_stores_only_what_is_missing_or_expired(cache, clock):
    assert cache.add("a", 1, ttl=5) is True
    assert cache.add("a", 2) is False
    assert cache.get("a") == 1
    clock.advance(5)
    assert cache.add("a", 3) is True
    assert cache.get("a") == 3


def test_touch_moves_the_expiry_both_ways(cache, clock):
    cache.set("a", 1, ttl=5)
    cache.set("b", 1, ttl=5)
    assert cache.touch("a", ttl=8)
    assert cache.touch("b", ttl=2)
    assert not cache.touch("c")
    assert cache.expires_in("a") == 8
    clock.advance(2)
    assert cache.keys() == ["a"]
    assert len(cache) == 1
    cache.touch("a", ttl=None)
    clock.advance(1000)
    assert cache.get("a") == 1
    cache.touch("a", ttl=3)
    clock.advance(3)
    assert len(cache) == 0


def test_expires_in_of_a_missing_key_is_a_key_error(cache):
    with pytest.raises(KeyError, match="nothing"):
        cache.expires_in("nothing")


def test_incr_keeps_the_expiry(cache, clock):
    cache.set("a", 1, ttl=5)
    clock.advance(2)
    assert cache.incr("a") == 2
    assert cache.incr("a", 2.5) == 4.5
    assert cache.expires_in("a") == 3
    with pytest.raises(KeyError):
        cache.incr("b")
    cache.set("a", "text")
    with pytest.raises(TypeError):
        cache.incr("a")
    assert cache.get("a") == "text"


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


def test_many_at_once(cache):
    assert cache.set_many({"a": 1, "b": 2}) == []
    assert cache.get_many(["a", "b", "c"]) == {"a": 1, "b": 2}
    assert cache.delete_many(["a", "c"]) == 1
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.size) == (2, 1, 1)


def test_many_at_once_may_come_from_an_iterator_and_exceed_a_batch(clock):
    cache = Cache(clock=clock)
    keys = range(5000)
    cache.set_many({key: -key for key in keys})
    assert cache.get_many(iter(keys)) == {key: -key for key in keys}
    assert cache.delete_many(iter(keys)) == 5000
    assert len(cache) == 0


def test_evict_to_takes_the_oldest(cache, removals):
    for key in "abc":
        cache.set(key, key)
    cache.evict_to(1)
    assert cache.keys() == ["c"]
    assert [cause for _, _, cause in removals] == [EVICTED, EVICTED]


def test_weights_bound_the_cache(make):
    cache = make(max_weight=10, weigher=lambda key, value: value)
    for key, weight in (("a", 4), ("b", 4), ("c", 0), ("d", 3)):
        assert cache.set(key, weight)
    assert cache.keys() == ["b", "c", "d"]
    assert cache.stats().weight == 7
    cache.set("b", 7)
    assert cache.keys() == ["c", "d", "b"]


def test_an_entry_heavier_than_the_cache_is_refused_evicts_nothing_and_leaves_no_old_value(make, removals):
    cache = make(max_weight=10, weigher=lambda key, value: value)
    assert cache.set_many({"a": 4, "b": 5}) == []
    assert cache.set("heavy", 11) is False
    assert cache.add("heavy", 11) is False
    assert cache.keys() == ["a", "b"]
    assert cache.set_many({"a": 11}) == ["a"]
    assert cache.get("a") is None, "a value that was overwritten must not be served"
    assert removals == [("a", 4, REPLACED)]
    assert cache.take("heavy", lambda: 11) == 11


def test_one_heavy_entry_may_cost_any_number_of_light_ones(make):
    cache = make(max_weight=5000, weigher=lambda key, value: value)
    cache.set_many(dict.fromkeys(range(5000), 1))
    assert cache.set("heavy", 5000)
    assert cache.keys() == ["heavy"]
    assert cache.stats().evictions == 5000


@pytest.mark.parametrize("weight", [-1, 1.5, None])
def test_a_weigher_must_return_a_whole_number(clock, weight):
    cache = Cache(clock=clock, max_weight=5, weigher=lambda key, value: weight)
    with pytest.raises((TypeError, ValueError), match="what the weigher returns must be a whole number >= 0, not"):
        cache.set("a", 1)


@pytest.mark.parametrize(
    ("argument", "value", "takes"),
    [
        ("name", 5, "a string"),
        ("max_entries", 0, "a whole number >= 1, or None"),
        ("max_entries", 1.5, "a whole number >= 1, or None"),
        ("max_entries", True, "a whole number >= 1, or None"),
        ("max_weight", -1, "a whole number >= 1, or None"),
        ("weigher", 5, "callable"),
        ("ttl", 0, "a number of seconds > 0"),
        ("ttl", "5", "a number of seconds > 0"),
        ("jitter", 1, "a fraction"),
        ("jitter", -0.1, "a fraction"),
        ("interval", 0, "a number of seconds > 0"),
        ("interval", inf, "a number of seconds > 0"),
        ("interval", nan, "a number of seconds > 0"),
        ("slots", 0, "a whole number from 1 to 16,384"),
        ("slots", 2.0, "a whole number from 1 to 16,384"),
        ("slots", 10**30, "a whole number from 1 to 16,384"),
        ("interval", 10**400, "a number of seconds > 0"),
        ("log_interval", 0, "a number of seconds > 0, or None (at least 0.000001)"),
        ("on_removal", 5, "callable"),
        ("clock", 5, "callable"),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it_what_it_takes_and_what_it_got(argument, value, takes):
    with pytest.raises((TypeError, ValueError)) as raised:
        Cache(**{argument: value})
    assert str(raised.value).startswith(f"{argument} must be {takes}")
    assert str(raised.value).endswith(f"not {value!r}")


def test_a_bound_on_weight_and_a_weigher_come_together():
    with pytest.raises(TypeError, match="max_weight and weigher"):
        Cache(max_weight=5)
    with pytest.raises(TypeError, match="max_weight and weigher"):
        Cache(weigher=len)


def test_a_listener_that_raises_is_logged_and_harms_nothing(clock, caplog):
    cache = Cache(clock=clock, max_entries=1, on_removal=lambda key, value, cause: 1 / 0)
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


def test_the_last_reference_to_a_value_is_dropped_while_other_threads_may_use_the_cache(make, clock):
    worker = Worker()
    free = []

    class Value:
        def __del__(self):
            free.append(worker.does(cache.keys))

    cache = make(max_entries=2, ttl=5, on_removal=None)
    for key in "aab":
        cache.set(key, Value())
    cache.set("c", Value())
    cache.delete("b")
    cache.clear()
    cache.set("d", Value())
    clock.advance(5)
    cache.set("e", Value())
    cache.pop("e")
    gc.collect()
    assert free == [True] * 6


def test_a_closed_cache_says_so_and_closing_again_is_nothing(cache, clock):
    cache.set("a", 1)
    cache.close()
    cache.close()
    for use in (
        lambda: cache.get("a"),
        lambda: cache.set("a", 1),
        lambda: cache.add("a", 1),
        lambda: cache.take("a", int),
        lambda: cache.touch("a"),
        lambda: cache.delete("a"),
        lambda: cache.get_many(["a"]),
        lambda: cache.keys(),
        lambda: cache.stats(),
        lambda: cache.clear(),
        lambda: "a" in cache,
    ):
        with pytest.raises(CacheClosed, match="'default' was closed"):
            use()


def test_an_unhashable_key_is_a_type_error(cache):
    for use in (cache.get, cache.delete, lambda key: cache.set(key, 1), lambda key: cache.get_many([key])):
        with pytest.raises(TypeError, match="unhashable"):
            use([])


@pytest.mark.deep
def test_overwrites_and_deletes_with_long_ttls_leave_nothing_behind(make):
    cache = make(ttl=10**6, on_removal=None)
    for i in range(1000):
        cache.set(i, i)
    cache.delete_many(range(1000))
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for i in range(50_000):
        cache.set("overwritten", i)
        cache.set(i, i)
        cache.delete(i)
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(cache) == 1
    # One byte for each; other threads of the process need some as well.
    assert after - before < 50_000


def test_keys_of_numbers_are_equal_as_in_a_dict(cache):
    cache.set(1, "one")
    cache.set(True, "true")
    assert cache.get(1.0) == "true"
    assert len(cache) == 1
    cache.set(("a", 1), "tuple")
    assert cache.get(("a", 1)) == "tuple"


def test_clearing_while_others_read_tells_of_every_entry(make):
    told = []
    cache = make(on_removal=lambda key, value, cause: told.append((key, cause)))
    done = threading.Event()

    def read():
        while not done.is_set():
            cache.get_many(range(4990, 5000))
            cache.get(4999)

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(read) for _ in range(2)]
        for _ in range(20):
            cache.set_many(dict.fromkeys(range(5000), 0))
            cache.clear()
            assert sorted(told, key=lambda each: each[0]) == [(key, CLEARED) for key in range(5000)]
            told.clear()
        done.set()
        for reader in readers:
            reader.result(PATIENCE)


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


def test_named_tuples_are_the_tuples_they_equal(clock):
    Point = namedtuple("Point", "x y")
    cache = Cache(clock=clock)
    cache.set((1, 2), "old")
    cache.set(Point(1, 2), "new")
    assert cache.get((1, 2)) == cache.get(Point(1, 2)) == "new"
    assert cache.delete(Point(1, 2))
    assert cache.get((1, 2)) is None


def test_a_weigher_that_raises_for_one_of_many_leaves_nobody_waiting_for_the_others():
    def weigh(key, value):
        if value == 2:
            raise ValueError(value)
        return 1

    cache = Cache(max_weight=10, weigher=weigh, **SILENT)
    with pytest.raises(ValueError, match="2"):
        run(cache.loading.load_many("abc", lambda missing: {"a": 1, "b": 2, "c": 3}, None, PLAIN))
    assert cache.take("c", lambda: 4) == 4
    assert cache.take("b", lambda: 5) == 5
