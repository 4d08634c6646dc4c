"""Flask-Caching backends: ``CACHE_TYPE = "wheelcache.flask_backend.WheelCache"``, in memory, and ``"....TieredCache"``,
in memory and in front of any other backend; and ``Cache``, Flask-Caching's class with faster decorators.

The names are imported at the first access: every ``flask`` command, of any app, imports this package with ``commands``,
even if Flask-Caching is not installed.
"""

from typing import TYPE_CHECKING

from wheelcache.engine.guests import lazy_names

if TYPE_CHECKING:
    from wheelcache.flask_backend.backend import WheelCache
    from wheelcache.flask_backend.caching import Cache
    from wheelcache.host_cache.flask_host import HostCache
    from wheelcache.near_cache.flask_tiered import TieredCache
    from wheelcache.pages.flask_pages import HTTPCache
    from wheelcache.transactions.announced import transaction_scope
    from wheelcache.watch.flask_dashboard import dashboard

__all__ = ["Cache", "HTTPCache", "HostCache", "TieredCache", "WheelCache", "dashboard", "transaction_scope"]

__getattr__ = lazy_names(
    __name__,
    {
        "Cache": "wheelcache.flask_backend.caching",
        "HostCache": "wheelcache.host_cache.flask_host",
        "HTTPCache": "wheelcache.pages.flask_pages",
        "TieredCache": "wheelcache.near_cache.flask_tiered",
        "WheelCache": "wheelcache.flask_backend.backend",
        "dashboard": "wheelcache.watch.flask_dashboard",
        "transaction_scope": "wheelcache.transactions.announced",
    },
)
