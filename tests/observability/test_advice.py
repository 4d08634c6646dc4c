"""Advice follows from the figures that workers publish, and comes true on the streams of the benchmark."""

import random
from itertools import chain, islice

import pytest

from benchmarks.advice import outcomes
from benchmarks.policy_streams import STREAMS
from tests.core.implementations import CORES
from wheelcache.observability.advice import advise, curve, silence
from wheelcache.observability.figures import Sum
from wheelcache.observability.tables import GAUGES_OF_WORKER
from wheelcache.stats import CURVE_SIZES, SAMPLE, TINY_LFU, Sample

SIZE = 10_000
GAINS = {0.5: -0.2, 1.0: 0.0, 2.0: 0.1, 4.0: 0.2, 8.0: 0.21}


def half(gains=GAINS, of_policy=0.0, disagreements=0):
    """Return one half of the sample of a window with 500 misses, of which ``gains`` are points of hit ratio."""
    return [*(500 - round(1000 * gains[size]) for size in CURVE_SIZES), 500 - round(1000 * of_policy), disagreements]


def window(one=None, other=None, hits=50_000, misses=50_000, stored=50_000, evictions=40_000, invalidated=0):
    one = half() if one is None else one
    return [hits, misses, stored, evictions, invalidated, *one, *(one if other is None else other)]


def figures(*windows, **gauges):
    """Return the figures of a cache with two workers, which have the given windows together."""
    sample = dict(zip(SAMPLE, chain.from_iterable(windows or [window()] * 3), strict=True))
    bounds = {"max_entries": 2 * SIZE, "max_weight": None, "memory": 8 * 2**20, "peak": SIZE, "most_entries": SIZE}
    return Sum(
        gauges=dict.fromkeys(GAUGES_OF_WORKER, 0) | bounds | sample | gauges, processes=frozenset("ab")
    ).of_cache("pages")


def texts(*windows, **gauges):
    return [each.text for each in advise([figures(*windows, **gauges)])]


TWICE = (
    "twice its limit, 20,000 entries in each worker with about 4.0 MiB more, would raise its hit ratio from 50% to 60%."
)
FOUR_TIMES = (
    "four times its limit, 40,000 entries in each worker with about 12 MiB more, would raise its hit ratio from 50% to "
    "70%."
)


def test_it_promises_the_measured_misses_times_the_ratio_of_the_miniatures():
    twice, four_times = advise([figures()])
    assert [twice.text, four_times.text] == [TWICE, FOUR_TIMES]
    assert str(twice) == f"Cache 'pages': {TWICE}"
    assert (twice.change, twice.hit_ratio, twice.promised) == ({"max_entries": 20_000}, 0.5, pytest.approx(0.6))
    assert four_times.change == {"max_entries": 40_000}


def test_weights_grow_with_the_entries():
    twice, _ = advise([figures(max_weight=2 * 10**6)])
    assert twice.change == {"max_entries": 20_000, "max_weight": 2 * 10**6}
    assert "twice its limit, 20,000 entries and a weight of 2,000,000 in each worker" in twice.text
    assert "20,000 entries and 2,000,000 bytes in" in texts(max_weight=2 * 10**6, weighs_bytes=True)[0]


def test_a_cache_that_is_full_by_its_weight_is_not_called_empty():
    assert "twice its limit" in texts(max_weight=2 * 10**6, peak=100)[0]


@pytest.mark.parametrize("bounds", [{"max_entries": 3 * SIZE, "most_entries": 2 * SIZE}, {"max_entries": None}])
def test_there_is_no_advice_while_the_workers_have_different_limits(bounds):
    assert texts(**bounds) == texts(peak=100, **bounds) == []
    assert "limit" in silence(figures(**bounds))


def test_there_is_no_promise_if_tags_and_deletes_may_prevent_two_points_of_the_gain():
    # A tenth, and a third, of the entries leave because they are invalid.
    assert texts(*[window(half(GAINS | {4.0: 0.1}), invalidated=4_400)] * 3)[0].endswith("from 50% to 60%.")
    assert texts(*[window(half(GAINS | {4.0: 0.1}), invalidated=20_000)] * 3) == []


