"""Find the sessions of an app in a cache that its workers do not share, and report them.

Flask-Session shows its cache in the settings. Other session interfaces are classes of the app, such as CTFd's, which
use the cache of the app: one of their attributes is a cache, or their methods name a global variable that is one. They
are looked at when the app begins its first request, since they may be set after the cache is made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from inspect import unwrap
from typing import Any, Final, NamedTuple
from weakref import WeakSet

import flask_caching
from flask import Flask, request_started

from wheelcache.engine.observed import SharedState

logger = logging.getLogger("wheelcache")

LOSS: Final = "a visitor is logged out, and a form with a token is refused, whenever another worker answers"


class Kept(NamedTuple):
    """Sessions in a cache that the workers do not share.

    Attributes:
        keeper: what keeps the sessions.
        backend: the cache.
        setting: the setting that names the cache.
    """

    keeper: str
    backend: Any
    setting: str


def check_sessions(app: Flask, ours: type) -> None:
    """Log a warning if the sessions of ``app`` are in a cache that the workers do not share, now or at the first
    request. There is none for an app in debug mode, since the development server has one process.

    Args:
        ours: the base class of the backends of this package.
    """

    def at_first_request(sender: Flask, **extra: Any) -> None:
        request_started.disconnect(at_first_request, sender)
        _report(sender, sessions_of(sender, ours))

    if app not in _checked:
        request_started.connect(at_first_request, app, weak=False)
    _report(app, _of_flask_session(app, ours))
    _checked.add(app)


_checked: Final[WeakSet[Flask]] = WeakSet()
"""The apps that ``check_sessions`` has been called for."""

_reported: Final[WeakSet[Flask]] = WeakSet()
"""The apps whose sessions were reported."""


def sessions_of(app: Flask, ours: type) -> Kept | None:
    """Return the sessions of ``app``, if they are in a cache that the workers do not share, and note this there."""
    found = _of_flask_session(app, ours) or _of_interface(app, ours)
    if found is not None:
        found.backend.engine.engine.observed.shared_state = [SharedState("Sessions are in", LOSS)]
    return found


def _of_flask_session(app: Flask, ours: type) -> Kept | None:
    backend = app.config.get("SESSION_CACHELIB")
    is_used = app.config.get("SESSION_TYPE") == "cachelib" and _is_separate(backend, ours)
    return Kept("Flask-Session", backend, "SESSION_CACHELIB") if is_used else None


def _of_interface(app: Flask, ours: type) -> Kept | None:
    kind, backends = type(app.session_interface), app.extensions.get("cache", {})
    for each in _caches_of(app.session_interface):
        backend = backends.get(each) if _is_a(each, flask_caching.Cache) else each
        if _is_separate(backend, ours):
            setting = "its cache" if backend is each else "CACHE_TYPE"
            return Kept(f"{kind.__module__}.{kind.__qualname__}", backend, setting)
    return None


def _is_separate(backend: Any, ours: type) -> bool:
    return _is_a(backend, ours) and backend.is_of_this_process()


def _report(app: Flask, found: Kept | None) -> None:
    if found is not None and app not in _reported and not app.debug:
        _reported.add(app)
        logger.warning(
            "%s keeps the sessions of the app %r in a cache that the worker processes do not share: with more than one "
            "worker, %s. Set %s to a HostCache, if all workers are on this machine, or to a TieredCache over Redis, "
            "Valkey or memcached.",
            *(found.keeper, app.name, LOSS, found.setting),
        )


def _caches_of(interface: Any) -> Iterator[Any]:
    """Iterate over the attributes of a session interface, and the global variables that its methods name."""
    yield from getattr(interface, "__dict__", {}).values()
    for name in ("open_session", "save_session"):
        function = unwrap(getattr(type(interface), name))
        code = getattr(function, "__code__", None)
        for variable in code.co_names if code is not None else ():
            if variable in function.__globals__:
                yield function.__globals__[variable]


def _is_a(value: Any, kind: type) -> bool:
    # Not isinstance, which asks the object behind a proxy such as ``current_app``.
    return issubclass(type(value), kind)
