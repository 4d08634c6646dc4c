"""Loading for the callers' keys and TTLs, for ``take`` and ``memoize``, the backends and the near cache."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Any

from wheelcache import options
from wheelcache.core.access import DEFAULT_TTL, MAX_FAST_TTL, TTL
from wheelcache.core.contract import MISSING
from wheelcache.keys import KeyProxies
from wheelcache.loading.background import BACKGROUND
from wheelcache.loading.loads import Loads
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.request import LoadRequest
from wheelcache.loading.steps import Steps
from wheelcache.runtime.clock import Clock


class KeyLoading:
    """The loads of one cache.

    Args:
        loads: loads by the keys of the core, with TTLs in seconds.
        keys: adapts the callers' keys.
        ttl: the seconds of DEFAULT_TTL; None for forever.
        noted: forgets that a key was missed. The load answers the miss, so a later ``set`` by the caller is news.
        now: the clock by which entries expire.

    Attributes:
        now: see above.
    """

    __slots__ = ("_keys", "_noted", "_ttl", "loads", "now")

    def __init__(
        self, loads: Loads, keys: KeyProxies, ttl: float | None, noted: Callable[[Any], object], now: Clock
    ) -> None:
        self.loads = loads
        self._keys = keys
        self._ttl = ttl
        self._noted = noted
        self.now = now

    def seconds(self, ttl: TTL) -> float | None:
        """Return ``ttl`` in seconds; None for forever.

        Raises:
            TypeError, ValueError: if ``ttl`` is neither a number of seconds > 0 nor None.
        """
        if ttl is DEFAULT_TTL:
            return self._ttl
        if type(ttl) is int and 0 < ttl < MAX_FAST_TTL:
            return ttl
        return options.ttl("ttl", ttl)

    def load(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> Steps:
        """Return the value of ``key``, after a ``find`` that missed. In a task, an awaitable result of ``loader()`` is
        awaited."""
        return self.loads.load(self.request(key, loader, ttl, policy))

    def load_apart(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> Steps:
        """``load`` for callers that share their flights with each other and not with the callers of ``load``.

        ``loader()`` returns an ``Unstored``. A write of ``key`` outdates its value, as it does in ``load``.
        """
        request = self.request(("load", key), loader, ttl, policy)
        request.watched = self._keys.adapt(key)
        return self.loads.load(request)

    def go_on(self, key: Hashable, found: Any, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> Steps:
        """Return the value of ``key``, for which a ``find`` returned ``found``: load it if that is MISSING, otherwise
        refresh it."""
        if found is MISSING:
            return (yield from self.load(key, loader, ttl, policy))
        self.loads.refresh(self.request(key, loader, ttl, policy), (yield BACKGROUND))
        return found, None

    def load_many(self, keys: Iterable[Any], loader: Callable[[list[Any]], Any], ttl: TTL, policy: LoadPolicy) -> Steps:
        """Return the result of ``loader(keys)``, called once, without a look at the entries. Store its values, except
        for keys that other callers are loading."""
        adapted = {self._keys.adapt(key): key for key in keys}
        for key in adapted:
            self._noted(key)
        return self.loads.load_many(adapted, loader, self.seconds(ttl), policy)

    def needs_refresh(self, key: Hashable, value: Any, ttl: TTL, policy: LoadPolicy) -> bool:
        """Return whether ``value``, which a look-up has found, is past the policy's ``refresh_ahead`` of its TTL."""
        if policy.refresh_ahead is None:
            return False
        return self.loads.needs_refresh(self._keys.adapt(key), value, self.seconds(ttl), policy)

    def read_beside(self, key: Hashable, value: Any) -> None:
        """Compare the entry with ``value``, which was read from the source of the loaders, or MISSING. Drop an entry
        with another value, and do not store a value that is being loaded, since either may be the older one."""
        self.loads.read_beside(self._keys.adapt(key), value)

    def get_stale(self, key: Hashable, default: Any = None) -> Any:
        """Return the value of ``key`` within its grace, though it may be old, for an outage of its source."""
        return self.loads.get_stale(self._keys.adapt(key), default)

    def request(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> LoadRequest:
        """Return a request for ``Loads``. Check the TTL before the load, not after it."""
        plain = self._keys.adapt(key)
        seconds = self.seconds(ttl)
        self._noted(plain)
        return LoadRequest(plain, key, plain, loader, seconds, policy)
