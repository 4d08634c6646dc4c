"""A page: a stored response. Its headers are prepared in the form that servers need, so that a hit only sends them.

Age and Cache-Status change once a second, so the lists of headers are prepared again once a second. Each hit gets a
copy, since servers and middleware append to the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from itertools import chain
from typing import Final

from wheelcache.pages.blanks import Blanks
from wheelcache.pages.headers import Headers, WsgiHeaders, as_text
from wheelcache.pages.reasons import CacheStatus
from wheelcache.pages.rules import Freshness

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


class Page:
    """A stored response.

    Attributes:
        status, reason, headers, body: the response, without Age and Cache-Status. ``reason`` is the status line.
        headers_of_304: the headers of a 304, for a client that has the page already.
        freshness: its lifetime, and how it may be used.
        born: the time at which its age was 0, on the cache's clock.
        sent_until: the time until which a hit can be sent without a decision; in the past if every use needs one.
        fields: the request headers and cookies on which it depends.
        tags: the tags that the site has given it: see ``HTTPCache.delete_tags``.
        purge_tags: see ``keys.page_tags``.
        since: the moment at which the run that made it began.
        length: its Content-Length, if the application gave one; otherwise None.
        targeted: the headers that governed it instead of Cache-Control, for its validation by a 304 without them.
        blanks: the body, if it has blanks for the tokens of visitors; None if it is the same for all.
        is_outdated: whether a soft purge has made it stale.
        asgi_headers, wsgi_headers: the prepared headers of a hit.
        weight: its weight in the cache.
        view: the name of the view that made it, for the figures; None if it is unknown.
    """

    __slots__ = (
        *("asgi_headers", "blanks", "body", "born", "cache_status", "fields", "freshness", "headers", "headers_of_304"),
        *("is_outdated", "length", "purge_tags", "reason", "sent_until", "since", "size", "status", "tags"),
        *("targeted", "view", "weight", "wsgi_headers"),
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
        cache_status: CacheStatus,
    ) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        self.headers_of_304 = [pair for pair in headers if pair[0] in KEPT_IN_304]
        self.freshness = freshness
        self.fields = fields
        self.born = now - freshness.age
        self.cache_status = cache_status
        self.tags: Iterable[str] = ()
        self.purge_tags: tuple[str, ...] = ()
        self.since = 0
        self.length: int | None = None
        self.targeted: Headers = []
        self.blanks: Blanks | None = None
        self.view: str | None = None
        self.is_outdated = False
        self.sent_until = now
        self.asgi_headers: Headers = []
        self.wsgi_headers: WsgiHeaders = []
        self.body = b""
        self.size = self.weight = 0

    def fill(self, body: bytes) -> None:
        """Set the body, before the page is stored."""
        self.body = body
        self.size = len(body)
        blanks = 0 if self.blanks is None else self.blanks.weight
        self.weight = OVERHEAD + blanks + len(body) + 3 * sum(map(len, chain.from_iterable(self.headers)))

    def age(self, now: float) -> float:
        return now - self.born

    def prepare(self, now: float) -> None:
        """Prepare the headers of hits. They are valid until the next full second of the page's age."""
        age, freshness = max(0, int(now - self.born)), self.freshness
        status = self.cache_status.hit(int((freshness.lifetime or 0) - age))
        # The lists come first: other threads send them as soon as ``sent_until`` allows it.
        self.asgi_headers = [*self.headers, (b"age", b"%d" % age), *status]
        self.wsgi_headers = as_text(self.asgi_headers)
        if not (freshness.always_validate or self.is_outdated):
            self.sent_until = self.born + min(age + 1, freshness.lifetime or 0.0)

    def with_age(self, headers: Headers, now: float, status: Headers | None = None) -> Headers:
        """Return headers with Age and Cache-Status, which is that of a hit if ``status`` is None."""
        age = max(0, int(now - self.born))
        return [*headers, (b"age", b"%d" % age), *(self.hit_status(now) if status is None else status)]

    def hit_status(self, now: float, detail: str | None = None) -> Headers:
        """Return the Cache-Status of a hit."""
        return self.cache_status.hit(int((self.freshness.lifetime or 0) - max(0, int(now - self.born))), detail)
