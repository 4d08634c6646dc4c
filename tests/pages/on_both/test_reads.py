"""The parts of a request that a page reads are a part of its key, or keep it out of the cache."""

import copy
import operator
import pickle
from collections import ChainMap
from threading import Lock
from urllib.parse import quote

import flask
import orjson
import pytest
from django.core.handlers.base import BaseHandler
from django.utils.safestring import mark_safe

from tests.pages.on_both.sites import cookies_of, environ_of, logged_in, of_each, query_of, session_of
from tests.pages.site import hits, is_stored
from wheelcache.pages import ttl

# Reads of an item.

READS = {
    "a header": lambda request: request.headers.get("X-Flavor"),
    "a header in the environ": lambda request: environ_of(request).get("HTTP_X_FLAVOR"),
    "whether a header is there": lambda request: (
        "HTTP_X_FLAVOR" in (environ := environ_of(request)) and dict.get(environ, "HTTP_X_FLAVOR")
    ),
    "a header that is removed": lambda request: environ_of(request).pop("HTTP_X_FLAVOR", None),
    "an item by a safe name": lambda request: environ_of(request).get(mark_safe("HTTP_X_FLAVOR")),
    "the browser": lambda request: request.headers.get("User-Agent"),
    "the type": lambda request: environ_of(request).get("CONTENT_TYPE"),
    "a cookie": lambda request: cookies_of(request).get("flavor"),
    "a cookie by item": lambda request: "flavor" in (cookies := cookies_of(request)) and cookies["flavor"],
    "the cookie of the session": lambda request: (
        cookies_of(request).get("session") or cookies_of(request).get("sessionid")
    ),
}
OF_FLASK = {
    "a user agent": lambda request: request.user_agent.string or None,
    "languages": lambda request: request.accept_languages.best,
    "Connection": lambda request: request.headers.get("Connection"),
}


def flavored(flavor):
    names = ("X-Flavor", "User-Agent", "Accept-Language", "Connection", "Content-Type")
    return {**dict.fromkeys(names, flavor), "Cookie": f"flavor={flavor}; session={flavor}; sessionid={flavor}"}


@of_each(READS, flask=OF_FLASK)
def test_an_item_that_a_page_reads_is_a_part_of_its_key(make_site, item):
    site = make_site()
    site.add("/read", item)
    for _ in range(2):
        for flavor in ("de", "en"):
            assert flavor in site.get("/read", flavored(flavor)).body.decode()
        assert site.get("/read").body.split()[0] in (b"None", b"False", b"[]", b"")
    assert is_stored(site, "/read", {"X-Flavor": "de", "Cookie": "flavor=de"})


def test_whether_there_are_cookies_is_a_part_of_the_key(make_site):
    site = make_site()
    site.add("/any", lambda request: bool(cookies_of(request)))
    for _ in range(2):
        assert site.get("/any").body.startswith(b"False")
        assert site.get("/any", {"Cookie": "a=1"}).body.startswith(b"True")


def test_cookies_and_browsers_that_no_code_reads_make_no_variants(site):
    site.add("/plain", lambda request: "page")
    assert hits(site, "/plain") == 11


# Reads that no key can contain.


def with_stream(request):
    """Add an entry that cannot be copied, such as the streams of a server."""
    environ_of(request)["wsgi.stream"] = Lock()
    return request


def kept(request):
    request.kept = request.COOKIES
    return orjson.dumps(request.kept) if request.kept else None


def handled(request, path):
    handler = BaseHandler()
    handler.load_middleware()
    request.path_info = path
    return handler.get_response(request).content


def scope_of(request):
    return getattr(request, "scope", request.META)


