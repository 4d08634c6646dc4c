"""The Django cache backend. Its methods come in the order of Django's ``BaseCache``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial, wraps
from typing import Any, Final, Protocol, TypeVar, Unpack, overload

from django.conf import settings
from django.core.cache import caches
from django.core.cache.backends.base import (
    DEFAULT_TIMEOUT,
    MEMCACHE_MAX_KEY_LENGTH,
    BaseCache,
    default_key_func,
)
from django.db import close_old_connections

from wheelcache.core import VersionedAccess
from wheelcache.core.access import DEFAULT_TTL, NO_TAGS, Serialized, is_printable
from wheelcache.core.contract import MISSING
from wheelcache.django_backend.direct_access import follow_setting
from wheelcache.django_backend.redis_calls import RedisCalls
from wheelcache.django_backend.request_context import act_for_request, shares_its_thread
from wheelcache.django_backend.stores import Store, naming
from wheelcache.engine import options
from wheelcache.engine.backend_access import NOTHING, BackendAccess, checked_tags
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.in_memory import InMemory
from wheelcache.engine.loading.request import LoadOptions, LoadRequest, load_policy
from wheelcache.runtime.request_scope import end_request, forget_misses
from wheelcache.runtime.steps import after, drive, drive_async
from wheelcache.runtime.worker_pool import cleanups

R = TypeVar("R")


def _close_old_connections() -> None:
    """Close old database connections, as Django does after a request: a thread that loads values has its own."""
    if settings.configured:
        close_old_connections()


cleanups.append(_close_old_connections)


def _for_threads(name: str, described: Any) -> Callable[..., Any]:
    """Return the method ``name``, which drives the steps of ``_name``."""

    @wraps(described)
    def call(self: WheelCache, *args: Any, **kwargs: Any) -> Any:
        return drive(getattr(self, f"_{name}")(*args, **kwargs))

    return call


def _for_tasks(name: str) -> Callable[..., Any]:
    """Return the method ``name`` for coroutines, which drives the steps of ``_name``."""

    @wraps(getattr(BaseCache, name, BackendAccess.delete_tags))
    async def call(self: WheelCache, *args: Any, **kwargs: Any) -> Any:
        return await drive_async(getattr(self, f"_{name}")(*args, **kwargs))

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


class WheelCache(VersionedAccess, BackendAccess, BaseCache, RedisCalls):  # type: ignore[misc]
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

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        # First, so that a wrong setting is reported before BaseCache uses it.
        with naming(location, params):
            options.default_django_timeout("TIMEOUT", params.get("timeout", params.get("TIMEOUT")))
            self.store = self._find_store(location, params)
        self.location = location
        self._use_cache(self.store.cache, self.store.fill_waits, self.store.graces)
        self._use_codec(self.store.codec, keeps_atoms=self.store.keeps_atoms)
        self._look_up_in(self._cache)
        self._default_mark = DEFAULT_TIMEOUT
        # Django warns of longer keys. They are stored under another name, so that each call reaches the warning.
        self._max_key_length = MEMCACHE_MAX_KEY_LENGTH
        self._use_layers(self._make_layer(), self.store.above)
        super().__init__(params)
        # Not at the import, which needs no settings, nor in the app, which a site need not install.
        follow_setting()

    def _find_store(self, location: str, params: dict[str, Any]) -> Store:
        """Return the store of a cache. An error of a setting need not name the cache."""
        return Store.find(location, params)

    def _make_layer(self) -> Any:
        """Return the layer of the entries: see ``engine.layer``."""
        return InMemory(self._cache, self._codec)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in KEY_SETTINGS:
            self._find_prefix()
        elif name == "default_timeout":
            self._own_timeout = value

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
        self._name_tags()
        if self._prefix is not None:
            self.store.group_keys(self._prefix)

    def _name_tags(self) -> None:
        # Without the version: a tag names an object of the site, which all versions of a value depend on.
        self._shared.tag_prefix = f"{self.key_prefix}:"

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

    # Most methods have a twin with an underscore, which returns the result or steps to it: see ``engine.layer``. The
    # methods of ``VersionedAccess`` call it if the call is not the core's own.

    def _add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> Any:
        return self._layer(key).add(self._key(key, version), value, self._ttl(timeout), checked_tags(tags))

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        """Complete a ``get`` of a key that the fast path did not find."""
        cache_key = self._key(key, version)
        return self._found_or(default, cache_key, drive(self._look_up(key, cache_key, default)))

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        found = self._get_at_once(key) if version is None else MISSING
        if found is not MISSING:
            return found
        cache_key = self._key(key, version)
        return self._found_or(default, cache_key, await drive_async(self._look_up(key, cache_key, default)))

    def _look_up(self, key: Any, cache_key: Any, default: Any) -> Any:
        # A caller that passes MISSING goes on to ``load_missed``, which shares the computation without a lease.
        wait = self._fill_wait(key) if self._fill_waits and default is not MISSING else 0.0
        if not wait:
            return self._layer(key).look_up(cache_key)
        act_for_request()
        return self._layer(key).look_up(cache_key, wait, not shares_its_thread(), self._grace(key))

    def _set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        nx: bool = False,
        xx: bool = False,
        tags: Iterable[str] = NO_TAGS,
    ) -> Any:
        layer, cache_key, ttl = self._layer(key), self._key(key, version), self._ttl(timeout)
        if xx:
            if nx or tags is not NO_TAGS:
                raise ValueError(f"xx must be False with {'nx' if nx else 'tags'}, not True")
            return layer.replace(cache_key, value, ttl, self._grace(key))
        if nx:
            return layer.add(cache_key, value, ttl, checked_tags(tags))
        return layer.set(cache_key, value, ttl, checked_tags(tags), grace=self._grace(key))

    def _touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> Any:
        return self._layer(key).touch(self._key(key, version), self._ttl(timeout))

    def _delete(self, key: Any, version: int | None = None) -> Any:
        return self._layer(key).delete(self._key(key, version))

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        keys = list(keys)
        values = self._get_many_at_once(keys) if version is None else None
        if values is None:
            return drive(self._get_many(keys, version))
        found = {key: value for key, value in zip(keys, values, strict=True) if value is not MISSING}
        if len(found) < len(keys):
            for key in keys:
                if key not in found:
                    self._misses.note(f"{self._prefix}{key}")
        return found

    def _get_many(self, keys: Iterable[Any], version: int | None = None) -> Any:
        cache_keys = {key: self._key(key, version) for key in keys}

        def decoded(found: dict[Any, Any]) -> dict[Any, Any]:
            values = {
                key: self._found_or(NOTHING, each, found[each]) for key, each in cache_keys.items() if each in found
            }
            return {key: value for key, value in values.items() if value is not NOTHING}

        wanted = [*cache_keys.values()]
        return after(decoded, self._layer_of_all(cache_keys, wanted).get_many(wanted))

    def _sought(
        self,
        key: Any,
        default: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: float | None = None,
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
        ttl = timeout if callable(timeout) else self._ttl(timeout)
        value = stored = self._layer(key).find(cache_key, MISSING)
        # Not by ``_value``: its call would add a tenth to the time of a hit.
        if type(stored) is Serialized:
            try:
                value = self._loads(stored)
            except NOT_DECODED as error:
                self._chain.remove_undecoded(cache_key, stored, error)
                value = MISSING
        if value is not MISSING and not self._needs_refresh(cache_key, value, ttl, policy):
            return value, None
        if self._graces:
            policy = policy.with_grace(self._grace(key))
        is_computed, names = callable(default), () if tags is NO_TAGS else self._tag_names(tags)
        loader = default if is_computed else lambda: default
        request = self.loading.request(cache_key, loader, ttl, policy, names, self._codec)
        request.is_computed = is_computed
        return value, request

    @_named("get_or_set", _sought)
    def _get_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        value, request = self._sought(key, default, timeout, version, **given)
        return value if request is None else self._layer(key).load(request, value)

    @_named("aget_or_set", _sought)
    async def _aget_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        value, request = self._sought(key, default, timeout, version, **given)
        return value if request is None else await self._layer(key).aload(request, value)

    get_or_set: GetOrSet = _get_or_set
    aget_or_set: AsyncGetOrSet = _aget_or_set

    def _has_key(self, key: Any, version: int | None = None) -> Any:
        cache_key = self._key(key, version)
        found = self._layer(key).has(cache_key)
        return found or (
            not self.has_store and any(locks.holder(str(cache_key)) is not None for locks in self.store.locks.all())
        )

    def _incr(self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False) -> Any:
        total = self._layer(key).add_to(self._key(key, version), delta, 0 if ignore_key_check else MISSING)
        return after(partial(_sum_of, key), total)

    def set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> list[Any]:
        if version is None and tags is NO_TAGS and self._set_many_at_once(data, self._ttl(timeout)):
            return []
        return drive(self._set_many(data, timeout, version, tags=tags))

    def _set_many(
        self,
        data: Mapping[Any, Any],
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> Any:
        checked = checked_tags(tags)
        originals = {self._key(key, version): key for key in data}
        values = {cache_key: data[key] for cache_key, key in originals.items()}
        graces = {cache_key: self._grace(key) for cache_key, key in originals.items()} if self._graces else {}
        layer = self._layer_of_all(originals.values(), originals)
        refused = layer.set_many(values, self._ttl(timeout), checked, graces)
        return after(lambda refused: [originals[cache_key] for cache_key in refused], refused)

    def _delete_many(self, keys: Iterable[Any], version: int | None = None) -> Any:
        """Delete keys. Return the number of existing ones, as django-redis does; None without keys, as Django does."""
        keys = list(keys)
        cache_keys = [self._key(key, version) for key in keys]
        return self._layer_of_all(keys, cache_keys).delete_many(cache_keys) if cache_keys else None

    def _clear(self) -> Any:
        return after(_nothing, self._chain.clear())

    has_key, clear = _for_threads("has_key", BaseCache.has_key), _for_threads("clear", BaseCache.clear)
    delete_many = _for_threads("delete_many", _delete_many)
    aadd, aset, atouch, adelete = map(_for_tasks, ("add", "set", "touch", "delete"))
    aget_many, aset_many, adelete_many = map(_for_tasks, ("get_many", "set_many", "delete_many"))
    ahas_key, aincr, aclear, adelete_tags = map(_for_tasks, ("has_key", "incr", "clear", "delete_tags"))

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
        if timeout is DEFAULT_TIMEOUT or timeout is DEFAULT_TTL:
            return self.default_timeout
        return timeout if type(timeout) is int else options.django_timeout("timeout", timeout)


def wheel_caches() -> Iterator[tuple[str, WheelCache]]:
    """Iterate over the caches with their aliases, in the order of the settings, including unused ones."""
    for alias in settings.CACHES:
        cache = caches[alias]
        if isinstance(cache, WheelCache):
            yield alias, cache


def _nothing(found: object) -> None:
    return None


def _sum_of(key: Any, total: Any) -> Any:
    if total is MISSING:
        raise ValueError(f"Key '{key}' not found")
    return total
