"""The results of the rehearsals of a site: the sum over its workers, a verdict, and a block of rules to paste."""

import json
import secrets
from urllib.parse import quote

import flask
import pytest

from tests.pages.on_both.conftest import site_settings  # noqa: F401
from tests.pages.on_both.sites import Flask, line_of
from tests.pages.rehearsal.conftest import lines, outcomes, personal, serving
from tests.waiting import until
from wheelcache.pages import ttl
from wheelcache.pages.needs import IGNORE_READS_BY, MAX_BODY, TTL, WITHOUT_COOKIES, Need, Obstacle, Obstacles
from wheelcache.pages.rehearsing import GAINS, NEEDS, OPTIONS, PROVED, REFUTED

pytest.importorskip("wheelcache.watch")

from wheelcache.watch import page_commands
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.dashboard.permissions import Permission
from wheelcache.watch.dashboard.responses import Request, respond
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.rehearsal_advice import LEAST_PROVED, advice_of, block_of
from wheelcache.watch.rehearsals import Outcome
from wheelcache.watch.site import Own, Site

FILE = "tests/pages/rehearsal/test_verdict.py"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


def results(site):
    (found,) = page_commands.rehearsal([site.cache.cache], None).document
    return found


# Workers.


@pytest.fixture
def workers(rehearsed, found, path, store):
    """Two workers of a site, with an application whose pages show the visitor."""
    made = [rehearsed(figures_dir=path) for _ in range(2)]
    for site in made:
        site.respond = serving(personal)
        store(site, "/a")
        site.get("/a", {"Cookie": "ada"})
        site.get("/a")
        assert found(site, "wrong")
    return made


def test_workers_add_up_also_after_their_end(workers, clock):
    one, other = workers
    one.cache.cache.close()
    clock.advance(INTERVAL)
    found = results(other)
    (view,) = found["views"]
    expected = {"visits": 6, "hits": 4, "compared": 4, "equal": 2, "wrong": 2}
    assert {kind: view[kind] for kind in expected} == expected
    assert found["verdict"] == "wait"
    assert found["sentence"].startswith("Wait: 6 visits in ")
    texts = {"stored": "<p>Hello you</p>", "visitor": "<p>Hello ada</p>"}
    assert view["differences"] == [{"kind": "wrong", "url": "/a", "line": 7, **texts}]
    clock.advance(INTERVAL)
    assert results(other)["visits"] == 6


@pytest.mark.parametrize("may_see", [True, False])
def test_the_dashboard_shows_texts_only_to_those_who_may_see_values(workers, clock, may_see):
    clock.advance(INTERVAL)
    granted = frozenset({Permission.INSPECT if may_see else Permission.OPERATE})
    request = Request("GET", "figures.json", dict, {}.get, "localhost", "/", granted, lambda: "ann")
    response = respond(request, Dashboard("a site", lambda: [workers[0].cache.cache], lambda name: []))
    (card,) = json.loads(response.body)["caches"]
    (found,) = card["rehearsal"]["findings"]
    assert found["sentence"] == "wrong: the view, /a, line 7"
    assert found["details"] == (["stored:  <p>Hello you</p>", "visitor: <p>Hello ada</p>"] if may_see else [])
    assert ("Hello" in response.body.decode()) == may_see


def test_a_new_rehearsal_forgets_the_last_one_and_its_later_corrections(rehearsed, found, path, clock, store):
    times = [*2 * ["noon"], "one", *6 * ["two"]]
    site = rehearsed(figures_dir=path)
    site.respond = serving(lambda request: f"<p>{times.pop(0) if times else 'three'}</p>", "max-age=600")
    store(site)
    site.get()
    assert found(site, "wrong")
    clock.advance(INTERVAL)
    assert (results(site)["visits"], results(site)["wrong"]) == (2, 1)
    page_commands.change_mode([site.cache.cache], None, "rehearse")
    clock.advance(61)
    assert found(site, "noise")
    clock.advance(INTERVAL)
    assert (results(site)["wrong"], results(site)["noise"]) == (0, 1)
    assert outcomes(site)["wrong"] == 0


