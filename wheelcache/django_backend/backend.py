"""The Django cache backend. Its methods come in the order of Django's ``BaseCache``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Final, Protocol, TypeVar, Unpack, overload

from django.conf import settings
from django.core.cache.backends.base import (
    DEFAULT_TIMEOUT,
    MEMCACHE_MAX_KEY_LENGTH,
    BaseCache,
    default_key_func,
)
from django.db import close_old_connections

from wheelcache import options
from wheelcache.backend_access import BackendAccess
from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.access import NO_TAGS, is_printable
from wheelcache.core.contract import MISSING
from wheelcache.django_backend.database_bus import inserted
from wheelcache.django_backend.direct_access import follow_setting
from wheelcache.django_backend.in_transactions import following, follows
from wheelcache.django_backend.redis_calls import RedisCalls, check_xx
from wheelcache.django_backend.request_context import (
    act_for_request,
    headers_of,
    is_held_back,
    is_of_page,
    page_tags,
    shares_its_thread,
    store_headers,
)
from wheelcache.django_backend.stores import Store, check_timeout, store_for
from wheelcache.errors import MissingKey
from wheelcache.loading.policy import LoadOptions, load_policy
from wheelcache.loading.request import LoadRequest
from wheelcache.loading.steps import StepsTo, drive, drive_async
from wheelcache.runtime.request_scope import end_request, forget_misses
from wheelcache.runtime.worker_pool import cleanups
from wheelcache.transactions.overlay import Fill

R = TypeVar("R")


def _close_old_connections() -> None:
    """Close old database connections, as Django does after a request: a thread that loads values has its own."""
    if settings.configured:
        close_old_connections()


cleanups.append(_close_old_connections)


def _for_tasks(name: str) -> Callable[..., Any]:
    """Return the method ``name`` for coroutines."""

    @wraps(getattr(BaseCache, name))
    async def call(self: WheelCache, *args: Any, **kwargs: Any) -> Any:
        found = getattr(self, name)(*args, **kwargs)
        await inserted()
        return found

    call.__name__ = f"a{name}"
    return call


def _named(name: str, described: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a decorator for the method ``name`` of ``WheelCache``, which has the parameters of ``described``."""

    def decorate(method: Any) -> Any:
        wraps(described)(method)
        method.__name__, method.__qualname__ = name, f"WheelCache.{name}"
        return method

    return decorate


class GetOrSetOptions(LoadOptions, total=False):
    """The options of ``get_or_set`` that Django does not have."""

    load_timeout: float | None


class GetOrSet(Protocol):
    """The type of ``WheelCache.get_or_set``: the result is that of ``default()``, or ``default`` itself."""

    @overload
    def __call__(
        self,
        key: Any,
        default: Callable[..., R],
        timeout: Any = ...,
        version: int | None = None,
        **options: Unpack[GetOrSetOptions],
    ) -> R: ...
    @overload
    def __call__(
        self, key: Any, default: R, timeout: Any = ..., version: int | None = None, **options: Unpack[GetOrSetOptions]
    ) -> R: ...


class AsyncGetOrSet(Protocol):
    """The type of ``WheelCache.aget_or_set``, which also awaits the result of ``default()``."""

    @overload
    async def __call__(
        self,
        key: Any,
        default: Callable[..., Awaitable[R]],
        timeout: Any = ...,
        version: int | None = None,
        **options: Unpack[GetOrSetOptions],
    ) -> R: ...
    @overload
    async def __call__(
        self,
        key: Any,
        default: Callable[..., R],
        timeout: Any = ...,
        version: int | None = None,
        **options: Unpack[GetOrSetOptions],
    ) -> R: ...
    @overload
    async def __call__(
        self, key: Any, default: R, timeout: Any = ..., version: int | None = None, **options: Unpack[GetOrSetOptions]
    ) -> R: ...


KEY_SETTINGS: Final = ("key_prefix", "version", "key_func")
"""Attributes that are part of every key, and that may change at any time."""