def test_four_times_the_size_must_gain_three_points_more_than_twice():
    assert texts(*[window(half(GAINS | {4.0: 0.12}))] * 3) == [TWICE]
    assert len(texts(*[window(half(GAINS | {2.0: 0.02}))] * 3)) == 1
    assert texts(*[window(half(GAINS | {2.0: 0.02, 4.0: 0.02}))] * 3) == []


def test_a_cache_with_few_evictions_need_not_grow():
    assert texts(*[window(evictions=4_900)] * 3) == []


def test_look_ups_that_nobody_answers_miss_in_every_cache():
    twice, _ = advise([figures(*[window(stored=20_000)] * 3)])
    assert twice.promised == pytest.approx(0.5 + 0.1 * 0.4)


def test_memory_that_is_unknown_is_not_mentioned():
    assert texts(memory=None)[0].startswith("twice its limit, 20,000 entries in each worker, would")


def test_the_other_policy_needs_two_points_and_three_sigma():
    same = GAINS | {2.0: 0.0, 4.0: 0.0}
    assert texts(*[window(half(same, 0.05, 50))] * 3) == [
        'policy="adaptive" would raise its hit ratio from 50% to 55%.'
    ]
    assert texts(*[window(half(same, 0.019, 19))] * 3) == []
    # 300 hits more of 10,000 disagreements.
    assert texts(*[window(half(same, 0.05, 1700))] * 3) == []


@pytest.mark.parametrize(
    "windows",
    [
        [window(half(), half(GAINS | {2.0: 0.13, 4.0: 0.23}))] * 3,
        [window(), window(), window(half(GAINS | {2.0: 0.13, 4.0: 0.23}))],
    ],
)
def test_there_is_no_advice_if_the_halves_or_the_windows_disagree_by_two_points(windows):
    assert texts(*windows) == []


def test_there_is_no_advice_before_the_windows_are_complete():
    nothing = [[0] * 19] * 3
    assert texts(*nothing) == []
    assert "200,000 requests" in silence(figures(*nothing))
    assert "less than 5,000" in silence(figures(*nothing, max_entries=200, most_entries=100))
    assert "no limit" in silence(figures(*nothing, max_entries=None))
    assert "clearly" in silence(figures())


def test_it_promises_less_if_the_halves_or_the_windows_disagree_by_less_than_two_points():
    (advice, *_) = advise([figures(*[window(half(), half(GAINS | {2.0: 0.11}))] * 3)])
    assert advice.promised == pytest.approx(0.5 + 0.105 - 0.005)


def test_a_limit_that_was_never_half_reached_is_called_too_high():
    few = [window(evictions=100)] * 3
    assert texts(*few, peak=SIZE // 2 - 1) == ["it never held more than 50% of its limit of 10,000 entries."]
    assert texts(*few, peak=1200) == ["it never held more than 12% of its limit of 10,000 entries."]


def test_the_curve_has_an_error_for_each_size():
    sample = Sample((*window(half(), half(GAINS | {0.5: -0.3})),) * 3)
    assert [(each["size"], round(each["hit_ratio"], 2)) for each in curve(sample)] == [
        *((0.5, 0.25), (1.0, 0.5), (2.0, 0.6), (4.0, 0.7), (8.0, 0.71))
    ]
    assert [round(each["error"], 2) for each in curve(sample)] == [0.1, 0, 0, 0, 0]
    assert curve(Sample((0,) * len(SAMPLE))) == []
    assert sample.gain(TINY_LFU) == 0


STEADY = ("Zipf", "web", "uniform", "flood", "drift", "loop", "recency", "bursts")


@pytest.mark.compiled
@pytest.mark.parametrize("name", [*STEADY, "Zipf with scans", "loop and Zipf", "sessions", "shift", "phases"])
def test_advice_for_the_first_half_of_a_stream_comes_true_in_the_second(name, monkeypatch):
    monkeypatch.setattr("benchmarks.advice.CoreClass", CORES["compiled"])
    requests = list(islice(STREAMS[name](random.Random(1), SIZE // 2), 40 * SIZE))
    found = list(outcomes(requests, SIZE // 2))
    assert found or name not in ("loop", "web", "uniform")
    for outcome in found:
        advice = outcome.advice
        if name in STEADY:
            assert advice.promised - outcome.realised <= 0.025
        assert outcome.realised - outcome.before >= (advice.promised - advice.hit_ratio) / 2