def test_a_mode_reaches_all_workers_and_new_ones(workers, rehearsed, path, clock):
    clock.advance(INTERVAL)
    for mode, detail in (("on", "hit"), ("rehearse", "fwd=bypass"), ("off", 'fwd=bypass; detail="switched off"')):
        report = page_commands.change_mode([workers[0].cache.cache], None, mode)
        assert report.document == [{"cache": "pages", "mode": mode}]
        clock.advance(INTERVAL)
        assert all(site.get("/a").detail.startswith(detail) for site in workers)
    new = rehearsed(rehearse=None, figures_dir=path)
    new.respond = serving(lines)
    assert [new.get().detail for _ in range(3)] == ['fwd=bypass; detail="switched off"'] * 3


# Verdicts of a Flask app.


@pytest.fixture
def make_flask(clock, closed, path):
    def make(**options):
        site = Flask(clock, **{"rehearse": 1, "figures_dir": path, **options})
        closed(site.cache.cache)
        for target, seconds in (("/cached", 60), ("/post/<number>", None), ("/\N{PARTY POPPER}\u202e/<number>", None)):
            site.add(target, lambda request, number=1: flask.Response(f"<h1>Post {number}</h1>"), seconds)
        return site

    return make


def report_of(site, clock):
    cache, rehearsal = site.cache.cache, site.cache.pages.rehearsal

    def is_published():
        # The comparisons may have taken minutes of the clock, after which jobs of an idle cache pause until a write.
        cache.engine.observed.observer.publication.run_now()
        (found,) = Site([cache], Own.NONE).rehearsed().values()
        counts = rehearsal.counts()
        return {key: each.number for key, each in found.items()} == {key: each.number for key, each in counts.items()}

    assert until(lambda: (clock.advance(5), not rehearsal._comparisons)[1], 30)
    assert until(is_published, 30)
    return page_commands.rehearsal([cache], None)


def flask_visits(site, number, targets):
    for _ in range(number):
        headers = {}
        for target in targets:
            answer = site.get(target, headers)
            if "set-cookie" in answer.headers:
                headers = {"Cookie": answer["set-cookie"].partition(";")[0]}


@pytest.mark.parametrize("key", ["nonce", "\x1b[2J"])
def test_a_site_that_begins_a_session_for_each_visitor_cannot_gain(make_flask, clock, key):
    site = make_flask()
    site.flask.before_request(lambda: flask.session.setdefault(key, secrets.token_hex()) and None)
    flask_visits(site, 32, ["/post/1", "/post/2", "/cached", "/post/1"])
    report = report_of(site, clock)
    (found,) = report.document
    place = f"{FILE}:{line_of(FILE, 'secrets.token_hex')}"
    assert (found["verdict"], found["block"]) == ("cannot gain", "")
    assert found["sentence"] == (
        f"This site cannot gain: every new session gets a {key} at `{place}`, which its author would have to change."
    )
    # The key cannot control the terminal.
    assert all(line.isprintable() and "not stored" not in line for line in report.view)


@pytest.mark.parametrize(
    ("number", "targets", "verdict", "sentence"),
    [
        (30, ["/cached"] * 4, "serve", "Serve: none of 119 compared answers was wrong, and 99% of 120 visits would "),
        (3, ["/cached", "/post/1"], "wait", "Wait: 6 visits in "),
        (30, ["/cached", "/post/1", "/post/2", "/post/3"], "apply", "Apply this and rehearse again: hits go from 24% "),
    ],
)
def test_the_verdict_depends_on_the_visits_that_would_be_hits(make_flask, clock, number, targets, verdict, sentence):
    site = make_flask()
    flask_visits(site, number, targets)
    (found,) = report_of(site, clock).document
    assert found["verdict"] == verdict
    assert found["sentence"].startswith(sentence)


def pasted(block):
    """Return the options that a block adds to the call of ``page_cache``."""
    imports, _, arguments = block.partition("\n\n")
    names = {}
    exec(imports, names)
    return eval(f"dict({arguments})", names)


def test_a_pasted_block_takes_effect_for_any_characters_of_a_route(make_flask, clock):
    site = make_flask(rules=[("/\N{PARTY POPPER}", ttl(31_536_000))])
    targets = [quote(f"/\N{PARTY POPPER}\u202e/{number}") for number in range(4)]
    flask_visits(site, 30, targets)
    (found,) = report_of(site, clock).document
    assert '    ("/\N{PARTY POPPER}\\u202e/*", ttl(60)),  # 100% of visits' in found["block"].splitlines()
    assert '    ("/\N{PARTY POPPER}", ttl(31536000)),  # set already' in found["block"].splitlines()
    served = make_flask(**pasted(found["block"]), rehearse=None)
    flask_visits(served, 2, targets)
    assert served.stats().fresh == 4