REFUSED = {
    "the address": ("reads REMOTE_ADDR", lambda request: environ_of(request).get("REMOTE_ADDR")),
    "all cookies": ("reads all cookies", lambda request: dict(cookies_of(request))),
    "all cookies, unpacked": ("", lambda request: {**cookies_of(request)}),
    "all cookies, copied": ("", lambda request: copy.deepcopy(cookies_of(request))),
    "all cookies, pickled": ("", lambda request: pickle.loads(pickle.dumps(cookies_of(request)))),
    "all headers": ("reads all headers", lambda request: [*request.headers.items()]),
    "the number of headers": ("reads all headers", lambda request: len(request.headers)),
    "the user of the server": ("reads REMOTE_USER", lambda request: environ_of(request).get("REMOTE_USER")),
    "an entry of the server": ("reads SSL_CLIENT", lambda request: environ_of(request).get("SSL_CLIENT")),
    "the protocol": ("reads SERVER_PROTOCOL", lambda request: environ_of(request).get("SERVER_PROTOCOL")),
    "the port of the server": ("", lambda request: environ_of(request).get("SERVER_PORT")),
}
REFUSED_BY_DJANGO = {
    "all headers, copied deeply": ("", lambda request: copy.deepcopy(with_stream(request).headers)["X-Flavor"]),
    "META, pickled": ("", lambda request: pickle.loads(pickle.dumps(request.META))["HTTP_X_FLAVOR"]),
    "META of a copy of the request": ("", lambda request: dict(copy.copy(request).META)["HTTP_X_FLAVOR"]),
    "cookies that the request keeps, in C": ("", kept),
    "cookies of a copy, in C": ("", lambda request: orjson.dumps(copy.copy(request).COOKIES)),
    "all cookies, by another handler": ("", lambda request: handled(request, "/inner")),
    "the headers in the scope": ("", lambda request: scope_of(request).get("headers")),
    "the whole scope": ("", lambda request: {**scope_of(request)}),
}
REFUSED_BY_FLASK = {
    "address": ("reads REMOTE_ADDR", lambda request: request.remote_addr),
    "the environ of the headers, in C": ("", lambda request: orjson.dumps(request.headers.environ, default=str)),
    "address before the proxy": ("", lambda request: request.environ["werkzeug.proxy_fix.orig"]["REMOTE_ADDR"]),
}


@of_each(REFUSED, REFUSED_BY_DJANGO, REFUSED_BY_FLASK)
def test_a_page_that_cannot_be_keyed_is_not_stored(make_site, item):
    detail, read = item
    site, visitor = make_site(), {"Cookie": "a=1", "X-Flavor": "sweet"}
    site.add("/read", read)
    site.add("/inner", lambda request: dict(cookies_of(request)))
    assert site.get("/read", visitor).status == 200
    assert not is_stored(site, "/read", visitor)
    assert detail in site.get("/read").detail


@pytest.mark.parametrize("make_site", ["Django on WSGI", "Flask"], indirect=True)
@pytest.mark.parametrize("given", ["eu", "us"])
def test_an_entry_counts_unless_the_server_copies_it_from_the_environment_of_the_process(make_site, monkeypatch, given):
    monkeypatch.setenv("SITE_REGION", "eu")
    site = make_site()
    site.add("/region", lambda request: environ_of(request).get("SITE_REGION"))
    whole = site.environ
    site.environ = lambda *parts: whole(*parts) | {"SITE_REGION": given}
    assert is_stored(site, "/region") is (given == "eu")


# Accesses that read nothing that differs.


ASKED = {
    "an item that is set": lambda request: environ_of(request).__setitem__("site.item", "value"),
    "an item of an object of the class": lambda request: (
        type(found := cookies_of(request))({"theme": "dark"}) and found.get("theme")
    ),
}
ASKED_IN_DJANGO = {
    "whether there are cookies": lambda request: "some" if request.COOKIES else "none",
    "another page, by another handler": lambda request: handled(request, "/inner"),
}
ASKED_IN_FLASK = {
    "whether there are cookies": lambda request: "some" if flask.request.cookies else "none",
    "a context": lambda request: flask.copy_current_request_context(lambda: "page")(),
}


