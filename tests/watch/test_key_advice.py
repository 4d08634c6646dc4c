"""Advice about keys follows from the counts that workers publish."""

import random

import pytest

from wheelcache import Cache
from wheelcache.engine.stats import MISSES, Stats
from wheelcache.watch.figures import Process, Sum
from wheelcache.watch.key_advice import on_keys
from wheelcache.watch.rows import reading_of
from wheelcache.watch.site import own_figures
from wheelcache.watch.tables import GAUGES_OF_WORKER

SIZE = 10_000


def by_cause(**misses):
    """Return the misses by the names of their counters, of which the arguments leave out the prefix."""
    return {name: misses.get(name.removeprefix("misses_"), 0) for name in MISSES.values()}


def group(hits=0, puts=0, loads=0, load_failures=0, **misses):
    return (hits, 0, puts, loads, load_failures, 0.0, 0, *by_cause(**misses).values())


def about_keys(groups=None, *, hits=50_000, evictions=3_050, load_seconds=0.0, core="compiled", gauges=None, **misses):
    """Return the advice for a cache of two workers.

    Args:
        misses: the misses of the cache by cause, or if there is one group, of the group and the cache.
    """
    counted = by_cause(**misses)
    counts = {"hits": hits, "misses": sum(counted.values()), "evictions": evictions, **counted}
    stats = Stats(loads=1000, load_seconds=load_seconds, **counts)
    bounds = {"max_entries": 2 * SIZE, "peak": SIZE}
    figures = Sum(
        gauges=dict.fromkeys(GAUGES_OF_WORKER, 0) | bounds | (gauges or {}),
        groups={name: group(**each) for name, each in (groups or {}).items()},
        processes={number: Process(number, 0.0, 3600.0, "running", core) for number in (1, 2)},
        counts=reading_of(stats).counts,
        since=0.0,
        published=3600.0,
    )
    return list(on_keys(figures.of_cache("pages")))


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
    assert about_keys({"": EXPIRES}, core="python", expired=8_000, new=8_000) == []


@pytest.mark.parametrize(
    ("group", "hits", "misses"),
    [
        ({"hits": 0, "expired": 999}, 0, {"expired": 999}),
        ({"hits": 6_100, "expired": 8_000, "new": 8_001}, 50_000, {"expired": 8_000, "new": 8_001}),
        ({"hits": 6_100, "expired": 8_000}, 50_000, {"expired": 8_000, "new": 72_001}),
        ({**EXPIRES, "loads": 9_400, "load_failures": 600}, 50_000, {"expired": 8_000, "new": 8_000}),
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
    assert text == "dropped tags cause 30% and deletes cause 15% of its misses. Use narrower tags for keys."
    assert about_keys(cleared=5_000, new=15_000) == ["clears cause 25% of its misses. Clear the cache less often."]
    (text,) = about_keys({"product": {"hits": 10_000, "deleted": 4_000}}, deleted=6_000, new=14_000)
    assert text == "deletes cause 30% of its misses. Delete fewer 'product' keys."
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
    cache, chance = Cache("site", max_entries=2_000, clock=clock, jitter=0), random.Random(1)
    for number in range(20_000):
        use(cache, number, clock)
        fill(cache, f"page:{chance.randrange(500)}", tags=("all",))
    (figures,) = own_figures([cache])
    assert [each.startswith(advice) for each in on_keys(figures)] == ([True] if advice else [])


def test_copies_of_a_store_get_no_advice_about_their_keys():
    groups = {"news": EXPIRES, "audit": {"puts": 6_100}, "search": {"new": 40_000}}
    assert len(about_keys(groups, expired=8_000, tag=8_000)) == 4
    assert about_keys(groups, gauges={"has_store": True}, expired=8_000, tag=8_000) == []
