"""The cache: a facade over a core and the parts around it. It owns them, and has no feature of its own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from math import inf
from pathlib import Path
from typing import Any, Unpack

from wheelcache import options
from wheelcache.cache_options import CacheOptions, checked_options
from wheelcache.cache_parts import CacheParts
from wheelcache.core import CacheAccess
from wheelcache.core.access import DEFAULT_TTL, MAX_FAST_TTL, TTL
from wheelcache.core.contract import ABSENT, MISSING, STORED
from wheelcache.errors import MissingKey, Unloaded
from wheelcache.keys import unwrap
from wheelcache.leases.fill_scope import current_scope
from wheelcache.loading.fill_times import FillTimes
from wheelcache.loading.memoize import F, Memoized, memoizer
from wheelcache.loading.policy import LoadPolicy, PolicyArguments, load_policy
from wheelcache.loading.steps import StepsTo, drive, drive_async, run, run_async
from wheelcache.observability.observed import observed_caches, registry
from wheelcache.observability.observers import ObservedStore, Observer
from wheelcache.option_table import ENGINE
from wheelcache.runtime.clock import Clock
from wheelcache.stats import Stats
from wheelcache.writing.entry_writer import batched
from wheelcache.writing.removal_listener import Listener


class _Default(Enum):
    RAISE = "raise MissingKey"

    def __repr__(self) -> str:
        return self.value


class Cache(CacheAccess):
    """A bounded map in memory whose entries expire on time, safe under threads and forks.

    Its arguments are the fields of ``CacheOptions``. Keys are hashable. Values are kept by reference. ``len`` counts
    what is in memory, which may for one interval include entries that are expired and no longer returned. No read
    removes one. Every method but a hit or a miss of ``get`` takes the lock of the core, for a bounded time, and never
    while a loader, a listener, a weigher or a key's own code runs.

    Raises:
        TypeError, ValueError, FileUnusable: (a RuntimeError) naming the argument.
    """

    __slots__ = ("_gate", "_keys", "_parts", "_writer", "keeper", "loading", "name")

    def __init__(self, name: str = ENGINE["name"].default, **given: Unpack[CacheOptions]) -> None:
        parts = CacheParts(checked_options(name, given))
        self.name = name
        self.loading = parts.loading
        self.keeper = parts.keeper
        self._bind(parts.core, parts.writer)
        self._ttl = parts.options.ttl
        self._parts = parts
        self._gate, self._keys, self._writer = parts.gate, parts.keys, parts.writer
        parts.start()
        registry.add(self)

    # Entries.

    def __repr__(self) -> str:
        return f"<Cache {self.name!r}, {len(self)} entries>"

    def __len__(self) -> int:
        return len(self._core)

    def __contains__(self, key: Hashable) -> bool:
        self._gate.open()
        return self._writer.times(self._adapt(key)) is not None

    def get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """The values of those keys that are there. One step of the core for every 1,024 keys."""
        self._gate.open()
        found: dict[Any, Any] = {}
        for batch in batched((key, self._adapt(key)) for key in keys):
            found.update(self._writer.get_many(batch))
        return found

    def keys(self) -> list[Any]:
        """The keys that are there, least recently used first. A snapshot."""
        self._gate.open()
        return [unwrap(key) for key in (*self._core.keys(),)]

    def expires_in(self, key: Hashable) -> float | None:
        """Seconds until an entry expires; None if it never does.

        Raises:
            MissingKey: (a KeyError) the key isn't there.
        """
        self._gate.open()
        times = self._writer.times(self._adapt(key))
        if times is None:
            raise MissingKey(key)
        return None if times.fresh_until == inf else times.fresh_until - self._core.now()

    def add(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL) -> bool:
        """Store ``value`` unless the key is there. Whether it was stored.

        The TTL is kept exactly, as locks, rate windows and one-time codes need it: no jitter.
        """
        self._gate.open()
        key = self._adapt(key)
        seconds = self.loading.seconds(ttl)
        seen = self._writer.stamps.noted(key)
        return bool(self._writer.set(key, value, seconds, exact=True, mode=ABSENT, seen=seen) & STORED)

    def set_many(self, values: Mapping[Any, Any], ttl: TTL = DEFAULT_TTL, *, jitter: bool = True) -> list[Any]:
        """``set`` for many. The keys that were not stored. One step of the core for every 1,024 keys.

        Args:
            jitter: False to keep the TTL exactly, as ``add`` does.
        """
        self._gate.open()
        seconds = self.loading.seconds(ttl)
        refused = []
        for batch in batched(values.items()):
            items = [(self._adapt(key), value) for key, value in batch]
            outcomes = self._writer.set_many(items, seconds, exact=not jitter)
            refused += [key for (key, _), outcome in zip(batch, outcomes, strict=True) if not outcome & STORED]
        return refused

    def touch(self, key: Hashable, ttl: TTL = DEFAULT_TTL) -> bool:
        """Give an entry a new TTL from now, exactly, without jitter. False if the key isn't there."""
        self._gate.open()
        key = self._adapt(key)
        return self._writer.touch(key, self.loading.seconds(ttl))

    def renew(self, key: Hashable, value: str | bytes, ttl: TTL = DEFAULT_TTL) -> bool:
        """Give an entry that has ``value`` already a new TTL from now, exactly. False if there is none.

        Unlike ``touch``, this is no news: it leaves the entries of other processes as they are.
        """
        self._gate.open()
        return self._writer.renew(self._adapt(key), value, self.loading.seconds(ttl))

    def incr(self, key: Hashable, delta: Any = 1) -> Any:
        """Add ``delta`` to a value, keep its expiry, and return the sum. Atomic.

        Raises:
            MissingKey: (a KeyError) the key isn't there.
            TypeError: the value and ``delta`` don't add up.
        """
        return self.update(key, lambda value: value + delta)

    def update(self, key: Hashable, function: Callable[[Any], Any]) -> Any:
        """Put ``function(value)`` in the place of a value, keep its expiry, and return the new value. Atomic.

        ``function`` runs without a lock, and once more if another caller wrote the key meanwhile.

        Raises:
            MissingKey: (a KeyError) the key isn't there.
        """
        self._gate.open()
        value = self._writer.update(self._adapt(key), function)
        if value is MISSING:
            raise MissingKey(key)
        return value

    def pop(self, key: Hashable, default: Any = _Default.RAISE) -> Any:
        """Remove an entry and return its value, or ``default``.

        Raises:
            MissingKey: (a KeyError) the key isn't there and no ``default`` was given.
        """
        value = self._delete(key)
        if value is not MISSING:
            return value
        if default is _Default.RAISE:
            raise MissingKey(key)
        return default

    def delete_many(self, keys: Iterable[Hashable]) -> int:
        """``delete`` for many. How many were there. One step of the core for every 1,024 keys."""
        self._gate.open()
        return self._writer.delete_many([self._adapt(key) for key in keys])

    def delete_group(self, name: str) -> int:
        """Delete every key that is a tuple whose first item is ``name``. How many were there."""
        self._gate.open()
        return self._parts.delete_group(name)

    def evict_to(self, size: int) -> None:
        """Evict the least recently used entries until at most ``size``, an int >= 0, are left. Loads no snapshot."""
        with suppress(Unloaded):
            self._writer.evict_to(options.whole("size", size))

    def clear(self) -> None:
        """Remove every entry. A listener is told of each before this returns, but of those few that another thread,
        which writes or advances the wheel, takes out of memory meanwhile: that thread tells of them."""
        self.clear_for("")

    def clear_for(self, by: str | None) -> None:
        """``clear``, which the recent events ascribe to ``by``, not to the code of the site. None if they are not to
        tell of it."""
        self._parts.clear()
        if by is not None:
            self._parts.observer.events.note_clear(by)

    @property
    def on_removal(self) -> Listener | None:
        """The listener, which may be set, and set to None, at any time."""
        function: Listener | None = self._writer.listener.function
        return function

    @on_removal.setter
    def on_removal(self, function: Listener | None) -> None:
        self._writer.listen(function)

    # Loading.

    def take(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL = DEFAULT_TTL,
        **given: Unpack[PolicyArguments],
    ) -> Any:
        """The value of ``key``; if it is missing, what ``loader()`` returns, which is stored.

        However many threads and tasks miss a key together, one runs its loader, and the others get its value or its
        exception. A failed load stores nothing. If the key is set or deleted meanwhile, the loaded value is for the
        callers that waited by then, and is not stored.

        Args:
            grace: seconds past its TTL for which the value may still be returned while one refresh in the background
                loads it anew. If that fails, the next caller gets what the loader raises.
            refresh_ahead: a fraction of ``ttl``. The first hit past it starts a refresh.
            fail_safe: if a refresh fails, the stale value is returned on, within its grace; the next try waits for 1
                second, then 2, 4 ... 60. Needs ``grace``.
            timeout: seconds to wait for a load, which runs in another thread, one of at most 32. After that the caller
                gets the stale value, if there is one; the load goes on, and its value is stored. Where the system
                refuses threads, the caller loads, for as long as it takes.
            negative_ttl: seconds to remember that the loader returned None, in place of ``ttl`` and without grace.

        Raises:
            LoadDeadlock: the loader takes, itself or through other loaders, the key it is loading.
            LoadTimeout: (a TimeoutError) the timeout passed, and there is no stale value.
        """
        found = self.find(key, MISSING)
        if found is not MISSING and not given and (ttl is DEFAULT_TTL or (type(ttl) is int and 0 < ttl < MAX_FAST_TTL)):
            return found
        wanted = self._policy_of_load(key, found, ttl, given)
        return found if wanted is None else run(self.loading.go_on(key, found, loader, ttl, wanted))

    async def atake(
        self,
        key: Hashable,
        loader: Callable[[], Any] | Callable[[], Awaitable[Any]],
        ttl: TTL = DEFAULT_TTL,
        **given: Unpack[PolicyArguments],
    ) -> Any:
        """``take`` for coroutines: what ``loader()`` returns is awaited if it can be, and waiting blocks no loop.

        Refreshes, and loads with a timeout, are tasks of the caller's event loop.
        """
        found = self.find(key, MISSING)
        if found is not MISSING and not given and (ttl is DEFAULT_TTL or (type(ttl) is int and 0 < ttl < MAX_FAST_TTL)):
            return found
        wanted = self._policy_of_load(key, found, ttl, given)
        return found if wanted is None else await run_async(self.loading.go_on(key, found, loader, ttl, wanted))

    def memoize(
        self,
        ttl: TTL = DEFAULT_TTL,
        *,
        key: Callable[..., Hashable] | None = None,
        **given: Unpack[PolicyArguments],
    ) -> Callable[[F], Memoized[F]]:
        """A decorator that caches what a function, method or coroutine function returns, by its arguments.

        Calls that mean the same share a value, however they spell it. Arguments that are equal are the same, as in
        ``functools.lru_cache``. An instance is an argument like any other. A function that is decorated anew, such as
        one inside another function, begins anew. See ``memoize.Memoized`` for what a decorated function has.

        Args:
            ttl, grace, refresh_ahead, fail_safe, timeout, negative_ttl: as for ``take``.
            key: ``key(*args, **kwargs)``, the part of the key that the arguments make, in place of the arguments.

        Raises:
            TypeError, ValueError: naming the argument; or what is decorated is no function, or makes generators.
        """
        if callable(ttl):
            raise TypeError(f"memoize is called before it decorates: @cache.memoize(), not @cache.memoize on {ttl!r}")
        self.loading.seconds(ttl)
        return memoizer(self, ttl, options.function_or_none("key", key), load_policy(given))

    def group(self, name: str) -> str:
        """The group of the keys of a function called ``name``: see ``Groups.add``."""
        return self._parts.groups.add(name)

    # Leases.

    def get_or_lease(self, key: Hashable, default: Any = None, *, wait: float, may_wait: bool = True) -> Any:
        """``get`` for a caller that sets what it misses: of the callers that miss a key at once, one gets ``default``
        and a lease, and the others wait for the value that it sets.

        If the holder deletes the key, its request ends, or ``wait`` is over, one waiter gets ``default`` and the lease.
        A caller that holds a lease, runs a loader, or runs under an event loop never waits. See ``fill_leases``.

        Args:
            wait: seconds > 0, at most.
            may_wait: False where the holder of the lease may need the very thread that would wait.
        """
        found = drive(self.leased(key, wait, may_wait))
        return default if found is MISSING else found

    async def aget_or_lease(self, key: Hashable, default: Any = None, *, wait: float) -> Any:
        """``get_or_lease`` for coroutines: they wait without stopping their event loop. A lease is the task's."""
        found = await drive_async(self.leased(key, wait))
        return default if found is MISSING else found

    def leased(self, key: Hashable, wait: float, may_wait: bool = True) -> StepsTo[Any]:
        """The steps of ``get_or_lease``, which returns what they do; MISSING in place of ``default``."""
        self._gate.open()
        return self._parts.leased.get(self._adapt(key), options.seconds("wait", wait), may_wait)

    def is_leased(self, key: Hashable) -> bool:
        """Whether the running thread or task has a lease on ``key``."""
        return self._parts.leases.is_of(self._adapt(key), current_scope())

    @property
    def fill_times(self) -> FillTimes:
        """What a backend tells of its misses and writes, to time what callers compute in between."""
        return self._parts.fill_times

    def fill_lease(self, key: Hashable, value: Any) -> None:
        """Give ``value`` to the callers that wait for a lease on ``key``, without storing it."""
        self._parts.leases.fill(self._adapt(key), value)

    # Beside a store that this cache is in front of.

    def invalidate(self, key: Hashable) -> None:
        """``delete``, because ``key`` was written in the store: a caller that waits for a lease may find it there."""
        self._parts.leases.refuse(self._adapt(key))
        self.delete(key)

    def discard_stale(self, key: Hashable) -> None:
        """``key`` is gone from the store: what was kept of it past its time is dropped."""
        self._writer.discard(self._adapt(key))

    def weigh(self, key: Hashable, value: Any) -> int:
        """What an entry of ``key`` and ``value`` weighs; 0 without a weigher."""
        return self._writer.weigh(self._adapt(key), value)

    def count_miss(self) -> None:
        """A caller had to look elsewhere, without looking here."""
        self._core.count(misses=1)

    def observe_store(self, store: ObservedStore) -> None:
        """Tell the figures of ``store``, whose copies are here, with those of this cache."""
        self._parts.observe_store(store)

    # Files.

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        secret: str | bytes | None = None,
        seconds: float | None = None,
    ) -> int:
        """Write all entries to a file, with the time they have left, in the order of their use. How many.

        It pickles without a lock. What is written meanwhile may be in the file or not. Left out are values that cannot
        be pickled, which is logged, and those of functions whose name may mean another one in another process.

        Args:
            path: of the file, which is replaced when all is written and synced.
            secret: what the file is signed with.
            seconds: the longest it may take.

        Raises:
            OSError: the file cannot be written, or (a TimeoutError) ``seconds`` have passed. Nothing is left of it.
            RuntimeError: another save of this cache is in progress.
            CacheClosed: the cache was closed, perhaps meanwhile. Nothing is left of the file.
            SnapshotRefused: this is Windows.
        """
        self._gate.open()
        return self._parts.snapshots.save(path, secret=secret, seconds=seconds)

    def load(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Restore the entries of a file that ``save`` wrote, except those that have expired since. How many.

        They come in the order of their use. What is here already stays. If there is not room for all, the most recently
        used come. A coherent cache takes those that no process has written since. A file that is damaged, foreign, or
        not this user's own to write, is renamed to ``<name>.refused``, and one warning says why. A missing one is no
        error.

        Args:
            secret: what the file must have been signed with.

        Raises:
            TypeError, ValueError: naming the argument.
            CacheClosed: the cache was closed.
        """
        self._gate.open()
        return self._parts.snapshots.load(Path(path), options.secret_or_none("secret", secret))

    # Figures.

    def stats(self) -> Stats:
        """The figures since the cache was made."""
        self._gate.open()
        return self._parts.observer.stats()

    @property
    def observer(self) -> Observer:
        """The figures beyond ``stats()``, published or not, the recent events, and the requests of operators."""
        return self._parts.observer

    @property
    def lag(self) -> float:
        """Seconds since the wheel should have been advanced; 0.0 if it need not be."""
        return self._parts.driver.lag

    @property
    def thread_state(self) -> str:
        """That of what advances the wheel: see ``WheelThread.state``."""
        return self._parts.driver.thread_state

    @property
    def steady(self) -> Clock:
        """The clock that was given, which no test freezes."""
        return self._parts.driver.clock

    @property
    def is_coherent(self) -> bool:
        """Whether the cache learns of what other processes write."""
        return self._writer.stamps.are_there

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._gate.is_closed

    def is_in_use(self) -> bool:
        """Whether it was used, and not closed since."""
        return self._gate.is_in_use()

    # The end.

    def close(self) -> None:
        """Drop all entries and leave the wheel thread. May be called again; reads and writes raise CacheClosed."""
        if not self._parts.is_closed:
            self._parts.close()

    # Below: for the calls above.

    def _policy_of_load(self, key: Any, found: Any, ttl: TTL, given: PolicyArguments) -> LoadPolicy | None:
        """By which ``key`` is to be loaded; None if ``found`` will do. What is wrong is wrong for a hit, too."""
        self.loading.seconds(ttl)
        policy = load_policy(given)
        return policy if found is MISSING or self.loading.needs_refresh(key, found, ttl, policy) else None

    def _adapt(self, key: Any) -> Any:
        return key if type(key) is str else self._keys.adapt(key)

    def _set(self, key: Any, value: Any, ttl: TTL) -> bool:
        self._gate.open()
        key = self._adapt(key)
        seconds = self.loading.seconds(ttl)
        return bool(self._writer.set(key, value, seconds, seen=self._writer.stamps.noted(key)) & STORED)

    def _delete(self, key: Any) -> Any:
        self._gate.open()
        return self._writer.delete(self._adapt(key))

    def _load_snapshot(self) -> None:
        self._gate.open()


def caches() -> list[Cache]:
    """The caches of this process that are in use, oldest first."""
    return [cache for cache in observed_caches() if isinstance(cache, Cache)]
