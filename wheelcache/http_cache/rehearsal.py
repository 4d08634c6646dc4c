"""Rehearsal: the cache stores pages and compares them with the application's answers, but serves none of them.

Each request that would have been a hit runs the application, as without the cache. For a share of them, the answer is
compared with the stored page: its status, its headers, and its lines, with the tokens of both blank. If they differ,
the application runs twice more, for a request that has only what is in the key of the page:

- The lines in which these two answers differ are *noise*, such as a clock or a nonce.
- If the visitor's answer differs from both in another line, the line is *personal*: the page would have been wrong.
- If all three agree and the stored page differs, it is *outdated*. That is what a lifetime allows for a page of all
  visitors. For a page that depends on a cookie, it is wrong: the visitor would have seen an earlier state.

The two runs have no cookies, except those in the key, and their own cookies are thrown away. They begin after the
answer was sent, and there are never more than ``MOST_RERUNS`` of them.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Sequence
from difflib import SequenceMatcher
from enum import Enum
from typing import Final, NamedTuple

from wheelcache.http_cache.headers import Headers, single, values

MOST_LINES: Final = 2_000
"""Lines between the first and the last difference. Beyond that, they count as one."""
LONGEST_SHOWN: Final = 200
"""Characters of a line that is shown to operators."""
MOST_INFLATED: Final = 8 << 20
"""Bytes."""

COMPARED: Final = (
    *(b"content-type", b"content-language", b"content-encoding", b"content-disposition", b"location", b"link"),
    *(b"content-security-policy", b"x-robots-tag"),
)
"""The response headers that visitors notice."""

_LINES: Final = re.compile(rb"[^\n>]*[\n>]|[^\n>]+\Z")
"""Lines end with a newline or with a tag, so that a page without newlines has lines, too."""


class Kind(Enum):
    """The outcome of a comparison."""

    EQUAL = "equal"
    NOISE = "noise"
    OUTDATED = "outdated"
    WRONG = "wrong"


class Difference(NamedTuple):
    """The outcome of a comparison, and the first line that differs.

    Attributes:
        line: its number, from 1; 0 for the status and the headers.
        stored, visitor: the line in the stored page, and in the answer to the visitor.
    """

    kind: Kind
    line: int = 0
    stored: str = ""
    visitor: str = ""


EQUAL: Final = Difference(Kind.EQUAL)


class Answer(NamedTuple):
    """The parts of an answer that are compared: a line for the status and the headers, the names of the cookies that it
    sets, and the body."""

    head: bytes
    cookies: bytes
    body: bytes

    def lines(self) -> list[bytes]:
        return [self.head, *_LINES.findall(self.body)]


def answer_of(status: int, headers: Headers, body: bytes, ignored: frozenset[bytes]) -> Answer:
    """Return the comparable parts of a response.

    Args:
        ignored: the cookies that the response may set.
    """
    names = {value.partition(b"=")[0].strip() for value in values(headers, b"set-cookie")}
    shown = [b"%b: %b" % (name, value.strip()) for name in COMPARED for value in values(headers, name)]
    if single(headers, b"content-encoding") == b"gzip":
        # Compressed by chance: GZipMiddleware adds random bytes.
        body = _inflated(body)
    return Answer(b"; ".join([b"status %d" % status, *shown]), b", ".join(sorted(names - ignored)), body)


def _inflated(body: bytes) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(body, MOST_INFLATED)
    except zlib.error:
        return body


def compare(stored: Answer, visitor: Answer, reruns: Sequence[Answer], *, is_keyed: bool) -> Difference:
    """Compare a stored page with the answer to a visitor and with two reruns.

    Args:
        is_keyed: whether the page depends on a cookie.
    """
    if visitor.cookies != stored.cookies:
        # The visitor would not have got it, and the application may rely on it.
        shown = [f"sets cookie {each.cookies.decode('latin-1')}"[:LONGEST_SHOWN] for each in (stored, visitor)]
        return Difference(Kind.WRONG, 0, *shown)
    first, second = (each.lines() for each in reruns)
    noise = _changes(first, second)
    for kind, other in ((Kind.WRONG, visitor), (Kind.WRONG if is_keyed else Kind.OUTDATED, stored)):
        lines = other.lines()
        for change in _changes(first, lines):
            if not any(_is_noise(change, each) for each in noise):
                place = change.other_start
                line = 1 + sum(each.endswith(b"\n") for each in lines[1:place]) if place else 0
                return Difference(kind, line, *(_shown(each, change, first, lines) for each in (stored, visitor)))
    return Difference(Kind.NOISE)


class _Change(NamedTuple):
    """Lines of one text that differ from those of another one: where they begin and end in both."""

    start: int
    end: int
    other_start: int
    other_end: int


def _is_noise(change: _Change, noise: _Change) -> bool:
    """Return whether a change is in lines that differ in any two answers, and adds no line to them."""
    if not (noise.start <= change.start and change.end <= noise.end):
        return False
    sizes = {noise.end - noise.start, noise.other_end - noise.other_start}
    if len(sizes) > 1:
        # Even their number differs.
        return True
    return change.end - change.start == change.other_end - change.other_start


def _changes(lines: list[bytes], others: list[bytes]) -> list[_Change]:
    """Return the changes from one text to another, in their order."""
    first, last = 0, 0
    most = min(len(lines), len(others))
    while first < most and lines[first] == others[first]:
        first += 1
    while last < most - first and lines[-1 - last] == others[-1 - last]:
        last += 1
    one, other = lines[first : len(lines) - last], others[first : len(others) - last]
    if not one and not other:
        return []
    whole = _Change(first, len(lines) - last, first, len(others) - last)
    if len(one) + len(other) > MOST_LINES:
        return [whole]
    found = SequenceMatcher(None, one, other, autojunk=False).get_opcodes()
    return [_Change(*(first + place for place in places)) for tag, *places in found if tag != "equal"]


def _shown(answer: Answer, change: _Change, first: list[bytes], lines: list[bytes]) -> str:
    """Return the first line of an answer in the place of a change."""
    found = answer.lines()
    if found == lines:
        place = change.other_start
    else:
        # The place that this answer has for the lines before the change.
        place = change.start + sum(
            (each.other_end - each.other_start) - (each.end - each.start)
            for each in _changes(first, found)
            if each.end <= change.start
        )
    text = found[place] if place < len(found) else b""
    return text.decode(errors="replace").strip()[:LONGEST_SHOWN]
