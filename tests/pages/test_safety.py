"""No visitor gets another visitor's page: poisoning, deception, and requests that a key must not confuse. For both
drivers."""

import re

import pytest

from tests.pages import users
from tests.pages.site import AsgiSite, Request, Response
from wheelcache.pages import bypass
from wheelcache.pages.keys import page_key
from wheelcache.pages.request import KEYED_HEADERS

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

USUAL = {"cache-control": "max-age=60"}
USUAL_BYTES = [(b"cache-control", b"max-age=60")]


def echo(name, vary=None):
    """An application whose page shows a request header."""

    def respond(request):
        headers = USUAL if vary is None else {**USUAL, "vary": vary}
        return Response(repr(request.headers.get(name)).encode(), headers)

    return respond


def echo_url(request):
    return Response(f"{request.path}?{request.query}".encode("latin-1", "replace"), USUAL)


# Keys.


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a%3Fb", "/a?b"),
        ("/a", "/a?"[:-1] + "?x"),
        ("/a%2Fb", "/a/b"),
        ("/a%2fb?c", "/a/b?c"),
        ("/a/../b", "/b"),
        ("//a", "/a"),
        ("/A", "/a"),
        ("/a?b=1&c=2", "/a?c=2&b=1"),
        ("/a?b", "/a?b="),
        ("/a;b", "/a"),
        ("/a%00", "/a"),
        ("/account.css", "/account"),
        ("/account/x.css", "/account"),
        ("/a%C4%80b", "/a"),
    ],
)
def test_requests_for_different_pages_have_different_keys(site, one, other):
    site.respond = echo_url
    site.get(one)
    site.get(other)
    assert site.runs == 2


def test_a_host_is_never_a_part_of_a_path(site):
    site.get("/b/c", host="a")
    site.get("/c", host="a/b")
    assert site.runs == 2
    # An application may show the host as it was sent.
    site.get("/b/c", host="A")
    assert site.runs == 3


def test_no_part_of_a_key_flows_into_another():
    parts = ["http", "a", "/r", "q", "", "/p"]
    keys = {page_key(*parts)}
    for place in range(len(parts)):
        for text in ("", "/", "?", "q", "/r", "/p", "a/r", "\n", "\xff"):
            changed = parts.copy()
            changed[place] += text or "x"
            keys.add(page_key(*changed))
    # Every change has made another key.
    assert len(keys) == 1 + len(parts) * 9


@pytest.mark.parametrize(
    "strange",
    [
        {"method": "get"},
        {"method": "Get"},
        {"host": "example.com, evil.example"},
        {"headers": [("host", "evil.example")]},
        {"body": b"x=1"},
        {"headers": {"transfer-encoding": "chunked"}},
        {"headers": {"transfer-encoding": "chunked", "content-length": "3"}},
        {"headers": {"upgrade": "h2c"}},
        {"headers": {"expect": "100-continue"}},
    ],
)
def test_a_strange_request_neither_gets_nor_makes_a_stored_page(site, strange):
    # wsgiref's validator refuses some of these.
    for how in (strange, {}, strange):
        site.get_unchecked(**how)
    assert (site.runs, site.stats().stored) == (3, 1)


# Headers that no Vary names.


@pytest.mark.parametrize("name", [name.decode() for name in sorted(KEYED_HEADERS)])
def test_an_unkeyed_header_poisons_no_page(site, name):
    site.respond = echo(name)
    for value in ("evil", None, "evil", "other", None, ""):
        headers = {} if value is None else {name: value}
        assert site.get(headers=headers).body == repr(value).encode()
    assert site.runs == 4


def test_a_page_that_was_made_without_such_a_header_is_not_used_for_a_request_with_one(site):
    site.respond = echo("x-forwarded-host")
    assert site.get().body == b"None"
    assert site.get(headers={"x-forwarded-host": "a.example"}).body == b"'a.example'"


