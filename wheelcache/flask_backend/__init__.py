"""Flask-Caching backends: ``CACHE_TYPE = "wheelcache.flask_backend.WheelCache"``, in memory, and ``"....TieredCache"``,
in memory and in front of any other."""

from wheelcache.flask_backend.backend import WheelCache
from wheelcache.flask_backend.tiered import TieredCache

__all__ = ["TieredCache", "WheelCache"]
