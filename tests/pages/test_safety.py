"""No visitor gets another visitor's page: poisoning, deception, and requests that a key must not confuse. For both
drivers."""

import re

import pytest

from tests.pages.site import USUAL, AsgiSite, Request, Response, answer_of, answering, echo
from wheelcache.pages import bypass, without_cookies
from wheelcache.pages.keys import LONGEST_KEY, digest, page_key
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.reads import Reads
from wheelcache.pages.request import KEYED_HEADERS

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")


def echo_path(request):
    return Response(request.path.encode("latin-1", "replace"))


# Keys.


@pytest.mark.pairs
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("/a%3Fb", "/a?b"),
        ("/a", "/a?x"),
        ("/a%2Fb", "/a/b"),
        ("/a%2fb?c", "/a/b?c"),
        ("/a/../b", "/b"),
        ("//a", "/a"),
        ("/A", "/a"),
        ("/a?b=1&c=2", "/a?c=2&b=1"),
        ("/a?b", "/a?b="),
        ("/a;b", "/a"),
        ("/a%00", "/a"),
        ("/account/x.css", "/account"),
        ("/a%C4%80b", "/a"),
        ("/" + "a" * 4000, "/" + "a" * 3999),
    ],
)
def test_requests_for_different_pages_have_different_keys(site, one, other):
    for target in (one, other):
        assert site.get(target).detail == "fwd=miss; stored"


def test_a_host_is_never_a_part_of_a_path(site):
    # An application may show the host as it was sent.
    for target, host in (("/b/c", "a"), ("/c", "a/b"), ("/b/c", "A")):
        assert site.get(target, host=host).detail == "fwd=miss; stored"


@pytest.mark.parametrize("length", [0, LONGEST_KEY])
def test_no_part_of_a_key_flows_into_another(length):
    parts = ["http", "a", "/r", "q", "", "/p" + "x" * length]
    keys = {page_key(*parts)}
    for place in range(len(parts)):
        for text in ("", "/", "?", "q", "/r", "/p", "a/r", "\n", "\xff"):
            changed = parts.copy()
            changed[place] += text or "x"
            keys.add(page_key(*changed))
    # Every change has made another key.
    assert len(keys) == 1 + len(parts) * 9
    assert all(len(key) <= LONGEST_KEY for key in keys)
    # Nobody else can compute the short form of a long one.
    assert page_key(*parts)[1:] != digest("\u0100".join(parts))


@pytest.mark.parametrize(
    "strange",
    [
        {"method": "get"},
        {"host": ""},
        {"host": "example.com, evil.example"},
        {"headers": [("host", "evil.example")]},
        {"body": b"x=1"},
        {"headers": {"transfer-encoding": "chunked"}},
        {"headers": {"upgrade": "h2c"}},
        {"headers": {"expect": "100-continue"}},
        {"headers": {"if-match": '"a"'}},
        {"headers": {"if-unmodified-since": "Tue, 14 Nov 2023 22:13:20 GMT"}},
    ],
)
def test_a_strange_request_neither_gets_nor_makes_a_stored_page(site, strange):
    # wsgiref's validator refuses some of these.
    for how in (strange, {}, strange):
        site.get_unchecked(**how)
    assert (site.runs, site.stats().stored) == (3, 1)


@pytest.mark.parametrize(("length", "is_stored"), [(4096, True), (4097, False)])
def test_a_long_url_bypasses_the_cache(site, length, is_stored):
    site.get("/path?" + "x" * (length - 5))
    assert site.stats().stored == is_stored


# Headers that no Vary names.


@pytest.mark.parametrize("name", [name.decode() for name in sorted(KEYED_HEADERS)])
def test_a_header_that_no_vary_names_poisons_no_page(site, name):
    site.respond = echo(name)
    for value in ("evil", None, "evil", "other", None, ""):
        headers = {} if value is None else {name: value}
        assert site.get(headers=headers).body == repr(value).encode()
    # Those that are absent, empty, "evil" and "other". None is missing from the list.
    assert (site.runs, len(KEYED_HEADERS)) == (4, 24)


def test_a_header_that_a_page_does_not_depend_on_is_not_hidden_by_one_that_it_depends_on(site):
    site.respond = lambda request: Response(repr(sorted(request.headers.items())).encode(), USUAL)
    one, two = {"x-forwarded-proto": "https"}, {"x-forwarded-proto": "https", "x-forwarded-host": "evil"}
    bodies = [site.get(headers=headers).body for headers in (one, two, one, two, {}, one)]
    assert [b"evil" in body for body in bodies] == [False, True, False, True, False, False]
    assert [b"https" in body for body in bodies] == [True] * 4 + [False, True]
    assert site.runs == 3


