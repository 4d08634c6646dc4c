"""The socket timeouts of well-known caches, where the site sets none. Without them, a socket waits forever."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

try:
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError:
    """No cache of Redis can be made."""

SOCKET_TIMEOUT: Final = 1.0
"""The seconds for which a socket waits, unless the options of the store specify a timeout."""

DJANGO_REDIS: Final = "django_redis.cache.RedisCache"
PYMEMCACHE: Final = "django.core.cache.backends.memcached.PyMemcacheCache"
CACHELIB_REDIS: Final = "cachelib.redis.RedisCache"


@dataclass(frozen=True, slots=True)
class SocketOptions:
    """The options of one class of caches.

    Attributes:
        timeouts: the names of the options that take seconds.
        without_retries: whether to switch off the retries of redis-py. It tries four times with pauses in between: a
            call of a stopped server took 15 s.
        prefixes: each option is given once with each of these prefixes before its name.
    """

    timeouts: tuple[str, ...]
    without_retries: bool = False
    prefixes: tuple[str, ...] = ("",)

    def bounded(self) -> dict[str, Any]:
        """Return the options of a cache whose sockets wait at most ``SOCKET_TIMEOUT``."""
        found: dict[str, Any] = dict.fromkeys(self.timeouts, SOCKET_TIMEOUT)
        if self.without_retries:
            found["retry"] = Retry(NoBackoff(), 0)
        return {f"{prefix}{name}": value for prefix in self.prefixes for name, value in found.items()}


REDIS_PY: Final = ("socket_timeout", "socket_connect_timeout")

SOCKET_OPTIONS: Final = {
    "django.core.cache.backends.redis.RedisCache": SocketOptions(REDIS_PY),
    DJANGO_REDIS: SocketOptions(("SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT")),
    PYMEMCACHE: SocketOptions(("timeout", "connect_timeout")),
    CACHELIB_REDIS: SocketOptions(REDIS_PY, without_retries=True),
    # It needs retries to learn to which node a key has moved.
    "flask_caching.backends.rediscache.RedisClusterCache": SocketOptions(REDIS_PY),
    "flask_caching.backends.rediscache.RedisSentinelCache": SocketOptions(
        REDIS_PY, without_retries=True, prefixes=("", "sentinel_")
    ),
}
"""The options by the dotted path of a class. They also apply to derived classes."""


def well_known(kind: Any) -> str | None:
    """Return the path in ``SOCKET_OPTIONS`` of ``kind`` or of one of its bases; None if there is none."""
    paths = (f"{cls.__module__}.{cls.__qualname__}" for cls in getattr(kind, "__mro__", ()))
    return next((path for path in paths if path in SOCKET_OPTIONS), None)


def socket_options(kind: Any) -> dict[str, Any]:
    """Return the options of a cache of class ``kind`` whose sockets wait at most ``SOCKET_TIMEOUT``; empty if the class
    is unknown."""
    path = well_known(kind)
    return {} if path is None else SOCKET_OPTIONS[path].bounded()
