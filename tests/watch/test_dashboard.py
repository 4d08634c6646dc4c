"""The dashboard's files, figures and actions, without a framework and without a browser."""

import json
import os
import re

import pytest

from tests.watch.published import INTERVAL
from wheelcache.core import IMPLEMENTATION
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.pages.reasons import REASONS
from wheelcache.runtime.steps import drive
from wheelcache.watch.causes import NAMES
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.one_cache import Wanted
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.refusals import Refused

CONFIG = re.compile(r'<script type="application/json" id="config">(.*?)</script>', re.DOTALL)


def dashboard(*caches, title="a site"):
    return Dashboard(title, lambda: caches, lambda name: [("MAX_ENTRIES", "7", False, "the most that are kept")])


def only_card(document):
    (card,) = document["caches"]
    return card


# The page.


def test_the_page_is_given_what_it_needs_and_its_title():
    page = dashboard(title="mysite.settings").page({Permission.OPERATE})
    assert json.loads(CONFIG.search(page)[1]) == {
        "may_operate": True,
        "may_inspect": False,
        "causes": NAMES,
        "reasons": {name: f"{reason.cause} {reason.advice}" for name, reason in REASONS.items()},
    }
    assert re.search("<title>Caches of mysite.settings . wheelcache</title>", page)
    assert 'href="/below/&quot;/"' in dashboard().page({Permission.OPERATE}, '/below/"/')
    assert not re.search(r"\$\w", page)


@pytest.mark.parametrize(
    "hostile", ["</script><script>alert(1)</script>", "<!--<script>", "a & b", '"', "$config", "\\"]
)
def test_nothing_in_a_title_is_markup(hostile):
    page = dashboard(title=hostile).page({Permission.OPERATE})
    plain = dashboard(title="plain").page({Permission.OPERATE})
    for tag in ("<script", "</script", "<!--", "<title", "<h1"):
        assert page.count(tag) == plain.count(tag)


# The figures.


def test_the_figures_are_those_of_the_cache(make):
    cache = make("atlas", max_entries=3)
    for key in "abcd":
        cache.set(key, key)
    cache.set("d", "again")
    cache.delete("c")
    assert [cache.get(key) for key in "ab"] == [None, "b"]
    cache.get_or_load("e", lambda: "loaded")
    cache.engine.observed.observer.publication.run_now()
    document = dashboard(cache, title="a site").figures()
    assert (document["title"], document["this_worker"]) == ("a site", os.getpid())
    assert document["refresh"] == INTERVAL
    card = only_card(document)
    total = card["total"]
    assert card["name"] == "atlas"
    assert (total["hits"], total["misses"], total["hit_ratio"]) == (1, 2, pytest.approx(1 / 3))
    assert (total["entries"], total["max_entries"], total["loads"]) == (3, 3, 1)
    assert (total["bytes"], total["max_bytes"]) == (None, None)
    assert total["removals"] == {"expired": 0, "evicted": 1, "replaced": 1, "deleted": 1, "cleared": 0}
    (worker,) = card["workers"]
    assert (worker["pid"], worker["is_this"]) == (os.getpid(), True)
    assert worker["total"] == total


# Clearing.


def test_it_says_in_which_workers_it_takes_effect_and_when(make, another_worker):
    cache = make("default")
    another_worker("default", 8)
    another_worker("default", 7)
    effect = f"Takes effect in worker {os.getpid()} immediately, and in 7 and 8 within 6 seconds."
    assert only_card(dashboard(cache).figures())["clear_effect"] == effect
    assert dashboard(cache).clear("default", "tester") == f"Cleared default. {effect}"


def test_another_worker_clears_when_it_publishes_next_and_once(make, clock):
    here, elsewhere = make("default"), make("default")
    elsewhere.set("k", "v")
    here.set("k", "v")
    dashboard(here).clear("default", "tester")
    assert (len(here), len(elsewhere)) == (0, 1)
    here.set("k", "after")
    clock.advance(2 * INTERVAL)
    assert (len(here), len(elsewhere)) == (1, 0)
    elsewhere.set("k", "after")
    clock.advance(2 * INTERVAL)
    assert (len(here), len(elsewhere)) == (1, 1)


# Spans.


def wanted(**fields):
    return Wanted.of({name: [str(value)] for name, value in fields.items()})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"span": "hour"}, "span must be a number of seconds, not 'hour'"),
        ({"span": 0}, "span must be a number of seconds above 0 and at most 86400, not 0"),
        ({"span": 1e9}, "span must be a number of seconds above 0 and at most 86400, not 1e+09"),
        ({"from": "nan", "until": 5}, "from must be a number of seconds, not 'nan'"),
        ({"from": 5}, "until must be a number of seconds, not ''"),
        ({"from": 9, "until": 5}, "from must be before until, not 9 and 5"),
        ({"compare": "yesterday"}, "compare must be a number of seconds, not 'yesterday'"),
    ],
)
def test_an_invalid_span_is_refused_with_the_values_that_it_may_have(fields, message):
    with pytest.raises(Refused, match=re.escape(message)) as refused:
        wanted(**fields)
    assert refused.value.status == 400


