"""The figures of a cache are exact for all causes and under threads, and they can be added up."""

import random
import threading
from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.caches import ticking
from tests.waiting import THREADS, until
from wheelcache import Cache, RemovalCause
from wheelcache.engine.stats import COUNTERS, LOAD_BOUNDS, Meter, Stats, whole_parts
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.reasons import REASONS
from wheelcache.watch.rows import COUNTS, NOTHING, added, reading_of, stats_of, subtracted

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

# Sums.

NUMBERS = st.integers(0, 10**6)
BUCKETS = st.tuples(*[NUMBERS] * (len(LOAD_BOUNDS) + 1))
CALLS = st.builds(CallStats, NUMBERS, NUMBERS, NUMBERS, BUCKETS)
STORES = st.builds(StoreStats, NUMBERS, NUMBERS, CALLS, CALLS, *[NUMBERS] * 4)
PAGES = st.builds(PageStats, *[NUMBERS] * 7, st.dictionaries(st.sampled_from([*REASONS, "made up"]), NUMBERS))
STATS = st.builds(
    Stats,
    **dict.fromkeys((*COUNTERS, "size", "weight"), NUMBERS),
    load_buckets=BUCKETS,
    by_guest=st.fixed_dictionaries({}, optional={"store": STORES, "pages": PAGES}),
)


def counts(stats):
    return reading_of(stats).counts


def test_counters_and_gauges_and_buckets_are_all_there_is():
    names = {each.name for each in fields(Stats)}
    assert names == {*COUNTERS, "size", "weight", "load_buckets", "groups", "by_guest"}
    assert len(Stats().load_buckets) == len(LOAD_BOUNDS) + 1
    assert len(set(COUNTS)) == len(counts(Stats())) == len(NOTHING)


@settings(max_examples=25)
@given(STATS, STATS)
def test_rows_add_up_and_stats_come_back_from_them(one, other):
    row = added(counts(one), counts(other))
    total = stats_of(row)
    for name in COUNTERS:
        assert getattr(total, name) == getattr(one, name) + getattr(other, name)
    assert total.load_buckets == tuple(map(sum, zip(one.load_buckets, other.load_buckets, strict=True)))
    assert counts(total) == row == added(counts(other), counts(one))
    assert subtracted(row, counts(one)) == counts(other)
    assert total.requests == one.requests + other.requests
    assert total.hit_ratio + total.stale_ratio <= 1
    for cause, number in total.removals.items():
        assert number == one.removals[cause] + other.removals[cause]
    reads = [CallStats() if each.store is None else each.store.reads for each in (one, other)]
    assert total.store.reads.calls == reads[0].calls + reads[1].calls
    assert stats_of(row, parts=["pages"]).store is None
    not_stored = [{} if each.pages is None else each.pages.not_stored for each in (one, other)]
    assert total.pages.not_stored.keys() <= set(REASONS)
    assert sum(total.pages.not_stored.values()) == sum(sum(each.values()) for each in not_stored)
    assert stats_of(row, parts=["store"]).pages is None


# Times of loads.


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [(0.0, 0), (0.00001, 0), (0.0000101, 1), (0.0025, 7), (0.5, 14), (10.0, 18), (10.001, 19), (1e9, 19)],
)
def test_a_load_is_counted_in_the_bucket_of_the_first_bound_it_does_not_exceed(seconds, bucket):
    meter = Meter("loads")
    meter.ended(seconds, "loads")
    buckets = tuple(int(number == bucket) for number in range(len(LOAD_BOUNDS) + 1))
    assert meter.read() == ({"loads": 1}, whole_parts(seconds), buckets)


# Removals, under threads.


def test_every_removal_is_counted_once_and_told_once_under_32_threads(together):
    """Threads remove entries in every way, and so does the wheel. Sets equal removals plus present entries."""
    told = Counter()
    lock = threading.Lock()

    def on_removal(key, value, cause):
        with lock:
            told[cause] += 1

    cache = ticking(0.005)(
        max_entries=300,
        weigher=lambda key, value: 1,
        max_weight=250,
        on_removal=on_removal,
    )
    stored = [0] * THREADS

    def work(number):
        mine = random.Random(number)
        for step in range(300):
            key = mine.randrange(400)
            which = mine.random()
            if which < 0.5:
                stored[number] += cache.set(key, number, mine.choice([None, 0.001, 0.02, 60]))
            elif which < 0.6:
                many = {mine.randrange(400): number for _ in range(20)}
                stored[number] += len(many) - len(cache.set_many(many, 60))
            elif which < 0.65:
                stored[number] += cache.add(key, number)
            elif which < 0.7:
                try:
                    cache.incr(key)
                    stored[number] += 1
                except KeyError:
                    pass
            elif which < 0.8:
                cache.delete(key)
            elif which < 0.85:
                cache.delete_many(range(key, key + 20))
            elif which < 0.87:
                cache.engine.evict_to(200)
            elif which < 0.88 and step % 10 == 0:
                cache.clear()
            elif which < 0.95:
                cache.get(key)
            else:
                cache.pop(key, None)

    assert together(work) == [None] * THREADS
    # The wheel thread may have removed an entry that it has not reported yet.
    assert until(lambda: sum(told.values()) == sum(cache.stats().removals.values()))
    stats = cache.stats()
    assert stats.removals == {cause.value: told[cause] for cause in RemovalCause}
    assert sum(stats.removals.values()) == sum(stored) - len(cache)
    assert all(stats.removals.values())
    cache.close()


def test_what_a_listener_that_raises_an_exit_leaves_untold_is_counted(clock):
    def leave(*removal):
        raise SystemExit

    cache = Cache(clock=clock)
    cache.set_many(dict.fromkeys(range(5000), 1))
    cache.on_removal = leave
    with pytest.raises(SystemExit):
        cache.clear()
    assert cache.stats().clearings == 5000


# The listener.


@pytest.mark.parametrize("wrong", [1, "print", [], object()])
def test_what_is_no_function_is_refused_as_a_listener_and_the_one_before_stays(clock, wrong):
    told = []
    cache = Cache(clock=clock, on_removal=lambda *removal: told.append(removal))
    with pytest.raises(TypeError, match="on_removal must be callable, or None, not"):
        cache.on_removal = wrong
    cache.set("a", 1)
    cache.delete("a")
    assert len(told) == 1


# The list of caches.
