"""CSRF tokens of Django in pages of the HTTP cache: see ``pages.blanks``.

Django makes a token of a random mask and the visitor's secret, which is in a cookie. During a run, each token that
Django issues is recorded. If the page has tokens in no other form than these, in plain text and for the visitor's own
secret, they are replaced with blanks, and the page can be stored. Everything else that could carry a secret keeps it
out: the cookie or its entry in META that a view reads, another header, a stream, a token of an earlier run in a cached
fragment, or a token that was made but is not in the page as it is.

A hash of a token cannot be noticed, and neither can a token of another visitor outside of a form.
"""

from __future__ import annotations

import re
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from os import urandom
from typing import Any, Final, NamedTuple, cast

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.middleware import csrf, gzip
from django.utils.text import compress_string

from wheelcache.pages.blanks import FOREIGN, HIDDEN, Blanked, Blanks, Filled
from wheelcache.pages.bodies import gunzipped
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.variants import are_usual, cookies

CHARS: Final = csrf.CSRF_ALLOWED_CHARS.encode()
LENGTH: Final = csrf.CSRF_SECRET_LENGTH
WIDTH: Final = csrf.CSRF_TOKEN_LENGTH
BASE: Final = len(CHARS)

NUMBERS: Final = bytes([max(0, CHARS.find(byte)) for byte in range(256)])
"""Translates characters to their numbers."""
LETTERS: Final = bytes([CHARS[number % BASE] for number in range(256)])
"""Translates numbers and sums of two numbers to characters."""
UNIFORM: Final = 256 - 256 % BASE
BIASED: Final = bytes(range(UNIFORM, 256))
"""Random bytes that would make some characters more likely than others."""

SECRET: Final = re.compile(rf"[a-zA-Z0-9]{{{LENGTH}}}(?:[a-zA-Z0-9]{{{LENGTH}}})?")
PLAIN: Final = re.compile(rb"[a-zA-Z0-9]*")

BLANK: Final = b"-" * WIDTH

ASCII: Final = "".join(map(chr, range(128)))

FIELD: Final = b"csrfmiddlewaretoken"
NEAR: Final = 200
"""Bytes between the name of the field and its value, at most."""
IS_VALUE: Final = re.compile(rb"[^a-zA-Z0-9]{1,9}(?:value|name)?[^a-zA-Z0-9]{0,9}")
"""The text between the name of the field and a secret, its value. Other texts of 32 characters are too common."""
PIECE: Final = 16
"""Characters of a token that give too much of it away."""
MOST_TOKENS: Final = 100
MOST_PLACES: Final = 1000
LONG: Final = re.compile(rb"[a-zA-Z0-9]{%d,}" % WIDTH)
"""A text that may contain tokens."""
TOKEN_OR_FIELD: Final = re.compile(
    rb"%s|[a-zA-Z0-9]{%d,}|(?<![a-zA-Z0-9])[a-zA-Z0-9]{%d}(?![a-zA-Z0-9])" % (FIELD, WIDTH, LENGTH)
)
"""A token may be longer, together with an escape sequence before it."""

DECORATORS: Final = "django.views.decorators.csrf"
"""The module of ``ensure_csrf_cookie``, which makes a token only for its cookie."""

SETS_COOKIE: Final = "CSRF_COOKIE_NEEDS_UPDATE"
"""The entry of META that Django sets when the page gets a token, until the response sets its cookie."""

OUTSIDE: Final = refusal("csrf", "CSRF token from outside of CsrfViewMiddleware")
TOO_MANY: Final = refusal("csrf", "too many CSRF tokens")
ALTERED: Final = refusal("csrf", "the cookie of the CSRF token is not as Django sends it")


class Issued(NamedTuple):
    """A token that Django has made of a secret. It is discarded if only its cookie is wanted."""

    secret: str
    token: str
    is_discarded: bool


