"""The figures of a cache can be added up. Under threads, they are exact: see ``tests/engine/test_threads.py``."""

from dataclasses import fields

import pytest

from wheelcache import Cache
from wheelcache.engine.stats import COUNTERS, LOAD_BOUNDS, Stats
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.pages.page_stats import PageStats
from wheelcache.watch.documents import percentiles_ms
from wheelcache.watch.rows import COUNTS, NOTHING, added, reading_of, stats_of, subtracted

# Sums.


def counts(stats):
    return reading_of(stats).counts


def test_counters_and_gauges_and_buckets_are_all_there_is():
    names = {each.name for each in fields(Stats)}
    assert names == {*COUNTERS, "size", "weight", "load_buckets", "groups", "by_guest"}
    assert len(Stats().load_buckets) == len(LOAD_BOUNDS) + 1
    assert len(set(COUNTS)) == len(counts(Stats())) == len(NOTHING)


def test_rows_add_up_and_stats_come_back_from_them():
    numbers = {name: number for number, name in enumerate((*COUNTERS, "size", "weight"), 1)}
    calls = CallStats(1, 2, 3.5, tuple(range(len(LOAD_BOUNDS) + 1)))
    pages = PageStats(*range(1, 8), {"vary": 5, "made up": 6})
    guests = {"store": StoreStats(11, 12, calls, calls, *range(13, 17)), "pages": pages}
    row = counts(Stats(**numbers, load_buckets=calls.buckets, by_guest=guests))
    double = added(row, row)
    total = stats_of(double, parts=["store", "pages"])
    assert {name: getattr(total, name) for name in COUNTERS} == {name: 2 * numbers[name] for name in COUNTERS}
    twice = tuple(2 * each for each in calls.buckets)
    assert total.load_buckets == total.store.reads.buckets == total.store.writes.buckets == twice
    assert (total.store.hits, total.store.misses, total.store.writes.seconds) == (22, 24, 7.0)
    assert (total.pages.fresh, total.pages.not_stored) == (2, {"vary": 10, "other": 12})
    assert counts(total) == double
    assert subtracted(double, row) == row
    assert stats_of(row, parts=["pages"]).store is None
    assert stats_of(row, parts=["store"]).pages is None


# Times of loads.


def test_percentiles_assume_that_calls_are_spread_evenly_within_a_bucket():
    nothing = [0] * (len(LOAD_BOUNDS) - 2)
    low, high, last = 1000 * LOAD_BOUNDS[0], 1000 * LOAD_BOUNDS[1], 1000 * LOAD_BOUNDS[-1]
    found = percentiles_ms([50, 40, *nothing, 10])
    assert found == {"p50": pytest.approx(low), "p90": pytest.approx(high), "p99": last}
    assert percentiles_ms([0, 100, *nothing, 0])["p50"] == pytest.approx((low + high) / 2)
    assert percentiles_ms([0, 0, *nothing, 0]) == {"p50": None, "p90": None, "p99": None}


def test_what_a_listener_that_raises_an_exit_leaves_untold_is_counted(clock):
    def leave(*removal):
        raise SystemExit

    cache = Cache(clock=clock)
    cache.set_many(dict.fromkeys(range(5000), 1))
    cache.on_removal = leave
    with pytest.raises(SystemExit):
        cache.clear()
    assert cache.stats().clearings == 5000
