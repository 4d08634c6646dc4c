"""Figures of one process and of many: sums, the last minute, the last hour, and how they are written down."""

import json
from dataclasses import fields, replace
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observability.published import worker
from wheelcache.observability.history import Sample, sample
from wheelcache.observability.worker_stats import GRID, CacheStats, Rate, TimeSeries, WorkerStats, stats_from_json
from wheelcache.stats import LOAD_BOUNDS, Stats

EPOCH = 1_000_000.0
"""When the clocks of the workers showed 0."""


def at(seconds, hits=0, misses=0, **stats):
    return sample(Stats(hits=hits, misses=misses, **stats), seconds, 0.0)


# Sums.


def test_the_figures_of_a_cache_are_the_sums_over_its_workers():
    buckets = (1,) * (len(LOAD_BOUNDS) + 1)
    one = Stats(hits=1, load_seconds=0.25, load_buckets=buckets, size=3, weight=30)
    figures = CacheStats("pages", (worker(stats=one), worker(stats=one)))
    assert figures.stats == Stats(hits=2, load_seconds=0.5, load_buckets=(2,) * 14, size=6, weight=60)
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
    assert figures.since({"1-x": Stats(hits=4, size=4), "9-x": Stats(hits=100)}).stats == Stats(hits=9, size=5)


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
        assert figures.since({"1-x": Stats(hits=seconds, misses=2 * seconds)}).last_minute() == figures.last_minute()


# The last hour.


def test_the_course_has_a_point_for_every_step_between_samples():
    series = TimeSeries.of([worker([at(0), at(10, 3, 1, size=2), at(20, 3, 1, size=5), at(30, 23, 1, size=5)])])
    assert series.at == (EPOCH + 10, EPOCH + 20, EPOCH + 30)
    assert series.hit_ratio == (0.75, None, 1.0)
    assert series.requests == (0.4, 0.0, 2.0)
    assert series.entries == (2, 5, 5)


def test_the_course_has_rates_of_what_leaves_and_the_time_of_a_load():
    first = at(0)
    second = at(10, evictions=20, expirations=5, loads=3, load_failures=1, load_seconds=2.0)
    series = TimeSeries.of([worker([first, second, second._replace(at=20.0)])])
    assert series.evictions == (2.0, 0.0)
    assert series.expirations == (0.5, 0.0)
    assert series.load_seconds == (0.5, None)


def test_over_a_gap_nothing_is_drawn():
    series = TimeSeries.of([worker([at(0), at(10, 1), at(500, 1000), at(510, 1001)])])
    assert series.at == (EPOCH + 10, EPOCH + 510)
    assert series.requests == (0.1, 0.1)


def test_samples_of_one_moment_or_of_a_clock_that_went_back_are_left_out():
    series = TimeSeries.of([worker([at(10), at(10, 5), at(5, 6), at(15, 7)])])
    assert series.at == (EPOCH + 20,)
    assert series.requests == (0.1,)


def test_several_workers_add_up_and_the_ratio_is_of_all_their_requests():
    first = worker([at(0), at(10, 90, 10, size=4)])
    second = worker([at(1000), at(1010, 0, 100, size=1)], epoch=EPOCH - 1000)
    series = TimeSeries.of([first, second])
    assert series.at == (EPOCH + 10,)
    assert series.hit_ratio == (0.45,)
    assert series.requests == (20.0,)
    assert series.entries == (5,)


def test_the_steps_are_those_of_who_samples_least_often():
    often = worker([at(10 * number, 10 * number) for number in range(13)])
    seldom = worker([at(0), at(60, 60), at(120, 120)], interval=60.0, number=2)
    series = TimeSeries.of([often, seldom])
    assert {later - earlier for earlier, later in zip(series.at, series.at[1:], strict=False)} == {60.0}
    # Each has one request a second, and those of a point are of one stretch of time.
    assert series.requests[1:-1] == (2.0,) * len(series.requests[1:-1])