def test_a_header_that_a_page_does_not_depend_on_is_not_hidden_by_one_that_it_depends_on(site):
    site.respond = lambda request: Response(repr(sorted(request.headers.items())).encode(), USUAL)
    one, two = {"x-forwarded-proto": "https"}, {"x-forwarded-proto": "https", "x-forwarded-host": "evil"}
    bodies = [site.get(headers=headers).body for headers in (one, two, one, two, {}, one)]
    assert [b"evil" in body for body in bodies] == [False, True, False, True, False, False]
    assert [b"https" in body for body in bodies] == [True] * 4 + [False, True]
    assert site.runs == 3


def test_a_page_behind_a_proxy_is_made_once_for_each_visitor_of_the_cookie(make_site):
    site = make_site(session_cookies=["sessionid"])
    site.respond = echo("cookie", vary="Cookie")
    for _ in range(3):
        for value in (None, "a=1", "sessionid=1", "sessionid=2"):
            headers = {"x-forwarded-proto": "https"} | ({} if value is None else {"cookie": value})
            assert site.get(headers=headers).body == repr(value).encode()
    assert site.runs == 4


def test_a_header_with_underscores_poisons_no_page(site):
    # Some servers and frameworks take it for the one with hyphens.
    def respond(request):
        names = {name.replace("_", "-"): value for name, value in request.headers.items()}
        return Response(repr(names.get("x-forwarded-host")).encode(), USUAL)

    site.respond = respond
    site.get(headers={"x_forwarded_host": "evil"})
    assert site.get().body == b"None"


def test_an_oversized_or_malformed_header_never_makes_a_stored_page(site):
    # CPDoS: the application answers with an error, which would be stored for all visitors.
    def respond(request):
        wrong = any(len(value) > 4096 or "\x07" in value for value in request.headers.values())
        return Response(b"bad request" if wrong else b"page", USUAL, 400 if wrong else 200)

    site.respond = respond
    for value in ("x" * 5000, "a\x07b"):
        assert site.get(headers={"x-meta": value}).status == 400
        assert site.stats().stored == 0
    assert site.get().body == b"page"


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("headers", [{}, {"cache-control": "private, max-age=60"}, {"content-type": "text/css"}])
@pytest.mark.parametrize(
    "target", ["/account/x.css", "/account;x.js", "/account%2Fx.png", "/account?x.ico", "/static/../account"]
)
def test_a_suffix_does_not_let_a_private_page_be_stored(site, target, headers):
    # Cache deception: the victim follows a link to a private page that looks like a file.
    site.respond = lambda request: Response(repr(request.headers.get("cookie")).encode(), headers)
    assert site.get(target, {"cookie": "user=alice"}).body == b"'user=alice'"
    assert site.get(target).body == b"None"
    assert site.stats().stored == 0


def test_a_method_override_poisons_no_page(site):
    site.respond = lambda request: Response(request.headers.get("x-http-method-override", "GET").encode(), USUAL)
    site.get(headers={"x-http-method-override": "DELETE"})
    assert site.get().body == b"GET"


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("name", ["if-none-match", "if-modified-since", "if-range"])
@pytest.mark.parametrize("more", [None, {"authorization": "Basic YTpi"}])
def test_a_condition_that_the_application_sees_poisons_no_page(site, more, name):
    # Some requests for pages that could not be stored, and those with Authorization, wait for no other one.
    if more is None:
        site.respond = lambda request: Response(headers={"cache-control": "no-store"})
        site.get()
    public = {"cache-control": "public, max-age=60"}
    site.respond = lambda request: Response(repr(request.headers.get(name)).encode(), public)
    assert site.get(headers={**(more or {}), name: "evil"}).body == b"'evil'"
    assert site.get().body == b"None"
    assert site.get().detail.startswith("hit")


# Vary.


