"""Middleware of the site that stands between the cache and the framework.

The key of a page is made from the request at the cache, and the page from the request that reaches the framework.
Middleware in between may choose the path by a cookie, or set a header from the address of the client. So a page also
depends on what such middleware reads and changes:

- Its reads of the request count like those of a view: see ``watched``. Under ASGI, middleware that looks for one
  header reads them all.
- The companion in the framework compares the request with the one at the cache. If an item differs that is in the key
  or that the page reads, the page is not stored. A change passes if the key explains it: ``ProxyFix`` copies
  ``X-Forwarded-Host`` to the host, and a dispatcher moves a part of the path to the script name.

The comparison alone would not do. Middleware that leaves the first request as it is, because a cookie is missing, would
let the page of this request answer all others.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from types import CodeType, FrameType
from typing import Any, ClassVar, Final

from wheelcache.http_cache.notes import NOTES_KEY, PageNotes
from wheelcache.http_cache.reads import LIBRARIES, caller
from wheelcache.http_cache.request import KEYED_HEADERS
from wheelcache.http_cache.variants import cookies, environ_name
from wheelcache.http_cache.watched import SOME_COOKIES, Watch, WatchedEnviron, watched

HANDLERS: Final = frozenset(
    [
        ("django.core.handlers.wsgi", "WSGIHandler.__call__"),
        ("django.core.handlers.asgi", "ASGIHandler.__call__"),
        ("flask.app", "Flask.wsgi_app"),
    ]
)
"""The functions by which a server calls a framework, with their modules."""

TRUSTED: Final = (
    *("werkzeug.middleware", "uvicorn.middleware"),
    *("sentry_sdk", "opentelemetry", "newrelic", "ddtrace", "elasticapm"),
)
"""Packages whose reads do not count: they observe requests, or change only items that a keyed header explains and the
address of the client, which no stored page reads. Starlette is not among them: it puts a copy of the headers into the
scope, which hides the reads of middleware inside it."""

ALWAYS_READ: Final = frozenset(
    (
        *("wsgi.url_scheme", "REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "HTTP_HOST"),
        *("CONTENT_TYPE", "CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"),
    )
)
"""Items that are in the key of every page, or that frameworks read before their companion can watch it."""

KEYED: Final = tuple(map(environ_name, sorted(KEYED_HEADERS)))

Scope = MutableMapping[str, Any]
Environ = Mapping[str, Any]


def watched_wsgi(app: Callable[..., Iterable[bytes]]) -> Callable[..., Iterable[bytes]]:
    """Return a WSGI application whose middleware is watched, or ``app`` if it is a framework without any."""
    return app if _is_handler(app) else _Wsgi(app)


def watched_asgi(app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return an ASGI application whose middleware is watched, or ``app`` if it is a framework without any."""
    return app if _is_handler(app) else _Asgi(app)


def _is_handler(app: Any) -> bool:
    function = getattr(app, "__func__", None) or type(app).__call__
    code = getattr(function, "__code__", None)
    return code is not None and (function.__module__, code.co_qualname) in HANDLERS


class _Wsgi:
    """A WSGI application that is watched during runs that have notes."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        notes = environ.get(NOTES_KEY)
        if notes is not None:
            notes.given = environ
            environ = _Environ(environ.copy(), _Watch(notes))
        return self._app(environ, start_response)


class _Asgi:
    """An ASGI application that is watched during runs that have notes."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, *channel: Any) -> None:
        notes = scope.get(NOTES_KEY)
        if notes is not None:
            notes.given = scope
            watch = _Watch(notes)
            parts = {name: kind(scope[name]) for name, kind in PARTS.items() if scope.get(name) is not None}
            for part in parts.values():
                part.watch = watch
            scope = {**scope, **parts}
        await self._app(scope, *channel)


class _Watch(Watch):
    """Notes the reads of middleware."""

    def __init__(self, notes: PageNotes) -> None:
        super().__init__(notes, frozenset(), {})
        notes.ignored.load()

    def ends(self, reader: FrameType) -> frozenset[CodeType]:
        # Only the nearest code of the site reads. The frames below may be those of another middleware.
        site = next((frame for frame in _frames(reader) if not _is_of_library(frame)), reader)
        return frozenset() if site.f_back is None else frozenset([site.f_back.f_code])


def _is_of_middleware(reader: FrameType) -> bool:
    """Return whether middleware of the site reads, and not the framework or a trusted package."""
    is_of_site = False
    for frame in _frames(reader):
        module = _module(frame)
        if (module, frame.f_code.co_qualname) in HANDLERS:
            return False
        if not is_of_site and any(module == name or module.startswith(f"{name}.") for name in TRUSTED):
            return False
        is_of_site = is_of_site or not _is_of_library(frame)
    return True


