"""Middleware of the site that stands between the cache and the framework.

The key of a page is made from the request at the cache, and the page from the request that reaches the framework.
Middleware in between may choose the path by a cookie, or set a header from the address of the client. So the companion
in the framework compares the two requests. If an item differs that is in the key or that the page reads, the page is
not stored. A change passes if the key explains it: ``ProxyFix`` copies ``X-Forwarded-Host`` to the host, and a
dispatcher moves a part of the path to the script name.

Middleware may also leave a request as it is because a cookie is missing. The page of this request must not answer
requests with the cookie, so with unknown middleware, a page also depends on the whole ``Cookie`` header. Reads of
middleware cannot be watched: WSGI demands a plain dict, and ASGI middleware that looks for one header reads them all.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from typing import Any, Final

from wheelcache.pages.notes import NOTES_KEY
from wheelcache.pages.request import KEYED_HEADERS
from wheelcache.pages.variants import cookies, environ_name
from wheelcache.pages.watched import SOME_COOKIES, Watch

HANDLERS: Final = frozenset(
    [
        ("django.core.handlers.wsgi", "WSGIHandler"),
        ("django.core.handlers.asgi", "ASGIHandler"),
        ("flask.app", "Flask.wsgi_app"),
    ]
)
"""The classes of frameworks' applications, and methods that are one, with their modules."""

HARMLESS: Final = {
    ("werkzeug.middleware.proxy_fix", "ProxyFix"): "app",
    ("werkzeug.middleware.dispatcher", "DispatcherMiddleware"): "app",
    ("whitenoise.base", "WhiteNoise"): "application",
    ("sentry_sdk.integrations.wsgi", "SentryWsgiMiddleware"): "app",
    ("sentry_sdk.integrations.asgi", "SentryAsgiMiddleware"): "app",
    ("opentelemetry.instrumentation.wsgi", "OpenTelemetryMiddleware"): "wsgi",
    ("opentelemetry.instrumentation.asgi", "OpenTelemetryMiddleware"): "app",
}
"""Middleware that changes only items that a keyed header explains, and the address of the client, which no stored page
reads; with the attribute that is the application inside."""

ALWAYS_READ: Final = frozenset(
    (
        *("wsgi.url_scheme", "REQUEST_METHOD", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "HTTP_HOST"),
        *("CONTENT_TYPE", "CONTENT_LENGTH", "HTTP_TRANSFER_ENCODING"),
    )
)
"""Items that are in the key of every page, or that frameworks read before their companion can watch it."""

KEYED: Final = tuple(map(environ_name, sorted(KEYED_HEADERS)))

WsgiApp = Callable[..., Iterable[bytes]]
AsgiApp = Callable[..., Awaitable[None]]
Environ = Mapping[str, Any]


def noting_wsgi(app: WsgiApp) -> WsgiApp:
    """Return an application that notes the request before middleware gets it; ``app`` if it is a framework itself."""
    return app if _name(app) in HANDLERS else NotingWsgi(app)


def noting_asgi(app: AsgiApp) -> AsgiApp:
    """Return an application that notes the request before middleware gets it; ``app`` if it is a framework itself."""
    return app if _name(app) in HANDLERS else NotingAsgi(app)


class _Noting:
    def __init__(self, app: Any) -> None:
        self._app = app
        self._is_known, self._unknown_mounts = _known(app)


class NotingWsgi(_Noting):
    """A WSGI application whose ``PageNotes`` have a copy of the environ."""

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        notes = environ.get(NOTES_KEY)
        if notes is not None:
            notes.given = environ.copy()
            path = environ.get("PATH_INFO", "")
            notes.knows_middleware = self._is_known and not path.startswith(self._unknown_mounts)
        return self._app(environ, start_response)  # type: ignore[no-any-return]


class NotingAsgi(_Noting):
    """An ASGI application whose ``PageNotes`` have a copy of the scope."""

    async def __call__(self, scope: MutableMapping[str, Any], *channel: Any) -> None:
        notes = scope.get(NOTES_KEY)
        if notes is not None:
            # Some middleware adds to the list of headers in place.
            notes.given = {**scope, "headers": [*scope["headers"]]}
            notes.knows_middleware = self._is_known
        await self._app(scope, *channel)


