"""Starts of workers with another release."""

import sqlite3
from contextlib import closing

from wheelcache.watch.releases import note_release, releases_in, this_release
from wheelcache.watch.tables import DAY, KEPT, SCHEMA


def noted(*tidied):
    """Return the releases that are noted if the workers of each tidying live, as pairs of a start and a name."""
    with closing(sqlite3.connect(":memory:")) as db:
        db.executescript(SCHEMA)
        for time, living in tidied:
            note_release(db, living, time)
        return [(each.at, each.name) for each in releases_in(db)]


def test_the_first_worker_of_another_release_is_a_mark():
    old, new = [(100.0, "a"), (101.0, "a")], [(200.0, "b"), (203.0, "b")]
    assert noted((102, old), (201, [*old, new[0]]), (210, new)) == [(100.0, "a"), (200.0, "b")]
    # Back to the former release.
    assert noted((102, old), (210, new), (305, [(300.0, "a")])) == [(100.0, "a"), (200.0, "b"), (300.0, "a")]


def test_workers_of_two_releases_that_are_replaced_one_by_one_begin_no_other_release():
    old, canary = [(100.0, "a"), (101.0, "a")], (300.0, "b")
    marks = [(100.0, "a"), (300.0, "b")]
    mixed = (102, old), (301, [*old, canary])
    assert noted(*mixed, (401, [old[0], canary, (400.0, "a")])) == marks
    assert noted(*mixed, (501, [*old, (500.0, "b")]), (601, [(500.0, "b"), (600.0, "a"), old[0]])) == marks


def test_without_names_a_mark_is_a_moment_at_which_more_than_half_of_the_workers_were_started_together():
    first = (161, [(100.0, ""), (160.0, "")])
    assert noted(first, (501, [(100.0, ""), (500.0, "")])) == [(100.0, "")]
    assert noted(first, (501, [(160.0, ""), (500.0, ""), (440.0, "")])) == [(100.0, ""), (440.0, "")]
    assert noted(first, (501, [(500.0, ""), (439.0, "")])) == [(100.0, "")]
    # The last ones of the first start.
    assert noted(first, (162, [(160.0, "")])) == [(100.0, "")]
    assert noted(first, (162, [(161.0, "")])) == [(100.0, ""), (161.0, "")]


def test_a_name_is_short_and_text(monkeypatch):
    for given, expected in (("7f3c", "7f3c"), ("x" * 100, "x" * 64), ("v1\udcff", "v1?")):
        monkeypatch.setenv("WHEELCACHE_RELEASE", given)
        assert this_release() == expected


def test_releases_of_the_last_day_are_kept_and_the_present_one_always():
    starts = [(at, [(float(at), f"r{at}")]) for at in (100, 50_000, 100_000)]
    over = 50_000 + DAY + KEPT
    assert len(noted(*starts, (over, starts[-1][1]))) == 2
    assert len(noted(*starts, (over + 1, starts[-1][1]))) == 1
    assert noted(*starts, (100_000 + 10 * DAY, starts[-1][1])) == [(100_000.0, "r100000")]
    assert noted((100, [])) == []
