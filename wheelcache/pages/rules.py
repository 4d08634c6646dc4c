"""The rules of a shared HTTP cache: RFC 9111 (caching), RFC 9110 (conditional requests, ranges), RFC 5861 (stale
responses) and RFC 9213 (directives for certain caches). They do no I/O, and time is an argument.

There are two clocks. ``wall`` is the time of day, which headers refer to. ``now`` is a steady clock, by which a stored
response grows old, so that setting the clock of the machine makes no page older or younger.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from wheelcache.pages.headers import (
    CDN_CACHE_CONTROL,
    FOR_THE_CACHE,
    MOST_PARSED,
    SURROGATE_CONTROL,
    Directives,
    Headers,
    delta_seconds,
    dictionary,
    directives,
    http_date,
    members,
    single,
    values,
    without,
)
from wheelcache.pages.page_rules import NO_RULE, PageRule
from wheelcache.pages.reasons import Refusal
from wheelcache.pages.reasons import refusal as because

HOP_BY_HOP: Final = frozenset(
    b"connection keep-alive te transfer-encoding upgrade trailer proxy-connection proxy-authenticate "
    b"proxy-authentication-info proxy-authorization".split()
)
NOT_STORED: Final = HOP_BY_HOP | FOR_THE_CACHE | {b"age", b"cache-status"}
DESCRIBES_THE_BODY: Final = frozenset(b"content-length content-encoding content-range content-md5 etag".split())
"""A 304 has no body, so these fields of it do not replace those of the stored body (RFC 9111, 3.2 and 4.3.4)."""

CLEARS: Final = re.compile(rb'"[^"]+"')
"""A valid member of Clear-Site-Data. Browsers ignore others."""

UNDERSTOOD: Final = frozenset(
    [200, 203, 204, 206, 300, 301, 302, 303, 307, 308, 400, 401, 403, 404, 405, 410, 414, 500, 501, 502, 503, 504]
)
GIVEN_LIFETIME: Final = frozenset([200, 203, 204, 300, 301, 308, 404, 410])
"""Statuses whose lifetime a ``PageRule`` may set."""

CONDITIONS: Final = frozenset([b"range", b"if-range", b"if-none-match", b"if-modified-since"])
"""Request headers that the cache answers itself. The application runs without them, for a complete response."""

SAFE_METHODS: Final = frozenset(["GET", "HEAD", "OPTIONS", "TRACE"])

SERVER_ERRORS: Final = range(500, 600)
STALE_ERRORS: Final = frozenset([500, 502, 503, 504])
"""Statuses in place of which RFC 5861 lets a cache send a stale page."""

TARGETED: Final = frozenset([CDN_CACHE_CONTROL, SURROGATE_CONTROL])
"""Response headers with directives for caches such as this one."""

NEVER_STALE: Final = frozenset([b"must-revalidate", b"proxy-revalidate"])
ALLOW_AUTHORIZED: Final = frozenset([b"public", b"must-revalidate", b"s-maxage"])


class Use(Enum):
    """How a stored response may be used."""

    FRESH = "as it is"
    WHILE_REVALIDATING = "as it is, while a renewal runs"
    VALIDATED = "after validation"


class Control(NamedTuple):
    """The directives that a response has for this cache.

    Attributes:
        directives: as in Cache-Control.
        is_targeted: whether they are from a header for caches such as this one, so that Cache-Control and Expires do
            not count (RFC 9213, 2.2).
    """

    directives: Directives
    is_targeted: bool


class Response:
    """The beginning of a response, parsed once.

    Attributes:
        status, headers: see ``Run.started``.
        lines: the values of the lines of each field, by its name.
        control: the directives that govern its storing and its use.
        vary: the lower-case names that Vary lists.
    """

    __slots__ = ("control", "headers", "lines", "status", "vary")

    def __init__(self, status: int, headers: Headers) -> None:
        lines: dict[bytes, list[bytes]] = {}
        for name, value in headers:
            lines.setdefault(name, []).append(value)
        self.status = status
        self.headers = headers
        self.lines = lines
        targeted = dictionary(lines[CDN_CACHE_CONTROL]) if CDN_CACHE_CONTROL in lines else None
        if not targeted and SURROGATE_CONTROL in lines:
            targeted = _surrogate(lines[SURROGATE_CONTROL])
        self.control = Control(targeted or directives(lines.get(b"cache-control", ())), bool(targeted))
        self.vary = vary_fields(headers) if b"vary" in lines else frozenset()

    def single(self, name: bytes) -> bytes | None:
        """Return the value of the field if it has exactly one line."""
        found = self.lines.get(name, ())
        return found[0].strip() if len(found) == 1 else None


def _surrogate(lines: list[bytes]) -> Directives:
    """Return the directives of Surrogate-Control (W3C Edge Architecture); none without no-store or a valid max-age.

    ``max-age=600+30`` lets the page be stale for 30 seconds. With a parameter, a directive is for a named cache.
    """
    given = dict(directives(lines))
    lifetime, _, stale = (given.pop(b"max-age", None) or b"").partition(b"+")
    if lifetime.isdigit():
        given[b"max-age"] = lifetime
        if stale:
            given = {b"stale-while-revalidate": stale, b"stale-if-error": stale, **given}
    return given if lifetime.isdigit() or b"no-store" in given else {}


def request_directives(value: bytes | None) -> Directives:
    """Return the Cache-Control directives of a request; none if the header is missing or oversized."""
    return {} if value is None or len(value) > MOST_PARSED else directives([value])


def refusals(response: Response, *, authorized: bool) -> Iterator[Refusal]:
    """Iterate over the reasons why the response to a GET must not be stored; there are none if it may be."""
    status, lines, given = response.status, response.lines, response.control.directives
    if status < 200 or status in (206, 304, 416) or (b"must-understand" in given and status not in UNDERSTOOD):
        yield because("status", f"status {status}")
    if b"no-store" in given and b"must-understand" not in given:
        yield because("no-store")
    if b"private" in given:
        yield because("private")
    if b"set-cookie" in lines:
        cookies = [name.decode("latin-1") for name in set_cookies(response)]
        yield because("set-cookie", f"sets cookie {', '.join(cookies)}")
    if b"clear-site-data" in lines and CLEARS.search(b",".join(lines[b"clear-site-data"])):
        yield because("clear-site-data")
    if unusable := response.vary & UNUSABLE_IN_VARY:
        yield because("vary", f"Vary: {b', '.join(sorted(unusable)).decode('latin-1')}")
    origins = b"access-control-allow-origin" in lines and b"origin" not in response.vary
    if origins and response.single(b"access-control-allow-origin") not in (None, b"*"):
        # It is probably a copy of the Origin of this request.
        yield because("cors", "Access-Control-Allow-Origin without Vary: Origin")
    if authorized and ALLOW_AUTHORIZED.isdisjoint(given):
        yield because("authorization")
    if b"content-length" in lines and not _LENGTH.fullmatch(b",".join(lines[b"content-length"])):
        # Servers and clients may disagree about the end of this response.
        yield because("content-length")


def set_cookies(response: Response) -> list[bytes]:
    """Return the names of the cookies that a response sets."""
    return [value.partition(b"=")[0].strip() for value in response.lines.get(b"set-cookie", ())]


UNUSABLE_IN_VARY: Final = CONDITIONS | {b"*"}
_LENGTH: Final = re.compile(rb"\d{1,18}")


def vary_fields(headers: Headers) -> frozenset[bytes]:
    """Return the lower-case names that Vary lists."""
    lines = values(headers, b"vary")
    return frozenset([member.lower() for member in members(lines)]) if lines else frozenset()


@dataclass(frozen=True, slots=True)
class Freshness:
    """The age of a response when it arrived, and the rules for its use.

    Attributes:
        age: the age at its arrival, in seconds.
        lifetime: seconds from the response's creation; None if it specifies none.
        grace, fail_safe: seconds after the lifetime for which it may be used during a renewal, or instead of an error.
        always_validate: whether it must be validated before every use.
        has_validator: whether the application can validate it.
        serves_authorized: whether it may answer requests with Authorization.
        value_cookies: if only a rule gives it a lifetime, the cookies that its visitors may have even if it depends on
            them; None if the response itself gives one.
    """

    age: float
    lifetime: float | None
    grace: float
    fail_safe: float
    always_validate: bool
    has_validator: bool
    serves_authorized: bool
    value_cookies: frozenset[bytes] | None = None

    @property
    def is_useful(self) -> bool:
        """Whether the response can ever be used again without running the application in full."""
        if self.has_validator:
            return self.lifetime is not None or self.always_validate
        return self.lifetime is not None and not self.always_validate and self.usable_for > self.age

    @property
    def usable_for(self) -> float:
        """The age, in seconds, up to which the response may be used without validation."""
        return (self.lifetime or 0.0) + max(self.grace, self.fail_safe)

    def use(self, age: float) -> Use:
        """Return how the response may be used at this age."""
        lifetime = self.lifetime or 0.0
        if self.always_validate:
            return Use.VALIDATED
        if age < lifetime:
            return Use.FRESH
        return Use.WHILE_REVALIDATING if age < lifetime + self.grace else Use.VALIDATED

    def may_replace_an_error(self, age: float) -> bool:
        """Return whether the response may be used at this age instead of an error of the application."""
        return not self.always_validate and self.lifetime is not None and age < self.lifetime + self.fail_safe


VALIDATORS: Final = frozenset((b"etag", b"last-modified"))


def freshness(
    response: Response,
    *,
    wall: float,
    seconds: float,
    rule: PageRule = NO_RULE,
    grace: float = 0.0,
    fail_safe: float = 0.0,
) -> Freshness:
    """Return the freshness of a response that has just arrived.

    Args:
        wall: the time of day of its arrival.
        seconds: the time that the application took.
        rule: the site's rule for the page.
        grace, fail_safe: see ``Freshness``, for a response that does not specify them.
    """
    lines, given = response.lines, response.control.directives
    age = delta_seconds(lines[b"age"][0].split(b",")[0].strip()) if b"age" in lines else 0
    if not NEVER_STALE.isdisjoint(given):
        grace = fail_safe = 0.0
    else:
        if b"s-maxage" in given:
            # RFC 9111, 5.2.2.10: s-maxage alone forbids it. RFC 5861 allows what the response itself specifies.
            grace = fail_safe = 0.0
        grace = grace if rule.grace is None else rule.grace
        fail_safe = fail_safe if rule.fail_safe is None else rule.fail_safe
        if b"stale-while-revalidate" in given:
            grace = _seconds_of(given[b"stale-while-revalidate"], grace)
        if b"stale-if-error" in given:
            fail_safe = _seconds_of(given[b"stale-if-error"], fail_safe)
    own = _lifetime(response, wall)
    has_rule = rule.ttl is not None and response.status in GIVEN_LIFETIME
    return Freshness(
        age=(age or 0) + seconds,
        lifetime=rule.ttl if has_rule else own,
        grace=grace,
        fail_safe=fail_safe,
        always_validate=b"no-cache" in given,
        has_validator=not VALIDATORS.isdisjoint(lines),
        serves_authorized=not ALLOW_AUTHORIZED.isdisjoint(given),
        value_cookies=rule.value_cookies if has_rule and (own or 0) <= 0 else None,
    )


def _seconds_of(argument: bytes | None, default: float) -> float:
    found = delta_seconds(argument)
    return default if found is None else found


def _lifetime(response: Response, wall: float) -> float | None:
    control = response.control
    for name in (b"s-maxage", b"max-age"):
        if name in control.directives:
            # An argument that cannot be parsed makes the response stale.
            return delta_seconds(control.directives[name]) or 0
    expires = response.lines.get(b"expires")
    if not expires or control.is_targeted:
        return None
    until = http_date(expires[0].strip(), wall) if len(expires) == 1 else None
    created = http_date(response.single(b"date"), wall)
    return 0 if until is None else until - (wall if created is None else created)


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
        if len(if_none_match) > MOST_PARSED:
            return False
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
    match = None if wanted is None or len(wanted) > MOST_PARSED else _RANGE.fullmatch(wanted.strip())
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


def storable_headers(headers: Headers, connection: Iterable[bytes]) -> Headers:
    """Return the headers to store: all except those of the connection and those that the cache itself writes.

    Args:
        connection: the lines of the field Connection.
    """
    unstored = NOT_STORED.union(map(bytes.lower, members(connection))) if connection else NOT_STORED
    return [pair for pair in headers if pair[0] not in unstored]


def updated_headers(stored: Headers, received: Headers) -> Headers:
    """Return the stored headers, updated by those of a 304 (RFC 9111, 3.2).

    Vary keeps all its names. The 304 may lack some, and other caches between this one and the client need them.
    """
    new = without(storable_headers(received, values(received, b"connection")), DESCRIBES_THE_BODY)
    named = vary_fields(new)
    if named:
        new = [*without(new, {b"vary"}), (b"vary", b", ".join(sorted(named | vary_fields(stored))))]
    return without(stored, {name for name, _ in new}) + new


def targeted_headers(headers: Headers) -> Headers:
    """Return the headers with directives for caches such as this one."""
    return [pair for pair in headers if pair[0] in TARGETED]


def updated_targeted(stored: Headers, received: Headers) -> Headers:
    """Return the ``targeted_headers`` of a stored response, updated by the headers of a 304."""
    new = targeted_headers(received)
    return without(stored, {name for name, _ in new}) + new


def is_invalidating(method: str, status: int) -> bool:
    """Return whether an unsafe method succeeded, so that stored responses of its URL are outdated."""
    return method not in SAFE_METHODS and 200 <= status < 400
