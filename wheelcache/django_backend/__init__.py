"""A Django cache backend in memory: ``"BACKEND": "wheelcache.django_backend.WheelCache"``.

Add ``"wheelcache.django_backend"`` to ``INSTALLED_APPS`` to enable the system checks of its settings.
"""

from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.default_cache import cache
from wheelcache.django_backend.memoized_functions import memoize
from wheelcache.django_backend.redis_cluster import RedisClusterCache
from wheelcache.django_backend.tiered import TieredCache

__all__ = ["RedisClusterCache", "TieredCache", "WheelCache", "cache", "memoize"]
