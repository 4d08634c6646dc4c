"""A near cache in front of any other cache of ``CACHES``: ``"wheelcache.django_backend.TieredCache"``."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, ClassVar, Final

from asgiref.sync import sync_to_async
from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT, MEMCACHE_MAX_KEY_LENGTH, BaseCache, default_key_func
from django.db import connections, router
from django.utils.module_loading import import_string

from wheelcache.core.access import is_printable
from wheelcache.core.contract import MISSING
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.redis_calls import Awaited, selection
from wheelcache.django_backend.stores import Store
from wheelcache.engine.backend_access import checked_tags
from wheelcache.engine.keys import text_of
from wheelcache.engine.option_table import Options
from wheelcache.near_cache.django_second_level import (
    SERVE_ALL_THREADS,
    TOKEN_VERSION,
    DjangoStore,
    KeyFunction,
    method_of,
    second_level,
    take_final_keys,
)
from wheelcache.near_cache.invalidations import Invalidations
from wheelcache.near_cache.near_copies import NearCopies, name_of
from wheelcache.near_cache.options import DJANGO_TIERED as OPTIONS
from wheelcache.near_cache.store_calls import Stores, answer
from wheelcache.near_cache.store_tags import StoreTags
from wheelcache.near_cache.tokens import MARK
from wheelcache.runtime.steps import Steps, StepsTo, drive, drive_async, result

OF_L2: Final = ("KEY_PREFIX", "VERSION", "KEY_FUNCTION")
"""The settings with which the other cache is made, if they are given here."""


class TieredStore(Store):
    """The copies of one process, and the source of their invalidations.

    Attributes:
        level: reads and writes the copies.
        is_notified: whether the writes of other processes are reported to this one.
    """

    __slots__ = ("is_notified", "level")

    options: ClassVar[Options] = OPTIONS

    def __init__(self, location: str, checked: Mapping[str, Any], l2: BaseCache, name: str) -> None:
        # The prefix covers all versions. Another key function may use it in an unknown way.
        prefix = f"{l2.key_prefix}:" if l2.key_func is default_key_func else ""
        invalidations = Invalidations(l2, prefix)
        super().__init__(location or name, checked, invalidations.trust)
        self.level = invalidations.near_cache(self.cache, checked)
        self.is_notified = invalidations.is_notified
        # Empty if the key function hides the caller's key: then every key may be that of a token.
        self.level.token_mark = MARK if MARK in l2.make_key(MARK, version=TOKEN_VERSION) else ""
        if (model := getattr(l2, "cache_model_class", None)) is not None:
            self.level.in_transaction = partial(_is_in_transaction, model)


def _usable_aliases() -> str:
    """Return the aliases that L2 may name, in words."""
    usable = []
    for alias, settings in caches.settings.items():
        # An alias whose backend cannot be imported is not usable either.
        with suppress(ImportError):
            backend = import_string(settings["BACKEND"])
            if not (isinstance(backend, type) and issubclass(backend, TieredCache)):
                usable.append(repr(alias))
    return (
        f"one of {', '.join(usable)}" if usable else "the alias of a cache that is not a TieredCache (CACHES has none)"
    )


def _is_in_transaction(model: Any) -> bool:
    """Return whether the running thread has a transaction open in the database of the table of a ``DatabaseCache``."""
    connection: Any = connections[router.db_for_read(model)]
    return connection.in_atomic_block or (connection.connection is not None and not connection.autocommit)


def _call(function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    return function(*args, **given)


def _call_in_thread(function: Callable[..., Any], *args: Any, **given: Any) -> Any:
    return sync_to_async(function)(*args, **given)


class TieredCache(WheelCache):
    """Keeps copies of the values of another cache, named by the option ``L2``, in the memory of the process.

    The other cache makes the keys, so code that uses it directly finds the values. TIMEOUT, KEY_PREFIX, VERSION and
    KEY_FUNCTION are those of the other cache unless they are given here. Values are isolated as in ``WheelCache``.

    ``get`` looks at the copies and then asks the other cache, once for all callers that miss a key together. Every
    write goes to the other cache and drops the copy. See ``near_cache``.
    """

    store: TieredStore
    _shared: NearCopies

    @property
    def serves_all_threads(self) -> bool:  # type: ignore[override]
        """Whether all threads and tasks may use one object at the same time. This depends on the other cache."""
        return any(f"{cls.__module__}.{cls.__qualname__}" in SERVE_ALL_THREADS for cls in type(self._l2).__mro__)

    # The key prefix and function for which writes are reported, once they are known.
    _reported: tuple[Any, Any] | None = None
    _keeps = True

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        super().__init__(location, params)
        l2 = self._l2
        if not any(name in params for name in ("TIMEOUT", "timeout")):
            self.default_timeout = l2.default_timeout
        self.key_prefix, self.version, self.key_func = l2.key_prefix, l2.version, self._l2_keys
        self._reported = (self.key_prefix, self.key_func)

    def _find_store(self, location: str, params: dict[str, Any]) -> TieredStore:
        given = params.get("OPTIONS", {})
        alias = given.get("L2") if isinstance(given, Mapping) else None
        if not isinstance(alias, str) or alias not in caches.settings:
            raise ValueError(f"L2 must be {_usable_aliases()}, not {alias!r}")
        key_settings: dict[str, Any] = {name: params[name] for name in OF_L2 if name in params}
        self._l2 = l2 = second_level(alias, key_settings, TieredCache)
        # The alias alone is not enough: tests override its settings.
        # The version is left out: aliases that differ only in it share the copies and see each other's writes.
        variant = ("tiered", repr(caches.settings[alias]), l2.key_prefix, l2.key_func)
        store = TieredStore.find(
            *(location, params, variant), lambda place, checked: TieredStore(place, checked, l2, f"copies of {alias}")
        )
        self._l2_keys: KeyFunction = take_final_keys(l2)
        if isinstance(l2, WheelCache) and l2.store.above is not None:
            if store.above is None:
                raise ValueError(f"TRANSACTIONS must be set here, as it is for its L2 {alias!r}")
            # It receives committed changes and immediate ones, and final keys do not show which are immediate.
            l2._use_layers(l2._shared, None)
        return store

    def _make_layer(self) -> NearCopies:
        l2, level = self._l2, self.store.level
        note = level.note_undecoded
        stores = Stores(DjangoStore(l2, l2, note, _call), DjangoStore(l2, Awaited(l2), note, _call_in_thread))
        tags = StoreTags(level, partial(_token_key, self._l2_keys, l2.key_prefix))
        return NearCopies(level, stores, tags, self._codec)

    def _find_prefix(self) -> None:
        super()._find_prefix()
        if self._reported is not None:
            # A key setting was changed at run time.
            self._keeps = (self.key_prefix, self.key_func) == self._reported

    def _name_tags(self) -> None:
        if hasattr(self, "key_func"):
            self._shared.tags.key_of = partial(_token_key, self.key_func, self.key_prefix)

    def _key(self, key: Any, version: int | None) -> Any:
        """Return the key of a copy. It is a tuple, under which no copies are kept, if the other cache would warn of the
        key or if writes are not reported for it."""
        if version is None and self._keeps:
            cache_key = self._usual_key(key)
            if cache_key is not None:
                return cache_key
        return self._of_copy(self.make_key(key, version=version))

    def _of_copy(self, made: str) -> Any:
        return made if self._keeps and is_printable(made, MEMCACHE_MAX_KEY_LENGTH) else (made,)

    # These have no ``grace`` of a call.
    def get_or_set(  # type: ignore[override]
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = ()
    ) -> Any:
        """Do the same as Django's ``get_or_set``, except that only one of the callers that miss the key together calls
        ``default``."""
        tags, ttl = checked_tags(tags), timeout if callable(timeout) else self._ttl(timeout)
        found = self._get_at_once(key) if version is None else MISSING
        return result(drive(self._compute(key, default, ttl, version, tags))) if found is MISSING else found

    async def aget_or_set(  # type: ignore[override]
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = ()
    ) -> Any:
        """Do the same as ``get_or_set``; if ``default()`` returns an awaitable, it is awaited."""
        tags, ttl = checked_tags(tags), timeout if callable(timeout) else self._ttl(timeout)
        found = self._get_at_once(key) if version is None else MISSING
        return (
            found
            if found is not MISSING
            else result(await drive_async(self._compute(key, default, ttl, version, tags)))
        )

    def load_missed(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = ()
    ) -> Any:
        """Do a ``get_or_set`` after a ``get`` that missed, which counts the look-up."""
        tags, ttl = checked_tags(tags), timeout if callable(timeout) else self._ttl(timeout)
        return result(drive(self._compute(key, default, ttl, version, tags, is_missing=True)))

    async def aload_missed(
        self, key: Any, default: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None, *, tags: Any = ()
    ) -> Any:
        tags, ttl = checked_tags(tags), timeout if callable(timeout) else self._ttl(timeout)
        return result(await drive_async(self._compute(key, default, ttl, version, tags, is_missing=True)))

    def _compute(
        self,
        key: Any,
        default: Any,
        ttl: Any,
        version: int | None,
        tags: tuple[str, ...],
        *,
        is_missing: bool = False,
    ) -> Steps:
        is_computed = callable(default)
        return self._layer(key).compute(  # type: ignore[no-any-return]
            *(self._key(key, version), default if is_computed else lambda: default, ttl, tags),
            is_computed=is_computed,
            is_missing=is_missing,
        )

    # The calls of django-redis. The other cache must have them; the calls that change a timeout only need ``touch``.

    def _keys(self, search: str, version: int | None = None) -> StepsTo[list[str]]:
        before, after = self._around(version, None)
        pattern = self._pattern(search, before, after)
        found = yield from self._shared.read(lambda store: store.method("keys")(pattern))
        return [] if found is MISSING else [*self._shown(found, pattern, before, after)]

    def keys(self, search: str, version: int | None = None) -> list[str]:
        return drive(self._keys(search, version))

    async def akeys(self, search: str, version: int | None = None) -> list[str]:
        return await drive_async(self._keys(search, version))

    def incr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        """Do the same as Django's ``incr_version``, except that the value keeps its timeout over a cache that keeps it,
        as django-redis does."""
        return drive(self._incr_version(self, key, delta, version))

    async def aincr_version(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        return await drive_async(self._incr_version(Awaited(self), key, delta, version))

    def _incr_version(self, here: Any, key: Any, delta: int, version: int | None) -> StepsTo[int]:
        old = self.version if version is None else version
        value = yield from answer(here.get(key, MISSING, old))
        timeout: Any = DEFAULT_TIMEOUT
        keeps_timeout = type(self._l2).incr_version is not BaseCache.incr_version and hasattr(self._l2, "pttl")
        if keeps_timeout and value is not MISSING:
            left = yield from answer(here.pttl(key, old))
            timeout = None if left is None else left / 1000
        if value is MISSING or timeout == 0:
            raise ValueError(f"Key '{key}' not found")
        yield from answer(here.set(key, value, timeout, old + delta))
        yield from answer(here.delete(key, old))
        return old + delta

    def iter_keys(self, search: str, itersize: int | None = None, version: int | None = None) -> Iterator[str]:
        before, after = self._around(version, None)
        pattern = self._pattern(search, before, after)
        given = {} if itersize is None else {"itersize": itersize}
        return self._shown(method_of(self._l2, "iter_keys")(pattern, **given), pattern, before, after)

    def _shown(self, found: Iterable[str], pattern: str, before: str, after: str) -> Iterator[str]:
        """Return callers' keys, given final ones in the store: those that the transaction sees, and its own."""
        keys = chain(self._chain.seen(map(self._of_copy, found)), selection(pattern, None)([*self._chain.own_keys()]))
        return (text_of(key).removeprefix(before).removesuffix(after) for key in keys)

    async def aiter_keys(
        self, search: str, itersize: int | None = None, version: int | None = None
    ) -> AsyncIterator[str]:
        # The call may wait for the other cache.
        keys: list[str] = await sync_to_async(lambda: [*self.iter_keys(search, itersize, version)])()
        for key in keys:
            yield key

    def lock(self, key: Any, version: int | None = None, *args: Any, **given: Any) -> Any:
        """Return a lock of the other cache. django-redis's locks cover all machines."""
        return method_of(self._l2, "lock")(name_of(self._key(key, version)), None, *args, **given)

    def alock(self, key: Any, version: int | None = None, *args: Any, **given: Any) -> Any:
        return method_of(self._l2, "alock")(name_of(self._key(key, version)), None, *args, **given)

    def close(self, **kwargs: Any) -> None:
        super().close(**kwargs)
        self._l2.close(**kwargs)

    async def aclose(self, **kwargs: Any) -> None:
        super().close(**kwargs)
        await self._l2.aclose(**kwargs)


TieredStore.sender = TieredCache


def _token_key(key_func: KeyFunction, prefix: str, key: str) -> str:
    return key_func(key, prefix, TOKEN_VERSION)
