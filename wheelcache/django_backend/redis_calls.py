"""The calls that django-redis adds to Django's cache API, with its names, arguments, defaults and results."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from math import inf
from numbers import Real
from typing import TYPE_CHECKING, Any, Final

from asgiref.sync import sync_to_async
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from wheelcache.cache import Cache
from wheelcache.engine import options
from wheelcache.engine.glob_pattern import escaped, matcher
from wheelcache.engine.guests import needed_module
from wheelcache.engine.keys import matching, text_of
from wheelcache.engine.layer import Layer
from wheelcache.runtime.steps import Call, Outcome, PerDriver, Steps, after, drive, drive_async, result, twins

if TYPE_CHECKING:
    from wheelcache.django_backend.stores import Store

MARK: Final = "\0 aA:*Ä\0"
"""A key that shows where the made keys contain the key. A key function that changes keys changes this one, too."""


class Awaited:
    """Gives the async methods of a cache the names of the synchronous ones: ``Awaited(cache).get`` is ``cache.aget``.

    A method without an async version, such as django-redis's own methods, runs in a thread.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._cache, f"a{name}", None)
        return sync_to_async(getattr(self._cache, name)) if found is None else found


class RedisCalls:
    """django-redis's additional methods, for a backend that keeps its entries in a ``Cache``.

    Patterns are Redis's globs: see ``glob_pattern``. Scans read the keys in batches, between which other threads and
    tasks run. ``itersize`` is accepted for compatibility, and has no effect.
    """

    if TYPE_CHECKING:
        _cache: Cache
        _chain: Layer
        _layer: Callable[..., Layer]
        key_func: Callable[..., str]
        store: Store
        version: int

        def make_key(self, key: Any, version: int | None = None) -> str: ...
        def _key(self, key: Any, version: int | None) -> Any: ...

    # The remaining time.

    def ttl(self, key: Any, version: int | None = None) -> int | None:
        """Return the seconds until ``key`` expires, rounded; None if it never does, and 0 if there is no such key."""
        return drive(self._left(key, version, 1))  # type: ignore[no-any-return]

    async def attl(self, key: Any, version: int | None = None) -> int | None:
        return await drive_async(self._left(key, version, 1))

    def pttl(self, key: Any, version: int | None = None) -> int | None:
        """Return the same as ``ttl``, in milliseconds."""
        return drive(self._left(key, version, 1000))  # type: ignore[no-any-return]

    async def apttl(self, key: Any, version: int | None = None) -> int | None:
        return await drive_async(self._left(key, version, 1000))

    def _left(self, key: Any, version: int | None, per_second: int) -> Any:
        rounded = lambda left: None if left is None else int(left * per_second + 0.5)  # noqa: E731
        return after(rounded, self._layer(key).seconds_left(self._key(key, version)))

    # Steps, from each of which two methods are made.

    def _expire(self, key: Any, timeout: Any, version: int | None = None) -> Steps:
        """Let ``key`` expire in ``timeout`` seconds, a number or a timedelta. Return False if there is no such key.

        If ``timeout`` is 0 or less, the key is deleted.
        """
        return self._touched(key, _seconds("timeout", timeout, 1), version)

    def _pexpire(self, key: Any, timeout: Any, version: int | None = None) -> Steps:
        """Do the same as ``expire``, in milliseconds."""
        return self._touched(key, _seconds("timeout", timeout, 1000), version)

    def _expire_at(self, key: Any, when: Any, version: int | None = None) -> Steps:
        """Let ``key`` expire at a datetime, or a number of seconds since 1970. Return False if there is no such key.

        If the time has passed, the key is deleted.
        """
        return self._touched(key, _seconds_until(when, 1), version)

    def _pexpire_at(self, key: Any, when: Any, version: int | None = None) -> Steps:
        """Do the same as ``expire_at``, in milliseconds since 1970."""
        return self._touched(key, _seconds_until(when, 1000), version)

    def _persist(self, key: Any, version: int | None = None) -> Steps:
        """Let ``key`` never expire. Return False if it never does already, or if there is no such key."""
        cache = yield PerDriver(self, Awaited(self))
        outcome: Outcome = yield Call(lambda: cache.pttl(key, version))
        if outcome[1] is None:
            outcome = (yield Call(lambda: cache.touch(key, None, version))) if outcome[0] else (False, None)
        return outcome

    def _touched(self, key: Any, seconds: Any, version: int | None) -> Steps:
        cache = yield PerDriver(self, Awaited(self))
        outcome: Outcome = yield Call(lambda: cache.touch(key, seconds, version))
        return outcome

    expire, aexpire = twins(_expire, result)
    pexpire, apexpire = twins(_pexpire, result)
    expire_at, aexpire_at = twins(_expire_at, result)
    pexpire_at, apexpire_at = twins(_pexpire_at, result)
    persist, apersist = twins(_persist, result)

    # Patterns.

    def keys(self, search: str, version: int | None = None) -> list[str]:
        """Return the keys that match a pattern, in no order. If keys are written meanwhile, one may come twice."""
        # Removing these by a dict would keep other threads waiting while the dict grows: 20 ms with a million keys.
        return list(self.iter_keys(search, version=version))

    async def akeys(self, search: str, version: int | None = None) -> list[str]:
        return [key async for key in self.aiter_keys(search, version=version)]

    def iter_keys(self, search: str, itersize: int | None = None, version: int | None = None) -> Iterator[str]:
        """Iterate over the keys that match a pattern, as ``keys`` returns them."""
        return chain.from_iterable(self._key_batches(search, itersize, version))

    async def aiter_keys(
        self, search: str, itersize: int | None = None, version: int | None = None
    ) -> AsyncIterator[str]:
        for keys in self._key_batches(search, itersize, version):
            await asyncio.sleep(0)
            for key in keys:
                yield key

    def delete_pattern(
        self, pattern: str, version: int | None = None, prefix: str | None = None, itersize: int | None = None
    ) -> int:
        """Delete the keys that match a pattern. Return their number.

        Every matching key that exists during the whole call is deleted. A key that is set meanwhile may be kept.

        Args:
            prefix: replaces KEY_PREFIX.
        """
        return drive(self._delete_pattern(pattern, version, prefix, itersize))  # type: ignore[no-any-return]

    def _delete_pattern(self, pattern: str, version: int | None, prefix: str | None, itersize: int | None) -> Any:
        made = self._pattern(pattern, *self._around(version, prefix))
        return self._chain.delete_pattern(selection(made, itersize), made, itersize)

    async def adelete_pattern(
        self, pattern: str, version: int | None = None, prefix: str | None = None, itersize: int | None = None
    ) -> int:
        return await drive_async(self._delete_pattern(pattern, version, prefix, itersize))

    def _key_batches(self, search: str, itersize: int | None, version: int | None) -> Iterator[list[str]]:
        before, after = self._around(version, None)
        select = selection(self._pattern(search, before, after), itersize)

        def shown(keys: Iterable[Any]) -> list[str]:
            return [text_of(key).removeprefix(before).removesuffix(after) for key in keys]

        seen = self._chain.seen
        of_all = (
            shown(seen([key for key in select(keys) if key in self._cache]))
            for keys in self._cache.engine.key_batches()
        )
        return chain(of_all, [shown(select([*self._chain.own_keys()]))])

    def _pattern(self, pattern: str, before: str, after: str) -> str:
        """Return the pattern of made keys for one of keys between two literals."""
        return f"{escaped(before)}{options.text('pattern', pattern)}{escaped(after)}"

    def _around(self, version: int | None, prefix: str | None) -> tuple[str, str]:
        """Return the text before and after the key in made keys."""
        if prefix is None:
            made = self.make_key(MARK, version=version)
        else:
            made = self.key_func(MARK, prefix, self.version if version is None else version)
        before, mark, after = made.partition(MARK)
        if not mark:
            raise ValueError("KEY_FUNCTION must keep keys unchanged inside the made keys, for calls with a pattern")
        return before, after

    # Locks.

    def lock(
        self,
        key: Any,
        version: int | None = None,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
    ) -> Any:
        """Return a lock, for ``with`` and ``async with``: see ``wheelcache.timers.locks.Lock``.

        In a ``HostCache`` it excludes the processes of this machine, otherwise the threads and tasks of this process:
        see its attribute ``scope``. While it is held, ``has_key`` returns True for its name. It is not an entry, so it
        is not evicted, and neither ``delete`` nor ``clear`` releases it.
        """
        make, name = needed_module("timers", "locks", "lock()").Lock, str(self._key(key, version))
        return make(self.store.locks.get(), name, timeout, sleep, blocking, blocking_timeout, thread_local)

    alock = lock


def selection(made: str, itersize: int | None) -> Callable[[list[Any]], list[Any]]:
    """Return a function that selects the made keys that match a pattern."""
    options.count_or_none("itersize", itersize)
    return partial(matching, matcher(made))


def _seconds(name: str, timeout: Any, per_second: int) -> Any:
    if timeout is DEFAULT_TIMEOUT:
        return timeout
    if isinstance(timeout, timedelta):
        return timeout.total_seconds()
    return _number(name, timeout, "a number or a timedelta") / per_second


def _seconds_until(when: Any, per_second: int) -> float:
    if isinstance(when, datetime):
        return when.timestamp() - time.time()
    return _number("when", when, "a number or a datetime") / per_second - time.time()


def _number(name: str, value: Any, takes: str) -> float:
    # A comparison with NaN is false.
    if isinstance(value, bool) or not isinstance(value, Real) or value != value:
        raise TypeError(f"{name} must be {takes}, not {options.shown(value)}")
    try:
        return float(value)
    except OverflowError:
        return inf if value > 0 else -inf  # type: ignore[operator]