def _frames(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _is_of_library(frame: FrameType) -> bool:
    return _module(frame).partition(".")[0] in LIBRARIES


class _Environ(WatchedEnviron):
    """The environ that middleware receives. The framework reads it, too."""

    def note(self, name: str) -> None:
        if _is_of_middleware(caller()):
            super().note(name)

    def note_all(self) -> None:
        if _is_of_middleware(caller()):
            super().note_all()


class _Part:
    """A part of a scope. A read of one item is a read of them all."""

    watch: Watch
    reason: ClassVar[str]
    name: ClassVar[str]

    def note(self, item: str) -> None:
        self.note_all()

    def note_all(self) -> None:
        if _is_of_middleware(caller()):
            self.watch.refuse(self.reason, self.name)


@watched(list, list)
class _Headers(_Part, list[tuple[bytes, bytes]]):
    reason, name = "all headers", "all headers"


@watched(tuple, tuple)
class _Client(_Part, tuple[Any, ...]):
    reason, name = "client address", "scope['client']"


@watched(tuple, tuple)
class _Server(_Part, tuple[Any, ...]):
    reason, name = "environ", "scope['server']"


PARTS: Final[Mapping[str, Callable[[Any], _Part]]] = {"headers": _Headers, "client": _Client, "server": _Server}


def compare(watch: Watch, given: Environ, seen: Environ) -> None:
    """Let ``watch`` refuse a page that depends on a part of the request that middleware has changed.

    Args:
        given, seen: the environ at the cache and that at the framework. Under ASGI, those that the framework makes of
            the scopes, with the scheme.
    """
    changed = {name for name in given.keys() | seen.keys() if not _is_equal(given.get(name), seen.get(name))}
    changed -= _explained(given, seen, is_by_key_alone=watch.notes.is_untouched)
    if "HTTP_COOKIE" in changed:
        changed |= _changed_cookies(given.get("HTTP_COOKIE", ""), seen.get("HTTP_COOKIE", ""))
    watch.changed = frozenset(changed)
    sessions = {name for name in watch.own if name.startswith("cookie ")}
    for name in sorted(changed & (ALWAYS_READ | sessions)):
        watch.refuse_changed(name)


def _is_equal(one: Any, other: Any) -> bool:
    # Objects of the server may have any ``__eq__``.
    return one is other or (type(one) is type(other) is str and one == other)


def _explained(given: Environ, seen: Environ, *, is_by_key_alone: bool) -> set[str]:
    """Return the items whose change follows from the key of the page.

    Args:
        is_by_key_alone: whether middleware has read nothing that the key lacks.
    """
    found = set()
    texts = [given[name] for name in KEYED if name in given]
    words = {word for text in texts for word in re.split(r'[\s,;="]+', text)}
    lower = {part for word in words for part in (word.lower(), *_host_and_port(word))}
    scheme = seen["wsgi.url_scheme"]
    if is_by_key_alone or scheme in lower or (scheme == "https" and "on" in lower):
        found.add("wsgi.url_scheme")
    host, port = _host_and_port(seen.get("HTTP_HOST", ""))
    old_host, old_port = _host_and_port(given.get("HTTP_HOST", ""))
    if host in (lower | {old_host}) and port in (lower | {old_port, ""}):
        found.add("HTTP_HOST")
    root, path = seen.get("SCRIPT_NAME", ""), seen.get("PATH_INFO", "")
    old_root, old_path = given.get("SCRIPT_NAME", ""), given.get("PATH_INFO", "")
    is_named = root.rstrip("/") in {word.rstrip("/") for word in words}
    if root + path == old_root + old_path or (is_named and path in (old_path, old_path.removeprefix(root))):
        found |= {"SCRIPT_NAME", "PATH_INFO"}
    return found


def _host_and_port(host: str) -> tuple[str, str]:
    name, colon, port = host.lower().rpartition(":")
    return (name, port) if colon and port.isdecimal() else (host.lower(), "")


def _changed_cookies(given: str, seen: str) -> set[str]:
    """Return descriptions of the cookies that differ, as a ``Watch`` describes them."""
    old, new = cookies(given.encode("latin-1")) or {}, cookies(seen.encode("latin-1")) or {}
    names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    return {f"cookie {name.decode('latin-1')}" for name in names} | (
        {SOME_COOKIES} if bool(old) != bool(new) else set()
    )
