"""Variants: the responses that one page has for different values of the request headers in its Vary.

The entry of a page with variants is a ``Variants``: the fields on which the page depends, and the keys of the variants,
which are separate entries. These keys contain a random name of the ``Variants``, so removing it makes all its variants
unreachable in one step, even those that it no longer lists.

A page may also depend on single cookies. A field is therefore either a header (``b"accept-language"``) or a cookie
(``b"cookie theme"``; no name of a header contains a space).

Values of headers are normalized, so that clients with the same needs share a variant. Since this takes some
microseconds, a ``Variants`` remembers the keys for recent values.
"""

from __future__ import annotations

import re
import secrets
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from wheelcache.http_cache.headers import members
from wheelcache.http_cache.keys import SEPARATOR

MOST_VARIANTS: Final = 32
MOST_REMEMBERED: Final = 64
LONGEST_REMEMBERED: Final = 512
"""Raw values in total, and characters of each combination. Together they bound the memory of a ``Variants``."""

WEIGHT: Final = 8192
"""Bytes that a ``Variants`` takes in practice."""

COOKIE: Final = b"cookie"
SOME_COOKIE: Final = b"cookie ;"
"""The field that stands for whether there are cookies at all. No name of a cookie contains a semicolon."""
ENCODINGS: Final = (b"br", b"deflate", b"gzip", b"zstd")
"""The content codings that applications choose from."""

VERBATIM: Final = frozenset(b"cookie authorization user-agent origin referer if-none-match".split())
"""Fields that are no lists: a space in them may be significant."""

_SAFE: Final = re.compile(rb"[\t\x20-\x7e\x80-\xff]{0,4096}")

Raw = tuple[bytes | str | None, ...]
"""The values of header fields as a server gives them: bytes in ASGI, text in WSGI, None for an absent field."""


def cookie_field(name: bytes) -> bytes:
    """Return the field that stands for the cookie ``name``."""
    return COOKIE + b" " + name


def is_safe(value: bytes) -> bool:
    """Return whether a value may be a part of a key: it is not oversized and has no control characters."""
    return _SAFE.fullmatch(value) is not None


def cookies(header: bytes) -> dict[bytes, bytes]:
    """Return the cookies of a Cookie header. Duplicates all count, since frameworks use the first or the last one."""
    found: dict[bytes, bytes] = {}
    for each in header.split(b";"):
        name, _, value = (part.strip() for part in each.partition(b"="))
        if name or value:
            found[name] = found[name] + b";" + value if name in found else value
    return found


@dataclass(frozen=True, slots=True)
class Normalization:
    """Turns values of request headers into parts of keys.

    Attributes:
        cookies: the cookies on which pages with ``Vary: Cookie`` depend; None for the whole header.
        languages: the languages of the site, in lower case; other languages that a client accepts are ignored. None to
            ignore none.
    """

    cookies: frozenset[bytes] | None = None
    languages: frozenset[bytes] | None = None

    def fields(self, vary: Iterable[bytes]) -> frozenset[bytes]:
        """Return the fields on which a page with this Vary depends."""
        named = frozenset(vary)
        if COOKIE in named and self.cookies is not None:
            named = (named - {COOKIE}) | {cookie_field(name) for name in self.cookies}
        return named

    def value(self, field: bytes, raw: bytes | None) -> bytes | None:
        """Return the part of a key for a value of ``field``. An absent field differs from an empty one."""
        if raw is None or field in VERBATIM:
            return raw
        if field == SOME_COOKIE:
            return b"some" if cookies(raw) else None
        if field.startswith(b"cookie "):
            return cookies(raw).get(field[len(b"cookie ") :])
        if field == b"accept-encoding":
            return b",".join(accepted_encodings(raw))
        if field == b"accept-language":
            return self._language(raw)
        return b",".join(members([raw]))

    def _language(self, raw: bytes) -> bytes:
        """Return the accepted languages in order, since sites may answer ``en, de`` and ``de, en`` differently."""
        wishes = [b"".join(member.lower().split()) for member in members([raw])]
        if self.languages is not None:
            primary = {language.partition(b"-")[0] for language in self.languages} | {b"*"}
            wishes = [wish for wish in wishes if re.split(rb"[-;]", wish, maxsplit=1)[0] in primary]
        return b",".join(wishes)


def accepted_encodings(raw: bytes) -> list[bytes]:
    """Return the content codings that a client accepts, among those that applications choose from."""
    weights = {}
    for member in members([raw]):
        coding, _, parameters = member.partition(b";")
        weights[coding.strip().lower()] = _weight(parameters)
    return [coding for coding in ENCODINGS if weights.get(coding, weights.get(b"*", 0.0)) > 0.0]


def _weight(parameters: bytes) -> float:
    name, _, number = parameters.replace(b" ", b"").lower().partition(b"=")
    if name != b"q":
        return 1.0
    with suppress(ValueError):
        return float(number)
    return 0.0


class Variants:
    """The fields on which a page depends, and the keys of its variants.

    Attributes:
        fields: header names, and cookies as ``cookie_field`` returns them.
        headers: the names of the request headers from which ``find`` needs the values.
        weight: its weight in the cache.
    """

    __slots__ = ("_keys", "_name", "_normalization", "_remembered", "environ_names", "fields", "headers", "weight")

    def __init__(self, fields: frozenset[bytes], normalization: Normalization) -> None:
        self.fields = fields
        self.headers = tuple(sorted({field.partition(b" ")[0] for field in fields}))
        self.environ_names = tuple(environ_name(name) for name in self.headers)
        self.weight = WEIGHT
        self._name = secrets.token_hex(8)
        self._normalization = normalization
        self._keys: OrderedDict[str, None] = OrderedDict()
        self._remembered: dict[Raw, str] = {}

    def find(self, raw: Raw) -> str | None:
        """Return the key of the variant for these values of ``headers``, and count it as used.

        Return None if a value is not safe: see ``is_safe``.
        """
        key = self._remembered.get(raw)
        if key is None:
            key = self._key(raw)
        if key is not None and key in self._keys:
            # Another thread may have dropped it.
            with suppress(KeyError):
                self._keys.move_to_end(key)
        return key

    def _key(self, raw: Raw) -> str | None:
        by_name = {
            name: value.encode("latin-1") if isinstance(value, str) else value
            for name, value in zip(self.headers, raw, strict=True)
        }
        if not all(value is None or is_safe(value) for value in by_name.values()):
            return None
        values = [self._normalization.value(field, by_name[field.partition(b" ")[0]]) for field in sorted(self.fields)]
        key = f"{SEPARATOR}{self._name}{values!r}"
        if sum(map(len, filter(None, raw))) <= LONGEST_REMEMBERED:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[raw] = key
        return key

    def add(self, key: str) -> list[str]:
        """List the key of a variant. Return the keys of the least recently used variants, which must be removed."""
        self._keys[key] = None
        self._keys.move_to_end(key)
        excess = len(self._keys) - MOST_VARIANTS
        return [self._keys.popitem(last=False)[0] for _ in range(excess)]

    def keys(self) -> Sequence[str]:
        """Return the keys of the variants."""
        return list(self._keys)


@cache
def environ_name(header: bytes) -> str:
    """Return the name that a request header has in the environ of WSGI."""
    name = header.decode("latin-1").upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