def numbers_of(site, kind):
    """Return the numbers of a kind of counts, of each row of obstacles."""
    counts = site.cache.pages.rehearsal.counts().items()
    return [each.number for (_, name), each in counts if name.startswith(f"{kind}: [")]


def test_visits_by_tracked_links_would_be_hits_of_one_page(make_flask):
    site = make_flask()
    for number in range(3):
        site.get(f"/cached?gclid={number}")
    assert numbers_of(site, GAINS) == [2]


# The advice of given outcomes.


def outcomes_of(*trials, wrong=(), **options):
    """Return outcomes. A trial: the pattern, its needs, visits, proved and refuted comparisons, and an obstacle."""
    found = {("", OPTIONS): Outcome(1, 0.0, options)}
    for pattern, needs, number, proved, refuted, *stuck in trials:
        row = Obstacles(pattern, needs, stuck[0] if stuck else None, frozenset(), frozenset()).row
        counts = {NEEDS: number, GAINS: number - 1, PROVED: proved, REFUTED: refuted}
        found |= {(pattern, f"{kind}: {row}"): Outcome(each, 0.0, {"url": pattern}) for kind, each in counts.items()}
    return found | {(url, "wrong"): Outcome(number, 0.0, {"url": url}) for url, number in wrong}


LIFE = (Need(TTL),)
COOKIE = (Need(WITHOUT_COOKIES, "seen"),)
BIG = (Need(MAX_BODY, "1024"),)
LOG = (Need(IGNORE_READS_BY, "site.Log"),)
ADVICE = {
    "a proved page": ([("/a", LIFE, 9, LEAST_PROVED, 0)], ['("/a", ttl(60))']),
    "a page with too few comparisons": ([("/a", LIFE, 9, LEAST_PROVED - 1, 0)], []),
    "a refuted page": ([("/a", LIFE, 9, LEAST_PROVED, 1)], []),
    "a page with an obstacle": ([("/a", LIFE, 9, LEAST_PROVED, 0, Obstacle("private", "private", ""))], []),
    "the largest size": ([("/a", BIG, 9, 5, 0), ("/b", (Need(MAX_BODY, "4096"),), 1, 5, 0)], ["4096"]),
    "one rule for all": ([("/a/*", LIFE, 1, 5, 0), ("/a/b", LIFE, 9, 5, 0)], ['("/a/*", ttl(60))']),
    "cookies of a special page first": (
        [("/a/*", COOKIE, 9, 5, 0), ("/a/b", (Need(WITHOUT_COOKIES, "own"),), 1, 5, 0)],
        ['("/a/b", without_cookies("own", "seen"))', '("/a/*", without_cookies("seen"))'],
    ),
    "a refuted page among others": (
        [("/a/*", LIFE, 9, 5, 0), ("/a/b", LIFE, 1, 0, 2)],
        ['("/a/*", ttl(60))', '("/a/b", bypass())'],
    ),
    "code whose reads do not count": ([("/a", LOG, 9, 5, 0)], ['"site.Log"']),
}


@pytest.mark.parametrize("case", ADVICE)
def test_a_rule_is_recommended_if_enough_comparisons_prove_it(case):
    trials, expected = ADVICE[case]
    assert [line.item for line in advice_of(outcomes_of(*trials)).lines] == expected


@pytest.mark.parametrize(
    ("url", "pattern"), [("/a?b", '"/a"'), ("/caf%C3%A9/%22", '"/café/\\""'), (f"/{'%C3%A9' * 33}%", f'"/{"é" * 33}*"')]
)
def test_the_rule_for_a_wrong_page_matches_its_path(url, pattern):
    advice = advice_of(outcomes_of(wrong=[(url, 1)]))
    assert f"({pattern}, bypass()),  # 1 compared answer was wrong\n" in block_of(advice.lines, 100)
    assert "2 compared answers were wrong" in block_of(advice_of(outcomes_of(wrong=[(url, 2)])).lines, 100)
