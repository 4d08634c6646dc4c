"""Removes a value that was stored too late: its key was written during its computation.

Another process may have stored a newer value in the meantime, which must stay. So the value is removed only if it is
still the stored one. Redis, Valkey and pymemcache do this atomically. In other stores, a newer value is lost if it
arrives between the comparison and the delete.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final

from wheelcache.near_cache.invalidations import redis_client

IN_REDIS: Final = "if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end"

AT_ONCE: Final = -1
"""The timeout with which memcached deletes a value."""


def remove_own(store: Any, name: str, value: Any, get: Callable[[], Any], delete: Callable[[], Any]) -> None:
    """Delete a key unless its value was replaced.

    Args:
        store: the cache, of Django or cachelib.
        name: the key on the server.
        value: the value that was stored.
        get, delete: read and delete the key in ``store``.
    """
    redis, encode = redis_client(store), _encoder(store)
    memcached: Any = getattr(store, "_cache", None) or getattr(store, "_client", None)
    if redis is not None and encode is not None:
        redis.eval(IN_REDIS, 1, name, encode(value))
    elif type(memcached).__module__.startswith("pymemcache."):
        found, number = memcached.gets(name) or (None, None)
        if number is not None and _is_same(found, value):
            memcached.cas(name, b"", number, AT_ONCE)
    elif _is_same(get(), value):
        delete()


def _encoder(store: Any) -> Callable[[Any], Any] | None:
    """Return the function by which a cache over Redis encodes values; None if it is unknown."""
    # django-redis, Django and cachelib.
    encode = getattr(getattr(store, "client", None), "encode", None)
    serializer = getattr(getattr(store, "_cache", None), "_serializer", None) or getattr(store, "serializer", None)
    return encode or getattr(serializer, "dumps", None)


def _is_same(found: Any, value: Any) -> bool:
    """Return whether ``found`` is ``value`` after it was stored. If they cannot be compared, return True: a missing
    value is better than an outdated one."""
    try:
        return pickle.dumps(found) == pickle.dumps(pickle.loads(pickle.dumps(value)))
    except Exception:
        return True
