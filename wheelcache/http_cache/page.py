"""A page: a stored response. Its headers are prepared in the form that servers need, so that a hit only sends them.

Age and Cache-Status change once a second, so the lists of headers are prepared again once a second. Each hit gets a
copy, since servers and middleware append to the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from wheelcache.http_cache.headers import Headers
from wheelcache.http_cache.rules import Freshness

WsgiHeaders = list[tuple[str, str]]

BODILESS: Final = frozenset([204, 205, 304])

OVERHEAD: Final = 2048
"""Bytes of a page's objects, besides its body and its headers."""

KEPT_IN_304: Final = frozenset(b"cache-control content-location date etag expires last-modified vary".split())
"""RFC 9110, 15.4.5. Last-Modified is harmless, and some clients know no other validator."""


def status_line(status: int) -> str:
    """Return the status line that WSGI needs, such as "200 OK"."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return f"{status} Unknown"


def as_text(headers: Headers) -> WsgiHeaders:
    """Return the headers as text, which WSGI needs."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


class Page:
    """A stored response.

    Attributes:
        status, reason, headers, body: the response, without Age and Cache-Status. ``reason`` is the status line.
        headers_of_304: the headers of a 304, for a client that has the page already.
        freshness: its lifetime, and how it may be used.
        born: the time at which its age was 0, on the cache's clock.
        fresh_until: the time until which a hit can be sent without a decision; in the past if every use needs one.
        fields: the request headers and cookies on which it depends.
        prepared_until: the time until which the prepared headers are up to date.
        tags: its tags: see ``HTTPCache.delete_tags``.
        tags_key: the key that stands for its tags in ``HostPurges``; None without tags or ``HostPurges``.
        asgi_headers, wsgi_headers: the prepared headers of a hit.
        weight: its weight in the cache.
    """

    __slots__ = (
        *("asgi_headers", "body", "born", "fields", "fresh_until", "freshness", "headers", "headers_of_304"),
        *("prepared_until", "reason", "shows_status", "size", "status", "tags", "tags_key", "weight", "wsgi_headers"),
    )

    def __init__(
        self,
        status: int,
        reason: str,
        headers: Headers,
        freshness: Freshness,
        fields: frozenset[bytes],
        now: float,
        *,
        shows_status: bool,
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.headers_of_304 = [pair for pair in headers if pair[0] in KEPT_IN_304]
        self.freshness = freshness
        self.fields = fields
        self.born = now - freshness.age
        usable = not freshness.always_validate and freshness.lifetime is not None
        self.fresh_until = self.born + (freshness.lifetime or 0.0) if usable else now
        self.shows_status = shows_status
        self.tags: Iterable[str] = ()
        self.tags_key: str | None = None
        self.prepared_until = now
        self.asgi_headers: Headers = []
        self.wsgi_headers: WsgiHeaders = []
        self.fill(b"")

    def fill(self, body: bytes) -> None:
        """Set the body, before the page is stored."""
        self.body = body
        self.size = len(body)
        self.weight = OVERHEAD + len(body) + 3 * sum(len(name) + len(value) for name, value in self.headers)

    def age(self, now: float) -> float:
        return now - self.born

    def prepare(self, now: float) -> None:
        """Prepare the headers of hits. They are valid until the next full second of the page's age."""
        age = max(0, int(now - self.born))
        # The lists come first: other threads send them as soon as ``prepared_until`` allows it.
        self.asgi_headers = self.with_age(self.headers, now)
        self.wsgi_headers = as_text(self.asgi_headers)
        self.prepared_until = self.born + age + 1

    def with_age(self, headers: Headers, now: float, detail: bytes = b"") -> Headers:
        """Return headers with Age and Cache-Status.

        Args:
            detail: additional parameters of Cache-Status.
        """
        age = max(0, int(now - self.born))
        added = [(b"age", b"%d" % age)]
        if self.shows_status:
            ttl = int((self.freshness.lifetime or 0) - age)
            added.append((b"cache-status", b"wheelcache; hit; ttl=%d%s" % (ttl, detail)))
        return headers + added
