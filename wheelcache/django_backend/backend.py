"""The Django cache backend. Its methods come in the order of Django's ``BaseCache``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Final, Protocol, TypeVar, Unpack, overload

from django.conf import settings
from django.contrib.sessions.backends.cache import KEY_PREFIX as SESSIONS
from django.core.cache.backends.base import (
    DEFAULT_TIMEOUT,
    MEMCACHE_MAX_KEY_LENGTH,
    BaseCache,
    default_key_func,
)
from django.db import close_old_connections

from wheelcache.core.access import NO_TAGS, Serialized, is_printable
from wheelcache.core.contract import HIDDEN, MISSING
from wheelcache.django_backend.direct_access import follow_setting
from wheelcache.django_backend.redis_calls import RedisCalls
from wheelcache.django_backend.request_context import act_for_request, shares_its_thread
from wheelcache.django_backend.stores import Store, check_timeout, store_for
from wheelcache.engine import options
from wheelcache.engine.backend_access import NOTHING, BackendAccess, checked_tags
from wheelcache.engine.codec import NOT_DECODED
from wheelcache.engine.in_memory import InMemory
from wheelcache.engine.loading.policy import LoadOptions, load_policy
from wheelcache.engine.loading.request import LoadRequest
from wheelcache.engine.loading.steps import Steps, StepsTo, after, drive, drive_async, run, run_async
from wheelcache.engine.runtime.request_scope import end_request, forget_misses
from wheelcache.engine.runtime.worker_pool import cleanups

R = TypeVar("R")


def _close_old_connections() -> None:
    """Close old database connections, as Django does after a request: a thread that loads values has its own."""
    if settings.configured:
        close_old_connections()


cleanups.append(_close_old_connections)


def _for_tasks(name: str) -> Callable[..., Any]:
    """Return the method ``name`` for coroutines. With a store behind, it drives the steps of ``_name``."""

    @wraps(getattr(BaseCache, name, BackendAccess.delete_tags))
    async def call(self: WheelCache, *args: Any, **kwargs: Any) -> Any:
        if self._memory is not None:
            return getattr(self, name)(*args, **kwargs)
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


IMMEDIATE: Final = (SESSIONS, "throttle_", "allauth", "axes-")
"""The beginnings of the keys of sessions that are only in a cache, and of the counters of Django REST framework,
django-allauth and django-axes, which follow no transaction. They use ``get`` and ``set``, and a rollback would reset
the count of failed logins."""

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
    _immediate: tuple[str, ...] = IMMEDIATE

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        # First, so that a wrong setting is reported before BaseCache uses it.
        check_timeout(location, params)
        self.store = self._find_store(location, params)
        self.location = location
        self._use_cache(self.store.cache, self.store.fill_waits, self.store.fill_graces)
        self._use_codec(self.store.codec, keeps_atoms=self.store.keeps_atoms)
        self._look_up_in(self._cache)
        self._use_layer(self._make_layer(), self.store.followed)
        # Django warns of longer keys. They are stored under another name, so that each call reaches the warning.
        self._max_key_length = MEMCACHE_MAX_KEY_LENGTH
        self._sets_at_once = self._memory is not None and self._in_transaction is None
        super().__init__(params)
        # Not at the import, which needs no settings, nor in the app, which a site need not install.
        follow_setting()

    def _find_store(self, location: str, params: dict[str, Any]) -> Store:
        return store_for(location, params)

    def _make_layer(self) -> Any:
        """Return the layer of the entries: see ``engine.layer``."""
        return InMemory(self._cache, self._codec)

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
        self._find_names_of_tags()
        if self._prefix is not None:
            self.store.group_keys(self._prefix)

    def _find_names_of_tags(self) -> None:
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

    def _is_deleted_by_transaction(self, key: str, version: int | None) -> bool:
        """Return whether the open transaction has deleted ``key``."""
        layer = self._layer(key)
        return layer is not self._shared and layer.find(self._key(key, version)) is HIDDEN

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> bool:
        if version is None and tags is NO_TAGS and self._layer(key) is self._memory:
            if self._scopes_with_misses:
                self._count_computations((key,))
            is_stored = self._add_at_once(key, value, self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout)
            if is_stored is not None:
                return is_stored
        return drive(self._add(key, value, timeout, version, tags=tags))

    # The methods with an underscore return the result, or steps to it: see ``engine.layer``.

    def _add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: int | None = None,
        *,
        tags: Iterable[str] = NO_TAGS,
    ) -> bool | StepsTo[bool]:
        checked = checked_tags(tags)
        return self._layer(key).add(self._key(key, version), value, self._ttl(timeout), checked)  # type: ignore[no-any-return]

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        """Complete a ``get`` of a key that the fast path did not find."""
        cache_key = self._key(key, version)
        if self._fill_waits or self._memory is None:
            found = drive(self._look_up(key, cache_key, default))
        else:
            found = self._cache.get(cache_key, MISSING)
        return self._found_or(default, key, cache_key, found)

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        if self._overlays and self._of_thread.overlays:
            # Only unsafe code has a transaction in an event loop.
            return self.get(key, default, version)
        found = self._get_at_once(key) if version is None else MISSING
        if found is not MISSING:
            return found
        cache_key = self._key(key, version)
        found = await drive_async(self._look_up(key, cache_key, default))
        return self._found_or(default, key, cache_key, found)

    def _look_up(self, key: Any, cache_key: Any, default: Any) -> Any:
        # A caller that passes MISSING goes on to ``load_missed``, which shares the computation without a lease.
        wait = self._fill_wait(key) if self._fill_waits and default is not MISSING else 0.0
        if not wait:
            return self._shared.look_up(cache_key)
        act_for_request()
        return self._shared.look_up(cache_key, wait, not shares_its_thread(), self._fill_grace(key))

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
        if (
            version is None
            and tags is NO_TAGS
            and (self._sets_at_once or self._layer(key) is self._memory)
            and not (nx or xx or (self._fill_graces and self._fill_grace(key)))
        ):
            if self._scopes_with_misses and self._prefix is not None:
                # Some keys are missed and never set. They must not make all sets take the slow path.
                self._misses.count_computation(f"{self._prefix}{key!s}")
            is_stored = self._set_at_once(key, value, self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout)
            if is_stored is not None:
                return is_stored
        return drive(self._set(key, value, timeout, version, nx=nx, xx=xx, tags=tags))  # type: ignore[no-any-return]

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
            return layer.replace(cache_key, value, ttl, self._fill_grace(key))
        tags = checked_tags(tags)
        if nx:
            return layer.add(cache_key, value, ttl, tags)
        return layer.set(cache_key, value, ttl, tags, grace=self._fill_grace(key))

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        if version is None and self._layer(key) is self._memory:
            is_there = self._touch_at_once(key, self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout)
            if is_there is not None:
                return is_there
        return drive(self._touch(key, timeout, version))  # type: ignore[no-any-return]

    def _touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> Any:
        return self._layer(key).touch(self._key(key, version), self._ttl(timeout))

    def delete(self, key: Any, version: int | None = None) -> bool:
        return drive(self._layer(key).delete(self._key(key, version)))  # type: ignore[no-any-return]

    def _delete(self, key: Any, version: int | None = None) -> Any:
        return self._layer(key).delete(self._key(key, version))

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        keys, values = list(keys), None
        if (
            version is None
            and self._memory is not None
            and (self._in_transaction is None or self._layer() is self._memory)
        ):
            values = self._get_many_at_once(keys)
        if values is not None:
            found = {key: value for key, value in zip(keys, values, strict=True) if value is not MISSING}
            if len(found) < len(keys):
                self._note_misses(f"{self._prefix}{key}" for key in keys if key not in found)
            return found
        return drive(self._get_many(keys, version))

    def _get_many(self, keys: Iterable[Any], version: int | None = None) -> Any:
        layer, cache_keys = self._layer(), [(key, self._key(key, version)) for key in keys]
        immediate = self._immediate_among(layer, cache_keys)

        def decoded(found: dict[Any, Any]) -> dict[Any, Any]:
            values = {
                key: self._value_or_miss(cache_key, found[cache_key])
                for key, cache_key in cache_keys
                if cache_key in found
            }
            return {key: value for key, value in values.items() if value is not MISSING}

        found = layer.get_many([cache_key for _, cache_key in cache_keys if cache_key not in immediate])
        return decoded(found | drive(self._shared.get_many([*immediate]))) if immediate else after(decoded, found)

    def _immediate_among(self, layer: Any, cache_keys: list[tuple[Any, Any]]) -> Collection[Any]:
        """Return the cache's keys of those callers' keys that do not follow the transaction of ``layer``."""
        if layer is self._shared:
            return ()
        return {cache_key for key, cache_key in cache_keys if self._layer(key) is self._shared}

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
        value = stored = self._cache.find(cache_key, MISSING)
        # Not by ``_value``: its call would add a tenth to the time of a hit.
        if type(stored) is Serialized:
            try:
                value = self._loads(stored)
            except NOT_DECODED as error:
                value = self._removed(cache_key, stored, error)
        if value is not MISSING and not self._needs_refresh(cache_key, value, ttl, policy):
            return value, None
        is_computed = callable(default)
        loader = default if is_computed else lambda: default
        return value, self._request(key, cache_key, loader, ttl, policy, tags, is_computed=is_computed)

    @_named("get_or_set", _sought)
    def _get_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        if self._in_transaction is not None and self._layer(key) is not self._shared:
            return run(self._compute_alone(key, default, self._lifetime(timeout), version, **given))
        value, request = self._sought(key, default, timeout, version, **given)
        return value if request is None else self.loading.get(request, value)

    @_named("aget_or_set", _sought)
    async def _aget_or_set(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, **given: Any
    ) -> Any:
        if self._layer(key) is not self._shared:
            return await run_async(self._compute_alone(key, default, self._lifetime(timeout), version, **given))
        value, request = self._sought(key, default, timeout, version, **given)
        return value if request is None else await self.loading.aget(request, value)

    def _compute_alone(
        self,
        key: Any,
        default: Any,
        ttl: Any,
        version: int | None,
        *,
        tags: Iterable[str] = NO_TAGS,
        is_missing: bool = False,
        **given: Any,
    ) -> Steps:
        """Do a ``get_or_set`` within a transaction: the caller computes the value by itself, and keeps it. The options
        about other callers are only checked."""
        policy = load_policy(**given)
        value = NOTHING if is_missing else self.get(key, NOTHING, version)
        if value is not NOTHING:
            return value, None
        is_computed = callable(default)
        request = self.loading.request(
            *(self._key(key, version), default if is_computed else lambda: default, ttl, policy),
            encode=self._encode,
            decode=self._decode,
            is_alone=True,
        )
        # The ``get`` has counted the look-up.
        request.is_counted, request.is_computed = True, is_computed
        checked = checked_tags(tags)
        stored, error = yield from self._layer(key).compute(request, checked, self._fill_grace(key))
        return (None, error) if error is not None else (request.decoded(stored), None)

    get_or_set: GetOrSet = _get_or_set
    aget_or_set: AsyncGetOrSet = _aget_or_set

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return drive(self._has_key(key, version))  # type: ignore[no-any-return]

    def _has_key(self, key: Any, version: int | None = None) -> Any:
        cache_key = self._key(key, version)
        found = self._layer(key).has(cache_key)
        return found or (
            self._memory is not None
            and any(locks.holder(str(cache_key)) is not None for locks in self.store.locks.all())
        )

    def incr(self, key: Any, delta: int = 1, version: int | None = None, *, ignore_key_check: bool = False) -> int:
        """Do the same as Django's ``incr``. With ``ignore_key_check``, a missing key is set to ``delta``."""
        if version is None and self._layer(key) is self._memory:
            total: int | None = self._incr_at_once(key, delta)
            if total is not None:
                return total
        return drive(self._incr(key, delta, version, ignore_key_check=ignore_key_check))  # type: ignore[no-any-return]

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
        if version is None and tags is NO_TAGS and not self._fill_graces and self._layer() is self._memory:
            self._count_computations(data)
            if self._set_many_at_once(data, self._ttl(timeout)):
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
        if self._layer() is not self._shared:
            # Keys of IMMEDIATE follow no transaction.
            for key, value in data.items():
                self.set(key, value, timeout, version, tags=tags)
            return []
        checked = checked_tags(tags)
        originals = {self._key(key, version): key for key in data}
        values = {cache_key: data[key] for cache_key, key in originals.items()}
        graces = {cache_key: self._fill_grace(key) for cache_key, key in originals.items()} if self._fill_graces else {}
        refused = self._shared.set_many(values, self._ttl(timeout), checked, graces)
        return after(lambda refused: [originals[cache_key] for cache_key in refused], refused)

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> int | None:  # type: ignore[override]
        """Delete keys. Return the number of existing ones, as django-redis does; None without keys, as Django does."""
        return drive(self._delete_many(keys, version))  # type: ignore[no-any-return]

    def _delete_many(self, keys: Iterable[Any], version: int | None = None) -> Any:
        layer, cache_keys = self._layer(), [(key, self._key(key, version)) for key in keys]
        immediate = self._immediate_among(layer, cache_keys)
        if not cache_keys:
            return None
        found = layer.delete_many([cache_key for _, cache_key in cache_keys if cache_key not in immediate])
        count = drive(self._shared.delete_many([*immediate])) if immediate else 0
        return after(lambda found: None if found is None or count is None else found + count, found)

    def clear(self) -> None:
        drive(self._clear())

    def _clear(self) -> Any:
        return after(_nothing, self._layer().clear())

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

    def _lifetime(self, timeout: Any) -> Any:
        """Return the TTL that ``timeout`` stands for, or the function of the value that it is."""
        return timeout if callable(timeout) else self._ttl(timeout)

    def _ttl(self, timeout: Any) -> Any:
        """Return the seconds that ``timeout`` stands for: None for no expiry, 0 or less for immediate expiry.

        Raises:
            TypeError: if ``timeout`` is not a number of seconds or None.
        """
        if timeout is DEFAULT_TIMEOUT:
            return self.default_timeout
        return timeout if type(timeout) is int else options.django_timeout("timeout", timeout)


def _nothing(found: object) -> None:
    return None


def _sum_of(key: Any, total: Any) -> Any:
    if total is MISSING:
        raise ValueError(f"Key '{key}' not found")
    return total
