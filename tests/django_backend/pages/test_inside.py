"""Middleware between the cache and Django, which changes requests."""

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from starlette.middleware.cors import CORSMiddleware
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.django_backend.pages.sites import DjangoOnAsgi, DjangoOnWsgi
from tests.http_cache.middleware import (
    SHOWN,
    VISITORS,
    ByCookie,
    ByCookieAsync,
    assert_that_each_visitor_gets_their_page,
    target_of,
)
from tests.http_cache.site import hits, is_stored
from tests.http_cache.why import traced


@pytest.fixture
def make_site(site_settings, clock):
    site_settings.ALLOWED_HOSTS = [".example.com", "public.example"]
    sites = []

    def make(*, wsgi=None, asgi=None, **options):
        site = (DjangoOnWsgi if asgi is None else DjangoOnAsgi)(clock, **options)
        sites.append(site)
        site.app = site.cache.wsgi(wsgi(WSGIHandler())) if asgi is None else site.cache.asgi(asgi(ASGIHandler()))
        return site

    yield make
    for site in sites:
        site.cache.cache.close()


def by_cookie(part, **options):
    return {
        "wsgi": {"wsgi": lambda app: ByCookie(app, part), **options},
        "asgi": {"asgi": lambda app: ByCookieAsync(app, part), **options},
    }


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
@pytest.mark.parametrize("part", SHOWN)
def test_each_visitor_gets_the_page_of_the_request_that_middleware_makes(make_site, clock, part, interface):
    hits = assert_that_each_visitor_gets_their_page(make_site(**by_cookie(part)[interface]), part, clock)
    # Of the visitors without the cookie. Under ASGI, middleware that looks for a cookie reads all headers.
    assert (hits > 0) is (interface == "wsgi" and part != "own")


@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
@pytest.mark.parametrize("part", SHOWN)
def test_the_reason_names_the_part_that_middleware_has_changed(make_site, part, interface):
    site = make_site(**by_cookie(part)[interface])
    item = SHOWN[part]
    if interface == "asgi":
        item = {"CONTENT_LENGTH": "body", "site.country": "scope['site.country']"}.get(item, item)
    reason = f"changed by a middleware inside the cache: {item}"
    if item == "scope['site.country']":
        # No scope has such an item, so a read is enough.
        reason = "reads all headers"
    assert site.get(target_of(part), VISITORS[1]).detail == f'fwd=miss; detail="{reason}"'
    assert site.stats().not_stored in ({"changed inside": 1}, {"all headers": 1})


def test_a_visitor_whose_request_middleware_leaves_as_it_is_has_a_page_by_the_cookie_that_it_read(make_site):
    site = make_site(wsgi=lambda app: ByCookie(app, "header"))
    assert is_stored(site, "/plain")
    assert site.get("/plain", {"Cookie": "a=1"}).detail == "fwd=vary-miss; stored"
    read, *_ = traced(site, site.app, "/plain", {"Cookie": "a=2"}).found
    assert (read.what, read.function) == ("Cookie", "in_environ")
    assert read.file.endswith("tests/http_cache/middleware.py")


def test_under_asgi_middleware_that_looks_for_a_header_reads_them_all(make_site):
    asgi = by_cookie("header")["asgi"]
    assert make_site(**asgi).get("/plain").detail == 'fwd=miss; detail="reads all headers"'
    exempted = make_site(**asgi, ignore_reads_by=["tests.http_cache.middleware.in_scope"])
    assert is_stored(exempted, "/plain")
    # What it changes counts nevertheless.
    assert exempted.get("/seen", VISITORS[1]).detail.endswith('inside the cache: X-Country"')


def test_middleware_behind_a_library_that_copies_the_headers_is_not_overlooked(make_site):
    def site(app):
        return CORSMiddleware(ByCookieAsync(app, "header"), allow_origins=["*"])

    assert make_site(asgi=site).get("/plain").detail == 'fwd=miss; detail="reads all headers"'


class Copies:
    """Middleware that reads nothing but copies the request."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        return self.app({**environ}, start_response)


def test_middleware_that_copies_the_environ_may_read_all_of_it(make_site):
    assert make_site(wsgi=Copies).get("/plain").detail == 'fwd=miss; detail="reads all headers"'
    assert is_stored(make_site(wsgi=Copies, ignore_reads_by=[f"{__name__}.Copies"]), "/plain")


def outer(app):
    return ByCookie(Copies(app), "header")


def test_exempting_a_middleware_exempts_no_other_that_it_calls_or_that_calls_it(make_site):
    site = make_site(wsgi=outer, ignore_reads_by=["tests.http_cache.middleware.ByCookie"])
    assert site.get("/plain").detail == 'fwd=miss; detail="reads all headers"'


def https(app):
    """Middleware for a site whose proxy ends TLS."""

    def with_https(environ, start_response):
        environ["wsgi.url_scheme"] = "https"
        return app(environ, start_response)

    return with_https


FORWARDED = {
    "X-Forwarded-For": "1.2.3.4",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "public.example",
    "X-Forwarded-Port": "8443",
    "X-Forwarded-Prefix": "/app",
}


@pytest.mark.parametrize(
    ("middleware", "headers"),
    [
        ({"wsgi": lambda app: ProxyFix(app, x_proto=1, x_host=1, x_port=1, x_prefix=1)}, FORWARDED),
        ({"wsgi": lambda app: ProxyFix(app, x_host=1)}, {}),
        ({"wsgi": lambda app: DispatcherMiddleware(app, {"/plain": app})}, {}),
        ({"wsgi": https}, {}),
        ({"asgi": lambda app: ProxyHeadersMiddleware(app, trusted_hosts="*")}, FORWARDED),
    ],
)
def test_a_change_that_the_key_explains_keeps_no_page_out(make_site, middleware, headers):
    site = make_site(**middleware)
    target = "/plain/slash/" if "Dispatcher" in repr(site.app._app.__dict__) else "/plain"
    assert is_stored(site, target, headers)
    assert hits(site, target, 3) >= 2


def test_what_no_header_explains_keeps_pages_out_also_behind_a_proxy(make_site):
    def site(app):
        return ProxyFix(ByCookie(app, "host"), x_host=1)

    found = make_site(wsgi=site).get("/plain", {**FORWARDED, **VISITORS[1]})
    assert found.detail == 'fwd=miss; detail="changed by a middleware inside the cache: Host"'


class AfterResponse:
    """Middleware that shows the visitor's cookie in the response."""

    def __init__(self, app):
        self.app = app

    def __call__(self, environ, start_response):
        headers = []

        def start(status, given, exc_info=None):
            headers.extend(given)
            start_response(status, [pair for pair in given if pair[0] != "Content-Length"], exc_info)

        for chunk in self.app(environ, start):
            yield chunk + environ.get("HTTP_COOKIE", "").encode()


def test_what_middleware_reads_for_the_response_counts_too(make_site):
    site = make_site(wsgi=AfterResponse)
    for visitor in [*VISITORS, *VISITORS]:
        assert site.get("/plain", visitor).body.endswith(visitor.get("Cookie", "").encode())
    assert site.get("/plain").detail.startswith("hit")


def test_the_application_itself_has_no_middleware_to_watch(make_site):
    site = make_site(wsgi=lambda app: app)
    assert type(site.app._app) is WSGIHandler
