"""The rules of a shared HTTP cache: RFC 9111 (caching), RFC 9110 (conditional requests, ranges) and RFC 5861 (stale
responses). They do no I/O, and time is an argument.

There are two clocks. ``wall`` is the time of day, which headers refer to. ``now`` is a steady clock, by which a stored
response grows old, so that setting the clock of the machine makes no page older or younger.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from wheelcache.http_cache.headers import (
    CACHE_TAG,
    FOREVER,
    Directives,
    Headers,
    delta_seconds,
    directives,
    http_date,
    members,
    single,
    values,
    without,
)

HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive te transfer-encoding upgrade trailer proxy-connection proxy-authenticate "
    b"proxy-authentication-info proxy-authorization".split()
)
NOT_STORED: Final = HOP_BY_HOP | {b"age", b"cache-status", CACHE_TAG}
DESCRIBES_THE_BODY: Final = frozenset(b"content-length content-encoding content-range content-md5 etag".split())
"""A 304 has no body, so these fields of it do not replace those of the stored body (RFC 9111, 3.2 and 4.3.4)."""

CLEARS: Final = re.compile(rb'"[^"]+"')
"""A valid member of Clear-Site-Data. Browsers ignore others."""

UNDERSTOOD: Final = frozenset(
    [200, 203, 204, 206, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 500, 501, 502, 503, 504]
)
HEURISTIC: Final = frozenset([200, 203, 204, 206, 300, 301, 308, 404, 405, 410, 414, 501])
"""Statuses that may be stored without an explicit lifetime (RFC 9110, 15.1)."""

HEURISTIC_FRACTION: Final = 0.1
HEURISTIC_MOST: Final = 86_400

CONDITIONS: Final = frozenset([b"range", b"if-range", b"if-none-match", b"if-modified-since"])
"""Request headers that the cache answers itself. The application runs without them, for a complete response."""

SAFE_METHODS: Final = frozenset(["GET", "HEAD", "OPTIONS", "TRACE"])

SERVER_ERRORS: Final = range(500, 600)
STALE_ERRORS: Final = frozenset([500, 502, 503, 504])
"""Statuses in place of which RFC 5861 lets a cache send a stale page."""

ALLOW_AUTHORIZED: Final = frozenset([b"public", b"must-revalidate", b"s-maxage"])


@dataclass(frozen=True, slots=True)
class Policy:
    """The choices that the standards leave to a cache.

    Attributes:
        stale_while_revalidate, stale_if_error: seconds for pages that do not specify them.
        heuristic_freshness: pages with Last-Modified and without a lifetime are fresh for a tenth of their age.
        request_directives: requests may demand fresher or accept staler pages with Cache-Control.
        store_errors: responses with a status of 500 or more are stored if they specify a lifetime.
        authorized: requests with Authorization are cached where RFC 9111 allows it.
        invalidate: a successful request with an unsafe method removes the pages of its URL.
        max_body: the maximum size of the body of a stored response, in bytes.
    """

    stale_while_revalidate: float = 0.0
    stale_if_error: float = 0.0
    heuristic_freshness: bool = False
    request_directives: bool = False
    store_errors: bool = True
    authorized: bool = True
    invalidate: bool = True
    max_body: int = 1 << 20


class Use(Enum):
    """How a stored response may be used."""

    FRESH = "as it is"
    WHILE_REVALIDATING = "as it is, while a renewal runs"
    VALIDATED = "after validation"


def refusal(status: int, headers: Headers, control: Directives, policy: Policy, *, authorized: bool) -> str | None:
    """Return the reason why the response to a GET must not be stored; None if it may be."""
    names = {name for name, _ in headers}
    if status < 200 or status in (206, 304, 416):
        return "status"
    if b"must-understand" in control:
        if status not in UNDERSTOOD:
            return "status"
    elif b"no-store" in control:
        return "no-store"
    if b"private" in control:
        return "private"
    if b"set-cookie" in names:
        return "set-cookie"
    if b"clear-site-data" in names and CLEARS.search(b",".join(values(headers, b"clear-site-data"))):
        return "clear-site-data"
    vary = vary_fields(headers)
    if b"*" in vary or not vary.isdisjoint(CONDITIONS):
        return "vary"
    allowed_origin = single(headers, b"access-control-allow-origin")
    if allowed_origin not in (None, b"*") and b"origin" not in vary:
        # It is probably a copy of the Origin of this request.
        return "cors"
    if authorized and not (policy.authorized and control.keys() & ALLOW_AUTHORIZED):
        return "authorization"
    if status in SERVER_ERRORS and not policy.store_errors:
        return "error"
    return None


def vary_fields(headers: Headers) -> frozenset[bytes]:
    """Return the lower-case names that Vary lists."""
    return frozenset(member.lower() for member in members(values(headers, b"vary")))


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of a response when it arrived, and the rules for its use.

    Attributes:
        age: the age at its arrival, in seconds.
        lifetime: seconds from the response's creation; None if it specifies none.
        while_revalidate, if_error: seconds after the lifetime for which it may be used during a renewal, or instead of
            an error.
        may_be_stale: whether it may be used after its lifetime.
        always_validate: whether it must be validated before every use.
        has_validator: whether the application can validate it.
    """

    age: float
    lifetime: float | None
    while_revalidate: float
    if_error: float
    may_be_stale: bool
    always_validate: bool
    has_validator: bool

    @property
    def is_useful(self) -> bool:
        """Whether the response can ever be used again without running the application in full."""
        if self.has_validator:
            return self.lifetime is not None or self.always_validate
        return self.lifetime is not None and not self.always_validate and self.usable_for > self.age

    @property
    def usable_for(self) -> float:
        """The age, in seconds, up to which the response may be used without validation."""
        return (self.lifetime or 0.0) + max(self.while_revalidate, self.if_error)

    def use(self, age: float, request: Directives | None = None) -> Use:
        """Return how the response may be used at this age.

        Args:
            request: the Cache-Control directives of the request; None if the policy ignores them.
        """
        lifetime = self.lifetime or 0.0
        if self.always_validate:
            return Use.VALIDATED
        if request:
            most = delta_seconds(request.get(b"max-age"))
            least = delta_seconds(request.get(b"min-fresh"))
            if b"no-cache" in request or (most is not None and age > most):
                return Use.VALIDATED
            if least is not None and lifetime - age < least:
                return Use.VALIDATED
            if b"max-stale" in request and self.may_be_stale:
                allowed = delta_seconds(request[b"max-stale"]) if request[b"max-stale"] else FOREVER
                if allowed is not None and age - lifetime < allowed:
                    return Use.FRESH
        if age < lifetime:
            return Use.FRESH
        return Use.WHILE_REVALIDATING if age < lifetime + self.while_revalidate else Use.VALIDATED

    def may_replace_an_error(self, age: float) -> bool:
        """Return whether the response may be used at this age instead of an error of the application."""
        return not self.always_validate and self.lifetime is not None and age < self.lifetime + self.if_error


