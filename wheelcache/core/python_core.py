"""The core in Python. Its entries are in an ``EntryMap``; the lock, the clock, the watches and the gate are here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import count
from math import inf
from random import Random
from sys import getsizeof
from typing import Any, Final

from wheelcache import options
from wheelcache.core.contract import (
    ALL,
    ANY,
    BATCH,
    CHANGED,
    DEAD,
    KEEP,
    MISSING,
    MORE,
    RESTORE,
    SAME,
    STORED,
    TOLD,
    WAKE,
    Counts,
    Record,
    RemovalCause,
    Removals,
    Seen,
    Stamps,
    Times,
)
from wheelcache.core.entry import Entry, TrackedEntry
from wheelcache.core.entry_map import EntryMap
from wheelcache.core.python_scan import KeyScan, OrderedScan, Scans
from wheelcache.core.refusals import Refusals, check_weight
from wheelcache.core.stamp_words import StampWords
from wheelcache.core.tally import read_tally
from wheelcache.core.timing_wheel import FINEST_SLOTS, TimingWheel
from wheelcache.core.watches import Watch, Watches

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

AT_ONCE: Final = -inf
"""The ``next_due`` of a core with detached entries. A constant, since ``-inf`` is computed each time."""

DROPPED_PER_SET: Final = 4
"""Detached entries that a ``set`` drops: more than the one that it may add."""


class PythonCore:
    """See ``contract.Core``."""

    __slots__ = (
        *("_clock", "_gate_error", "_gate_thread", "_hits", "_is_held", "_jitter", "_lock"),
        *("_map", "_max_entries", "_max_jitter", "_max_weight", "_misses", "_patience", "_random"),
        *("_refusals", "_scans", "_watched", "_watches", "entry_bytes", "told"),
    )

    def __init__(
        self,
        *,
        max_entries: int | None = None,
        max_weight: int | None = None,
        jitter: float = 0.0,
        max_jitter: float = 60.0,
        interval: float = 1.0,
        clock: Callable[[], float] | None = None,
        stamps: Stamps | None = None,
    ) -> None:
        max_entries = options.count_or_none("max_entries", max_entries)
        max_weight = options.count_or_none("max_weight", max_weight)
        self._lock: Any = threading.RLock()
        self._is_held = False
        self._clock: Callable[[], float] = time.monotonic if clock is None else clock
        self._max_entries: float = inf if max_entries is None else max_entries
        self._max_weight: float = inf if max_weight is None else max_weight
        wheel = TimingWheel(interval, FINEST_SLOTS, self._clock())
        self._map = EntryMap(self._max_entries, max_weight is not None, wheel)
        self._map.use_stamps(None if stamps is None else StampWords(stamps))
        self._jitter = options.fraction("jitter", jitter)
        self._max_jitter = max_jitter
        self._random = Random().random
        self._patience = 2 * interval
        self._watches = Watches()
        self._watched = self._watches.by_key
        self._refusals = Refusals(self._map, self._watches, self._max_entries, self._max_weight)
        self._scans = Scans(self._map, self._step)
        self._gate_error: Callable[[], Exception] | None = None
        self._gate_thread = 0
        self._count_from_zero()
        self.told: deque[Watch] = deque()
        # The object; its place in the OrderedDict, three words and 1.5 times the 28 bytes of a dict's; a float.
        kind = Entry if max_weight is None and stamps is None else TrackedEntry
        self.entry_bytes = getsizeof(kind()) + 24 + 42 + 24

    # The hit path. The operator looks up, and a KeyError is caught, since calling ``get`` costs a hit 60 ns more.

    def find(self, key: Hashable, default: Any = None) -> Any:
        try:
            map_ = self._map
            entries = map_.entries
            entry = entries[key]
            clock = self._clock
            if entry.fresh_until > clock():
                table = map_.table
                if table is None or table[entry.slot] == entry.stamp:
                    value = entry.value
                    entries.move_to_end(key)
                    next(self._hits)
                    return value
        except KeyError:
            # Missing, or removed between two lines: a miss in either case.
            pass
        if self._gate_error is not None:
            self._check_gate()
        return default

    def get(self, key: Hashable, default: Any = None) -> Any:
        # ``find``, spelled out: a call of it costs a hit 60 ns.
        try:
            map_ = self._map
            entries = map_.entries
            entry = entries[key]
            clock = self._clock
            if entry.fresh_until > clock():
                table = map_.table
                if table is None or table[entry.slot] == entry.stamp:
                    value = entry.value
                    entries.move_to_end(key)
                    next(self._hits)
                    return value
        except KeyError:
            pass
        if self._gate_error is not None:
            self._check_gate()
        next(self._misses)
        return default

    def get_many(self, keys: Sequence[Hashable]) -> list[Any]:
        get = self.get
        with self._lock:
            self._check_gate()
            return [get(key, MISSING) for key in keys]

    # Below: looking without using.

    def __len__(self) -> int:
        if self._map.walk is None:
            return len(self._map.entries)
        # How many markers there are is known under the lock only.
        with self._lock:
            return len(self._map)

    def __sizeof__(self) -> int:
        return object.__sizeof__(self) + len(self) * self.entry_bytes

    @property
    def weight(self) -> int:
        return self._map.weight

    @property
    def next_due(self) -> float:
        return self._map.next_due

    @property
    def in_step(self) -> bool:
        return bool(self._lock._is_owned())

    def now(self) -> float:
        return self._clock()

    def times(self, key: Hashable) -> Times | None:
        self._check_gate()
        entry = self._map.entries.get(key)
        return None if entry is None else Times(entry.fresh_until, entry.due, self._map.is_current(entry))

    def peek(self, key: Hashable, *, use: bool = False) -> Record | None:
        with self._lock:
            self._check_gate()
            entry = self._map.entries.get(key)
            if entry is None:
                return None
            if use:
                self._map.entries.move_to_end(key)
            return self._scans.record(entry)

    def keys(self) -> list[Any]:
        now = self._clock()
        with self._lock:
            self._check_gate()
            map_ = self._map
            return [entry.key for entry in map_.in_order() if entry.fresh_until > now and map_.is_current(entry)]

    def counts(self) -> Counts:
        with self._lock:
            map_ = self._map
            left = (map_.expired, map_.evicted, map_.replaced, map_.deleted, map_.cleared)
            removals = dict(zip(RemovalCause, left, strict=True))
            return Counts(read_tally(self._hits), read_tally(self._misses), removals, map_.puts, map_.evicted_weight)

    def count(self, *, hits: int = 0, misses: int = 0) -> None:
        for _ in range(hits):
            next(self._hits)
        for _ in range(misses):
            next(self._misses)

    def watch(self, key: Hashable, *, slot: int = 0, wants_value: bool = False) -> Watch:
        with self._lock:
            self._check_gate()
            stamps = self._map.stamps
            return self._watches.add(key, None if stamps is None else stamps.seen(slot), wants_value)

    def scan(self, *, ordered: bool = False) -> KeyScan | OrderedScan:
        return self._scans.in_order() if ordered else self._scans.in_any_order()

    def sample(self, count: int) -> list[Record]:
        return self._scans.sample(self._random(), count)

    # Below: writing.

    def set(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        mode: int = ANY,
        expected: Any = MISSING,
        watch: Watch | None = None,
        slot: int = 0,
        seen: Seen | None = None,
        removed: Removals | None = None,
    ) -> int:
        clock = self._clock
        now = clock()
        if ttl is None:
            fresh_until = expires_at = inf
        else:
            # ``_shortened``, spelled out.
            if self._jitter and not exact:
                cut = ttl * self._jitter
                if cut > self._max_jitter:
                    cut = self._max_jitter
                random = self._random
                fresh_until = expires_at = now + (ttl - cut * random())
            else:
                fresh_until = expires_at = now + ttl
            if ttl != ttl:
                raise ValueError("ttl must be a number of seconds or None, not nan")
            if grace:
                expires_at += grace
        if weight:
            check_weight(weight)
        outcome = told = 0
        map_ = self._map
        # What leaves is kept until the lock is free: the last reference to a value may run its ``__del__``.
        gone: list[Any] = []
        with self._lock:
            if self._gate_error is not None:
                self._check_gate()
            if not self._watched and removed is None and watch is None and seen is None and (not mode or mode == SAME):
                # The usual case, ``EntryMap.store`` spelled out: a new value for an entry that stays in its slot of the
                # wheel. It takes 40% less. A timer that moves to a later time is filed again when the wheel comes by.
                steps = map_.steps
                entry = map_.entries.get(key)
                if mode and entry is not None and ttl == KEEP:
                    fresh_until, expires_at = entry.fresh_until, entry.due
                if entry is not None and not map_.tracks and expires_at >= entry.filed:
                    old = entry.value
                    is_fresh = entry.fresh_until > now
                    if mode and not (is_fresh and old is expected):
                        return CHANGED
                    if map_.steps == steps:
                        # Commit.
                        map_.steps = steps + 1
                        if is_fresh:
                            map_.replaced += 1
                        else:
                            map_.expired += 1
                        map_.puts += 1
                        entry.value = value
                        entry.fresh_until = fresh_until
                        entry.due = expires_at
                        # Committed.
                        map_.entries.move_to_end(key)
                        return STORED if now - map_.next_due <= self._patience else STORED | WAKE
            if map_.next_due == AT_ONCE:
                map_.drop_detached(DROPPED_PER_SET, gone, removed)
            if map_.stamps is not None:
                self._check_slot(slot)
            # Once more if the collector ran code that wrote here meanwhile.
            while not outcome:
                steps = map_.steps
                if mode or watch is not None or seen is not None:
                    outcome = self._refusals.reason(key, now, weight, mode, expected, watch, slot, seen, removed, gone)
                    if outcome:
                        break
                    if ttl == KEEP and mode == SAME:
                        entry = map_.entries[key]
                        fresh_until, expires_at = entry.fresh_until, entry.due
                if self._watched and mode != RESTORE:
                    if seen is None or map_.table is None or map_.table[slot] == seen[1]:
                        told |= self._tell(key, value, watch)
                    else:
                        # Not current from the start, and no value for a caller that waits.
                        self._watches.deleted(key, watch)
                if weight > self._max_weight:
                    outcome = self._refusals.heavy(key, now, slot, seen, removed, gone)
                    break
                entry = map_.entries.get(key)
                puts = 0 if mode == RESTORE else 1
                outcome = map_.store(
                    steps, key, entry, value, fresh_until, expires_at, weight, slot, seen, now, puts, removed, gone
                )
            if map_.weight > self._max_weight and map_.evict_excess(
                self._max_entries, self._max_weight, BATCH, now, removed, gone
            ):
                outcome |= MORE
            if now - map_.next_due > self._patience:
                outcome |= WAKE
        return outcome | told

    def set_many(
        self, items: Sequence[tuple[Hashable, Any, int, int, Seen | None]], ttl: float | None, removed: Removals | None
    ) -> list[int]:
        for _, _, weight, slot, _ in items:
            check_weight(weight)
            self._check_slot(slot)
        with self._lock:
            return [
                self.set(key, value, ttl, weight=weight, slot=slot, seen=seen, removed=removed)
                for key, value, weight, slot, seen in items
            ]

    def touch(self, key: Hashable, ttl: float | None, exact: bool = True) -> int:
        now = self._clock()
        with self._lock:
            self._check_gate()
            map_ = self._map
            entry = map_.fresh(key, now)
            if entry is None or not (map_.stamps is None or map_.stamps.restamp(entry)):
                return 0
            fresh_until = inf if ttl is None else now + self._shortened(ttl, exact)
            if fresh_until != fresh_until:
                raise ValueError("ttl must be a number of seconds or None, not nan")
            grace = 0.0 if entry.due == inf else entry.due - entry.fresh_until
            outcome = STORED | map_.file(entry, fresh_until, fresh_until + grace, now)
            return outcome | WAKE if now - map_.next_due > self._patience else outcome

    def delete(
        self,
        key: Hashable,
        default: Any = None,
        only: int = ALL,
        cause: RemovalCause = DELETED,
        slot: int = 0,
        removed: Removals | None = None,
    ) -> Any:
        now = self._clock()
        gone: list[Any] = []
        map_ = self._map
        with self._lock:
            if self._gate_error is not None:
                self._check_gate()
            entry = map_.entries.get(key)
            is_live = entry is not None and entry.fresh_until > now and map_.is_current(entry)
            is_news = False
            if only == DEAD:
                if entry is None or is_live:
                    return default
            elif cause is not EVICTED:
                is_news = True
                if self._watched:
                    self._watches.deleted(key)
            if entry is None:
                if is_news and map_.stamps is not None:
                    map_.stamps.write(slot)
                return default
            map_.remove(entry, cause, now, removed, gone, slot if is_news else None)
            map_.fit_table()
            return entry.value if is_live else default

    def delete_many(self, keys: Sequence[tuple[Hashable, int]], removed: Removals | None) -> int:
        for _, slot in keys:
            self._check_slot(slot)
        with self._lock:
            return sum(self.delete(key, MISSING, slot=slot, removed=removed) is not MISSING for key, slot in keys)

    def evict(self, budget: int = BATCH, removed: Removals | None = None, *, size: int | None = None) -> bool:
        now = self._clock()
        gone: list[Any] = []
        with self._lock:
            self._check_gate()
            most = self._max_entries if size is None else size
            more = self._map.evict_excess(most, self._max_weight, budget, now, removed, gone)
            self._map.fit_table()
        return more

    def advance(self, budget: int = BATCH, removed: Removals | None = None) -> int:
        now = self._clock()
        gone: list[Any] = []
        map_ = self._map
        with self._lock:
            if map_.walk is not None and self._scans.is_abandoned:
                self._scans.finish(map_.walk)
            # Ended watches hold keys. After the last write, nothing else forgets them.
            self._watches.purge()
            map_.drop_detached(budget, gone, removed)
            looked = len(gone)
            looked += map_.take_due(now, budget - looked, removed, gone)
            map_.fit_table()
            map_.find_next_due()
        return looked

    def clear(self, *, drop: bool = True, news: bool = True) -> int:
        gone: list[Any] = []
        with self._lock:
            self._watches.cleared()
            detached = self._map.detach_all(news=news)
            if drop:
                self._map.drop_detached(BATCH, gone, None)
                self._map.find_next_due()
        return detached

    def drain(self, budget: int = BATCH, removed: Removals | None = None) -> bool:
        gone: list[Any] = []
        with self._lock:
            self._map.drop_detached(budget, gone, removed)
            self._map.find_next_due()
            return self._map.has_detached

    # Below: what stays the same for long.

    def use_clock(self, clock: Callable[[], float] | None) -> None:
        with self._lock:
            self._clock = time.monotonic if clock is None else clock
            self._map.follow(self._clock())

    def use_stamps(self, stamps: Stamps | None, *, keep: bool) -> None:
        with self._lock:
            # Entries of a core without stamps have no slots.
            if not keep or self._map.stamps is None:
                self._watches.cleared()
                self._map.detach_all()
            self._map.use_stamps(None if stamps is None else StampWords(stamps))

    def gate(self, error: Callable[[], Exception] | None, thread: int = 0) -> None:
        with self._lock:
            self._gate_thread = thread
            self._gate_error = error

    def before_fork(self) -> None:
        if not self._is_held:
            # An exception from outside comes when a call returned. ``map`` acquires after that, and no call follows.
            (self._is_held,) = map(self._lock.acquire, (True,))

    def after_fork(self, *, in_child: bool) -> None:
        # No call comes between this and the release.
        was_held, self._is_held = self._is_held, False
        if not in_child:
            if was_held:
                self._lock.release()
            return
        self._lock = threading.RLock()
        if self._map.stamps is not None:
            self._map.stamps.forget_locks()
        self._random = Random().random
        self._watches.end_all()
        self.told.clear()
        self._count_from_zero()
        if self._map.walk is not None:
            self._scans.end(self._map.walk)

    # Below: under the lock.

    def _tell(self, key: Any, value: Any, under: Watch | None) -> int:
        """``key`` is set. TOLD if that completed watches, else 0."""
        return TOLD if self._watches.written(key, value, under, self.told) else 0

    def _shortened(self, ttl: float, exact: bool) -> float:
        if exact or not self._jitter:
            return ttl
        return ttl - min(ttl * self._jitter, self._max_jitter) * self._random()

    def _check_slot(self, slot: int) -> None:
        """Before anything is changed: IndexError if the stamps have no such slot."""
        table = self._map.table
        if table is not None:
            table[slot]

    def _check_gate(self) -> None:
        error = self._gate_error
        if error is not None and threading.get_ident() != self._gate_thread:
            raise error()

    def _count_from_zero(self) -> None:
        self._hits = count()
        self._misses = count()
        self._map.count_from_zero()

    def _step(self, function: Callable[[], Any], passes_gate: bool = False) -> Any:
        with self._lock:
            if not passes_gate:
                self._check_gate()
            return function()
