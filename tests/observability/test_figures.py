"""Figures of one process and of many: sums, the last minute, the last hour, and how they are written down."""

import json
from dataclasses import fields, replace
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observability.published import worker
from wheelcache.observability.history import Sample
from wheelcache.observability.worker_stats import CacheStats, Rate, Reset, Resets, WorkerStats
from wheelcache.stats import LOAD_BOUNDS, CallStats, Stats, StoreStats

EPOCH = 1_000_000.0
"""When the clocks of the workers showed 0."""


def at(seconds, hits=0, misses=0):
    return Sample(seconds, hits, misses)


# Sums.


def test_the_figures_of_a_cache_are_the_sums_over_its_workers():
    buckets = (1,) * (len(LOAD_BOUNDS) + 1)
    one = Stats(hits=1, load_seconds=0.25, load_buckets=buckets, size=3, weight=30)
    figures = CacheStats("pages", (worker(stats=one), worker(stats=one)))
    assert figures.stats == Stats(hits=2, load_seconds=0.5, load_buckets=(2,) * len(buckets), size=6, weight=60)
    assert CacheStats("pages", ()).stats == Stats()


@pytest.mark.parametrize(("bounds", "total"), [((), 0), ((5,), 5), ((5, 7), 12), ((5, None), None)])
def test_bounds_add_up_unless_there_is_none_somewhere(bounds, total):
    figures = CacheStats("pages", tuple(worker(max_entries=each, max_weight=each) for each in bounds))
    assert figures.max_entries == figures.max_weight == total


@pytest.mark.parametrize(("weighs", "expected"), [((), False), ((True, True), True), ((True, False), False)])
def test_weights_are_bytes_if_they_are_everywhere(weighs, expected):
    assert CacheStats("pages", tuple(worker(weighs_bytes=each) for each in weighs)).weighs_bytes is expected


def test_since_takes_away_what_each_worker_had_counted_and_nothing_from_those_that_came_later():
    figures = CacheStats(
        "pages", (worker(number=1, stats=Stats(hits=10, size=5)), worker(number=2, stats=Stats(hits=3)))
    )
    reset = Reset(1.0, Stats(hits=104, size=4), {"1-x": Stats(hits=4, size=4), "9-x": Stats(hits=100)})
    assert figures.since(reset).stats == Stats(hits=9, size=5)
    assert replace(figures, exited_workers=Stats(hits=102)).since(reset).total == Stats(hits=11, size=5)
    resets = Resets(2.0, {"pages": reset})
    assert Resets.from_json(json.loads(json.dumps(resets.as_json()))) == resets
    assert [each.reset_at for each in resets.apply([figures, replace(figures, name="other")])] == [1.0, None]


# The last minute.


def test_the_last_minute_is_since_the_first_sample_of_the_last_minute():
    samples = [at(seconds, hits=seconds, misses=2 * seconds) for seconds in range(0, 201, 10)]
    figures = worker(samples, now=205.0, stats=Stats(hits=205, misses=410))
    assert figures.last_minute() == Rate(55, 110, 165 / 55)
    assert isclose(figures.last_minute().hit_ratio, 1 / 3)


def test_the_last_minute_without_samples_or_time_or_requests_is_nothing():
    assert worker().last_minute() == Rate()
    assert worker([at(0)], now=100.0).last_minute() == Rate()
    assert worker([at(5, hits=1)], now=5.0, stats=Stats(hits=1)).last_minute() == Rate()
    assert Rate().hit_ratio is None


def test_the_last_minute_of_several_workers_adds_up_though_their_clocks_and_intervals_differ():
    first = worker([at(0), at(10, 5)], now=20.0, stats=Stats(hits=40))
    second = worker([at(500), at(530, 5)], now=530.0, interval=30.0, epoch=0.0, stats=Stats(hits=30, misses=30))
    last_minute = CacheStats("pages", (first, second)).last_minute()
    assert last_minute == Rate(70, 30, 2 + 2)
    assert last_minute.hit_ratio == 0.7


