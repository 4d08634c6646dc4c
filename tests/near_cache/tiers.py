"""``TieredCache`` of both frameworks, in the words of ``adapter``, over each kind of cache that may stand behind."""

from contextlib import ExitStack, contextmanager
from typing import ClassVar

import cachelib
import flask
import flask_caching
import pytest
import redis
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.test import override_settings

from tests.backends.adapter import QUIET, names
from tests.backends.on_django import OnDjango, OnDjangoAsync
from tests.backends.on_flask import OnFlask
from tests.engines import noted
from tests.near_cache.noting import noting
from tests.waiting import until
from wheelcache.flask_backend import TieredCache
from wheelcache.near_cache.invalidations import redis_client

NotingLocMemCache = noting(LocMemCache)
NotingSimpleCache = noting(cachelib.SimpleCache)
WHEEL = "wheelcache.django_backend.WheelCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"


class Tier:
    """
    Attributes:
        behind: the cache behind, in the same words.
        noted: the class of the cache behind if that is in memory.
    """

    def copies(self):
        return sorted(self.engine.keys())

    def client(self):
        """Return the client of the Redis behind."""
        return redis_client(self.behind.backend)


class TierOnDjango(Tier, OnDjango):
    kinds: ClassVar = {
        "memory": f"{__name__}.NotingLocMemCache",
        "files": "django.core.cache.backends.filebased.FileBasedCache",
        "redis": "django.core.cache.backends.redis.RedisCache",
        "django-redis": "django_redis.cache.RedisCache",
        "redis-cluster": "wheelcache.django_backend.RedisClusterCache",
        "memcached": "django.core.cache.backends.memcached.PyMemcacheCache",
    }
    noted = NotingLocMemCache

    @classmethod
    def over(cls, cleanup, kind="memory", place=None, behind=None, **options):
        """
        Args:
            cleanup: closes the created objects at the end.
            kind: one of ``kinds``.
            place: a RedisServer, a Cluster, the address of a memcached, or a directory.
            behind: settings of the cache behind.
        """
        name = options.pop("name", None) or next(names)
        location = place.url if "redis" in kind else str(place or name)
        spelled = {option.upper(): value for option, value in {**QUIET, "l2": "behind", **options}.items()}
        if kind == "wheel":
            behind = {"BACKEND": WHEEL, "LOCATION": name, "OPTIONS": {"JITTER": 0, "FIGURES_DIR": None}}
        configured = {
            "default": {"BACKEND": LOCMEM},
            "behind": {"BACKEND": cls.kinds.get(kind), "LOCATION": location, **(behind or {})},
            "tiered": {"BACKEND": "wheelcache.django_backend.TieredCache", "LOCATION": name, "OPTIONS": spelled},
        }
        cleanup.enter_context(override_settings(CACHES=configured))
        return cls.of_this_thread(cleanup)

    @classmethod
    def of_this_thread(cls, cleanup):
        tier = cls(caches["tiered"], caches["tiered"].location)
        tier.behind = OnDjango(caches["behind"], "")
        for each in (tier, tier.behind):
            cleanup.callback(each.backend.close)
        return tier

    def key(self, key):
        return self.backend.make_key(key)


class TierOnDjangoAsync(TierOnDjango, OnDjangoAsync):
    pass


class TierOnFlask(Tier, OnFlask):
    kinds = ("memory", "files", "redis", "redis-cluster")
    noted = NotingSimpleCache

    @classmethod
    def over(cls, cleanup, kind="memory", place=None, behind=None, **options):
        if "max_entries" in options:
            options["threshold"] = options.pop("max_entries")
        options = {**QUIET, "name": next(names), **options}
        if "redis" in kind:
            app = flask.Flask("tier")
            app.config.update(
                {"CACHE_KEY_PREFIX": "", **(behind or {})},
                CACHE_TYPE="wheelcache.flask_backend.TieredCache",
                CACHE_OPTIONS={"l2": "RedisCache" if kind == "redis" else "RedisClusterCache", **options},
                CACHE_REDIS_URL=place.url.partition(",")[0],
            )
            cache = flask_caching.Cache(app)
            backend = app.extensions["cache"][cache]
        elif kind == "files":
            backend = TieredCache(cachelib.FileSystemCache(str(place)), **options)
        else:
            backend = TieredCache(cls.noted(threshold=10_000, **(behind or {})), **options)
        tier = cls(noted(backend), options["name"])
        tier.behind = OnFlask(backend.l2, "")
        if "redis" in kind:
            cleanup.callback(tier.client().close)
        tier.of_this_thread = lambda cleanup: tier
        return tier

    def key(self, key):
        prefix = getattr(self.backend.l2, "key_prefix", None) or ""
        return f"{prefix() if callable(prefix) else prefix}{key}"


SERVERS = {
    "redis": "empty_redis",
    "django-redis": "empty_redis",
    "redis-cluster": "empty_cluster",
    "memcached": "memcached",
}
"""The fixtures that run the servers of the caches behind."""

TIERS = {"django": TierOnDjango, "flask": TierOnFlask}
WITH_ASYNC = {**TIERS, "django async": TierOnDjangoAsync}
KINDS = [
    pytest.param(name, kind, marks=pytest.mark.servers if kind in SERVERS else ())
    for name, cls in TIERS.items()
    for kind in cls.kinds
]
"""The names of a tier and of the kind of the cache behind."""


@contextmanager
def made_tiers(trackings):
    """``make(cls, kind, place, **options)``: a tier. If Redis is behind, it has begun to report writes."""
    pools = []

    class NotedPool(redis.ConnectionPool):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            pools.append(self)

    def make(cls, *args, **options):
        before = len(trackings())
        tier = cls.over(cleanup, *args, **options)
        for each in trackings()[before:]:
            each.start()
            assert until(each.is_trusted)
        return tier

    for cls in TIERS.values():
        cls.noted.error = None
        cls.noted.calls.clear()
    with ExitStack() as cleanup, pytest.MonkeyPatch.context() as patched:
        # Django leaves the connections of threads that have ended open.
        patched.setattr(redis, "ConnectionPool", NotedPool)
        yield make
    for pool in pools:
        pool.close()
