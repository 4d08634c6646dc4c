"""Middleware between the cache and Django, which changes requests."""

from wsgiref.validate import validator

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.pages.middleware import (
    SHOWN,
    VISITORS,
    ByCookie,
    ByCookieAsync,
    assert_that_each_visitor_gets_their_page,
    target_of,
)
from tests.pages.on_django.sites import DjangoOnAsgi, DjangoOnWsgi
from tests.pages.on_django.token_site import FORM, for_a_minute, rendered
from tests.pages.site import is_stored


@pytest.fixture
def make_site(site_settings, clock, closed):
    site_settings.ALLOWED_HOSTS = [".example.com", "public.example"]

    def make(*, wsgi=None, asgi=None, **options):
        site = (DjangoOnWsgi if asgi is None else DjangoOnAsgi)(clock, **options)
        closed(site.cache.cache)
        site.app = site.cache.wsgi(wsgi(WSGIHandler())) if asgi is None else site.cache.asgi(asgi(ASGIHandler()))
        return site

    return make


def by_cookie(part):
    return {
        "wsgi": {"wsgi": lambda app: ByCookie(app, part)},
        "asgi": {"asgi": lambda app: ByCookieAsync(app, part)},
    }


@pytest.mark.pairs(full="interface", of="interface")
@pytest.mark.parametrize("interface", ["wsgi", "asgi"])
@pytest.mark.parametrize("part", SHOWN)
def test_each_visitor_gets_the_page_of_the_request_that_middleware_makes(make_site, clock, part, interface):
    site = make_site(**by_cookie(part)[interface])
    item = {"wsgi": SHOWN, "asgi": {**SHOWN, "body": "body", "own": "scope['site.country']"}}[interface][part]
    # No scope has the item of a site, so it is enough that the page reads it.
    reason = f"reads {item}" if item.startswith("scope") else f"changed by a middleware inside the cache: {item}"
    assert site.get(target_of(part), VISITORS[1]).detail == f'fwd=miss; detail="{reason}"'
    hits = assert_that_each_visitor_gets_their_page(site, part, clock)
    # Of the visitors without the cookie, whose request the middleware leaves as it is.
    assert (hits > 0) is (part != "own")


def passing(app):
    """Middleware that changes nothing."""
    return lambda environ, start_response: app(environ, start_response)


def passing_async(app):
    """Middleware that changes nothing."""

    async def inside(scope, receive, send):
        await app(scope, receive, send)

    return inside


@pytest.mark.parametrize("middleware", [{"wsgi": passing}, {"wsgi": validator}, {"asgi": passing_async}])
@pytest.mark.parametrize("target", ["/plain", "/named/%C3%BCber", "/named/%FF"])
def test_unknown_middleware_that_changes_nothing_keeps_pages_apart_by_the_cookie_header(make_site, middleware, target):
    site = make_site(**middleware)
    for cookies in ({}, {"Cookie": "a=1"}, {"Cookie": "a=2"}):
        assert site.get(target, cookies).detail.endswith("; stored")
        assert site.get(target, cookies).detail.startswith("hit")


@pytest.mark.parametrize("middleware", [{"wsgi": passing}, {"asgi": passing_async}])
def test_a_page_with_a_token_is_not_stored_behind_unknown_middleware(make_site, middleware):
    """It would depend on the cookie with the visitor's secret, which no stored page may contain."""
    site = make_site(**middleware)
    for cookies in ({}, {"Cookie": f"csrftoken={'a' * 32}"}):
        refused = 'fwd=miss; detail="CSRF token in a page that depends on the whole Cookie header"'
        assert [site.get("/token", cookies).detail for _ in range(2)] == [refused, refused]


def adding_a_header(app):
    """Middleware that shows a cookie in a header of the response."""

    def inside(environ, start_response):
        def start(status, headers, exc_info=None):
            return start_response(status, [*headers, ("X-Seen", environ.get("HTTP_COOKIE", "none"))], exc_info)

        return app(environ, start)

    return inside


def test_a_response_that_middleware_changes_by_a_cookie_is_for_that_cookie(make_site):
    site = make_site(wsgi=adding_a_header)
    for visitor in [*VISITORS, *VISITORS]:
        assert site.get("/plain", visitor)["x-seen"] == visitor.get("Cookie", "none")
    assert site.get("/plain").detail.startswith("hit")


