"""A request, independent of the driver. Each driver has a subclass, which reads a header only when it is needed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import AnyStr, Final, Protocol

from wheelcache.pages.headers import Headers
from wheelcache.pages.keys import SEPARATOR
from wheelcache.pages.page_rules import PageRules
from wheelcache.pages.reads import Reads
from wheelcache.pages.rules import CONDITIONS
from wheelcache.pages.variants import SOME_COOKIE, Raw, cookie_field, cookies, without_cookies

KEYED_HEADERS: Final = frozenset(
    b"x-forwarded-host x-forwarded-proto x-forwarded-scheme x-forwarded-port x-forwarded-prefix x-forwarded-server "
    b"x-forwarded-ssl x-forwarded-uri x-forwarded-path x-forwarded-protocol front-end-https x-url-scheme x-scheme "
    b"x-envoy-original-path x-host x-original-host x-original-url x-rewrite-url x-http-method-override x-http-method "
    b"x-method-override x-script-name forwarded content-type".split()
)
"""Request headers from which applications and their servers build URLs or decode the request, although no Vary names
them. They are in the key of every request that has them. Otherwise, one request with ``X-Forwarded-Host: evil`` would
poison the page. Django decodes the query by the charset of Content-Type before any middleware runs."""

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


MATCHES_NOTHING: Final = b"(?!)"
"""A regular expression."""

NOBODY: Final = "192.0.2.0"
"""The client's address in a renewal, which many applications need, if only for a log. It is of a network for examples
(RFC 5737)."""


Finder = Callable[[AnyStr], re.Match[AnyStr] | None]


def _finders(names: Iterable[bytes]) -> tuple[Finder[bytes], Finder[str]]:
    """Return functions that return None if a Cookie header surely has none of these cookies."""
    pattern = b"|".join(map(re.escape, names)) or MATCHES_NOTHING
    return re.compile(pattern).search, re.compile(pattern.decode("latin-1")).search


class Sessions:
    """The cookies of sessions.

    Attributes:
        names: their names.
        fields: the fields of a page that depends on them.
        find_in_bytes, find_in_text: functions that return None if a Cookie header surely has no session. Otherwise,
            ``are_in`` decides.
    """

    def __init__(self, names: frozenset[bytes]) -> None:
        self.names = names
        self.fields = frozenset(map(cookie_field, names))
        self.find_in_bytes, self.find_in_text = _finders(names)

    def are_in(self, header: bytes) -> bool:
        """Return whether a Cookie header has a session, or may have one in the eyes of the application."""
        sent = cookies(header)
        return sent is None or not self.names.isdisjoint(sent)


class LostCookies:
    """The cookies that some pages lose: see ``page_rules.without_cookies``.

    Attributes:
        names: the cookies that any page loses.
        find_in_bytes, find_in_text: functions that return None if a Cookie header surely has none of them.
    """

    def __init__(self, rules: PageRules) -> None:
        self._rules = rules
        self.names = rules.lost_cookies()
        self.find_in_bytes, self.find_in_text = _finders(self.names)

    def of(self, host: str, path: str) -> frozenset[bytes]:
        """Return the cookies that a page loses: see ``PageRules.of``."""
        return self._rules.of(host, path).lost_cookies or frozenset()

    def removed(self, method: str, host: str, path: str, header: bytes) -> bytes:
        """Return the Cookie header of a request to a page without the cookies that the page loses."""
        lost = self.of(host, path) if method in ("GET", "HEAD") else None
        return without_cookies(header, lost) if lost else header


class Request(Protocol):
    """A request to a page.

    Attributes:
        method: the method in upper case. Requests with a method in lower case bypass the cache.
        key: the key of the page.
        cookie: the header Cookie, or None.
        host, path, query: as ``keys.page_key`` receives them, the path with the script name.
        root: the script name.
        is_plain: whether it is a GET without ``SPECIAL_HEADERS``, except ``KEYED_HEADERS``.
        has_session: whether it may have a session.
        loses_cookies: whether the visitor has sent cookies that the page loses, which it no longer contains.
        is_safe: whether the response may be stored as far as the request's headers are concerned. It may not if a
            header is oversized, has control characters, or has a name that frameworks confuse with another.
        blocks: whether a wait blocks the thread that handles the request.
        traces: the record of the reads of the application, for a developer who asks why a page is not stored.
    """

    method: str
    key: str
    cookie: bytes | None
    host: str
    path: str
    query: str
    root: str
    is_plain: bool
    has_session: bool
    loses_cookies: bool
    traces: Reads | None

    @property
    def is_safe(self) -> bool: ...
    @property
    def blocks(self) -> bool: ...

    def value(self, name: bytes) -> bytes | None:
        """Return the value of a header, or None."""

    def of_the_server(self, name: str) -> str:
        """Return the value of SERVER_NAME or SERVER_PORT."""

    def raw(self, names: tuple[bytes, ...]) -> Raw:
        """Return the values of headers."""

    def repeated(self) -> Request:
        """Return a copy of the request without its body, for a run without a client."""

    def without_client(self, fields: frozenset[bytes]) -> Request:
        """Return a request for the same page that contains nothing of the client: see ``named_headers``."""


def is_conditional(request: Request) -> bool:
    """Return whether a request has ``CONDITIONS``. No key contains them, so the application must not see them in a run
    whose response may be stored."""
    return any(request.value(name) is not None for name in CONDITIONS)


def extra_of_key(keyed: Mapping[str, str], *, has_session: bool) -> str:
    """Return the end of a key: the ``KEYED_HEADERS`` of a request, and whether it may have a session.

    A visitor with a session gets no page that was made for one without, and the other way round.
    """
    extra = "".join([f"{SEPARATOR}{name}={keyed[name]}" for name in sorted(keyed)]) if keyed else ""
    return extra + SEPARATOR if has_session else extra


def named_headers(request: Request, fields: frozenset[bytes]) -> Headers:
    """Return the headers of a request that the key of its page names: its host, and the values of ``fields``.

    A renewal sends only these. It must not run with the cookies or the authorization of some client.
    """
    names = {b"host"} | {field for field in fields if b" " not in field}
    found = [(name, value) for name in sorted(names | KEYED_HEADERS) if (value := request.value(name)) is not None]
    if b"cookie" not in names:
        sent = cookies(request.cookie or b"") or {}
        kept = [name + b"=" + value for name, value in sent.items() if cookie_field(name) in fields]
        if SOME_COOKIE in fields and sent and not kept:
            kept = [b"some=cookie"]
        found += [(b"cookie", b"; ".join(kept))] if kept else []
    return found
