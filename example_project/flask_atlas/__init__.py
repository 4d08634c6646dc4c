"""The atlas in Flask: the same cities from the same database, cached with Flask-Caching."""

from flask_atlas.application import create_app

__all__ = ["create_app"]
