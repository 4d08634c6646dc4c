"""``from wheelcache.django_backend import memoize``: the results of functions, by their arguments, in a cache of
``CACHES``.

The cache is looked up at the first call, and again after a test has overridden ``CACHES``, so modules may decorate
functions before Django is set up. With a ``WheelCache``, a hit is as fast as with the engine's ``memoize``. With any
other backend, calls use its ``get`` and ``set``; a ``TieredCache`` shares the computation as well.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import threading
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Final, Protocol

from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.dummy import DummyCache
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils import translation

from wheelcache import options
from wheelcache.coherence.write_moments import WritesSince
from wheelcache.core.access import Serialized
from wheelcache.core.contract import MISSING
from wheelcache.core.tally import Tally
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.in_transactions import InTransactions
from wheelcache.django_backend.memo_arguments import check_parameters, key_part, text_of
from wheelcache.django_backend.redis_calls import Awaited
from wheelcache.django_backend.tiered import TieredCache
from wheelcache.keys import group_of
from wheelcache.loading.adaptive import adaptive_loader, seconds_for
from wheelcache.loading.memoize import (
    Groups,
    Memoizer,
    MemoStats,
    arity_of,
    check_function,
    decorator,
    is_async,
    keys_by_arguments,
    name_of,
    receives_previous,
    signature_of,
    unhashable,
)
from wheelcache.loading.memoized_methods import Instances, MemoizedMethod, is_in_class
from wheelcache.loading.policy import PLAIN, LoadPolicy, load_policy
from wheelcache.loading.steps import Call, Outcome, PerDriver, Steps, as_it_is, drive, result, run_async
from wheelcache.stats import hit_ratio
from wheelcache.transactions.overlay import Fill


def memoize(
    timeout: Any = DEFAULT_TIMEOUT,
    *,
    cache: str = "default",
    version: int | None = None,
    key: Callable[..., Hashable] | None = None,
    by_language: bool = False,
    grace: float | None = None,
    refresh_ahead: float | None = None,
    fail_safe: bool = False,
    load_timeout: float | None = None,
    negative_ttl: float | None = None,
    tags: Callable[..., Iterable[str]] | Iterable[str] = (),
) -> Memoizer:
    """Return a decorator that caches the results of a function, method or coroutine function, by its arguments.

    Calls that mean the same share a value, however they are spelled. Model instances are keyed by their primary keys.
    Values are isolated as in the cache itself. With a ``WheelCache`` or a ``TieredCache``, a function that has a
    keyword-only parameter named ``previous`` receives the previous value, as a loader of their ``get_or_set`` does. See
    ``Memoized`` for the attributes of a decorated function.

    Args:
        timeout: as in Django: seconds; None for no expiry; 0 or less to cache nothing; by default, the timeout of the
            cache. Or a function that receives the value and returns seconds. If it returns None, 0 or less, the value
            is not kept.
        cache: the alias of the cache.
        version: as in Django's cache API: values of other versions are not found. The cache's own if not given.
        key: ``key(*args, **kwargs)`` returns a hashable object, which replaces the arguments in the key.
        by_language: whether each language has values of its own.
        grace, refresh_ahead, fail_safe, load_timeout, negative_ttl: as for ``WheelCache.get_or_set``. They need a
            ``WheelCache``, or a ``DummyCache``, which caches nothing.
        tags: the tags of every value, for ``WheelCache.delete_tags``, or a function: ``tags(*args, **kwargs)`` returns
            them. It is called before a value is computed. They need a ``WheelCache``, ``TieredCache`` or
            ``DummyCache``.

    Raises:
        TypeError, ValueError: if an argument is wrong, or if the function or one of its parameters cannot be memoized.
            The message names it.
    """
    if timeout is not DEFAULT_TIMEOUT and not callable(timeout):
        options.django_timeout("timeout", timeout)
    options.text("cache", cache)
    policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, load_timeout=load_timeout)
    settings = _Settings(
        timeout,
        cache,
        version,
        options.function_or_none("key", key),
        options.flag("by_language", by_language),
        policy,
        None if tags == () else options.tags_by_arguments("tags", tags),
    )

    return decorator(partial(_decorated, settings=settings), timeout, "@memoize")


@dataclass(frozen=True, slots=True)
class _Settings:
    """The arguments of ``memoize``, checked."""

    timeout: Any
    alias: str
    version: int | None
    key: Callable[..., Hashable] | None
    by_language: bool
    policy: LoadPolicy
    tags_of: Callable[..., tuple[str, ...]] | None


TagsOf = Callable[[], tuple[str, ...]]


class _Place(Protocol):
    """The place of the values of one function.

    Attributes:
        find: returns the stored value of a key, or the default, if that takes one step.
        group: the first item of its keys.
        restore: returns the value of a stored object that is Serialized.
    """

    find: Callable[[Any, Any], Any]
    group: str
    restore: Callable[[Any], Any]

    def steps(
        self,
        parts: tuple[Any, ...],
        call: Callable[..., Any],
        count: Callable[[bool], object],
        tags: TagsOf,
        has_previous: bool,
        found: Any,
    ) -> Steps:
        """Return the steps to the value of a call, found or computed.

        Args:
            parts: the arguments, as parts of a key.
            count: receives whether the value was found.
            tags: returns the tags of the value.
            has_previous: whether ``call`` receives the previous value.
            found: the result of ``find``; MISSING if it was not called, or with arguments as they are.
        """

    def delete(self, parts: tuple[Any, ...]) -> bool:
        """Forget a value. Return whether there was one."""

    def clear(self) -> int:
        """Forget all values. Return their number, as far as it is known."""


def _decorated(function: Callable[..., Any], settings: _Settings) -> Any:
    check_function(function)
    name = name_of(function)
    unique_name = _names.add(name)
    has_previous = receives_previous(function)
    arity, make_key = -1, None
    instances = Instances(name) if settings.key is None and is_in_class(function) else None
    if settings.key is None:
        check_parameters(function, name)
        as_called = signature_of(function, name, has_previous=has_previous)
        make_key = keys_by_arguments(as_called, name)
        if not settings.by_language:
            arity = arity_of(as_called)
    hits, misses, calls = Tally(), Tally(), Tally()
    hit = hits.ticks
    always_looks = settings.policy.refresh_ahead is not None
    lock = threading.Lock()
    place: _Place | None = None
    find: Callable[[Any, Any], Any] = _find_nothing
    restore: Callable[[Any], Any] = as_it_is
    group = ""

    def parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Return the unchecked parts of the key of a call."""
        made = (settings.key(*args, **kwargs),) if settings.key else make_key(args, kwargs)[1:]  # type: ignore[misc]
        return (translation.get_language(), *made) if settings.by_language else made

    def checked_parts(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        made: tuple[Any, ...] = key_part(parts(args, kwargs), name)
        try:
            hash(made)
        except TypeError as error:
            raise unhashable(name, error) from error
        return made

    def find_place() -> _Place:
        nonlocal place, find, restore, group
        with lock:
            if place is None:
                found = _place_of(unique_name, settings)
                find, restore, group, place = found.find, found.restore, found.group, found
            return place

    def forget_place(*, setting: str, **kwargs: Any) -> None:
        nonlocal place, find
        if setting == "CACHES":
            with lock:
                place, find = None, _find_nothing

    def call(args: tuple[Any, ...], kwargs: dict[str, Any], **previous: Any) -> Any:
        next(calls.ticks)
        return function(*args, **kwargs, **previous)

    def count(is_hit: bool) -> None:
        next(hit if is_hit else misses.ticks)

    def tags(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
        return () if settings.tags_of is None else settings.tags_of(*args, **kwargs)

    def steps(args: tuple[Any, ...], kwargs: dict[str, Any], found: Any) -> Steps:
        made, bound = checked_parts(args, kwargs), partial(call, args, kwargs)
        if instances is not None:
            instances.missed(args)
        return find_place().steps(made, bound, count, partial(tags, args, kwargs), has_previous, found)

    memoized: Any
    if is_async(function):

        @wraps(function)
        async def memoized(*args: Any, **kwargs: Any) -> Any:
            made = (group, *args) if not kwargs and len(args) == arity else (group, *parts(args, kwargs))
            try:
                found = find(made, MISSING)
            except TypeError:
                # The arguments cannot be a key. ``steps`` raises an error that explains this.
                found = MISSING
            if found is MISSING or always_looks:
                return await run_async(steps(args, kwargs, found))
            next(hit)
            return restore(found) if type(found) is Serialized else found

    else:

        @wraps(function)
        def memoized(*args: Any, **kwargs: Any) -> Any:
            made = (group, *args) if not kwargs and len(args) == arity else (group, *parts(args, kwargs))
            try:
                found = find(made, MISSING)
            except TypeError:
                found = MISSING
            if found is MISSING or always_looks:
                return result(drive(steps(args, kwargs, found)))
            next(hit)
            return restore(found) if type(found) is Serialized else found

    def cache_stats() -> MemoStats:
        with lock:
            hit_count, miss_count = hits.read(), misses.read()
            return MemoStats(hit_count, miss_count, hit_ratio(hit_count, miss_count), calls.read())

    memoized.uncached = function
    memoized.cache_delete = lambda *args, **kwargs: find_place().delete(checked_parts(args, kwargs))
    memoized.cache_clear = lambda: find_place().clear()
    memoized.cache_stats = cache_stats
    # The signal refers to it weakly, so the function keeps it alive.
    memoized._forget_place = forget_place
    setting_changed.connect(forget_place)
    return MemoizedMethod.of(memoized) if is_in_class(function) else memoized


_names: Final = Groups()
"""The names of all memoized functions of the process."""

_process: Final = secrets.token_hex(8)


def _find_nothing(key: Any, default: Any) -> Any:
    return default


def _place_of(name: str, settings: _Settings) -> _Place:
    backend = caches[settings.alias]
    if isinstance(backend, WheelCache) and not isinstance(backend, TieredCache):
        return _InMemory(backend, name, settings)
    takes_tags = isinstance(backend, TieredCache) or settings.tags_of is None
    if not ((settings.policy is PLAIN and takes_tags) or isinstance(backend, DummyCache)):
        raise ImproperlyConfigured(
            f"grace, refresh_ahead, fail_safe, load_timeout and negative_ttl of {name} need a WheelCache, its tags a "
            f"WheelCache or a TieredCache, and the cache {settings.alias!r} is a {type(backend).__name__}"
        )
    return _Elsewhere(name, settings)


class _InMemory:
    """The values of one function in a ``WheelCache``: under tuples that begin with the same string."""

    def __init__(self, backend: WheelCache, name: str, settings: _Settings) -> None:
        store = backend.store
        self._backend = backend if isinstance(backend, InTransactions) else None
        self._cache, self._codec = store.cache, store.codec
        self._policy = settings.policy.with_fill_grace(backend._fill_grace(f"memoize.{name}"))
        self._tag_names = backend._tag_names
        self._ttl = backend.default_timeout if settings.timeout is DEFAULT_TIMEOUT else settings.timeout
        version = backend.version if settings.version is None else settings.version
        self._group = self._cache.engine.add_group(f"{backend.key_prefix}:{version}:{name}")
        self.group = self._group.name
        self.find: Callable[[Any, Any], Any] = (
            self._cache.find if self._backend is None else self._backend.find_in_transaction
        )
        self.restore: Callable[[Any], Any] = self._codec.loads

    def steps(
        self,
        parts: tuple[Any, ...],
        call: Callable[..., Any],
        count: Callable[[bool], object],
        tags: TagsOf,
        has_previous: bool,
        found: Any,
    ) -> Steps:
        engine, key = self._cache.engine, (self.group, *parts)
        if options.expires_now(self._ttl):
            count(False)
            loader = partial(call, previous=None) if has_previous else call
            outcome: Outcome = yield from engine.misses().compute(key, loader)
            return outcome
        if found is MISSING:
            found = self.find(key, MISSING)
        if found is not MISSING and not engine.needs_refresh(key, found, self._ttl, self._policy):
            count(True)
            return self._codec.decode(found), None
        load = adaptive_loader(
            *(key, call, self._ttl, self._policy, engine.peek),
            encode=self._codec.encode,
            decode=self._codec.decode,
            passes_previous=has_previous,
        )
        overlay = None if self._backend is None or found is not MISSING else self._backend.overlay()
        if self._backend is not None and overlay is not None:
            count(False)
            overlay.missed(key)
            origin, ttl = (self, key, None), None if callable(self._ttl) else self._ttl
            steps = engine.misses().compute(key, load)
            stored, error = yield from self._backend.compute(overlay, key, steps, ttl, self._policy, origin, tags())
            return (None, error) if error is not None else (self._codec.decode(stored), None)
        request = engine.request(key, load, self._ttl, self._policy, self._tag_names(tags()))
        stored, error = yield from engine.load(request, found)
        count(found is not MISSING or (error is None and request.is_hit))
        return (None, error) if error is not None else (self._codec.decode(stored), None)

    def delete(self, parts: tuple[Any, ...]) -> bool:
        key = (self.group, *parts)
        overlay = None if self._backend is None else self._backend.overlay()
        if overlay is None:
            return self._cache.delete(key)
        is_there = self.find(key, MISSING) is not MISSING
        overlay.delete(key, (self, key, None))
        return is_there

    def clear(self) -> int:
        overlay = None if self._backend is None else self._backend.overlay()
        if overlay is None:
            return self._group.delete()
        return overlay.delete_pattern(lambda keys: [key for key in keys if group_of(key) == self.group], (self,))

    # The end of a transaction calls these: see ``FollowedCache``.

    def delete_now(self, keys: list[Any], version: None) -> None:
        self._cache.delete_many(keys)

    def delete_pattern_now(self) -> None:
        self._group.delete()

    def store_committed(
        self,
        cache_key: Any,
        key: Any,
        version: None,
        tags: tuple[str, ...],
        fill: Fill,
        ttl: float | None,
        others: WritesSince,
    ) -> None:
        self._cache.engine.store_committed(key, fill.value, ttl, self._policy.stale.seconds, fill.tags, others)


class _Elsewhere:
    """The values of one function in any other cache: under strings, which contain a version for ``clear``."""

    def __init__(self, name: str, settings: _Settings) -> None:
        self._name = name
        self._settings = settings
        # Another process may give an ambiguous name, or one of its own script, to another function.
        is_portable = _names.is_portable((name,)) and not name.startswith("__main__.")
        owner = "" if is_portable else f"{_process} {os.getpid()}"
        self._start = f"memoize.{_digest(name + owner)}"
        self.find: Callable[[Any, Any], Any] = _find_nothing
        self.restore: Callable[[Any], Any] = as_it_is
        self.group = ""

    @property
    def _backend(self) -> Any:
        # Looked up at every call, since each thread or task has its own.
        return caches[self._settings.alias]

    def steps(
        self,
        parts: tuple[Any, ...],
        call: Callable[..., Any],
        count: Callable[[bool], object],
        tags: TagsOf,
        has_previous: bool,
        found: Any,
    ) -> Steps:
        backend, version = self._backend, self._settings.version
        if isinstance(backend, DummyCache):
            # Nothing is kept, so the arguments need not be a key there.
            count(False)
            computed: Outcome = yield Call(partial(call, previous=None) if has_previous else call)
            return computed
        here = yield PerDriver(backend, Awaited(backend))
        # Not ``add``: within a transaction that has deleted it, others must not get the new one.
        made = result((yield Call(lambda: here.get_or_set(self._start, secrets.token_hex(8), None, version=version))))
        key = self._key(made, parts)
        found = result((yield Call(lambda: here.get(key, MISSING, version=version))))
        count(found is not MISSING)
        if found is not MISSING:
            return found, None
        if isinstance(backend, TieredCache):
            load = (lambda *, previous: call(previous=previous)) if has_previous else call
            given = {"version": version, "tags": tags()}
            outcome: Outcome = yield Call(lambda: here.load_missed(key, load, self._settings.timeout, **given))
            return outcome
        value, error = yield Call(partial(call, previous=None) if has_previous else call)
        if error is None:
            timeout = seconds_for(self._settings.timeout, value)
            result((yield Call(lambda: here.set(key, value, timeout, version=version))))
        return value, error

    def delete(self, parts: tuple[Any, ...]) -> bool:
        backend, version = self._backend, self._settings.version
        made = backend.get(self._start, None, version=version)
        return made is not None and bool(backend.delete(self._key(made, parts), version=version))

    def clear(self) -> int:
        self._backend.delete(self._start, version=self._settings.version)
        return 0

    def _key(self, made: Any, parts: tuple[Any, ...]) -> str:
        return f"{self._start}.{made}.{_digest(text_of(parts, self._name))}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
