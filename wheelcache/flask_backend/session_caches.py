"""Find the sessions of an app in a cache that its workers do not share, and report them.

Flask-Session shows its cache in the settings. Other session interfaces are classes of the app, such as CTFd's, which
use the cache of the app: one of their attributes is a cache, or their methods name a global variable that is one. They
are looked at when the app begins its first request, since they may be set after the cache is made.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from inspect import unwrap
from typing import Any, Final
from weakref import WeakSet

import flask_caching
from flask import Flask, request_started

from wheelcache.engine.observed import SharedState

logger = logging.getLogger("wheelcache")

LOSS: Final = "a visitor is logged out, and a form with a token is refused, whenever another worker answers"

_reported: Final[WeakSet[Flask]] = WeakSet()
"""The apps whose sessions were reported."""


def check_sessions(app: Flask, ours: type) -> None:
    """Log a warning if the sessions of ``app`` are in a cache that the workers do not share, now or at the first
    request. There is none for an app in debug mode, since the development server has one process.

    Args:
        ours: the base class of the backends of this package.
    """
    if app.config.get("SESSION_TYPE") == "cachelib":
        _report(app, "Flask-Session keeps", app.config.get("SESSION_CACHELIB"), ours, "SESSION_CACHELIB")

    def at_first_request(sender: Flask, **extra: Any) -> None:
        request_started.disconnect(at_first_request, sender)
        interface = sender.session_interface
        for each in _caches_of(interface):
            backend = sender.extensions.get("cache", {}).get(each) if _is_a(each, flask_caching.Cache) else each
            name = f"{type(interface).__module__}.{type(interface).__qualname__} keeps"
            _report(sender, name, backend, ours, "CACHE_TYPE" if backend is not each else "its cache")

    request_started.connect(at_first_request, app, weak=False)


def _report(app: Flask, keeper: str, backend: Any, ours: type, setting: str) -> None:
    if app in _reported or not _is_a(backend, ours) or not backend.is_of_this_process():
        return
    _reported.add(app)
    backend.engine.engine.observed.shared_state.append(SharedState("Sessions are in", LOSS))
    if not app.debug:
        logger.warning(
            "%s the sessions of the app %r in a cache that the worker processes do not share: with more than one "
            "worker, %s. Set %s to a HostCache, if all workers are on this machine, or to a TieredCache over Redis, "
            "Valkey or memcached.",
            *(keeper, app.name, LOSS, setting),
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
