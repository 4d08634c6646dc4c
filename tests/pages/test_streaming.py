"""Lists, files and streams pass through the cache as the application made them."""

import asyncio
from io import BytesIO
from wsgiref.util import FileWrapper

import pytest

from tests.pages.site import answer_of

USUAL = [("Content-Type", "text/plain"), ("Cache-Control", "max-age=60")]


def sending(body, *headers):
    """Return an application that returns ``body``, or what ``body()`` makes."""

    def application(environ, start_response):
        start_response("200 OK", [*USUAL, *headers])
        return body() if callable(body) else body

    return application


@pytest.fixture
def call(wsgi):
    """Call an application through the cache: ``call(application)`` returns its iterable, and the list of calls."""

    def ask(application, **more):
        sent = []

        def start_response(status, headers, exc_info=None):
            sent.append((status, exc_info))
            return sent.append

        environ = wsgi.environ("GET", "/", "", [("Host", "example.com")], b"") | more
        return wsgi.cache.wsgi(application)(environ, start_response), sent

    return ask


def is_stored(wsgi):
    return wsgi.stats().stored == 1


@pytest.mark.parametrize(
    ("body", "headers", "stored"),
    [
        ([b"a", b"b"], [], True),
        ((b"a", b"b"), [], True),
        ([b"a"], [("Cache-Control", "private")], False),
        (iter([b"a"]), [("Cache-Control", "private")], False),
    ],
)
def test_a_list_and_a_stream_that_cannot_be_stored_are_returned_as_they_are(wsgi, call, body, headers, stored):
    assert call(sending(body, *headers))[0] is body
    assert is_stored(wsgi) == stored
    if stored:
        assert call(sending(body))[0] == [b"ab"]


def test_a_file_is_returned_as_it_is_and_not_stored(wsgi, call):
    made = []

    def wrap(file, size):
        # As in uWSGI, where it is a function.
        made.append(FileWrapper(file, size))
        return made[-1]

    def application(environ, start_response):
        start_response("200 OK", USUAL)
        return environ["wsgi.file_wrapper"](BytesIO(b"page"), 8192)

    assert call(application, **{"wsgi.file_wrapper": wrap})[0] is made[0]
    assert wsgi.stats().not_stored == {"file": 1}
    # And so is the next response, whose headers cannot show it either.
    call(sending([b"page"]))
    assert not is_stored(wsgi)


def test_a_stream_whose_client_leaves_is_closed_and_not_stored(wsgi, call):
    closed = []

    def stream():
        try:
            yield b"a"
            yield b"b"
        finally:
            closed.append(True)

    iterable, _ = call(sending(stream))
    next(iterable)
    iterable.close()
    assert (closed, is_stored(wsgi), wsgi.cache.cache.stats().misses) == ([True], False, 1)
    # The next request runs the application.
    assert b"".join(call(sending(stream))[0]) == b"ab"
    assert is_stored(wsgi)


def test_a_stream_is_stored_when_it_has_the_promised_length(wsgi, call):
    """The requests that wait for it do not wait for a client that reads slowly."""
    iterable, _ = call(sending(lambda: iter([b"a", b"b"]), ("Content-Length", "2")))
    assert (next(iterable), is_stored(wsgi)) == (b"a", False)
    assert (next(iterable), is_stored(wsgi)) == (b"b", True)
    assert [*iterable] == []


def test_an_empty_response_that_the_server_closes_without_reading_it_is_stored(wsgi, call):
    call(sending(lambda: iter([]), ("Content-Length", "0")))[0].close()
    assert is_stored(wsgi)


def test_a_response_that_uses_write_is_not_stored(wsgi, call):
    def application(environ, start_response):
        write = start_response("200 OK", USUAL)
        write(b"a")
        return [b"b"]

    iterable, sent = call(application)
    assert (iterable, sent[1]) == ([b"b"], b"a")
    assert wsgi.stats().not_stored == {"write": 1}
    call(sending([b"page"]))
    assert not is_stored(wsgi)


def test_an_application_may_fail_in_the_middle_of_its_response(wsgi, call):
    def stream():
        yield b"a"
        raise OSError("the database is down")

    iterable, _ = call(sending(stream))
    next(iterable)
    with pytest.raises(OSError, match="the database is down"):
        next(iterable)
    iterable.close()
    assert wsgi.stats().not_stored == {"error": 1}


