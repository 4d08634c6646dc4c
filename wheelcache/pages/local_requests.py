"""Requests that a process makes to its own application, without a server."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from time import monotonic, sleep
from typing import Any, Final, NamedTuple
from urllib.parse import SplitResult, quote, unquote, unquote_to_bytes, urlsplit
from wsgiref.util import setup_testing_defaults

from wheelcache.engine.options import shown
from wheelcache.pages.headers import WsgiHeaders
from wheelcache.pages.page import status_line
from wheelcache.pages.reads import WHY, Reads
from wheelcache.pages.reasons import Refusal
from wheelcache.pages.variants import environ_name

KEPT: Final = "%/?#[]@!$&'()*+,;=:~"
"""Characters of a URL that stay as they are."""

CLIENT: Final = "127.0.0.1"

LONGEST_COMPARISON: Final = 70.0
"""Seconds. Clocks take a minute."""

POLL: Final = 0.01
"""Seconds."""

EMPTY_REQUEST: Final = {"type": "http.request", "body": b"", "more_body": False}


class Answer(NamedTuple):
    """An answer of an application: the status line, the headers with names in lower case, and the cache's record."""

    status: str
    headers: Mapping[str, str]
    reads: Reads

    @property
    def is_stored(self) -> bool:
        """Whether the cache has the page now. The cache must be in front of the application."""
        return not isinstance(self.reads.outcome, Refusal)


def parts_of(url: str) -> SplitResult:
    """Return the parts of an absolute URL, encoded as by a browser.

    Raises:
        ValueError: if it is malformed, or no URL of http or https.
    """
    parts = urlsplit(quote(url, safe=KEPT))
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ValueError(f"url must be a URL of http or https, such as https://example.com/news/, not {shown(url)}")
    return parts if parts.path else parts._replace(path="/")


def ask_wsgi(app: Any, url: str, headers: Mapping[str, str]) -> Answer:
    """Make a GET to a WSGI application.

    Raises:
        ValueError: see ``parts_of``.
    """
    parts, reads, started = parts_of(url), Reads(), []

    def start_response(status: str, headers: WsgiHeaders, exc_info: Any = None) -> Callable[[bytes], object]:
        started.append((status, {name.lower(): value for name, value in headers}))
        return len

    environ = {
        "PATH_INFO": unquote_to_bytes(parts.path).decode("latin-1"),
        "QUERY_STRING": parts.query,
        "RAW_URI": parts._replace(scheme="", netloc="", fragment="").geturl(),
        "SERVER_PROTOCOL": "HTTP/1.1",
        "REMOTE_ADDR": CLIENT,
        "HTTP_HOST": parts.netloc,
        "wsgi.url_scheme": parts.scheme,
        "wsgi.errors": sys.stderr,
        WHY: reads,
        **{environ_name(name.lower().encode()): value for name, value in headers.items()},
    }
    setup_testing_defaults(environ)
    drain(app(environ, start_response))
    until = monotonic() + LONGEST_COMPARISON
    while reads.is_comparing and monotonic() < until:
        sleep(POLL)
    status, sent = started[-1]
    return Answer(status, sent, reads)


async def ask_asgi(app: Any, url: str, headers: Mapping[str, str]) -> Answer:
    """Make a GET to an ASGI application: see ``ask_wsgi``."""
    parts, reads, messages = parts_of(url), Reads(), list[Any]()

    async def send(message: Any) -> None:
        messages.append(message)

    given = {"host": parts.netloc, **{name.lower(): value for name, value in headers.items()}}
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": parts.scheme,
        "path": unquote(parts.path),
        "raw_path": parts.path.encode(),
        "query_string": parts.query.encode(),
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        "client": (CLIENT, 0),
        WHY: reads,
    }
    await app(scope, receive_of_nobody(), send)
    until = monotonic() + LONGEST_COMPARISON
    while reads.is_comparing and monotonic() < until:
        await asyncio.sleep(POLL)
    start = next(message for message in messages if message["type"] == "http.response.start")
    sent = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in start["headers"]}
    return Answer(status_line(start["status"]), sent, reads)


def receive_of_nobody() -> Callable[[], Awaitable[MutableMapping[str, Any]]]:
    """Return a ``receive`` of a request without a body, whose client never disconnects."""
    messages: asyncio.Queue[MutableMapping[str, Any]] = asyncio.Queue()
    messages.put_nowait(dict(EMPTY_REQUEST))

    return messages.get


def drain(iterable: Iterable[bytes]) -> None:
    """Read the response of a WSGI application to its end, and close it. Django sends request_finished only then."""
    try:
        for _ in iterable:
            pass
    finally:
        close = getattr(iterable, "close", None)
        if close is not None:
            close()
