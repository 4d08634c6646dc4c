"""The figures of a cache can be added up. Under threads, they are exact: see ``tests/engine/test_threads.py``."""

from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wheelcache import Cache
from wheelcache.engine.stats import COUNTERS, LOAD_BOUNDS, Meter, Stats, whole_parts
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.reasons import REASONS
from wheelcache.watch.rows import COUNTS, NOTHING, added, reading_of, stats_of, subtracted

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


def test_what_a_listener_that_raises_an_exit_leaves_untold_is_counted(clock):
    def leave(*removal):
        raise SystemExit

    cache = Cache(clock=clock)
    cache.set_many(dict.fromkeys(range(5000), 1))
    cache.on_removal = leave
    with pytest.raises(SystemExit):
        cache.clear()
    assert cache.stats().clearings == 5000