def freshness(
    status: int, headers: Headers, control: Directives, policy: Policy, *, wall: float, seconds: float
) -> Freshness:
    """Return the freshness of a response that has just arrived.

    Args:
        wall: the time of day of its arrival.
        seconds: the time that the application took.
    """
    date = http_date(single(headers, b"date"), wall)
    created = wall if date is None else date
    age_lines = values(headers, b"age")
    age = delta_seconds(age_lines[0].split(b",")[0].strip()) if age_lines else 0
    may_be_stale = not control.keys() & {b"must-revalidate", b"proxy-revalidate", b"s-maxage"}

    def allowance(name: bytes, default: float) -> float:
        given = delta_seconds(control.get(name))
        return (default if given is None else given) if may_be_stale else 0.0

    return Freshness(
        age=(age or 0) + seconds,
        lifetime=_lifetime(status, headers, control, policy, created, wall),
        while_revalidate=allowance(b"stale-while-revalidate", policy.stale_while_revalidate),
        if_error=allowance(b"stale-if-error", policy.stale_if_error),
        may_be_stale=may_be_stale,
        always_validate=b"no-cache" in control,
        has_validator=any(name in (b"etag", b"last-modified") for name, _ in headers),
    )


def _lifetime(
    status: int, headers: Headers, control: Directives, policy: Policy, created: float, wall: float
) -> float | None:
    for name in (b"s-maxage", b"max-age"):
        if name in control:
            # An argument that cannot be parsed makes the response stale.
            return delta_seconds(control[name]) or 0
    expires = values(headers, b"expires")
    if expires:
        date = http_date(expires[0].strip(), wall) if len(expires) == 1 else None
        return 0 if date is None else date - created
    if policy.heuristic_freshness and (status in HEURISTIC or b"public" in control):
        modified = http_date(single(headers, b"last-modified"), wall)
        if modified is not None:
            return min(max(0.0, (created - modified) * HEURISTIC_FRACTION), HEURISTIC_MOST)
    return None


