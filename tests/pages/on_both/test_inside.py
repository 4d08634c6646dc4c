"""Middleware between the cache and the framework, which changes requests."""

import io

import pytest
from werkzeug.middleware.dispatcher import DispatcherMiddleware
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.pages.on_both.sites import cookies_of, environ_of, of_each, response_to
from tests.pages.site import is_stored

ON_WSGI = ["Django on WSGI", "Flask"]
INTERFACES = ["Django on WSGI", "Django on ASGI", "Flask"]

# Middleware that changes a part of the request by the visitor's cookie ``country``. A visitor without it is left alone.

IN_ENVIRON = {
    "path": lambda environ, country: {"PATH_INFO": f"/{country}{environ['PATH_INFO']}"},
    "header": lambda environ, country: {"HTTP_X_COUNTRY": country},
    "host": lambda environ, country: {"HTTP_HOST": f"{country}.example.com"},
    "cookie": lambda environ, country: {"HTTP_COOKIE": f"theme={country}"},
    "body": lambda environ, country: {"CONTENT_LENGTH": "2", "wsgi.input": io.BytesIO(country.encode())},
    "own": lambda environ, country: {"site.country": country},
}
IN_SCOPE = {
    "path": lambda scope, country: {"path": f"/{country}{scope['path']}"},
    "header": lambda scope, country: replaced(scope, b"x-country", country),
    "host": lambda scope, country: replaced(scope, b"host", f"{country}.example.com"),
    "cookie": lambda scope, country: replaced(scope, b"cookie", f"theme={country}"),
    "body": lambda scope, country: {},
    "own": lambda scope, country: {"site.country": country},
}
SHOWN = {
    "path": "PATH_INFO",
    "header": "X-Country",
    "host": "Host",
    "cookie": "cookie theme",
    "body": "CONTENT_LENGTH",
    "own": "site.country",
}
"""The items that the reason of a page that is not stored names."""
VISITORS = [{}, *({"Cookie": f"country={country}"} for country in ("de", "fr"))]


def replaced(scope, name, value):
    # In place, as some do.
    scope["headers"][:] = [pair for pair in scope["headers"] if pair[0] != name] + [(name, value.encode())]
    return {}


def by_cookie(app, part):
    def inside(environ, start_response):
        country = environ.get("HTTP_COOKIE", "").partition("country=")[2]
        if country:
            environ |= IN_ENVIRON[part](environ, country)
        return app(environ, start_response)

    return inside


def by_cookie_async(app, part):
    async def inside(scope, receive, send):
        country = dict(scope["headers"]).get(b"cookie", b"").partition(b"country=")[2].decode()

        async def receive_country():
            return {**await receive(), "body": country.encode()}

        if country:
            scope = {**scope, **IN_SCOPE[part](scope, country)}
        await app(scope, receive_country if country and part == "body" else receive, send)

    return inside


def seen(request, country=""):
    """Show each part of the request that a middleware may change."""
    is_django = hasattr(request, "META")
    sent = (request.body, request.GET.urlencode()) if is_django else (request.get_data(), request.args.to_dict())
    host = request.get_host() if is_django else request.host
    parts = country, host, request.headers.get("X-Country"), cookies_of(request).get("theme"), *sent
    return response_to(request, str(parts))


def seen_own(request):
    """Show an item that such a middleware may add."""
    found = request.scope if hasattr(request, "scope") else environ_of(request)
    return response_to(request, str(found.get("site.country")))


@pytest.fixture
def site_behind(make_site):
    """Make a site behind middleware, for WSGI or for ASGI."""

    def make(wsgi, asgi=None):
        site = make_site(middleware=asgi if hasattr(make_site(), "scope") else wsgi)
        site.add("/seen", seen)
        site.add("/<country>/seen", seen)
        site.add("/seen-own", seen_own)
        site.add("/plain", lambda request: "page")
        site.add("/named/<name>", lambda request, name: name)
        return site

    return make


