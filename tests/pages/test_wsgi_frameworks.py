"""Bottle behind the cache. wsgiref's validator looks at both sides of the cache."""

from io import BytesIO
from wsgiref.util import FileWrapper
from wsgiref.validate import validator

import bottle
import pytest

from tests.pages.site import WsgiSite


@pytest.fixture
def site(clock, closed):
    """Return a site with ``calls``, the names of the views that were called, and ``pieces``, those of the stream."""
    site = WsgiSite(clock)
    site.calls = []
    site.pieces = []
    site.bottle = bottle.Bottle()
    site.bottle.catchall = False

    def view(body):
        def respond():
            site.calls.append(body.__name__)
            bottle.response.set_header("Cache-Control", "max-age=60")
            return body()

        site.bottle.route(f"/{body.__name__}", callback=respond)

    @view
    def page():
        return f"name={bottle.request.query.name}"

    @view
    def stream():
        for piece in (b"first ", b"second"):
            site.pieces.append(piece)
            yield piece

    @view
    def failure():
        raise ArithmeticError("the view failed")

    @view
    def file():
        return BytesIO(b"a file")

    site.app = validator(site.cache.wsgi(validator(site.bottle)))
    closed(site.cache.cache)
    return site


def test_a_page_is_made_once(site):
    first = site.get("/page?name=a")
    assert (first.status, first.body, first.detail) == (200, b"name=a", "fwd=miss; stored")
    again = site.get("/page?name=a")
    assert (again.body, again.detail, again["content-type"]) == (b"name=a", "hit; ttl=60", first["content-type"])
    assert site.get("/page?name=b").body == b"name=b"
    assert site.calls == ["page"] * 2
    head = site.get("/page?name=a", method="HEAD")
    assert (head.body, head["content-length"]) == (b"", "6")


def test_a_stream_is_sent_piece_by_piece_and_stored_at_its_end(site):
    result = site.app(site.environ(*site.parts("/stream")), lambda *response: None)
    pieces = iter(result)
    assert next(pieces) == b"first "
    assert site.pieces == [b"first "]
    assert [*pieces] == [b"second"]
    result.close()
    assert site.get("/stream").body == b"first second"
    assert site.calls == ["stream"]


def test_an_exception_of_a_view_reaches_the_server_and_no_later_request(site):
    for _ in range(2):
        with pytest.raises(ArithmeticError, match="the view failed"):
            site.get("/failure")
    assert site.calls == ["failure"] * 2
    assert site.stats().stored == 0


def test_a_file_is_given_to_the_server_as_it_is(site):
    environ = {**site.environ(*site.parts("/file")), "wsgi.file_wrapper": FileWrapper}
    result = site.cache.wsgi(site.bottle)(environ, lambda *response: None)
    assert type(result) is FileWrapper
    assert b"".join(result) == b"a file"
    assert site.stats().not_stored == {"file": 1}


def test_a_page_that_is_not_there_is_not_stored(site):
    for _ in range(2):
        assert site.get("/none").status == 404
    assert site.stats().stored == 0
