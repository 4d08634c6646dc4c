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
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

from django.core.cache import caches
from django.core.cache.backends.base import DEFAULT_TIMEOUT
from django.core.cache.backends.dummy import DummyCache
from django.core.exceptions import ImproperlyConfigured
from django.core.signals import setting_changed
from django.utils import translation

from wheelcache.core.contract import MISSING
from wheelcache.django_backend.backend import WheelCache
from wheelcache.django_backend.memo_arguments import PLAIN_PARTS, check_parameters, key_part, text_of
from wheelcache.django_backend.redis_calls import Awaited
from wheelcache.engine import options
from wheelcache.engine.codec import NOT_DECODED, UndecodedLog, read_or_delete
from wheelcache.engine.loading.memoize import (
    Arguments,
    Group,
    Groups,
    Memoizer,
    TagsOf,
    Wanted,
    check_function,
    check_hashable,
    decorator,
    find_nothing,
    memoized_in,
    name_of,
    receives_previous,
)
from wheelcache.engine.loading.request import PLAIN, LoadPolicy, load_policy, seconds_for
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.steps import Call, Outcome, PerDriver, Steps, StepsTo, drive, result


def memoize(
    timeout: Any = DEFAULT_TIMEOUT,
    *,
    cache: str = "default",
    version: int | None = None,
    key: Callable[..., Hashable] | None = None,
    by_language: bool = False,
    grace: float | None = None,
    refresh_ahead: float | None = None,
    fail_safe: float | None = None,
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
        timeout = options.django_timeout("timeout", timeout)
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
    tags_of: TagsOf | None


def _decorated(function: Callable[..., Any], settings: _Settings) -> Any:
    check_function(function)
    name = name_of(function)
    unique_name = _names.add(name)
    if settings.key is None:
        check_parameters(function, name)
    memoized, forget_place = memoized_in(
        *(function, name, settings.key, settings.policy),
        lambda: _place_of(unique_name, name, settings, receives_previous(function)),
        (lambda: (translation.get_language(),)) if settings.by_language else None,
        at_first_call=True,
    )

    def follow_setting(*, setting: str, **kwargs: Any) -> None:
        if setting == "CACHES":
            forget_place()

    # The signal refers to it weakly, so the function keeps it alive.
    memoized._follow_setting = follow_setting
    setting_changed.connect(follow_setting)
    return memoized


_names: Final = Groups()
"""The names of all memoized functions of the process."""

_process: Final = secrets.token_hex(8)


def _place_of(name: str, shown: str, settings: _Settings, has_previous: bool) -> _InMemory | _Elsewhere:
    backend = caches[settings.alias]
    if isinstance(backend, WheelCache) and not backend.has_store:
        kind = _OnMachine if backend.store.cache.has_shared_entries else _InMemory
        return kind(backend, name, shown, settings, has_previous)
    takes_tags = isinstance(backend, WheelCache) or settings.tags_of is None
    if not ((settings.policy is PLAIN and takes_tags) or isinstance(backend, DummyCache)):
        raise ImproperlyConfigured(
            f"grace, refresh_ahead, fail_safe, load_timeout and negative_ttl of {name} need a WheelCache or a "
            f"HostCache, its tags one of these or a TieredCache, and the cache {settings.alias!r} is a "
            f"{type(backend).__name__}"
        )
    return _Elsewhere(name, shown, settings, has_previous)


def _key(group: str, made: tuple[Any, ...], shown: str) -> tuple[Any, ...]:
    """Return the key of a call, in which objects of Django are replaced by parts of keys."""
    given = made[1:]
    if made[0] == group and PLAIN_PARTS.issuperset(map(type, given)):
        return made
    parts = key_part(given, shown)
    key = made if parts is given and made[0] == group else (group, *parts)
    check_hashable(key, shown)
    return key


class _InMemory:
    """The values of one function in a ``WheelCache``: under tuples that begin with the same string."""

    def __init__(self, backend: WheelCache, name: str, shown: str, settings: _Settings, has_previous: bool) -> None:
        store = backend.store
        self._chain = backend._chain
        self._cache, self._codec = store.cache, store.codec
        self._name, self._shown = name, shown
        self._has_previous = has_previous
        self._tags_of = settings.tags_of
        self._policy = settings.policy.with_grace(backend._grace(f"memoize.{name}"))
        self._tag_names = backend._tag_names
        self._ttl = backend.default_timeout if settings.timeout is DEFAULT_TIMEOUT else settings.timeout
        self._keeps = not options.expires_now(self._ttl)
        version = backend.version if settings.version is None else settings.version
        self._group = self._named_group(f"{backend.key_prefix}:{version}:{name}")
        self.group = self._group.name
        self.find = self._find = self._chain.find
        self.restore: Callable[[Any], Any] = self._codec.loads
        self._loads = self._cache.engine.loads()
        self.get, self.aget = self._chain.load, self._chain.aload

    def _named_group(self, name: str) -> Group:
        return self._cache.engine.add_group(name)

    def key(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        return _key(self.group, made, self._shown)

    def seek(
        self, made: Any, found: Any, loader: Callable[..., Any], call: Arguments, count: Callable[[bool], object]
    ) -> tuple[Any, Wanted]:
        loads, ttl, policy, key = self._loads, self._ttl, self._policy, self.key(made)
        if key is not made and self._keeps:
            found = self._find(key, MISSING)
        if found is not MISSING:
            found = self._value(key, found)
        if found is not MISSING and not loads.needs_refresh(key, found, ttl, policy):
            return found, None
        tags = () if self._tags_of is None else self._tags_of(*call[0], **call[1])
        return found, loads.request(
            *(key, loader, ttl, policy, self._tag_names(tags) if tags else ()),
            # A value that is not kept is that of the function itself.
            self._codec if self._keeps else None,
            passes_previous=self._has_previous,
        )

    def _value(self, key: Any, stored: Any) -> Any:
        """Return the value of a stored object; MISSING if it was deleted, since it cannot be decoded."""
        try:
            return self._codec.decode(stored)
        except NOT_DECODED as error:
            self._chain.remove_undecoded(key, stored, error)
        return MISSING

    def delete(self, key: Any) -> bool:
        return self._chain.delete(key)  # type: ignore[no-any-return]

    def clear(self) -> int:
        return self._chain.delete_group(self._group)


class _OnMachine(_InMemory):
    """The values of one function in a ``HostCache``: under keys that are the same in all processes."""

    def __init__(self, backend: WheelCache, name: str, shown: str, settings: _Settings, has_previous: bool) -> None:
        super().__init__(backend, name, shown, settings, has_previous)
        # The arguments themselves are no key.
        self.find = find_nothing

    def _named_group(self, name: str) -> Group:
        return Group(name + _owner_of(self._name), self._cache.engine.drop_group)

    def key(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        return self.group, _digest(text_of(_key(self.group, made, self._shown)[1:], self._shown))


class _Elsewhere:
    """The values of one function in any other cache: under strings, which contain a version for ``clear``."""

    group = ""
    find = restore = get = aget = staticmethod(find_nothing)

    def __init__(self, name: str, shown: str, settings: _Settings, has_previous: bool) -> None:
        self._name = name
        self._shown = shown
        self._settings = settings
        self._has_previous = has_previous
        self._start = f"memoize.{_digest(name + _owner_of(name))}"

    @property
    def _backend(self) -> Any:
        # Looked up at every call, since each thread or task has its own.
        return caches[self._settings.alias]

    def key(self, made: tuple[Any, ...]) -> tuple[Any, ...]:
        return _key(self.group, made, self._shown)

    def seek(
        self, made: Any, found: Any, loader: Callable[..., Any], call: Arguments, count: Callable[[bool], object]
    ) -> tuple[Any, Wanted]:
        return MISSING, self._steps(self.key(made), loader, call, count)

    def _steps(self, key: Any, loader: Callable[..., Any], call: Arguments, count: Callable[[bool], object]) -> Steps:
        backend, version = self._backend, self._settings.version
        without_previous = partial(loader, previous=None) if self._has_previous else loader
        if isinstance(backend, DummyCache):
            # Nothing is kept, so the arguments need not be a key there.
            count(False)
            computed: Outcome = yield Call(without_previous)
            return computed
        here = yield PerDriver(backend, Awaited(backend))
        made = result((yield from self._version(backend, here)))
        # Without a version, the value is kept under a name that no other call looks for.
        name = self._key_in_cache(made or secrets.token_hex(8), key)
        found = yield from self._read_or_delete(here, name)
        count(found is not MISSING)
        if found is not MISSING:
            return found, None
        if isinstance(backend, WheelCache) and backend.has_store:
            tags_of = self._settings.tags_of
            given = {"version": version, "tags": () if tags_of is None else tags_of(*call[0], **call[1])}
            load = (lambda *, previous: loader(previous=previous)) if self._has_previous else loader
            outcome: Outcome = yield Call(lambda: here.load_missed(name, load, self._settings.timeout, **given))
            return outcome
        value, error = yield Call(without_previous)
        if error is None:
            timeout = seconds_for(self._settings.timeout, value)
            result((yield Call(lambda: here.set(name, value, timeout, version=version))))
        return value, error

    def delete(self, key: Any) -> bool:
        backend, version = self._backend, self._settings.version
        if isinstance(backend, DummyCache):
            return False
        made = result(drive(self._version(backend, backend)))
        if made is None:
            return bool(self.clear())
        return bool(backend.delete(self._key_in_cache(made, key), version=version))

    def clear(self) -> int:
        self._backend.delete(self._start, version=self._settings.version)
        return 0

    def _version(self, backend: Any, here: Any) -> Steps:
        """Return the version of the values, a random string that lasts until the next ``clear``; None if the open
        transaction cannot see it, because its snapshot of the store is older.

        A transaction makes it for all immediately: the values that it deletes must be those of the others. Only if it
        has cleared the function, its version is its own until the commit.
        """
        start, version = self._start, self._settings.version
        # With MISSING, a miss is not noted: the random string is no computed value.
        made = yield from self._read_or_delete(here, start)
        if made is not MISSING:
            return made, None
        new = secrets.token_hex(8)
        if isinstance(backend, WheelCache) and backend._chain.hides(backend._key(start, version)):
            own: Outcome = yield Call(lambda: here.get_or_set(start, new, None, version=version))
            return own
        if result((yield Call(lambda: here.add(start, new, None, version=version)))):
            return new, None
        of_others: Outcome = yield Call(lambda: here.get(start, None, version=version))
        return of_others

    def _read_or_delete(self, here: Any, name: str) -> StepsTo[Any]:
        """Return a value; MISSING if there is none, or if it was deleted, since it cannot be decoded: then other caches
        than those of this package raise an error."""
        version = self._settings.version
        read, delete = partial(here.get, name, MISSING, version=version), partial(here.delete, name, version=version)
        return read_or_delete(read, delete, partial(_undecoded(self._settings.alias).note, name))

    def _key_in_cache(self, made: Any, key: Any) -> str:
        return f"{self._start}.{made}.{_digest(text_of(key[1:], self._name))}"


def _owner_of(name: str) -> str:
    """Return the process to which the values of a function belong; empty if all processes share them."""
    # Another process may give an ambiguous name, or one of its own script, to another function.
    is_portable = _names.is_portable((name,)) and not name.startswith("__main__.")
    return "" if is_portable else f"{_process} {os.getpid()}"


@cache
def _undecoded(alias: str) -> UndecodedLog:
    return UndecodedLog(alias, SystemClock.steady)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]
