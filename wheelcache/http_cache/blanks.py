"""Blanks: the places of a page where each visitor gets another text, such as a token against forged requests.

A page with the token of one visitor must not reach another one. But if only the tokens differ, the page can be shared:
the framework's companion replaces the tokens of the run with blanks before the page is stored, and each hit has a token
of its visitor in their place. So no stored page contains a secret, and nobody gets anything of the run's visitor.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final, NamedTuple, Protocol

from wheelcache.http_cache.headers import (
    CDN_CACHE_CONTROL,
    SURROGATE_CONTROL,
    Headers,
    WsgiHeaders,
    members,
    values,
    without,
)
from wheelcache.http_cache.reasons import refusal

PIECE_WEIGHT: Final = 200
"""Bytes of the object for a part of a body."""

OF_THE_BODY: Final = frozenset(
    b"etag last-modified accept-ranges content-md5 digest content-digest repr-digest".split()
)
"""Response headers that describe the body of one answer. The next one has another token."""

FOR_OTHER_CACHES: Final = frozenset([b"expires", CDN_CACHE_CONTROL, SURROGATE_CONTROL])
SHARED: Final = frozenset([b"public", b"s-maxage", b"proxy-revalidate", b"private", b"no-cache"])

FOREIGN: Final = refusal("csrf", "a CSRF token of another run in the body")
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

    def is_foreign(self, body: bytes) -> bool:
        """Return whether a body, with blanks in place of the run's tokens, has a token of another run in a form."""

    def fill(self, blanks: Blanks, secret: str) -> Filled:
        """Fill the blanks with a fresh token of a secret, or of a new one. The headers send it in the cookie."""


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
