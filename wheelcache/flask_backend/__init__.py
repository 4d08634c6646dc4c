"""A Flask-Caching backend in memory: ``CACHE_TYPE = "wheelcache.flask_backend.WheelCache"``."""

from wheelcache.flask_backend.backend import WheelCache

__all__ = ["WheelCache"]