@pytest.mark.parametrize("make_site", INTERFACES, indirect=True)
@pytest.mark.parametrize("part", SHOWN)
def test_each_visitor_gets_the_page_of_the_request_that_middleware_makes(site_behind, clock, part):
    site = site_behind(lambda app: by_cookie(app, part), lambda app: by_cookie_async(app, part))
    target = "/seen-own" if part == "own" else "/seen"
    detail = site.get(target, VISITORS[1]).detail
    is_asgi = hasattr(site, "scope")
    # No scope has the item of a site, so it is enough that the page reads it.
    item = {"body": "body", "own": "reads scope['site.country']"}.get(part, SHOWN[part]) if is_asgi else SHOWN[part]
    assert detail.startswith('fwd=miss; detail="' + ("" if "reads" in item else "changed by a middleware inside"))
    assert detail.endswith(f'{item}"')
    pages, hits = set(), 0
    for visitor in [*VISITORS, *reversed(VISITORS)] * 2:
        # A second after a page was not stored, the next may be.
        clock.advance(1)
        answer = site.get(target, visitor)
        pages.add((str(visitor), answer.body))
        hits += answer.detail.startswith("hit")
    assert len(pages) == len({body for _, body in pages}) == len(VISITORS)
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


@of_each({target: target for target in ("/plain", "/named/%FF")})
def test_unknown_middleware_that_changes_nothing_keeps_pages_apart_by_the_cookie_header(site_behind, item):
    site = site_behind(passing, passing_async)
    for cookies in ({}, {"Cookie": "a=1"}, {"Cookie": "a=2"}):
        assert site.get(item, cookies).detail.endswith("; stored")
        assert site.get(item, cookies).detail.startswith("hit")


FORWARDED = {
    "X-Forwarded-For": "1.2.3.4",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "public.example",
    "X-Forwarded-Port": "8443",
    "X-Forwarded-Prefix": "/app",
}


def proxied(app):
    return ProxyFix(app, x_proto=1, x_host=1, x_port=1, x_prefix=1)


EXPLAINED = {
    "a proxy": (proxied, "/plain", FORWARDED),
    "a proxy, and an encoded path": (proxied, "/named/%C3%BCber", FORWARDED),
    "a dispatcher": (lambda app: proxied(DispatcherMiddleware(app, {"/app": app})), "/plain", {}),
}


@pytest.mark.parametrize("make_site", ON_WSGI, indirect=True)
@pytest.mark.parametrize("how", EXPLAINED)
def test_a_change_that_the_key_explains_keeps_no_page_out(site_behind, how):
    middleware, target, headers = EXPLAINED[how]
    assert is_stored(site_behind(middleware), target, headers)


@pytest.mark.parametrize("make_site", ON_WSGI, indirect=True)
def test_behind_known_middleware_visitors_with_different_cookies_share_pages_but_for_an_unknown_mount(site_behind):
    site = site_behind(lambda app: proxied(DispatcherMiddleware(app, {"/mounted": by_cookie(app, "header")})))
    assert site.get("/plain", {"Cookie": "a=1"}).body == site.get("/plain", {"Cookie": "a=2"}).body
    found = [site.get("/mounted/seen", visitor).body for visitor in [*VISITORS, *VISITORS]]
    assert found[:3] == found[3:]
    assert len({*found}) == len(VISITORS)


@pytest.mark.parametrize("make_site", ON_WSGI, indirect=True)
@pytest.mark.parametrize("part", ["host", "path"])
def test_a_change_that_no_header_explains_keeps_a_page_out_also_behind_a_proxy(site_behind, part):
    site = site_behind(lambda app: proxied(by_cookie(app, part)))
    detail = site.get("/seen", {**FORWARDED, **VISITORS[1]}).detail
    assert detail == f'fwd=miss; detail="changed by a middleware inside the cache: {SHOWN[part]}"'


@pytest.mark.parametrize("make_site", ["Django on WSGI", "Django on ASGI"], indirect=True)
def test_a_script_name_of_the_settings_is_no_change(site_behind, site_settings):
    site_settings.FORCE_SCRIPT_NAME = "/app"
    assert is_stored(site_behind(passing, passing_async), "/plain")
