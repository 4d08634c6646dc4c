"""The cache: a facade over a core and the parts around it, which implement all features."""

from __future__ import annotations

from array import array
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from enum import Enum
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Final, TypeVar, Unpack, overload

from wheelcache.core import CacheAccess
from wheelcache.core.access import DEFAULT_TTL, TTL, Lifetime
from wheelcache.core.contract import MISSING, STORED, Times
from wheelcache.engine import options
from wheelcache.engine.cache_parts import CacheParts, core_in_memory, naming
from wheelcache.engine.calls import Engine
from wheelcache.engine.entry_writer import Listener, Weigher
from wheelcache.engine.keys import unwrap
from wheelcache.engine.loading.memoize import Memoizer, memoizer
from wheelcache.engine.loading.request import LoadOptions, LoadPolicy, LoadRequest, load_policy
from wheelcache.engine.observed import observer_for
from wheelcache.engine.option_table import ENGINE
from wheelcache.engine.stats import Stats
from wheelcache.errors import MissingKey
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.shared_objects import WeakRegistry

R = TypeVar("R")


class GetOrLoadOptions(LoadOptions, total=False):
    """The options of ``get_or_load``."""

    timeout: float | None


class _Default(Enum):
    RAISE = "raise MissingKey"

    def __repr__(self) -> str:
        return self.value


