"""A Django cache backend in memory: ``"BACKEND": "wheelcache.django_backend.WheelCache"``.

Add ``"wheelcache.django_backend"`` to ``INSTALLED_APPS`` to enable the system checks of its settings.

The names are imported at the first access: a backend in memory needs no copies of a store, and no client of Redis.
"""

from typing import TYPE_CHECKING

from wheelcache.lazy_names import lazy_names

if TYPE_CHECKING:
    from wheelcache.django_backend.backend import WheelCache
    from wheelcache.django_backend.default_cache import cache
    from wheelcache.django_backend.host import HostCache
    from wheelcache.django_backend.memoized_functions import memoize
    from wheelcache.django_backend.redis_cluster import RedisClusterCache
    from wheelcache.django_backend.tiered import TieredCache

__all__ = ["HostCache", "RedisClusterCache", "TieredCache", "WheelCache", "cache", "memoize"]

__getattr__ = lazy_names(
    __name__,
    {
        "HostCache": "wheelcache.django_backend.host",
        "RedisClusterCache": "wheelcache.django_backend.redis_cluster",
        "TieredCache": "wheelcache.django_backend.tiered",
        "WheelCache": "wheelcache.django_backend.backend",
        "cache": "wheelcache.django_backend.default_cache",
        "memoize": "wheelcache.django_backend.memoized_functions",
    },
)
