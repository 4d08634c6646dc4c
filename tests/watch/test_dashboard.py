"""The dashboard's files, figures and actions, without a framework and without a browser."""

import json
import os
import re

import pytest

from tests.watch.behind import use_store
from tests.watch.browser.canned import CannedSite
from tests.watch.browser.cards import group
from tests.watch.published import INTERVAL
from wheelcache.core import IMPLEMENTATION
from wheelcache.engine.stats import Stats
from wheelcache.errors import FileUnusable
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.outage_rule import OutageRule
from wheelcache.pages.keys import NotPurgeable
from wheelcache.pages.reasons import REASONS
from wheelcache.runtime.steps import drive
from wheelcache.watch.causes import NAMES
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.one_cache import hits_in_words
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.refusals import Refused
from wheelcache.watch.dashboard.responses import Request, respond

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


def keys_of(document):
    """Return the keys of a document, with those of the objects in it, and of the first object of each list."""
    if isinstance(document, list):
        return [keys_of(each) for each in document[:1]]
    return {key: keys_of(each) for key, each in document.items()} if isinstance(document, dict) else None


def test_the_figures_have_every_key_that_the_page_is_tested_with(make):
    canned = CannedSite()
    canned.stop()
    document = json.loads(json.dumps(dashboard(make()).figures(), allow_nan=False))
    assert document.keys() == canned.figures.keys()
    card, tested = only_card(document), canned.card()
    assert card.keys() == tested.keys()
    for part in ("figures", "now", "recent", "sentence", "history"):
        assert card[part].keys() >= tested[part].keys(), part
    for total in (card["total"], card["workers"][0]["total"]):
        assert total.keys() >= tested["total"].keys()
    assert keys_of(card["workers"][0]["now"]) == keys_of(tested["workers"][0]["now"])
    assert card["workers"][0].keys() == tested["workers"][0].keys()


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


@pytest.mark.compiled
def test_the_groups_of_keys_are_those_that_took_most_time_first_and_only_in_details(make, clock):
    cache = make("first")
    cache.get("city:1")
    cache.get_or_load("user:1", lambda: clock.advance(2))
    clock.advance(INTERVAL)
    document = dashboard(cache, make("second")).figures(["second"])
    assert {card["name"]: "groups" in card for card in document["caches"]} == {"first": False, "second": True}
    first, _ = dashboard(cache, make("second")).figures(["first"])["caches"]
    user, city = first["groups"]
    assert (city["name"], user["name"], user["loads"], user["load_seconds"]) == ("city", "user", 1, 2.0)
    assert user.keys() == group("user").keys()


def test_a_near_cache_tells_how_the_store_behind_does_in_all_workers(make, another_worker, clock):
    cache = make("copies")
    assert only_card(dashboard(cache).figures())["store"] is None
    near = use_store(cache, clock)
    another_worker("copies", 7, use=use_store)
    near.trust(True)
    # The breaker lets this one through, and closes.
    clock.advance(10)
    drive(near.read(lambda: None))
    cache.engine.observed.observer.publication.run_now()
    card = only_card(json.loads(json.dumps(dashboard(cache).figures())))
    store = card["store"]
    assert [store[each] for each in ("reads", "writes", "errors", "refused")] == [5, 8, 6, 6]
    assert store["read_ms"] == pytest.approx(1000 * 0.65 / 5, abs=0.01)
    assert store["write_ms"] == pytest.approx(1000 * 8.5 / 8, abs=0.01)
    gauges = {name: card["store"][name] for name in ("breakers", "open_breakers", "trackers", "trusted")}
    assert gauges == {"breakers": 2, "open_breakers": 1, "trackers": 2, "trusted": 1}
    assert {each["pid"]: each["breaker_open"] for each in card["workers"]} == {os.getpid(): False, 7: True}


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
    clock.advance(2 * INTERVAL)
    assert len(elsewhere) == 0
    for each in (here, elsewhere):
        each.set("k", "after")
        clock.advance(2 * INTERVAL)
        assert len(each) == 1


def test_a_cache_that_only_others_have_is_cleared_there(make, clock):
    here, elsewhere = make("here"), make("elsewhere")
    here.set("k", "v")
    elsewhere.set("k", "v")
    clock.advance(INTERVAL)
    dashboard(here).clear("elsewhere", "tester")
    assert len(here) == 1
    clock.advance(2 * INTERVAL)
    assert len(elsewhere) == 0


def test_where_nothing_is_published_each_worker_says_that_it_shows_and_clears_only_itself(make):
    cache, other = make("default", figures_dir=None), make("other")
    cache.set("k", "v")
    document = dashboard(cache, other).figures()
    assert {card["name"]: card["is_shared"] for card in document["caches"]} == {"default": False, "other": True}
    assert dashboard(cache).clear("default", "tester") == (
        f"Cleared default. Takes effect in worker {os.getpid()} only: the workers of this site do not share figures, "
        "so other workers are not notified."
    )
    assert len(cache) == 0


