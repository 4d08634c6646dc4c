"""Rehearsal: the cache stores pages and compares them with the application's answers, but serves none of them.

Each request that would have been a hit runs the application, as without the cache. For a share of them, the answer is
compared with the stored page: its status, its headers, and the words of its body, with the tokens of both blank. If
they differ, the application runs again for a request that has only what is in the key of the page:

- The words in which these reruns differ are *noise*, such as a clock or a nonce.
- If the visitor's answer differs from all reruns in another word, the word is *personal*: the page would have been
  wrong.
- If the visitor's answer is like the reruns and the stored page differs, the page is *outdated*. That is what a
  lifetime allows for a page of all visitors. For a page that depends on a cookie, it is wrong: the visitor would have
  seen an earlier state.

A page may also show the visitor for whom it was made, which later visitors cannot reveal: the same share of the pages
is compared with reruns when they are stored. ``comparison`` has the times of the reruns.
"""

from __future__ import annotations

import re
import zlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from wheelcache.pages.headers import Headers, single, values, without

LONGEST_SHOWN: Final = 200
"""Characters of a line that is shown to operators."""

BEFORE: Final = 60
"""Characters of this line before the difference."""

NO_HEADER: Final = b"(none)"

DEPTH: Final = 8
"""Of the search for words that two texts have in common. Each level is linear in the length of the texts."""

NOT_COMPARED: Final = frozenset(
    b"accept-ranges age cache-control cdn-cache-control connection content-digest content-length content-md5 date "
    b"digest etag expires keep-alive last-modified repr-digest server server-timing set-cookie surrogate-control "
    b"transfer-encoding vary via x-request-id x-runtime".split()
)
"""The response headers that describe one answer, or how caches may use it."""

_WORDS: Final = re.compile(rb"[^\s\"'<>,;{}\[\]()&=]+|\s+|.", re.DOTALL)
"""The words of texts, HTML and JSON. A time or a nonce in base64 is one word."""

_TIME: Final = re.compile(rb"(\d{4}-\d\d-\d\dT?)?\d\d?:\d\d(:\d\d)?[\d.+:Z-]*|\d{4}-\d\d-\d\d|\d{10,13}(\.\d+)?")
"""A time of day, a date, or the seconds since 1970."""


class Kind(Enum):
    """The outcome of a comparison."""

    EQUAL = "equal"
    NOISE = "noise"
    OUTDATED = "outdated"
    WRONG = "wrong"
    UNCLEAR = "unclear"


class Difference(NamedTuple):
    """The outcome of a comparison, and the first place that differs.

    Attributes:
        line: its line, from 1; 0 for the status, the headers and the cookies.
        header: the name of the header that differs, or "status"; "" for a line of the body.
        stored, visitor: this line in the stored page, and in the answer to the visitor, or to another visitor if the
            page was just stored. If the outcome is unclear, ``visitor`` is the reason.
        is_time: whether only words that look like times and dates differ.
    """

    kind: Kind
    line: int = 0
    stored: str = ""
    visitor: str = ""
    is_time: bool = False
    header: str = ""


EQUAL: Final = Difference(Kind.EQUAL)


def unclear(why: str) -> Difference:
    return Difference(Kind.UNCLEAR, visitor=why)


class Answer(NamedTuple):
    """The parts of an answer that are compared.

    Attributes:
        cookies: the names of the cookies that it sets.
        head: a line for the status and for each header.
    """

    status: int
    cookies: bytes
    head: bytes
    body: bytes

    @property
    def size(self) -> int:
        return len(self.head) + len(self.body)

    def words(self) -> list[bytes]:
        return _WORDS.findall(self.head + b"\n\n" + self.body)


def answer_of(
    status: int,
    headers: Headers,
    body: bytes,
    *,
    ignored: frozenset[bytes],
    most: int,
    tokens: Collection[bytes] = (),
) -> Answer:
    """Return the comparable parts of a response.

    Args:
        ignored: the cookies that the response may set.
        most: the maximum size of the body, in bytes.
        tokens: the tokens of the visitor in the response, in whose place the answer has blanks.
    """
    names = {value.partition(b"=")[0].strip() for value in values(headers, b"set-cookie")}
    if single(headers, b"content-encoding") == b"gzip":
        # Compressed by chance: GZipMiddleware adds random bytes.
        body = _inflated(body, most)
        if tokens:
            # A stored page with blanks is not compressed yet.
            headers = without(headers, {b"content-encoding"})
    lines = sorted(b"%b: %b" % (name, value.strip()) for name, value in headers if name not in NOT_COMPARED)
    head = b"\n".join([b"status %d" % status, *lines])
    for token in tokens:
        # As in a stored page.
        blank = b"-" * len(token)
        head, body = head.replace(token, blank), body.replace(token, blank)
    return Answer(status, b", ".join(sorted(names - ignored)), head, body)


