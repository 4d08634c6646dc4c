"""Recent events: their content, their number, and that each one is reported once."""

import json
import os
import time

import pytest

from tests.waiting import until
from tests.watch.processes import run, worker
from tests.watch.published import INTERVAL, look
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.event_log import (
    CLEARED,
    EXITED,
    KILLED,
    LOAD_FAILED,
    MAX_EVENTS,
    MAX_LENGTH,
    STARTED,
    Event,
    add_events,
    merged,
)
from wheelcache.watch.site_file import SiteFile


def failure(at, kind=LOAD_FAILED, **what):
    return Event.of(kind, at, (1, 0.5), **{"cache": "pages", "subject": "ValueError", "text": "no", **what})


def page_of(caches):
    return Dashboard("a site", lambda: caches, lambda name: [])


def told(path, *kinds):
    """Return the recent events, oldest first."""
    return [each for each in look(path).events(MAX_EVENTS)[::-1] if not kinds or each.kind in kinds]


def add(path, *events):
    SiteFile(path).write(lambda db: add_events(db, events))


def fail(cache, error, key="k"):
    def loader():
        raise error

    with pytest.raises(type(error)):
        cache.get_or_load(key, loader)


# The log.


def test_what_happens_again_within_a_minute_is_one_event_with_a_count(path):
    add(path, failure(100.0), failure(160.0, text="again", count=5), failure(90.0, since=80.0))
    add(path, failure(100.0, subject="KeyError"), failure(100.0, cache="other"), failure(100.0, kind="cleared"))
    add(path, failure(220.1, count=1234))
    assert [(each.since, each.at, each.count) for each in told(path)] == [
        *((100.0, 100.0, 1), (100.0, 100.0, 1), (100.0, 100.0, 1)),
        (80.0, 160.0, 7),
        (220.1, 220.1, 1234),
    ]
    assert told(path)[-1].sentence() == "ValueError: no (1,234 times)"
    (joined,) = merged([], [failure(160.0), failure(100.0)])
    assert (joined.since, joined.at) == (100.0, 160.0)
    assert len(merged([], [failure(160.1), failure(100.0)])) == 2, "an earlier one that is reported late"


def test_a_storm_of_events_leaves_the_newest_hundred_in_a_small_file(path):
    add(path, *(failure(1000.0 * number, text="x" * 1000, cache="y" * 1000) for number in range(300)))
    found = told(path)
    assert [each.at for each in found] == [1000.0 * number for number in range(200, 300)]
    assert (len(found[0].text), len(found[0].cache)) == (200, 200)


@pytest.mark.parametrize(
    ("number", "subject", "sentence"),
    [
        (2, "r1", "workers 1 and 2 with release r1"),
        (4, "", "workers 1, 2, 3 and 4"),
        (5, "r1", "5 workers with release r1"),
    ],
)
def test_the_start_of_workers_lists_up_to_four_of_them_and_counts_each_once(path, number, subject, sentence):
    for pid in (*range(1, number + 1), 1):
        add(path, Event.of(STARTED, 100.0 + pid, (pid, 0.0), subject=subject))
    assert [(each.sentence(), each.count) for each in told(path)] == [(sentence, number)]


@pytest.mark.compiled
def test_a_failed_load_names_the_groups_of_its_keys(make, clock, path):
    here = make()
    for key in ("shop:1", "about:1", "shop:2", "plain"):
        fail(here, ValueError("no"), key)
    clock.advance(INTERVAL)
    assert [str(each.sentence()) for each in told(path, LOAD_FAILED)] == ["shop, about: ValueError: no (4 times)"]
    for number in range(20):
        fail(here, ValueError("no"), f"view{number}:1")
    clock.advance(INTERVAL)
    (event,) = told(path, LOAD_FAILED)
    assert event.sentence() == "shop, about, view0, view1 and others: ValueError: no (24 times)"


@pytest.mark.parametrize("document", ["", "{", "{}", "3", "null", '["a", 1, 1, null, "", "", [[1, 2, 3]], 1]'])
def test_what_is_no_event_is_left_out_and_goes_with_the_next_one(path, document):
    add(path, failure(1.0))
    file = SiteFile(path)
    file.write(lambda db: db.execute("INSERT INTO events VALUES (5, ?)", (document,)))
    assert told(path) == [failure(1.0)]
    add(path, failure(1000.0))
    assert file.read(lambda db: db.execute("SELECT count(*) FROM events").fetchone(), tuple) == (2,)