FORWARDED = {
    "X-Forwarded-For": "1.2.3.4",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "public.example",
    "X-Forwarded-Port": "8443",
    "X-Forwarded-Prefix": "/app",
}


def proxied(app):
    return ProxyFix(app, x_proto=1, x_host=1, x_port=1, x_prefix=1)


def own_proxy(app):
    """Middleware like ProxyFix, as sites have it."""

    def inside(environ, start_response):
        environ["wsgi.url_scheme"] = environ["HTTP_X_FORWARDED_PROTO"]
        environ["HTTP_HOST"] = environ["HTTP_X_FORWARDED_HOST"]
        environ["SCRIPT_NAME"] = environ["HTTP_X_FORWARDED_PREFIX"]
        return app(environ, start_response)

    return inside


def own_proxy_async(app):
    """Middleware like that of uvicorn, as sites have it."""

    async def inside(scope, receive, send):
        headers = dict(scope["headers"])
        host = (b"host", headers[b"x-forwarded-host"])
        others = [pair for pair in scope["headers"] if pair[0] != b"host"]
        scope = {**scope, "scheme": headers[b"x-forwarded-proto"].decode(), "headers": [host, *others]}
        await app(scope, receive, send)

    return inside


@pytest.mark.parametrize(
    ("middleware", "target", "headers"),
    [
        ({"wsgi": proxied}, "/plain", FORWARDED),
        ({"wsgi": proxied}, "/plain", {}),
        ({"wsgi": proxied}, "/named/%C3%BCber", FORWARDED),
        ({"wsgi": own_proxy}, "/plain", FORWARDED),
        ({"wsgi": lambda app: proxied(DispatcherMiddleware(app, {"/app": app}))}, "/plain", {}),
        ({"wsgi": lambda app: DispatcherMiddleware(app, {"/app": app})}, "/app/plain", {}),
        ({"wsgi": lambda app: DispatcherMiddleware(app, {"/mounted": app})}, "/mounted", {}),
        ({"asgi": own_proxy_async}, "/plain", FORWARDED),
    ],
)
def test_a_change_that_the_key_explains_keeps_no_page_out(make_site, middleware, target, headers):
    assert is_stored(make_site(**middleware), target, headers)


def test_behind_known_middleware_visitors_with_different_cookies_share_pages(make_site):
    site = make_site(wsgi=lambda app: proxied(DispatcherMiddleware(app, {})))
    assert site.get("/plain", {"Cookie": "a=1"}).body == site.get("/plain", {"Cookie": "a=2"}).body


def test_visitors_of_a_mounted_application_get_the_pages_that_its_middleware_makes(make_site):
    site = make_site(wsgi=lambda app: DispatcherMiddleware(app, {"/mounted": ByCookie(app, "header")}))
    found = [site.get("/mounted/seen", visitor).body for visitor in [*VISITORS, *VISITORS]]
    assert found[:3] == found[3:]
    assert len({*found}) == len(VISITORS)
    assert site.get("/plain", {"Cookie": "a=1"}).body == site.get("/plain", {"Cookie": "a=2"}).body


@pytest.mark.parametrize("part", ["host", "path"])
def test_what_no_header_explains_keeps_pages_out_also_behind_a_proxy(make_site, part):
    found = make_site(wsgi=lambda app: proxied(ByCookie(app, part))).get("/seen", {**FORWARDED, **VISITORS[1]})
    assert found.detail == f'fwd=miss; detail="changed by a middleware inside the cache: {SHOWN[part]}"'


def test_a_script_name_of_the_settings_is_no_change(make_site, site_settings):
    site_settings.FORCE_SCRIPT_NAME = "/app"
    assert is_stored(make_site(wsgi=passing), "/plain")
    assert is_stored(make_site(asgi=passing_async), "/plain")


class Signed(HttpResponse):
    """A response that is completed while the server iterates over it."""

    def __iter__(self):
        return iter([self.content.replace(b"unsigned", b"signed  ")])


@for_a_minute
def signed(request):
    return Signed(rendered(request, f"unsigned {FORM}").content)


urlpatterns = [path("signed", signed)]


def test_a_page_with_tokens_whose_body_changes_inside_the_cache_is_not_stored(make_site, site_settings):
    site_settings.ROOT_URLCONF = __name__
    site = make_site(wsgi=lambda app: app)
    for _ in range(2):
        assert site.get("/signed").body.startswith(b"signed")
    assert site.stats().stored == 0