@pytest.mark.parametrize("name", ["x_forwarded_ssl", "x-forwarded-\xdfl"])
def test_a_name_that_frameworks_take_for_another_one_poisons_no_page(asgi, name):
    # Django makes HTTP_X_FORWARDED_SSL of it.
    def respond(request):
        names = {name.upper().replace("-", "_"): value for name, value in request.headers.items()}
        return Response(repr(names.get("X_FORWARDED_SSL")).encode())

    asgi.respond = respond
    assert [asgi.get(headers=headers).body for headers in ({name: "evil"}, {})] == [b"'evil'", b"None"]


@pytest.mark.parametrize("value", ["x" * 4097, "a\x07b", "a\x7fb"])
def test_an_oversized_or_malformed_header_never_makes_a_stored_page(site, value):
    # CPDoS: the application answers with an error, which would be stored for all visitors.
    site.respond = answering(USUAL, status=400)
    assert site.get_unchecked(headers={"x-meta": value}).status == 400
    site.respond = answering()
    assert (site.stats().stored, site.get().status) == (0, 200)
    # All others do.
    assert site.get("/2", {"x-meta": "\x20\t~\xff".ljust(4096)}).detail == "fwd=miss; stored"


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"x-a": "a", "x-b": "b"}, {"x-a": "b", "x-b": "a"}),
        ({"x-a": "a"}, {"x-b": "a"}),
        ({"x-a": "None"}, {}),
        ({"x-a": ""}, {}),
        ({"accept-language": "en, de"}, {"accept-language": "de, en"}),
        ({"accept-language": "en;q=0.5, de"}, {"accept-language": "en, de"}),
        ({"accept-language": "de;q=0.5"}, {"accept-language": "de;q=0.5000"}),
        ({"accept-language": "de" + ",en" * 200}, {"accept-language": "de" + ", en" * 200}),
    ],
)
def test_requests_with_different_needs_get_different_variants(site, one, other):
    site.respond = answering({**USUAL, "vary": "X-A, X-B, Accept-Language"})
    assert site.found(one, other, one, other) == ["fwd", "fwd", "hit", "hit"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"accept-language": "en,de;q=0.5"}, {"accept-language": "EN, de; q=0.5"}),
        ({"accept-encoding": "gzip, br"}, {"accept-encoding": "br,gzip, identity"}),
        ({"accept-encoding": "zstd"}, {"accept-encoding": "zstd, dcz"}),
    ],
)
def test_requests_with_the_same_needs_share_a_variant(site, one, other):
    site.respond = answering({**USUAL, "vary": "X-A, Accept-Language, Accept-Encoding"})
    assert site.found(one, other) == ["fwd", "hit"]


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
    assert site.found(*[{"accept-encoding": "gzip"}] * 3) == ["fwd", "hit", "hit"]


def test_a_page_whose_vary_changes_is_keyed_by_the_union(site, clock):
    def respond(request):
        # The first answer for each visitor does not show that the page depends on the cookie as well.
        return Response(headers={**USUAL, "vary": "Cookie" if "cookie" in request.headers else "Accept-Language"})

    site.respond = respond
    german, one, other = ({"accept-language": "de"}, *({"accept-language": "en", "cookie": each} for each in "ab"))
    assert site.found(german, one, other, german) == ["fwd"] * 4
    # With the list of the variants. The first page is gone.
    assert len(site.cache.cache) == 4
    assert site.found(german, one, other, {"accept-language": "fr", "cookie": "a"}) == ["hit"] * 3 + ["fwd"]


@pytest.mark.parametrize("lifetimes", [(10, 100), (100, 10)])
def test_a_variant_is_found_until_its_own_end(site, clock, lifetimes):
    for seconds in lifetimes:
        site.respond = answering({"cache-control": f"max-age={seconds}", "vary": "X-Kind"})
        site.get(headers={"x-kind": f"{seconds}"})
    clock.advance(50)
    assert site.found({"x-kind": "10"}, {"x-kind": "100"}) == ["fwd", "hit"]


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
    site = make_site(cookies=["theme"], session_cookies=["sid"])
    site.respond = answering({**USUAL, "vary": "Cookie"})
    different = ["a=1; theme=dark", "a=1; theme=light", "a=1", "theme=dark; theme=light", "theme=light; theme=dark"]
    # A page that varies by cookie depends on the session, whichever of the cookies that is.
    different += ["theme=dark; sid=1", "theme=dark; sid=2"]
    assert site.found(*({"cookie": each} for each in different)) == ["fwd"] * 7
    assert site.found(*({"cookie": each} for each in ("theme=dark; a=2", "b=1", "sid=1; theme=dark"))) == ["hit"] * 3


# Notes of the application.


@pytest.mark.parametrize(("traces", "kept"), [(None, ["a"]), (Reads(), ["a", "b"])])
def test_only_the_notes_of_a_run_whose_reads_are_recorded_keep_all_refusals(traces, kept):
    notes = PageNotes(traces=traces)
    for reason in "ab":
        notes.refuse(reason)
    assert [each.reason for each in notes.refusals] == kept


