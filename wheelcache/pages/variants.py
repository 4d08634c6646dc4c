"""Variants: the responses that one page has for different values of the request headers in its Vary.

The entry of a page with variants is a ``Variants``: the fields on which the page depends, and the keys of the variants,
which are separate entries. These keys contain a random name of the ``Variants``, so removing it makes all its variants
unreachable in one step, even those that it no longer lists.

A page may also depend on single cookies. A field is therefore either a header (``b"accept-language"``) or a cookie
(``b"cookie theme"``; no name of a header contains a space).

The key of a variant has the values as they were sent, because only the application knows which of them mean the same.
There are two exceptions, for which every browser has another spelling: a plain Accept-Encoding and a valid
Accept-Language. Normalizing them takes some microseconds, so a ``Variants`` remembers the keys for recent values.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Final

from wheelcache.pages.keys import SEPARATOR, digest

MOST_VARIANTS: Final = 32
LONGEST_REMEMBERED: Final = 512
MOST_REMEMBERED: Final = 4096
"""Characters of one combination of raw values, and of all remembered ones together."""

WEIGHT: Final = 16_384
"""Bytes that a ``Variants`` takes at most."""

COOKIE: Final = b"cookie"
SOME_COOKIE: Final = b"cookie ;"
"""The field that stands for whether there are cookies at all. No name of a cookie contains a semicolon."""
ENCODINGS: Final = (b"br", b"deflate", b"gzip", b"zstd")
"""The content codings that applications choose from."""
KNOWN_ENCODINGS: Final = frozenset([*ENCODINGS, b"identity", b"compress", b"dcb", b"dcz"])
"""The registered content codings that clients send."""
LONGEST_ENCODINGS: Final = 200
"""Bytes. Browsers send less than 40."""

LONGEST_FIELD: Final = 4096
_SAFE: Final = rb"[\t\x20-\x7e\x80-\xff]{0,%d}" % LONGEST_FIELD
is_safe: Final = re.compile(_SAFE).fullmatch
is_safe_text: Final = re.compile(_SAFE.decode("latin-1")).fullmatch
"""Return None if a value must not be a part of a key: it is oversized or has control characters."""

_COOKIE_NAME: Final = re.compile(rb"[!#-'*+.^-z|~0-9A-Z-]+")
_QUOTED: Final = re.compile(rb'"(?:[^"\\]|\\.)*"')

LONGEST_LANGUAGES: Final = 500
"""Characters. Django ignores the rest of a longer field."""
_LANGUAGE: Final = (
    rb"(?:[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*|\*)(?:[ \t]*;[ \t]*q=(?:0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?))?"
)
# Without spaces at both ends: some servers pass them on, and Django then ignores the field.
_LANGUAGES: Final = re.compile(rb"%s(?:[ \t]*,[ \t]*%s)*" % (_LANGUAGE, _LANGUAGE))

Raw = tuple[bytes | str | None, ...]
"""The values of header fields as a server gives them: bytes in ASGI, text in WSGI, None for an absent field."""


def cookie_field(name: bytes) -> bytes:
    """Return the field that stands for the cookie ``name``."""
    return COOKIE + b" " + name


def cookies(header: bytes) -> dict[bytes, bytes] | None:
    """Return the cookies of a Cookie header, or None if frameworks may read the header differently.

    That is the case if a name is missing or is not an RFC 9110 token, or if a value has half a pair of quotes. A name
    that occurs twice has both values, since frameworks use the first or the last one. An oversized header is not read.
    """
    if len(header) > LONGEST_FIELD:
        return None
    found: dict[bytes, bytes] = {}
    for each in header.split(b";"):
        name, _, value = each.partition(b"=")
        name, value = name.strip(b" \t"), value.strip(b" \t")
        if not name and not value:
            continue
        quotes = value.count(b'"')
        has_pairs = quotes % 2 == 0 and (not quotes or b"\\" not in value or _QUOTED.fullmatch(value) is not None)
        if not has_pairs or not _COOKIE_NAME.fullmatch(name):
            return None
        found[name] = found[name] + b";" + value if name in found else value
    return found


def without_cookies(header: bytes, names: Collection[bytes]) -> bytes:
    """Return a Cookie header without the cookies of these names."""
    kept = [each for each in header.split(b";") if each.partition(b"=")[0].strip(b" \t") not in names]
    return b";".join(kept).strip(b" \t")


def are_usual(header: bytes) -> bool:
    """Return whether frameworks find the same cookies in a Cookie header as ``cookies``."""
    if not header:
        return True
    return cookies(header) is not None and all(b"=" in each or not each.strip(b" \t") for each in header.split(b";"))


@dataclass(frozen=True, slots=True)
class Normalization:
    """Turns values of request headers into parts of keys.

    Attributes:
        cookies: the cookies on which pages with ``Vary: Cookie`` depend; None for the whole header.
    """

    cookies: frozenset[bytes] | None = None

    def fields(self, vary: Iterable[bytes]) -> frozenset[bytes]:
        """Return the fields on which a page with this Vary depends."""
        named = frozenset(vary)
        if COOKIE in named and self.cookies is not None:
            named = (named - {COOKIE}) | {cookie_field(name) for name in self.cookies}
        return named

    def values(self, fields: Iterable[bytes], raw: Mapping[bytes, bytes | None]) -> list[bytes | None] | None:
        """Return the parts of a key for the values of ``fields``; None if they cannot be a part of a key.

        An absent field differs from an empty one.

        Args:
            raw: the values of headers by name.
        """
        if not all(value is None or is_safe(value) for value in raw.values()):
            return None
        header = raw.get(COOKIE)
        sent = {} if header is None else cookies(header)
        found: list[bytes | None] = []
        for field in fields:
            value = raw[field.partition(b" ")[0]]
            if field.startswith(b"cookie "):
                if sent is None:
                    return None
                value = (b"some" if sent else None) if field == SOME_COOKIE else sent.get(field[len(b"cookie ") :])
            elif value is not None and field == b"accept-encoding":
                accepted = accepted_encodings(value)
                if accepted is None:
                    return None
                value = b",".join(accepted)
            elif value is not None and field == b"accept-language":
                value = accepted_languages(value)
            found.append(value)
        return found


def accepted_languages(raw: bytes) -> bytes:
    """Return the accepted languages in their order, since sites may answer ``en, de`` and ``de, en`` differently.

    A value that is invalid or too long is returned as it is: frameworks differ in what they make of it.
    """
    if len(raw) > LONGEST_LANGUAGES or not _LANGUAGES.fullmatch(raw):
        return raw
    return raw.lower().translate(None, b" \t")


def accepted_encodings(raw: bytes) -> list[bytes] | None:
    """Return the content codings that a client accepts, among those that applications choose from.

    Return None for anything but a plain list, such as ``gzip, deflate, br``. Frameworks read weights, stars, capitals
    and other names differently: Django finds gzip in ``pack200-gzip``, but not in ``GZIP``. If such a spelling had the
    key of a plain list, one request could turn compression off for all.
    """
    if len(raw) > LONGEST_ENCODINGS:
        return None
    named = {member.strip(b" \t") for member in raw.split(b",")} if raw else set()
    return [coding for coding in ENCODINGS if coding in named] if named <= KNOWN_ENCODINGS else None


@dataclass(eq=False, slots=True)
class _Listed:
    """A variant that is listed.

    Attributes:
        values: the hashes of the values of the page's fields, in the order of the fields.
        used: the number of its last use.
    """

    values: tuple[int, ...]
    used: int


class Variants:
    """The fields on which a page depends, and the keys of its variants.

    Threads call ``find`` without a lock, so it does not change the list of variants, and a use is one assignment. They
    call the other methods under a lock.

    Attributes:
        fields: header names, and cookies as ``cookie_field`` returns them.
        headers, environ_names: the names of the request headers from which ``find`` needs the values, in ASGI and WSGI.
        weight: its weight in the cache.
    """

    __slots__ = (
        "_listed",
        "_name",
        "_normalization",
        "_remembered",
        "_room",
        "_uses",
        "environ_names",
        "fields",
        "headers",
        "weight",
    )

    def __init__(self, fields: frozenset[bytes], normalization: Normalization, weight: int) -> None:
        self.fields = fields
        self.headers = tuple(sorted({field.partition(b" ")[0] for field in fields}))
        self.environ_names = tuple(environ_name(name) for name in self.headers)
        self.weight = weight
        self._name = secrets.token_hex(8)
        self._normalization = normalization
        self._listed: dict[str, _Listed] = {}
        self._uses = count()
        self._remembered: dict[Raw, str] = {}
        self._room = MOST_REMEMBERED

    def find(self, raw: Raw) -> str | None:
        """Return the key of the variant for these values of ``headers``, and count it as used.

        Return None if they cannot be a part of a key: see ``Normalization.values``.
        """
        key = self._remembered.get(raw)
        if key is None:
            values = self._values(raw)
            if values is None:
                return None
            key = self._key(values)
            if key in self._listed:
                self._remember(raw, key)
        listed = self._listed.get(key)
        if listed is not None:
            listed.used = next(self._uses)
        return key

    def _values(self, raw: Raw) -> list[bytes | None] | None:
        by_name = {
            name: value.encode("latin-1") if isinstance(value, str) else value
            for name, value in zip(self.headers, raw, strict=True)
        }
        return self._normalization.values(sorted(self.fields), by_name)

    def _key(self, values: list[bytes | None]) -> str:
        return f"{SEPARATOR}{self._name}{digest(repr(values))}"

    def _remember(self, raw: Raw, key: str) -> None:
        """Remember the key for raw values that a client has sent, since normalizing them takes some microseconds."""
        length = sum(map(len, filter(None, raw)))
        if length > LONGEST_REMEMBERED:
            return
        self._room -= length + len(key)
        if self._room < 0:
            self._remembered.clear()
            self._room = MOST_REMEMBERED
        self._remembered[raw] = key

    def add(self, raw: Raw) -> str | None:
        """List a variant. Return its key, or None: see ``find``."""
        values = self._values(raw)
        if values is None:
            return None
        key = self._key(values)
        self._listed[key] = _Listed((*map(hash, values),), next(self._uses))
        return key

    def excess(self) -> list[str]:
        """Remove the least recently used variants beyond the limit. Return their keys, whose pages must be removed."""
        number = len(self._listed) - MOST_VARIANTS
        if number <= 0:
            return []
        excess = sorted(self._listed, key=lambda key: self._listed[key].used)[:number]
        for key in excess:
            del self._listed[key]
        return excess

    def most_varied(self) -> bytes:
        """Return the field that has the most different values."""
        numbers = [len(set(values)) for values in zip(*(each.values for each in self._listed.values()), strict=True)]
        return max(zip(numbers, sorted(self.fields), strict=True))[1]

    def keys(self) -> Sequence[str]:
        """Return the keys of the variants."""
        return list(self._listed)


@lru_cache(1024)
def environ_name(header: bytes) -> str:
    """Return the name that a request header has in the environ of WSGI."""
    name = header.decode("latin-1").upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"
