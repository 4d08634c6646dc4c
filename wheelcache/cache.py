"""The cache: a facade over a core and the parts around it. It owns them, and has no feature of its own."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from enum import Enum
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from wheelcache import options
from wheelcache.cache_parts import CacheParts
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.core import CacheAccess
from wheelcache.core.access import DEFAULT_TTL, TTL
from wheelcache.core.contract import ABSENT, MISSING, STORED, Times
from wheelcache.errors import MissingKey
from wheelcache.keys import unwrap
from wheelcache.loading.memoize import F, Memoized, memoizer
from wheelcache.loading.policy import PLAIN, load_policy
from wheelcache.loading.steps import drive, drive_async, run, run_async
from wheelcache.observability.observed import observed_caches, registry
from wheelcache.observability.observers import Observer
from wheelcache.option_table import ENGINE
from wheelcache.persistence.autosave import Autosave
from wheelcache.runtime.clock import Clock
from wheelcache.stats import Stats
from wheelcache.writing.entry_writer import Weigher
from wheelcache.writing.removal_listener import Listener


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
    >>> cache.take("user:8", lambda: "Grace")  # loads a missing value once, however many threads ask for it
    'Grace'

    Keys are hashable. Values are kept by reference. ``len`` counts the entries in memory, which may for one interval
    include expired ones, although no read returns them. Reading removes nothing. Every method except a hit or a miss of
    ``get`` acquires the lock of the core for a bounded time, and never while a loader, a listener, a weigher or a key's
    own code runs.

    Args:
        name: names the cache in log lines and figures.
        max_entries: the most entries it holds; None for no bound. The least recently used leave first.
        max_weight: the most that the weights of all entries may add up to; needs ``weigher``.
        weigher: ``weigher(key, value)`` returns the weight of an entry, an int >= 0.
        ttl: seconds until an entry expires, unless ``set`` is given another TTL; None for never.
        jitter: every TTL is shortened by a random fraction of at most ``jitter``, and by at most 60 seconds, so that
            entries that were set together do not expire together. ``add`` and ``touch`` keep their TTL exactly.
        interval: seconds per tick of the wheel: how soon an expired entry leaves memory. Reads are exact regardless.
        log_interval: seconds between lines on the logger ``wheelcache.stats``; None for no lines.
        sample_interval: seconds between looks at the memory that the entries take, where nothing is published; None for
            no such looks, and no steps for charts.
        figures_dir: the directory in which the processes of a site publish their figures; None to publish none.
        snapshot_dir: the directory in which the entries are kept from one process to the next; None to keep none. They
            are loaded by the first call that reads, writes or counts entries (``stats``), but not by ``len``, ``clear``
            or decorating a function.
        snapshot_interval: seconds between two saves of the entries.
        snapshot_key: signs the snapshots; None for no signature.
        on_removal: ``on_removal(key, value, cause)`` is called for every entry that leaves, without a lock, by the
            thread that removed it. An exception in it is logged with the key. Also an attribute, which may be set at
            any time.
        stamps: notify this cache of writes by other processes of the machine, and them of its own, by key, so that no
            old value is returned after a write elsewhere. Keys are then strings, or tuples of values that look the
            same in every process. Each cache needs an object of its own.
        clock: returns seconds. Moving a ``ManualClock`` advances the wheel; with any other clock, a thread does.

    Attributes:
        name: see above.
        parts: for backends and operators' tools: see ``cache_parts``. It may change from release to release.

    Raises:
        TypeError, ValueError, FileUnusable: (a RuntimeError) naming the argument, the value and the values it accepts.
    """

    __slots__ = ("_gate", "_writer", "name", "parts")

    def __init__(
        self,
        name: str = ENGINE["name"].default,
        *,
        max_entries: int | None = ENGINE["max_entries"].default,
        max_weight: int | None = ENGINE["max_weight"].default,
        weigher: Weigher | None = ENGINE["weigher"].default,
        ttl: float | None = ENGINE["ttl"].default,
        jitter: float = ENGINE["jitter"].default,
        interval: float = ENGINE["interval"].default,
        log_interval: float | None = ENGINE["log_interval"].default,
        sample_interval: float | None = ENGINE["sample_interval"].default,
        figures_dir: Path | None = ENGINE["figures_dir"].default,
        snapshot_dir: Path | None = ENGINE["snapshot_dir"].default,
        snapshot_interval: float = ENGINE["snapshot_interval"].default,
        snapshot_key: str | bytes | None = ENGINE["snapshot_key"].default,
        on_removal: Listener | None = ENGINE["on_removal"].default,
        stamps: Stamps | None = ENGINE["stamps"].default,
        clock: Clock = ENGINE["clock"].default,
    ) -> None:
        # These are the arguments, by name.
        given = {name: value for name, value in locals().items() if name != "self"}
        checked = SimpleNamespace(**ENGINE.checked(given))
        if (max_weight is None) != (weigher is None):
            raise TypeError("max_weight and weigher must be given together")
        parts = CacheParts(checked)
        self.name = name
        self._bind(parts.core, parts.writer)
        self._ttl = parts.options.ttl
        self.parts = parts
        self._gate, self._writer = parts.gate, parts.writer
        parts.start()
        registry.add(self)

    # Entries.

    def __repr__(self) -> str:
        return f"<Cache {self.name!r}, {len(self)} entries>"

    def __len__(self) -> int:
        return len(self._core)

    def __contains__(self, key: Hashable) -> bool:
        return self._times(key) is not None

    def keys(self) -> list[Any]:
        """Return the keys of the entries, least recently used first. A snapshot."""
        self._gate.open()
        return [unwrap(key) for key in (*self._core.keys(),)]

    def expires_in(self, key: Hashable) -> float | None:
        """Return the seconds until an entry expires; None if it never does.

        Raises:
            MissingKey: (a KeyError) the key is not there.
        """
        times = self._times(key)
        if times is None:
            raise MissingKey(key)
        return None if times.fresh_until == inf else times.fresh_until - self._core.now()

    def update(self, key: Hashable, function: Callable[[Any], Any]) -> Any:
        """Replace a value by ``function(value)``, keep its expiry, and return the new value. Atomic.

        ``function`` runs without a lock, and once more if another caller writes the key at the same time.

        Raises:
            MissingKey: (a KeyError) the key is not there.
        """
        value = self._writer.update(key, function)
        if value is MISSING:
            raise MissingKey(key)
        return value

    def pop(self, key: Hashable, default: Any = _Default.RAISE) -> Any:
        """Remove an entry and return its value, or ``default``.

        Raises:
            MissingKey: (a KeyError) the key is not there and no ``default`` was given.
        """
        value = self._delete(key)
        if value is not MISSING:
            return value
        if default is _Default.RAISE:
            raise MissingKey(key)
        return default

    def delete_many(self, keys: Iterable[Hashable]) -> int:
        """``delete`` for many. Return how many were there."""
        return self._writer.delete_many(keys)

    def delete_group(self, name: str) -> int:
        """Delete every key that is a tuple whose first item is ``name``, as those of a memoized function, in one step.

        Return how many entries were in memory, as ``len`` counts them. A listener is notified of each before this
        returns; without one, the wheel thread gives their memory back.
        """
        return self.parts.delete_group(name)

    def clear(self) -> None:
        """Remove every entry. The listener is called for every entry before this returns, except for the few entries
        that another thread is removing at the same time: that thread calls it."""
        self.parts.clear_for("")

    @property
    def on_removal(self) -> Listener | None:
        """The listener. It may be set, also to None, at any time."""
        function: Listener | None = self._writer.listener.function
        return function

    @on_removal.setter
    def on_removal(self, function: Listener | None) -> None:
        self._writer.listen(function)

    # Loading.

    async def atake(
        self,
        key: Hashable,
        loader: Callable[[], Any] | Callable[[], Awaitable[Any]],
        ttl: TTL = DEFAULT_TTL,
        *,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        timeout: float | None = None,
        negative_ttl: float | None = None,
    ) -> Any:
        """``take`` for coroutines: an awaitable that ``loader()`` returns is awaited, and waiting blocks no event loop.

        Refreshes, and loads with a timeout, are tasks of the caller's event loop.
        """
        found = self.find(key, MISSING)
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        loads = self.parts.loads
        if found is not MISSING and policy is PLAIN and ttl is DEFAULT_TTL:
            return found
        if found is not MISSING and not loads.needs_refresh(key, found, ttl, policy):
            return found
        return await run_async(loads.load_or_refresh(key, found, loader, ttl, policy))

    def memoize(
        self,
        ttl: TTL = DEFAULT_TTL,
        *,
        key: Callable[..., Hashable] | None = None,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        timeout: float | None = None,
        negative_ttl: float | None = None,
    ) -> Callable[[F], Memoized[F]]:
        """Return a decorator that caches the results of a function, method or coroutine function by its arguments.

        Calls that mean the same share a value, however they spell it. Equal arguments are the same, as in
        ``functools.lru_cache``. An instance is an argument like any other. A function that is decorated again, such as
        one inside another function, starts without values. ``memoize.Memoized`` describes a decorated function.

        Args:
            ttl, grace, refresh_ahead, fail_safe, timeout, negative_ttl: as for ``take``.
            key: ``key(*args, **kwargs)`` returns the part of the key that stands for the arguments.

        Raises:
            TypeError, ValueError: naming the argument; or if the decorated object is not a function, or a generator.
        """
        if callable(ttl):
            raise TypeError(f"memoize is called before it decorates: @cache.memoize(), not @cache.memoize on {ttl!r}")
        self._writer.seconds(ttl)
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        parts, key = self.parts, options.function_or_none("key", key)
        return memoizer(self, parts.loads, parts.groups, self.delete_group, ttl, key, policy)

    # Leases.

    def get_or_lease(self, key: Hashable, default: Any = None, *, wait: float, may_wait: bool = True) -> Any:
        """``get`` for a caller that sets a missing value: of the callers that miss a key together, one gets ``default``
        and a lease, and the others wait for the value that it sets.

        If the holder deletes the key, its request ends, or ``wait`` is over, one waiter gets ``default`` and the lease.
        A caller that holds a lease, runs a loader, or runs under an event loop never waits. See ``fill_leases``.

        Args:
            wait: the most seconds to wait, > 0.
            may_wait: False if the holder of the lease may need the very thread that would wait.
        """
        found = drive(self.parts.look_up_leased(key, wait, may_wait))
        return default if found is MISSING else found

    async def aget_or_lease(self, key: Hashable, default: Any = None, *, wait: float) -> Any:
        """``get_or_lease`` for coroutines: they wait without stopping their event loop. The task has the lease."""
        found = await drive_async(self.parts.look_up_leased(key, wait))
        return default if found is MISSING else found

    # Files.

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        secret: str | bytes | None = None,
        seconds: float | None = None,
    ) -> int:
        """Write all entries to a file, with the time they have left, in the order of their use. Return their number.

        It pickles without a lock. Entries that are written at the same time may be in the file or not. Left out are
        values that cannot be pickled, which is logged, and values of functions whose name may mean another function in
        another process.

        Args:
            path: the path of the file, which is replaced when all is written and synced.
            secret: signs the file.
            seconds: the longest time that the call may take.

        Raises:
            OSError: the file cannot be written, or (a TimeoutError) ``seconds`` have passed. Nothing is left of it.
            RuntimeError: another save of this cache is in progress.
            CacheClosed: the cache was closed, perhaps during the save. Nothing is left of the file.
            SnapshotRefused: this is Windows.
        """
        self._gate.open()
        return self.parts.snapshots.save(path, secret=secret, seconds=seconds)

    def load(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Restore the entries of a file that ``save`` wrote, except expired ones. Return their number.

        They come in the order of their use. Existing entries stay. If there is not room for all, the most recently used
        ones come. A coherent cache restores only entries that no process has written since. A file that is damaged,
        foreign, or writable by another user is renamed to ``<name>.refused``, and one warning gives the reason. A
        missing file is no error.

        Args:
            secret: must be the secret that signed the file.

        Raises:
            TypeError, ValueError: naming the argument.
            CacheClosed: the cache was closed.
        """
        self._gate.open()
        return self.parts.snapshots.load(options.encodable_path("path", path), options.secret_or_none("secret", secret))

    # Figures.

    def stats(self) -> Stats:
        """Return the figures since the cache was made."""
        self._gate.open()
        return self.parts.observer.stats()

    @property
    def observer(self) -> Observer:
        """The published and other figures beyond ``stats()``, the recent events, and the requests of operators."""
        return self.parts.observer

    @property
    def keeper(self) -> Autosave | None:
        """Saves the entries and loads them, if there is a ``snapshot_dir``."""
        return self.parts.keeper

    @property
    def is_closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._gate.is_closed

    # The end.

    def close(self) -> None:
        """Drop all entries and leave the wheel thread. Later reads and writes raise CacheClosed; a second close does
        nothing."""
        if not self.parts.is_closed:
            self.parts.close()

    # Below: for the calls above.

    def _take(
        self,
        key: Any,
        found: Any,
        loader: Callable[[], Any],
        ttl: TTL,
        grace: float | None,
        refresh_ahead: float | None,
        fail_safe: bool,
        timeout: float | None,
        negative_ttl: float | None,
    ) -> Any:
        policy = load_policy(grace, refresh_ahead, fail_safe, negative_ttl, timeout)
        loads = self.parts.loads
        if found is not MISSING and not loads.needs_refresh(key, found, ttl, policy):
            return found
        return run(loads.load_or_refresh(key, found, loader, ttl, policy))

    def _adapt(self, key: Any) -> Any:
        return key if type(key) is str else self.parts.keys.adapt(key)

    def _times(self, key: Any) -> Times | None:
        """Return the times of a fresh and current entry."""
        self._gate.open()
        key = self._adapt(key)
        times = self._core.times(key)
        if times is not None and times.is_current and times.fresh_until > self._core.now():
            return times
        self._writer.found_expired(key)
        return None

    def _get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        self._gate.open()
        found: dict[Any, Any] = {}
        misses, hears_misses = 0, self._writer.hears_misses
        # All keys are adapted first: a wrong one changes and counts nothing.
        for caller_key, key in [(key, self._adapt(key)) for key in keys]:
            value = self._core.find(key, MISSING)
            if value is not MISSING:
                found[caller_key] = value
                continue
            misses += 1
            if hears_misses:
                self._writer.missed(key)
        self._core.count(misses=misses)
        return found

    def _set(self, key: Any, value: Any, ttl: TTL) -> bool:
        return bool(self._writer.set(key, value, ttl) & STORED)

    def _add(self, key: Any, value: Any, ttl: TTL) -> bool:
        return bool(self._writer.set(key, value, ttl, exact=True, mode=ABSENT) & STORED)

    def _set_many(self, values: Mapping[Any, Any], ttl: TTL, *, jitter: bool) -> list[Any]:
        return self._writer.set_many(values.items(), ttl, exact=not jitter)

    def _delete(self, key: Any) -> Any:
        return self._writer.delete(key)

    def _touch(self, key: Any, ttl: TTL) -> bool:
        return self._writer.touch(key, ttl)

    def _incr(self, key: Any, delta: Any) -> Any:
        return self.update(key, lambda value: value + delta)

    def _load_snapshot(self) -> None:
        self._gate.open()


def caches() -> list[Cache]:
    """Return the caches of this process that are not closed, oldest first."""
    return observed_caches()
