"""Middleware of a site that changes requests by the visitor's cookie ``country``, between the cache and the framework.

There is one for each part of a request. A visitor without the cookie is left as it is.
"""

import io
import random
from http.cookies import SimpleCookie

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


def replaced(scope, name, value):
    # In place, as some do.
    scope["headers"][:] = [pair for pair in scope["headers"] if pair[0] != name] + [(name, value.encode())]
    return {}


def country_in(header):
    found = SimpleCookie(header).get("country")
    return None if found is None else found.value


class ByCookie:
    """WSGI middleware that changes a part of the request."""

    def __init__(self, app, part):
        self.app = app
        self.part = part

    def __call__(self, environ, start_response):
        country = country_in(environ.get("HTTP_COOKIE", ""))
        if country is not None:
            environ |= IN_ENVIRON[self.part](environ, country)
        return self.app(environ, start_response)


class ByCookieAsync(ByCookie):
    """ASGI middleware that changes a part of the request."""

    async def __call__(self, scope, receive, send):
        country = country_in(dict(scope["headers"]).get(b"cookie", b"").decode("latin-1"))

        async def receive_country():
            message = await receive()
            return {**message, "body": country.encode()} if message["type"] == "http.request" else message

        if country is not None:
            scope = {**scope, **IN_SCOPE[self.part](scope, country)}
        await self.app(scope, receive_country if country is not None and self.part == "body" else receive, send)


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


def target_of(part):
    """Return the page that shows the part."""
    return "/seen-own" if part == "own" else "/seen"


def assert_that_each_visitor_gets_their_page(site, part, clock, requests=60):
    """Make requests of random visitors, whose pages differ. Return the number of hits."""
    bodies, hits, chance = {}, 0, random.Random(part)
    for _ in range(requests):
        visitor = chance.choice(VISITORS)
        response = site.get(target_of(part), visitor)
        # A second after a page was not stored, the next may be.
        clock.advance(1)
        hits += response.detail.startswith("hit")
        assert bodies.setdefault(str(visitor), response.body) == response.body
    assert len(bodies) == len({*bodies.values()}) == len(VISITORS)
    return hits
