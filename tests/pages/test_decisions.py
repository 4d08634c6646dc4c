"""The fast paths of the drivers decide nothing, and the options that change decisions, for both drivers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.conftest import DRIVERS
from tests.pages.site import USUAL, Response, WsgiSite, answer_of, answering, settle
from wheelcache.pages import TRACKING, grace, ttl
from wheelcache.pages.marks import Facts
from wheelcache.runtime.wheel_driver import ManualClock

PAGES = {
    "/plain": USUAL,
    "/language": {**USUAL, "vary": "Accept-Language"},
    "/cookie": {**USUAL, "vary": "Cookie"},
    "/stale": {"cache-control": "max-age=1, stale-while-revalidate=5"},
    "/validated": {"cache-control": "no-cache", "etag": '"1"'},
    "/private": {"cache-control": "private"},
}
HEADERS = {
    "accept-language": ["de", "en,de;q=0.5", ",de", "x" * 600],
    "cookie": ["theme=dark", "sessionid=1", "sessionid=2; theme=dark", "\xa0sessionid=1", "x=sessionid"],
    "x-forwarded-host": ["a.example", "b.example"],
    "content-type": ["text/plain; charset=cp037"],
    "x-other": ["1"],
}
REQUESTS = st.tuples(
    st.sampled_from([*PAGES]),
    st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in HEADERS.items()}),
    st.sampled_from([0, 0, 0, 0.5, 1.5, 7]),
)


def respond(request):
    # A page that depends on a part of the request shows it, and so does the page of a visitor with a session.
    vary = PAGES[request.path].get("vary", "").lower()
    shown = {name: value for name, value in request.headers.items() if name in (vary, "x-forwarded-host")}
    return Response(repr(shown).encode(), PAGES[request.path])


@pytest.mark.parametrize("driver", DRIVERS.values(), ids=DRIVERS)
@given(requests=st.lists(REQUESTS, max_size=30))
def test_the_fast_paths_answer_as_the_decision_does(driver, requests):
    def visit(more_headers):
        clock = ManualClock()
        site = driver(clock, session_cookies=["sessionid"])
        site.respond = respond
        answers = []
        for target, headers, seconds in requests:
            answer = site.get_unchecked(target, {**headers, **more_headers})
            settle()
            answers.append((answer.status, answer.body, answer.headers))
            clock.advance(seconds)
        counts = site.cache.stats(), site.cache.cache.stats().hits, site.runs
        site.cache.cache.close()
        return answers, counts

    # A request with a condition needs a decision, which this condition does not change.
    assert visit({}) == visit({"if-none-match": '"none"'})


def test_of_the_pages_that_could_not_be_stored_the_last_4096_are_known():
    facts = Facts()
    for number in (*range(4096), 0, 4096):
        facts.add(str(number), number)
    assert [facts.find(each) for each in ("0", "1", "2", "4096")] == [0, None, 2, 4096]
    facts.remove("2")
    assert facts.find("2") is None


# Options.


def test_ignored_parameters_reach_neither_the_application_nor_the_key(make_site):
    site = make_site(ignore_query=[*TRACKING, "ref"])
    site.respond = lambda request: Response(request.query.encode())
    for query, seen in (
        ("a=1&b=2", "a=1&b=2"),
        ("utm_source=x&a=1&b=2", "a=1&b=2"),
        ("a=1&b=2&gclid=EVIL&ref=y", "a=1&b=2"),
        ("gclid=1", ""),
        ("", ""),
        ("b=2&a=1", "b=2&a=1"),
    ):
        assert site.get(f"/?{query}").body == seen.encode()
    assert site.runs == 3
    assert site.cache.purge("https://example.com/?fbclid=z&a=1&b=2") == 1


def test_ignored_parameters_are_not_in_the_uri_of_the_server_either(clock):
    site, seen = WsgiSite(clock, ignore_query=["ref"]), []

    def application(environ, start_response):
        seen.append((environ["RAW_URI"], environ["REQUEST_URI"]))
        start_response("200 OK", [])
        return [b"page"]

    for target, kept in (("/a?ref=1&b=2", "/a?b=2"), ("/a?ref=1", "/a")):
        answer_of(site.cache.wsgi(application), site.environ(*site.parts(target)) | {"REQUEST_URI": target})
        assert seen.pop() == (kept, kept)


def test_rules_apply_to_pages_without_headers(make_site, clock):
    site = make_site(rules=[("api.example.com/*", grace(30)), ("/api/*", ttl(10))])
    site.respond = answering({})
    site.get("/api/a", host="API.example.com")
    clock.advance(10)
    assert site.get("/api/a", host="API.example.com").detail == "hit; ttl=0; detail=stale"


# Cache-Status.


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize(
    ("how", "headers", "detail"),
    [
        ({}, USUAL, "fwd=miss; stored"),
        ({}, {}, 'fwd=miss; detail="no lifetime"'),
        ({}, {**USUAL, "set-cookie": "x=1"}, 'fwd=miss; detail="sets cookie x"'),
        ({}, {"cache-control": "private"}, "fwd=miss; detail=private"),
        ({"method": "POST", "body": b"x"}, {}, "fwd=method; detail=method"),
        ({"method": "HEAD"}, USUAL, "fwd=miss; detail=HEAD"),
        ({"headers": {"range": "bytes=0-1"}}, USUAL, "fwd=miss; detail=range"),
        ({"headers": {"expect": "100-continue"}}, USUAL, "fwd=bypass; detail=expect"),
        ({"headers": {"cookie": "sessionid=1"}}, USUAL, "fwd=miss; detail=session"),
        ({"headers": {"authorization": "x"}}, USUAL, "fwd=miss; detail=authorization"),
        ({"headers": {"x-a": "x" * 5000}}, USUAL, 'fwd=bypass; detail="unsafe header in the request"'),
        ({"headers": {"cache-control": "only-if-cached"}}, USUAL, "detail=only-if-cached"),
        ({"target": "/?" + "x" * 5000}, USUAL, 'fwd=bypass; detail="long URL"'),
    ],
)
@pytest.mark.parametrize("shown", [True, "short", False])
def test_every_answer_gives_a_reason(make_site, how, headers, detail, shown):
    site = make_site(session_cookies=["sessionid"], cache_status=shown)
    site.respond = answering(headers)
    expected = {True: detail, "short": detail.partition("detail")[0].removesuffix("; "), False: ""}[shown]
    assert site.get_unchecked(**how).detail == expected


def test_a_reason_is_one_printable_line(site):
    odd = 'reads "x"\r\nSet-Cookie: \u00fc\\' + "y" * 500
    site.respond = answering(notes=lambda notes: notes.refuse("odd", odd))
    detail = site.get().detail
    assert detail == 'fwd=miss; detail="reads \\"x\\"??Set-Cookie: ?\\\\' + "y" * 95 + '"'
