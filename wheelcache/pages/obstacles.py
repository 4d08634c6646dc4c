"""Finds which rules and options would let a page be stored, and which obstacle no rule removes: for rehearsals.

A page that is private for one reason may be private for another one, too, which the first one hides. So all reasons of
a response are considered, each as if the earlier ones were removed. Whether the page would then be the same for all
visitors is not decided here: a comparison of the answer with those to nobody decides it, see ``rehearsing``.
"""

from __future__ import annotations

import re
from typing import Final

from wheelcache.pages.needs import (
    IGNORE_QUERY,
    IGNORE_READS_BY,
    MAX_BODY,
    TTL,
    WITHOUT_COOKIES,
    Need,
    Obstacle,
    Obstacles,
)
from wheelcache.pages.notes import PageNotes
from wheelcache.pages.page_rules import is_cookie
from wheelcache.pages.patterns import pattern_of
from wheelcache.pages.query import TRACKING, QueryRules
from wheelcache.pages.reads import Read
from wheelcache.pages.reasons import Refusal
from wheelcache.pages.request import Request
from wheelcache.pages.rules import Response, set_cookies
from wheelcache.pages.storing import Storing
from wheelcache.pages.variants import cookie_field, cookies

READS: Final = "reads "
BY_READS: Final = frozenset(["client address", "all cookies", "all headers", "environ"])
"""The reasons that are a read, which ``ignore_reads_by`` can exempt."""

PER_VISITOR: Final = frozenset(
    b"user-agent referer x-forwarded-for x-real-ip cf-connecting-ip true-client-ip x-request-id traceparent".split()
)
"""Request headers that make a page for almost each visitor."""

OF_ANY_COOKIE: Final = {
    "visitor": "depends on all cookies, and this visitor has some; only a rule gives it a lifetime",
    "cookie": "shows the value of a cookie on which it does not depend",
}
"""Details of reasons without the name of the cookie. Otherwise, each name that a stranger sends would have a row in the
figures."""

MOST_BODY: Final = 32 << 20
"""The largest ``max_body`` that is recommended, in bytes."""

_EXPIRED: Final = re.compile(rb";\s*(?:max-age=(?:0|-\d+)|expires=[^;]*\b1970\b)", re.IGNORECASE)
_tracking: Final = QueryRules(TRACKING)


def find_obstacles(
    storing: Storing,
    request: Request,
    notes: PageNotes,
    response: Response,
    body: bytes | None,
    why: Refusal | None,
    known: frozenset[bytes],
) -> Obstacles:
    """Return the obstacles of a response whose reads were recorded.

    Args:
        body: None if it is unknown.
        why: the reason why the response was not stored; None if it was.
        known: the cookies that other responses of the view set, and that its pages may lose.
    """
    new = _losable(storing, notes, response)
    sent = cookies(request.cookie or b"") or {}
    read = frozenset(name for name in known if name in sent and cookie_field(name) in notes.fields)
    lost = new | read
    reasons = [*storing.obstacles(request, notes, response, body, lost)]
    if why is not None and why not in reasons and why.reason not in {each.reason for each in reasons}:
        reasons.insert(0, why)
    fields = storing.options.normalization.fields(response.vary) | notes.fields
    needs: dict[Need, None] = {}
    stuck = None
    pattern = _pattern(request, notes)
    for each in dict.fromkeys(reasons):
        found = _needs(each, notes, response, new, pattern)
        needs |= dict.fromkeys(found)
        if not found and stuck is None:
            detail = OF_ANY_COOKIE[each.reason] if _is_of_any_cookie(each, fields) else each.detail
            stuck = Obstacle(each.reason, detail, where(each, notes, storing.options.sessions.names))
    needs |= dict.fromkeys(Need(WITHOUT_COOKIES, name.decode("latin-1")) for name in sorted(read))
    exempt = _exempt_fields(notes, response)
    needs |= dict.fromkeys(Need(IGNORE_READS_BY, by) for paths in exempt.values() for by in paths)
    traces = notes.traces
    if traces is not None and any(_tracking.normalized(name) == "" for name in traces.unread):
        needs[Need(IGNORE_QUERY)] = None
    fields -= exempt.keys() | {cookie_field(name) for name in lost}
    return Obstacles(pattern, (*sorted(needs),), stuck, fields, lost)