def test_an_absent_header_differs_from_an_empty_one(site):
    site.respond = echo("x-a", vary="X-A")
    for value in (None, "", "1", None, "", "1"):
        assert site.get(headers={} if value is None else {"x-a": value}).body == repr(value).encode()
    assert site.runs == 3


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x-a": '"a, b"'}, {"x-a": '"a,b"'}),
        ({"x-a": '"a", "b"'}, {"x-a": '"a, b"'}),
        ({"x-a": "a", "x-b": "b"}, {"x-a": "b", "x-b": "a"}),
        ({"x-a": "a"}, {"x-b": "a"}),
        ({"x-a": "None"}, {}),
        ({"accept-language": "en, de"}, {"accept-language": "de, en"}),
        ({"accept-language": "en;q=0.5, de"}, {"accept-language": "en, de"}),
        ({"accept-encoding": "gzip"}, {"accept-encoding": "br"}),
        ({"accept-encoding": "gzip"}, {}),
        ({"cookie": "a=1"}, {"cookie": "a=2"}),
        ({"user-agent": "a, b"}, {"user-agent": "a,b"}),
        ({"x-a": "DE"}, {"x-a": "DE,"}),
        ({"x-a": "a,b"}, {"x-a": "a, b"}),
        ({"accept-language": "de"}, {"accept-language": ",de"}),
        ({"accept-language": "de"}, {"accept-language": "d e"}),
        ({"accept-language": "de;q=0.5"}, {"accept-language": "de;q=0.5000"}),
        ({"accept-language": "de" + ",en" * 200}, {"accept-language": "de" + ", en" * 200}),
    ],
)
def test_requests_with_different_needs_get_different_variants(site, one, other):
    site.respond = lambda request: Response(
        repr([request.headers.get(name) for name in ("x-a", "x-b", "accept-language", "cookie")]).encode(),
        {**USUAL, "vary": "X-A, X-B, Accept-Language, Accept-Encoding, Cookie, User-Agent"},
    )
    for headers in (one, other, one, other):
        site.get(headers=headers)
    assert site.runs == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"accept-language": "en,de;q=0.5"}, {"accept-language": "EN, de; q=0.5"}),
        ({"accept-encoding": "gzip, br"}, {"accept-encoding": "br,gzip, identity"}),
    ],
)
def test_requests_with_the_same_needs_share_a_variant(site, one, other):
    site.respond = lambda request: Response(b"page", {**USUAL, "vary": "X-A, Accept-Language, Accept-Encoding"})
    site.get(headers=one)
    site.get(headers=other)
    assert site.runs == 1


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("spelling", ["*", "GZIP", "Gzip", "gzip;q=0", "gzip, *;q=0.1", "x-gzip", "gzip," * 60])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_with_an_unusual_accept_encoding_changes_no_page_of_others(site, spelling, when):
    # As GZipMiddleware of Django: frameworks disagree about these spellings, and a plain list means the same to all.
    def respond(request):
        compresses = re.search(r"\bgzip\b", request.headers.get("accept-encoding", "")) is not None
        headers = {**USUAL, "vary": "Accept-Encoding", **({"content-encoding": "gzip"} if compresses else {})}
        return Response(b"zip" if compresses else b"plain", headers)

    site.respond = respond
    usual = [{"accept-encoding": "gzip, br"}, {"accept-encoding": "br"}, {}]
    if when == "after":
        assert [site.get(headers=headers).body for headers in usual] == [b"zip", b"plain", b"plain"]
    unusual = {"accept-encoding": spelling}
    expected = respond(Request("GET", "/", "", unusual, None)).body
    assert [site.get(headers=unusual).body for _ in range(3)] == [expected] * 3
    assert [site.get(headers=headers).body for headers in usual] == [b"zip", b"plain", b"plain"]
    assert site.runs == 6
    assert site.stats().stored == 3


@pytest.mark.parametrize("accepted", ["br", "x-gzip"])
def test_a_coding_that_the_client_does_not_accept_is_not_stored(site, accepted):
    site.respond = lambda request: Response(b"zip", {**USUAL, "vary": "Accept-Encoding", "content-encoding": "gzip"})
    site.get(headers={"accept-encoding": accepted})
    assert site.stats().not_stored == {"encoding": 1}
    for _ in range(4):
        site.get(headers={"accept-encoding": "gzip"})
    assert site.runs == 2


def test_a_page_whose_vary_changes_is_keyed_by_the_union(site, clock):
    def respond(request):
        # The first answer for each visitor does not show that the page depends on the cookie as well.
        vary = "Cookie, Accept-Language" if "cookie" in request.headers else "Accept-Language"
        return Response(repr(sorted(request.headers.items())).encode(), {**USUAL, "vary": vary})

    site.respond = respond
    for headers in (
        {"accept-language": "de"},
        {"accept-language": "en", "cookie": "a"},
        {"accept-language": "en", "cookie": "b"},
        {"accept-language": "de"},
        {"accept-language": "en", "cookie": "a"},
    ):
        expected = repr(sorted({"host": "example.com", **headers}.items()))
        assert site.get(headers=headers).body == expected.encode()