class IssuedTokens:
    """The tokens that Django issues during a run.

    Attributes:
        asked: how often the page has asked for a token, by the entry of META that Django sets. A token that was made
            out of sight shows itself by this count.
        random_bytes: the maximum of random bytes that GZipMiddleware adds, if it would have compressed the page;
            None if it would not.
    """

    def __init__(self) -> None:
        self.asked = 0
        self.random_bytes: int | None = None
        self._issued: list[Issued] = []
        self._uncompressed: bytes | None = None

    def add(self, issued: Issued) -> None:
        self._issued.append(issued)

    def compress(self, response: HttpResponseBase) -> None:
        """Compress a response if GZipMiddleware would have done so."""
        if self.random_bytes is None:
            return
        self._uncompressed = _content(response)
        request = cast(HttpRequest, _Compressible({"HTTP_ACCEPT_ENCODING": "gzip"}))
        compressing = gzip.GZipMiddleware(_unused)
        compressing.max_random_bytes = self.random_bytes  # type: ignore[misc]
        compressing.process_response(request, response)

    def tokens(self) -> list[bytes]:
        """Return some of the tokens, which is enough to compare pages."""
        return [each.token.encode() for each in self._issued[:MOST_TOKENS]]

    def blanked(self, response: HttpResponseBase, meta: dict[str, Any], most: int) -> Blanked | Refusal | None:
        """Return a response with blanks in place of its tokens, or the reason why it must not be stored; None if it has
        no tokens.

        Args:
            most: the maximum size of a body that is stored, in bytes.
        """
        body = _content(response) if self._uncompressed is None else self._uncompressed
        has_tokens = self.asked > 0 or bool(self._issued)
        if len(body) > most:
            return refusal("max_body", "longer than max_body") if has_tokens else None
        if not _contains_ascii(response.charset):
            return refusal("csrf", "an encoding in which CSRF tokens are not found")
        why = self._refusal(response, meta) if has_tokens else None
        if why is not None:
            return why
        secret = str(dict.get(meta, "CSRF_COOKIE") or "").encode("ascii", "replace")
        tokens = [each.token.encode() for each in self._issued if not each.is_discarded]
        found = {token: list(_places(body, token)) for token in tokens}
        if not all(found.values()):
            return refusal("csrf", "a CSRF token that is not in the body as it is")
        places = sorted({place for each in found.values() for place in each})
        if len(places) > MOST_PLACES:
            return TOO_MANY
        blank = bytearray(body)
        for place in places:
            blank[place : place + WIDTH] = BLANK
        stored = bytes(blank)
        if _shows(stored, secret):
            return refusal("csrf", "the CSRF secret, or another token of it, in the body", leaves_mark=False)
        if any(_has_piece(stored, token) for token in tokens):
            return refusal("csrf", "a piece or another form of a CSRF token in the body")
        if _has_foreign_token(stored):
            return FOREIGN
        others = "\n".join(_other_headers(response)).encode("latin-1", "replace")
        if _shows(others, secret) or any(token in others or _has_piece(others, token) for token in tokens):
            return refusal("csrf", "the CSRF secret, or a token, in a header", leaves_mark=False)
        if not has_tokens:
            return None
        random_bytes = self.random_bytes if response.has_header("Content-Encoding") else None
        blanks = Blanks(stored, places, WIDTH, random_bytes=random_bytes)
        return Blanked(blanks, cast(HttpResponse, response).content, settings.CSRF_COOKIE_NAME.encode())

    def _refusal(self, response: HttpResponseBase, meta: dict[str, Any]) -> Refusal | None:
        """Return the reason for which tokens of any form keep the response out, or None."""
        if dict.get(meta, SETS_COOKIE):
            return OUTSIDE
        if self.asked != len(self._issued):
            # A visitor with a malformed cookie gets a new secret without a token.
            return refusal("csrf", "a new CSRF secret, or a token that was made out of sight", leaves_mark=False)
        if len(self._issued) > MOST_TOKENS:
            return TOO_MANY
        if response.status_code != 200:
            return refusal("csrf", f"CSRF token with status {response.status_code}")
        if response.streaming:
            return refusal("csrf", "CSRF token in a streamed body")
        secrets = {each.secret for each in self._issued}
        sent = response.cookies.get(settings.CSRF_COOKIE_NAME)
        if len(secrets) != 1 or sent is None or secrets != {sent.value, dict.get(meta, "CSRF_COOKIE")}:
            return refusal("csrf", "the CSRF secret changed", leaves_mark=False)
        expected = _cookie(sent.value)
        if {**expected, "expires": ""} != {**sent, "expires": ""}:
            return ALTERED
        return None