# Failed loads.


class Odd(Exception):
    def __str__(self):
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("<script>alert(1)</script>"), "ValueError: <script>alert(1)</script>"),
        (ValueError("a\n  b\tc\0\u2028d"), "ValueError: a b c\0 d"),
        # A site may write its JSON in UTF-8, which cannot encode lone surrogates.
        (ValueError("\udc80 \ud800"), r"ValueError: \udc80 \ud800"),
        (ValueError("x" * 10_000_000), "ValueError: " + "x" * MAX_LENGTH),
        (Odd(), "Odd"),
        (type("<b>" * 1000, (Exception,), {})(), ("<b>" * 1000)[:MAX_LENGTH]),
        (KeyError(), "KeyError"),
    ],
    ids=lambda value: str(type(value).__name__)[:20],
)
def test_a_failed_load_is_told_with_its_exception_whatever_that_says(make, path, clock, error, expected):
    cache = make("<img src=x>")
    fail(cache, error)
    clock.advance(INTERVAL)
    (event,) = told(path, LOAD_FAILED)
    assert (event.cache, event.sentence(), event.processes[0][0]) == ("<img src=x>", expected, os.getpid())
    assert abs(event.at - time.time()) < 60
    shown = json.dumps(page_of([cache]).figures(), allow_nan=False, ensure_ascii=False)
    assert json.loads(shown.encode())["events"][0]["text"] == expected


def test_failures_of_more_than_eight_types_count_together(make, path, clock):
    cache = make()
    for number in range(10):
        fail(cache, type(f"Error{number}", (Exception,), {})("no"))
    clock.advance(INTERVAL)
    sentences = [each.sentence() for each in told(path, LOAD_FAILED)]
    assert (len(sentences), sentences.count("exceptions of other types (2 times)")) == (9, 1)


def test_a_refresh_that_fails_in_the_background_is_told_and_a_cancelled_load_is_not(make, path, clock):
    cache = make()
    cache.get_or_load("k", lambda: "old", ttl=10, grace=1000)
    clock.advance(11)
    assert cache.get_or_load("k", lambda: 1 / 0, ttl=10, grace=1000, fail_safe=1000) == "old"
    fail(cache, KeyboardInterrupt(), "another")
    # Wait for the refresh.
    assert until(lambda: clock.advance(INTERVAL) or told(path, LOAD_FAILED))
    assert [each.sentence() for each in told(path, LOAD_FAILED)] == ["ZeroDivisionError: division by zero"]


# Clears.


def test_clears_by_code_are_one_event_with_a_count_and_those_of_operators_have_their_names(make, path, clock):
    cache, other = make(), make()
    for _ in range(3):
        cache.set("a", 1)
        cache.clear()
    assert told(path) == []
    clock.advance(INTERVAL)
    cache.set("a", 1)
    other.set("a", 1)
    page_of([cache]).clear("pages", "<b>ann</b>")
    clock.advance(INTERVAL)
    assert (len(cache), len(other)) == (0, 0)
    sentences = [each.sentence() for each in told(path, CLEARED)]
    assert sentences == [f"by the code of process {os.getpid()} (3 times)", "by <b>ann</b>"]


# Processes.


def test_a_worker_starts_once_whatever_number_of_caches_it_has_and_its_exit_is_told_at_once(path):
    before = time.time()
    (pid,) = run(
        """
        for number in range(25):
            make(f"cache {number}").set("a", 1)
        clock.advance(30)
        print(os.getpid())
        """,
        path,
    )
    found = told(path)
    assert [(each.kind, each.sentence(), each.cache) for each in found] == [
        (STARTED, f"worker {pid}", None),
        (EXITED, f"worker {pid}", None),
    ]
    assert before - 1 <= found[0].at <= found[1].at <= time.time()


def test_a_killed_worker_is_told_once_and_counted(path, make, clock):
    with worker(path) as dead:
        dead.kill()
        dead.communicate()
    assert told(path, KILLED, EXITED) == []
    for number in range(2):
        cache = make("other")
        cache.set("a", number)
        clock.advance(INTERVAL)
    (killed,) = told(path, KILLED)
    assert (killed.sentence(), killed.count) == (f"worker {dead.pid}: killed, crashed, or left by os._exit", 1)
    assert {each.name: each.killed for each in look(path).caches} == {"pages": 1, "other": 0}
