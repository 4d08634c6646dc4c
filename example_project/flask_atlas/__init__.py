"""The atlas once more, in Flask: the same cities out of the same database, with the caching of Flask-Caching."""

from flask_atlas.application import create_app

__all__ = ["create_app"]
