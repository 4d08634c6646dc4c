"""Advice follows from the figures that workers publish, and comes true on the streams of the benchmark."""

import random
import re
from dataclasses import replace
from itertools import chain, islice

import pytest

from benchmarks.advice import outcomes
from benchmarks.policy_streams import STREAMS
from tests.core.implementations import CORES
from tests.watch.published import INTERVAL, look
from wheelcache import Cache
from wheelcache.engine.stats import CURVE_SIZES, MISSES, TINY_LFU, Sample, Stats
from wheelcache.watch.advice import advise, curve, silence
from wheelcache.watch.figures import Sum
from wheelcache.watch.gains import steadier
from wheelcache.watch.rows import SAMPLE, reading_of
from wheelcache.watch.site import own_figures
from wheelcache.watch.tables import GAUGES_OF_WORKER

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


def promises(*windows, **gauges):
    return [each.text for each in advise([figures(*windows, **gauges)]) if each.promised is not None]


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
    assert promises(*[window(half(GAINS | {4.0: 0.1}), invalidated=20_000)] * 3) == []


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
    assert texts(*[window(half(same, 0.05, 1700))] * 3) == [
        'not certain yet: policy="adaptive" would change its hit ratio from 50% to a value from 50% to 60%.'
    ]
    assert texts(*[window(half(same, 0.05, 50))] * 3, is_adaptive=True) == []


@pytest.mark.parametrize(
    "windows",
    [
        [window(half(), half(GAINS | {2.0: 0.13, 4.0: 0.23}))] * 3,
        [window(), window(), window(half(GAINS | {2.0: 0.13, 4.0: 0.23}))],
    ],
)
def test_if_the_halves_or_the_windows_disagree_by_two_points_a_gain_is_told_apart_from_none(windows):
    assert promises(*windows) == []
    twice, four_times = texts(*windows)
    assert twice.startswith("not certain yet: twice its limit, 20,000 entries in each worker with about 4.0 MiB more, ")
    assert re.search(r" would change its hit ratio from 50% to a value from 60% to 6[23]%\.$", twice)
    assert re.search(r" to a value from 70% to 7[23]%\.$", four_times)


def test_a_gain_that_is_out_of_reach_in_spite_of_the_doubt_is_not_mentioned():
    none, few = GAINS | {2.0: 0.0, 4.0: 0.0}, GAINS | {2.0: 0.02, 4.0: 0.02}
    assert texts(*[window(half(none), half(few))] * 3) == []


def measured(gain=0.1, other=None, **counts):
    halves = [half(GAINS | {2.0: each, 4.0: each}) for each in (gain, gain if other is None else other)]
    return Sample(tuple(chain.from_iterable([window(*halves, **counts)] * 3)))


@pytest.mark.parametrize(
    ("before", "latest", "is_replaced"),
    [
        # Nothing was certain before, or it is more certain now.
        (measured(0.1, 0.13), measured(), True),
        (measured(0.1, 0.115), measured(0.1, 0.11), True),
        # Chance alone: the latest sample is less certain, or a gain of 3 points is one of 2.5.
        (measured(), measured(0.1, 0.13), False),
        (measured(0.03), measured(0.02, 0.03), False),
        # The gain is out of reach, or the requests have changed.
        (measured(), measured(0.0), True),
        (measured(), measured(0.1, 0.13, hits=60_000), True),
        # A worker begins again.
        (measured(), Sample((0,) * len(SAMPLE)), True),
    ],
)
def test_a_worker_keeps_its_most_certain_sample_until_it_is_contradicted(before, latest, is_replaced):
    assert steadier(before, latest) == (latest if is_replaced else before)


