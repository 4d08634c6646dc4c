"""The app factory and its settings, for a developer's own machine."""

import logging
import os
import sqlite3
from pathlib import Path
from typing import Any, Final

from flask import Flask, render_template, request

from flask_atlas import served
from flask_atlas.cities import NoCities
from flask_atlas.pages import cache, pages
from wheelcache.flask_backend import dashboard

EXAMPLE_PROJECT: Final = Path(__file__).resolve().parent.parent


def create_app(settings: dict[str, Any] | None = None) -> Flask:
    """Return an app with its own cache. ``settings`` override the settings below."""
    # The style sheet belongs to the Django site.
    app = Flask("flask_atlas", static_folder=EXAMPLE_PROJECT / "atlas" / "static", static_url_path="/static")
    app.config.from_mapping(
        DATABASE=os.environ.get("ATLAS_DATABASE", EXAMPLE_PROJECT / "atlas.sqlite3"),
        CACHE_TYPE="wheelcache.flask_backend.HostCache",
    )
    app.config.from_mapping(settings)
    app.jinja_options = {"trim_blocks": True, "lstrip_blocks": True}
    cache.init_app(app)
    served.init_app(app)
    app.register_blueprint(pages)
    app.register_blueprint(dashboard(_permissions))
    app.add_template_filter(_thousands, "thousands")
    app.register_error_handler(NoCities, _empty)
    app.register_error_handler(sqlite3.OperationalError, _empty)
    _log_the_figures()
    return app


def _permissions() -> set[str]:
    """Let requests from this machine see the figures of the cache and empty it.

    Do not use this guard for a public site: behind a proxy, all requests come from the proxy. Ask for a login instead.
    """
    return {"operate"} if request.remote_addr in ("127.0.0.1", "::1") else set()


def _thousands(number: float) -> str:
    return f"{number:,.0f}"


def _empty(error: Exception) -> tuple[str, int]:
    """Return the page for a database that is missing, has no tables, or has no rows."""
    return render_template("empty.html", error=error), 503


def _log_the_figures() -> None:
    """Show the log of wheelcache.stats: a line per minute for every cache that is in use."""
    logger = logging.getLogger("wheelcache")
    logger.setLevel(logging.INFO)
    if not logger.handlers:
        lines = logging.StreamHandler()
        lines.setFormatter(logging.Formatter("{asctime} {name} {message}", style="{"))
        logger.addHandler(lines)
