"""The reference core in Python: an ``OrderedDict`` in order of use, a timing wheel, and one lock around all but hits.

It runs where the compiled core cannot. ``move_to_end`` is one C call, so recency is exact and a hit needs no lock: with
a lock around hits, four threads get 0.3 instead of 1.3 million hits per second. The lock is reentrant, since the
garbage collector may run a finalizer inside a step, and the finalizer may call the core: see ``entry_map``.

Without the global interpreter lock, hits acquire the lock. ``move_to_end`` alone crashes free-threaded builds
(gh-125996).

The guarantees about pauses, exactness under exceptions at any point, the adaptive policy, and the measurements of
misses, groups and other sizes belong to the compiled core: see ``contract``.
"""

from __future__ import annotations

import sys
import threading
from collections import deque
from collections.abc import Callable, Generator, Hashable, Iterable
from itertools import count, islice
from math import inf
from random import Random
from sys import getsizeof, maxsize
from typing import Any, Final

from wheelcache.core.contract import (
    BATCH,
    CHANGED,
    COMPLETED,
    KEEP_TTL,
    MORE,
    OUTDATED,
    PRESENT,
    STORED,
    TOO_HEAVY,
    WAKE,
    Counts,
    GroupCounts,
    GroupRule,
    Labels,
    MissCause,
    Record,
    Removals,
    Times,
    is_adaptive_policy,
)
from wheelcache.core.entry_map import (
    CAUSES,
    DELETED,
    REPLACED,
    Entry,
    EntryMap,
    KeyScan,
    TrackedEntry,
    check_weight,
)
from wheelcache.core.tags import are_dropped
from wheelcache.core.watches import Watch, Watches
from wheelcache.engine import options
from wheelcache.runtime.clock import now as machine_time

DROPPED_PER_SET: Final = 4
"""The number of detached entries that a ``set`` drops: more than the one entry that it may add."""

EXPIRED, TAG, OTHER_PROCESS, UNKNOWN = map(
    [*MissCause].index, (MissCause.EXPIRED, MissCause.TAG, MissCause.OTHER_PROCESS, MissCause.UNKNOWN)
)

KEEP_LABELS: Final[Labels] = (), 0, None
"""The labels of an entry whose value is replaced."""


def has_gil() -> bool:
    """Return whether the interpreter has the lock. Free-threaded builds from 3.13 on may run without it; importing an
    extension may switch it on, and nothing switches it off."""
    is_enabled: bool = getattr(sys, "_is_gil_enabled", lambda: True)()
    return is_enabled


class Tally:
    """An exact count that any thread may increase without a lock.

    ``next(tally.ticks)`` adds one. It is a single C call and therefore atomic, whereas ``x += 1`` on an attribute is
    three steps that threads can interleave. Reading also advances the iterator, so readings are counted and subtracted.
    """

    __slots__ = ("_readings", "ticks")

    def __init__(self) -> None:
        self.ticks = count()
        self._readings = 0

    def read(self) -> int:
        """Return the count. Call this under a lock: only one thread may read at a time."""
        # The loop runs once and makes no call. An asynchronous exception is raised after calls; between the two lines,
        # it would leave the reading in the count forever.
        total = 0
        for ticks in self.ticks:
            total = ticks - self._readings
            self._readings += 1
            break
        return total


def _is_present(live: Any) -> int:
    return 0 if live is None else PRESENT