@pytest.mark.compiled
@pytest.mark.deep
def test_advice_on_a_steady_stream_is_never_withdrawn(make, path, clock, at_length):
    # The keys of the sample are secret. In one case of six, they are not certain enough for any advice.
    for number in range(6):
        cache, given = make(f"pages {number}", max_entries=SIZE // 2), set()
        requests = STREAMS["flood"](random.Random(1), SIZE // 2)
        # The last advice comes in round 12.
        for _ in range(max(at_length(100), 40)):
            for _, key, _ in islice(requests, 3 * SIZE // 2):
                if cache.get(key) is None:
                    cache.set(key, 1, None)
            clock.advance(INTERVAL)
            (figures,) = (each for each in look(path).caches if each.name == cache.name)
            before, given = given, {str(each.change) for each in advise([figures]) if each.promised is not None}
            assert before <= given
        if given:
            return
    raise AssertionError("no sample was certain enough for advice")


def test_there_is_no_advice_before_the_windows_are_complete():
    nothing = [[0] * 19] * 3
    assert texts(*nothing) == []
    assert "200,000 requests" in silence(figures(*nothing))
    assert "less than 5,000" in silence(figures(*nothing, max_entries=200, most_entries=100))
    assert "only the compiled core measures" in silence(replace(figures(*nothing), cores=("python",)))
    assert "no limit" in silence(figures(*nothing, max_entries=None))
    assert "3 points" in silence(figures())


def test_it_promises_less_if_the_halves_or_the_windows_disagree_by_less_than_two_points():
    (advice, *_) = advise([figures(*[window(half(), half(GAINS | {2.0: 0.11}))] * 3)])
    assert advice.promised == pytest.approx(0.5 + 0.105 - 0.005)


def test_a_limit_that_was_never_half_reached_is_called_too_high():
    few = [window(evictions=100)] * 3
    assert texts(*few, peak=SIZE // 2 - 1) == ["it never held more than 50% of its limit of 10,000 entries."]
    assert texts(*few, peak=1200) == ["it never held more than 12% of its limit of 10,000 entries."]


def test_the_curve_has_an_error_for_each_size():
    found = curve(figures(*(window(half(), half(GAINS | {0.5: -0.3})),) * 3))
    assert [(each["size"], round(each["hit_ratio"], 2)) for each in found["points"]] == [
        *((0.5, 0.25), (1.0, 0.5), (2.0, 0.6), (4.0, 0.7), (8.0, 0.71))
    ]
    assert [round(each["error"], 2) for each in found["points"]] == [0.1, 0, 0, 0, 0]
    assert found["entries"] == SIZE
    assert Sample((*window(half(), half(GAINS)),) * 3).gain(TINY_LFU) == 0


@pytest.mark.parametrize(
    ("parts", "kind", "text"),
    [
        (
            [window()] * 3,
            "change",
            "Twice its limit, 20,000 entries in each worker with about 4.0 MiB more, would raise",
        ),
        ([window(half(), half(GAINS | {2.0: 0.2, 4.0: 0.3}))] * 3, "uncertain", "Not certain yet: twice its limit"),
        ([window(half(dict.fromkeys(GAINS, 0.0)))] * 3, "none", "No change would help: neither a larger size nor"),
        ([[0] * len(window())] * 3, "unknown", "Not measured: no worker has had 200,000 requests yet"),
    ],
)
def test_the_advice_beside_the_curve_tells_no_gain_from_no_certainty(parts, kind, text):
    given = curve(figures(*parts))["advice"]
    assert given["kind"] == kind
    assert given["text"].startswith(text)


# Advice about keys.


def by_cause(**misses):
    """Return the misses by the names of their counters, of which the arguments leave out the prefix."""
    return {name: misses.get(name.removeprefix("misses_"), 0) for name in MISSES.values()}


def group(hits=0, puts=0, **misses):
    return (hits, 0, puts, 0, 0.0, 0, *by_cause(**misses).values())


def about_keys(groups=None, *, hits=50_000, evictions=3_050, load_seconds=0.0, given=None, gauges=None, **misses):
    """Return the advice for a cache of two workers that gives no reason for advice on its options.

    Args:
        misses: the misses of the cache by cause, or if there is one group, of the group and the cache.
    """
    counted = by_cause(**misses)
    counts = {"hits": hits, "misses": sum(counted.values()), "evictions": evictions, **counted}
    stats = Stats(loads=1000, load_seconds=load_seconds, **counts)
    bounds = {"max_entries": 2 * SIZE, "peak": SIZE, "most_entries": SIZE}
    figures = Sum(
        gauges=dict.fromkeys(GAUGES_OF_WORKER, 0) | bounds | (gauges or {}),
        groups={name: group(**each) for name, each in (groups or {}).items()},
        **{"processes": frozenset("ab"), "counts": reading_of(stats).counts, "since": 0.0, "published": 3600.0}
        | (given or {}),
    )
    found = advise([figures.of_cache("pages")])
    assert all(each.change == {} and each.promised is None for each in found)
    return [each.text for each in found]


EXPIRES = {"hits": 6_100, "expired": 8_000, "new": 2_000}


def test_a_group_whose_values_expire_too_early_is_named():
    (text,) = about_keys({"news": EXPIRES}, expired=8_000, new=8_000)
    assert text == (
        "a longer lifetime for the group 'news' would avoid misses: 80% of its misses, and 50% of all misses, are for "
        "values that had expired."
    )
    (text,) = about_keys({"": EXPIRES}, expired=8_000, new=8_000)
    assert text.startswith("a longer lifetime for the group of all other keys would")


def test_there_is_no_advice_about_the_only_group_of_the_core_in_python():
    assert about_keys({"": EXPIRES}, given={"cores": frozenset({"python"})}, expired=8_000, new=8_000) == []


@pytest.mark.parametrize(
    ("group", "hits", "misses"),
    [
        ({"hits": 0, "expired": 999}, 0, {"expired": 999}),
        ({"hits": 6_100, "expired": 8_000, "new": 8_001}, 50_000, {"expired": 8_000, "new": 8_001}),
        ({"hits": 6_100, "expired": 8_000}, 50_000, {"expired": 8_000, "new": 72_001}),
        # Less than three of 100 look-ups: expiry is the only reason for misses in a cache that works well.
        ({"hits": 500_000, "expired": 8_000}, 500_000, {"expired": 8_000}),
    ],
)
def test_a_longer_lifetime_needs_many_expired_values_in_the_group_and_the_cache(group, hits, misses):
    assert about_keys({"news": group}, hits=hits, **misses) == []


def test_a_group_that_is_stored_and_never_read_is_named():
    (text,) = about_keys({"audit": {"puts": 6_100}})
    assert text == (
        "the group 'audit' is stored and never read: 6,100 values were stored, and there was no hit. "
        "Unless these are locks or counters, they only evict other values."
    )


@pytest.mark.parametrize("group", [{"puts": 2_989}, {"puts": 6_100, "hits": 61}, {"puts": 6_100, "new": 3_050}])
def test_an_unread_group_needs_many_stored_values_no_hit_and_few_look_ups(group):
    assert about_keys({"audit": group}) == []


def test_an_unread_group_matters_only_if_it_evicts_other_values():
    assert about_keys({"lock": {"puts": 6_100}}, evictions=3_049) == []


def test_a_group_of_keys_that_are_used_once_is_named():
    (text,) = about_keys({"search": {"hits": 610, "puts": 39_955, "new": 40_000, "evicted": 1_000}}, new=40_000)
    assert text == (
        "caching the group 'search' hardly helps at this size: 99% of its 41,610 look-ups missed, nearly all of them "
        "for keys that were never stored, or left long ago."
    )


@pytest.mark.parametrize(
    ("group", "peak"),
    [
        # Each of the two workers has held 10,000 entries, which may still be read.
        ({"new": 39_999}, SIZE),
        ({"new": 999}, 100),
        ({"new": 40_000, "hits": 3_050}, SIZE),
        ({"new": 40_000, "evicted": 3_000}, SIZE),
    ],
)
def test_keys_are_used_once_if_nearly_all_look_ups_miss_after_two_generations_of_entries(group, peak):
    assert about_keys({"search": group}, gauges={"peak": peak}, new=40_000) == []


def test_tags_deletes_and_clears_that_cause_a_fifth_of_the_misses_are_named():
    (text,) = about_keys(tag=6_000, deleted=3_000, cleared=50, new=11_000)
    assert text == (
        "dropped tags cause 30% and deletes cause 15% of its misses. Narrower tags and fewer removals would keep more "
        "values."
    )
    assert about_keys(cleared=5_000, new=15_000)[0].startswith("clears cause 25% of its misses.")
    assert about_keys(tag=1_300, deleted=1_300, cleared=1_300, new=16_000) == []
    # Less than three of 100 look-ups.
    assert about_keys(tag=1_500, new=1_500, hits=50_000) == []
    assert about_keys(tag=400, new=500, hits=0) == []


def fill(cache, key, **options):
    if cache.get(key) is None:
        cache.set(key, 1, **options)


def news(cache, number, clock):
    clock.advance(0.1)
    fill(cache, f"news:{number % 300}", ttl=10)


def audit(cache, number, clock):
    cache.set(f"audit:{number}", 1)


def search(cache, number, clock):
    fill(cache, f"search:{number}")


def drop(cache, number, clock):
    if number % 300 == 0:
        cache.delete_tags("all")


def count(cache, number, clock):
    cache.add(f"counter:{number % 50}", 0)
    cache.incr(f"counter:{number % 50}")


@pytest.mark.parametrize(
    ("use", "advice"),
    [
        pytest.param(news, "a longer lifetime for the group 'news'", marks=pytest.mark.compiled),
        pytest.param(audit, "the group 'audit' is stored and never read", marks=pytest.mark.compiled),
        pytest.param(search, "caching the group 'search' hardly helps at this size", marks=pytest.mark.compiled),
        (drop, "dropped tags cause"),
        (count, None),
    ],
)
def test_a_cache_in_use_gets_the_advice_that_fits_its_use(use, advice, clock):
    cache, chance = Cache("site", max_entries=2_000, clock=clock, jitter=0, log_interval=None), random.Random(1)
    for number in range(20_000):
        use(cache, number, clock)
        fill(cache, f"page:{chance.randrange(500)}", tags=("all",))
    (figures,) = own_figures([cache])
    assert [each.text.startswith(advice) for each in advise([figures])] == ([True] if advice else [])


def test_copies_of_a_store_get_no_advice_about_their_keys():
    groups = {"news": EXPIRES, "audit": {"puts": 6_100}, "search": {"new": 40_000}}
    assert len(about_keys(groups, expired=8_000, tag=8_000)) == 4
    assert about_keys(groups, gauges={"has_store": True}, expired=8_000, tag=8_000) == []


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
