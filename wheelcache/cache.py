"""The cache: a bounded map that can be saved, and loading: single flight, stale values, refreshes, leases, memoize."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable
from math import inf
from pathlib import Path
from threading import TIMEOUT_MAX
from typing import Any, Final

from wheelcache import options
from wheelcache.bounded_map import (
    CENTURIES,
    DEFAULT_TTL,
    DELETED,
    EXPIRED,
    MISSING,
    TTL,
    Detached,
    GracedEntry,
    RemovalCause,
    Removals,
    stale_until,
)
from wheelcache.coherence.shared_stamps import NOTHING_SEEN, AnyBoard
from wheelcache.driven import driver_of
from wheelcache.errors import CacheClosed, LoadTimeout, NothingToStore
from wheelcache.isolation import size_of
from wheelcache.keys import original
from wheelcache.leases.fill_leases import Waiter, current_holder
from wheelcache.load_first import LoadFirst, behind
from wheelcache.loading.backoff import Backoff
from wheelcache.loading.memoize import F, Memoized, memoizer
from wheelcache.loading.policy import LoadPolicy, load_policy
from wheelcache.loading.single_flight import Flight, Seat, is_loading
from wheelcache.observability.figures_directory import usable_directory
from wheelcache.observability.history import History
from wheelcache.observability.publisher import Publisher
from wheelcache.observability.stats_log import StatsLog
from wheelcache.observability.worker_requests import CLEAR, LOAD, SAVE, RequestBox, WorkerRequests
from wheelcache.observability.worker_stats import WorkerFigures
from wheelcache.persistence.autosave import SnapshotKeeper
from wheelcache.persistence.snapshot_directory import snapshot_directory_or_none
from wheelcache.runtime.clock import Clock, SystemClock, steady, unfrozen
from wheelcache.runtime.periodic_jobs import PeriodicJob, PeriodicJobs
from wheelcache.runtime.weak_registry import WeakRegistry
from wheelcache.runtime.worker_pool import refresh_pool, timed_load_pool
from wheelcache.saved_map import SavedMap
from wheelcache.stats import LoadTimes, Stats, Tally

logger = logging.getLogger("wheelcache")


@dataclass(slots=True)
class _Load:
    """What is to be loaded: the key, as it is stored and as the user wrote it, and how.

    Attributes:
        stale_hits: counts the stale values that are served, for somebody beside the cache.
        due: of the entry that is to be loaded anew.
        given_up: the caller no longer waits.
    """

    plain: Any
    key: Hashable
    loader: Callable[[], Any]
    ttl: TTL
    policy: LoadPolicy
    stale_hits: Iterator[int] | None = None
    due: float = inf
    given_up: bool = False


def _no_loader() -> Any:
    """Of what was loaded together with others."""


def _seconds_until(deadline: float | None) -> float | None:
    """For waiting, which takes no more than some 292 years."""
    return None if deadline is None else min(max(0.0, deadline - SystemClock.steady()), TIMEOUT_MAX)


def _is_same(one: Any, other: Any) -> bool:
    """Whether two values are known to be equal. They may have an ``__eq__`` of their own."""
    try:
        return one is other or (type(one) is type(other) and bool(one == other))
    except Exception:
        return False


class _NoRoom(Exception):
    """No thread became free in time."""


class Cache(SavedMap):
    """A bounded map in memory whose entries expire on time, safe under threads and forks.

    Args:
        name: what the cache is called in logs.
        max_entries: how many entries it holds at most; None for no bound. The least recently used leave first.
        max_weight: the most that the weights of all entries may add up to; needs ``weigher``.
        weigher: ``weigher(key, value)``, the weight of an entry, an int >= 0.
        ttl: seconds until an entry expires unless ``set`` says otherwise; None for never.
        jitter: every TTL is shortened by a random fraction of at most ``jitter``, and by at most 60 seconds, so that
            what is set together does not expire together. ``add`` and ``touch`` keep theirs exactly.
        interval: seconds a tick of the wheel: how soon an expired entry leaves memory. Reads are exact whatever it is.
        slots: ticks that the wheel's finest level spans.
        log_interval: seconds between lines on the logger ``wheelcache.stats``; None for none.
        sample_interval: seconds between samples of ``stats()``, of which the last 360 are kept; None for none.
        figures_dir: where to publish the figures of this process every three seconds, and see those of the others: see
            ``figures_directory``. None for not.
        snapshot_dir: where to keep the entries from one process to the next: see ``snapshot_keeper``. They are loaded
            when the cache is first used: by whatever asks for an entry, writes one, or counts them (``stats``), but
            not by ``len`` or ``clear``, nor by decorating a function. None for not.
        snapshot_interval: seconds between two saves of them.
        snapshot_key: what these files are signed with; None for no signature.
        on_removal: ``on_removal(key, value, cause)`` for every entry that leaves, called without a lock by the thread
            that removed it. An exception in it is logged with the key. Also an attribute, to be set at any time.
        board: tells this cache what other processes of the machine write, and them what this one does, by key, so that
            no old value is returned after a write elsewhere. Keys are strings, or tuples of what looks the same in
            every process. Each cache needs a board object of its own.
        clock: seconds. With a ``ManualClock``, moving the clock advances the wheel; otherwise a thread does.

    Keys are hashable. Values are kept by reference. ``len`` counts what is in memory, which may for one interval
    include entries that are expired and no longer returned. Every method but a hit of ``get`` takes one lock, for a
    bounded time and never while a loader, a listener, a weigher or a key's own code runs.

    Raises:
        TypeError, ValueError: naming the argument, what it takes and what it got.
        FileUnusable: (a RuntimeError) naming ``figures_dir`` or ``snapshot_dir``, which is not this user's alone, or
            cannot be made.
    """

    __slots__ = (
        "_backoff",
        "_coalesced",
        "_history",
        "_jobs",
        "_load_failures",
        "_load_timeouts",
        "_load_times",
        "_loads",
        "_refreshes",
        "_refreshes_dropped",
        "_refreshing",
        "_requests_seen",
        "_stale_hits",
        "_started",
        "keeper",
        "publisher",
        "requests",
    )

    def __init__(
        self,
        name: str = "default",
        *,
        max_entries: int | None = None,
        max_weight: int | None = None,
        weigher: Callable[[Any, Any], int] | None = None,
        ttl: float | None = None,
        jitter: float = 0.05,
        interval: float = 1.0,
        slots: int = 512,
        log_interval: float | None = 60.0,
        sample_interval: float | None = 10.0,
        figures_dir: Path | None = None,
        snapshot_dir: Path | None = None,
        snapshot_interval: float = 300.0,
        snapshot_key: str | bytes | None = None,
        on_removal: Callable[[Any, Any, RemovalCause], object] | None = None,
        board: AnyBoard | None = None,
        clock: Clock = SystemClock.monotonic,
    ) -> None:
        clock = unfrozen(clock)
        self._backoff = Backoff()
        # The keys of refreshes that wait for a thread or run, and the loops of those that need one.
        self._refreshing: dict[Any, asyncio.AbstractEventLoop | None] = {}
        self._history: History | None = None
        self.publisher: Publisher | None = None
        self.keeper: SnapshotKeeper | None = None
        self.requests: WorkerRequests | None = None
        self._jobs = PeriodicJobs(
            steady(options.function("clock", clock)),
            driver_of(clock),
            self._is_idle,
            [
                *self._log_jobs(options.text("name", name), log_interval, steady(clock)),
                *self._history_jobs(sample_interval, steady(clock)),
                *self._snapshot_jobs(snapshot_dir, snapshot_interval, snapshot_key),
                *self._publishing_jobs(name, figures_dir),
            ],
        )
        self._started = SystemClock.time()
        # Last: from here on the wheel thread and forks know of this object.
        super().__init__(
            name,
            max_entries=max_entries,
            max_weight=max_weight,
            weigher=weigher,
            ttl=ttl,
            jitter=jitter,
            interval=interval,
            slots=slots,
            on_removal=on_removal,
            board=board,
            clock=clock,
        )
        self._load_first()
        _caches.add(self)

    def _log_jobs(self, name: str, interval: float | None, clock: Clock) -> Iterator[PeriodicJob]:
        period = options.interval_or_none("log_interval", interval)
        if period is not None:
            yield StatsLog(name, period, clock, self.stats)

    def _history_jobs(self, interval: float | None, clock: Clock) -> Iterator[PeriodicJob]:
        period = options.interval_or_none("sample_interval", interval)
        if period is not None:
            self._history = History(period, clock, self.stats, lambda: self.lag)
            yield self._history

    def _publishing_jobs(self, name: str, figures_dir: Path | None) -> Iterator[PeriodicJob]:
        directory = usable_directory("figures_dir", figures_dir)
        if directory is not None:
            actions: dict[str, Callable[[], object]] = {CLEAR: self.clear}
            if self.keeper is not None:
                actions |= {SAVE: self.keeper.run, LOAD: self.keeper.run_load}
            self.publisher = Publisher(directory, name, self.figures, self.is_in_use)
            yield self.publisher
            self.requests = WorkerRequests(RequestBox(directory.path), name, actions)
            yield self.requests

    def _snapshot_jobs(
        self, snapshot_dir: Path | None, interval: float, key: str | bytes | None
    ) -> Iterator[PeriodicJob]:
        directory = snapshot_directory_or_none("snapshot_dir", snapshot_dir)
        period = options.interval("snapshot_interval", interval)
        secret = options.secret_or_none("snapshot_key", key)
        if directory is not None:
            self.keeper = SnapshotKeeper(directory, period, secret, self)
            yield self.keeper

    def _load_first(self) -> None:
        """Have whoever uses the cache first load what was saved."""
        if self.keeper is not None:
            self._lock = LoadFirst(self._lock, self.keeper.load, self._loaded_first)

    def _loaded_first(self, first: LoadFirst) -> None:
        # Else it was closed, or forked, meanwhile.
        if self._lock is first:
            self._lock = first.lock

    def is_in_use(self) -> bool:
        """Whether it was used, and not closed since."""
        return not self._is_closed() and not isinstance(self._lock, LoadFirst)

    def __repr__(self) -> str:
        return f"<Cache {self.name!r}, {len(self)} entries>"

    def take(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL = DEFAULT_TTL,
        # No "*": CPython 3.11 calls what has arguments by name only 40 ns slower, of 200.
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        timeout: float | None = None,
        negative_ttl: float | None = None,
    ) -> Any:
        """The value of ``key``; if it is missing, what ``loader()`` returns, which is stored.

        However many threads and tasks miss a key together, one runs its loader, and the others wait for its value or
        its exception. A failed load stores nothing. What is set or deleted while the loader runs wins; then the loaded
        value is for those who waited for it by then, and is not stored.

        Args:
            grace: seconds past its TTL for which the value that is loaded now may still be served by ``take`` while
                one refresh, in the background, loads it anew. If that fails, the value is gone, and the next caller
                gets what the loader raises. ``get`` never returns such a stale value.
            refresh_ahead: a fraction of ``ttl``, the one given here. The first hit past it starts a refresh.
            fail_safe: if loading it anew fails, the stale value is served on, within its grace; the next try waits for
                1 second, then 2, 4 ... 60. Needs ``grace``.
            timeout: seconds to wait for a load, which then runs in another thread, one of at most 32. When they are
                over, the caller gets the stale value, if there is one; the load goes on, and what it returns is
                stored. With it, a stale value is served no sooner than that. Where the system refuses threads, the
                caller loads himself, for as long as it takes.
            negative_ttl: seconds to remember that the loader returned None, in place of ``ttl`` and without grace.

        Raises:
            LoadDeadlock: the loader takes, itself or through other loaders, the key it is loading.
            LoadTimeout: (a TimeoutError) the timeout passed, and there is no stale value.
        """
        found = self.get(key, MISSING)
        if found is MISSING:
            policy = load_policy(grace, refresh_ahead, fail_safe, timeout, negative_ttl)
            return self.load_missing(key, loader, ttl, policy)
        # What is wrong is wrong for a hit, too. The usual case first: 20 ns.
        if ttl is not DEFAULT_TTL and (type(ttl) is not int or not 0 < ttl < CENTURIES):
            options.ttl("ttl", ttl)
        if (
            refresh_ahead is not None
            or grace is not None
            or timeout is not None
            or negative_ttl is not None
            or fail_safe is not False
        ):
            policy = load_policy(grace, refresh_ahead, fail_safe, timeout, negative_ttl)
            if refresh_ahead is not None and self.is_ageing(key, found, ttl, refresh_ahead, negative_ttl):
                self.refresh(key, loader, ttl, policy)
        return found

    async def atake(
        self,
        key: Hashable,
        loader: Callable[[], Any] | Callable[[], Awaitable[Any]],
        ttl: TTL = DEFAULT_TTL,
        grace: float | None = None,
        refresh_ahead: float | None = None,
        fail_safe: bool = False,
        timeout: float | None = None,
        negative_ttl: float | None = None,
    ) -> Any:
        """``take`` for coroutines: what ``loader()`` returns is awaited if it can be, and waiting blocks no loop.

        Refreshes, and loads with a timeout, are tasks of the caller's event loop.
        """
        found = self.get(key, MISSING)
        if found is MISSING:
            policy = load_policy(grace, refresh_ahead, fail_safe, timeout, negative_ttl)
            return await self.aload_missing(key, loader, ttl, policy)
        # What is wrong is wrong for a hit, too. The usual case first: 20 ns.
        if ttl is not DEFAULT_TTL and (type(ttl) is not int or not 0 < ttl < CENTURIES):
            options.ttl("ttl", ttl)
        if (
            refresh_ahead is not None
            or grace is not None
            or timeout is not None
            or negative_ttl is not None
            or fail_safe is not False
        ):
            policy = load_policy(grace, refresh_ahead, fail_safe, timeout, negative_ttl)
            if refresh_ahead is not None and self.is_ageing(key, found, ttl, refresh_ahead, negative_ttl):
                self.arefresh(key, loader, ttl, policy)
        return found

    def take_many(
        self,
        keys: Iterable[Hashable],
        loader: Callable[[list[Any]], Mapping[Any, Any]],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> dict[Any, Any]:
        """The values of ``keys``: those that are missing from ``loader(missing)``, which are stored.

        ``loader`` is called once, with a list of keys, and returns a dict of what it found. It neither waits for others
        that load a key nor stores what they are loading.
        """
        found = self.get_many(keys)
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        return {**found, **self.load_many(missing, loader, ttl, policy)} if missing else found

    async def atake_many(
        self,
        keys: Iterable[Hashable],
        loader: Callable[[list[Any]], Awaitable[Mapping[Any, Any]]],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> dict[Any, Any]:
        """``take_many`` for coroutines."""
        found = self.get_many(keys)
        missing = [key for key in dict.fromkeys(keys) if key not in found]
        return {**found, **await self.aload_many(missing, loader, ttl, policy)} if missing else found

    def load_many(
        self, keys: list[Any], loader: Callable[[list[Any]], Mapping[Any, Any]], ttl: TTL, policy: LoadPolicy
    ) -> Mapping[Any, Any]:
        """What ``loader(keys)`` returns, without a look at the entries. It is stored, but for keys that others load."""
        flights: list[Flight] = []
        try:
            self._lead_many(keys, flights)
            loaded = loader(keys)
            self._loaded_many(flights, loaded, ttl, policy)
        except BaseException as error:
            # Around the landing as well: a weigher may raise, or a signal, and no waiter may wait for ever.
            self._load_failed_many(flights, error)
            raise
        self._loaded_beside(keys, flights, loaded)
        return loaded

    async def aload_many(
        self,
        keys: list[Any],
        loader: Callable[[list[Any]], Awaitable[Mapping[Any, Any]]],
        ttl: TTL,
        policy: LoadPolicy,
    ) -> Mapping[Any, Any]:
        """``load_many`` for coroutines."""
        flights: list[Flight] = []
        try:
            self._lead_many(keys, flights)
            loaded = await loader(keys)
            self._loaded_many(flights, loaded, ttl, policy)
        except BaseException as error:
            self._load_failed_many(flights, error)
            raise
        self._loaded_beside(keys, flights, loaded)
        return loaded

    def read_beside(self, key: Hashable, value: Any) -> None:
        """``value`` was read where this loads from, MISSING if there is none. Drop an entry with another value, and do
        not store what is being loaded: which of them is the newer is not known.
        """
        plain = self._plain(key)
        with self._lock:
            self._flights.supersede(plain)
            entry = self.entries.get(plain)
            stored = MISSING if entry is None else entry.value
        # Without the lock, as values may have code of their own.
        if stored is MISSING or _is_same(stored, value):
            return
        now = self.clock()
        removed: Removals = []
        with self._lock:
            entry = self.entries.get(plain)
            if entry is not None:
                self._unlink(entry, DELETED, now, removed)
        self._removed(removed)

    def fill_lease(self, key: Hashable, value: Any) -> None:
        """Give ``value`` to those who wait for a lease on ``key``, without storing it."""
        plain = self._plain(key)
        with self._lock:
            self._leases.filled(plain, value)
        self._leases.wake()

    def written_elsewhere(self, key: Hashable) -> None:
        """``delete``, because ``key`` was written where this loads from: whoever waits may find it there."""
        plain = self._plain(key)
        with self._lock:
            self._leases.refused(plain, self.steady())
        self.delete(key)

    def drop_stale(self, key: Hashable) -> None:
        """Where this loads from, ``key`` is gone: nobody is to get what was kept of it past its time."""
        plain = self._plain(key)
        now = self.clock()
        removed: Removals = []
        with self._lock:
            entry = self.entries.get(plain)
            if entry is not None and (entry.due <= now or not self._is_current(entry)):
                self._unlink(entry, DELETED, now, removed)
        self._removed(removed)

    def count_miss(self) -> None:
        """Somebody had to look elsewhere, without looking here."""
        next(self._miss_tally.ticks)

    def get_suspect(self, key: Hashable, default: Any = None) -> Any:
        """The value of ``key``, within its grace, though it may be old: for when there is no other to be had."""
        plain = self._plain(key)
        now = self.clock()
        with self._lock:
            entry = self.entries.get(plain)
            if entry is None or now >= stale_until(entry) or self._is_overwritten(entry):
                return default
            self._stale_hits += 1
            return entry.value

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
        """A decorator that caches what a function, method or coroutine function returns, by its arguments.

        Calls that mean the same share a value, however they spell it: by position or by name, with a default given or
        left out. An instance is an argument like any other: equal instances share values, and one that is part of a
        key lives as long as its entry. As in ``functools.lru_cache``, arguments that are equal are the same, also 1
        and 1.0. A function that is decorated anew, such as one inside another function, begins anew. See
        ``memoize.Memoized`` for what a decorated function has: ``cache_delete``, ``cache_clear``, ``uncached``,
        ``cache_stats``.

        Args:
            ttl, grace, refresh_ahead, fail_safe, timeout, negative_ttl: as for ``take``.
            key: ``key(*args, **kwargs)``, the part of the key that the arguments make, in place of the arguments; for
                some that are not hashable, or that do not matter.

        Raises:
            TypeError, ValueError: naming the argument; or what is decorated is no function, or makes generators, which
                could be read only once.
        """
        if callable(ttl):
            raise TypeError(f"memoize is called before it decorates: @cache.memoize(), not @cache.memoize on {ttl!r}")
        self._due(ttl, 0.0)
        policy = load_policy(grace, refresh_ahead, fail_safe, timeout, negative_ttl)
        return memoizer(self, ttl, options.function_or_none("key", key), policy)

    def get_or_lease(self, key: Hashable, default: Any = None, *, wait: float, may_wait: bool = True) -> Any:
        """``get`` for one who sets what he misses: of all who miss a key at once, one gets ``default``, and a lease.

        The others wait, at most ``wait`` seconds, for the value that he sets. If he gives up (he deletes the key, his
        request ends, ``wait`` is over), one of them gets ``default`` and the lease. Who holds a lease, runs a loader,
        or calls this while an event loop runs in his thread, never waits. See ``fill_leases``.

        Args:
            wait: seconds > 0.
            may_wait: False where who holds the lease may need the very thread that would wait.

        Raises:
            TypeError, ValueError: naming the argument.
        """
        may_wait = may_wait and asyncio._get_running_loop() is None
        found, waiter = self._look_up_or_lease(self._plain(key), options.seconds("wait", wait), may_wait)
        if waiter is None:
            return default if found is MISSING else found
        try:
            while not self._lease_wait_is_over(waiter):
                waiter.told.wait(self._seconds_to_look_again(waiter))
        except BaseException:
            self._leave(waiter)
            raise
        return self._waited(waiter, default)

    async def aget_or_lease(self, key: Hashable, default: Any = None, *, wait: float) -> Any:
        """``get_or_lease`` for coroutines: they wait without stopping their event loop. A lease is the task's."""
        found, waiter = self._look_up_or_lease(self._plain(key), options.seconds("wait", wait), may_wait=True)
        if waiter is None:
            return default if found is MISSING else found
        try:
            while not self._lease_wait_is_over(waiter):
                await waiter.told.wait_async(self._seconds_to_look_again(waiter))
        except BaseException:
            self._leave(waiter)
            raise
        return self._waited(waiter, default)

    def is_leased(self, key: Hashable) -> bool:
        """Whether the running thread or task has a lease on ``key``."""
        plain = self._plain(key)
        with self._lock:
            return self._leases.is_of(plain, current_holder())

    def stats(self) -> Stats:
        """The figures since the cache was made."""
        return self._stats(self._lock)

    def _stats(self, lock: AbstractContextManager[Any]) -> Stats:
        with lock:
            # A stale value is found when a fresh one was missed, and then makes a hit of it.
            hits = self._hit_tally.read() + self._stale_hits
            misses = self._miss_tally.read() - self._stale_hits
            return Stats(
                hits=hits,
                misses=misses,
                loads=self._loads,
                load_failures=self._load_failures,
                load_seconds=self._load_times.seconds,
                load_buckets=tuple(self._load_times.buckets),
                load_timeouts=self._load_timeouts,
                coalesced=self._coalesced.read(),
                stale_hits=self._stale_hits,
                refreshes=self._refreshes,
                refreshes_dropped=self._refreshes_dropped,
                evictions=self._evictions,
                expirations=self._expirations,
                replacements=self._replacements,
                deletions=self._deletions,
                clearings=self._clearings,
                size=len(self),
                weight=self._weight,
            )

    def figures(self) -> WorkerFigures:
        """``stats()`` and all else there is to say of this cache in this process. Loads no snapshot."""
        publisher, history = self.publisher, self._history
        return WorkerFigures(
            name=self.name,
            worker=f"{os.getpid()}-{id(self)}" if publisher is None else publisher.worker,
            pid=os.getpid(),
            started=self._started,
            taken=SystemClock.time(),
            thread=self.thread_state,
            lag=self.lag,
            interval=None if history is None else history.period,
            max_entries=None if self._max_entries == inf else int(self._max_entries),
            max_weight=None if self._max_weight == inf else int(self._max_weight),
            weighs_bytes=self._weigher is size_of,
            stats=self._stats(behind(self._lock)),
            now=self.steady(),
            samples=() if history is None else tuple(history.samples),
        )

    def clear(self) -> None:
        if isinstance(self._lock, LoadFirst):
            self._lock.skip()
        super().clear()

    def close(self) -> None:
        """Drop all entries and leave the wheel thread. May be called again; reads and writes raise CacheClosed."""
        now = self.clock()
        if self._is_closed():
            return
        # Nothing need be loaded for this.
        self._lock = behind(self._lock)
        # First, as what was counted is published once more.
        self._jobs.close()
        gone = Detached()
        with self._lock:
            self._detach_all(gone)
            self._flights.forget_all()
            self._leases.end_all(self.steady())
            self._close(CacheClosed(f"the cache {self.name!r} was closed"))
        self._leases.wake()
        self._cleared(gone, now)

    def load_missing(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL,
        policy: LoadPolicy,
        stale_hits: Iterator[int] | None = None,
    ) -> Any:
        """``take`` after a ``get`` that missed. ``stale_hits``, a tally's ticks, counts if a stale value is served."""
        load = self._missed(_Load(self._plain(key), key, loader, ttl, policy, stale_hits))
        if policy.grace:
            found = self._stale_meanwhile(load, self._refresh)
            if found is not MISSING:
                return found
        deadline = None if policy.timeout is None else SystemClock.steady() + policy.timeout
        while True:
            flight = self._flights.flight(load.plain, self.clock())
            try:
                found, seat = self._join(flight, blocking=True)
                if seat is None:
                    return found
                if seat.leads and (deadline is None or not self._loads_elsewhere(flight, load, deadline)):
                    with flight:
                        value = loader()
                    self._loaded(flight, value, load)
                    return value
            except _NoRoom:
                return self._timed_out(load)
            except BaseException as error:
                # Around the join as well: a signal may raise anywhere, and nobody must wait for ever.
                try:
                    self._load_failed(flight, error)
                except BaseException:
                    # It did so in there. Once more.
                    self._load_failed(flight, error)
                    raise
                stale = self._stale_instead(load, error)
                if stale is MISSING:
                    raise
                return stale
            try:
                seat.flight.ended.wait(_seconds_until(deadline))
            finally:
                self._flights.leave(seat)
            if seat.flight.outcome is None:
                return self._timed_out(load)
            found = self._landed(seat, load, *seat.flight.outcome)
            if found is not MISSING:
                return found

    async def aload_missing(
        self,
        key: Hashable,
        loader: Callable[[], Any],
        ttl: TTL,
        policy: LoadPolicy,
        stale_hits: Iterator[int] | None = None,
    ) -> Any:
        """``atake`` after a ``get`` that missed. ``stale_hits`` as in ``load_missing``."""
        load = self._missed(_Load(self._plain(key), key, loader, ttl, policy, stale_hits))
        if policy.grace:
            found = self._stale_meanwhile(load, self._arefresh)
            if found is not MISSING:
                return found
        deadline = None if policy.timeout is None else SystemClock.steady() + policy.timeout
        while True:
            flight = self._flights.flight(load.plain, self.clock())
            try:
                found, seat = self._join(flight, blocking=False)
                if seat is None:
                    return found
                if seat.leads and (deadline is None or not self._loads_in_a_task(flight, load)):
                    with flight:
                        value = loader()
                        if isawaitable(value):
                            value = await value
                    self._loaded(flight, value, load)
                    return value
            except BaseException as error:
                # Around the join as well: a signal may raise anywhere, and nobody must wait for ever.
                try:
                    self._load_failed(flight, error)
                except BaseException:
                    # It did so in there. Once more.
                    self._load_failed(flight, error)
                    raise
                stale = self._stale_instead(load, error)
                if stale is MISSING:
                    raise
                return stale
            try:
                await seat.flight.ended.wait_async(_seconds_until(deadline))
            finally:
                self._flights.leave(seat)
            if seat.flight.outcome is None:
                return self._timed_out(load)
            found = self._landed(seat, load, *seat.flight.outcome)
            if found is not MISSING:
                return found

    def is_ageing(
        self, key: Hashable, value: Any, ttl: TTL, refresh_ahead: float | None, negative_ttl: float | None
    ) -> bool:
        """Whether ``value``, which a ``get`` found, is past ``refresh_ahead`` of its time, given these of ``take``."""
        if value is None and negative_ttl is not None:
            ttl = negative_ttl
        lifetime = self._ttl if ttl is DEFAULT_TTL else options.ttl("ttl", ttl)
        share = options.share_or_none("refresh_ahead", refresh_ahead)
        entry = self.entries.get(self._plain(key))
        if entry is None or lifetime is None or share is None:
            return False
        return entry.due - self.clock() < (1 - share) * lifetime

    def refresh(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> None:
        """Have a thread load what is ageing, unless that is being done, or failed lately."""
        self._refresh(self._ageing(key, loader, ttl, policy))

    def arefresh(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> None:
        """``refresh`` by a task of the running loop."""
        self._arefresh(self._ageing(key, loader, ttl, policy))

    def after_fork_in_child(self) -> None:
        unused = isinstance(self._lock, LoadFirst)
        super().after_fork_in_child()
        if unused:
            self._load_first()
        self._refreshing = {}
        self._started = SystemClock.time()
        self._jobs.start_over()

    def _detach_all(self, gone: Detached) -> None:
        self._backoff.clear()
        super()._detach_all(gone)

    def _written(self, due: float, now: float, removed: Removals, written: int = 1) -> None:
        super()._written(due, now, removed, written)
        # The first write of the process starts the line a minute, and with it the thread. Requests before it count.
        if self._jobs.paused:
            self._jobs.start()

    def _count_from_zero(self) -> None:
        super()._count_from_zero()
        self._loads = 0
        self._load_failures = 0
        self._load_times = LoadTimes()
        self._load_timeouts = 0
        self._stale_hits = 0
        self._refreshes = 0
        self._refreshes_dropped = 0
        self._coalesced = Tally()
        self._requests_seen = 0

    def _is_idle(self) -> bool:
        """Whether nothing was asked for since the last call, and nothing can be hit."""
        stats = self.stats()
        seen, self._requests_seen = self._requests_seen, stats.requests
        return seen == stats.requests and not stats.size

    def _missed(self, load: _Load) -> _Load:
        """``load``, which is about to be done, because its key was missed."""
        self._due(load.ttl, 0.0)  # A wrong TTL is better known before the load than after it.
        if self._board is not None:
            # What was missed is loaded, under a stamp of its own: what the caller sets later is news.
            self._seen_at_miss(load.plain)
        return load

    def _join(self, flight: Flight, *, blocking: bool) -> tuple[Any, Seat | None]:
        """The value, if it is there by now; else a seat on the flight that brings it: ``flight``, or one before it."""
        with self._lock:
            # Whoever led a flight until a moment ago has stored its value before it landed.
            found = self._live(flight.key, flight.started)
            if found is not None:
                return found.value, None
            seat = self._flights.join(flight, blocking=blocking)
            if self._board is not None:
                seen = self._seen(flight.key)
                if seat.leads:
                    flight.seen = seen
                elif seat.flight.seen != seen:
                    # Written elsewhere since the leader began: what he brings may be older than that.
                    seat.late = True
            return MISSING, seat

    def _landed(self, seat: Seat, load: _Load, value: Any, error: BaseException | None) -> Any:
        """What a flight brought to one who waited for it; MISSING if he has to look again."""
        if error is None:
            if seat.late:
                return MISSING
            if not seat.leads:
                next(self._coalesced.ticks)
            return value
        if isinstance(error, Exception):
            stale = self._stale(load) if load.policy.fail_safe else MISSING
            if stale is MISSING:
                raise error
            return stale
        if seat.leads:
            raise error
        # What is no Exception (a cancellation, an exit) is about the leader, not about the value.
        return MISSING

    def _loaded(self, flight: Flight, value: Any, load: _Load) -> None:
        now = self.clock()
        ttl, grace = load.ttl, load.policy.grace or load.policy.keep
        if value is None and load.policy.negative_ttl is not None:
            ttl, grace = load.policy.negative_ttl, 0.0
        due = self._jittered_due(ttl, now)
        weight = self._weigh(flight.key, value)
        removed: Removals = []
        try:
            with self._lock:
                self._load_times.add(now - flight.started)
                self._backoff.succeeded(flight.key)
                kept = self._flights.land(flight)
                self._loads += 1
                if kept:
                    self._put(flight.key, value, due, weight, now, removed, grace=grace, seen=flight.seen)
            flight.end(value, None)
            self._written(due, now, removed)
        except BaseException:
            self._interrupted()
            raise

    def _lead_many(self, keys: list[Any], flights: list[Flight]) -> None:
        """Begin flights for those keys that have none. They go to ``flights``, even if this is interrupted."""
        plain = [self._plain(key) for key in keys]
        for key in plain:
            # What was missed is loaded, under a stamp of its own: what the caller sets later is news.
            self._seen_at_miss(key)
        started = self.clock()
        with self._lock:
            for key in plain:
                if key not in self._flights.in_progress:
                    flight = self._flights.flight(key, started)
                    flight.seen = self._seen(key)
                    flights.append(flight)
                    self._flights.join(flight, blocking=False)

    def _loaded_many(self, flights: list[Flight], values: Mapping[Any, Any], ttl: TTL, policy: LoadPolicy) -> None:
        for flight in flights:
            key = original(flight.key)
            if key in values:
                self._loaded(flight, values[key], _Load(flight.key, key, _no_loader, ttl, policy))
            else:
                self._load_failed(flight, NothingToStore(key))

    def _loaded_beside(self, keys: list[Any], flights: list[Flight], values: Mapping[Any, Any]) -> None:
        """After loading ``keys``, some of which others were loading: those without a flight in ``flights``."""
        if len(flights) < len(keys):
            led = {flight.key for flight in flights}
            for key in keys:
                if self._plain(key) not in led:
                    self.read_beside(key, values.get(key, MISSING))

    def _load_failed_many(self, flights: list[Flight], error: BaseException) -> None:
        try:
            for flight in flights:
                self._load_failed(flight, error)
        except BaseException:
            # Once more, as it was interrupted.
            for flight in flights:
                self._load_failed(flight, error)
            raise

    def _load_failed(self, flight: Flight, error: BaseException) -> None:
        try:
            now = self.clock()
            with self._lock:
                if self._flights.leads(flight):
                    if isinstance(error, NothingToStore):
                        self._loads += 1
                    else:
                        self._load_failures += 1
                    self._load_times.add(now - flight.started)
                    self._flights.land(flight)
        finally:
            flight.end(None, error)

    def _load_in_background(self, flight: Flight, load: _Load, *, is_refresh: bool) -> None:
        """Run the loader of a flight that was joined, where there is nobody to raise its failure to."""
        try:
            with flight:
                value = load.loader()
            self._loaded(flight, value, load)
        except BaseException as error:
            self._failed_in_background(flight, load, error, is_refresh)

    async def _aload_in_background(self, flight: Flight, load: _Load, *, is_refresh: bool) -> None:
        try:
            with flight:
                value = load.loader()
                if isawaitable(value):
                    value = await value
            self._loaded(flight, value, load)
        except Exception as error:
            self._failed_in_background(flight, load, error, is_refresh)
        except BaseException as error:
            # A cancellation: the loop ends.
            self._load_failed(flight, error)
            raise

    def _failed_in_background(self, flight: Flight, load: _Load, error: BaseException, is_refresh: bool) -> None:
        if flight.outcome is not None:
            # The value is stored; it was a listener that raised what is no Exception.
            logger.error("After loading %r into the cache %r:", load.key, self.name, exc_info=error)
            return
        now = self.clock()
        removed: Removals = []
        pause = 0.0
        if self._is_closed():
            flight.end(None, error)
            return
        with suppress(CacheClosed), self._lock:
            pause = self._backoff.failed(load.plain, now)
            entry = self.entries.get(load.plain)
            if entry is not None and entry.due <= now and not load.policy.fail_safe:
                # Else it would be served as if nothing had happened, and nobody would ever see the error.
                self._unlink(entry, EXPIRED, now, removed)
        # Before anybody else's code runs: who waits must not wait for ever.
        with suppress(CacheClosed):
            self._load_failed(flight, error)
        if is_refresh or load.policy.fail_safe or load.given_up:
            # Otherwise it is raised to those who wait.
            self._log_failure(load, error, pause)
        self._removed(removed)

    def _stale_instead(self, load: _Load, error: BaseException) -> Any:
        """The stale value, where the caller himself loaded, failed, and may have it; else MISSING."""
        if not load.policy.fail_safe or not isinstance(error, Exception):
            return MISSING
        stale = self._stale(load)
        if stale is not MISSING:
            now = self.clock()
            with self._lock:
                pause = self._backoff.failed(load.plain, now)
            self._log_failure(load, error, pause)
        return stale

    def _log_failure(self, load: _Load, error: BaseException, pause: float) -> None:
        logger.warning(
            "Loading %r into the cache %r failed; the next refresh waits for %.1f s.",
            load.key,
            self.name,
            pause,
            exc_info=error,
        )

    def _loads_elsewhere(self, flight: Flight, load: _Load, deadline: float) -> bool:
        """Have the pool load, until ``deadline`` on the system's clock. False if the caller has to do it.

        That is so where no thread can be had, and in a thread of the pool: those who wait for a load of their own could
        take up all threads, and its caller has a timeout already.

        Raises:
            _NoRoom: the deadline passed before there was room.
        """
        if timed_load_pool.runs_here():
            return False
        # The caller waits for what it led, and no loop has a part in it.
        flight.waited_for = True
        loop, flight.lead.loop = flight.lead.loop, None
        job = partial(self._load_in_background, flight, load, is_refresh=False)
        try:
            patience = _seconds_until(deadline) or 0.0
            taken = timed_load_pool.submit(job, context=copy_context(), patience=patience)
        except RuntimeError:
            flight.lead.loop = loop
            return False
        if not taken:
            with self._lock:
                self._refreshes_dropped += 1
                self._flights.land(flight)
            # No failure of the loader's: who waits looks again.
            flight.end(None, asyncio.CancelledError())
            raise _NoRoom
        return True

    def _loads_in_a_task(self, flight: Flight, load: _Load) -> bool:
        """Have the event loop load. False if the interpreter exits: then the caller does."""
        flight.waited_for = True
        work = self._aload_in_background(flight, load, is_refresh=False)
        # However many there are: the callers are tasks as well.
        task = timed_load_pool.spawn(work, copy_context(), bounded=False)
        if task is None:
            return False
        # A task that is cancelled before its first step never gets to say so.
        task.add_done_callback(lambda _: self._never_loaded(flight))
        return True

    def _never_loaded(self, flight: Flight) -> None:
        with suppress(CacheClosed):
            self._load_failed(flight, asyncio.CancelledError())

    def _timed_out(self, load: _Load) -> Any:
        load.given_up = True
        with self._lock:
            self._load_timeouts += 1
        stale = self._stale(load)
        if stale is MISSING:
            raise LoadTimeout(load.key, load.policy.timeout or 0.0)
        return stale

    # Below: stale values and refreshes.

    def _stale(self, load: _Load) -> Any:
        """The value of an entry that is past its TTL and within its grace, and the caller's; else MISSING."""
        now = self.clock()
        with self._lock:
            entry = self.entries.get(load.plain)
            if type(entry) is not GracedEntry or not self._is_current(entry):
                return MISSING
            if not entry.due <= now < entry.due + min(entry.grace, load.policy.grace):
                return MISSING
            self.entries.move_to_end(load.plain)
            self._stale_hits += 1
        if load.stale_hits is not None:
            next(load.stale_hits)
        load.due = entry.due
        return entry.value

    def _stale_meanwhile(self, load: _Load, refresh: Callable[[_Load], None]) -> Any:
        """A stale value that may be served at once; then its refresh is on its way. Else MISSING."""
        if load.policy.timeout is not None and self._backoff.is_over(load.plain, self.clock()):
            # Fresh is better, for so long.
            return MISSING
        stale = self._stale(load)
        if stale is not MISSING:
            refresh(load)
        return stale

    def _ageing(self, key: Hashable, loader: Callable[[], Any], ttl: TTL, policy: LoadPolicy) -> _Load:
        load = _Load(self._plain(key), key, loader, ttl, policy)
        entry = self.entries.get(load.plain)
        if entry is not None:
            load.due = entry.due
        return load

    def _refresh(self, load: _Load) -> None:
        """Load anew on a thread, unless that is being done, or failed lately."""
        try:
            if self._may_refresh(load):
                try:
                    started = refresh_pool.submit(partial(self._refresh_now, load))
                except RuntimeError:
                    # No thread to be had.
                    started = False
                self._refresh_started(load, started)
        except BaseException:
            # Interrupted: it may be tried again.
            self._refreshed(load)
            raise

    def _arefresh(self, load: _Load) -> None:
        """Load anew in a task of the running loop, unless that is being done, or failed lately."""
        try:
            if self._may_refresh(load):
                task = refresh_pool.spawn(self._arefresh_now(load))
                if task is not None:
                    task.add_done_callback(lambda _: self._refreshed(load))
                self._refresh_started(load, task is not None)
        except BaseException:
            # Interrupted: it may be tried again.
            self._refreshed(load)
            raise

    def _may_refresh(self, load: _Load) -> bool:
        key = load.plain
        now = self.clock()
        loop = asyncio._get_running_loop()
        with self._lock:
            if key in self._refreshing:
                of_loop = self._refreshing[key]
                if of_loop is None or of_loop.is_running():
                    return False
            entry = self.entries.get(key)
            if entry is None or entry.due > load.due:
                # Deleted, or loaded, since the caller looked.
                return False
            if key in self._flights.in_progress or not self._backoff.is_over(key, now):
                return False
            self._refreshing[key] = loop
        return True

    def _refresh_started(self, load: _Load, started: bool) -> None:
        with self._lock:
            if started:
                self._refreshes += 1
            else:
                self._refreshes_dropped += 1
                self._refreshing.pop(load.plain, None)

    def _refresh_now(self, load: _Load) -> None:
        flight = self._flights.flight(load.plain, self.clock())
        try:
            if self._leads_refresh(flight):
                self._load_in_background(flight, load, is_refresh=True)
        except BaseException as error:
            # Interrupted on the way: no waiter may wait for ever.
            with suppress(CacheClosed):
                self._load_failed(flight, error)
            raise
        finally:
            self._refreshed(load)

    async def _arefresh_now(self, load: _Load) -> None:
        flight = self._flights.flight(load.plain, self.clock())
        try:
            if self._leads_refresh(flight):
                await self._aload_in_background(flight, load, is_refresh=True)
        except BaseException as error:
            with suppress(CacheClosed):
                self._load_failed(flight, error)
            raise

    def _leads_refresh(self, flight: Flight) -> bool:
        """Whether ``flight`` is now the one of its key; not if there is another one by now, or the key was deleted."""
        with suppress(CacheClosed), self._lock:
            wanted = flight.key in self.entries and flight.key not in self._flights.in_progress
            if wanted and self._flights.join(flight, blocking=False).leads:
                flight.seen = self._seen(flight.key)
                return True
        return False

    def _refreshed(self, load: _Load) -> None:
        # One C call, so without the lock, which a closed cache has no more.
        self._refreshing.pop(load.plain, None)

    # Below: waiting for who fills.

    def _look_up_or_lease(self, key: Any, wait: float, may_wait: bool) -> tuple[Any, Waiter | None]:
        # With the lock in hand, in a __del__ that the collector runs amid a write, nobody could set anything meanwhile.
        may_wait = may_wait and not is_loading() and not self._lock._is_owned()
        holder = current_holder()
        now = self.clock()
        if self._board is not None:
            self._check_board()
        found = MISSING
        waiter = None
        removed: Removals = []
        with self._lock:
            entry = self._live(key, now, removed)
            if entry is None:
                waiter = self._leases.miss(key, holder, self.steady(), wait, may_wait=may_wait)
            else:
                self.entries.move_to_end(key)
                found = entry.value
            seen = self._seen(key) if entry is None else NOTHING_SEEN
        if found is MISSING and waiter is None and self._board is not None:
            self._note_miss(key, seen)
        if waiter is None:
            next(self._miss_tally.ticks if found is MISSING else self.hits)
        self._removed(removed)
        return found, waiter

    def _lease_wait_is_over(self, waiter: Waiter) -> bool:
        with self._lock:
            over = self._leases.goes_on(waiter, self.steady())
        self._leases.wake()
        return over

    def _seconds_to_look_again(self, waiter: Waiter) -> float:
        return min(max(0.0, self._leases.next_look(waiter) - self.steady()), TIMEOUT_MAX)

    def _leave(self, waiter: Waiter) -> None:
        with suppress(CacheClosed), self._lock:
            self._leases.leave(waiter, self.steady())
        self._leases.wake()

    def _waited(self, waiter: Waiter, default: Any) -> Any:
        if waiter.filled:
            next(self.hits)
            next(self._coalesced.ticks)
            return waiter.value
        next(self._miss_tally.ticks)
        if self._board is not None:
            # The lease has come to him, and he computes from here on.
            with self._lock:
                seen = self._seen(waiter.key)
            self._note_miss(waiter.key, seen)
        return default


_caches: Final[WeakRegistry[Cache]] = WeakRegistry()


def caches() -> list[Cache]:
    """The caches of this process that are in use, oldest first."""
    return [each for each in _caches if not each._is_closed()]
