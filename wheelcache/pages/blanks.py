"""Blanks: the places of a page where each visitor gets another text, such as a token against forged requests.

A page with the token of one visitor must not reach another one. But if only the tokens differ, the page can be shared:
the framework's companion replaces the tokens of the run with blanks before the page is stored, and each hit has a token
of its visitor in their place. So no stored page contains a secret, and nobody gets anything of the run's visitor.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from wheelcache.pages.headers import (
    CDN_CACHE_CONTROL,
    SURROGATE_CONTROL,
    Headers,
    WsgiHeaders,
    members,
    single,
    values,
    without,
)
from wheelcache.pages.reasons import Refusal, refusal

PIECE_WEIGHT: Final = 200
"""Bytes of the object for a part of a body."""

OF_THE_BODY: Final = frozenset(
    b"etag last-modified accept-ranges content-md5 digest content-digest repr-digest".split()
)
"""Response headers that describe the body of one answer. The next one has another token."""

FOR_OTHER_CACHES: Final = frozenset([b"expires", CDN_CACHE_CONTROL, SURROGATE_CONTROL])
SHARED: Final = frozenset([b"public", b"s-maxage", b"proxy-revalidate", b"private", b"no-cache"])

GZIP: Final = b"gzip"
WITHOUT_FORMS: Final = (b"image/", b"font/", b"audio/", b"video/", b"text/css")
"""The beginnings of the types of pages that have no forms, and therefore no tokens."""

FOREIGN: Final = refusal("csrf", "a CSRF token of another run in the body")
HIDDEN: Final = refusal("csrf", "a content coding in which CSRF tokens are not found")
AMBIGUOUS: Final = refusal("csrf", "unusual cookie of the CSRF token", leaves_mark=False)


class Blanks:
    """A body with blanks.

    Args:
        body: the body; the bytes in the blanks do not matter.
        places: where the blanks begin, in ascending order.
        width: the bytes of a blank.
        random_bytes: the maximum of random bytes in a compressed answer; None if answers are not compressed.

    Attributes:
        body, random_bytes: as given.
        weight: the bytes that it takes in addition to the body.
    """

    __slots__ = ("_pieces", "body", "random_bytes", "weight")

    def __init__(self, body: bytes, places: Iterable[int], width: int, *, random_bytes: int | None) -> None:
        view = memoryview(body)
        ends = [-width, *places, len(body)]
        self.body = body
        self.random_bytes = random_bytes
        self._pieces = tuple([view[start + width : end] for start, end in pairwise(ends)])
        self.weight = PIECE_WEIGHT * len(self._pieces)

    def filled(self, token: bytes) -> bytes:
        """Return the body with a token in each blank."""
        return token.join(self._pieces) if len(self._pieces) > 1 else self.body


class Blanked(NamedTuple):
    """What a companion reports of a response with tokens.

    Attributes:
        blanks: the body to store.
        body: the body that the application sends. It contains the tokens of the run.
        cookie: the name of the cookie that the response sets with the secret of the run.
    """

    blanks: Blanks
    body: bytes
    cookie: bytes

    def is_of_the_visitor(self, header: tuple[bytes, bytes]) -> bool:
        """Return whether a response header is not stored: the cookie, and those that describe this body."""
        name, value = header
        return name in OF_THE_BODY or (name == b"set-cookie" and value.lstrip().startswith(self.cookie + b"="))


class Filled(NamedTuple):
    """A body for one visitor, and headers in addition to those of the page."""

    body: bytes
    headers: WsgiHeaders


class Tokens(Protocol):
    """Fills blanks with tokens of the visitor of an answer.

    Attributes:
        cookie: the name of the cookie with the visitor's secret.
    """

    cookie: bytes

    def secret(self, cookies: str) -> str | None:
        """Return the visitor's secret, "" if a Cookie header has none, or None if the framework may find another one in
        it, for example because a subdomain has planted a second cookie."""

    def refused(self, body: bytes, *, is_compressed: bool) -> Refusal | None:
        """Return the reason why a body, with blanks in place of the run's tokens, must not be stored: it has, or may
        have, a token of another run in a form. Return None if it has none.

        Args:
            is_compressed: whether its content coding is gzip.
        """

    def fill(self, blanks: Blanks, secret: str) -> Filled:
        """Fill the blanks with a fresh token of a secret, or of a new one. The headers send it in the cookie."""


def content_coding(headers: Headers) -> bytes:
    """Return the content codings of a body in lower case, or b"" if it has none."""
    coding = b",".join(values(headers, b"content-encoding")).strip().lower()
    return b"" if coding == b"identity" else coding


def may_hide_tokens(headers: Headers) -> bool:
    """Return whether a page may have tokens, but nobody can find them because of its content coding."""
    if content_coding(headers) in (b"", GZIP):
        return False
    content_type = single(headers, b"content-type")
    return content_type is None or not content_type.lower().startswith(WITHOUT_FORMS)


def for_one_visitor(headers: Headers) -> Headers:
    """Return the headers of a response that is for one visitor, although it may be made of a shared page.

    Browsers use it as long as its own ``max-age`` says, and no other cache stores it.
    """
    given = members(values(headers, b"cache-control"))
    names = {member.partition(b"=")[0].lower() for member in given}
    kept = [member for member in given if member.partition(b"=")[0].lower() not in SHARED]
    if b"max-age" not in names or b"no-cache" in names:
        kept.insert(0, b"no-cache")
    control = (b"cache-control", b", ".join([b"private", *kept]))
    return [*without(headers, OF_THE_BODY | FOR_OTHER_CACHES | {b"cache-control"}), control]