def _inflated(body: bytes, most: int) -> bytes:
    try:
        return zlib.decompressobj(wbits=31).decompress(body, most)
    except zlib.error:
        return body


def compare(stored: Answer, visitor: Answer, reruns: Iterable[Answer], *, is_keyed: bool) -> Difference:
    """Compare a stored page with the answer to a visitor and with reruns, of which there is at least one.

    Args:
        is_keyed: whether the page depends on a cookie.
    """
    reruns = [*reruns]
    first, *others = (each.words() for each in reruns)
    template = Template(first)
    for each in others:
        template.add(each)
    words = [stored.words(), visitor.words()]
    for kind, answer, own in (
        (Kind.WRONG, visitor, words[1]),
        (Kind.WRONG if is_keyed else Kind.OUTDATED, stored, words[0]),
    ):
        parts = template.differences(own)
        if parts:
            place = parts[0].start
            # The visitor for whom a page was made got this page.
            shown = [words[0], first if visitor == stored else words[1]]
            places = [_visible(each, template.place_in(each, place)) for each in shown]
            line = _line(answer, own, _visible(own, parts[0].place))
            is_time = all(map(_is_time, parts))
            if line == 0 and (header := _header(stored, visitor, reruns)) is not None:
                return Difference(kind, 0, *header[1:], is_time, header[0])
            of_page, of_visitor = map(_shown, shown, places)
            return Difference(kind, line, of_page, of_visitor, is_time)
    return Difference(Kind.NOISE)


class Part(NamedTuple):
    """A part of a template that a text does not have.

    Attributes:
        start, words: its place and its words in the template.
        place, others: those of the text instead.
    """

    start: int
    words: list[bytes]
    place: int
    others: list[bytes]


class Template:
    """The words of a text, and which of them differ in other texts.

    Args:
        words: those of the text.
    """

    def __init__(self, words: list[bytes]) -> None:
        self._words = words
        self._is_stable = [True] * len(words)
        # Whether the number of words between a word and the one before it varies; for the end, too.
        self._varies = [False] * (len(words) + 1)

    def add(self, text: list[bytes]) -> None:
        """Note in which words another text differs."""
        for start, end, begin, last in self._differences(text):
            self._is_stable[start:end] = [False] * (end - start)
            if end - start != last - begin:
                self._varies[start : end + 1] = [True] * (end + 1 - start)

    def differences(self, text: list[bytes]) -> list[Part]:
        """Return the parts in which a text differs from all others."""
        found = []
        for start, end, begin, last in self._differences(text):
            may_vary = all(self._varies[start : end + 1])
            if any(self._is_stable[start:end]) or (end - start != last - begin and not may_vary):
                found.append(Part(start, self._words[start:end], begin, text[begin:last]))
        return found

    def place_in(self, text: list[bytes], word: int) -> int:
        """Return the place in a text of a word, or of the words in its place."""
        moved = 0
        for start, end, begin, last in self._differences(text):
            if start <= word < end or start == word:
                return begin
            if start > word:
                break
            moved = last - end
        return word + moved

    def _differences(self, text: list[bytes]) -> Iterator[tuple[int, int, int, int]]:
        """Iterate over the words that a text does not have in common: their places, and of its own words."""
        place, counterpart = 0, 0
        for one, other in [*_common(self._words, text), (len(self._words), len(text))]:
            if (one, other) != (place, counterpart):
                yield place, one, counterpart, other
            place, counterpart = one + 1, other + 1


def _common(one: list[bytes], other: list[bytes]) -> list[tuple[int, int]]:
    """Return the places of words that two texts have in common, in ascending order.

    This is the patience diff of Bram Cohen: words that occur once in both texts are anchors, and the search goes on
    between them. Parts of the same length are first compared word by word. It takes almost linear time, unlike
    ``difflib``, which needs 10 s for 13 kB of numbers and empty lines.
    """
    pairs: list[tuple[int, int]] = []
    _find_common(one, other, (0, len(one)), (0, len(other)), pairs, DEPTH)
    return pairs


