"""Looks into the bodies of responses for text of one visitor.

A page whose key lacks a cookie should not show it. If it does, its code may have read the cookie unnoticed, for example
in C: see ``watched``. So a page that contains the value of such a cookie is not stored. This is a second defence: it
does not notice short values, values in other forms than those below, and pages that depend on a cookie and do not show
it.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from contextlib import suppress
from gzip import BadGzipFile, GzipFile
from io import BytesIO
from typing import Final
from urllib.parse import unquote_to_bytes

from wheelcache.pages.page import Page
from wheelcache.pages.reasons import Refusal, refusal
from wheelcache.pages.request import Request
from wheelcache.pages.variants import COOKIE, cookie_field

GZIP: Final = b"\x1f\x8b"
ZLIB: Final = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
"""The beginnings of what HTTP calls deflate."""
MOST_INFLATED: Final = 8 << 20
"""Bytes."""

SHORTEST: Final = 8
"""Bytes of a value. Shorter ones, such as "dark", are in too many pages by chance."""
MOST_VALUES: Final = 64
"""Browsers send 10 to 40 cookies. To look for one value takes 0.3 ms per MB."""
ESCAPED: Final = re.compile(rb"\\(?:([0-3][0-7][0-7])|(.))")

TOO_MANY: Final = refusal("cookie", f"more than {MOST_VALUES} cookies on which it does not depend", leaves_mark=False)


def gunzipped(body: bytes) -> bytes | None:
    """Return the text of a body that is compressed with gzip; None if browsers may see more of it than is found here.

    Django's GZipMiddleware makes a member of each piece of an asynchronous stream.
    """
    try:
        found = GzipFile(fileobj=BytesIO(body)).read(MOST_INFLATED + 1)
    except (BadGzipFile, EOFError, zlib.error):
        return None
    return found if len(found) <= MOST_INFLATED else None


def _inflated(body: bytes) -> bytes:
    """Return a body without its compression, if it has one that Python knows: at most MOST_INFLATED bytes of it."""
    with suppress(BadGzipFile, EOFError, zlib.error):
        if body.startswith(GZIP):
            return GzipFile(fileobj=BytesIO(body)).read(MOST_INFLATED)
        if body.startswith(ZLIB):
            return zlib.decompressobj().decompress(body, MOST_INFLATED)
    return body


def shown_cookie(page: Page, header: bytes, request: Request) -> Refusal | None:
    """Return the reason if a page shows a cookie on which it does not depend, or None.

    A value that is also in the URL is no secret, and neither is that of a cookie on which the page depends.

    Args:
        header: the Cookie header of the request.
    """
    if COOKIE in page.fields:
        return None
    url = f"{request.host}{request.path}?{request.query}".encode("latin-1", "replace")
    pairs = [(name.strip(), value) for name, _, value in (each.strip().partition(b"=") for each in header.split(b";"))]
    keyed = [value for name, value in pairs if cookie_field(name) in page.fields]
    others = [
        (name, value) for name, value in pairs if len(value) >= SHORTEST and cookie_field(name) not in page.fields
    ]
    if len(others) > MOST_VALUES:
        # Before any search, since the URL may be long, too.
        return TOO_MANY
    # With both schemes, since a proxy may hide the visitor's.
    urls = b"http://%b\nhttps://%b" % (url, url)
    known = b"\n".join([urls, unquote_to_bytes(urls), *keyed])
    values = {
        form: name for name, value in others for form in _forms(value) if len(form) >= SHORTEST and form not in known
    }
    # Without the zeros of UTF-16.
    shown = values and b"\n".join([_inflated(page.body).replace(b"\0", b""), *(value for _, value in page.headers)])
    for form, name in values.items():
        if form in shown:
            detail = f"shows the value of the cookie {name.decode('latin-1')}, on which it does not depend"
            return refusal("cookie", detail, cookie=name)
    return None


def _forms(value: bytes) -> Iterator[bytes]:
    """Iterate over the texts that an application may make of the value of a cookie."""
    yield value
    if value[:1] == value[-1:] == b'"':
        value = ESCAPED.sub(lambda found: bytes([int(found[1], 8)]) if found[1] else found[2], value[1:-1])
        yield value
    yield unquote_to_bytes(value)
