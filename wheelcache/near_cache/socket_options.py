"""The options by which well-known caches bound how long a socket waits, which none of them does by itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

DJANGO_REDIS: Final = "django_redis.cache.RedisCache"
PYMEMCACHE: Final = "django.core.cache.backends.memcached.PyMemcacheCache"
CACHELIB_REDIS: Final = "cachelib.redis.RedisCache"


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """The options of one class of caches.

    Attributes:
        timeouts: names of options that take seconds.
        without_retries: whether they also say that redis-py shall not try again. It tries four times with pauses in
            between, which was 15 s of a server that was stopped.
        prefixes: each option is given once for each, with this before its name.
    """

    timeouts: tuple[str, ...]
    without_retries: bool = False
    prefixes: tuple[str, ...] = ("",)

    def bounded(self, seconds: float) -> dict[str, Any]:
        """The options of a cache whose sockets wait ``seconds`` at most."""
        found: dict[str, Any] = dict.fromkeys(self.timeouts, seconds)
        if self.without_retries:
            from redis.backoff import NoBackoff
            from redis.retry import Retry

            found["retry"] = Retry(NoBackoff(), 0)
        return {f"{prefix}{name}": value for prefix in self.prefixes for name, value in found.items()}


REDIS_PY: Final = ("socket_timeout", "socket_connect_timeout")

SOCKET_OPTIONS: Final = {
    "django.core.cache.backends.redis.RedisCache": SocketOptions(REDIS_PY),
    DJANGO_REDIS: SocketOptions(("SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT")),
    PYMEMCACHE: SocketOptions(("timeout", "connect_timeout")),
    CACHELIB_REDIS: SocketOptions(REDIS_PY, without_retries=True),
    # Its retries are how it finds out where a key has moved.
    "flask_caching.backends.rediscache.RedisClusterCache": SocketOptions(REDIS_PY),
    "flask_caching.backends.rediscache.RedisSentinelCache": SocketOptions(
        REDIS_PY, without_retries=True, prefixes=("", "sentinel_")
    ),
}
"""By the dotted path of a class, and of the classes that are derived from it."""


def well_known(kind: Any) -> str | None:
    """The class in ``SOCKET_OPTIONS`` that ``kind`` is, or is derived from."""
    paths = (f"{cls.__module__}.{cls.__qualname__}" for cls in getattr(kind, "__mro__", ()))
    return next((path for path in paths if path in SOCKET_OPTIONS), None)


def socket_options(kind: Any, seconds: float) -> dict[str, Any]:
    """The options of a cache of the class ``kind`` whose sockets wait ``seconds`` at most; none if it is not known."""
    path = well_known(kind)
    return {} if path is None else SOCKET_OPTIONS[path].bounded(seconds)