def _find_common(
    one: list[bytes],
    other: list[bytes],
    of_one: tuple[int, int],
    of_other: tuple[int, int],
    pairs: list[tuple[int, int]],
    depth: int,
) -> None:
    """Add the places of common words within two parts of the texts to ``pairs``."""
    (first, last), (start, end) = of_one, of_other
    while first < last and start < end and one[first] == other[start]:
        pairs.append((first, start))
        first, start = first + 1, start + 1
    same = 0
    while same < min(last - first, end - start) and one[last - 1 - same] == other[end - 1 - same]:
        same += 1
    last, end = last - same, end - same
    size = last - first
    # Lines with other words in the same places, such as a list in random order.
    alike = [step for step in range(size) if one[first + step] == other[start + step]] if size == end - start else []
    anchors: list[tuple[int, int]] = []
    if depth and size and start < end and 2 * len(alike) < size:
        anchors = _anchors(one, other, (first, last), (start, end))
    for place, counterpart in anchors:
        if first < place and start < counterpart:
            _find_common(one, other, (first, place), (start, counterpart), pairs, depth - 1)
        pairs.append((place, counterpart))
        first, start = place + 1, counterpart + 1
    if anchors:
        _find_common(one, other, (first, last), (start, end), pairs, depth - 1)
    else:
        pairs += [(first + step, start + step) for step in alike]
    pairs += zip(range(last, last + same), range(end, end + same), strict=True)


def _anchors(
    one: list[bytes], other: list[bytes], of_one: tuple[int, int], of_other: tuple[int, int]
) -> list[tuple[int, int]]:
    """Return the longest ascending series of places of words that occur once in each part."""
    numbers, counterparts = Counter(one[slice(*of_one)]), Counter(other[slice(*of_other)])
    places = {other[place]: place for place in range(*of_other) if counterparts[other[place]] == 1}
    found = [
        (place, places[one[place]]) for place in range(*of_one) if numbers[one[place]] == 1 and one[place] in places
    ]
    # The last pair of the best series of each length, and the pair before each pair.
    ends: list[int] = []
    best: list[int] = []
    previous: list[int | None] = []
    for index, (_, counterpart) in enumerate(found):
        length = bisect_left(ends, counterpart)
        ends[length : length + 1] = [counterpart]
        best[length : length + 1] = [index]
        previous.append(best[length - 1] if length else None)
    series, last = [], best[-1] if best else None
    while last is not None:
        series.append(found[last])
        last = previous[last]
    return series[::-1]


def _header(stored: Answer, visitor: Answer, reruns: Sequence[Answer]) -> tuple[str, str, str] | None:
    """Return the name of the first header that differs, and not only by chance, with both values, or None."""
    other = reruns[0] if visitor == stored else visitor
    one, two = _by_name(stored), _by_name(other)
    again = [_by_name(each) for each in reruns]
    differing = sorted((name for name in one.keys() | two.keys() if one.get(name) != two.get(name)), key=_status_first)
    constant = [name for name in differing if len({each.get(name) for each in again}) == 1]
    if not (names := constant or differing):
        return None
    values = [found.get(names[0], NO_HEADER).decode(errors="replace")[:LONGEST_SHOWN] for found in (one, two)]
    return names[0].decode(errors="replace"), values[0], values[1]


def _by_name(answer: Answer) -> dict[bytes, bytes]:
    """Return the status and the headers of an answer."""
    status, *lines = answer.head.split(b"\n")
    found = {b"status": status.removeprefix(b"status ")}
    for line in lines:
        name, _, value = line.partition(b": ")
        found[name] = found[name] + b", " + value if name in found else value
    return found


def _status_first(name: bytes) -> tuple[bool, bytes]:
    return name != b"status", name


def _is_time(part: Part) -> bool:
    words = [word for word in (*part.words, *part.others) if not word.isspace()]
    return bool(words) and all(map(_TIME.fullmatch, words))


def _line(answer: Answer, words: list[bytes], place: int) -> int:
    before = sum(word.count(b"\n") for word in words[:place])
    return max(0, before - answer.head.count(b"\n") - 1)


def _visible(words: list[bytes], place: int) -> int:
    """Return the place of the next word that is no space."""
    while place + 1 < len(words) and words[place].isspace():
        place += 1
    return place


def _shown(words: list[bytes], place: int) -> str:
    """Return the line of a word, or the part of it around the word."""
    before = b"".join(words[max(0, place - BEFORE) : place]).rpartition(b"\n")[2][-BEFORE:]
    after = b"".join(words[place : place + LONGEST_SHOWN]).partition(b"\n")[0]
    return (before + after).decode(errors="replace").strip()[:LONGEST_SHOWN]
