"""Flask-Session may keep sessions in a cache of this package, which each worker process may have for itself."""

from __future__ import annotations

import logging

from flask import Flask

from wheelcache.flask_backend.engine_backend import EngineBackend

logger = logging.getLogger("wheelcache")


def warn_of_sessions(app: Flask) -> None:
    """Log it if the sessions of ``app`` are in a cache of each process."""
    sessions = app.config.get("SESSION_CACHELIB")
    if (
        app.config.get("SESSION_TYPE") == "cachelib"
        and isinstance(sessions, EngineBackend)
        and sessions.is_of_this_process()
    ):
        logger.warning(
            "Flask-Session keeps the sessions of the app %r in a cache that each worker process has for itself: with "
            "more than one worker, a visitor is logged out whenever another one answers. Let SESSION_CACHELIB be a "
            "TieredCache over Redis, Valkey or memcached, or one of these itself.",
            app.name,
        )
