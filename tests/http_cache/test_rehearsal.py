"""A rehearsal serves nothing, and names the pages that would have been wrong."""

import json
from itertools import count

import pytest

from tests.http_cache.site import Response
from tests.waiting import until
from wheelcache.http_cache import ttl
from wheelcache.http_cache.rehearsal import Answer, Kind, answer_of, compare
from wheelcache.observability import page_commands, site_commands
from wheelcache.observability.console import CommandFailed
from wheelcache.observability.dashboard.dashboard import Dashboard
from wheelcache.observability.dashboard.permissions import Permission
from wheelcache.observability.dashboard.responses import Request, respond
from wheelcache.observability.publisher import INTERVAL

numbers = count()
CLOCK = "<p>It is {now}</p>"
LINES = "<h1>Shop</h1>\n<p>Welcome</p>\n<ul>\n<li>one</li>\n<li>two</li>\n</ul>\n"


def outcomes(site):
    """Return the counts of the only view."""
    return {kind: found.number for (_, kind), found in site.cache.pages.rehearsal.counts().items()}


def examples(site):
    return {kind: found.example for (_, kind), found in site.cache.pages.rehearsal.counts().items()}


def serving(body, control="max-age=60", **headers):
    """Return an application that answers with ``body(request)``."""

    def respond(request):
        if request.notes is not None:
            request.notes.view = "the view"
        return Response(body(request).encode(), {"cache-control": control, **headers})

    return respond


def noisy(request):
    return f"<p>{next(numbers)}</p>\n{LINES}"


@pytest.fixture
def rehearsed(make_site):
    return lambda **options: make_site(rehearse=1, **options)


def test_nothing_is_served(rehearsed):
    site = rehearsed()
    bodies = [site.get().body for _ in range(3)]
    site.respond = serving(noisy)
    bodies = {site.get().body for _ in range(5)}
    assert len(bodies) == 5
    assert site.get().detail == 'fwd=bypass; detail="rehearsal: a hit otherwise"'
    assert site.stats().fresh == 0


def test_equal_answers_are_counted_by_view(rehearsed):
    site = rehearsed()
    site.respond = serving(lambda request: LINES)
    for _ in range(5):
        site.get()
    assert outcomes(site) == {"stored": 1, "hits": 4, "equal": 4}
    assert {view for view, _ in site.cache.pages.rehearsal.counts()} == {"the view"}


PLANTED = {
    "a name": lambda request: f"{LINES}<p>Hello {request.headers.get('cookie', 'you')}</p>",
    "a name after a clock": lambda request: f"<p>{next(numbers)}</p>Hello {request.headers.get('cookie', '')}<b>\n",
    "a line before a clock": lambda request: (
        f"{'<p>Hello</p>' * ('cookie' in request.headers)}<p>{next(numbers)}</p>{LINES}"
    ),
    "a missing line": lambda request: LINES if "cookie" in request.headers else LINES.replace("<li>one</li>\n", ""),
    "one line only": lambda request: request.headers.get("cookie", "nobody"),
}


@pytest.mark.parametrize("page", PLANTED)
def test_a_page_that_shows_the_visitor_is_wrong(rehearsed, page):
    site = rehearsed()
    site.respond = serving(PLANTED[page])
    site.get("/a?b")
    site.get("/a?b", {"Cookie": "ada"})
    assert until(lambda: "wrong" in outcomes(site))
    assert outcomes(site) == {"stored": 1, "hits": 1, "wrong": 1}
    found = examples(site)["wrong"]
    assert found["url"] == "/a?b"
    assert found["stored"] != found["visitor"]


@pytest.mark.parametrize("headers", [{"set-cookie": "seen=1"}, {"content-language": "de"}, {"location": "/x"}])
def test_a_header_that_visitors_notice_is_compared(rehearsed, headers):
    site = rehearsed()
    site.respond = serving(lambda request: LINES)
    site.get()
    mine = serving(lambda request: LINES, **headers)
    site.respond = lambda request: (mine if "cookie" in request.headers else serving(lambda request: LINES))(request)
    site.get("/", {"Cookie": "ada"})
    assert until(lambda: "wrong" in outcomes(site))
    assert examples(site)["wrong"]["line"] == 0


@pytest.mark.parametrize("status", [404, 500])
def test_another_status_is_wrong(rehearsed, status):
    site = rehearsed()
    site.respond = serving(lambda request: LINES)
    site.get()
    site.respond = lambda request: Response(status=status if "cookie" in request.headers else 200, body=LINES.encode())
    site.get("/", {"Cookie": "ada"})
    assert until(lambda: "wrong" in outcomes(site))
    assert f"status {status}" in examples(site)["wrong"]["visitor"]


@pytest.mark.parametrize(
    "noise",
    [
        noisy,
        lambda request: f"{LINES}<i>{next(numbers)}</i>{LINES}<b nonce={next(numbers)}>{LINES}",
    ],
)
def test_clocks_nonces_and_lists_that_change_are_noise(rehearsed, noise):
    site = rehearsed()
    site.respond = serving(noise)
    site.get()
    for _ in range(5):
        site.get()
    assert until(lambda: outcomes(site).get("noise", 0) == 5)
    assert "wrong" not in outcomes(site)


def test_a_page_for_all_may_be_outdated(rehearsed):
    site = rehearsed()
    site.respond = serving(lambda request: noisy(request) + "old")
    site.get()
    site.respond = serving(lambda request: noisy(request) + "new")
    site.get()
    assert until(lambda: "outdated" in outcomes(site))
    assert (examples(site)["outdated"]["stored"], examples(site)["outdated"]["visitor"]) == ("old", "new")


