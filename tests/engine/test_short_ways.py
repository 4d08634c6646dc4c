"""A call takes a short way through the compiled core if nothing but the core is concerned, and otherwise a long one.
Both have the same results, counts and removals. With a clock of the test, every call takes the long way."""

from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelcache import Cache, ManualClock
from wheelcache.core.contract import BATCH
from wheelcache.errors import MissingKey

KEY = st.sampled_from(["a", "b", "é", "a b", 1, 2.0, ("a", 1), (1, (2, "b")), Decimal(1), frozenset(["a"])])
VALUE = st.sampled_from([0, 41, -1, 2**70, True, None, "text", 1.5, [1]])
TTL = st.sampled_from([None, 1000, 1000.5, 2**50])
CALL = st.one_of(
    st.tuples(st.sampled_from(["get", "delete"]), st.tuples(KEY)),
    st.tuples(st.sampled_from(["set", "add"]), st.tuples(KEY, VALUE, TTL)),
    st.tuples(st.sampled_from(["set", "add"]), st.tuples(KEY, VALUE)),
    st.tuples(st.just("touch"), st.tuples(KEY, TTL)),
    st.tuples(st.just("incr"), st.tuples(KEY, st.sampled_from([1, -5, 2**70, 0.5, True, "x", None]))),
    st.tuples(st.just("get_many"), st.tuples(st.lists(KEY, max_size=5))),
    st.tuples(st.just("set_many"), st.tuples(st.dictionaries(KEY, VALUE, max_size=5), TTL)),
)


def answer(call, arguments):
    try:
        return call(*arguments)
    except (MissingKey, ValueError, TypeError) as error:
        return type(error)


def counts(cache):
    stats = cache.stats()
    return stats.hits, stats.misses, stats.puts, stats.removals


@settings(max_examples=300)
@given(calls=st.lists(CALL, max_size=40), max_entries=st.sampled_from([3, None]))
def test_both_ways_of_the_engine_have_the_same_results(calls, max_entries):
    short = Cache("short", max_entries=max_entries, ttl=500, jitter=0)
    long = Cache("long", max_entries=max_entries, ttl=500, jitter=0, clock=ManualClock())
    for name, arguments in calls:
        assert answer(getattr(short, name), arguments) == answer(getattr(long, name), arguments), name
        assert short.keys() == long.keys()
        for key in short.keys():
            assert type(short.expires_in(key)) is type(long.expires_in(key))
            assert (short.expires_in(key) or 0) == pytest.approx(long.expires_in(key) or 0, abs=100)
    assert counts(short) == counts(long)


@pytest.mark.parametrize("clock", [{}, {"clock": ManualClock()}], ids=["short", "long"])
@pytest.mark.parametrize("count", [BATCH - 1, BATCH, BATCH + 1, 3 * BATCH + 7])
def test_a_call_for_more_keys_than_a_step_takes_has_them_all(count, clock):
    cache = Cache(jitter=0, **clock)
    values = {f"key {number}": number for number in range(count)}
    assert cache.set_many(values, 100) == []
    assert cache.get_many([*values, "missing"]) == values
    assert cache.get_many(iter(values)) == values
    assert (cache.stats().hits, cache.stats().misses) == (2 * count, 1)
    assert cache.delete_many(iter([*values, "missing"])) == count
    assert len(cache) == 0