@of_each(ASKED, ASKED_IN_DJANGO, ASKED_IN_FLASK)
def test_an_access_that_reads_nothing_makes_no_variants(make_site, item):
    site = make_site(rules=[("/*", ttl(60))])
    site.add("/asked", item)
    site.add("/inner", lambda request: "inner")
    assert hits(site, "/asked") == 11


# Code in C, which calls no method of a dict.

IN_C = {
    "orjson": lambda read: orjson.dumps(read(), default=str).decode(),
    "a method of dict": lambda read: dict.__repr__(read()),
    "or": lambda read: dict.__repr__(read() or {}),
    "if": lambda read: (found := read()) and dict.__repr__(found),
    "dict": lambda read: str(dict(read())),
}
COOKIES_IN_C = {
    "after a method": lambda read: (found := read()).get("color") or dict.__repr__(found),
    "itemgetter": lambda read: operator.itemgetter("theme")(read()),
    "ChainMap": lambda read: ChainMap({}, read())["theme"],
    "the same class": lambda read: str(type(read())(read())),
}
READERS = {f"{part}-{how}": (part, how) for part in ("cookies", "headers") for how in IN_C}
READERS |= {how: ("cookies", how) for how in COOKIES_IN_C}


@of_each(READERS)
def test_code_that_reads_a_part_as_a_whole_makes_no_page_for_another_visitor(make_site, item):
    part, how = item
    site = make_site()
    of_part, read = {"cookies": cookies_of, "headers": environ_of}[part], {**IN_C, **COOKIES_IN_C}[how]
    site.add("/shown", lambda request: read(lambda: of_part(request)))
    # After a method in Python, only a value in the page shows that code in C has read it, unless the value is short.
    themes = ("dark-blue", "light-red") if how == "after a method" else ("dark", "light")
    for theme in themes * 2:
        response = site.get("/shown", {"Cookie": f"theme={theme}; a=1", "X-Theme": theme})
        assert response.status == 200
        assert [each for each in themes if each in response.body.decode()] == [theme]


# Headers that the framework and the cache may parse differently.

COOKIES = {
    "a space of Unicode": "\xc2\xa0flavor=EVIL",
    "a space of Latin-1": "\xa0flavor=EVIL",
    "a control character": "\x1fflavor=EVIL",
    "no name": "=; flavor=EVIL",
    "a quote": 'a="; flavor=EVIL; b="',
    "a name with a space": "a flavor=EVIL; flavor=EVIL",
    "a quote in a name": 'a"; flavor=EVIL',
}


@of_each(COOKIES)
def test_a_cookie_that_the_framework_reads_and_the_cache_does_not_poisons_no_page(make_site, item):
    site = make_site()
    site.add("/read", READS["a cookie"])
    for _ in range(2):
        site.get("/read", {"Cookie": item})
        assert site.get("/read").body.startswith(b"None")
        assert site.get("/read", {"Cookie": "flavor=sweet"}).body.startswith(b"sweet")


@of_each({quote(space): space for space in ("\xc2\xa0", "\xa0", "\x85", 'a="; ', "a=1; \xe2\x80\x83")})
def test_a_session_that_the_cache_does_not_recognize_reaches_nobody_else(make_site, item):
    site = make_site()
    site.add("/name", lambda request: session_of(request).get("name"))
    site.add("/cookie", READS["the cookie of the session"])
    ada = logged_in(site, "ada")["Cookie"]
    for target in ("/name", "/cookie"):
        site.get(target, {"Cookie": item + ada})
        assert site.get(target).body.startswith(b"None")


@of_each({each: each for each in ("text/plain; charset=cp037", "application/json", "x; charset=UTF-16")})
def test_the_type_of_a_request_without_a_body_poisons_no_page(make_site, item):
    site = make_site()
    site.add("/page", lambda request: query_of(request).get("page"))
    for query, expected in (("?page=2", "2 "), ("?page=%F2", ("\ufffd ", "%F2 "))):
        for _ in range(2):
            site.get(f"/page{query}", {"Content-Type": item})
            assert site.get(f"/page{query}").body.decode().startswith(expected)
        assert is_stored(site, f"/page{query}")