def test_the_last_minute_is_the_last_minute_also_after_a_reset_in_it_or_before_it():
    samples = [at(seconds, hits=seconds, misses=2 * seconds) for seconds in range(0, 201, 10)]
    figures = CacheStats("pages", (worker(samples, now=205.0, stats=Stats(hits=205, misses=410)),))
    for seconds in (100, 180):
        counted = Stats(hits=seconds, misses=2 * seconds)
        assert figures.since(Reset(1.0, counted, {"1-x": counted})).last_minute() == figures.last_minute()


# Written down.

COUNTS = st.integers(0, 2**63)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
BUCKETS = st.tuples(*[COUNTS] * (len(LOAD_BOUNDS) + 1))
CALLS = st.builds(CallStats, COUNTS, COUNTS, TIMES, BUCKETS)
STATS = st.builds(
    Stats,
    **{each.name: COUNTS for each in fields(Stats) if each.name not in ("load_seconds", "load_buckets", "store")},
    load_seconds=TIMES,
    load_buckets=BUCKETS,
    store=st.none() | st.builds(StoreStats, CALLS, CALLS, COUNTS, COUNTS, COUNTS, COUNTS),
)
BOUNDS = st.none() | st.integers(1)
WORKERS = st.builds(
    WorkerStats,
    name=st.text(st.characters()),
    worker=st.text(),
    pid=COUNTS,
    started=TIMES,
    taken=TIMES,
    thread=st.sampled_from(["running", "parked", "not started", "refused"]),
    lag=TIMES,
    interval=st.none() | TIMES,
    reached=st.none() | COUNTS,
    max_entries=BOUNDS,
    max_weight=BOUNDS,
    weighs_bytes=st.booleans(),
    memory=st.none() | COUNTS,
    stats=STATS,
    now=TIMES,
    samples=st.lists(st.builds(Sample, TIMES, COUNTS, COUNTS), max_size=5).map(tuple),
)


@settings(deadline=None, max_examples=50)
@given(WORKERS)
def test_figures_come_back_from_json_as_they_were_with_the_sample_that_the_last_minute_takes(figures):
    text = json.dumps(figures.as_json())
    text.encode("ascii")
    found = WorkerStats.from_json(json.loads(text))
    assert replace(found, samples=figures.samples) == figures
    assert set(found.samples) <= set(figures.samples)
    assert len(found.samples) <= 1
    assert found.last_minute() == figures.last_minute()


@settings(deadline=None, max_examples=50)
@given(
    WORKERS,
    st.recursive(
        st.none() | st.booleans() | st.integers(0, 9) | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    st.data(),
)
def test_what_is_not_of_this_version_is_refused_or_adds_up(figures, wrong, data):
    document = json.loads(json.dumps(figures.as_json()))
    row = document["stats"]
    row[data.draw(st.integers(0, len(row) - 1))] = data.draw(st.just(1) | st.just(wrong))
    document[data.draw(st.sampled_from(sorted(document)) | st.text(max_size=3))] = wrong
    if data.draw(st.booleans()):
        del document[data.draw(st.sampled_from(sorted(document)))]
    try:
        found = WorkerStats.from_json(document)
    except (TypeError, KeyError, ValueError, AttributeError):
        return
    together = CacheStats(found.name, (found, replace(found, worker="other")))
    assert together.stats.requests == 2 * found.stats.requests
    together.last_minute()
    assert together.complete_until == found.reached
    json.dumps(together.stats.as_row())


ROW = Stats().as_row()
ROW_WITH_STORE = Stats(store=StoreStats()).as_row()


@pytest.mark.parametrize("whole", [ROW, ROW_WITH_STORE], ids=["of a cache", "with a store behind"])
def test_a_row_of_other_figures_is_refused(whole):
    assert Stats.from_row(list(whole)).as_row() == whole
    for wrong in (
        [],
        whole[:-1],
        (*whole, 0),
        (None, *whole[1:]),
        (*whole[:-1], "0"),
        "0" * len(whole),
        {"hits": 1},
        1,
    ):
        with pytest.raises((TypeError, ValueError)):
            Stats.from_row(wrong)
