"""A near cache in front of any other cache of ``CACHES``: ``"wheelcache.django_backend.TieredCache"``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from inspect import isawaitable
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache, default_key_func
from django.core.exceptions import ImproperlyConfigured
from django.utils.module_loading import import_string

from wheelcache.core.access import is_simple
from wheelcache.core.contract import MISSING
from wheelcache.django_backend import page_leases
from wheelcache.django_backend.alias_names import in_words
from wheelcache.django_backend.asgi_scope import act_for_request, shares_its_thread
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.stores import Store, shared_stamps, store_for
from wheelcache.leases.fill_scope import current_scope
from wheelcache.near_cache.socket_options import (
    DJANGO_REDIS,
    PYMEMCACHE,
    SOCKET_OPTIONS,
    socket_options,
    well_known,
)
from wheelcache.near_cache.write_news import WriteNews
from wheelcache.option_table import DJANGO_TIERED as OPTIONS
from wheelcache.option_table import Options

KEY_SETTINGS: Final = ("KEY_PREFIX", "VERSION", "KEY_FUNCTION")

SERVE_ALL_THREADS: Final = {
    DJANGO_REDIS,
    "django.core.cache.backends.redis.RedisCache",
    "django.core.cache.backends.db.DatabaseCache",
    "django.core.cache.backends.dummy.DummyCache",
    "django.core.cache.backends.filebased.FileBasedCache",
    "django.core.cache.backends.locmem.LocMemCache",
    "wheelcache.django_backend.backend.WheelCache",
}
"""Backends of which one object may be used by many threads. Of others this is not known: Django makes one a thread.