@pytest.mark.parametrize("name", ["", "Default", "default ", "../reset.json", "\0", "</script>"])
def test_an_unknown_cache_is_refused_and_nothing_is_written(make, name, tmp_path):
    cache = make("default")
    cache.set("k", "v")
    with pytest.raises(Refused, match="There is no cache"):
        dashboard(cache).clear(name, "tester")
    assert len(cache) == 1
    assert not list((tmp_path / "figures").glob("*.sqlite3"))
    assert sorted(each.name for each in tmp_path.iterdir()) == ["figures"]


# Responses.


def respond_with(method):
    """Return the status and the document of a request for the figures, which call ``method``."""
    made = dashboard()
    made.figures = lambda *_, **__: method()
    granted = frozenset({Permission.VIEW_FIGURES})
    response = respond(Request("GET", "figures.json", dict, {}.get, "localhost", "/", granted, lambda: "ann"), made)
    return response.status, json.loads(response.body)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Refused("There is no cache", 404), 404),
        (Refused("These caches"), 409),
        (Refused("Give a key", 400), 400),
        (NotPurgeable("purge takes a URL"), 400),
        (FileUnusable("/run/figures must belong to the user 0, not to 1"), 503),
        (PermissionError(13, "Permission denied", "/run/figures"), 503),
    ],
)
def test_what_goes_wrong_is_said_without_a_full_stop(error, status):
    def fail():
        raise error

    assert respond_with(fail) == (status, {"error": str(error)})
    assert not str(error).endswith(".")


def test_a_cache_without_a_living_worker_is_shown_with_its_settings_and_a_problem_is_not_hidden(make, clock):
    gone, here = make("gone", max_entries=7), make("here")
    for each in (gone, here):
        each.set("k", "v")
    clock.advance(INTERVAL)
    gone.close()
    of_gone, of_here = dashboard(here).figures()["caches"]
    assert (of_gone["worker_count"], of_gone["total"]["max_entries"], of_gone["total"]["puts"]) == (0, 7, 1)
    assert of_here["worker_count"] == 1


def figures_response(dashboard, **fields):
    query = {name: [str(value)] for name, value in fields.items()}
    granted = frozenset({Permission.VIEW_FIGURES})
    request = Request("GET", "figures.json", lambda: query, {}.get, "localhost", "/", granted, lambda: "ann")
    response = respond(request, dashboard)
    return response.status, json.loads(response.body)


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
def test_an_invalid_span_is_refused_with_the_values_that_it_may_have(make, fields, message):
    assert figures_response(dashboard(make()), **fields) == (400, {"error": message})


def test_all_figures_are_of_the_wanted_span(make, clock):
    cache = make("pages")
    cache.get_or_load("user:1", lambda: clock.advance(4))
    clock.advance(600 - clock())
    for _ in range(10):
        cache.get("user:1")
    cache.get("city:1")
    clock.advance(100)
    shown = dashboard(cache)
    _, hour = figures_response(shown)
    _, late = figures_response(shown, span=120)
    edge = late["span"]["until"]
    _, early = figures_response(shown, **{"from": edge - 1200, "until": edge - 120})
    _, before = figures_response(shown, **{"from": 1000, "until": 2000})
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
    assert [each for each in only_card(hour)["history"]["hit_ratio"] if each] == [pytest.approx(10 / 11, abs=1e-4)]
    assert "1 worker started" in [each["text"] for each in only_card(hour)["marks"]]
    # The core in Python does not remember why a key has no entry.
    cause = "new or long gone" if IMPLEMENTATION == "compiled" else "unknown"
    assert only_card(late)["history"]["misses"].keys() == {cause}
    assert only_card(early)["history"]["at"][-1] <= edge - 120


def test_limits_that_are_added_up_come_with_the_number_of_workers(make, another_worker, clock):
    make(max_entries=60).set("a", 1)
    clock.advance(INTERVAL)
    alone = only_card(dashboard(cache := make(max_entries=60)).figures())["now"]
    another_worker("pages", 4242, entries=60, max_entries=60)
    together = only_card(dashboard(cache).figures())["now"]
    assert (alone["in_workers"], together["in_workers"]) == (None, 2)
    assert together["max_entries"] > 60


@pytest.mark.parametrize(
    ("hits", "misses", "words"), [(0, 0, "no look-ups"), (1, 0, "1 look-up, a hit"), (3, 1, "75.0% hits")]
)
def test_the_share_of_hits_in_words(hits, misses, words):
    assert hits_in_words(Stats(hits=hits, misses=misses)) == words


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
