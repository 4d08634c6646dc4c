"""Flask-Caching backends: ``CACHE_TYPE = "wheelcache.flask_backend.WheelCache"``, in memory, and ``"....TieredCache"``,
in memory and in front of any other backend; and ``Cache``, Flask-Caching's class with faster decorators.

They are imported at the first access: every ``flask`` command, of any app, imports this package with ``commands``, even
if Flask-Caching is not installed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from wheelcache.flask_backend.backend import WheelCache
    from wheelcache.flask_backend.caching import Cache
    from wheelcache.flask_backend.pages import HTTPCache
    from wheelcache.flask_backend.tiered import TieredCache
    from wheelcache.transactions.announced import transaction_scope

__all__ = ["Cache", "HTTPCache", "TieredCache", "WheelCache", "transaction_scope"]

_MODULES = {
    "Cache": "flask_backend.caching",
    "HTTPCache": "flask_backend.pages",
    "TieredCache": "flask_backend.tiered",
    "WheelCache": "flask_backend.backend",
    "transaction_scope": "transactions.announced",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"wheelcache.{_MODULES[name]}"), name)
    globals()[name] = found
    return found