class Cache(CacheAccess):
    """A bounded map in memory whose entries expire on time, safe under threads and forks.

    >>> cache = Cache(max_entries=10_000, ttl=300)
    >>> cache.set("user:7", "Ada")
    True
    >>> cache.get("user:7")
    'Ada'
    >>> cache.get_or_load("user:8", lambda: "Grace")  # one load, however many threads ask
    'Grace'

    Keys must be hashable. Values are kept by reference. ``len`` counts the entries in memory. These include stale
    entries within their grace and, for at most one second, expired entries, which no read returns. Reads remove
    no entries. No lock is held while a loader, a listener, a weigher or the code of a key runs.

    Args:
        name: the name of the cache in log lines and statistics.
        max_entries: the maximum number of entries; None for no bound. The least recently used ones are evicted first.
        policy: "lru", or "adaptive" for a cache that also evicts rarely used entries first, if this gives more hits.
            Then ``keys`` are in the order of this policy. Requires ``max_entries`` and the compiled core;
            the core in Python logs a warning and is "lru".
        max_weight: the maximum sum of the weights of all entries; requires ``weigher``.
        weigher: ``weigher(key, value)`` returns the weight of an entry, an int >= 0.
        ttl: seconds until an entry expires, unless another TTL is passed to ``set``; None for no expiry.
        jitter: every TTL is shortened by a random fraction of at most ``jitter``, and by at most 60 seconds, so that
            entries that were set together do not expire together. ``add`` and ``touch`` keep their TTL exactly.
        figures_dir: the directory in which the processes of a site publish their statistics; None not to publish.
        on_removal: ``on_removal(key, value, cause)`` is called for every removed entry, without a lock, in the thread
            that removed it. Exceptions in it are logged with the key. It is also an attribute, which may be set at any
            time.
        trust: for copies of values in a store: a word that shows whether they may be used, as an ``array("Q")``: while
            it is even, no entry is returned, and when it is odd again, only entries that were stored since.
        clock: returns seconds. Moving a ``ManualClock`` advances the wheel; with any other clock, a thread does.

    Attributes:
        name: see above.
        engine: the calls for layers in front of the cache: see ``engine``.

    Raises:
        TypeError, ValueError: if an argument is invalid. The message names it, the given value and the accepted ones.
        FileUnusable: (a RuntimeError) if a directory cannot be used. The message gives the reason.
    """

    __slots__ = ("_adapt", "_gate", "_load_missed", "_parts", "_writer", "engine", "name")

    _interval: ClassVar[float] = 1.0
    """Seconds per tick of the wheel: how soon an expired entry leaves memory. Reads are always exact."""

    def __init__(
        self,
        name: str = ENGINE["name"].default,
        *,
        max_entries: int | None = ENGINE["max_entries"].default,
        policy: str = ENGINE["policy"].default,
        max_weight: int | None = ENGINE["max_weight"].default,
        weigher: Weigher | None = ENGINE["weigher"].default,
        ttl: float | None = ENGINE["ttl"].default,
        jitter: float = ENGINE["jitter"].default,
        figures_dir: Path | None = ENGINE["figures_dir"].default,
        on_removal: Listener | None = ENGINE["on_removal"].default,
        trust: array[int] | None = ENGINE["trust"].default,
        clock: Clock = ENGINE["clock"].default,
    ) -> None:
        # These are the arguments, by name.
        given = {name: value for name, value in locals().items() if name != "self"}
        checked = SimpleNamespace(**ENGINE.checked(given), interval=self._interval)
        if (max_weight is None) != (weigher is None):
            raise TypeError(f"max_weight and weigher must be given together, not {max_weight!r} and {weigher!r}")
        parts = CacheParts(checked, **self._make_entries(checked))
        self.engine = Engine(parts)
        with naming("figures_dir"):
            observer = observer_for(self.engine.observed)
        if observer is not None:
            parts.observe(observer)
        self.name = name
        self._bind(parts.core, parts.writer)
        self._ttl = parts.options.ttl
        self._parts = parts
        self._adapt = parts.keys.adapt
        self._load_missed = parts.loads.get
        self._gate, self._writer = parts.gate, parts.writer
        parts.start()
        _caches.add(self)

    def _make_entries(self, options: SimpleNamespace) -> dict[str, Any]:
        """Return the arguments of ``CacheParts`` after the options."""
        return {"core": core_in_memory(options)}

    # Entries.

    def __repr__(self) -> str:
        return f"<Cache {self.name!r}, {len(self)} entries>"

    def __len__(self) -> int:
        return len(self._core)

    def __contains__(self, key: Hashable) -> bool:
        return self._times(key) is not None

    def keys(self) -> list[Any]:
        """Return a list of the keys, least recently used first."""
        self._gate.open()
        return [unwrap(key) for key in (*self._core.keys(),)]

    def expires_in(self, key: Hashable) -> float | None:
        """Return the seconds until an entry expires; None if it never does.

        Raises:
            MissingKey: (a KeyError) if there is no such key.
        """
        times = self._times(key)
        if times is None:
            raise MissingKey(key)
        return None if times.fresh_until == inf else times.fresh_until - self._core.now()

    def update(self, key: Hashable, function: Callable[[Any], Any]) -> Any:
        """Atomically replace a value by ``function(value)``, keeping its expiry. Return the new value.

        ``function`` runs without a lock, and again if another caller writes the key at the same time.

        Raises:
            MissingKey: (a KeyError) if there is no such key.
        """
        value = self._writer.update(key, function)
        if value is MISSING:
            raise MissingKey(key)
        return value

    def pop(self, key: Hashable, default: Any = _Default.RAISE) -> Any:
        """Remove an entry and return its value, or ``default``.

        Raises:
            MissingKey: (a KeyError) if there is no such key and no ``default`` is given.
        """
        value = self._delete(key)
        if value is not MISSING:
            return value
        if default is _Default.RAISE:
            raise MissingKey(key)
        return default

    def delete_many(self, keys: Iterable[Hashable]) -> int:
        """Delete many keys. Return the number of existing ones."""
        return self._writer.delete_many(keys)

    def delete_where(self, predicate: Callable[[Any], object]) -> int:
        """Delete every key for which ``predicate(key)`` is true. Return the number of existing ones.

        The keys are read in batches, and ``predicate`` runs without a lock. Every key that exists during the whole call
        is looked at; one that is set meanwhile may be deleted or kept. The result of a load that began before the call
        is not stored.
        """
        options.function("predicate", predicate)
        return sum(self._parts.deletions(lambda keys: filter(predicate, keys)))

    def delete_tags(self, *tags: str) -> None:
        """Delete every entry that was stored with one of the tags, in O(1) per tag.

        The entries of a tag disappear in one step. A value that is being loaded is not stored if one of its tags is
        dropped meanwhile, and callers that ask for it later do not receive it. Within a second, the wheel thread begins
        to free the memory of the entries, and calls the listener with the cause DELETED; until then, ``len`` counts
        them.

        Raises:
            TypeError, ValueError: if a tag is not a string, or is empty.
        """
        self._parts.delete_tags(tags)

    def clear(self) -> None:
        """Remove every entry.

        The listener is called for each entry before this returns, except for the few entries that another thread is
        removing at the same time: that thread calls it.
        """
        self.engine.clear_for("")

    @property
    def on_removal(self) -> Listener | None:
        """The listener. It may be set at any time, also to None."""
        function: Listener | None = self._writer.listener.function
        return function

    @on_removal.setter
    def on_removal(self, function: Listener | None) -> None:
        self._writer.listen(function)

    # Loading.

    take = CacheAccess.get_or_load  # the name in go-zero

    @overload
    async def aget_or_load(
        self,
        key: Hashable,
        loader: Callable[..., Awaitable[R]],
        ttl: Lifetime = DEFAULT_TTL,
        **options: Unpack[GetOrLoadOptions],
    ) -> R: ...
    @overload
    async def aget_or_load(
        self, key: Hashable, loader: Callable[..., R], ttl: Lifetime = DEFAULT_TTL, **options: Unpack[GetOrLoadOptions]
    ) -> R: ...
    async def aget_or_load(
        self,
        key: Hashable,
        loader: Callable[..., Any],
        ttl: Lifetime = DEFAULT_TTL,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: float | None = None,
        timeout: float | None = None,
        negative_ttl: float | None = None,
        tags: Iterable[str] = (),
    ) -> Any:
        """Do the same as ``get_or_load`` without blocking the event loop, and await an awaitable loader's result.

        Refreshes, and loads with a timeout, are tasks of the caller's event loop.
        """
        found, loads = self.find(key, MISSING), self._parts.loads
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        if found is not MISSING and not loads.needs_refresh(key, found, ttl, policy):
            return found
        return await loads.aget(self._request(key, loader, ttl, policy, tags), found)

    def memoize(
        self,
        ttl: Lifetime = DEFAULT_TTL,
        *,
        key: Callable[..., Hashable] | None = None,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: float | None = None,
        timeout: float | None = None,
        negative_ttl: float | None = None,
        tags: Callable[..., Iterable[str]] | Iterable[str] = (),
    ) -> Memoizer:
        """Return a decorator that caches the results of a function, method or coroutine function by its arguments.

        Calls with equal arguments share a value, whether the arguments are positional, by keyword or defaults. Equality
        is that of ``functools.lru_cache``. The instance of a method is an argument like any other. A function that is
        decorated again, such as a function inside another one, starts without values. ``memoize.Memoized`` describes a
        decorated function.

        Args:
            ttl, grace, refresh_ahead, fail_safe, timeout, negative_ttl: as in ``get_or_load``. A function receives the
                previous value, as a loader does there, if it has a keyword-only parameter named ``previous``, which its
                callers do not pass.
            key: ``key(*args, **kwargs)`` returns the part of the key that stands for the arguments.
            tags: the tags of every value, or a function: ``tags(*args, **kwargs)`` returns them. It is called before
                the value is computed.

        Raises:
            TypeError, ValueError: if an argument is invalid, which the message names, or if the decorated object is not
                a function or is a generator function.
        """
        if not callable(ttl):
            ttl = self._writer.seconds(ttl)
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        parts, key = self._parts, options.function_or_none("key", key)
        tags_of = None if tags == () else options.tags_by_arguments("tags", tags)
        return memoizer(self, parts.loads, parts.add_group, ttl, key, policy, tags_of)

    # Figures.

    def stats(self) -> Stats:
        """Return the statistics since the cache was made."""
        self._gate.open()
        return self._parts.stats()

    @property
    def has_shared_entries(self) -> bool:
        """Whether other processes of the machine use the same entries."""
        return False

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._gate.is_closed

    # The end.

    def close(self) -> None:
        """Drop all entries. Later reads and writes raise CacheClosed; a second ``close`` does nothing."""
        if not self._parts.is_closed:
            self._parts.close()

    # Private methods.

    _policy = staticmethod(load_policy)

    def _refreshed(
        self, key: Any, found: Any, loader: Callable[..., Any], ttl: Lifetime, policy: LoadPolicy, tags: Iterable[str]
    ) -> Any:
        loads = self._parts.loads
        if not loads.needs_refresh(key, found, ttl, policy):
            return found
        return loads.get(self._request(key, loader, ttl, policy, tags), found)

    def _request(
        self, key: Any, loader: Callable[..., Any], ttl: Lifetime, policy: LoadPolicy, tags: Iterable[str]
    ) -> LoadRequest:
        ttl = ttl if callable(ttl) else self._writer.seconds(ttl)
        return self._parts.loads.request(key, loader, ttl, policy, () if tags == () else options.tags("tags", tags))

    def _times(self, key: Any) -> Times | None:
        """Return the times of a fresh and current entry."""
        self._gate.open()
        key = self._adapt(key)
        times = self._core.times(key)
        if times is not None and times.is_current and times.fresh_until > self._core.now():
            return times
        self._writer.missed(key)
        return None

    def _get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        self._gate.open()
        found: dict[Any, Any] = {}
        records_misses = self._writer.records_misses
        # All keys are adapted before the first look-up: an invalid key changes and counts nothing.
        for caller_key, key in [(key, self._adapt(key)) for key in keys]:
            value = self._core.find(key, MISSING)
            if value is not MISSING:
                found[caller_key] = value
                continue
            self._core.count_miss(key)
            if records_misses:
                self._writer.missed(key)
        return found

    def _set(self, key: Any, value: Any, ttl: TTL, tags: Iterable[str]) -> bool:
        return bool(self._writer.set(key, value, ttl, tags=options.tags("tags", tags)) & STORED)

    def _add(self, key: Any, value: Any, ttl: TTL, tags: Iterable[str]) -> bool:
        return bool(self._writer.add(key, value, ttl, options.tags("tags", tags)) & STORED)

    def _set_many(self, values: Mapping[Any, Any], ttl: TTL, *, jitter: bool, tags: Iterable[str]) -> list[Any]:
        return self._writer.set_many(values.items(), ttl, exact=not jitter, tags=options.tags("tags", tags))

    def _delete(self, key: Any) -> Any:
        return self._writer.delete(key)

    def _touch(self, key: Any, ttl: TTL) -> bool:
        return self._writer.touch(key, ttl)

    def _incr(self, key: Any, delta: Any) -> Any:
        return self.update(key, lambda value: value + delta)

    def _begin_use(self) -> None:
        self._gate.open()


_caches: Final[WeakRegistry[Cache]] = WeakRegistry()


def caches() -> list[Cache]:
    """Return the caches of this process that are not closed, oldest first."""
    return [cache for cache in _caches if not cache.is_closed]