def test_all_figures_are_of_the_wanted_span(make, clock):
    cache = make("pages")
    cache.get_or_load("user:1", lambda: clock.advance(4))
    clock.advance(600 - clock())
    for _ in range(10):
        cache.get("user:1")
    cache.get("city:1")
    clock.advance(100)
    shown = dashboard(cache)
    hour, late = shown.figures(), shown.figures(None, wanted(span=120))
    edge = late["span"]["until"]
    early = shown.figures(None, wanted(**{"from": edge - 1200, "until": edge - 120}))
    before = shown.figures(None, wanted(**{"from": 1000, "until": 2000}))
    figures = [
        (
            card["figures"]["requests"],
            card["total"]["requests"],
            card["total"]["loads"],
            card["times"]["loads"]["p50"] is not None,
        )
        for card in map(only_card, (hour, late, early, before))
    ]
    assert figures == [(12, 12, 1, True), (11, 11, 0, False), (1, 1, 1, True), (0, 0, 0, False)]
    assert [each["span"]["is_now"] for each in (hour, late, early, before)] == [True, True, False, False]
    # The worker, which is the process of the tests, is younger than half an hour.
    assert only_card(hour)["figures"]["requests_per_second"] > 12 / 1800
    assert [each for each in only_card(hour)["history"]["hit_ratio"] if each] == [pytest.approx(10 / 11, abs=1e-4)]
    assert "1 worker started" in [each["text"] for each in only_card(hour)["marks"]]
    # The core in Python does not remember why a key has no entry.
    cause = "new or long gone" if IMPLEMENTATION == "compiled" else "unknown"
    assert only_card(late)["history"]["misses"].keys() == {cause}
    assert only_card(early)["history"]["at"][-1] <= edge - 120


@pytest.mark.compiled
def test_charts_have_the_counts_by_cause_and_group_and_the_marks_of_a_cache(make, clock):
    cache, other = make("pages"), make("other")
    for group, seconds in (("user", 3), ("city", 1)):
        cache.get_or_load(f"{group}:1", lambda: clock.advance(seconds))  # noqa: B023
    cache.delete("user:1")
    assert cache.get("user:1") is None
    other.clear()
    cache.clear()
    # A release is compared if the first worker had been started a minute before.
    clock.advance(120)
    site = dashboard(cache, other)
    at = site.figures()["span"]["until"] - 5.0
    file = cache.engine.observed.observer.publication.publisher.file
    file.write(lambda db: db.execute("INSERT INTO releases VALUES (?, 'r1')", (at,)))

    def card(**fields):
        return next(each for each in site.figures(["pages"], wanted(**fields))["caches"] if each["name"] == "pages")

    history, marks = card()["history"], [each["text"] for each in card()["marks"]]
    sums = {each["group"]: sum(each["seconds"]) * history["step"] / 60 for each in history["computing"]}
    assert sums == {"user": pytest.approx(3, abs=0.01), "city": pytest.approx(1, abs=0.01)}
    misses = {cause: round(sum(counts) * history["step"]) for cause, counts in history["misses"].items()}
    assert misses == {"new or long gone": 2, "deleted": 1}
    assert {cause for cause, counts in history["removals"].items() if any(counts)} == {"deleted", "cleared"}
    cleared = f"Cleared by the code of process {os.getpid()}"
    assert [marks.count(each) for each in ("1 worker started", cleared, "Release r1")] == [1, 1, 1]
    assert [card(**fields)["comparison"]["release"] for fields in ({}, {"compare": at})] == ["r1", "r1"]
    assert card(compare="none")["comparison"] is None


def test_the_sentence_says_what_is_wrong_and_where_to_look(make, clock):
    cache = make("copies")
    (good,) = dashboard(cache).figures()["caches"]
    text = good["sentence"].pop("text")
    assert re.fullmatch(r"No problem in the last minute\. Since the start \d+ (s|min) ago: no look-ups\.", text)
    assert good["sentence"] == {"state": "good", "place": None, "group": None}
    near = NearCache(cache, 60.0, OutageRule(None), fail_safe=300.0)

    def fails():
        raise ConnectionError

    for _ in range(3):
        drive(near.write(["k"], fails, result_if_dropped=None))
    clock.advance(2 * INTERVAL)
    (bad,) = dashboard(cache).figures()["caches"]
    assert (bad["sentence"]["state"], bad["sentence"]["place"]) == ("bad", "store")
    assert bad["sentence"]["text"].startswith("Its store is down")