def _name(app: Any) -> tuple[str, str]:
    named = getattr(app, "__func__", type(app))
    return str(named.__module__), str(named.__qualname__)


def _known(app: Any) -> tuple[bool, tuple[str, ...]]:
    """Return whether all middleware around the application of a framework is ``HARMLESS``, and the paths at which a
    dispatcher has mounted an application of which this is unknown."""
    mounts: list[str] = []
    while (attribute := HARMLESS.get(_name(app))) is not None:
        mounts += [path for path, mounted in getattr(app, "mounts", {}).items() if _known(mounted) != (True, ())]
        app = getattr(app, attribute)
    return _name(app) in HANDLERS, tuple(mounts)


def compare(watch: Watch, given: Environ, seen: Environ) -> None:
    """Let ``watch`` refuse a page that depends on a part of the request that middleware has changed.

    Args:
        given, seen: what the framework makes of the request at the cache, and of the one that it has received: environs
            of WSGI, also under ASGI, with the scheme.
    """
    notes = watch.notes
    if not notes.knows_middleware:
        notes.vary_on(headers=["Cookie"])
    changed = {name for name in given.keys() | seen.keys() if not _is_equal(given.get(name), seen.get(name))}
    if not changed:
        return
    changed -= _explained(given, seen)
    if "HTTP_COOKIE" in changed:
        changed |= _changed_cookies(given.get("HTTP_COOKIE", ""), seen.get("HTTP_COOKIE", ""))
    watch.changed = frozenset(changed)
    sessions = {name for name in watch.own if name.startswith("cookie ")}
    for name in sorted(changed & (ALWAYS_READ | sessions)):
        watch.refuse_changed(name)


def _is_equal(one: Any, other: Any) -> bool:
    # Objects of the server may have any ``__eq__``.
    return one is other or (type(one) is type(other) is str and one == other)


def _explained(given: Environ, seen: Environ) -> set[str]:
    """Return the items that have the same value, or another one that follows from the key of the page."""
    found = set()
    words = {word for name in KEYED if name in given for word in re.split(r'[\s,;="]+', given[name])}
    hosts = {part for word in words for part in (word.lower(), *_host_and_port(word))}
    scheme = seen["wsgi.url_scheme"]
    if scheme in hosts or (scheme == "https" and "on" in hosts):
        found.add("wsgi.url_scheme")
    host, port = _host_and_port(seen.get("HTTP_HOST", ""))
    old_host, _ = _host_and_port(given.get("HTTP_HOST", ""))
    if host in (hosts | {old_host}) and port in (hosts | {""}):
        found.add("HTTP_HOST")
    root, path = seen.get("SCRIPT_NAME", ""), seen.get("PATH_INFO", "")
    old_root, old_path = given.get("SCRIPT_NAME", ""), given.get("PATH_INFO", "")
    is_moved = old_root + old_path in (root + path, root if path == "/" else None)
    is_named = root.rstrip("/") in {word.rstrip("/") for word in words}
    if is_moved or (is_named and path in (old_path, old_path.removeprefix(root))):
        found |= {"SCRIPT_NAME", "PATH_INFO"}
    # Absent, empty and 0 mean the same.
    found |= {
        name for name in ("CONTENT_TYPE", "CONTENT_LENGTH") if {given.get(name), seen.get(name)} <= {None, "", "0"}
    }
    return found


def _host_and_port(host: str) -> tuple[str, str]:
    name, colon, port = host.lower().rpartition(":")
    return (name, port) if colon and port.isdecimal() else (host.lower(), "")


def _changed_cookies(given: str, seen: str) -> set[str]:
    """Return descriptions of the cookies that differ, as a ``Watch`` describes them."""
    old, new = cookies(given.encode("latin-1")) or {}, cookies(seen.encode("latin-1")) or {}
    names = {name for name in old.keys() | new.keys() if old.get(name) != new.get(name)}
    found = {f"cookie {name.decode('latin-1')}" for name in names}
    return found if bool(old) == bool(new) else found | {SOME_COOKIES}
