"""What rules of the site may do with pages that depend on the state of a visitor."""

from itertools import count

import pytest

from tests.pages.site import Response, answering
from wheelcache.pages import bypass, ttl, without_cookies

numbers = count()


def shop(control=None, **headers):
    """Return an application whose pages show the visitor's basket."""
    given = {} if control is None else {"cache-control": control}
    return answering({**given, **headers}, notes=lambda notes: notes.vary_on(cookies=["basket", "theme"]))


def cookie(value):
    return {} if value is None else {"Cookie": value}


def hits(site, *cookies, target="/"):
    """Return for each visitor whether the page is a hit."""
    return [site.get(target, cookie(each)).detail.startswith("hit") for each in cookies]


# A lifetime that only a rule gives.


def test_a_lifetime_of_a_rule_is_for_visitors_without_the_cookie(make_site):
    site = make_site(rules=[("/*", ttl(60))])
    site.respond = shop()
    assert site.get("/", cookie("basket=1")).detail == (
        'fwd=miss; detail="depends on the cookie basket, which this visitor has; only a rule gives it a lifetime"'
    )
    # The reason leaves a mark only for requests with this cookie, which the first of them may remove.
    assert hits(site, "basket=1", "baskets=2", None, "analytics=1") == [False, False, True, True]
    assert hits(site, *["basket=1"] * 3) == [False] * 3
    assert site.stats().not_stored == {"visitor": 5}


def test_a_page_for_one_visitor_does_not_remove_that_of_the_others(make_site, clock):
    site = make_site(rules=[("/*", ttl(60))], fail_safe=600)
    site.respond = answering({})
    site.get()
    clock.advance(60)
    for site.respond, headers in (shop(), cookie("basket=1")), (answering({}, status=500), {}):
        assert site.get("/", headers).status == 200


def test_cookies_that_are_values_make_variants(make_site):
    site = make_site(rules=[("/*", ttl(60, cookies=["theme"]))])
    site.respond = shop()
    for value, is_stored in (("theme=dark", True), ("theme=blue", True), ("theme=dark; basket=1", False)):
        assert hits(site, value, value) == [False, is_stored]


@pytest.mark.parametrize(
    ("control", "is_stored"),
    [("max-age=60", True), ("s-maxage=60", True), ("max-age=0", False), ("public", False)],
)
def test_a_lifetime_that_the_page_itself_has_counts_for_all(make_site, control, is_stored):
    site = make_site(rules=[("/*", ttl(60))])
    site.respond = shop(control)
    assert hits(site, "basket=1", "basket=1") == [False, is_stored]


@pytest.mark.parametrize("cookies", [None, ["sid"]])
def test_a_visitor_with_a_session_gets_no_lifetime_of_a_rule(make_site, cookies):
    site = make_site(rules=[("/*", ttl(60))], session_cookies=["sid"], cookies=cookies)
    site.respond = answering({"vary": "Cookie"})
    # Frameworks may find any cookie in the last header.
    for header in ("sid=1", 'a="'):
        assert hits(site, header, header) == [False, False]
    assert hits(site, None, None) == [False, True]


# Cookies that pages lose.


def history(control="max-age=60"):
    """Return an application that keeps a history in a cookie, and shows it."""

    def respond(request):
        found = request.headers.get("cookie", "none")
        if request.notes is not None:
            request.notes.vary_on(cookies=["history", "theme"])
        headers = {"cache-control": control, "set-cookie": f"history={request.path}"}
        return Response(f"{found} {next(numbers)}".encode(), headers)

    return respond


LOSES = [("/catalogue/private", bypass()), ("/catalogue/*", without_cookies("history", "seen"))]
PAGE = "/catalogue/a"


def keeps(site, target=PAGE, sent="history=/b", **how):
    """Return whether the application gets the visitor's cookies, and the visitor the cookie that it sets."""
    headers = how.pop("headers", {})
    answer = site.get(target, {"Cookie": sent, **headers}, **how)
    kept = answer.body.startswith(sent.encode())
    assert answer.headers.get("set-cookie") == (f"history={target.partition('?')[0]}" if kept else None)
    return kept


def test_pages_are_shared_by_visitors_whose_cookie_they_lose(make_site):
    site = make_site(rules=LOSES)
    site.respond = history()
    # It could have been private, which neither the answer to a HEAD nor an error shows.
    site.get(PAGE, cookie("history=/b"), method="HEAD")
    site.respond = answering({}, status=404)
    site.get(PAGE, cookie("history=/b"))
    site.respond = history()
    assert keeps(site)
    for sent, start in (
        ("history=/b", "fwd=miss; stored"),
        ("history=/c; seen=1", "hit"),
        (None, "hit"),
        ("tracked=1", "hit"),
        ("tracked=1;history=/b", "hit"),
    ):
        answer = site.get(PAGE, cookie(sent))
        assert answer.detail.startswith(start), sent
        assert answer.body.startswith(b"none")
        assert "set-cookie" not in answer.headers
    dark = site.get(PAGE, cookie("history=/b; theme=dark"))
    assert (dark.body.split()[0], dark.detail) == (b"theme=dark", "fwd=vary-miss; stored")


@pytest.mark.parametrize(
    ("control", "how"),
    [
        ("max-age=60", {"target": "/other"}),
        ("max-age=60", {"target": "/catalogue/private"}),
        *(("max-age=60", {"method": method}) for method in ("POST", "PUT", "OPTIONS")),
        *((control, {}) for control in ("private", "no-store", "private, max-age=60")),
        *(
            (control, {"headers": headers})
            for headers in ({"Authorization": "Basic x"}, {"Cache-Control": "no-store"})
            for control in ("private", "max-age=60")
        ),
        *((control, {"sent": "history=/b; sid=1"}) for control in ("private", "max-age=60")),
    ],
)
def test_a_request_whose_page_may_be_for_one_visitor_keeps_the_cookie(make_site, control, how):
    site = make_site(rules=LOSES, session_cookies=["sid"])
    site.respond = history(control)
    assert [keeps(site, **how) for _ in range(3)] == [True] * 3


def test_a_page_that_was_private_for_another_visitor_keeps_the_cookie_from_the_first_request_on(make_site):
    site = make_site(rules=LOSES)
    site.respond = history("private")
    for target in ("/catalogue/b", "/catalogue/b?c"):
        assert [keeps(site, target, sent) for sent in ("history=/b", "history=/b; theme=dark")] == [True, True]
    # A visitor without cookies has left a mark, so that one request a second may be stored.
    site.get("/catalogue/c")
    assert keeps(site, "/catalogue/c")


def test_a_page_that_becomes_private_sends_no_cookie_that_it_sets_without_having_seen_it(make_site):
    site = make_site(rules=LOSES)
    site.respond = history()
    assert keeps(site)
    site.respond = history("private")
    assert [keeps(site) for _ in range(2)] == [False, True]


def test_another_cookie_that_the_page_sets_keeps_it_out(make_site):
    site = make_site(rules=LOSES)
    site.respond = answering({"cache-control": "max-age=60", "set-cookie": "historyx=1"})
    answer = site.get(PAGE)
    assert (answer.detail, answer["set-cookie"]) == ('fwd=miss; detail="sets cookie historyx"', "historyx=1")
