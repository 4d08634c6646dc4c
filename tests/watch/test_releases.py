"""Starts of workers with another release, and the comparison of the time before and after one."""

import sqlite3
from contextlib import closing
from datetime import UTC, datetime

import pytest

from tests.watch.processes import run
from tests.watch.published import INTERVAL, Site, look
from wheelcache.engine.stats import MISSES, Stats
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch import comparison
from wheelcache.watch.comparison import compare
from wheelcache.watch.console import date_of
from wheelcache.watch.releases import Release, note_release, releases_in, this_release
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
    assert found["sentence"] == (
        "99.2% hits before, 63.2% after. `shop` misses 44 times as often, all because its entries were deleted."
    )
    assert [each["name"] for each in found["groups"]] == ["shop"]
    assert (found["groups"][0]["before"], found["groups"][0]["cause"]) == (pytest.approx(1 / 60), "deleted")
    assert found["before"]["load_p90_ms"] < found["after"]["load_p50_ms"]
    assert found["after"]["computing_per_minute"] == pytest.approx(44.2 * 0.5)
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
def test_without_a_minute_on_both_sides_nothing_is_compared(make, clock, path):
    cache = make()
    cache.set("a", 1)
    clock.advance(100)
    site = Site([cache])
    assert compare(site, site.caches[0], Release(site.edge - 60, "")) is None, "there were no look-ups"
    for _ in range(10):
        cache.get("a")
        clock.advance(10)
    site = Site([cache])
    (figures,) = site.caches
    for at in (site.edge - 50, site.edge - DAY + 50, site.edge + 1000, site.edge - 2 * DAY):
        assert compare(site, figures, Release(at, "")) is None
    assert compare(site, figures, Release(site.edge - 60, ""))["seconds"] == 60


def test_the_command_says_why_there_is_nothing_to_compare(make, clock, path, command):
    make().set("a", 1)
    clock.advance(INTERVAL)
    _, reason = command("compare", "--before", "2020-01-01T10:00Z")
    at = date_of(datetime(2020, 1, 1, 10, tzinfo=UTC).timestamp())
    assert reason.startswith(f"There is less than a minute to compare before or after {at}, or there ")


def change(old, new):
    """Return the sentence for a group with these hits and misses, of which the new ones were for deleted entries."""
    before, after = ({"hits": hits, "misses": misses} for hits, misses in (old, new))
    rows = [
        (each["hits"], 0, 0, 0, 0.0, 0, *(each["misses"] if cause == "deleted" else 0 for cause in MISSES))
        for each in (before, after)
    ]
    changes = comparison.changes_between(*({"shop": row} if any(row) else {} for row in rows))
    stats = [Stats(hits=each["hits"], misses=each["misses"], misses_deleted=each["misses"]) for each in (before, after)]
    return comparison.sentence_of(Release(0.0, "7f3c"), *stats, changes).split("after.")[1].strip()


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ((900, 100), (600, 400), "`shop` misses 4 times as often, all because its entries were deleted."),
        # The site is three times as busy, or idle: that is no change.
        ((900, 100), (2700, 300), ""),
        ((900, 100), (9, 1), ""),
        ((600, 400), (900, 100), "`shop` misses 25% as often as before."),
        (
            (1000, 0),
            (900, 100),
            "`shop` did not miss before, and misses 10% of its look-ups, all because its entries were deleted.",
        ),
        ((900, 100), (1000, 0), "`shop` missed 10.0% of its look-ups before, and no longer misses."),
        ((900, 100), (895, 105), ""),
        ((0, 0), (900, 100), "`shop` is new, and misses 10% of its look-ups, all because its entries were deleted."),
        ((900, 100), (0, 0), ""),
    ],
)
def test_the_sentence_compares_shares_of_look_ups_and_says_no_more_than_the_figures(old, new, sentence):
    assert change(old, new) == sentence