def test_an_error_that_replaces_a_response_is_not_stored(wsgi, call):
    def application(environ, start_response):
        start_response("200 OK", USUAL)
        try:
            raise OSError
        except OSError as error:
            start_response("500 Error", USUAL, (type(error), error, None))
        return [b"error"]

    _, sent = call(application)
    assert [each[0] for each in sent] == ["200 OK", "500 Error"]
    assert wsgi.stats().not_stored == {"error": 1}
    answer = answer_of(wsgi.cache.wsgi(application), wsgi.environ(*wsgi.parts()))
    assert (answer.status, answer.detail) == (500, 'fwd=miss; detail="the application failed"')


@pytest.mark.parametrize(
    "read",
    [
        lambda stream: stream.read(),
        lambda stream: stream.read1(),
        lambda stream: stream.readline(),
        lambda stream: b"".join(stream.readlines()),
        lambda stream: b"".join(stream),
    ],
)
def test_a_body_that_no_header_announces_reaches_nobody_else(wsgi, read):
    # Granian passes such a body on, which HTTP/2 allows, and Werkzeug reads it.
    def application(environ, start_response):
        return sending([read(environ["wsgi.input"])], ("Cache-Tag", "a"))(environ, start_response)

    def ask(body):
        environ = wsgi.environ(*wsgi.parts()) | {"wsgi.input": BytesIO(body), "wsgi.input_terminated": True}
        return answer_of(wsgi.cache.wsgi(application), environ)

    evil = ask(b"evil")
    assert (evil.body, evil.detail) == (b"evil", 'fwd=miss; detail="request with a body"')
    assert "cache-tag" not in evil.headers
    assert [ask(b"").body, ask(b"evil").body] == [b"", b""]


# ASGI.


START = {"type": "http.response.start", "status": 200, "headers": [(b"cache-control", b"max-age=60")]}
BODY = {"type": "http.response.body", "body": b"a"}


def send_through(site, messages, body=b"", *, more_body=False):
    """Send the messages of an application through the cache. Return the messages that the client received.

    Args:
        body, more_body: of the message of the request that the application reads.
    """
    received = []

    async def application(scope, receive, send):
        await receive()
        for message in messages:
            await send(message)

    async def receive():
        return {"type": "http.request", "body": body, "more_body": more_body}

    async def send(message):
        received.append(message)

    scope = site.scope("GET", "/", "", [("host", "example.com")])
    asyncio.run(site.cache.asgi(application)(scope, receive, send))
    return received


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([START, {"type": "http.response.pathsend", "path": "/file"}], "extension"),
        ([{**START, "trailers": True}, BODY], "trailers"),
        ([START, {**BODY, "more_body": True}], "incomplete"),
    ],
)
def test_messages_of_extensions_pass_through_and_nothing_is_stored(asgi, messages, reason):
    received = send_through(asgi, messages)
    assert received[1:] == messages[1:]
    assert asgi.stats().not_stored == {reason: 1}
    # Only the headers can show why.
    assert (b"stored" in dict(received[0]["headers"])[b"cache-status"]) == (reason != "trailers")
    send_through(asgi, [START, BODY])
    assert asgi.stats().stored == (reason == "incomplete")


def test_early_hints_pass_through(asgi):
    hint = {"type": "http.response.early_hint", "links": [b"</a.css>; rel=preload"]}
    tagged = {**START, "headers": [*START["headers"], (b"Cache-Tag", b"a"), (b"Transfer-Encoding", b"chunked")]}
    received = send_through(asgi, [hint, tagged, BODY])
    assert received[0] == hint
    assert dict(received[1]["headers"]) == {
        b"cache-control": b"max-age=60",
        b"cache-status": b'wheelcache; fwd=miss; detail="sent with an extension of ASGI"',
    }


@pytest.mark.parametrize("kind", ["websocket", "lifespan"])
def test_other_protocols_pass_through_untouched(asgi, kind):
    calls = []

    async def application(*arguments):
        calls.append(arguments)

    arguments = ({"type": kind}, object(), object())
    asyncio.run(asgi.cache.asgi(application)(*arguments))
    assert calls == [arguments]


@pytest.mark.parametrize("name", [b"Content-Type", b"content-type"])
def test_headers_may_be_an_iterator(asgi, name):
    received = send_through(asgi, [{**START, "headers": iter([(name, b"a/b")])}, BODY])
    assert (b"content-type", b"a/b") in received[0]["headers"]


@pytest.mark.parametrize("message", [{"body": b"evil"}, {"more_body": True}])
def test_a_page_is_not_stored_if_the_application_has_read_a_body_that_no_header_announces(asgi, message):
    received = send_through(asgi, [START, BODY], **message)
    assert asgi.stats().not_stored == {"body": 1}
    status = dict(received[0]["headers"])[b"cache-status"]
    assert status == b'wheelcache; fwd=miss; detail="request with a body"'
