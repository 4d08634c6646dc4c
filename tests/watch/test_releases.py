"""Starts of workers with another release, and the comparison of the time before and after one."""

import sqlite3
from contextlib import closing
from datetime import datetime
from itertools import count
from random import Random
from types import SimpleNamespace

import pytest

from tests.watch.processes import run
from tests.watch.published import INTERVAL, Site, look
from wheelcache.engine.stats import MISSES, Stats
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch import comparison
from wheelcache.watch.comparison import Side, compare
from wheelcache.watch.console import date_of
from wheelcache.watch.event_log import STARTED
from wheelcache.watch.releases import Release, note_release, releases_in, this_release
from wheelcache.watch.rows import NO_GROUP
from wheelcache.watch.spans import Span
from wheelcache.watch.tables import SCHEMA

EPOCH = 1_000_000_800.0
"""The time when the clocks of the tests showed 0: the start of a minute."""

DAY = 86_400


def noted(*tidied):
    """Return the releases that are noted if the workers of each tidying live, as pairs of a start and a name."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        for time, living in tidied:
            note_release(db, living, time)
        return [(each.at, each.name) for each in releases_in(db)]


def test_the_first_worker_of_another_release_is_a_mark():
    old, new = [(100.0, "a"), (101.0, "a")], [(200.0, "b"), (203.0, "b")]
    assert noted((102, old), (150, old)) == [(100.0, "a")]
    assert noted((102, old), (201, [*old, new[0]]), (204, [*old, *new]), (210, new)) == [(100.0, "a"), (200.0, "b")]
    # Back to the former release.
    assert noted((102, old), (210, new), (305, [(300.0, "a")])) == [(100.0, "a"), (200.0, "b"), (300.0, "a")]


def test_workers_of_two_releases_that_are_replaced_one_by_one_begin_no_other_release():
    old, canary = [(100.0, "a"), (101.0, "a")], (300.0, "b")
    mixed = [*old, canary]
    assert noted((102, old), (301, mixed), (360, mixed), (401, [old[0], canary, (400.0, "a")])) == [
        (100.0, "a"),
        (300.0, "b"),
    ]
    assert noted(
        (102, old), (301, mixed), (501, [*old, (500.0, "b")]), (601, [(500.0, "b"), (600.0, "a"), old[0]])
    ) == [
        (100.0, "a"),
        (300.0, "b"),
    ]


def test_a_name_is_short_and_text(monkeypatch):
    for given, expected in (("7f3c", "7f3c"), ("x" * 100, "x" * 64), ("v1\udcff", "v1?")):
        monkeypatch.setenv("WHEELCACHE_RELEASE", given)
        assert this_release() == expected


def test_without_a_name_a_joint_start_is_a_mark_and_a_replaced_worker_is_none():
    first = [(100.0 + number, "") for number in range(4)]
    assert noted((110, first)) == [(100.0, "")]
    assert noted((110, first), (5001, [*first[1:], (5000.0, "")])) == [(100.0, "")]
    again = [(5000.0 + number, "") for number in range(4)]
    assert noted((110, first), (5001, [*first, again[0]]), (5005, [*first[2:], *again])) == [(100.0, ""), (5000.0, "")]
    assert noted((110, first), (5005, again), (5030, again)) == [(100.0, ""), (5000.0, "")]


def test_releases_of_the_last_day_are_kept_and_the_present_one_always():
    starts = [(at, [(float(at), f"r{at}")]) for at in (100, 50_000, 100_000)]
    assert noted(*starts, (140_000, starts[-1][1])) == [(50_000.0, "r50000"), (100_000.0, "r100000")]
    assert noted(*starts, (100_000 + 10 * DAY, starts[-1][1])) == [(100_000.0, "r100000")]
    assert noted((100, [])) == []


def test_workers_publish_the_release_of_their_environment(path):
    script = """
        os.environ["WHEELCACHE_RELEASE"] = sys.argv[2]
        from wheelcache.watch.releases import name_release
        name_release("of the settings")
        use(make(), 1)
        """
    for name in ("7f3c", "", "7f3d", "7f3d"):
        run(script, path, name)
    assert [str(each) for each in look(path).releases()] == [
        "release 7f3c",
        "release of the settings",
        "release 7f3d",
    ]
    started = [each for each in reversed(look(path).events(20)) if each.kind == STARTED]
    assert [each.sentence().partition(" with ")[2] for each in started] == [
        "release 7f3c",
        "release of the settings",
        "release 7f3d",
    ]


@pytest.fixture
def _time(monkeypatch, clock):
    monkeypatch.setattr(SystemClock, "time", staticmethod(lambda: EPOCH + clock()))
    monkeypatch.setattr(SystemClock, "steady", staticmethod(lambda: clock()))


def minute_of(cache, clock, *, deletes):
    """Look up 60 entries of a group, of which one, or nine of ten, are then deleted."""
    for number in range(60):
        cache.get_or_load(f"shop:product:{number}", lambda: clock.advance(0.5 if deletes else 0.125))
        cache.get_or_load(f"about:{number % 7}", lambda: 1)
        if number == 0 or (deletes and number % 10):
            cache.delete(f"shop:product:{number}")
    clock.advance(60 - clock() % 60)


@pytest.mark.compiled
@pytest.mark.usefixtures("_time")
def test_the_sentence_names_the_group_that_misses_most_and_why(make, clock, path, command):
    cache = make(max_entries=1000)
    minute_of(cache, clock, deletes=False)
    clock.advance(120 - clock() % 60)
    for _ in range(5):
        minute_of(cache, clock, deletes=False)
    changed = clock()
    for _ in range(5):
        minute_of(cache, clock, deletes=True)
    clock.advance(5)
    site = Site([cache])
    found = compare(site, site.caches[0], Release(EPOCH + changed, "7f3c"))
    assert found["seconds"] == 300
    assert found["sentence"] == ("99.2% hits before, 63.2% after. shop: misses rose from 2% to 74%, all after deletes.")
    assert [each["name"] for each in found["groups"]] == ["shop"]
    (group,) = found["groups"]
    assert (group["before"], group["requests_before"], group["cause"]) == (pytest.approx(1 / 60), 300, "deleted")
    assert found["before"]["load_p90_ms"] < found["after"]["load_p50_ms"]
    assert found["after"]["computing_per_minute"] == pytest.approx(44.2 * 0.5)
    assert (found["before"]["is_cold"], found["after"]["is_cold"]) == (False, False)
    at = datetime.fromtimestamp(EPOCH + changed).isoformat()
    shown, reason = command("compare", "--before", at)
    assert reason is None
    first, *lines = shown.splitlines()
    assert first == f"Cache 'pages' since {date_of(EPOCH + changed)}, 300 seconds each: {found['sentence']}"
    assert ["before", "99.2%"] in [line.split()[:2] for line in lines]
    assert ["shop", "1.7%", "73.7%", "Deleted"] in [line.split() for line in lines]
    ((document,), _) = command("compare", "--json", "--before", at)
    assert (document["cache"], document["groups"]) == ("pages", found["groups"])


@pytest.mark.usefixtures("_time")
def test_two_sides_that_cannot_be_compared_come_with_the_reason(make, clock, path):
    cache = make()
    cache.set("a", 1)
    clock.advance(200)
    site = Site([cache])
    (figures,) = site.caches
    assert compare(site, figures, Release(site.edge - 60, ""))["sentence"] == (
        "Nothing to compare: there were no look-ups before."
    )
    for _ in range(10):
        cache.get("a")
        clock.advance(10)
    site = Site([cache])
    (figures,) = site.caches
    short = "Nothing to compare: the figures before or after cover less than a minute."
    for ago, expected in (
        (35, "Wait a minute: that was only 35 s ago."),
        (64, "Wait some seconds: that was only 64 s ago."),
        (DAY - 50, short),
        (2 * DAY, short),
        (-1000, "Nothing to compare: that time is yet to come."),
    ):
        found = compare(site, figures, Release(site.time - ago, ""))
        assert (found["before"], found["after"], found["groups"]) == (None, None, [])
        assert found["sentence"] == expected
    found = compare(site, figures, Release(site.edge - 60, ""))
    assert (found["seconds"], found["groups"]) == (60, [])
    assert found["sentence"] == "Too few look-ups to compare: 3 before, 6 after."


def test_a_comparison_with_a_release_that_has_just_started_asks_to_wait():
    release = Release(965.0, "7f3c")
    site = SimpleNamespace(releases=lambda: [Release(100.0, "7f3b"), release], edge=990, time=1000.0)
    assert (
        compare(site, SimpleNamespace(since=0.0), release)["sentence"]
        == "Wait a minute: the release started only 35 s ago."
    )


def test_the_command_says_why_there_is_nothing_to_compare(make, clock, path, command):
    make().set("a", 1)
    clock.advance(INTERVAL)
    _, reason = command("compare", "--before", "2020-01-01T10:00Z")
    assert reason == "Nothing to compare: the figures before or after cover less than a minute."


@pytest.mark.usefixtures("_time")
def test_a_side_that_began_with_an_empty_cache_is_cold(make, clock, path):
    cache = make()

    def minutes(number):
        for _ in range(6 * number):
            for _ in range(30):
                cache.get_or_load(f"shop:{next(keys) % 300}", lambda: 1)
            clock.advance(10)

    keys = count()
    cache.get("shop:0")
    clock.advance(60 - clock() % 60)

    def compared(moment):
        clock.advance(5)
        site = Site([cache])
        return compare(site, site.caches[0], Release(EPOCH + moment, ""))

    minutes(5)
    full = clock()
    minutes(5)
    of_start = compared(full)
    clock.advance(55)
    minutes(5)
    cache.clear()
    emptied = clock()
    minutes(5)
    cold = "The cache was cold {}: it began empty, so first requests missed."
    for found, side, is_cold in ((of_start, "before", (True, False)), (compared(emptied), "after", (False, True))):
        assert (found["before"]["is_cold"], found["after"]["is_cold"]) == is_cold
        assert cold.format(side) in found["sentence"]


def change(old, new):
    """Return the sentence for a group with these hits and misses, of which the new ones were for deleted entries."""
    before, after = ({"hits": hits, "misses": misses} for hits, misses in (old, new))
    rows = [
        (each["hits"], *NO_GROUP[1 : -len(MISSES)], *(each["misses"] if cause == "deleted" else 0 for cause in MISSES))
        for each in (before, after)
    ]
    groups = [{"shop": row} if any(row) else {} for row in rows]
    sides = [
        Side(Span(0, 60, 60), Stats(hits=each["hits"], misses=each["misses"]), group, is_cold=False)
        for each, group in zip((before, after), groups, strict=True)
    ]
    return comparison.sentence_of(*sides, comparison.changes_between(*groups)).partition(" after")[2]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ((9500, 500), (5700, 4300), ". shop: misses rose from 5% to 43%, all after deletes."),
        # The site is three times as busy, or idle: that is no change.
        ((900, 100), (2700, 300), ", which may be chance."),
        ((600, 400), (900, 100), ". shop: misses fell from 40% to 10%."),
        ((1000, 0), (900, 100), ". shop: misses rose from 0% to 10%, all after deletes."),
        ((900, 100), (1000, 0), ". shop: misses fell from 10% to 0%."),
        ((9960, 40), (9700, 300), ". shop: misses rose from 0.4% to 3%, all after deletes."),
        ((900, 100), (895, 105), ", which may be chance."),
        # One in 16 such pairs differs as much by chance.
        ((900, 100), (875, 125), ", which may be chance."),
        ((600, 400), (500, 500), "."),
    ],
)
def test_the_sentence_compares_shares_of_look_ups_and_says_no_more_than_the_figures(old, new, sentence):
    assert change(old, new) == sentence


def test_of_many_groups_that_differ_by_chance_none_is_listed_and_one_that_does_not_is():
    random = Random(7)

    def rows(share):
        misses = {f"view{number}": sum(random.random() < share for _ in range(500)) for number in range(200)}
        return {name: (500 - number, *NO_GROUP[1:-1], number) for name, number in misses.items()}

    before, after = rows(0.2), rows(0.2)
    assert comparison.changes_between(before, after) == []
    after["view7"] = (300, *NO_GROUP[1:-1], 200)
    assert [each.name for each in comparison.changes_between(before, after)] == ["view7"]
