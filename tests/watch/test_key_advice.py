"""Advice about keys follows from the counts that workers publish."""

import pytest

from wheelcache.engine.stats import MISSES, Stats
from wheelcache.watch.figures import Process, Sum
from wheelcache.watch.key_advice import on_keys
from wheelcache.watch.rows import reading_of
from wheelcache.watch.tables import GAUGES_OF_WORKER

SIZE = 10_000


def by_cause(**misses):
    """Return the misses by the names of their counters, of which the arguments leave out the prefix."""
    return {name: misses.get(name.removeprefix("misses_"), 0) for name in MISSES.values()}


def group(hits=0, puts=0, loads=0, load_failures=0, **misses):
    return (hits, 0, puts, loads, load_failures, 0.0, 0, *by_cause(**misses).values())


def about_keys(groups=None, *, hits=50_000, evictions=0, core="compiled", peak=SIZE, has_store=False, **misses):
    """Return the advice for a cache of two workers.

    Args:
        misses: the misses of the cache by cause, or if there is one group, of the group and the cache.
    """
    counted = by_cause(**misses)
    counts = {"hits": hits, "misses": sum(counted.values()), "evictions": evictions, **counted}
    bounds = {"max_entries": 2 * SIZE, "peak": peak, "has_store": has_store}
    figures = Sum(
        gauges=dict.fromkeys(GAUGES_OF_WORKER, 0) | bounds,
        groups={name: group(**each) for name, each in (groups or {}).items()},
        processes={number: Process(number, 0.0, 3600.0, "running", core) for number in (1, 2)},
        counts=reading_of(Stats(**counts)).counts,
        since=0.0,
        published=3600.0,
    )
    return list(on_keys(figures.of_cache("pages")))


NEWS = {"news": {"hits": 500, "expired": 300, "new": 300}}
LONGER = (
    "a longer lifetime for the group 'news' would avoid misses: 50% of its misses, and 50% of all misses, are for "
    "values that had expired."
)
AUDIT = {"audit": {"puts": 3_000}}
UNREAD = (
    "the group 'audit' is stored and never read: 3,000 values were stored, and there was no hit. "
    "Unless these are locks or counters, they only evict other values."
)
SEARCH = {"search": {"new": 40_000}}
ONCE = (
    "caching the group 'search' hardly helps at this size: 100% of its 40,000 look-ups missed, nearly all of them for "
    "keys that were never stored, or left long ago."
)


def changed(groups, **counts):
    return {name: {**group, **counts} for name, group in groups.items()}


@pytest.mark.parametrize(
    ("groups", "cache", "sentence"),
    [
        # Half of the misses of a group are for expired values, and its loads succeed.
        (NEWS, {"hits": 9_400, "expired": 300, "new": 300}, LONGER),
        (changed(NEWS, new=301), {"hits": 9_400, "expired": 300, "new": 300}, None),
        (changed(NEWS, loads=95, load_failures=5), {"hits": 9_400, "expired": 300, "new": 300}, LONGER),
        (changed(NEWS, loads=94, load_failures=6), {"hits": 9_400, "expired": 300, "new": 300}, None),
        # A thousand look-ups; three of a hundred look-ups of the cache, and a tenth of its misses.
        (changed(NEWS, hits=399), {"hits": 9_400, "expired": 300, "new": 300}, None),
        (NEWS, {"hits": 9_401, "expired": 300, "new": 300}, None),
        (NEWS, {"hits": 0, "expired": 300, "new": 2_700}, LONGER.replace("50% of all", "10% of all")),
        (NEWS, {"hits": 0, "expired": 300, "new": 2_701}, None),
        (
            {"": NEWS["news"]},
            {"hits": 9_400, "expired": 300, "new": 300},
            LONGER.replace("'news'", "of all other keys"),
        ),
        # The core in Python has one group.
        (NEWS, {"hits": 9_400, "expired": 300, "new": 300, "core": "python"}, None),
        # Values without a hit evict others, and are looked up less than every second time.
        (AUDIT, {"evictions": 1_500}, UNREAD),
        (changed(AUDIT, puts=2_999), {"evictions": 1_500}, None),
        (changed(AUDIT, hits=1), {"evictions": 1_500}, None),
        (changed(AUDIT, new=1_499), {"evictions": 1_500}, UNREAD),
        (changed(AUDIT, new=1_500), {"evictions": 1_500}, None),
        (AUDIT, {"evictions": 1_499}, None),
        # Nearly all look-ups miss, for new keys, after two generations of the entries of two workers.
        (SEARCH, {"new": 40_000}, ONCE),
        (changed(SEARCH, new=39_999), {"new": 39_999}, None),
        (changed(SEARCH, new=1_000), {"new": 1_000, "peak": 1}, ONCE.replace("40,000", "1,000")),
        (changed(SEARCH, new=999), {"new": 999, "peak": 1}, None),
        (changed(SEARCH, hits=2_105), {"new": 40_000}, ONCE.replace("100%", "95%").replace("40,000", "42,105")),
        (changed(SEARCH, hits=2_106), {"new": 40_000}, None),
        (changed(SEARCH, new=38_000, evicted=2_000), {"new": 40_000}, ONCE),
        (changed(SEARCH, new=37_999, evicted=2_001), {"new": 40_000}, None),
    ],
)
def test_a_group_gets_advice_up_to_each_limit_of_its_rule_and_not_beyond(groups, cache, sentence):
    assert about_keys(groups, **cache) == ([] if sentence is None else [sentence])


@pytest.mark.parametrize(
    ("cache", "sentence"),
    [
        (
            {"tag": 6_000, "deleted": 3_000, "cleared": 199, "new": 10_801},
            "dropped tags cause 30% and deletes cause 15% of its misses. Use narrower tags for keys.",
        ),
        (
            {"tag": 200, "deleted": 3_000, "cleared": 3_600, "new": 13_200},
            "dropped tags cause 1%, deletes cause 15% and clears cause 18% of its misses. Clear the cache less often.",
        ),
        (
            {"groups": {"product": {"hits": 10_000, "deleted": 3_000}}, "deleted": 6_000, "new": 14_000},
            "deletes cause 30% of its misses. Delete fewer 'product' keys.",
        ),
        (
            {"groups": {"product": {"hits": 10_000, "deleted": 2_999}}, "deleted": 6_000, "new": 14_000},
            "deletes cause 30% of its misses. Delete fewer keys.",
        ),
        # A fifth of the misses, three of a hundred look-ups, a thousand of them.
        ({"tag": 4_000, "new": 16_000}, "dropped tags cause 20% of its misses. Use narrower tags for keys."),
        ({"tag": 3_999, "new": 16_001}, None),
        ({"tag": 300, "hits": 9_700}, "dropped tags cause 100% of its misses. Use narrower tags for keys."),
        ({"tag": 300, "hits": 9_701}, None),
        ({"tag": 300, "hits": 700}, "dropped tags cause 100% of its misses. Use narrower tags for keys."),
        ({"tag": 300, "hits": 699}, None),
    ],
)
def test_tags_deletes_and_clears_that_cause_a_fifth_of_the_misses_are_named(cache, sentence):
    assert about_keys(**cache) == ([] if sentence is None else [sentence])


def test_copies_of_a_store_get_no_advice_about_their_keys():
    assert about_keys(NEWS, has_store=True, hits=0, expired=8_000, tag=8_000) == []
