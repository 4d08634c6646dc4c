"""The Django cache backend. Its methods come in the order of Django's ``BaseCache``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial, wraps
from typing import Any, Final

from django.conf import settings
from django.core.cache.backends.base import (
    DEFAULT_TIMEOUT,
    BaseCache,
    default_key_func,
)
from django.db import close_old_connections

from wheelcache import options
from wheelcache.codec import ATOMS
from wheelcache.core import PrefixAccess
from wheelcache.core.access import is_simple
from wheelcache.core.contract import MISSING
from wheelcache.django_backend import page_leases
from wheelcache.django_backend.asgi_scope import act_for_request, shares_its_thread
from wheelcache.django_backend.languages import in_language
from wheelcache.django_backend.stores import Store, store_for
from wheelcache.errors import MissingKey
from wheelcache.loading.policy import PLAIN, LoadPolicy, load_policy
from wheelcache.loading.steps import Call, InSteps, Steps, StepsTo, drive, drive_async, run, run_async
from wheelcache.runtime.request_scope import current_scope, end_request, forget_misses
from wheelcache.runtime.worker_pool import cleanups


def _close_old_connections() -> None:
    """What Django does after every request: a thread that loads values has database connections of its own."""
    if settings.configured:
        close_old_connections()


cleanups.append(_close_old_connections)

NO_PREFIX: Final = "\0"
"""A prefix under which nothing is ever stored as it is, since keys with control characters are stored in a tuple."""


TO_BE_AWAITED: Final = object()
"""The default of ``aget``, which takes the short way of ``get`` to a hit. A miss ends there, and counts later."""


def _for_tasks(name: str) -> Callable[..., Any]:
    """The method ``name`` for coroutines."""

    @wraps(getattr(BaseCache, name))
    async def call(self: WheelCache, *args: Any, **kwargs: Any) -> Any:
        return getattr(self, name)(*args, **kwargs)

    call.__name__ = f"a{name}"
    return call


class _KeyPart:
    """Part of every key, and may be changed at any time."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = f"_{name}"

    def __get__(self, backend: WheelCache | None, owner: type) -> Any:
        return self if backend is None else getattr(backend, self._name)

    def __set__(self, backend: WheelCache, value: Any) -> None:
        setattr(backend, self._name, value)
        backend._find_prefix()


