"""Loading for the callers' keys and TTLs: what ``take`` and ``memoize``, the backends and the near cache load with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from wheelcache import options
from wheelcache.core.access import DEFAULT_TTL, MAX_FAST_TTL, TTL
from wheelcache.keys import KeyProxies
from wheelcache.loading.loads import Loads
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.request import LoadRequest


class Notes(Protocol):
    """What is noted of misses."""

    def noted(self, key: Any) -> object:
        """Forget the miss of ``key``."""


class KeyLoading:
    """The loads of one cache.

    Args:
        loads: takes the keys of the core, and TTLs in seconds.
        keys: adapts the callers' keys.
        ttl: seconds that are meant by DEFAULT_TTL; None for ever.
        notes: a miss is noted there. A load answers it: what the caller sets after that is news.
    """

    __slots__ = ("_keys", "_loads", "_notes", "_ttl")

    def __init__(self, loads: Loads, keys: KeyProxies, ttl: float | None, notes: Notes) -> None:
        self._loads = loads
        self._keys = keys
        self._ttl = ttl
        self._notes = notes

    def seconds(self, ttl: TTL) -> float | None:
        """
        Raises:
            TypeError, ValueError: ``ttl`` is no number of seconds > 0, and not None.
        """
        if ttl is DEFAULT_TTL:
            return self._ttl
        if type(ttl) is int and 0 < ttl < MAX_FAST_TTL:
            return ttl
        return options.ttl("ttl", ttl)

    def load(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL,
        policy: LoadPolicy,
        count_hit: Iterator[int] | None = None,
    ) -> Any:
        """The value of ``key``, after a ``find`` that missed.

        Args:
            count_hit: a tally's ticks, which counts a value that was stale, or there after all.
        """
        request = self._request(key, loader, ttl, policy)
        value = self._loads.load(request)
        if request.is_hit and count_hit is not None:
            next(count_hit)
        return value

    async def aload(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL,
        policy: LoadPolicy,
        count_hit: Iterator[int] | None = None,
    ) -> Any:
        """``load`` for coroutines: what ``loader()`` returns is awaited if it can be."""
        request = self._request(key, loader, ttl, policy)
        value = await self._loads.aload(request)
        if request.is_hit and count_hit is not None:
            next(count_hit)
        return value

    def load_many(
        self, keys: Iterable[Any], loader: Callable[[list[Any]], Mapping[Any, Any]], ttl: TTL, policy: LoadPolicy
    ) -> Mapping[Any, Any]:
        """What ``loader(keys)`` returns, called once, without a look at the entries. It is stored, but for keys that
        other callers are loading."""
        return self._loads.load_many(self._adapted(keys), loader, self.seconds(ttl), policy)

    async def aload_many(
        self,
        keys: Iterable[Any],
        loader: Callable[[list[Any]], Awaitable[Mapping[Any, Any]]],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> Mapping[Any, Any]:
        """``load_many`` for coroutines."""
        return await self._loads.aload_many(self._adapted(keys), loader, self.seconds(ttl), policy)

    def needs_refresh(self, key: Hashable, value: Any, ttl: TTL, policy: LoadPolicy) -> bool:
        """Whether ``value``, which a look-up has found, is past the policy's ``refresh_ahead`` of its TTL."""
        return self._loads.needs_refresh(self._keys.adapt(key), value, self.seconds(ttl), policy)

    def refresh(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> None:
        """Load anew in a thread, unless that is being done, or failed lately."""
        self._loads.refresh(self._request(key, loader, ttl, policy))

    def arefresh(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> None:
        """``refresh`` by a task of the running loop."""
        self._loads.arefresh(self._request(key, loader, ttl, policy))

    def read_beside(self, key: Hashable, value: Any) -> None:
        """``value`` was read where loaders read, MISSING if there is none. Drop an entry with another value, and do not
        store what is being loaded: which of the values is newer is not known."""
        self._loads.read_beside(self._keys.adapt(key), value)

    def get_stale(self, key: Hashable, default: Any = None) -> Any:
        """The value of ``key``, within its grace, though it may be old: for when there is no other to be had."""
        return self._loads.get_stale(self._keys.adapt(key), default)

    def _request(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> LoadRequest:
        plain = self._keys.adapt(key)
        # A wrong TTL is better known before the load than after it.
        seconds = self.seconds(ttl)
        self._notes.noted(plain)
        return LoadRequest(plain, key, loader, seconds, policy)

    def _adapted(self, keys: Iterable[Any]) -> dict[Any, Any]:
        """The callers' keys, by those of the core."""
        adapted = {self._keys.adapt(key): key for key in keys}
        for key in adapted:
            self._notes.noted(key)
        return adapted
