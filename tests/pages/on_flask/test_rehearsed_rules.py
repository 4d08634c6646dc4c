"""The verdict of a rehearsal of a Flask app, and its block of rules."""

import secrets
from urllib.parse import quote

import flask
import pytest

from tests.pages.on_django.test_rehearsed_rules import pasted
from tests.pages.on_flask.test_pages import FlaskSite
from tests.pages.why import line_of
from tests.waiting import until
from wheelcache.pages import ttl
from wheelcache.watch.page_commands import rehearsal
from wheelcache.watch.publisher import INTERVAL

FILE = "tests/pages/on_flask/test_rehearsed_rules.py"


@pytest.fixture
def make_site(clock, closed, tmp_path):
    def make(**options):
        site = FlaskSite(clock, **{"rehearse": 1, "figures_dir": tmp_path / "figures", **options})
        closed(site.cache.cache)

        @site.app.get("/post/<int:number>")
        @site.app.get("/\N{PARTY POPPER}\u202e/<number>")
        def post(number):
            return f"<h1>Post {number}</h1>"

        @site.app.get("/odd/<int:number>")
        def odd(number):
            return f"<h1>Post {number}</h1>", {"Set-Cookie": 'a"b=1'}

        return site

    return make


@pytest.fixture
def result_of(clock):
    def result_of(site):
        assert until(lambda: (clock.advance(5), not site.cache.pages.rehearsal._comparisons)[1], 30)
        clock.advance(INTERVAL)
        return rehearsal([site.cache.cache], None)

    return result_of


def visits(site, number, targets):
    for _ in range(number):
        headers = {}
        for target in targets:
            answer = site.get(target, headers)
            if "set-cookie" in answer.headers:
                headers = {"Cookie": answer["set-cookie"].partition(";")[0]}


def begin_session():
    if not flask.session.get("nonce"):
        flask.session["nonce"] = secrets.token_hex()


def test_a_site_that_begins_a_session_for_each_visitor_cannot_gain(make_site, result_of):
    site = make_site()
    site.app.before_request(begin_session)
    visits(site, 32, ["/post/1", "/post/2", "/cached", "/post/1"])
    report = result_of(site)
    (found,) = report.document
    place = f"{FILE}:{line_of(FILE, '= secrets.token_hex')}"
    assert (found["verdict"], found["block"]) == ("cannot gain", "")
    assert found["sentence"] == (
        f"This site cannot gain: every new session gets a nonce at `{place}`, which its author would have to change."
    )
    assert not any("not stored" in line for line in report.view)


def test_a_site_whose_pages_are_right_serves(make_site, result_of):
    site = make_site()
    visits(site, 30, ["/cached", "/by-hand", "/cached", "/by-hand"])
    (found,) = result_of(site).document
    assert (found["verdict"], found["block"]) == ("serve", "")
    assert found["sentence"] == (
        "Serve: none of 118 compared answers was wrong, and 98% of 120 visits would have been hits."
    )


def test_few_visits_are_no_verdict(make_site, result_of):
    site = make_site()
    visits(site, 3, ["/cached", "/post/1"])
    (found,) = result_of(site).document
    assert found["verdict"] == "wait"
    assert found["sentence"].startswith("Wait: 6 visits in ")


def test_the_rule_of_a_view_has_its_pattern_and_the_share_of_its_visits(make_site, result_of):
    site = make_site()
    visits(site, 30, ["/cached", "/post/1", "/post/2", "/post/3"])
    report = result_of(site)
    (found,) = report.document
    assert found["sentence"] == "Apply this and rehearse again: hits go from 24% to about 97% of 120 visits."
    assert [*report.view][-6:] == [
        "from wheelcache.pages import ttl",
        "",
        "# In place of the options of the same name; keep the others.",
        "rules=[",
        '    ("/post/*", ttl(60)),  # 75% of visits',
        "],",
    ]


def test_a_pasted_block_takes_effect_for_any_characters_of_a_route(make_site, result_of):
    site = make_site(rules=[("/\N{PARTY POPPER}", ttl(31_536_000))])
    targets = [quote(f"/\N{PARTY POPPER}\u202e/{number}") for number in range(4)]
    visits(site, 30, targets)
    (found,) = result_of(site).document
    assert '    ("/\N{PARTY POPPER}\\u202e/*", ttl(60)),  # 100% of visits' in found["block"].splitlines()
    assert '    ("/\N{PARTY POPPER}", ttl(31536000)),  # set already' in found["block"].splitlines()
    served = make_site(**pasted(found["block"]), rehearse=None)
    visits(served, 2, targets)
    assert served.stats().fresh == 4


def test_a_block_has_no_cookie_that_no_rule_accepts(make_site, result_of):
    site = make_site()
    for number in range(120):
        site.get(f"/{('odd', 'post')[number % 2]}/1")
    (found,) = result_of(site).document
    assert "rules" in pasted(found["block"])
    assert "odd" not in found["block"]