class WheelCache(BackendAccess, BaseCache, RedisCalls):
    """Django's cache API on ``wheelcache.Cache``: in the memory of the process, shared by its threads.

    The additional methods of django-redis are in ``RedisCalls``.

    Values are isolated as in Django's LocMemCache: immutable values are stored as they are, all others are pickled.

    A ``get`` that hits does not call ``make_key`` and ``validate_key``, since the key was validated when it was set. A
    key that fails Django's validation is stored under a name that the fast path cannot find, so that every call warns.
    If there is a ``KEY_FUNCTION``, or a subclass overrides ``make_key`` or ``validate_key``, every call calls it.

    ``set``, ``set_many`` and ``get_or_set`` shorten every timeout by a random fraction of at most ``JITTER``, and by at
    most 60 seconds. ``add`` and ``touch`` use the exact timeout, and ``incr`` does not change it.

    One object may be used by all threads and tasks at the same time.
    """

    serves_all_threads = True

    def __new__(cls, location: str, params: dict[str, Any]) -> WheelCache:
        found: WheelCache = super().__new__(following(cls) if follows(params) else cls)
        return found

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        # First, so that a wrong setting is reported before BaseCache uses it.
        check_timeout(location, params)
        self.store = self._find_store(location, params)
        self.location = location
        self._use_cache(self.store.cache, self.store.fill_waits, self.store.fill_graces)
        self._use_codec(self.store.codec, keeps_atoms=self.store.keeps_atoms)
        self._look_up_in(self._cache)
        # Django warns of longer keys. They are stored under another name, so that each call reaches the warning.
        self._max_key_length = MEMCACHE_MAX_KEY_LENGTH
        self._culls = self.store.cull_frequency is not None
        self._sets_at_once = not (self._culls or self._fill_waits)
        super().__init__(params)
        # Not at the import, which needs no settings, nor in the app, which a site need not install.
        follow_setting()

    def _find_store(self, location: str, params: dict[str, Any]) -> Store:
        return store_for(location, params)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in KEY_SETTINGS:
            self._find_prefix()

    def _find_prefix(self) -> None:
        """Find the prefix that the default key function adds to every key, so that a hit need not call it."""
        cls = type(self)
        self._warns_as_django = (
            cls.validate_key is BaseCache.validate_key and cls.make_and_validate_key is BaseCache.make_and_validate_key
        )
        has_default_keys = (
            self._warns_as_django
            and cls.make_key is BaseCache.make_key
            and getattr(self, "key_func", None) is default_key_func
            # The text of any other object may change from call to call.
            and type(self.key_prefix) is str
            and type(self.version) in (int, str)
        )
        self._prefix = default_key_func("", self.key_prefix, self.version) if has_default_keys else None
        if self._prefix is not None:
            self.store.group_keys(self._prefix)

    def _key(self, key: Any, version: int | None) -> Any:
        """Return the cache's key: the made key, or a tuple that contains it if Django may warn of it."""
        cache_key: Any
        if version is None and self._prefix is not None:
            cache_key = self._usual_key(key)
            if cache_key is not None:
                return cache_key
            cache_key = f"{self._prefix}{key!s}"
        elif self._warns_as_django:
            cache_key = self.make_key(key, version=version)
        else:
            cache_key = self.make_and_validate_key(key, version=version)
        # This takes 110 ns; Django's own validation takes 1,650.
        if is_printable(cache_key, MEMCACHE_MAX_KEY_LENGTH):
            return cache_key
        if self._warns_as_django:
            self.validate_key(cache_key)
        return (cache_key,)

    @property
    def _tag_prefix(self) -> str:
        # Without the version: a tag names an object of the site, which all versions of a value depend on.
        return f"{self.key_prefix}:"

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> bool:
        ttl = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if version is None and not self._culls and tags is NO_TAGS:
            if self._scopes_with_misses:
                self._count_computations((key,))
            is_stored = self._add_at_once(key, value, ttl)
            if is_stored is not None:
                return is_stored
        names = self._tag_names(tags)
        return self._add_new(self._key(key, version), self._encode(value), self._ttl(timeout), names)

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        """Complete a ``get`` of a key that the fast path did not find."""
        if self._fill_waits:
            return drive(self._look_up(key, default, version))
        cache_key = self._key(key, version)
        return self._found_or(default, cache_key, self._cache.get(cache_key, MISSING))

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        found = self._get_at_once(key) if version is None else MISSING
        return found if found is not MISSING else await drive_async(self._look_up(key, default, version))

    def _look_up(self, key: Any, default: Any, version: int | None) -> StepsTo[Any]:
        cache_key = self._key(key, version)
        wait = self._fill_wait(key)
        if wait:
            act_for_request()
            grace, may_wait = self._fill_grace(key), not shares_its_thread()
            headers = headers_of(key) if grace else None
            leader = None if headers is None else self._key(headers, version)
            stored = yield from self._cache.engine.look_up_leased(cache_key, wait, may_wait, grace, leader)
        else:
            stored = self._cache.get(cache_key, MISSING)
        return self._found_or(default, cache_key, stored)

    def set(  # type: ignore[override]
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        nx: bool = False,
        xx: bool = False,
        tags: Iterable[str] = NO_TAGS,
    ) -> bool:
        """Store a value. Return whether it was stored, as django-redis does; if ``timeout`` is 0 or less, whether the
        key existed.

        Args:
            nx: store it only if the key does not exist, as ``add`` does.
            xx: store it only if the key exists. The entry keeps its tags.
            tags: at most 64 non-empty strings. ``delete_tags`` with any of them removes the entry.

        Raises:
            ValueError: if ``xx`` is given with ``nx`` or ``tags``.
        """
        if xx:
            check_xx(nx=nx, tags=tags)
            return self._set_existing(key, value, self._ttl(timeout), version)
        if nx:
            return self.add(key, value, timeout, version, tags=tags)
        since = 0
        if page_tags.are_used and tags is NO_TAGS:
            tags, since = page_tags.collected(key, value)
            if len(tags) > options.MOST_TAGS:
                self.delete(key, version)
                return False
            tags = tags or NO_TAGS
        ttl, missed_at = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout, 0
        if (
            version is None
            and tags is NO_TAGS
            and (
                self._sets_at_once
                or not (self._culls or is_of_page(key) or (self._fill_graces and self._fill_grace(key)))
            )
        ):
            if self._scopes_with_misses and self._prefix is not None:
                # Some keys are missed and never set. They must not make all sets take the slow path.
                missed_at = self._misses.count_computation(f"{self._prefix}{key!s}")
            is_stored = self._set_at_once(key, value, ttl)
            if is_stored is not None:
                return is_stored
        if type(ttl) is not int:
            ttl = self._ttl(timeout)
        names = () if tags is NO_TAGS else self._tag_names(tags)
        return self._set_slowly(key, value, ttl, version, names, since, missed_at)

    def _set_slowly(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        version: int | None,
        tags: tuple[str, ...],
        since: int,
        missed_at: int,
    ) -> bool:
        """Set a value without the fast path. If this were a part of ``set``, the closures would add 45 ns to 310 ns."""
        cache_key = self._key(key, version)
        if self._scopes_with_misses and not missed_at:
            missed_at = self._misses.count_computation(cache_key)
        since = since or missed_at
        if options.expires_now(ttl):
            return self._cache.delete(cache_key)
        if not self._fill_waits:
            return self._store(cache_key, self._encode(value), ttl, tags, since)
        store = partial(self._store, cache_key, self._encode(value), ttl, tags, since, self._fill_grace(key))
        if is_held_back(self._cache, key, cache_key, store):
            return True
        is_stored = store()
        store_headers(self._cache, key, lambda headers: self._key(headers, version))
        return is_stored

    def _set_existing(self, key: Any, value: Any, ttl: float | None, version: int | None) -> bool:
        cache_key = self._key(key, version)
        self._counted_since(cache_key)
        if options.expires_now(ttl):
            return self._cache.delete(cache_key)
        return self._cache.engine.replace(cache_key, self._encode(value), ttl, self._fill_grace(key))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        ttl = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if version is None:
            is_there = self._touch_at_once(key, ttl)
            if is_there is not None:
                return is_there
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        if options.expires_now(ttl):
            return self._cache.delete(cache_key)
        return self._cache.touch(cache_key, ttl)

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self._cache.delete(self._key(key, version))

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        keys = list(keys)
        values = self._get_many_at_once(keys) if version is None else None
        if values is not None:
            found = {key: value for key, value in zip(keys, values, strict=True) if value is not MISSING}
            if len(found) < len(keys):
                self._note_misses(f"{self._prefix}{key}" for key in keys if key not in found)
            return found
        cache_keys = [(key, self._key(key, version)) for key in keys]
        found = self._cache.get_many([cache_key for _, cache_key in cache_keys])
        self._note_misses(cache_key for _, cache_key in cache_keys if cache_key not in found)
        return {key: self._decode(found[cache_key]) for key, cache_key in cache_keys if cache_key in found}

    def _sought(
        self,
        key: Any,
        default: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        load_timeout: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = NO_TAGS,
    ) -> tuple[Any, LoadRequest | None]:
        """Do the same as Django's ``get_or_set``, except that only one of the callers that miss the key together calls
        ``default``.

        ``aget_or_set`` awaits the result of ``default()`` if it is awaitable.

        Args:
            default: a value, or a function that returns it. See ``wheelcache.Cache.get_or_load`` for a parameter named
                ``previous``, and for KEEP.
            timeout: as in Django, or a function that receives the value and returns seconds. If it returns None, 0 or
                less, the value is not kept.
            grace, refresh_ahead, fail_safe, negative_ttl: as for ``wheelcache.Cache.get_or_load``.
            load_timeout: as ``timeout`` there.
            tags: as for ``set``.
        """
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, load_timeout=load_timeout)
        cache_key = self._key(key, version)
        if timeout is DEFAULT_TIMEOUT:
            ttl = self.default_timeout
        else:
            ttl = timeout if callable(timeout) else self._ttl(timeout)
        stored = self._cache.find(cache_key, MISSING)
        if stored is not MISSING and not self._needs_refresh(cache_key, stored, ttl, policy):
            return stored, None
        is_computed = callable(default)
        loader = default if is_computed else lambda: default
        return stored, self._request(key, cache_key, loader, ttl, policy, tags, is_computed=is_computed)

    @_named("get_or_set", _sought)
    def _get_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        stored, request = self._sought(key, default, timeout, version, **given)
        return self._decode(stored if request is None else self.loading.get(request, stored))

    @_named("aget_or_set", _sought)
    async def _aget_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        stored, request = self._sought(key, default, timeout, version, **given)
        return self._decode(stored if request is None else await self.loading.aget(request, stored))

    get_or_set: GetOrSet = _get_or_set
    aget_or_set: AsyncGetOrSet = _aget_or_set

    def has_key(self, key: Any, version: int | None = None) -> bool:
        cache_key = self._key(key, version)
        return cache_key in self._cache or self.store.locks.holder(str(cache_key)) is not None

    def incr(self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False) -> int:
        """Do the same as Django's ``incr``. With ``ignore_key_check``, a missing key is set to ``delta``."""
        if version is None:
            total: int | None = self._incr_at_once(key, delta)
            if total is not None:
                return total
        cache_key = self._key(key, version)
        encode, decode = self._encode, self._decode
        while True:
            try:
                stored = self._cache.update(cache_key, lambda stored: encode(decode(stored) + delta))
            except MissingKey:
                if not ignore_key_check:
                    raise ValueError(f"Key '{key}' not found") from None
                if self._add_new(cache_key, encode(delta), None):
                    return delta
            else:
                return decode(stored)  # type: ignore[no-any-return]

    def set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> list[Any]:
        ttl = self._ttl(timeout)
        if version is None and tags is NO_TAGS and not (self._culls or self._fill_graces):
            self._count_computations(data)
            if self._set_many_at_once(data, ttl):
                return []
        names = self._tag_names(tags)
        originals = {self._key(key, version): key for key in data}
        stored = {cache_key: self._encode(data[key]) for cache_key, key in originals.items()}
        return [originals[cache_key] for cache_key in self._store_many(stored, ttl, originals, tags=names)]

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> int | None:  # type: ignore[override]
        """Delete keys. Return the number of existing ones, as django-redis does; None without keys, as Django does."""
        cache_keys = [self._key(key, version) for key in keys]
        return self._cache.delete_many(cache_keys) if cache_keys else None

    def clear(self) -> None:
        self._cache.clear()

    async def adelete_tags(self, *tags: str) -> None:
        self.delete_tags(*tags)
        await inserted()

    # The other methods wait for nothing but their notices, and are the same for coroutines.

    aadd, aset, atouch, adelete = map(_for_tasks, ("add", "set", "touch", "delete"))
    aget_many, aset_many, adelete_many = map(_for_tasks, ("get_many", "set_many", "delete_many"))
    ahas_key, aincr, adecr, aclear = map(_for_tasks, ("has_key", "incr", "decr", "clear"))
    aincr_version, adecr_version = map(_for_tasks, ("incr_version", "decr_version"))

    def close(self, **kwargs: Any) -> None:
        """End the request: other requests may now compute the values that it missed and did not set."""
        if self._fill_waits:
            end_request()
        else:
            forget_misses()

    async def aclose(self, **kwargs: Any) -> None:
        # Django's own method runs close() in a thread, which would not find the misses and leases of this task.
        self.close(**kwargs)

    def _ttl(self, timeout: Any) -> Any:
        """Return the seconds that ``timeout`` stands for: None for no expiry, 0 or less for immediate expiry.

        Raises:
            TypeError: if ``timeout`` is not a number of seconds or None.
        """
        if timeout is DEFAULT_TIMEOUT:
            return self.default_timeout
        return timeout if type(timeout) is int else options.django_timeout("timeout", timeout)

    def store_committed(
        self,
        cache_key: Any,
        key: Any,
        version: int | None,
        tags: tuple[str, ...],
        fill: Fill,
        ttl: float | None,
        others: WritesSince,
    ) -> None:
        """Share a value of a transaction that was committed, unless it is outdated: see ``Engine.store_committed``."""
        self._make_room((cache_key,))
        self._cache.engine.store_committed(cache_key, fill.value, ttl, self._fill_grace(key), fill.tags, others)

    def _make_room(self, keys: Iterable[Any]) -> None:
        """Drop 1/n of a full cache before ``keys`` are added, where n is CULL_FREQUENCY. Drop all of it if n is 0."""
        frequency, most = self.store.cull_frequency, self.store.max_entries
        size = len(self._cache) if self._culls else 0
        if frequency is not None and most is not None and size >= most and any(key not in self._cache for key in keys):
            self._cache.engine.evict_to(size - size // frequency if frequency else 0)
