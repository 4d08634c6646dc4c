"""The cache behind a ``TieredCache``: how it is made, and where it keeps the tags of values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final
from urllib.parse import urlencode

from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from wheelcache.core.contract import MISSING
from wheelcache.engine.codec import NOT_DECODED, read_or_delete
from wheelcache.near_cache.late_values import remove_own
from wheelcache.near_cache.socket_options import (
    DJANGO_REDIS,
    PYMEMCACHE,
    SOCKET_OPTIONS,
    socket_options,
    well_known,
)
from wheelcache.near_cache.store_calls import answer, read_each, then, unless_undecoded
from wheelcache.near_cache.written_timeouts import NewTimeout
from wheelcache.runtime.steps import StepsTo, drive

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

SET_AGAIN: Final = (BaseCache.incr, BaseCache.aincr)
"""Methods that set the new value with the default timeout. Overriding methods keep the timeout of the value."""

KeyFunction = Callable[[Any, str, Any], str]


def take_final_keys(l2: BaseCache) -> KeyFunction:
    """Let ``l2`` take final keys, and return the function that makes them of its callers' keys."""
    if type(l2).make_key is BaseCache.make_key or well_known(type(l2)) == DJANGO_REDIS:
        made: KeyFunction = l2.key_func
        l2.key_func = _final
        return made
    # Its own method may use the key function.
    make_key = l2.make_key
    l2.make_key = _final  # type: ignore[method-assign]

    def own(key: Any, prefix: str, version: Any) -> str:
        l2.key_prefix = prefix
        return make_key(key, version=version)

    return own


def _final(key: Any, *rest: Any, **given: Any) -> Any:
    return key