def _is_of_any_cookie(why: Refusal, fields: frozenset[bytes]) -> bool:
    """Return whether a reason names a cookie of the visitor that is none of those on which the page depends."""
    return why.reason in OF_ANY_COOKIE and why.cookie is not None and cookie_field(why.cookie) not in fields


def _pattern(request: Request, notes: PageNotes) -> str:
    if notes.route is None:
        # Applications without a companion have no views. Otherwise, it is a 404, whose URL strangers choose.
        return "" if notes.is_keyed else "/*"
    return pattern_of(notes.route, request.root, request.path)


def _losable(storing: Storing, notes: PageNotes, response: Response) -> frozenset[bytes]:
    """Return the cookies that the response sets and may lose: neither a session, nor the deletion of a cookie, nor one
    with a name that no rule accepts."""
    kept = storing.options.sessions.names | notes.token_cookies
    found = zip(set_cookies(response), response.lines.get(b"set-cookie", ()), strict=True)
    lines = [(name, line) for name, line in found if name not in notes.token_cookies]
    if any(name in kept or not is_cookie(name.decode("latin-1")) or _EXPIRED.search(line) for name, line in lines):
        return frozenset()
    return frozenset(name for name, _ in lines)


def _needs(why: Refusal, notes: PageNotes, response: Response, lost: frozenset[bytes], pattern: str) -> list[Need]:
    """Return what removes a reason; nothing if no rule does."""
    if why.reason == "no lifetime":
        return [Need(TTL)] if pattern else []
    if why.reason == "set-cookie" and notes.sets_cookie is None:
        return [Need(WITHOUT_COOKIES, name.decode("latin-1")) for name in sorted(lost)]
    if why.reason == "max_body":
        length = int(response.single(b"content-length") or MOST_BODY)
        return [Need(MAX_BODY, str(1 << length.bit_length()))] if length < MOST_BODY else []
    if why.reason in BY_READS and why.detail.startswith(READS):
        return _exempting(why.detail.removeprefix(READS), notes)
    return []


def _exempting(what: str, notes: PageNotes) -> list[Need]:
    """Return the options that exempt all reads of a part of the request; nothing if some cannot be exempted."""
    reads = [] if notes.traces is None else [each for each in notes.traces.found if each.what == what]
    found = [_code(each, notes) for each in reads]
    return [Need(IGNORE_READS_BY, by) for by in dict.fromkeys(found)] if all(found) else []


def _code(read: Read, notes: PageNotes) -> str:
    """Return the path of code for ``ignore_reads_by``; "" if the read may be that of a view."""
    return read.by if read.is_outside or read.by in notes.middleware else ""


def _exempt_fields(notes: PageNotes, response: Response) -> dict[bytes, list[str]]:
    """Return the headers that make a page for almost each visitor, with the code that alone reads them."""
    found = {}
    for field in (PER_VISITOR & notes.fields) - response.vary:
        needs = _exempting(field.decode().title(), notes)
        if needs:
            found[field] = [each.value for each in needs]
    return found


def where(why: Refusal, notes: PageNotes, sessions: frozenset[bytes]) -> str:
    """Return the code that causes a reason, such as "session basket: shop/views.py:31"; "" if it is unknown.

    Args:
        sessions: the cookies of sessions.
    """
    traces = notes.traces
    if traces is None:
        return ""
    if why.reason == "set-cookie":
        names = {name.strip() for name in why.detail.removeprefix("sets cookie ").split(",")}
        of_session = [each for each in traces.written if each.what.startswith("session")]
        of_cookies = [each for each in traces.written if each.what.removeprefix("cookie ") in names]
        # A session that is written sets its cookie.
        is_session = names & {name.decode("latin-1") for name in sessions}
        causes = [*of_session, *of_cookies] if is_session else of_cookies
    else:
        cookie = "" if why.cookie is None else why.cookie.decode("latin-1")
        causes = [each for each in traces.found if each.what in (why.detail.removeprefix(READS), f"cookie {cookie}")]
    return f"{causes[0].what}: {causes[0].place}" if causes else ""
