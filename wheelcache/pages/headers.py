"""Parsing of header fields: lists, directives, dates. Names are lower-case bytes and values are bytes, as in ASGI.

Bytes rather than text, because ``str`` methods accept too much: ``"²".isdigit()`` is true, and ``"\\xa0".strip()`` is
empty.
"""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Final

Headers = list[tuple[bytes, bytes]]
WsgiHeaders = list[tuple[str, str]]

Directives = Mapping[bytes, bytes | None]
"""The first argument of each directive of a Cache-Control field, by its name; None without an argument."""

CACHE_TAG: Final = b"cache-tag"
"""The response header that lists the tags of a page."""

CDN_CACHE_CONTROL: Final = b"cdn-cache-control"
SURROGATE_CONTROL: Final = b"surrogate-control"

FOR_THE_CACHE: Final = frozenset([CACHE_TAG, CDN_CACHE_CONTROL, SURROGATE_CONTROL])
"""The response headers that are meant for this cache. They are neither sent to clients nor stored with the page."""

FOREVER: Final = 2**31
"""Seconds. RFC 9111 lets a cache replace greater lifetimes and ages with this number."""

MOST_PARSED: Final = 4096
"""Bytes. Longer values of request headers are not parsed."""

# Time: a quoted string that has begun always matches, as it may end with the line or with a lone backslash before that
# end. So nothing is ever matched a second time.
_MEMBER: Final = re.compile(rb'(?:[^,"]+|"(?:[^"\\]|\\.)*(?:"|\\?\Z))+', re.DOTALL)
_QUOTED: Final = re.compile(rb'"((?:[^"\\]|\\.)*)"', re.DOTALL)

_SF_KEY: Final = rb"[a-z*][a-z0-9_\-.*]*"
_SF_ITEM: Final = (
    rb"(?:-?\d{1,12}\.\d{1,3}|@?-?\d{1,15}|[A-Za-z*][!#$%&'*+\-.^_`|~\w:/]*|\?[01]|:[A-Za-z\d+/=]*:"
    rb'|"(?:[ !#-\[\]-~]|\\["\\])*"|%"[ !#-~]*")'
)
_SF_PARAMETERS: Final = rb"(?:; *" + _SF_KEY + rb"(?:=" + _SF_ITEM + rb")?)*"
_SF_INNER: Final = rb"\((?: *" + _SF_ITEM + _SF_PARAMETERS + rb"(?= |\)))* *\)"
_SF_MEMBER: Final = re.compile(
    rb"(?P<key>%b)(?:=(?P<value>%b|%b))?%b(?:[ \t]*(?P<comma>,)[ \t]*|\Z)"
    % (_SF_KEY, _SF_ITEM, _SF_INNER, _SF_PARAMETERS)
)
"""A member of a Structured Fields dictionary, with the comma after it."""

_MONTHS: Final = {
    name: number + 1 for number, name in enumerate(b"jan feb mar apr may jun jul aug sep oct nov dec".split())
}
_TIME: Final = rb"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES: Final = tuple(
    re.compile(form, re.IGNORECASE)
    for form in (
        # IMF-fixdate, then the two obsolete forms: RFC 850 and asctime.
        rb"(?:mon|tue|wed|thu|fri|sat|sun), (?P<day>\d\d) (?P<month>[a-z]{3}) (?P<year>\d{4}) " + _TIME + rb" gmt",
        rb"(?:mon|tues|wednes|thurs|fri|satur|sun)day, (?P<day>\d\d)-(?P<month>[a-z]{3})-(?P<year>\d\d) "
        + _TIME
        + rb" gmt",
        rb"(?:mon|tue|wed|thu|fri|sat|sun) (?P<month>[a-z]{3}) (?P<day>[ \d]\d) " + _TIME + rb" (?P<year>\d{4})",
    )
)
_THIS_CENTURY: Final = 2000


def values(headers: Headers, name: bytes) -> list[bytes]:
    """Return the values of all lines with this name."""
    return [value for each, value in headers if each == name]


def single(headers: Headers, name: bytes) -> bytes | None:
    """Return the value of the field if it has exactly one line."""
    found = values(headers, name)
    return found[0].strip() if len(found) == 1 else None


def members(lines: Iterable[bytes]) -> list[bytes]:
    """Return the members of a comma-separated list. Commas in quoted strings do not separate."""
    return [member for line in lines for found in _MEMBER.findall(line) if (member := found.strip())]


def directives(lines: Iterable[bytes]) -> Directives:
    """Parse the lines of a Cache-Control field. The first of duplicate directives counts."""
    found: dict[bytes, bytes | None] = {}
    for member in chain.from_iterable(map(_MEMBER.findall, lines)):
        name, has_argument, argument = member.partition(b"=")
        name, argument = name.strip().lower(), argument.strip()
        if quoted := _QUOTED.fullmatch(argument):
            argument = quoted[1]
        if name or has_argument:
            found.setdefault(name, argument if has_argument else None)
    return found


def dictionary(lines: Iterable[bytes]) -> Directives | None:
    """Parse the lines of a Structured Fields dictionary (RFC 9651). Return None if it is malformed or empty.

    The values are returned as they were written, so those of type Integer are digits. A member with the value False is
    left out, and True is None, as if the member had no argument. The last of duplicate members counts.
    """
    text = b",".join(lines).strip(b" ")
    found: dict[bytes, bytes | None] = {}
    at = 0
    while match := _SF_MEMBER.match(text, at):
        found[match["key"]] = None if match["value"] == b"?1" else match["value"]
        at = match.end()
        if not match["comma"]:
            return {name: value for name, value in found.items() if value != b"?0"}
    return None


def decoded(value: bytes) -> str:
    """Return a value as text, which is UTF-8 or Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def delta_seconds(argument: bytes | None) -> int | None:
    """Return a number of seconds, at most ``FOREVER``; None if the argument is no such number."""
    return min(int(argument[:12]), FOREVER) if argument and argument.isdigit() else None


def http_date(value: bytes | None, now: float) -> int | None:
    """Return a date in any of the three forms as seconds since 1970; None if it is not a date.

    Args:
        now: seconds since 1970. A year of two digits is at most 50 years later.
    """
    if value is None:
        return None
    match = next(filter(None, (form.fullmatch(value) for form in _DATES)), None)
    if match is None:
        return None
    month = _MONTHS.get(match["month"].lower())
    day, year, hour, minute, second = (int(match[part]) for part in ("day", "year", "hour", "minute", "second"))
    if month is None or not 1 <= day <= 31 or hour > 23 or minute > 59 or second > 60:
        return None
    if len(match["year"]) == 2:
        year += _THIS_CENTURY
        if timegm((year - 50, month, day, hour, minute, second)) > now:
            year -= 100
    elif year == 0:
        return None
    return timegm((year, month, day, hour, minute, second))


def without(headers: Headers, names: frozenset[bytes] | set[bytes]) -> Headers:
    """Return the headers except those with one of these names."""
    return [pair for pair in headers if pair[0] not in names]


def as_text(headers: Headers) -> WsgiHeaders:
    """Return the headers as text, which WSGI needs."""
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


def as_bytes(headers: WsgiHeaders, errors: str = "strict") -> Headers:
    """Return headers of WSGI with names in lower case, as in ASGI.

    Args:
        errors: see ``str.encode``.
    """
    return [(name.lower().encode("latin-1", errors), value.encode("latin-1", errors)) for name, value in headers]