def test_with_a_companion_a_page_without_notes_is_not_stored(make_site):
    site = make_site(has_companion=True)
    site.get("/")
    assert site.stats().not_stored == {"companion": 1}
    site.respond = answering(notes=lambda notes: notes.vary_on())
    assert site.found({}, {}, target="/2") == ["fwd", "hit"]


@pytest.mark.parametrize("more", [{}, {"x-forwarded-proto": "https"}])
def test_a_request_with_a_session_gets_only_pages_that_depend_on_it(make_site, more):
    site = make_site(session_cookies=["sessionid"])
    # The page that a visitor with a session cannot store is stored by the next one.
    cookies = ("sessionid=1", "other=1", "sessionid=1", "other=1", "xsessionid=1", 'sessionid="')
    details = [site.get("/public", {"cookie": cookie, **more}).detail for cookie in cookies]
    assert [detail.startswith("hit") for detail in details] == [False, False, False, True, True, False]
    assert (site.stats().stored, site.stats().not_stored) == (1, {"session": 3})
    site.respond = echo("cookie", vary="Cookie")
    for _ in range(2):
        for value in (None, "other=1", "sessionid=1", "sessionid=2"):
            headers = more if value is None else {"cookie": value, **more}
            assert site.get("/own", headers).body == repr(value).encode()
    # Each of these pages was made once.
    assert site.runs == 4 + 4


# Two users.


def test_an_application_that_uses_one_of_several_lines_sees_what_is_in_the_key(clock):
    site = AsgiSite(clock)

    async def first_line(scope, receive, send):
        found = next((value for name, value in scope["headers"] if name == b"x-country"), b"none")
        headers = [(b"cache-control", b"max-age=60"), (b"vary", b"X-Country")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": found})

    site.app = site.cache.asgi(first_line)
    sent = (["de"], ["evil", "de"], ["de", "evil"], ["de, evil"], ["de"])
    bodies = [site.get(headers=[("X-Country", line) for line in lines]).body for lines in sent]
    assert bodies == [b"de", b"evil, de", b"de, evil", b"de, evil", b"de"]


def test_a_scope_may_lack_all_that_is_optional_and_its_path_is_not_decoded_again(asgi):
    asgi.respond = echo_path
    whole = asgi.scope
    asgi.scope = lambda *parts: {name: whole(*parts)[name] for name in ("type", "method", "path", "headers")}
    for target, body in (("/%2541", b"/%41"), ("/A", b"/A"), ("/%C3%A9", b"/\xe9"), ("/%C3%A9", b"/\xe9")):
        assert asgi.get(target).body == body
    assert asgi.runs == 3


def test_a_path_that_a_middleware_in_front_of_the_cache_has_changed_is_the_path_of_the_page(clock):
    site = AsgiSite(clock, rules=[("/de/private", bypass())])
    site.respond = echo_path
    whole = site.scope
    site.scope = lambda *parts: {**whole(*parts), "path": "/de" + whole(*parts)["path"].removeprefix("/x")}
    for target, body in (("/a", b"/de/a"), ("/x/a", b"/de/a"), ("/b%2Fc", b"/de/b/c"), ("/b", b"/de/b")):
        assert site.get(target).body == body
    assert site.runs == 3
    assert site.get("/x/private").detail == 'fwd=bypass; detail="rule of the site"'
    assert site.cache.purge("http://example.com/de/a") == 1


BY_RULE = 'fwd=bypass; detail="rule of the site"'


def test_rules_apply_to_the_path_with_the_script_name(make_site):
    site = make_site(rules=[("/shop/a", bypass()), ("/shop/b", without_cookies("seen"))])
    # As servers do that leave the root out of the path.
    name, part = ("scope", "root_path") if hasattr(site, "scope") else ("environ", "SCRIPT_NAME")
    whole = getattr(site, name)
    setattr(site, name, lambda *parts: {**whole(*parts), part: "/shop"})
    site.respond = echo("cookie", vary="Cookie")
    assert site.get_unchecked("/a").detail == BY_RULE
    assert [site.get_unchecked("/b", headers).body for headers in ({}, {"cookie": "seen=1"})] == [b"None"] * 2


def test_the_root_of_an_asgi_application_is_a_part_of_its_paths_or_in_front_of_them(clock):
    site = AsgiSite(clock, rules=[("/a/about", bypass()), ("/a/b", bypass())])
    whole = site.scope
    site.scope = lambda *parts: {**whole(*parts), "root_path": "/a"}
    assert [site.get(target).detail for target in ("/about", "/a/b", "/b")] == [BY_RULE] * 3


@pytest.mark.parametrize("name", ["HTTP_CONTENT_TYPE", "HTTP_CONTENT_LENGTH"])
def test_an_entry_of_an_environ_that_frameworks_take_for_another_makes_no_page(wsgi, name):
    environ = wsgi.environ(*wsgi.parts()) | {name: "1"}
    answer = answer_of(wsgi.cache.wsgi(wsgi.application), environ)
    assert answer.detail == 'fwd=bypass; detail="unsafe header in the request"'
