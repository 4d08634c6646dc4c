"""Answers from a stored page: the whole page, its headers only, a range of its body, or a 304."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wheelcache.pages import rules
from wheelcache.pages.blanks import Filled
from wheelcache.pages.headers import Headers, as_bytes
from wheelcache.pages.page import Page, status_line
from wheelcache.pages.reasons import CacheStatus
from wheelcache.pages.request import Request

COMPLETE: Final = 200

NO_BODY: Final = [(b"content-type", b"text/plain"), (b"content-length", b"0")]
"""Headers of an error that the cache itself answers with."""


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
