"""A Django cache backend in memory: ``"BACKEND": "wheelcache.django_backend.WheelCache"``.

Add ``"wheelcache.django_backend"`` to ``INSTALLED_APPS`` to enable the system checks of its settings.

The names are imported at the first access: a backend in memory needs no copies of a store, and no client of Redis.
"""

from typing import TYPE_CHECKING

from wheelcache.engine.guests import lazy_names

if TYPE_CHECKING:
    from wheelcache.django_backend.backend import WheelCache
    from wheelcache.django_backend.memoized_functions import memoize
    from wheelcache.host_cache.django_host import HostCache
    from wheelcache.near_cache.django_tiered import TieredCache
    from wheelcache.near_cache.redis_cluster import RedisClusterCache
    from wheelcache.pages.django_pages import PageMiddleware, page_cache

__all__ = [
    "HostCache",
    "PageMiddleware",
    "RedisClusterCache",
    "TieredCache",
    "WheelCache",
    "memoize",
    "page_cache",
]

__getattr__ = lazy_names(
    __name__,
    {
        "HostCache": "wheelcache.host_cache.django_host",
        "PageMiddleware": "wheelcache.pages.django_pages",
        "RedisClusterCache": "wheelcache.near_cache.redis_cluster",
        "TieredCache": "wheelcache.near_cache.django_tiered",
        "WheelCache": "wheelcache.django_backend.backend",
        "memoize": "wheelcache.django_backend.memoized_functions",
        "page_cache": "wheelcache.pages.django_pages",
    },
)