def _content(response: HttpResponseBase) -> bytes:
    return response.content if isinstance(response, HttpResponse) else b""


def _contains_ascii(charset: str) -> bool:
    """Return whether text in an encoding, perhaps after a byte order mark, contains ASCII as it is, so that tokens are
    found in it.

    Python does not know all charsets that pages name, and some of its codecs are for other purposes.
    """
    try:
        return ASCII.encode(charset).endswith(ASCII.encode())
    except (LookupError, TypeError, ValueError):
        return False


def _places(body: bytes, token: bytes) -> Iterator[int]:
    place = body.find(token)
    while place >= 0:
        yield place
        place = body.find(token, place + WIDTH)


def _shows(text: bytes, secret: bytes) -> bool:
    """Return whether a text contains a secret, or 64 characters that Django unmasks to it."""
    if len(secret) != LENGTH:
        return False
    return secret in text or any(secret in _unmasked(found) for found in LONG.findall(text))


def _has_piece(text: bytes, token: bytes) -> bool:
    """Return whether a text contains pieces of a token, or another form of it: backwards, in hexadecimal or base64."""
    forms = [token, token[::-1], token.hex().encode(), token.hex().upper().encode()]
    # In base64, the characters at both ends depend on the text around the token.
    forms += [b64encode(b"." * shift + token)[4:-4] for shift in range(3)]
    pieces = (form[start : start + PIECE] for form in forms for start in range(0, len(form) - PIECE + 1, PIECE))
    return any(piece in text for piece in pieces)


def _unmasked(text: bytes) -> bytes:
    """Return, for each place but the last 32, the character 32 places later, minus the character there as its mask."""
    numbers, size = text.translate(NUMBERS), len(text) - LENGTH
    # As one number with a digit for each place. No digit is below 0 or above 255, so none is carried.
    padding = int.from_bytes(bytes([BASE]) * size)
    differences = int.from_bytes(numbers[LENGTH:]) + padding - int.from_bytes(numbers[:size])
    return differences.to_bytes(size).translate(LETTERS)


def _has_foreign_token(body: bytes) -> bool:
    """Return whether the field has a value that looks like a token. Those of this run are blank by now."""
    if FIELD not in body:
        return False
    # The ends of the last field and of the last token, and the length of the last token.
    last, length = {True: -NEAR, False: -NEAR}, 0
    for found in TOKEN_OR_FIELD.finditer(body):
        is_field = found[0] == FIELD
        is_short = LENGTH in (len(found[0]), length)
        if found.start() - last[not is_field] < NEAR:
            between = body[last[not is_field] : found.start()]
            if b"<" not in between and (not is_short or IS_VALUE.fullmatch(between)):
                return True
        last[is_field] = found.end()
        length = 0 if is_field else len(found[0])
    return False


class _Compressible(NamedTuple):
    """A request, as far as GZipMiddleware reads it."""

    META: dict[str, str]


def _unused(request: HttpRequest) -> HttpResponse:
    raise NotImplementedError


def _other_headers(response: HttpResponseBase) -> Iterator[str]:
    """Iterate over the status line and all headers, except the cookie of the token."""
    yield str(response.reason_phrase)
    for name, value in response.headers.items():
        yield from (name, value)
    yield from (str(morsel) for name, morsel in response.cookies.items() if name != settings.CSRF_COOKIE_NAME)


