"""What rules of the site may do with pages that depend on the state of a visitor."""

import threading
from itertools import count

import pytest

from tests.pages.site import Response, WsgiSite
from tests.waiting import PATIENCE
from wheelcache.pages import HTTPCache, bypass, ttl, without_cookies

numbers = count()


def shop(control=None, **headers):
    """Return an application whose pages show the visitor's basket."""

    def respond(request):
        if request.notes is not None:
            request.notes.vary_on(cookies=["basket", "theme"])
        given = {} if control is None else {"cache-control": control}
        return Response(f"page {next(numbers)}".encode(), {**given, **headers})

    return respond


def detail_of(site, cookie=None, target="/"):
    return site.get(target, {} if cookie is None else {"Cookie": cookie}).detail


# A lifetime that only a rule gives.


def test_a_lifetime_of_a_rule_is_for_visitors_without_the_cookie(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    site.respond = shop()
    assert detail_of(site, "basket=1") == (
        'fwd=miss; detail="depends on the cookie basket, which this visitor has; only a rule gives it a lifetime"'
    )
    assert detail_of(site) == "fwd=miss; stored"
    for cookie in (None, "analytics=1", "baskets=2"):
        assert detail_of(site, cookie).startswith("hit")
    for _ in range(3):
        assert detail_of(site, "basket=1").startswith("fwd=vary-miss; detail=")
    assert site.stats().not_stored == {"visitor": 4}


def test_cookies_that_are_values_make_variants(make_site):
    site = make_site(rules=[("/*", ttl(60, cookies=["theme"]))])
    site.respond = shop()
    assert [detail_of(site, "theme=dark")[:3] for _ in range(2)] == ["fwd", "hit"]
    assert [detail_of(site, "theme=blue")[:3] for _ in range(2)] == ["fwd", "hit"]
    assert [detail_of(site, "theme=dark; basket=1")[:3] for _ in range(2)] == ["fwd", "fwd"]


@pytest.mark.parametrize(
    ("control", "is_stored"),
    [("max-age=60", True), ("s-maxage=60", True), ("max-age=0", False), ("public", False)],
)
def test_a_lifetime_that_the_page_itself_has_counts_for_all(make_site, control, is_stored):
    site = make_site(rules=[("/*", ttl(60))])
    site.respond = shop(control)
    assert [detail_of(site, "basket=1").startswith("hit") for _ in range(2)] == [False, is_stored]


@pytest.mark.parametrize("cookies", [None, ["sid"]])
def test_a_visitor_with_a_session_gets_no_lifetime_of_a_rule(make_site, cookies):
    site = make_site(rules=[("/*", ttl(60))], session_cookies=["sid"], cookies=cookies)
    site.respond = shop(vary="Cookie")
    assert [detail_of(site, "sid=1").startswith("hit") for _ in range(2)] == [False, False]
    assert [detail_of(site).startswith("hit") for _ in range(2)] == [False, True]


def test_a_visitor_with_state_keeps_no_page_from_others(make_site):
    """The reason leaves a mark only for requests with this cookie."""
    site = make_site(rules=[("/*", ttl(60))])
    site.respond = shop()
    for _ in range(3):
        detail_of(site, "basket=1")
    assert detail_of(site) == "fwd=miss; stored"
    for _ in range(3):
        detail_of(site, "basket=1", "/other")
    assert detail_of(site, "theme=dark", "/other").startswith("fwd=miss; detail")


def test_visitors_with_state_do_not_wait_for_each_other(clock, closed):
    site = WsgiSite(clock, rules=[("/*", ttl(60))], session_cookies=["sid"], cookies=["sid"])
    closed(site.cache.cache)
    site.respond = shop(vary="Cookie")
    detail_of(site, "sid=0")
    both = threading.Barrier(2)

    def respond(request):
        both.wait(PATIENCE)
        return shop(vary="Cookie")(request)

    site.respond = respond
    details = [answer.detail for answer in site.get_together([("/", {"Cookie": f"sid={each}"}) for each in (1, 2)])]
    assert all("only a rule gives it a lifetime" in detail for detail in details)


@pytest.mark.parametrize(
    ("cookies", "message"),
    [("theme", "cookies in ttl\\(\\) must be a list of names"), ([5], "cookies in ttl\\(\\) must be a list")],
)
def test_wrong_names_of_values_are_named(cookies, message):
    with pytest.raises(TypeError, match=message):
        ttl(60, cookies=cookies)


# Cookies that pages lose.


def history(control="max-age=60", status=200):
    """Return an application that keeps a history in a cookie, and shows it."""

    def respond(request):
        found = request.headers.get("cookie", "none")
        if request.notes is not None:
            request.notes.vary_on(cookies=["history", "theme"])
        headers = {"cache-control": control, "set-cookie": f"history={request.path}"}
        return Response(f"{found} {next(numbers)}".encode(), headers, status)

    return respond


LOSES = [("/catalogue/*", without_cookies("history", "seen"))]
PAGE = "/catalogue/a"


def test_pages_are_shared_by_visitors_whose_cookie_they_lose(make_site):
    site = make_site(rules=LOSES)
    site.respond = history()
    first = site.get(PAGE, {"Cookie": "history=/b"})
    # It could have been private.
    assert first.detail == 'fwd=miss; detail="keeps the cookies that a rule removes"'
    assert first.body.startswith(b"history=/b")
    assert first["set-cookie"] == f"history={PAGE}"
    for sent, start in (
        ("history=/b", "fwd=miss; stored"),
        ("history=/c; seen=1", "hit"),
        (None, "hit"),
        ("tracked=1", "hit"),
        ("tracked=1;history=/b", "hit"),
    ):
        answer = site.get(PAGE, {} if sent is None else {"Cookie": sent})
        assert answer.detail.startswith(start), sent
        assert answer.body.startswith(b"none")
        assert "set-cookie" not in answer.headers
    dark = site.get(PAGE, {"Cookie": "history=/b; theme=dark"})
    assert (dark.body.split(), dark.detail) == ([b"theme=dark", dark.body.split()[1]], "fwd=vary-miss; stored")


def test_other_paths_keep_the_cookie(make_site):
    site = make_site(rules=LOSES)
    site.respond = history()
    answer = site.get("/other", {"Cookie": "history=/b"})
    assert answer.body.startswith(b"history=/b")
    assert answer["set-cookie"] == "history=/other"


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS"])
def test_other_methods_keep_the_cookie(make_site, method):
    site = make_site(rules=LOSES)
    site.respond = history()
    answer = site.get(PAGE, {"Cookie": "history=/b"}, method=method)
    assert answer.body.startswith(b"history=/b")
    assert answer["set-cookie"] == f"history={PAGE}"


@pytest.mark.parametrize("control", ["private", "no-store", "private, max-age=60"])
def test_private_pages_keep_the_cookie(make_site, control):
    site = make_site(rules=LOSES)
    site.respond = history(control)
    site.get(PAGE)
    for _ in range(3):
        answer = site.get(PAGE, {"Cookie": "history=/b"})
        assert answer.body.startswith(b"history=/b")
        assert answer["set-cookie"] == f"history={PAGE}"


@pytest.mark.parametrize("target", ["/catalogue/b", "/catalogue/b?c", "/catalogue/b?d"])
def test_a_private_page_keeps_the_cookie_from_the_first_request_on(make_site, target):
    site = make_site(rules=LOSES)
    site.respond = history("private")
    for path, cookie in (("/catalogue/b", "history=/b"), (target, "history=/b; theme=dark")):
        answer = site.get(path, {"Cookie": cookie})
        assert answer.body.startswith(cookie.encode())
        assert answer["set-cookie"] == "history=/catalogue/b"


def test_a_page_that_becomes_private_replaces_no_cookie(make_site):
    site = make_site(rules=LOSES)
    site.respond = history()
    site.get(PAGE)
    site.cache.purge_all()
    site.respond = history("private")
    first = site.get(PAGE, {"Cookie": "history=/b"})
    # Nothing could show that it would be private.
    assert first.body.startswith(b"none")
    assert "set-cookie" not in first.headers
    assert site.get(PAGE, {"Cookie": "history=/b"}).body.startswith(b"history=/b")


@pytest.mark.parametrize(
    "headers", [{"Authorization": "Basic x"}, {"Cache-Control": "no-store"}, {"Cookie": "history=/b; sid=1"}]
)
def test_visitors_with_a_session_and_requests_on_their_own_keep_the_cookie(make_site, headers):
    site = make_site(rules=LOSES, session_cookies=["sid"])
    for control in ("private", "max-age=60"):
        site.respond = history(control)
        for number in range(3):
            answer = site.get(f"/catalogue/b?{control}", {"Cookie": "history=/b", **headers})
            assert answer.body.startswith(b"history=/b"), number
            assert answer["set-cookie"] == "history=/catalogue/b"


def test_a_bypassed_page_keeps_the_cookie(make_site):
    site = make_site(rules=[("/catalogue/private", bypass()), *LOSES])
    site.respond = history()
    answer = site.get("/catalogue/private", {"Cookie": "history=/b"})
    assert answer.body.startswith(b"history=/b")
    assert answer["set-cookie"] == "history=/catalogue/private"


def test_another_cookie_that_the_page_sets_keeps_it_out(make_site):
    site = make_site(rules=LOSES)
    site.respond = lambda request: Response(headers={"cache-control": "max-age=60", "set-cookie": "historyx=1"})
    answer = site.get(PAGE)
    assert answer.detail == 'fwd=miss; detail="sets cookie historyx"'
    assert answer["set-cookie"] == "historyx=1"


def test_the_cookie_of_a_session_cannot_be_lost():
    with pytest.raises(ValueError, match="rules must not name the cookie of a session: 'sid'"):
        HTTPCache(rules=[("/*", without_cookies("a", "sid"))], session_cookies=["sid"])


@pytest.mark.parametrize(("names", "error"), [((), ValueError), (("a b",), ValueError), ((5,), TypeError)])
def test_wrong_names_of_lost_cookies_are_named(names, error):
    with pytest.raises(error, match="without_cookies"):
        without_cookies(*names)