class PythonCore:
    """See ``contract.Core``."""

    def __init__(
        self,
        *,
        max_entries: int | None = None,
        max_weight: int | None = None,
        jitter: float = 0.0,
        interval: float = 1.0,
        clock: Callable[[], float] | None = None,
        trust: memoryview | None = None,
        policy: str = "lru",
    ) -> None:
        max_entries = options.count_or_none("max_entries", max_entries)
        max_weight = options.count_or_none("max_weight", max_weight)
        self._lock: Any = threading.RLock()
        # Checked, and LRU in any case.
        is_adaptive_policy(policy, max_entries)
        if not has_gil():
            self.find, self.times = self._locked(self.find), self._locked(self.times)  # type: ignore[method-assign]
        self._fork: Generator[None] | None = None
        self._clock: Callable[[], float] = machine_time if clock is None else clock
        self._max_entries: float = inf if max_entries is None else max_entries
        self._max_weight: float = inf if max_weight is None else max_weight
        self._map = EntryMap(self._max_entries, self._max_weight, interval, self._clock())
        self._jitter = options.fraction("jitter", jitter)
        self._random = Random().random
        self._patience = 2 * interval
        self._watches = Watches()
        self._watched = self._watches.by_key
        self.completed: deque[Watch] = deque()
        self._gate_error: Callable[[], Exception] | None = None
        self._count_from_zero()
        self._trust = trust
        self._preliminary: tuple[str, ...] = ()
        self._tracks = self._max_weight < inf or trust is not None
        self._map.entry_class = TrackedEntry if self._tracks else Entry
        # The object; its node in the OrderedDict (three words); its dict entry (28 bytes, times 1.5); one float.
        self.entry_bytes = getsizeof(self._map.entry_class()) + 24 + 42 + 24

    # The hit path. It uses ``[]`` and catches the KeyError: calling ``dict.get`` instead costs a hit 60 ns more.

    def find(self, key: Hashable, default: Any = None) -> Any:
        try:
            entries = self._map.entries
            entry = entries[key]
            clock = self._clock
            if (
                entry.fresh_until > clock()
                and not (entry.tags and are_dropped(entry.tags))
                and (self._trust is None or self._is_trusted(entry.trust))
            ):
                value = entry.value
                entries.move_to_end(key)
                if not self._preliminary or not self.is_preliminary(key):
                    next(self._hits)
                return value
        except KeyError:
            # The key was missing, or was removed between two lines: a miss in either case.
            pass
        if self._gate_error is not None:
            self._check_gate()
        return default

    # Below: reads that neither count nor move an entry.

    def __len__(self) -> int:
        return self._map.size

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
        entry = self._existing(key)
        return None if entry is None else Times(entry.fresh_until, entry.due, self._is_current(entry))

    def peek(self, key: Hashable, *, use: bool = False) -> Record | None:
        with self._lock:
            self._check_gate()
            entries = self._map.entries
            entry = self._existing(key)
            if entry is None:
                return None
            if use and key in entries:
                entries.move_to_end(key)
            return self._record(entry)

    def keys(self, limit: int = maxsize) -> list[Any]:
        now = self._clock()
        with self._lock:
            self._check_gate()
            youngest = [*islice(reversed(self._map.entries.values()), limit)][::-1]
            return [entry.key for entry in youngest if entry.fresh_until > now and self._is_current(entry)]

    def counts(self) -> Counts:
        with self._lock:
            removals = dict(zip(CAUSES, self._map.removals, strict=True))
            causes = tuple(self._misses)
            return Counts(self._hit_count(), sum(causes), removals, self._puts, self._map.evicted_weight, causes)

    def count_hit(self, key: Hashable) -> None:
        if not self.is_preliminary(key):
            next(self._hits)

    def count_stale_hit(self, key: Hashable) -> None:
        with self._lock:
            self._stale_hits += not self.is_preliminary(key)

    def miss_cause(self, key: Hashable) -> int:
        now = self._clock()
        with self._lock:
            entry = self._map.entries.get(key)
            if entry is None:
                return UNKNOWN
            if entry.tags and are_dropped(entry.tags):
                return TAG
            if entry.fresh_until <= now:
                return EXPIRED
            return UNKNOWN if self._is_current(entry) else OTHER_PROCESS

    def count_miss(self, key: Hashable, cause: int = -1, *, group: str | None = None) -> None:
        if cause < 0:
            cause = self.miss_cause(key)
        with self._lock:
            self._misses[cause] += 1

    def count_load(self, key: Hashable, seconds: float, *, group: str | None = None, has_failed: bool = False) -> str:
        with self._lock:
            self._loads += 1
            self._load_failures += has_failed
            self._load_seconds += seconds
        return ""

    def group_by(self, rules: Iterable[GroupRule]) -> None:
        """Keep only the prefixes of preliminary keys: all keys are in the group without a name."""
        self._preliminary = tuple([rule.prefix for rule in rules if rule.is_preliminary])

    def is_preliminary(self, key: Hashable) -> bool:
        key = key[0] if type(key) is tuple and key else key
        return type(key) is str and key.startswith(self._preliminary)

    def groups(self) -> list[GroupCounts]:
        with self._lock:
            loads = (self._loads, self._load_failures, self._load_seconds)
            counts = (self._hit_count(), self._stale_hits, self._puts, *loads)
            group = GroupCounts("", *counts, tuple(self._misses))
        return [group] if any((*counts, *group.misses)) else []

    @property
    def trust(self) -> int:
        return 0 if self._trust is None else self._trust[0]

    def watch(self, key: Hashable, *, wants_value: bool = False) -> Watch:
        with self._lock:
            self._check_gate()
            return self._watches.add(key, self.trust, wants_value)

    def scan(self, *, start: float = 0.0) -> KeyScan:
        with self._lock:
            self._check_gate()
            entries = self._map.entries
            return KeyScan(list(islice(dict.keys(entries), int(start * len(entries)), None)), self._records_of)

    # Below: writing.

    def set(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        now = self._clock()
        fresh_until = now + self._jittered(ttl, exact)
        return self._store(key, value, (now, fresh_until, fresh_until + grace), weight, labels, removed)

    def add(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        now = self._clock()
        fresh_until = now + self._jittered(ttl, exact=True)
        return self._store(key, value, (now, fresh_until, fresh_until), weight, labels, removed, _is_present)

    def replace(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        expected: Any,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        removed: Removals | None = None,
    ) -> int:
        def refuse(live: Any) -> int:
            return 0 if live is not None and live.value is expected else CHANGED

        now = self._clock()
        fresh_until = -inf if ttl == KEEP_TTL else now + self._jittered(ttl, exact)
        return self._store(key, value, (now, fresh_until, fresh_until + grace), weight, KEEP_LABELS, removed, refuse)

    def fill(
        self,
        key: Hashable,
        value: Any,
        ttl: float | None,
        watch: Watch,
        grace: float = 0.0,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        now = self._clock()
        fresh_until = now + self._jittered(ttl, exact=False)
        times = now, fresh_until, fresh_until + grace
        return self._store(key, value, times, weight, labels, removed, None, watch)

    def _store(
        self,
        key: Any,
        value: Any,
        times: tuple[float, float, float],
        weight: int,
        labels: Labels | None,
        removed: Removals | None,
        refuse: Callable[[Any], int] | None = None,
        watch: Watch | None = None,
    ) -> int:
        """Do the step of ``set``, and return the outcome.

        Args:
            times: the present, and the ends of the freshness and of the grace; both -inf if the entry keeps its own.
            labels: see ``Labels``; KEEP_LABELS if the entry keeps its own.
            refuse: returns the reason for which a value is not stored, or 0, given the fresh, current entry or None.
            watch: that under which the value is stored.
        """
        now, fresh_until, expires_at = times
        if weight:
            check_weight(weight)
            weight = weight if self._tracks else 0
        outcome = STORED
        made: Any = ()
        map_ = self._map
        # Keeps replaced and removed values until the lock is free: dropping the last reference may run ``__del__``.
        gone: list[Any] = []
        with self._lock:
            self._check_gate()
            if map_.detached is not None:
                map_.drop_detached(DROPPED_PER_SET, removed, gone)
            if watch is not None and watch.broken:
                return CHANGED
            if refuse is not None:
                live = self._live(key, now)
                if refusal := refuse(live):
                    return refusal
                if fresh_until == -inf:
                    fresh_until, expires_at = live.fresh_until, live.due
            if labels is not None and labels[0]:
                made = map_.tags.make(labels[0], labels[1] if watch is None else watch.since)
                if made is None:
                    return OUTDATED if watch is None else CHANGED
            if self._watched:
                outcome |= self._notify(key, value, watch)
            if weight > self._max_weight:
                map_.remove(key, REPLACED, now, removed, gone)
                map_.tags.forget_unused(made)
                return outcome ^ STORED | TOO_HEAVY
            for tag in made:
                tag.keys.add(key)
            entry = map_.store(key, value, fresh_until, expires_at, weight, now, removed, gone)
            if (made or entry.tags) and labels is not KEEP_LABELS:
                entry.tags = map_.tags.replace(entry.tags, made, key)
            self._puts += 1
            if self._tracks:
                entry.trust = self.trust if watch is None else watch.trust
                if map_.weight > self._max_weight and map_.evict(self._max_entries, BATCH, now, removed, gone):
                    outcome |= MORE
            if expires_at < entry.filed:
                outcome |= map_.file(entry, expires_at)
            return outcome | WAKE if now - map_.next_due > self._patience else outcome

    def touch(self, key: Hashable, ttl: float | None) -> int:
        now = self._clock()
        fresh_until = now + self._jittered(ttl, exact=True)
        with self._lock:
            self._check_gate()
            entry = self._live(key, now)
            if entry is None:
                return 0
            grace = 0.0 if entry.due == inf else entry.due - entry.fresh_until
            outcome = STORED | self._map.renew(entry, fresh_until, fresh_until + grace, now)
            return outcome | WAKE if now - self._map.next_due > self._patience else outcome

    def delete(
        self,
        key: Hashable,
        default: Any = None,
        only_dead: bool = False,
        removed: Removals | None = None,
    ) -> Any:
        now = self._clock()
        gone: list[Any] = []
        with self._lock:
            self._check_gate()
            entry = self._live(key, now)
            if only_dead:
                if entry is not None:
                    return default
            elif self._watched:
                self._watches.break_watches(key)
            self._map.remove(key, DELETED, now, removed, gone)
            self._map.fit_table()
            return default if entry is None else entry.value

    def remove_value(
        self, key: Hashable, value: Any, removed: Removals | None = None, *, was_hit: bool = False
    ) -> None:
        now = self._clock()
        gone: list[Any] = []
        with self._lock:
            self._check_gate()
            self._hits_taken_back += was_hit and not self.is_preliminary(key)
            entry = self._map.entries.get(key)
            if entry is not None and entry.value is value:
                self._map.remove(key, DELETED, now, removed, gone)
                self._map.fit_table()

    def evict(self, budget: int = BATCH, removed: Removals | None = None, *, size: int | None = None) -> bool:
        now = self._clock()
        gone: list[Any] = []
        with self._lock:
            self._check_gate()
            more = self._map.evict(self._max_entries if size is None else size, budget, now, removed, gone)
            self._map.fit_table()
        return more

    def advance(self, budget: int = BATCH, removed: Removals | None = None) -> int:
        now = self._clock()
        gone: list[Any] = []
        with self._lock:
            # Ended watches hold keys. Without further writes, no other call forgets them.
            self._watches.purge()
            self._map.drop_detached(budget, removed, gone)
            looked = len(gone) + self._map.sweep(budget - len(gone), now, removed, gone)
            looked += self._map.remove_due(now, budget - looked, removed, gone)
            self._map.fit_table()
            self._map.find_next_due()
        return looked

    def clear(self, *, invalidate: bool = True) -> int:
        with self._lock:
            self._watches.break_all()
            return self._map.detach_all()

    def drain(self, budget: int = BATCH, removed: Removals | None = None) -> bool:
        now = self._clock()
        gone: list[Any] = []
        with self._lock:
            self._map.drop_detached(budget, removed, gone)
            self._map.sweep(budget - len(gone), now, removed, gone)
            self._map.fit_table()
            self._map.find_next_due()
            return self._map.next_due == -inf

    def drop_tag(self, name: str) -> int:
        with self._lock:
            self._check_gate()
            dropped = self._map.tags.drop(name)
            self._map.next_due = min(self._map.next_due, self._map.tags.due)
            return dropped

    def dropped_since(self, tags: tuple[str, ...], since: int) -> bool:
        return self._map.tags.dropped_since(tags, since)

    def use_clock(self, clock: Callable[[], float] | None) -> None:
        with self._lock:
            self._clock = machine_time if clock is None else clock
            self._map.follow(self._clock())

    def gate(self, error: Callable[[], Exception] | None) -> None:
        with self._lock:
            self._gate_error = error

    def before_fork(self) -> None:
        # A generator holds the lock until it is dropped. After ``acquire``, an asynchronous exception could leave the
        # lock held; the ``with`` in the generator has no such gap.
        self._fork = self._hold_lock()
        next(self._fork)

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._lock = threading.RLock()
            self._random = Random().random
            self._watches.end_all()
            self.completed.clear()
            self._count_from_zero()
        self._fork = None

    def _locked(self, read: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``read``, one of the methods that acquire no lock, with the lock."""

        def call(*args: Any, **kwargs: Any) -> Any:
            with self._lock:
                return read(*args, **kwargs)

        return call

    def _hold_lock(self) -> Generator[None]:
        with self._lock:
            yield

    # Below: methods called under the lock, except for the checks of arguments.

    def _jittered(self, ttl: float | None, exact: bool) -> float:
        """Return ``ttl`` in seconds, shortened by jitter unless ``exact``. Raise a ValueError if it is not a number."""
        if ttl is None:
            return inf
        if ttl != ttl:
            raise ValueError("ttl must be a number of seconds or None, not nan")
        if exact or not self._jitter:
            return ttl
        cut = ttl * self._jitter
        if cut > options.MAX_JITTER:
            cut = options.MAX_JITTER
        return ttl - cut * self._random()

    def _check_gate(self) -> None:
        error = self._gate_error
        if error is not None:
            raise error()

    def _count_from_zero(self) -> None:
        self._hit_tally = Tally()
        self._hits = self._hit_tally.ticks
        self._misses = [0] * len(MissCause)
        self._puts = self._stale_hits = self._loads = self._load_failures = self._hits_taken_back = 0
        self._load_seconds = 0.0
        self._map.count_from_zero()

    def _hit_count(self) -> int:
        return self._hit_tally.read() - self._hits_taken_back

    def _is_current(self, entry: Any) -> bool:
        """Return whether no tag of ``entry`` was dropped, and it is trusted."""
        if entry.tags and are_dropped(entry.tags):
            return False
        return self._trust is None or self._is_trusted(entry.trust)

    def _is_trusted(self, word: int) -> bool:
        """Return whether an entry that was stored under ``word`` is trusted now, in a core with trust."""
        trust: Any = self._trust
        return word & 1 == 1 and bool(word == trust[0])

    def _live(self, key: Any, now: float) -> Any:
        """Return the entry of ``key`` if it is fresh and current, else None."""
        entry = self._map.entries.get(key)
        return entry if entry is not None and entry.fresh_until > now and self._is_current(entry) else None

    def _existing(self, key: Any) -> Any:
        """Return the entry of ``key`` in any state. If one of its tags was dropped, return None, as if deleted."""
        entry = self._map.entries.get(key)
        return None if entry is None or (entry.tags and are_dropped(entry.tags)) else entry

    def _record(self, entry: Any) -> Record:
        times = Times(entry.fresh_until, entry.due, self._is_current(entry))
        names = tuple([tag.name for tag in entry.tags])
        return Record(entry.key, entry.value, times, entry.weight, names)

    def _records_of(self, keys: list[Any]) -> list[Record]:
        with self._lock:
            self._check_gate()
            found = map(self._map.entries.get, keys)
            return [self._record(entry) for entry in found if entry is not None]

    def _notify(self, key: Any, value: Any, watch: Watch | None) -> int:
        """Break and complete the watches on a key that is set. Return COMPLETED if any were completed, else 0."""
        if watch is not None and self._trust is not None and not self._is_trusted(watch.trust):
            # The value is not current, so callers that wait for a value do not get it.
            self._watches.break_watches(key, watch)
            return 0
        return COMPLETED if self._watches.complete(key, value, watch, self.completed) else 0
