"""A request, independent of the driver. Each driver has a subclass, which reads a header only when it is needed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from wheelcache.http_cache.headers import Headers
from wheelcache.http_cache.variants import SOME_COOKIE, Raw, cookie_field, cookies

KEYED_HEADERS: Final = frozenset(
    b"x-forwarded-host x-forwarded-proto x-forwarded-scheme x-forwarded-port x-forwarded-prefix x-forwarded-server "
    b"x-forwarded-ssl x-host x-original-host x-original-url x-rewrite-url x-http-method-override x-http-method "
    b"x-method-override x-script-name forwarded".split()
)
"""Request headers from which applications and their servers build URLs, although no Vary names them. If a request has
one of them, its page depends on it. Otherwise, one request with ``X-Forwarded-Host: evil`` would poison the page."""

SPECIAL_HEADERS: Final = frozenset(
    (
        *(b"authorization", b"cache-control", b"content-length", b"transfer-encoding", b"expect", b"upgrade"),
        *(b"range", b"if-range", b"if-match", b"if-none-match", b"if-modified-since", b"if-unmodified-since"),
        *KEYED_HEADERS,
    )
)
"""Request headers that need a decision. A request without them is answered with a fresh page as it is."""

BYPASSING: Final = (b"upgrade", b"expect", b"if-match", b"if-unmodified-since")
"""Request headers with which a request bypasses the cache."""


class Request(Protocol):
    """A request to a page.

    Attributes:
        method: the method in upper case. Requests with a method in lower case bypass the cache.
        key: the key of the page.
        is_plain: whether it is a GET without ``SPECIAL_HEADERS``.
    """

    @property
    def method(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def is_plain(self) -> bool: ...

    def value(self, name: bytes) -> bytes | None:
        """Return the value of a header, or None. The lines of one field are joined."""

    def raw(self, names: tuple[bytes, ...]) -> Raw:
        """Return the values of headers, not normalized."""

    def is_safe(self) -> bool:
        """Return whether the response may be stored as far as the request's headers are concerned.

        It may not if a header is oversized, has control characters, or has a name that frameworks confuse with another.
        """


def bypasses(request: Request) -> bool:
    """Return whether a request bypasses the cache: only the application can answer it, or it may have a body.

    Applications read parameters from a body, and no key contains a body.
    """
    if request.is_plain:
        return False
    if any(request.value(name) is not None for name in BYPASSING):
        return True
    return request.value(b"content-length") not in (None, b"", b"0") or request.value(b"transfer-encoding") is not None


def keyed_headers(request: Request) -> frozenset[bytes]:
    """Return the ``KEYED_HEADERS`` that a request has."""
    if request.is_plain:
        return frozenset()
    return frozenset(name for name in KEYED_HEADERS if request.value(name) is not None)


def named_headers(request: Request, fields: frozenset[bytes]) -> Headers:
    """Return the headers of a request that the key of its page names: its host, and the values of ``fields``.

    A renewal sends only these. It must not run with the cookies or the authorization of some client.
    """
    names = {b"host"} | {field for field in fields if b" " not in field}
    found = [(name, value) for name in sorted(names) if (value := request.value(name)) is not None]
    if b"cookie" not in names:
        sent = cookies(request.value(b"cookie") or b"")
        kept = [name + b"=" + value for name, value in sent.items() if cookie_field(name) in fields]
        if SOME_COOKIE in fields and sent and not kept:
            kept = [b"some=cookie"]
        found += [(b"cookie", b"; ".join(kept))] if kept else []
    return found


def joined(lines: Iterable[bytes], name: bytes) -> bytes:
    """Return the lines of one field as one value."""
    return (b"; " if name == b"cookie" else b", ").join(lines)