def test_who_samples_more_often_than_the_grid_has_one_point_a_step():
    series = TimeSeries.of([worker([at(number, 2 * number) for number in range(41)], interval=1.0)])
    assert all(each == 2.0 for each in series.requests)
    assert [each % GRID for each in series.at] == [0.0] * len(series.at)
    assert len(series.at) == 5


def test_without_samples_there_is_no_series():
    empty = TimeSeries((), (), (), (), (), (), ())
    assert TimeSeries.of([]) == TimeSeries.of([worker()]) == TimeSeries.of([worker([at(0)])]) == empty
    assert TimeSeries.of([worker([at(0), at(10)], interval=None)]) == empty


@settings(deadline=None, max_examples=50)
@given(
    st.lists(
        st.tuples(
            st.floats(1, 100),
            st.lists(st.tuples(st.floats(0.5, 200), st.integers(0, 50), st.integers(0, 50)), max_size=30),
            st.floats(-1e6, 1e6),
        ),
        max_size=4,
    )
)
def test_whatever_was_sampled_the_course_is_in_order_and_has_no_more_requests_than_there_were(histories):
    workers, total = [], 0
    for interval, steps, epoch in histories:
        samples, seconds, hits, misses = [at(0.0)], 0.0, 0, 0
        for pause, more_hits, more_misses in steps:
            seconds, hits, misses = seconds + pause, hits + more_hits, misses + more_misses
            samples.append(at(seconds, hits, misses))
        total += hits + misses
        workers.append(worker(samples, interval=interval, epoch=EPOCH + epoch))
    series = TimeSeries.of(workers)
    assert list(series.at) == sorted(set(series.at))
    assert {len(getattr(series, each.name)) for each in fields(series)} == {len(series.at)}
    assert all(each is None or 0 <= each <= 1 for each in series.hit_ratio)
    assert all(each >= 0 for each in series.requests)
    if total == 0:
        assert set(series.hit_ratio) <= {None}


# Written down.

COUNTS = st.integers(0, 2**63)
TIMES = st.floats(allow_nan=False, allow_infinity=False)
STATS = st.builds(
    Stats,
    **{each.name: COUNTS for each in fields(Stats) if each.name not in ("load_seconds", "load_buckets")},
    load_seconds=TIMES,
    load_buckets=st.tuples(*[COUNTS] * (len(LOAD_BOUNDS) + 1)),
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
    max_entries=BOUNDS,
    max_weight=BOUNDS,
    weighs_bytes=st.booleans(),
    stats=STATS,
    now=TIMES,
    samples=st.lists(st.builds(Sample, *[TIMES] * 2, *[COUNTS] * 3, TIMES, *[COUNTS] * 8), max_size=5).map(tuple),
)


@settings(deadline=None, max_examples=50)
@given(WORKERS)
def test_figures_come_back_from_json_as_they_were(figures):
    text = json.dumps(figures.as_json())
    text.encode("ascii")
    assert WorkerStats.from_json(json.loads(text)) == figures


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
    place = data.draw(st.sampled_from([document, document["stats"]]))
    place[data.draw(st.sampled_from(sorted(place)) | st.text(max_size=3))] = wrong
    if data.draw(st.booleans()):
        del place[data.draw(st.sampled_from(sorted(place)))]
    try:
        found = WorkerStats.from_json(document)
    except (TypeError, KeyError, ValueError, AttributeError):
        return
    together = CacheStats(found.name, (found, replace(found, worker="other")))
    assert together.stats.requests == 2 * found.stats.requests
    together.last_minute()
    TimeSeries.of(together.workers)
    json.dumps(together.stats.load_buckets)


@pytest.mark.parametrize("buckets", [[], [1] * 13, [1] * 15, "x" * 14, [None] * 14])
def test_buckets_of_other_bounds_are_refused(buckets):
    with pytest.raises((TypeError, ValueError)):
        stats_from_json({"load_buckets": buckets})
