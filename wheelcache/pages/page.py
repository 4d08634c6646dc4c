"""A page: a stored response, and the answers from it: the whole page, its headers only, a range of its body, or a 304.

Its headers are prepared in the form that servers need, so that a hit only sends them. Age and Cache-Status change once
a second, so the first hit of each second prepares the lists of headers. Each hit gets a copy, since servers and
middleware append to the list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from itertools import chain
from typing import Final

from wheelcache.pages import rules
from wheelcache.pages.blanks import Blanks, Filled
from wheelcache.pages.cache_status import CacheStatus
from wheelcache.pages.headers import Headers, WsgiHeaders, as_bytes, as_text
from wheelcache.pages.request import Request
from wheelcache.pages.rules import Freshness

BODILESS: Final = frozenset([204, 205, 304])

COMPLETE: Final = 200

NO_BODY: Final = [(b"content-type", b"text/plain"), (b"content-length", b"0")]
"""Headers of an error that the cache itself answers with."""

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
        sent_until: the time until which a hit can be sent without a decision; in the past if the next use needs one.
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


@dataclass(frozen=True, slots=True)
class Renewal:
    """A stale page that must be renewed: its key, and a request for it."""

    request: Request
    key: str
    page: Page


@dataclass(frozen=True, slots=True)
class Reply:
    """A response that the cache itself gives.

    Attributes:
        reason: the status line.
        renewal: a page that the driver renews in the background, or None.
    """

    status: int
    reason: str
    headers: Headers
    body: bytes
    renewal: Renewal | None = None


def stored_reply(
    page: Page, request: Request, now: float, wall: float, status: Headers | None, filled: Filled | None
) -> Reply:
    """Answer a request with a stored page.

    Args:
        filled: the body for this visitor, if the page has blanks.
        status: the header Cache-Status; None for that of a hit.
    """
    unchanged = not_modified(page, request, wall)
    if unchanged is not None:
        return Reply(304, unchanged.reason, page.with_age(unchanged.headers, now, status), b"")
    headers = page.with_age(page.headers, now, status)
    if filled is not None:
        # Never a part of it: two parts would have two tokens.
        body = b"" if request.method == "HEAD" else filled.body
        return Reply(page.status, page.reason, headers + as_bytes(filled.headers), body)
    if request.method == "HEAD":
        return Reply(page.status, page.reason, headers, b"")
    wanted = request.value(b"range")
    if wanted is None or page.status != COMPLETE:
        return Reply(page.status, page.reason, headers, page.body)
    try:
        span = rules.byte_range(page.headers, page.size, wanted, request.value(b"if-range"))
    except rules.Unsatisfiable:
        unsatisfied = [(b"content-range", b"bytes */%d" % page.size), *NO_BODY]
        return Reply(416, status_line(416), page.with_age(unsatisfied, now, status), b"")
    if span is None:
        return Reply(page.status, page.reason, headers, page.body)
    first, last = span
    body = page.body[first : last + 1]
    kept = [pair for pair in headers if pair[0] != b"content-length"]
    content_range = b"bytes %d-%d/%d" % (first, last, page.size)
    ranged = [*kept, (b"content-range", content_range), (b"content-length", b"%d" % len(body))]
    return Reply(206, status_line(206), ranged, body)


def not_modified(page: Page, request: Request, wall: float) -> Reply | None:
    """Return a 304 if the client has the page already, otherwise None."""
    if request.is_plain:
        return None
    none_match, modified_since = request.value(b"if-none-match"), request.value(b"if-modified-since")
    if page.status != COMPLETE or page.blanks is not None or (none_match is None and modified_since is None):
        return None
    if not rules.is_not_modified(page.headers, none_match, modified_since, wall):
        return None
    return Reply(304, status_line(304), page.headers_of_304, b"")


def not_cached(cache_status: CacheStatus) -> Reply:
    """Return a 504, for a request that accepts only stored pages if there is none."""
    return Reply(504, status_line(504), [*NO_BODY, *cache_status.refused("only-if-cached")], b"")