class DjangoStore:
    """A cache of Django that takes final keys, as a driver of steps calls it: see ``near_copies.Store``.

    Args:
        l2: the cache.
        calls: ``l2``; in a task, its methods for coroutines.
        note_undecoded: receives the keys of values that cannot be decoded, and the exceptions.
        call: calls a function, which may wait. In a task, its result is awaitable.
    """

    __slots__ = ("_has_redis_calls", "_l2", "_note_undecoded", "call", "calls")

    takes_whole_seconds = False
    dropped_count = MISSING

    def __init__(
        self,
        l2: Any,
        calls: Any,
        note_undecoded: Callable[[str, Exception], object],
        call: Callable[..., Any],
    ) -> None:
        self._l2 = l2
        self._note_undecoded = note_undecoded
        self._has_redis_calls = hasattr(l2, "ttl")
        self.calls = calls
        self.call = call

    def get(self, key: str, is_sure: bool = True) -> Any:
        # Not by steps in any case: they would add a tenth to the time of a store in memory.
        calls = self.calls
        try:
            found = calls.get(key, MISSING)
        except NOT_DECODED:
            return drive(self._read_again(calls, key))
        return found if calls is self._l2 else unless_undecoded(found, self._read_again(calls, key))

    def get_many(self, keys: list[str]) -> Any:
        calls = self.calls
        read_again = partial(self._read_again, calls)
        try:
            found = calls.get_many(keys)
        except NOT_DECODED:
            return drive(read_each(keys, read_again))
        return found if calls is self._l2 else unless_undecoded(found, read_each(keys, read_again))

    def _read_again(self, calls: Any, key: str) -> StepsTo[Any]:
        note = partial(self._note_undecoded, key)
        return read_or_delete(partial(calls.get, key, MISSING), partial(calls.delete, key), note)

    def set(self, key: str, value: Any, ttl: Any) -> Any:
        return self.calls.set(key, value, ttl)

    def is_stored(self, written: Any) -> bool:
        # django-redis returns None for an error that it ignores, and other caches return None always.
        return bool(written) if self._has_redis_calls else written is not False

    def add(self, key: str, value: Any, ttl: Any) -> Any:
        return self.calls.add(key, value, ttl)

    def replace(self, key: str, value: Any, ttl: Any) -> Any:
        return self._with_more_arguments("set")(key, value, ttl, xx=True)

    @property
    def can_replace(self) -> bool:
        return self._has_redis_calls

    def set_many(self, values: Mapping[str, Any], ttl: Any) -> Any:
        # django-redis returns None.
        return then(lambda failed: failed or [], self.calls.set_many(values, ttl))

    def touch(self, key: str, ttl: Any) -> StepsTo[Any]:
        try:
            return (yield from answer(self.calls.touch(key, ttl)))
        except NOT_DECODED:
            # FileBasedCache decodes the value, which the look-up deletes.
            if (yield from self._read_again(self.calls, key)) is not MISSING:
                raise
            return False

    def add_to(self, key: str, delta: Any, is_made: bool) -> Any:
        if is_made:
            return self._with_more_arguments("incr")(key, delta, ignore_key_check=True)
        return self.calls.incr(key, delta)

    @property
    def timeout_of_counts(self) -> NewTimeout | None:
        sets_again = getattr(self.calls.incr, "__func__", None) in SET_AGAIN
        return NewTimeout(self._l2.default_timeout) if sets_again else None

    def delete(self, key: str) -> Any:
        return self.calls.delete(key)

    def delete_many(self, keys: list[str]) -> Any:
        return self.calls.delete_many(keys)

    def delete_pattern(self, pattern: str, itersize: int | None) -> Any:
        given = {} if itersize is None else {"itersize": itersize}
        return self.method("delete_pattern")(pattern, **given)

    def milliseconds_left(self, key: str) -> Any:
        return self.method("pttl")(key)

    def clear(self) -> Any:
        return self.calls.clear()

    def remove(self, key: str, sealed: Any) -> Any:
        l2 = self._l2
        return self.call(remove_own, l2, key, sealed, lambda: drive(self._read_again(l2, key)), partial(l2.delete, key))

    def get_tokens(self, keys: list[str]) -> Any:
        return self.get_many(keys)

    def add_token(self, key: str, token: str) -> Any:
        return self.calls.add(key, token, None)

    def set_tokens(self, tokens: dict[str, str], ttl: Any = None) -> Any:
        delete = lambda failed: self.calls.delete_many(failed) if failed else None  # noqa: E731
        return then(delete, self.calls.set_many(tokens, ttl))

    def method(self, name: str) -> Any:
        method_of(self._l2, name)
        return getattr(self.calls, name)

    def _with_more_arguments(self, name: str) -> Any:
        method = getattr(self.calls, name)
        if getattr(method, "__func__", None) in (BaseCache.aincr, BaseCache.aset):
            # Django's own methods for coroutines have no additional arguments.
            return partial(self.call, getattr(self._l2, name))
        return method


def method_of(l2: Any, name: str) -> Any:
    """Return a method that Django's own caches do not have."""
    found = getattr(l2, name, None)
    if found is None:
        raise NotImplementedError(f"TieredCache passes {name} on to the cache that L2 names, which does not have it")
    return found


def second_level(alias: str, key_settings: Mapping[str, Any], refused: type) -> BaseCache:
    """Return the cache ``alias`` as Django would make it, but with these key settings, and with sockets that do not
    wait forever. It must not be a ``refused``."""
    params = {**caches.settings[alias], **key_settings}
    backend = params.pop("BACKEND")
    location = params.pop("LOCATION", "")
    cls = import_string(backend)
    if issubclass(cls, refused):
        raise ImproperlyConfigured(f"Wrong cache setting: L2 must not be a TieredCache itself, as {alias!r} is.")
    known = well_known(cls)
    params["OPTIONS"] = {**socket_options(cls), **params.get("OPTIONS", {})}
    if known == PYMEMCACHE and isinstance(location, str) and not {",", ";"} & set(location):
        # After a failure, pymemcache reports misses for a while, without an error. With a single server there is no
        # other one to use, so an error is better.
        params["OPTIONS"] = {"retry_attempts": 0, "dead_timeout": 0, **params["OPTIONS"]}
    if known == DJANGO_REDIS:
        # Patterns return final keys.
        params["REVERSE_KEY_FUNCTION"] = _final
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