Those over memcached are none of them: two threads on one connection of pymemcache read each other's answers, and with
its pool the ``close`` at the end of one request still closes the connections of all.
"""


class TieredStore(Store):
    """The copies of one process, and what tells them of writes.

    Attributes:
        level: how they are read and written.
        is_told: whether anything tells this process what others write.
    """

    __slots__ = ("is_told", "level")

    options: ClassVar[Options] = OPTIONS
    cull_frequency: None

    def __init__(self, location: str, checked: Mapping[str, Any], l2: BaseCache, name: str) -> None:
        # Of all versions. What another key function makes of a prefix is not known.
        prefix = f"{l2.key_prefix}:" if l2.key_func is default_key_func else ""
        news = WriteNews(l2, prefix, shared_stamps(location, checked))
        super().__init__(location or name, checked, news.stamps)
        self.level = news.near_cache(self.cache, checked)
        self.is_told = news.is_told


class TieredCache(WheelCache):
    """Copies in the memory of the process of what another cache has, which is named by the option ``L2``.

    The keys are those that the other cache makes: code that uses it directly finds them, and TIMEOUT, KEY_PREFIX,
    VERSION and KEY_FUNCTION are its own unless they are given here. Values are isolated as in ``WheelCache``.

    ``get`` looks at the copies, then asks the other cache, once for all callers that miss a key together. Every write
    goes to the other cache, and drops the copy. See ``near_cache``.
    """

    store: TieredStore

    @property
    def serves_all_threads(self) -> bool:  # type: ignore[override]
        """Whether one object may be used by all threads and tasks at once, which the other cache decides."""
        return any(f"{cls.__module__}.{cls.__qualname__}" in SERVE_ALL_THREADS for cls in type(self._l2).__mro__)

    # The key prefix and function that writes are told for, once they are known.
    _told: tuple[Any, Any] | None = None
    _keeps = True

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(location, params)
        l2 = self._l2
        if not any(name in params for name in ("TIMEOUT", "timeout")):
            self.default_timeout = l2.default_timeout
        self.key_prefix, self.version, self.key_func = l2.key_prefix, l2.version, l2.key_func
        self._level = self.store.level
        self._told = (l2.key_prefix, l2.key_func)

    def _find_store(self, location: str, params: dict[str, Any]) -> TieredStore:
        given = params.get("OPTIONS", {})
        alias = given.get("L2") if isinstance(given, Mapping) else None
        if not isinstance(alias, str) or alias not in caches.settings:
            takes = ", ".join(map(repr, caches.settings))
            raise ImproperlyConfigured(
                f"Wrong setting of {in_words(location, params)}: L2 must be one of {takes}, not {alias!r}."
            )
        key_settings: dict[str, Any] = {name: params[name] for name in KEY_SETTINGS if name in params}
        self._l2 = l2 = _second_level(alias, key_settings, given.get("L2_TIMEOUT", OPTIONS["L2_TIMEOUT"].default))
        # The alias alone would not do: tests override what it means.
        # Nor does the version tell: aliases that differ in it share their copies, and see at once what they write.
        beside = ("tiered", repr(caches.settings[alias]), l2.key_prefix, l2.key_func)
        return store_for(
            *(location, params, OPTIONS),
            lambda place, checked: TieredStore(place, checked, l2, f"copies of {alias}"),
            beside,
        )

    def _find_prefix(self) -> None:
        super()._find_prefix()
        if self._told is not None:
            # Changed on the fly.
            self._l2.key_prefix, self._l2.version, self._l2.key_func = self.key_prefix, self.version, self.key_func
            self._keeps = (self.key_prefix, self.key_func) == self._told

    def _key(self, key: Any, version: int | None) -> Any:
        """What a copy is kept under; a tuple, under which none is, if the other cache shall warn of the key, or nothing
        would tell of writes."""
        cache_key = self.make_key(key, version=version)
        return cache_key if self._keeps and is_simple(cache_key) else (cache_key,)

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        ttl = self._ttl(timeout)
        return self._level.write(
            [self._key(key, version)],
            lambda: self._l2.add(key, value, ttl, version=version),
            dropped=False,
            value_of=lambda added: self._for_waiters(value, ttl) if added else MISSING,
        )

    async def aadd(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        ttl = self._ttl(timeout)
        return await self._level.awrite(
            [self._key(key, version)],
            lambda: self._l2.aadd(key, value, ttl, version=version),
            dropped=False,
            value_of=lambda added: self._for_waiters(value, ttl) if added else MISSING,
        )

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        cache_key = self._key(key, version)
        if type(cache_key) is tuple:
            found = self._level.read(lambda: self._l2.get(key, MISSING, version=version))
            return default if found is MISSING else found

        def read() -> Any:
            return self._stored(self._l2.get(key, MISSING, version=version))

        stored = self._level.get(cache_key, read)
        if stored is MISSING:
            wait = self._fill_wait(key)
            if wait:
                act_for_request()
                stored = self._level.lease(cache_key, read, wait=wait, may_wait=not shares_its_thread())
        return default if stored is MISSING else self.store.codec.decode(stored)

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        cache_key = self._key(key, version)
        if type(cache_key) is tuple:
            found = await self._level.aread(lambda: self._l2.aget(key, MISSING, version=version))
            return default if found is MISSING else found

        async def read() -> Any:
            return self._stored(await self._l2.aget(key, MISSING, version=version))

        stored = await self._level.aget(cache_key, read)
        if stored is MISSING:
            wait = self._fill_wait(key)
            if wait:
                act_for_request()
                stored = await self._level.alease(cache_key, read, wait=wait)
        return default if stored is MISSING else self.store.codec.decode(stored)

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        if self._is_held_back(key, cache_key):
            current_scope().held_back[self._cache, cache_key] = partial(
                self._write, key, cache_key, value, ttl, version
            )
            return
        self._write(key, cache_key, value, ttl, version)
        if self._fill_waits and type(key) is str and key.startswith(page_leases.PREFIX):
            self._let_go_of_headers(key, version)

    async def aset(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        ttl = self._ttl(timeout)
        await self._level.awrite(
            [self._key(key, version)],
            lambda: self._l2.aset(key, value, ttl, version=version),
            dropped=None,
            value_of=lambda _: self._for_waiters(value, ttl),
        )

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        return self._level.write([cache_key], lambda: self._l2.touch(key, ttl, version=version), dropped=False)

    async def atouch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        return await self._level.awrite([cache_key], lambda: self._l2.atouch(key, ttl, version=version), dropped=False)

    def delete(self, key: Any, version: int | None = None) -> bool:
        cache_key = self._key(key, version)
        return self._level.write([cache_key], lambda: self._l2.delete(key, version=version), dropped=False)

    async def adelete(self, key: Any, version: int | None = None) -> bool:
        cache_key = self._key(key, version)
        return await self._level.awrite([cache_key], lambda: self._l2.adelete(key, version=version), dropped=False)

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        originals = {self._key(key, version): key for key in keys}

        def read(missing: list[Any]) -> dict[Any, Any]:
            return self._all_stored(
                self._l2.get_many([originals[cache_key] for cache_key in missing], version=version), version
            )

        if tuple in map(type, originals):
            # Nothing tells of writes to what is kept under a tuple.
            found = self._level.read(lambda: read(list(originals)))
            found = {} if found is MISSING else found
        else:
            found = self._level.get_many(originals, read)
        return {
            key: self.store.codec.decode(found[cache_key]) for cache_key, key in originals.items() if cache_key in found
        }

    async def aget_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        originals = {self._key(key, version): key for key in keys}

        async def read(missing: list[Any]) -> dict[Any, Any]:
            found = await self._l2.aget_many([originals[cache_key] for cache_key in missing], version=version)
            return self._all_stored(found, version)

        if tuple in map(type, originals):
            found = await self._level.aread(lambda: read(list(originals)))
            found = {} if found is MISSING else found
        else:
            found = await self._level.aget_many(originals, read)
        return {
            key: self.store.codec.decode(found[cache_key]) for cache_key, key in originals.items() if cache_key in found
        }

    def get_or_set(  # type: ignore[override]  # a value that two levels have has no grace in one of them
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """As Django's, and however many callers of this process miss the key together, one calls ``default``."""
        found = self.get(key, MISSING, version)
        if found is not MISSING:
            return found
        cache_key = self._key(key, version)

        def read() -> Any:
            return self._stored(self._l2.get(key, MISSING, version=version))

        def load() -> Any:
            # A caller that came while another computed finds it there.
            stored = self._level.read(read, cache_key)
            if stored is MISSING:
                value = default() if callable(default) else default
                if not self.add(key, value, timeout, version):
                    # Another process was first, or it could not be kept.
                    stored = self._level.read(read, cache_key)
                if stored is MISSING:
                    stored = self.store.codec.encode(value)
            return stored

        return self.store.codec.decode(self._level.load(cache_key, load))

    async def aget_or_set(  # type: ignore[override]
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> Any:
        """As ``get_or_set``; if ``default()`` returns something to await, it is awaited."""
        found = await self.aget(key, MISSING, version)
        if found is not MISSING:
            return found
        cache_key = self._key(key, version)

        async def read() -> Any:
            return self._stored(await self._l2.aget(key, MISSING, version=version))

        async def load() -> Any:
            stored = await self._level.aread(read, cache_key)
            if stored is MISSING:
                value = default() if callable(default) else default
                if isawaitable(value):
                    value = await value
                if not await self.aadd(key, value, timeout, version):
                    stored = await self._level.aread(read, cache_key)
                if stored is MISSING:
                    stored = self.store.codec.encode(value)
            return stored

        return self.store.codec.decode(await self._level.aload(cache_key, load))

    def has_key(self, key: Any, version: int | None = None) -> bool:
        cache_key = self._key(key, version)
        return self._level.has(cache_key, lambda: self._l2.has_key(key, version=version))

    async def ahas_key(self, key: Any, version: int | None = None) -> bool:
        cache_key = self._key(key, version)
        return await self._level.ahas(cache_key, lambda: self._l2.ahas_key(key, version=version))

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """As Django's. There is no answer to make up: without the other cache its error reaches the caller."""
        cache_key = self._key(key, version)
        return self._level.write([cache_key], lambda: self._l2.incr(key, delta, version=version))

    async def aincr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        cache_key = self._key(key, version)
        return await self._level.awrite([cache_key], lambda: self._l2.aincr(key, delta, version=version))

    async def adecr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return await self.aincr(key, -delta, version)

    async def aincr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return await BaseCache.aincr_version(self, key, delta, version)

    async def adecr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return await self.aincr_version(key, -delta, version)

    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        cache_keys, ttl = [self._key(key, version) for key in data], self._ttl(timeout)
        return self._level.write(
            cache_keys, lambda: self._l2.set_many(dict(data), ttl, version=version), dropped=list(data)
        )

    async def aset_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        cache_keys, ttl = [self._key(key, version) for key in data], self._ttl(timeout)
        return await self._level.awrite(
            cache_keys, lambda: self._l2.aset_many(dict(data), ttl, version=version), dropped=list(data)
        )

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        keys = list(keys)
        cache_keys = [self._key(key, version) for key in keys]
        self._level.write(cache_keys, lambda: self._l2.delete_many(keys, version=version), dropped=None)

    async def adelete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        keys = list(keys)
        cache_keys = [self._key(key, version) for key in keys]
        await self._level.awrite(cache_keys, lambda: self._l2.adelete_many(keys, version=version), dropped=None)

    def clear(self) -> None:
        self._level.clear(self._l2.clear)

    async def aclear(self) -> None:
        await self._level.aclear(self._l2.aclear)

    def close(self, **kwargs: Any) -> None:
        super().close(**kwargs)
        self._l2.close(**kwargs)

    async def aclose(self, **kwargs: Any) -> None:
        held_back = current_scope().held_back
        for cache, cache_key in list(held_back):
            if cache is self._cache:
                # ``close`` would write it to the other cache in this thread, and hold up the event loop.
                store = held_back.pop((cache, cache_key))
                if isinstance(store, partial):
                    key, _, value, ttl, version = store.args
                    await self.aset(key, value, ttl, version)
        super().close(**kwargs)
        await self._l2.aclose(**kwargs)

    def _ttl(self, timeout: Any) -> Any:
        return self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout

    def _stored(self, value: Any) -> Any:
        return value if value is MISSING else self.store.codec.encode(value)

    def _all_stored(self, found: Mapping[Any, Any], version: int | None) -> dict[Any, Any]:
        return {self._key(key, version): self.store.codec.encode(value) for key, value in found.items()}

    def _for_waiters(self, value: Any, ttl: float | None) -> Any:
        """What the callers that wait for a lease get; MISSING if the value is over at once."""
        if not self._fill_waits or (ttl is not None and ttl <= 0):
            return MISSING
        return self.store.codec.encode(value)

    def _is_held_back(self, key: Any, cache_key: Any) -> bool:
        return (
            bool(self._fill_waits)
            and type(key) is str
            and page_leases.is_headers(key)
            and self._cache.is_leased(cache_key)
        )

    def _write(self, key: Any, cache_key: Any, value: Any, ttl: Any, version: int | None) -> None:
        self._level.write(
            [cache_key],
            lambda: self._l2.set(key, value, ttl, version=version),
            dropped=None,
            value_of=lambda _: self._for_waiters(value, ttl),
        )


def _second_level(alias: str, key_settings: Mapping[str, Any], timeout: float) -> BaseCache:
    """The cache ``alias``, as Django would make it, but with these settings of keys, and sockets that do not wait for
    ever."""
    params = {**caches.settings[alias], **key_settings}
    backend = params.pop("BACKEND")
    location = params.pop("LOCATION", "")
    cls = import_string(backend)
    if issubclass(cls, TieredCache):
        raise ImproperlyConfigured(f"Wrong cache setting: L2 must not be a TieredCache itself, as {alias!r} is.")
    known = well_known(cls)
    params["OPTIONS"] = {**socket_options(cls, timeout), **params.get("OPTIONS", {})}
    if known == PYMEMCACHE and isinstance(location, str) and not {",", ";"} & set(location):
        # After a failure pymemcache says for a while, and of no error, that there is nothing. With one server there is
        # no other to go to, and it is better known that it is down.
        params["OPTIONS"] = {"retry_attempts": 0, "dead_timeout": 0, **params["OPTIONS"]}
    if known == DJANGO_REDIS:
        location = _with_timeouts(location, params["OPTIONS"])
    l2: BaseCache = cls(location, params)
    return l2


def _with_timeouts(location: Any, given: Mapping[str, Any]) -> list[str]:
    """The URLs of django-redis with the timeouts in them.

    It has one pool for a URL, with the OPTIONS that came first. These may be of an alias whose sockets wait for ever.
    """
    timeouts = urlencode({name.lower(): given[name] for name in SOCKET_OPTIONS[DJANGO_REDIS].timeouts if given[name]})
    urls = location.split(",") if isinstance(location, str) else location
    # Behind: what the URL itself says comes first, and wins.
    return [f"{url}{'&' if '?' in url else '?'}{timeouts}" for url in urls]