def test_a_variant_that_lives_longer_than_the_first_one_is_found_until_its_own_end(site, clock):
    for value, seconds in (("1", 10), ("2", 100)):
        site.respond = lambda request, seconds=seconds: Response(
            b"page", {"cache-control": f"max-age={seconds}", "vary": "X-Kind"}
        )
        site.get(headers={"x-kind": value})
    clock.advance(50)
    site.get(headers={"x-kind": "2"})
    assert site.runs == 2


def test_a_page_has_at_most_32_variants_and_keeps_those_in_use(site):
    site.respond = echo("accept-language", vary="Accept-Language")
    site.get(headers={"accept-language": "de"})
    for number in range(100):
        site.get(headers={"accept-language": f"x-{number}"})
        assert site.get(headers={"accept-language": "de"}).body == b"'de'"
    assert site.runs == 101
    # The list of the variants is an entry of its own.
    assert len(site.cache.cache) == 33


def test_an_option_names_the_cookies_on_which_pages_depend(make_site):
    site = make_site(cookies=["theme"])
    site.respond = echo("cookie", vary="Cookie")
    site.get(headers={"cookie": "analytics=1; theme=dark"})
    assert site.get(headers={"cookie": "theme=dark; analytics=2"}).body == b"'analytics=1; theme=dark'"
    site.get(headers={"cookie": "analytics=1; theme=light"})
    site.get(headers={"cookie": "analytics=1"})
    site.get(headers={"cookie": "theme=dark; theme=light"})
    assert site.runs == 4


# Notes of the application.


def test_a_page_depends_on_the_cookies_and_headers_that_the_application_names(site):
    def respond(request):
        request.notes.vary_on(headers=["X-Zone"], cookies=["theme"])
        return Response(repr((request.headers.get("x-zone"), request.headers.get("cookie"))).encode(), USUAL)

    site.respond = respond
    for headers in (
        {"cookie": "theme=dark", "x-zone": "1"},
        {"cookie": "theme=dark", "x-zone": "2"},
        {"cookie": "theme=light", "x-zone": "1"},
        {"x-zone": "1"},
    ):
        bodies = {site.get(headers=headers).body for _ in range(2)}
        assert bodies == {repr((headers.get("x-zone"), headers.get("cookie"))).encode()}
    assert site.runs == 4
    assert site.get(headers={"cookie": "x=1; theme=dark", "x-zone": "1"}).body == b"('1', 'theme=dark')"


def test_a_page_that_the_application_refuses_is_not_stored(site):
    def respond(request):
        request.notes.refuse("messages")
        return Response()

    site.respond = respond
    site.get()
    site.get()
    assert site.runs == 2
    assert site.stats().not_stored == {"messages": 2}


def test_with_a_companion_a_page_without_notes_is_not_stored(make_site):
    site = make_site(has_companion=True)
    site.get("/")
    assert site.stats().not_stored == {"companion": 1}

    def respond(request):
        request.notes.vary_on()
        return Response()

    site.respond = respond
    site.get("/2")
    site.get("/2")
    assert site.runs == 2


def test_a_request_with_a_session_gets_only_pages_that_depend_on_it(make_site):
    site = make_site(session_cookies=["sessionid"])
    site.get("/public")
    assert site.get("/public", {"cookie": "sessionid=1"}).detail.startswith("fwd=miss")
    assert site.get("/public", {"cookie": "other=1"}).detail.startswith("hit")
    assert site.stats().not_stored == {"session": 1}
    site.respond = echo("cookie", vary="Cookie")
    for value in ("sessionid=1", "sessionid=2", "sessionid=1"):
        assert site.get("/own", {"cookie": value}).body == repr(value).encode()
    assert site.runs == 4