# Conditional requests.

_ENTITY_TAG: Final = re.compile(rb'(?:W/)?"[^"]*"')
_RANGE: Final = re.compile(rb"bytes=(\d{0,18})-(\d{0,18})")


def _opaque(tag: bytes) -> bytes:
    """Return an entity tag for the weak comparison."""
    return tag[2:] if tag[:2] == b"W/" else tag


def is_not_modified(
    headers: Headers, if_none_match: bytes | None, if_modified_since: bytes | None, wall: float
) -> bool:
    """Return whether a client that sends these conditions has the response already."""
    if if_none_match is not None:
        if if_none_match.strip() == b"*":
            return True
        tag = single(headers, b"etag")
        return tag is not None and _opaque(tag) in map(_opaque, _ENTITY_TAG.findall(if_none_match))
    since = http_date(if_modified_since, wall)
    if since is None:
        return False
    modified = http_date(single(headers, b"last-modified"), wall)
    return modified is not None and modified <= since


class Unsatisfiable(Exception):
    """The requested range is outside the body."""


def byte_range(headers: Headers, length: int, wanted: bytes | None, if_range: bytes | None) -> tuple[int, int] | None:
    """Return the first and the last byte of a single range of a body; None if the whole body answers the request.

    Raises:
        Unsatisfiable: if the range is outside the body, which is answered with a 416.
    """
    match = None if wanted is None else _RANGE.fullmatch(wanted.strip())
    if match is None or not any(match.groups()) or not _is_same(headers, if_range):
        return None
    first, last = match.groups()
    if not first:
        if int(last) == 0 or not length:
            raise Unsatisfiable
        return max(0, length - int(last)), length - 1
    if last and int(last) < int(first):
        return None
    if int(first) >= length:
        raise Unsatisfiable
    return int(first), min(int(last), length - 1) if last else length - 1


def _is_same(headers: Headers, if_range: bytes | None) -> bool:
    """Return whether If-Range names this response, by the strong comparison, so that the client has a part of it."""
    if if_range is None:
        return True
    if if_range[:1] == b'"':
        return single(headers, b"etag") == if_range
    return single(headers, b"last-modified") == if_range


def validators(headers: Headers) -> Headers:
    """Return the conditional headers that validate a stored response."""
    found: Headers = []
    for validator, condition in ((b"etag", b"if-none-match"), (b"last-modified", b"if-modified-since")):
        value = single(headers, validator)
        if value is not None:
            found.append((condition, value))
    return found


def storable_headers(headers: Headers) -> Headers:
    """Return the headers to store: all except those of the connection and those that the cache itself writes."""
    listed = {member.lower() for member in members(values(headers, b"connection"))}
    return without(headers, NOT_STORED | listed)


def updated_headers(stored: Headers, received: Headers) -> Headers:
    """Return the stored headers, updated by those of a 304 (RFC 9111, 3.2).

    Vary keeps all its names. The 304 may lack some, and other caches between this one and the client need them.
    """
    new = without(storable_headers(received), DESCRIBES_THE_BODY)
    named = vary_fields(new)
    if named:
        new = [*without(new, {b"vary"}), (b"vary", b", ".join(sorted(named | vary_fields(stored))))]
    return without(stored, {name for name, _ in new}) + new


def is_invalidating(method: str, status: int) -> bool:
    """Return whether an unsafe method succeeded, so that stored responses of its URL are outdated."""
    return method not in SAFE_METHODS and 200 <= status < 400


def response_directives(headers: Headers) -> Directives:
    """Return the directives of a response."""
    return directives(values(headers, b"cache-control"))