def _cookie(secret: str) -> Any:
    """Return the cookie that Django sends with a secret."""
    response = HttpResponse()
    response.set_cookie(
        settings.CSRF_COOKIE_NAME,
        secret,
        max_age=settings.CSRF_COOKIE_AGE,
        domain=settings.CSRF_COOKIE_DOMAIN,
        path=settings.CSRF_COOKIE_PATH,
        secure=settings.CSRF_COOKIE_SECURE,
        httponly=settings.CSRF_COOKIE_HTTPONLY,
        samesite=settings.CSRF_COOKIE_SAMESITE,
    )
    return response.cookies[settings.CSRF_COOKIE_NAME]


class CsrfTokens:
    """Fills blanks with tokens of Django: see ``pages.blanks.Tokens``."""

    def __init__(self) -> None:
        name: str = settings.CSRF_COOKIE_NAME
        self._name = name
        self.cookie = name.encode()
        # The usual case: exactly one such cookie, in the form in which browsers send it.
        self._find = re.compile(rf"(?:^|; ){re.escape(name)}=({SECRET.pattern})(?=; |\Z)").search
        self._line = (0, "", "")

    def secret(self, cookies: str) -> str | None:
        if self._name not in cookies:
            return ""
        found = self._find(cookies)
        if found is not None and cookies.count(self._name) == 1:
            value = found[1]
        else:
            given = self._parsed(cookies.encode("latin-1"))
            if given is None or not PLAIN.fullmatch(given):
                return None
            value = given.decode()
        if not SECRET.fullmatch(value):
            return ""
        return value if len(value) == LENGTH else csrf._unmask_cipher_token(value)  # type: ignore[attr-defined]

    def _parsed(self, header: bytes) -> bytes | None:
        """Return the value of the cookie, b"" if there is none; with a semicolon if the name occurs twice. Return None
        if frameworks may read the header differently."""
        return (cookies(header) or {}).get(self.cookie, b"") if are_usual(header) else None

    def refused(self, body: bytes, *, is_compressed: bool) -> Refusal | None:
        found = gunzipped(body) if is_compressed else body
        if found is None:
            return HIDDEN
        return FOREIGN if _has_foreign_token(found) else None

    def fill(self, blanks: Blanks, secret: str) -> Filled:
        secret = secret or _random().decode()
        body = blanks.filled(_masked(secret.encode()))
        now = int(time.time())
        second, before, after = self._line
        if second != now:
            before, after = _cookie("0" * LENGTH).OutputString().split("0" * LENGTH)
            self._line = (now, before, after)
        headers = [("Set-Cookie", before + secret + after)]
        if blanks.random_bytes is not None:
            body = compress_string(body, max_random_bytes=blanks.random_bytes)
            headers.append(("Content-Length", str(len(body))))
        return Filled(body, headers)


def _random() -> bytes:
    """Return 32 random characters, from the generator of the operating system."""
    found = b""
    while len(found) < LENGTH:
        found += urandom(LENGTH + 12).translate(None, BIASED)
    return found[:LENGTH].translate(LETTERS)


def _masked(secret: bytes) -> bytes:
    """Return a token for a secret, as Django's ``_mask_cipher_secret`` does in 20 times the time."""
    mask = _random()
    both = int.from_bytes(secret.translate(NUMBERS)) + int.from_bytes(mask.translate(NUMBERS))
    return mask + both.to_bytes(LENGTH).translate(LETTERS)


def record_tokens() -> bool:
    """Let runs record the tokens that Django issues. Return False if this Django makes them in another way."""
    make = getattr(csrf, "_mask_cipher_secret", None)
    if make is None:
        return False
    if not hasattr(make, "is_recorded"):

        def recorded(secret: str) -> Any:
            token = make(secret)
            asks = sys._getframe(1)
            issued = getattr(asks.f_locals.get("request"), "issued_tokens", None)
            if issued is not None:
                caller = asks.f_back
                is_discarded = caller is not None and caller.f_globals.get("__name__") == DECORATORS
                issued.add(Issued(secret, token, is_discarded))
            return token

        recorded.is_recorded = True  # type: ignore[attr-defined]
        csrf._mask_cipher_secret = recorded  # type: ignore[attr-defined]
    return True