def test_a_page_of_a_cookie_that_is_outdated_is_wrong(rehearsed):
    site = rehearsed(cookies=["basket"])
    site.respond = serving(lambda request: noisy(request) + "1 item", vary="Cookie")
    for _ in range(2):
        site.get("/", {"Cookie": "basket=7"})
        site.get()
    site.respond = serving(lambda request: noisy(request) + "2 items", vary="Cookie")
    site.get()
    assert until(lambda: "outdated" in outcomes(site))
    site.get("/", {"Cookie": "basket=7"})
    assert until(lambda: "wrong" in outcomes(site))


def test_reasons_are_counted_with_an_example(rehearsed):
    site = rehearsed()
    site.respond = serving(lambda request: LINES, "private")
    for _ in range(4):
        site.get("/mine")
    assert outcomes(site) == {"not stored: private": 4}
    found = examples(site)["not stored: private"]
    assert (found["url"], found["reason"], found["detail"]) == ("/mine", "private", "private")


def test_headers_of_answers_are_those_without_the_cache(rehearsed, make_site):
    site = rehearsed(rules=[("/*", ttl(60))])
    site.respond = serving(lambda request: LINES, "public", etag='"x"', **{"set-cookie": "a=1"})
    for _ in range(2):
        answer = site.get("/", {"If-None-Match": '"x"'})
        assert (answer.status, answer["cache-control"], answer["set-cookie"]) == (200, "public", "a=1")
        assert site.requests[-1].headers["if-none-match"] == '"x"'


def test_only_a_share_is_compared(make_site):
    site = make_site(rehearse=0.5)
    site.respond = serving(lambda request: LINES)
    for _ in range(200):
        site.get()
    found = outcomes(site)
    assert (found["stored"], found["hits"]) == (1, 199)
    assert 50 < found["equal"] < 150


def test_a_switch_changes_what_is_done_with_pages(make_site):
    site = make_site(rehearse=1)
    site.respond = serving(noisy)
    site.get()
    mode = site.cache.pages.mode
    mode.change("on")
    assert site.get().detail.startswith("hit")
    mode.change("off")
    assert site.get().detail == 'fwd=bypass; detail="switched off"'
    mode.change("rehearse")
    assert site.get().detail.startswith("fwd=bypass; detail=")


def test_comparisons_take_bounded_time():
    one, other = (b"".join(b"<p>%d</p>\n" % (number * factor) for number in range(20_000)) for factor in (1, 2))
    answers = [Answer(b"", b"", text) for text in (one, other, other, one)]
    assert compare(answers[0], answers[1], answers[2:], is_keyed=False).kind is Kind.NOISE
    assert answer_of(200, [(b"content-encoding", b"gzip")], b"not gzip", frozenset()).body == b"not gzip"


# The results of a site.


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


@pytest.fixture
def workers(rehearsed, path):
    """Two workers of a site, with an application whose pages show the visitor."""
    made = [rehearsed(figures_dir=path) for _ in range(2)]
    for site in made:
        site.respond = serving(PLANTED["a name"])
        site.get("/a")
        site.get("/a", {"Cookie": "ada"})
        site.get("/a")
        assert until(lambda site=site: {"equal", "wrong"} <= outcomes(site).keys())
    return made


def results(site):
    (found,) = page_commands.rehearsal([site.cache.cache], None).document
    return found


def test_workers_add_up_also_after_their_end(workers, clock):
    one, other = workers
    one.cache.cache.close()
    clock.advance(INTERVAL)
    found = results(other)
    (view,) = found["views"]
    assert {kind: view[kind] for kind in ("visits", "hits", "compared", "equal", "wrong")} == {
        "visits": 6,
        "hits": 4,
        "compared": 4,
        "equal": 2,
        "wrong": 2,
    }
    assert found["sentence"] == (
        "6 visits in less than two hours, 67% would have been hits, 2 of 4 compared answers wrong: mend these views "
        "first."
    )
    assert view["differences"] == [
        {"kind": "wrong", "url": "/a", "line": 7, "stored": "Hello you</p>", "visitor": "Hello ada</p>"}
    ]
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
    assert found["details"] == (["stored:  Hello you</p>", "visitor: Hello ada</p>"] if may_see else [])
    assert ("Hello" in response.body.decode()) == may_see


def test_a_reset_begins_again(workers, clock):
    clock.advance(INTERVAL)
    site_commands.reset([workers[0].cache.cache], None)
    workers[0].get("/a")
    clock.advance(INTERVAL)
    assert results(workers[0])["visits"] == 1


def test_a_new_rehearsal_forgets_the_last_one(workers, clock):
    clock.advance(INTERVAL)
    page_commands.change_mode([workers[0].cache.cache], None, "rehearse")
    workers[0].get("/a")
    clock.advance(INTERVAL)
    assert results(workers[0])["visits"] == 1


def test_a_mode_reaches_all_workers(workers, clock):
    clock.advance(INTERVAL)
    for mode, detail in (("on", "hit"), ("off", 'fwd=bypass; detail="switched off"'), ("rehearse", "fwd=bypass")):
        report = page_commands.change_mode([workers[0].cache.cache], None, mode)
        assert report.document == [{"cache": "pages", "mode": mode}]
        clock.advance(INTERVAL)
        assert all(site.get("/a").detail.startswith(detail) for site in workers)


def test_without_a_rehearsal_the_command_says_how_to_begin(make_site, path, clock):
    site = make_site(figures_dir=path)
    site.get()
    clock.advance(INTERVAL)
    with pytest.raises(CommandFailed, match="rehearse="):
        results(site)
