"""Decides which exceptions from a call of the store behind a near cache mean that the store is down.

A call of the store can end with an exception that has nothing to do with the store. Celery's SoftTimeLimitExceeded is
an ``Exception`` that a signal handler raises at whatever point the main thread has reached. If a near cache treated it
as an outage, the task would continue past its time limit. Pickling a lazy value, such as a Django queryset, may run a
query that fails, which says nothing about a Redis. So exceptions are recognized by their class. These are outages:

- ``OSError``, which includes ``TimeoutError`` and ``ConnectionError``: sockets and files raise it;
- an exception whose class, or one of whose bases, is defined in the packages of the store's client.

``CLIENT_PACKAGES`` names these packages for well-known classes of stores. For all other classes they are the packages
of the objects and modules in the store's attributes, since a store usually keeps its client there, and the module (not
the package) that defines the store's class. The package of the class was rejected: for a class that a site has written
itself, it would include the site's own time limits. The traceback was rejected, too: clients written in C leave no
frames, and a signal handler runs on top of the frames that it interrupts.

An exception that a healthy store would raise as well, because of the key, the value or the command, is not an outage.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, Final

from wheelcache.engine.codec import NOT_DECODED
from wheelcache.near_cache.socket_options import CACHELIB_REDIS, DJANGO_REDIS, PYMEMCACHE

ABOUT_THE_VALUE: Final = (*NOT_DECODED, RecursionError)

ABOUT_THE_CALL: Final = (
    "ResponseError",
    "DataError",
    "CompressorError",
    "MemcacheIllegalInputError",
    "MemcacheClientError",
    "TransactionManagementError",
)
"""The same for exceptions of redis-py, django-redis, pymemcache and Django's database layer. The names must match
exactly: derived classes may be outages."""

PYLIBMC: Final = ("pylibmc", "_pylibmc")

CLIENT_PACKAGES: Final[dict[str, tuple[str, ...]]] = {
    "django.core.cache.backends.redis.RedisCache": ("redis",),
    DJANGO_REDIS: ("redis", "django_redis"),
    "django_valkey.base.BaseValkeyCache": ("valkey", "django_valkey"),
    PYMEMCACHE: ("pymemcache",),
    "django.core.cache.backends.memcached.PyLibMCCache": PYLIBMC,
    "django.core.cache.backends.db.DatabaseCache": ("django.db.utils",),
    "django.core.cache.backends.dummy.DummyCache": (),
    "django.core.cache.backends.filebased.FileBasedCache": (),
    "django.core.cache.backends.locmem.LocMemCache": (),
    CACHELIB_REDIS: ("redis",),
    "cachelib.valkey.ValkeyCache": ("valkey",),
    "cachelib.memcached.MemcachedCache": (*PYLIBMC, "pymemcache", "memcache", "libmc", "google.appengine"),
    "cachelib.mongodb.MongoDbCache": ("pymongo",),
    "cachelib.dynamodb.DynamoDbCache": ("botocore", "boto3"),
    "cachelib.base.NullCache": (),
    "cachelib.file.FileSystemCache": (),
    "cachelib.simple.SimpleCache": (),
    "cachelib.uwsgi.UWSGICache": (),
    "wheelcache.django_backend.backend.WheelCache": (),
    "wheelcache.flask_backend.backend.WheelCache": (),
}
"""The packages and modules of the client's exceptions, by the dotted path of a store's class or of one of its bases."""

FRAMEWORKS: Final = frozenset({"builtins", "cachelib", "django", "flask", "flask_caching", "wheelcache", "werkzeug"})
"""Packages that are not clients of a store."""


class OutageRule:
    """The rule for one store.

    Args:
        store: the cache behind the near cache.
    """

    __slots__ = ("_known", "_store")

    def __init__(self, store: Any) -> None:
        paths = (f"{cls.__module__}.{cls.__qualname__}" for cls in type(store).__mro__)
        self._known = next((CLIENT_PACKAGES[path] for path in paths if path in CLIENT_PACKAGES), None)
        # Clients are often created at the first call, so an unknown store is examined when a call has failed.
        self._store = store if self._known is None else None

    def is_outage(self, error: BaseException | None) -> bool:
        """Return whether a call that ended with ``error`` shows that the store is down."""
        if not isinstance(error, Exception) or _is_about_the_value(error):
            return False
        if isinstance(error, OSError):
            return True
        packages = tuple(self._packages()) if self._known is None else self._known
        modules = {cls.__module__ for cls in type(error).__mro__}
        return any(module == package or module.startswith(f"{package}.") for module in modules for package in packages)

    def is_of_the_call(self, error: BaseException | None) -> bool:
        """Return whether the store, the key or the value caused ``error``, so that other callers would get it, too."""
        return isinstance(error, Exception) and (_is_about_the_value(error) or self.is_outage(error))

    def _packages(self) -> Iterator[str]:
        for cls in type(self._store).__mro__:
            if _top(cls.__module__) not in FRAMEWORKS:
                yield cls.__module__
        for value in list(getattr(self._store, "__dict__", {}).values()):
            package = _top(value.__name__ if isinstance(value, ModuleType) else type(value).__module__)
            if package not in FRAMEWORKS:
                yield package


def _top(module: str) -> str:
    return module.partition(".")[0]


def _is_about_the_value(error: Exception) -> bool:
    return isinstance(error, ABOUT_THE_VALUE) or type(error).__name__ in ABOUT_THE_CALL