class WheelCache(PrefixAccess, BaseCache):
    """Django's cache API on ``wheelcache.Cache``: in the memory of the process, shared by its threads.

    Values are isolated as in Django's LocMemCache: what is immutable is stored as it is, everything else is pickled.

    A ``get`` that hits does not go through ``make_key`` and ``validate_key``: a key that hits was validated when it was
    set. A key that fails Django's validation is stored under a name that the short way cannot find, so that it warns at
    every call. If ``KEY_FUNCTION``, or a subclass's ``make_key`` or ``validate_key``, has a say, every call asks it.

    ``set``, ``set_many`` and ``get_or_set`` shorten every timeout by a random fraction of at most ``JITTER``, and by at
    most 60 seconds. ``add`` and ``touch`` keep theirs exactly, and ``incr`` keeps what is left.

    One object may be used by all threads and tasks at once.
    """

    serves_all_threads = True

    def __init__(self, location: str, params: dict[str, Any]) -> None:
        # First, so that a wrong option is named before BaseCache makes something of it.
        self.store = self._find_store(location, params)
        self.location = location
        self._cache = self.store.cache
        self._look_up_in(self._cache)
        self._loads, self._encode = self.store.codec.loads, self.store.codec.encode
        self._atoms = ATOMS if self.store.keeps_atoms else frozenset()
        self._missed_at = self._cache.parts.fill_times.missed_at
        self._fill_times = self._cache.parts.fill_times
        self._checks_keys = True
        self._culls = self.store.cull_frequency is not None
        self._fill_waits = self.store.fill_waits
        self._sets_at_once = not (self._culls or self._fill_waits)
        super().__init__(params)

    def _find_store(self, location: str, params: dict[str, Any]) -> Store:
        return store_for(location, params)

    key_prefix, version, key_func = _KeyPart(), _KeyPart(), _KeyPart()

    def _find_prefix(self) -> None:
        """What the default key function puts before every key, so that a hit need not call it."""
        cls = type(self)
        self._warns_as_django = (
            cls.validate_key is BaseCache.validate_key and cls.make_and_validate_key is BaseCache.make_and_validate_key
        )
        self._prefix = NO_PREFIX
        if (
            self._warns_as_django
            and cls.make_key is BaseCache.make_key
            and getattr(self, "key_func", None) is default_key_func
            # Of anything else the text may change from call to call.
            and type(self.key_prefix) is str
            and type(self.version) in (int, str)
        ):
            self._prefix = default_key_func("", self.key_prefix, self.version)

    def _key(self, key: Any, version: int | None) -> Any:
        """What an entry is stored under: the made key, or a tuple of it if Django warns of it."""
        cache_key: Any
        if not self._warns_as_django:
            cache_key = self.make_and_validate_key(key, version=version)
            return cache_key if is_simple(cache_key) else (cache_key,)
        if version is None and self._prefix is not NO_PREFIX:
            cache_key = f"{self._prefix}{key!s}"
        else:
            cache_key = self.make_key(key, version=version)
        if type(cache_key) is str and is_simple(cache_key):
            return cache_key
        self.validate_key(cache_key)
        return (cache_key,)

    def add(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        ttl = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if version is None and not self._culls:
            is_stored = self._add_at_once(key, value, ttl)
            if is_stored is not None:
                return is_stored
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        stored = self.store.codec.encode(value)
        if ttl is not None and ttl <= 0:
            if cache_key in self._cache:
                return False
            # It comes and goes at once, and with it a lease.
            self._cache.delete(cache_key)
            return True
        if self._culls:
            self._make_room([cache_key])
        return self._cache.add(cache_key, stored, ttl)

    def _get_missed(self, key: Any, default: Any, version: int | None) -> Any:
        """``get`` of what the short way did not find."""
        if default is TO_BE_AWAITED:
            return default
        if self._fill_waits:
            return drive(self._look_up(key, default, version))
        cache_key = self._key(key, version)
        return self._found_or(default, cache_key, self._cache.get(cache_key, MISSING))

    async def aget(self, key: Any, default: Any = None, version: int | None = None) -> Any:
        found = self.get(key, TO_BE_AWAITED, version)
        return found if found is not TO_BE_AWAITED else await drive_async(self._look_up(key, default, version))

    def _look_up(self, key: Any, default: Any, version: int | None) -> StepsTo[Any]:
        cache_key = self._key(key, version)
        wait = self._fill_wait(key)
        if wait:
            act_for_request()
            stored = yield from self._cache.parts.look_up_leased(cache_key, wait, may_wait=not shares_its_thread())
        else:
            stored = self._cache.get(cache_key, MISSING)
        return self._found_or(default, cache_key, stored)

    def _found_or(self, default: Any, cache_key: Any, stored: Any) -> Any:
        if stored is MISSING:
            self._fill_times.missed(cache_key)
            return default
        return self.store.codec.decode(stored)

    def _fill_wait(self, key: Any) -> float:
        """Seconds that a ``get`` waits for another caller to fill ``key``."""
        if self._fill_waits:
            text = str(key)
            for prefix, wait in self._fill_waits:
                if text.startswith(prefix):
                    return wait
        return 0.0

    def set(self, key: Any, value: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> None:
        ttl = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if version is None and (self._sets_at_once or not (self._culls or page_leases.is_of_page(key))):
            if self._missed_at:
                # Some keys are missed and never set: they must not send all sets the long way.
                self._fill_times.filled(f"{self._prefix}{key!s}")
            if self._set_at_once(key, value, ttl) is not None:
                return
        ttl = self._ttl(timeout)
        cache_key = self._key(key, version)
        cache = self._cache
        if self._missed_at:
            self._fill_times.filled(cache_key)
        stored = self._encode(value)
        if ttl is not None and ttl <= 0:
            cache.delete(cache_key)
        else:
            if self._culls:
                self._make_room([cache_key])
            if self._fill_waits and page_leases.is_of_page(key):
                self._set_page(key, cache_key, stored, ttl, version)
            else:
                cache.set(cache_key, stored, ttl)

    def touch(self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: int | None = None) -> bool:
        ttl = self.default_timeout if timeout is DEFAULT_TIMEOUT else timeout
        if version is None:
            is_there = self._touch_at_once(key, ttl)
            if is_there is not None:
                return is_there
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        if ttl is not None and ttl <= 0:
            return self._cache.delete(cache_key)
        return self._cache.touch(cache_key, ttl)

    def delete(self, key: Any, version: int | None = None) -> bool:
        return self._cache.delete(self._key(key, version))

    def get_many(self, keys: Iterable[Any], version: int | None = None) -> dict[Any, Any]:
        keys = list(keys)
        values = self._get_many_at_once(keys) if version is None else None
        if values is not None:
            return {key: value for key, value in zip(keys, values, strict=True) if value is not MISSING}
        cache_keys = [(key, self._key(key, version)) for key in keys]
        found = self._cache.get_many([cache_key for _, cache_key in cache_keys])
        restore = self.store.codec.decode
        return {key: restore(found[cache_key]) for key, cache_key in cache_keys if cache_key in found}

    def get_or_set(
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
    ) -> Any:
        """As Django's, and however many callers miss the key together, one of them calls ``default``.

        Args:
            grace, refresh_ahead, fail_safe, negative_ttl: as for ``wheelcache.Cache.take``.
            load_timeout: its ``timeout``.
        """
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, load_timeout, "load_timeout")
        return run(self._get_or_set(key, default, timeout, version, policy))

    async def aget_or_set(
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
    ) -> Any:
        """As ``get_or_set``; if ``default()`` returns something to await, it is awaited."""
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, load_timeout, "load_timeout")
        return await run_async(self._get_or_set(key, default, timeout, version, policy))

    def _get_or_set(self, key: Any, default: Any, timeout: Any, version: int | None, policy: LoadPolicy) -> Steps:
        cache_key, ttl = self._key(key, version), self._ttl(timeout)
        stored = self._cache.find(cache_key, MISSING)
        is_over = ttl is not None and ttl <= 0
        loads = self._cache.parts.loads
        if stored is MISSING or (not is_over and loads.needs_refresh(cache_key, stored, ttl, policy)):
            if not callable(default):
                value, default = default, lambda: value
            elif policy is not PLAIN:
                default = in_language(default)

            def load() -> Steps:
                value, error = yield Call(default)
                if error is not None:
                    return None, error
                newly_stored = self.store.codec.encode(value)
                if self._culls:
                    self._make_room([cache_key])
                return newly_stored, None

            stored, error = yield from (
                load() if is_over else loads.load_or_refresh(cache_key, stored, InSteps(load), ttl, policy)
            )
            if error is not None:
                return None, error
        return self.store.codec.decode(stored), None

    def has_key(self, key: Any, version: int | None = None) -> bool:
        return self._key(key, version) in self._cache

    def incr(self, key: Any, delta: int = 1, version: int | None = None) -> int:
        if version is None:
            total: int | None = self._incr_at_once(key, delta)
            if total is not None:
                return total
        cache_key = self._key(key, version)
        store, restore = self.store.codec.encode, self.store.codec.decode
        try:
            value: int = restore(self._cache.update(cache_key, lambda stored: store(restore(stored) + delta)))
        except MissingKey:
            raise ValueError(f"Key '{key}' not found") from None
        return value

    def set_many(
        self, data: Mapping[Any, Any], timeout: Any = DEFAULT_TIMEOUT, version: int | None = None
    ) -> list[Any]:
        ttl = self._ttl(timeout)
        if version is None and not self._culls and self._set_many_at_once(data, ttl):
            return []
        originals = {self._key(key, version): key for key in data}
        store = self.store.codec.encode
        stored = {key: store(data[original]) for key, original in originals.items()}
        if ttl is not None and ttl <= 0:
            self._cache.delete_many(stored)
            return []
        if self._culls:
            self._make_room(stored)
        return [originals[key] for key in self._cache.set_many(stored, ttl)]

    def delete_many(self, keys: Iterable[Any], version: int | None = None) -> None:
        self._cache.delete_many([self._key(key, version) for key in keys])

    def clear(self) -> None:
        self._cache.clear()

    # The other methods do not wait, and are the same for coroutines.

    aadd, aset, atouch, adelete = map(_for_tasks, ("add", "set", "touch", "delete"))
    aget_many, aset_many, adelete_many = map(_for_tasks, ("get_many", "set_many", "delete_many"))
    ahas_key, aincr, adecr, aclear = map(_for_tasks, ("has_key", "incr", "decr", "clear"))
    aincr_version, adecr_version = map(_for_tasks, ("incr_version", "decr_version"))

    def close(self, **kwargs: Any) -> None:
        """The request is over: what it was to fill is for others to fill."""
        self._fill_times.forget()
        if self._fill_waits:
            end_request()
        elif self._cache.parts.stamps.are_there:
            forget_misses()

    async def aclose(self, **kwargs: Any) -> None:
        # Django's own runs close() in a thread, which would find nothing of what this task is to fill.
        self.close(**kwargs)

    def _ttl(self, timeout: Any) -> Any:
        """Return the seconds that ``timeout`` stands for; None for no expiry, 0 or less if it is over immediately.

        Raises:
            TypeError: if ``timeout`` is not a number of seconds or None.
        """
        if timeout is DEFAULT_TIMEOUT:
            return self.default_timeout
        return timeout if type(timeout) is int else options.django_timeout("timeout", timeout)

    def _set_page(self, key: str, cache_key: Any, stored: Any, ttl: float | None, version: int | None) -> None:
        """``set`` of a page or of what Django keeps beside it: see ``pages``."""
        if page_leases.is_headers(key) and self._cache.parts.is_leased(cache_key):
            current_scope().held_back[self._cache, cache_key] = partial(self._cache.set, cache_key, stored, ttl)
            return
        self._cache.set(cache_key, stored, ttl)
        self._let_go_of_headers(key, version)

    def _let_go_of_headers(self, page: str, version: int | None) -> None:
        """Store the list of headers that was held back until ``page`` is stored."""
        headers = page_leases.headers_of(page)
        if headers is not None:
            current_scope().store_held_back((self._cache, self._key(headers, version)))

    def _make_room(self, keys: Iterable[Any]) -> None:
        """CULL_FREQUENCY: before new ``keys`` come into a full cache, drop 1/n of it, or with 0 all."""
        frequency, most = self.store.cull_frequency, self.store.max_entries
        size = len(self._cache)
        if most is not None and size >= most and any(key not in self._cache for key in keys):
            self._cache.parts.evict_to(size - size // frequency if frequency else 0)
