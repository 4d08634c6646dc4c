"""Middleware of a site that changes requests by the visitor's cookie ``country``, between the cache and the framework.

There is one for each part of a request. A visitor without the cookie is left as it is.
"""

import io
import random
from http.cookies import SimpleCookie


def in_environ(environ):
    return SimpleCookie(environ.get("HTTP_COOKIE", "")).get("country")


def in_scope(scope):
    sent = dict(scope["headers"]).get(b"cookie", b"")
    return SimpleCookie(sent.decode("latin-1")).get("country")


class ByCookie:
    """WSGI middleware that changes a part of the request."""

    def __init__(self, app, part):
        self.app = app
        self.change = getattr(self, part)

    def __call__(self, environ, start_response):
        country = in_environ(environ)
        if country is not None:
            self.change(environ, country.value)
        return self.app(environ, start_response)

    def path(self, environ, country):
        environ["PATH_INFO"] = f"/{country}{environ['PATH_INFO']}"

    def header(self, environ, country):
        environ["HTTP_X_COUNTRY"] = country

    def host(self, environ, country):
        environ["HTTP_HOST"] = f"{country}.example.com"

    def cookie(self, environ, country):
        environ["HTTP_COOKIE"] = f"theme={country}"

    def body(self, environ, country):
        environ["CONTENT_LENGTH"] = str(len(country))
        environ["wsgi.input"] = io.BytesIO(country.encode())

    def query(self, environ, country):
        environ["QUERY_STRING"] = f"country={country}"

    def own(self, environ, country):
        environ["site.country"] = country


class ByCookieAsync:
    """ASGI middleware that changes a part of the request."""

    def __init__(self, app, part):
        self.app = app
        self.change = getattr(self, part)

    async def __call__(self, scope, receive, send):
        country = in_scope(scope)
        if country is not None:
            scope, receive = self.change(scope, receive, country.value)
        await self.app(scope, receive, send)

    def path(self, scope, receive, country):
        return {**scope, "path": f"/{country}{scope['path']}"}, receive

    def header(self, scope, receive, country):
        # In place, as some do.
        scope["headers"].append((b"x-country", country.encode()))
        return scope, receive

    def host(self, scope, receive, country):
        return self.replaced(scope, b"host", f"{country}.example.com"), receive

    def cookie(self, scope, receive, country):
        return self.replaced(scope, b"cookie", f"theme={country}"), receive

    def body(self, scope, receive, country):
        async def receive_country():
            message = await receive()
            return {**message, "body": country.encode()} if message["type"] == "http.request" else message

        return scope, receive_country

    def query(self, scope, receive, country):
        return {**scope, "query_string": f"country={country}".encode()}, receive

    def own(self, scope, receive, country):
        return {**scope, "site.country": country}, receive

    def replaced(self, scope, name, value):
        headers = [pair for pair in scope["headers"] if pair[0] != name]
        return {**scope, "headers": [*headers, (name, value.encode())]}


SHOWN = {
    "path": "PATH_INFO",
    "header": "X-Country",
    "host": "Host",
    "cookie": "cookie theme",
    "body": "CONTENT_LENGTH",
    "query": "QUERY_STRING",
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
