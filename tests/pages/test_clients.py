"""Disconnecting clients, renewals without a client, strange lengths, and the spellings of a purged URL."""

import asyncio

import pytest

from tests.pages.site import AsgiSite, Response, leaving_client
from tests.waiting import PATIENCE


def test_a_disconnect_reaches_an_application_that_has_not_answered_yet(clock):
    """An application that listens for it, as for a long computation, must be able to stop."""
    received = []

    async def main():
        gone, receive = leaving_client()

        async def send(message):
            """Send nothing."""

        async def application(scope, receive, send):
            gone.set()
            async with asyncio.timeout(PATIENCE):
                received.append(await receive())

        site = AsgiSite(clock)
        await site.cache.asgi(application)(site.scope("GET", "/", "", [("host", "example.com")]), receive, send)

    asyncio.run(main())
    assert received == [{"type": "http.disconnect"}]


def test_an_application_may_read_the_address_of_the_client_of_a_renewal(clock):
    site = AsgiSite(clock)
    clients = []

    async def application(scope, receive, send):
        clients.append(scope["client"][0])
        headers = [(b"cache-control", b"max-age=60, stale-while-revalidate=60")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"page"})

    site.app = site.cache.asgi(application)
    site.get()
    clock.advance(60)
    site.get()
    assert len(clients) == 2
    # It is not the client of either request.
    assert clients[1] != clients[0]
    assert site.get().detail.startswith("hit; ttl=60")


@pytest.mark.pairs(full="make_site", of="make_site")
@pytest.mark.parametrize("lengths", [["4", "4"], ["4", "5"], ["4, 4"], ["+4"], ["-1"], ["four"], [""]])
def test_a_response_with_a_strange_length_is_not_stored(make_site, lengths):
    site = make_site()
    fields = [("Content-Length", length) for length in lengths] + [("Cache-Control", "max-age=60")]
    runs = []

    def wsgi(environ, start_response):
        runs.append(environ)
        start_response("200 OK", fields)
        return [b"page"]

    async def asgi(scope, receive, send):
        runs.append(scope)
        headers = [(name.encode(), value.encode()) for name, value in fields]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"page"})

    site.app = site.cache.asgi(asgi)
    site.application = wsgi
    for _ in range(3):
        site.get_unchecked()
    assert (len(runs), site.stats().stored) == (3, 0)


PURGES = [
    ("/?q=caf%C3%A9", "example.com", "https://example.com/?q=café"),
    ("/?q=a+b", "example.com", "https://example.com/?q=a+b"),
    ("/caf%C3%A9/", "example.com", "https://example.com/café/"),
    ("/", "example.com", "https://example.com:443/"),
    ("/", "example.com", "http://example.com:80/"),
    ("/", "example.com:80", "http://example.com/"),
    ("/", "example.com:443", "https://example.com/"),
    ("/", "example.com", "https://EXAMPLE.com/"),
    ("/", "example.com", "https://example.com"),
    ("/", "EXAMPLE.com", "https://example.com/"),
]


@pytest.mark.parametrize(("target", "host", "url"), PURGES)
def test_a_purge_removes_the_page_under_each_spelling_of_its_url(make_site, target, host, url):
    site = make_site()
    site.get(target, host=host)
    assert site.cache.purge(url) == 1
    site.get(target, host=host)
    assert site.runs == 2


@pytest.mark.parametrize("url", ["https://example.com:444/", "https://example.com/x", "https://other.example/"])
def test_a_purge_of_another_page_removes_nothing(make_site, url):
    site = make_site()
    site.respond = lambda request: Response()
    site.get()
    assert site.cache.purge(url) == 0
    site.get()
    assert site.runs == 1


@pytest.mark.parametrize("condition", [None, '"1"'])
def test_a_reply_in_place_of_the_applications_is_started_as_early_as_that_one(wsgi, clock, condition):
    """granian reads the status and the headers when the application returns its iterable, before the first item."""

    def application(environ, start_response):
        status = "304 Not Modified" if "HTTP_IF_NONE_MATCH" in environ else "200 OK"
        start_response(status, [("ETag", '"1"'), ("Cache-Control", "max-age=60")])
        return iter([b"page"])

    # A stored page that the application validates, and a page of which the client has a copy that is not stored.
    requests = [("/", {}), ("/", {})] if condition is None else [("/", {}), ("/2", {"If-None-Match": condition})]
    started = []
    for number, (path, headers) in enumerate(requests, 1):
        environ = wsgi.environ(*wsgi.parts(path, headers))
        iterable = wsgi.cache.wsgi(application)(environ, lambda status, headers: started.append(status[:3]))
        assert len(started) == number
        assert b"".join(iterable) == (b"" if headers else b"page")
        getattr(iterable, "close", list)()
        clock.advance(61)
    assert started == ["200", "200" if condition is None else "304"]