def test_a_page_that_a_visitor_with_a_session_cannot_store_is_stored_by_the_next_one(make_site):
    site = make_site(session_cookies=["sessionid"])
    for cookie in ("sessionid=1", "other=1", "sessionid=1", "other=1"):
        site.get(headers={"cookie": cookie})
    assert (site.runs, site.stats().stored, site.stats().not_stored) == (3, 1, {"session": 2})


# Two users.


@pytest.mark.deep
def test_mixed_requests_of_two_users_never_mix_their_pages(site):
    """20,000 requests, for pages that depend on the user in every way that an application has."""

    def respond(request):
        headers, user = users.respond(request.path, request.headers, request.notes)
        return Response(user.encode(), headers)

    site.respond = respond
    requests = users.requests(20_000)
    answers = site.get_together(requests)
    assert [answer.body.decode() for answer in answers] == [value for _, own in requests for value in own.values()]
    stats = site.stats()
    assert stats.fresh > 8_000
    assert stats.not_stored.keys() == {"private", "set-cookie", "authorization", "user"}


def test_an_application_that_uses_one_of_several_lines_sees_what_is_in_the_key(clock):
    site = AsgiSite(clock)

    async def first_line(scope, receive, send):
        found = next((value for name, value in scope["headers"] if name == b"x-country"), b"none")
        await send({"type": "http.response.start", "status": 200, "headers": [*USUAL_BYTES, (b"vary", b"X-Country")]})
        await send({"type": "http.response.body", "body": found})

    site.app = site.cache.asgi(first_line)
    sent = (["de"], ["evil", "de"], ["de", "evil"], ["de, evil"], ["de"])
    bodies = [site.get(headers=[("X-Country", line) for line in lines]).body for lines in sent]
    assert bodies == [b"de", b"evil, de", b"de, evil", b"de, evil", b"de"]


def test_a_name_that_is_another_one_in_upper_case_poisons_no_page(asgi):
    # Django makes HTTP_X_FORWARDED_SSL of both.
    asgi.respond = lambda request: Response(
        repr({name.upper(): value for name, value in request.headers.items()}.get("X-FORWARDED-SSL")).encode(), USUAL
    )
    asgi.get(headers={"x-forwarded-\xdfl": "evil"})
    assert asgi.get().body == b"None"


def test_the_path_of_a_scope_without_the_raw_path_is_not_decoded_again(asgi):
    asgi.respond = lambda request: Response(request.path.encode(), USUAL)
    whole = asgi.scope
    asgi.scope = lambda *parts: {name: value for name, value in whole(*parts).items() if name != "raw_path"}
    assert asgi.get("/%2541").body == b"/%41"
    assert asgi.get("/A").body == b"/A"


def test_a_path_that_a_middleware_in_front_of_the_cache_has_changed_is_the_path_of_the_page(clock):
    site = AsgiSite(clock, rules=[("/de/private", bypass())])
    site.respond = lambda request: Response(request.path.encode(), USUAL)
    whole = site.scope
    site.scope = lambda *parts: {**whole(*parts), "path": "/de" + whole(*parts)["path"].removeprefix("/x")}
    for target, body in (("/a", b"/de/a"), ("/x/a", b"/de/a"), ("/b%2Fc", b"/de/b/c"), ("/b", b"/de/b")):
        assert site.get(target).body == body
    assert site.runs == 3
    assert site.get("/x/private").detail == 'fwd=bypass; detail="rule of the site"'
    assert site.cache.purge("http://example.com/de/a") == 1


def test_paths_that_are_not_utf_8_have_pages_of_their_own(asgi):
    asgi.respond = lambda request: Response(repr(asgi.runs).encode(), USUAL)
    assert len({asgi.get(target).body for target in ("/%ff", "/%fe", "/%EF%BF%BD", "/%ff")}) == 3
    assert asgi.cache.purge("http://example.com/%fe") == 1


def test_a_rule_applies_to_a_path_that_begins_with_the_letters_of_its_root(clock):
    site = AsgiSite(clock, rules=[("/a/*", bypass())])
    whole = site.scope
    # As servers do that leave the root out of the path.
    site.scope = lambda *parts: {**whole(*parts), "root_path": "/a"}
    assert site.get("/about").detail == 'fwd=bypass; detail="rule of the site"'
