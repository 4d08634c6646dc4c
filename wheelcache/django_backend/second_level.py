"""The cache behind a ``TieredCache``: how it is made, and where it keeps the tags of values."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from wheelcache.loading.steps import then
from wheelcache.near_cache.near_cache import NearCache
from wheelcache.near_cache.socket_options import (
    DJANGO_REDIS,
    PYMEMCACHE,
    SOCKET_OPTIONS,
    socket_options,
    well_known,
)
from wheelcache.near_cache.store_tags import StoreTags
from wheelcache.near_cache.tokens import MARK

SERVE_ALL_THREADS: Final = {
    DJANGO_REDIS,
    "django.core.cache.backends.redis.RedisCache",
    "django.core.cache.backends.db.DatabaseCache",
    "django.core.cache.backends.dummy.DummyCache",
    "django.core.cache.backends.filebased.FileBasedCache",
    "django.core.cache.backends.locmem.LocMemCache",
    "wheelcache.django_backend.backend.WheelCache",
}
"""Backends with objects that many threads may share. For others this is unknown: Django makes an object per thread.

The backends for memcached are not among them: two threads on one connection of pymemcache read each other's answers,
and with its pool, the ``close`` at the end of one request still closes the connections of all.
"""

TOKEN_VERSION: Final = 1
"""The version of the keys of tokens: a tag applies to all versions of the values."""


def _get_tokens(l2: Any, keys: list[str]) -> Any:
    return l2.get_many(keys, version=TOKEN_VERSION)


def _add_token(l2: Any, key: str, token: str) -> Any:
    return l2.add(key, token, None, version=TOKEN_VERSION)


def _set_tokens(l2: Any, tokens: dict[str, str]) -> Any:
    def delete(failed: Any) -> Any:
        return l2.delete_many(failed, version=TOKEN_VERSION) if failed else None

    return then(delete, l2.set_many(tokens, None, version=TOKEN_VERSION))


def token_mark(l2: BaseCache) -> str:
    """Return the part that the keys of all tokens in ``l2`` have: empty if its key function hides the caller's key."""
    return MARK if MARK in l2.make_key(MARK, version=TOKEN_VERSION) else ""


def store_tags(level: NearCache, l2: BaseCache) -> StoreTags:
    """Return the tags of the values in ``l2``, the cache behind ``level``."""
    key_of = partial(l2.make_key, version=TOKEN_VERSION)
    return StoreTags(level, key_of, _get_tokens, _add_token, _set_tokens)


def second_level(alias: str, key_settings: Mapping[str, Any], timeout: float, refused: type) -> BaseCache:
    """Return the cache ``alias`` as Django would make it, but with these key settings, and with sockets that do not
    wait forever. It must not be a ``refused``."""
    params = {**caches.settings[alias], **key_settings}
    backend = params.pop("BACKEND")
    location = params.pop("LOCATION", "")
    cls = import_string(backend)
    if issubclass(cls, refused):
        raise ImproperlyConfigured(f"Wrong cache setting: L2 must not be a TieredCache itself, as {alias!r} is.")
    known = well_known(cls)
    params["OPTIONS"] = {**socket_options(cls, timeout), **params.get("OPTIONS", {})}
    if known == PYMEMCACHE and isinstance(location, str) and not {",", ";"} & set(location):
        # After a failure, pymemcache reports misses for a while, without an error. With a single server there is no
        # other one to use, so an error is better.
        params["OPTIONS"] = {"retry_attempts": 0, "dead_timeout": 0, **params["OPTIONS"]}
    if known == DJANGO_REDIS:
        location = _with_timeouts(location, params["OPTIONS"])
    l2: BaseCache = cls(location, params)
    return l2


def _with_timeouts(location: Any, given: Mapping[str, Any]) -> list[str]:
    """Return the URLs for django-redis with the timeouts in them.

    django-redis keeps one pool per URL, with the OPTIONS of the first alias that uses it. Without other URLs, this
    cache could get a pool whose sockets wait forever.
    """
    timeouts = urlencode({name.lower(): given[name] for name in SOCKET_OPTIONS[DJANGO_REDIS].timeouts if given[name]})
    urls = location.split(",") if isinstance(location, str) else location
    # Appended at the end: options that are already in the URL come first and win.
    return [f"{url}{'&' if '?' in url else '?'}{timeouts}" for url in urls]
