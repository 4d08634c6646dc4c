"""A map in order of use with a timing wheel under it: bounded, and its entries expire on time.

The way of an entry: ``set`` gives it a jittered expiry, files it at the young end of the map and in its slot of the
wheel, and drops the oldest entry if the map is full. ``get`` looks it up, compares its expiry with the clock and
moves it to the young end, without the lock. When its time has come, the wheel hands it out and it leaves the map.

A step under the lock may be interrupted by an exception from outside (a time limit, Ctrl-C), which the interpreter
raises where a function begins, where a loop goes round, and after a call. So what belongs together (the map, the place
in the wheel, weight and counts) is changed without calls, after all that needs some, and a timer in the wheel whose
entry has left the map is passed over when it is due.

The map is an ``OrderedDict``, whose ``move_to_end`` is one C call, so that recency is exact and a hit needs no lock.
What was rejected, of a hit that takes 168 ns on CPython 3.11: a lock around it (+170 ns); linked lists through the
entries, which need that lock (+180 ns) and would save 60 bytes an entry; and a stamp on the entry (-27 ns), which
leaves finding the oldest of a million to the unlucky ``set``.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Mapping
from contextlib import suppress
from enum import Enum
from hashlib import blake2b
from itertools import islice
from math import inf
from random import random
from secrets import token_hex
from time import perf_counter, sleep
from typing import Any, Final

from wheelcache import options
from wheelcache.coherence.shared_stamps import NOTHING_SEEN, AnyBoard, Seen, canonical
from wheelcache.core import ordered_walk
from wheelcache.core.ordered_walk import OrderedWalk
from wheelcache.core.timing_wheel import Timer
from wheelcache.driven import BATCH, Driven
from wheelcache.errors import CacheClosed, FileUnusable, MissingKey
from wheelcache.jitter import MAX_JITTER, Jitter
from wheelcache.keys import Handles, is_plain, original
from wheelcache.leases.fill_leases import FillLeases, Lease, current_holder
from wheelcache.load_first import behind
from wheelcache.loading.single_flight import SingleFlight
from wheelcache.runtime import frozen_time
from wheelcache.runtime.clock import Clock, SystemClock, steady, unfrozen
from wheelcache.stats import Tally

logger = logging.getLogger("wheelcache")

FEW: Final = 8192
SPARSE_IF_FEW: Final = 8
SPARSE: Final = 64
"""The map's table is rebuilt when it once held this many times what it holds now. Nothing else runs meanwhile: 8,192
entries take 1 to 3 ms, and a 16th of half a million, which was tried, 12."""

SMALL_TABLE: Final = 1024
"""Entries. A table that never held more is not worth rebuilding: some 90 KB."""


FILL_WINDOW: Final = 10.0
"""Seconds. A ``set`` or ``add`` this soon after the same thread or task missed the key counts as a fill: it does not
end the entries of other processes, and is not kept if one of them wrote the key meanwhile. A later one is news."""

PLAINLY_NOTED: Final = 256
"""Characters. A miss of a longer key, and of a key that is no string, is noted by its digest, of 16 bytes."""

BOARD_CHECK: Final = 10.0
"""Seconds between looks whether the file of the board is still there, at misses. 2 us."""


LONGEST_BETWEEN_STEPS: Final = 0.002
"""Seconds. If it takes longer to do what is to be done with the entries of one step of a walk, the next has fewer."""

MARKERS: Final = 3
"""How many things are in the map that are no entries, while somebody walks through it."""


class RemovalCause(Enum):
    """Why an entry left. An entry whose time had come left because of that, whatever came upon it."""

    EXPIRED = "expired"
    EVICTED = "evicted"
    REPLACED = "replaced"
    DELETED = "deleted"
    CLEARED = "cleared"


EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


class _Default(Enum):
    TTL = "the cache's own TTL"
    RAISE = "raise MissingKey"

    def __repr__(self) -> str:
        return self.value


MISSING: Final = object()
"""Not there: told apart from every value."""

CENTURIES: Final = 1 << 40
"""Seconds. Longer TTLs, among them ints that no float can hold, take the way of the checks."""

DEFAULT_TTL: Final = _Default.TTL
"""What ``ttl`` is when it isn't given: the TTL that the cache was made with."""

TTL = float | None | _Default
Removals = list[tuple[Any, Any, RemovalCause]]
"""Of each entry that left: its key, its value, and why. Kept until the lock is free, since dropping the last reference
to a value may run its ``__del__``."""


class Entry(Timer):
    """A key, its value, and, being a timer, when it expires.

    A new value for a key goes into the entry that is there. A reader without the lock sees it or the old one, both
    whole: ``value`` is one reference, and is written before ``due``.
    """

    __slots__ = ("key", "value")

    # Made bare and filled in by the cache: without an __init__ in Python a new key takes 100 ns less.
    __init__ = object.__init__

    key: Any
    value: Any
    weight = 0
    grace = 0.0
    # Those of a graced one have:
    timer: _GraceTimer
    # Those of a coherent cache have:
    slot: int
    news: int
    stamp: int


class _WeighedEntry(Entry):
    __slots__ = ("weight",)

    weight: int

    def __init__(self) -> None:
        self.weight = 0


class _GraceTimer(Timer):
    """Due when the grace of an entry is over."""

    __slots__ = ("key",)

    def __init__(self, key: Any) -> None:
        super().__init__()
        self.key = key


class _StampedEntry(_WeighedEntry):
    """An entry of a coherent cache: the slot of its key on the board, and what that showed when it was filled."""

    __slots__ = ("news", "slot", "stamp")

    slot: int
    news: int
    stamp: int


class GracedEntry(_StampedEntry):
    """An entry that may be served, to those who say so, for ``grace`` seconds after it was due.

    It stays in the map until then, so its place in the wheel is taken by ``timer``; for ``get`` it is gone when due.
    """

    __slots__ = ("grace", "timer")

    grace: float

    def __init__(self, key: Any, grace: float) -> None:
        self.grace = grace
        self.timer = _GraceTimer(key)
        self.weight = 0


class _Marker(Entry):
    """What a walk has in the map while it lasts. No entry: it is never live, found or counted."""

    __slots__ = ()

    def __init__(self) -> None:
        # That nobody else has. And a string: in a dict of strings the first other key rebuilds the table, and for a
        # million entries nothing else runs for 300 ms.
        self.key = f"marker {token_hex(16)}"
        self.value = None
        self.due = -inf


class BoundedMap(Driven):
    """What ``Cache`` stores in: everything but loading. Its arguments are those of ``Cache``.

    Whoever loads a key, or waits for who does, is told here of what is written to it.
    """

    __slots__ = (
        "_ambiguous",
        "_board",
        "_board_checked",
        "_clearings",
        "_deletions",
        "_evictions",
        "_expirations",
        "_flights",
        "_groups",
        "_handles",
        "_hit_tally",
        "_identity",
        "_jitter",
        "_leases",
        "_max_entries",
        "_max_weight",
        "_miss_tally",
        "_most",
        "_on_removal",
        "_replacements",
        "_ttl",
        "_walk",
        "_watched",
        "_weigher",
        "_weight",
        "entries",
        "hits",
        "name",
        "stamps",
    )

    def __init__(
        self,
        name: str,
        *,
        max_entries: int | None,
        max_weight: int | None,
        weigher: Callable[[Any, Any], int] | None,
        ttl: float | None,
        jitter: float,
        interval: float,
        slots: int,
        on_removal: Callable[[Any, Any, RemovalCause], object] | None,
        board: AnyBoard | None,
        clock: Clock,
    ) -> None:
        self.name = options.text("name", name)
        self._max_entries: float = options.count_or_none("max_entries", max_entries) or inf
        self._max_weight: float = options.count_or_none("max_weight", max_weight) or inf
        self._weigher = options.function_or_none("weigher", weigher)
        if (max_weight is None) != (weigher is None):
            raise TypeError("max_weight and weigher must be given together")
        self._ttl = options.ttl("ttl", ttl)
        self._jitter = Jitter(options.fraction("jitter", jitter))
        self.on_removal = on_removal
        self._board = options.board_or_none("board", board)
        # Not id(self), which another cache may have when this one is gone.
        self._identity = object()
        self._board_checked = steady(unfrozen(clock))()
        # The three below and ``clock`` are public for the backends, whose ``get`` spells out the hit path once more.
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.stamps: memoryview | None = None if board is None else board.stamps
        self._count_from_zero()
        self._handles = Handles()
        self._flights = SingleFlight()
        self._leases = FillLeases(self._give_up, self._give_up_soon)
        self._groups: Counter[str] = Counter()
        self._ambiguous: frozenset[str] = frozenset()
        self._most = 0
        self._weight = 0
        # Who goes through the entries in order of use, if somebody does.
        self._walk: OrderedWalk | None = None
        # Last: from here on the wheel thread and forks know of this object, and whatever moves the time in tests.
        super().__init__(interval, slots, clock)
        if self.clock is SystemClock.monotonic:
            frozen_time.follow(self)

    @property
    def on_removal(self) -> Callable[[Any, Any, RemovalCause], object] | None:
        """The listener, which may be set, and set to None, at any time. See ``Cache``."""
        listener: Callable[[Any, Any, RemovalCause], object] | None = self._on_removal
        return listener

    @on_removal.setter
    def on_removal(self, listener: Callable[[Any, Any, RemovalCause], object] | None) -> None:
        self._on_removal = options.function_or_none("on_removal", listener)
        self._watched = listener is not None or self._weigher is not None

    def get(self, key: Hashable, default: Any = None) -> Any:
        """The value of ``key``, or ``default``. Never an expired one."""
        try:
            entries = self.entries
            entry = entries[key]
            clock = self.clock
            # A key with code of its own may only claim to equal the one that was found: see keys.py.
            if entry.due > clock() and (type(key) is str or type(key) is int or is_plain(key)):
                stamps = self.stamps
                if stamps is None or stamps[entry.slot] == entry.stamp:
                    entries.move_to_end(key)
                    next(self.hits)
                    return entry.value
        except KeyError:
            # Not there, or gone between two steps: what is true is found out under the lock.
            pass
        entry_or_none = self._look_up(self._plain(key))
        return default if entry_or_none is None else entry_or_none.value

    def set(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL) -> bool:
        """Store ``value``, in place of any other. False if it alone outweighs ``max_weight``: then it is not stored.

        Args:
            ttl: seconds, > 0; None for never; the cache's own if not given.
        """
        if type(key) is not str:
            key = self._plain(key)
        clock = self.clock
        now = clock()
        # _jittered_due, and Jitter in it, spelled out: 120 ns less.
        if ttl is DEFAULT_TTL:
            ttl = self._ttl
        elif type(ttl) is not int or not 0 < ttl < CENTURIES:
            ttl = options.ttl("ttl", ttl)
        if ttl is None:
            due = inf
        else:
            most = ttl * self._jitter.fraction
            if most > MAX_JITTER:
                most = MAX_JITTER
            due = now + (ttl - most * random())
        if self._watched:
            return self._set(key, value, due, now)
        # Below, what _set does to an entry that is there and stays in its slot, without a listener or weights, in half
        # the time.
        # No acquire and release, though they take 80 ns less: an exception that comes from outside between the first
        # and its try would leave the lock taken for ever.
        with self._lock:
            entries = self.entries
            entry: Any = entries.get(key)
            if (
                type(entry) is not Entry
                or not now < entry.due < inf
                or not entry.filed <= due < inf
                or self._flights.in_progress
            ):
                settled = False
            else:
                entries.move_to_end(key)
                settled = True
                # Kept until the lock is free: the last reference to a value may bring a __del__ with it.
                old = entry.value  # noqa: F841
                entry.value = value
                # As TimingWheel.move would.
                entry.due = due
                self._replacements += 1
        if not settled:
            return self._set(key, value, due, now)
        if due < self.wake_at or now - self.wake_at > self._patience:
            self._written(due, now, [])
        return True

    def add(self, key: Hashable, value: Any, ttl: TTL = DEFAULT_TTL) -> bool:
        """Store ``value`` unless the key is there. Whether it was stored.

        The TTL is kept exactly, as locks, rate windows and one-time codes need it: no jitter.
        """
        key = self._plain(key)
        now = self.clock()
        due = self._due(ttl, now)
        weight = self._weigh(key, value)
        note = None if self._board is None else self._seen_at_miss(key)
        removed: Removals = []
        try:
            with self._lock:
                if self._live(key, now) is not None:
                    return False
                seen = None if note is None else self._fills(key, note, now, removed)
                stored = self._put(key, value, due, weight, now, removed, seen=seen)
            self._written(due, now, removed)
        except BaseException:
            self._interrupted()
            raise
        return stored

    def touch(self, key: Hashable, ttl: TTL = DEFAULT_TTL) -> bool:
        """Give an entry a new TTL from now, exactly, without jitter. False if the key isn't there."""
        key = self._plain(key)
        now = self.clock()
        due = self._due(ttl, now)
        self._seen_at_miss(key)
        try:
            with self._lock:
                entry = self._live(key, now)
                if entry is None:
                    return False
                if self._board is not None:
                    stamp = self._board.touch(entry.slot, entry.news)
                    if stamp is None:
                        # Written over by another process, at this moment.
                        return False
                    entry.stamp = stamp
                self._file(entry, due)
            self._scheduled(due, now)
        except BaseException:
            self._interrupted()
            raise
        return True

    def renew(self, key: Hashable, value: str | bytes, ttl: TTL = DEFAULT_TTL) -> bool:
        """Give an entry that has ``value`` already a new TTL from now, exactly. False if there is none.

        Unlike ``touch``, this is no news: it leaves the entries of other processes as they are.
        """
        key = self._plain(key)
        now = self.clock()
        due = self._due(ttl, now)
        try:
            with self._lock:
                entry = self._live(key, now)
                if entry is None or type(entry.value) is not type(value) or entry.value != value:
                    return False
                self._file(entry, due)
            self._scheduled(due, now)
        except BaseException:
            self._interrupted()
            raise
        return True

    def expires_in(self, key: Hashable) -> float | None:
        """Seconds until an entry expires; None if it never does.

        Raises:
            MissingKey: (a KeyError) the key isn't there.
        """
        plain = self._plain(key)
        now = self.clock()
        with self._lock:
            entry = self._live(plain, now)
            due = 0.0 if entry is None else entry.due
        if entry is None:
            raise MissingKey(key)
        return None if due == inf else due - now

    def incr(self, key: Hashable, delta: Any = 1) -> Any:
        """Add ``delta`` to a value, keep its expiry, and return the sum. Atomic.

        Raises:
            MissingKey: (a KeyError) the key isn't there.
            TypeError: the value and ``delta`` don't add up.
        """
        return self.transform(key, lambda value: value + delta)

    def transform(self, key: Hashable, function: Callable[[Any], Any]) -> Any:
        """Put ``function(value)`` in the place of a value, keep its expiry, and return the new value. Atomic.

        ``function`` runs without a lock, and once more if somebody else wrote the key meanwhile.

        Raises:
            MissingKey: (a KeyError) the key isn't there.
        """
        plain = self._plain(key)
        self._seen_at_miss(plain)
        while True:
            now = self.clock()
            removed: Removals = []
            with self._lock:
                entry = self._live(plain, now, self._found_expired(removed))
                old = None if entry is None else entry.value
            if entry is None:
                self._removed(removed)
                raise MissingKey(key)
            value = function(old)
            weight = self._weigh(plain, value)
            try:
                with self._lock:
                    there: Any = self.entries.get(plain)
                    if there is not entry or there.value is not old or not self._is_current(entry):
                        continue
                    self._put(plain, value, entry.due, weight, now, removed, grace=entry.grace)
                self._written(entry.due, now, removed)
            except BaseException:
                self._interrupted()
                raise
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

    def delete(self, key: Hashable) -> bool:
        """Remove an entry. Whether it was there."""
        return self._delete(key) is not MISSING

    def get_many(self, keys: Iterable[Hashable]) -> dict[Any, Any]:
        """The values of those keys that are there. One hold of the lock for every 1,024 keys."""
        found: dict[Any, Any] = {}
        removed: Removals = []
        for batch in batched((key, self._plain(key)) for key in keys):
            now = self.clock()
            live = []
            missed: list[tuple[Any, Seen]] = []
            with self._lock:
                for key, plain in batch:
                    entry = self._live(plain, now, removed)
                    if entry is None:
                        next(self._miss_tally.ticks)
                        if self._board is not None:
                            missed.append((plain, self._seen(plain)))
                    else:
                        self.entries.move_to_end(plain)
                        next(self.hits)
                        live.append((key, entry.value))
            # Outside: a dict hashes the caller's keys.
            found.update(live)
            for plain, seen in missed:
                self._note_miss(plain, seen)
        self._removed(removed)
        return found

    def set_many(self, values: Mapping[Any, Any], ttl: TTL = DEFAULT_TTL, *, jitter: bool = True) -> list[Any]:
        """``set`` for many. The keys that were not stored. One hold of the lock for every 1,024 keys.

        Args:
            jitter: False to keep the TTL exactly, as ``add`` does.
        """
        due_after = self._jittered_due if jitter else self._due
        refused = []
        for batch in batched((key, self._plain(key), value) for key, value in values.items()):
            now = self.clock()
            ready = [
                (key, plain, value, due_after(ttl, now), self._weigh(plain, value), self._seen_at_miss(plain))
                for key, plain, value in batch
            ]
            removed: Removals = []
            try:
                with self._lock:
                    for key, plain, value, due, weight, note in ready:
                        seen = None if note is None else self._fills(plain, note, now, removed)
                        if not self._put(plain, value, due, weight, now, removed, seen=seen):
                            refused.append(key)
                self._written(min(each[3] for each in ready), now, removed, len(ready))
            except BaseException:
                self._interrupted()
                raise
        return refused

    def delete_many(self, keys: Iterable[Hashable]) -> int:
        """``delete`` for many. How many were there. One hold of the lock for every 1,024 keys."""
        deleted = 0
        for batch in batched(self._plain(key) for key in keys):
            now = self.clock()
            removed: Removals = []
            with self._lock:
                for key in batch:
                    self._forget(key)
                    entry = self.entries.get(key)
                    if entry is not None:
                        self._unlink(entry, DELETED, now, removed)
                self._fit_table()
            deleted += sum(cause is DELETED for _, _, cause in removed)
            self._removed(removed)
        return deleted

    def delete_group(self, name: str) -> int:
        """Delete every key that is a tuple whose first item is ``name``. How many were there."""
        # First what is being loaded: what lands in between is an entry by then.
        with self._lock:
            loading = list(self._flights.in_progress)
        # Copied in one C call, so without the lock, which would be held for as long.
        keys = {key: None for key in (*loading, *dict.keys(self.entries)) if _is_in_group(key, name)}
        if self._board is not None:
            # Which of them other processes have is not known.
            self._board.write_all()
        return self.delete_many(original(key) for key in keys)

    def group(self, name: str) -> str:
        """``name``, or, if a group was called so before, that and a number: two functions may have the same name.

        Of those, and of what is called <locals>, <lambda> or <partial>, another process may give a name to another one.
        """
        # Functions are decorated when modules are imported: nothing is loaded for that.
        with behind(self._lock):
            self._groups[name] += 1
            number = self._groups[name]
            numbered = name if number == 1 else f"{name}#{number}"
            if "<" in name or number > 1:
                self._ambiguous |= {name, numbered}
        return numbered

    def evict_to(self, size: int) -> None:
        """Evict the least recently used entries until at most ``size``, an int >= 0, are left."""
        options.whole("size", size)
        while len(self) > size:
            now = self.clock()
            removed: Removals = []
            with self._lock:
                while len(self) > size and len(removed) < BATCH:
                    self._evict_oldest(now, removed)
                self._fit_table()
            self._removed(removed)

    def clear(self) -> None:
        """Remove every entry."""
        now = self.clock()
        gone = Detached()
        try:
            with self._lock:
                self._leases.cleared(self.steady())
                if self._board is not None:
                    self._board.write_all()
                    current_holder().forget_misses(self._identity)
                self._detach_all(gone)
            self._cleared(gone, now)
        finally:
            self._count_cleared(gone, now)
            self._leases.wake()

    def keys(self) -> list[Any]:
        """The keys that are there, least recently used first. A snapshot."""
        now = self.clock()
        with self._lock:
            entries = list(self.entries.values()) if self._walk is None else self._walk.in_order(self.entries)
        return [original(entry.key) for entry in entries if entry.due > now and self._is_current(entry)]

    def in_order_of_use(self) -> Generator[list[Entry], None, None]:
        """Every entry that is in memory, least recently used first, some at a time, without holding anybody up.

        An entry that is used meanwhile comes after all others, perhaps for a second time; one that is new may come.

        Raises:
            RuntimeError: somebody else is at it.
        """
        walk = OrderedWalk(_Marker(), _Marker(), _Marker())
        try:
            with self._lock:
                if self._walk is not None:
                    raise RuntimeError(f"the cache {self.name!r} is being saved already")
                walk.start(self.entries)
                self._walk = walk
            yield from self._in_steps(walk, walk.step)
            # No more than these, or those who use the cache could keep it going.
            upto = walk.how_many_used()
            yield from self._in_steps(walk, lambda entries, count: walk.used(entries, upto, count))
        finally:
            with suppress(CacheClosed):
                self._end_walk(walk)

    def _in_steps(
        self, walk: OrderedWalk, step: Callable[[OrderedDict[Any, Entry], int], list[Entry]]
    ) -> Iterator[Any]:
        count = ordered_walk.STEP
        while True:
            asked = perf_counter()
            with self._lock:
                batch = step(self.entries, count) if self._walk is walk else []
            if not batch:
                return
            began = perf_counter()
            if began - asked > LONGEST_BETWEEN_STEPS:
                # Another thread ran meanwhile, and may have come upon the lock: without this, it would wait for the
                # interpreter a second time.
                sleep(0)
            yield batch
            # What was used meanwhile is noted by the next step, which is not to take long.
            slow = perf_counter() - began > LONGEST_BETWEEN_STEPS
            count = max(1, count // 2) if slow else min(ordered_walk.STEP, 2 * count)

    def _end_walk(self, walk: OrderedWalk) -> None:
        try:
            # All the way round, if whoever began it did not go on.
            for _ in self._in_steps(walk, walk.step):
                pass
            # However much is used meanwhile, it comes to an end.
            for _ in range(walk.steps_to_settle()):
                with self._lock:
                    if self._walk is not walk or not walk.settle(self.entries):
                        break
        finally:
            with self._lock:
                if self._walk is walk:
                    self._stop_walking()
        while walk.forget():
            pass

    def __len__(self) -> int:
        if self._walk is None:
            return len(self.entries)
        # How many markers there are is known under the lock only.
        with behind(self._lock):
            return len(self.entries) - (0 if self._walk is None else MARKERS)

    def __contains__(self, key: Hashable) -> bool:
        plain = self._plain(key)
        now = self.clock()
        removed: Removals = []
        with self._lock:
            entry = self._live(plain, now, self._found_expired(removed))
        self._removed(removed)
        return entry is not None

    def after_fork_in_child(self) -> None:
        super().after_fork_in_child()
        # Or whoever adds up the figures of all processes would have the parent's twice.
        self._count_from_zero()
        if self._walk is not None:
            # Who was at it is no thread of this process, and everything is to be in its place.
            self._end_walk(self._walk)
        self._handles.forget_locks()
        self._flights.forget_all()
        self._leases.forget_all()
        if self._board is not None:
            self._board.open_in_child()
            self.stamps = self._board.stamps

    # Below: under the lock.

    def _detach_all(self, gone: Detached) -> None:
        """Take everything out, at once however much it is. It goes to ``gone``."""
        self._stop_walking()
        self._flights.supersede_all()
        entries: OrderedDict[Any, Entry] = OrderedDict()
        wheel = self._wheel.emptied()
        # No calls from here on.
        gone.entries, self.entries = self.entries, entries
        self._wheel = wheel
        self._weight = 0
        self._most = 0
        self.wake_at = inf

    def _stop_walking(self) -> None:
        if self._walk is not None:
            self._walk.end(self.entries)
            self._walk = None

    def _live(self, key: Any, now: float, removed: Removals | None = None) -> Any:
        """The entry of ``key`` if its time has not come. With ``removed``, one whose time has is taken out."""
        entry = self.entries.get(key)
        if entry is None:
            return None
        if entry.due > now and self._is_current(entry):
            return entry
        if removed is not None and (entry.due + entry.grace <= now or self._is_overwritten(entry)):
            # By whatever the other process did, this entry is gone.
            self._unlink(entry, DELETED, now, removed)
        return None

    def _found_expired(self, removed: Removals) -> Removals | None:
        """``removed`` while time is frozen: what was found expired must not come back when a test moves time back."""
        return removed if self._frozen else None

    def _is_current(self, entry: Any) -> bool:
        """Whether ``entry`` may be a hit: no other process has written its key, and its epoch is not over."""
        return self.stamps is None or bool(self.stamps[entry.slot] == entry.stamp)

    def _is_overwritten(self, entry: Any) -> bool:
        """Whether another process has written the key, or one in its slot, since ``entry`` was filled."""
        return self._board is not None and self._board.mismatch_is_a_write and not self._is_current(entry)

    def _seen(self, key: Any) -> Seen:
        """What the board shows for ``key``; nothing without a board."""
        return NOTHING_SEEN if self._board is None else self._board.seen(self._board.slot(key))

    def _put(
        self,
        key: Any,
        value: Any,
        due: float,
        weight: int,
        now: float,
        removed: Removals,
        *,
        grace: float = 0.0,
        seen: Seen | None = None,
    ) -> bool:
        """File a value. Whether it is stored; what left for it goes to ``removed``.

        Args:
            seen: of a value that fills what was missed, what the board showed at the miss. If it shows something else
                now, the value may be old: it is not stored, or, of an ``Epoch``, stored as suspect. None if the value
                is news for the other processes.
        """
        self._check_open()
        # Made before anything is looked up: making it may start the collector, and with it somebody's __del__.
        slot = news = stamp = 0
        current = True
        if self._board is not None:
            slot = self._board.slot(key)
            if seen is None:
                news = stamp = self._board.write(slot)
            else:
                news, stamp = seen
                current = self._board.stamps[slot] == stamp
                if not current:
                    self._leases.refused(key, self.steady())
                    if self._board.mismatch_is_a_write:
                        return False
        if grace and due != inf:
            new: Any = GracedEntry(key, grace)
        elif self._board is not None:
            new = _StampedEntry()
        elif self._weigher is None:
            new = Entry()
        else:
            new = _WeighedEntry()
        if self._flights.in_progress:
            self._flights.supersede(key)
        if current and self._leases.in_force:
            self._leases.filled(key, value)
        entries = self.entries
        entry: Any = entries.get(key)
        if weight > self._max_weight:
            if entry is not None:
                self._unlink(entry, REPLACED, now, removed)
            return False
        if entry is not None and (entry.grace or new.grace):
            # Of another make: in its place comes a new one.
            self._unlink(entry, REPLACED, now, removed)
            entry = None
        if entry is None:
            # First room, then the entry: the bound holds for whoever looks without the lock, too.
            size = len(entries)
            if self._walk is not None:
                size -= MARKERS
            if size >= self._max_entries:
                self._evict_oldest(now, removed)
            elif size >= self._most:
                self._most = size + 1
            new.key = key
            new.value = value
            new.prev = new.next = None
            new.due = new.filed = due
            if self._board is not None:
                new.slot = slot
                new.news = news
                new.stamp = stamp
            if self._weigher is not None:
                new.weight = weight
            # First the slot, then the map: if this is interrupted in between, the wheel passes over what is not there.
            if new.grace:
                self._wheel.schedule(new.timer, due + grace)
            elif due != inf:
                self._wheel.schedule(new, due)
            entries[key] = new
            self._weight += weight
        else:
            entries.move_to_end(key)
            expired, sooner = entry.due <= now, due < entry.due
            if sooner:
                # Before the value, which must not live longer than its own time; below after it, so neither does the
                # old one.
                self._file(entry, due)
            # No calls from here to the end of the counting.
            old, cause = entry.value, EXPIRED if expired else REPLACED
            entry.value = value
            if self._board is not None:
                entry.news = news
                # After the value: a reader who finds this stamp finds this value.
                entry.stamp = stamp
            if self._weigher is not None:
                self._weight += weight - entry.weight
                entry.weight = weight
            if expired:
                self._expirations += 1
            else:
                self._replacements += 1
            removed.append((entry.key, old, cause))
            if not sooner:
                self._file(entry, due)
        if self._weight > self._max_weight:
            self._evict_excess(now, removed)
        return True

    def _file(self, entry: Any, due: float) -> None:
        """Give an entry another time."""
        timer: Timer = entry.timer if entry.grace else entry
        leaves = due + entry.grace
        if leaves == inf:
            self._wheel.cancel(timer)
            timer.due = inf
        else:
            self._wheel.move(timer, leaves)
        entry.due = due

    def _forget(self, key: Any) -> None:
        """``key`` is being deleted: what is loaded for it is old."""
        if self._flights.in_progress:
            self._flights.supersede(key)
        if self._board is not None:
            # Also for what is not here: it may be elsewhere.
            self._board.write(self._board.slot(key))
            # What was missed before is no longer filled by a set that comes after.
            self._seen_at_miss(key)
        if self._leases.in_force:
            self._leases.deleted(key, self.steady())

    def _evict_excess(self, now: float, removed: Removals) -> None:
        """Until the weight is right, or until ``removed`` is as long as one hold of the lock allows."""
        while self._weight > self._max_weight and len(removed) < 2 * BATCH:
            self._evict_oldest(now, removed)

    def _evict_oldest(self, now: float, removed: Removals) -> None:
        self._unlink(None if self._walk is None else self._walk.oldest(self.entries), EVICTED, now, removed)

    def _fills(self, key: Any, note: tuple[Seen, float], now: float, removed: Removals) -> Seen | None:
        """What the board showed at a miss that a ``set`` of ``key`` answers; None if it is news. Called by that.

        If the board shows something else by now, ``_put`` does not keep the value.
        """
        seen, missed_at = note
        if self._board is None or now - missed_at > FILL_WINDOW:
            return None
        slot = self._board.slot(key)
        entry = self._live(key, now)
        if entry is not None and self._board.stamps[slot] != seen[1]:
            # Another thread of this process stored it since. Which value is the newer is not known: no process keeps
            # either.
            self._unlink(entry, REPLACED, now, removed)
            self._board.write(slot)
        return seen

    def _unlink(self, entry: Entry | None, cause: RemovalCause, now: float, removed: Removals) -> None:
        """Take an entry out, the oldest of the map if none is given. One step, whatever comes: without a call."""
        entries = self.entries
        if entry is None:
            # As popitem(last=False) would, but that is a call.
            for oldest in entries:
                entry = entries[oldest]
                break
            else:
                raise KeyError("there is nothing to evict")
        del entries[entry.key]
        timer: Timer = entry.timer if entry.grace else entry
        before, after = timer.prev, timer.next
        if before is not None and after is not None:
            before.next = after
            after.prev = before
            timer.prev = timer.next = None
        self._weight -= entry.weight
        if entry.due <= now:
            cause = EXPIRED
            self._expirations += 1
        elif cause is EVICTED:
            self._evictions += 1
        elif cause is REPLACED:
            self._replacements += 1
        else:
            self._deletions += 1
        # A call at last, which is done before anything can come.
        removed.append((entry.key, entry.value, cause))

    def _count_from_zero(self) -> None:
        self._hit_tally = Tally()
        self.hits = self._hit_tally.ticks
        self._miss_tally = Tally()
        self._evictions = 0
        self._expirations = 0
        self._replacements = 0
        self._deletions = 0
        self._clearings = 0

    def _fit_table(self) -> None:
        """Give memory back: a table that once held many keeps its size until it is rebuilt."""
        size = len(self.entries)
        sparse = size * (SPARSE_IF_FEW if size <= FEW else SPARSE)
        if self._most > SMALL_TABLE and sparse < self._most:
            self.entries = OrderedDict(self.entries)
            self._most = size

    def _take_out(self, due: list[Any]) -> list[Any]:
        entries = self.entries
        gone: list[Any] = []
        for timer in due:
            key = timer.key
            if key not in entries:
                continue
            entry = entries[key]
            # Or it is the timer of another one, which an interruption has left in the wheel.
            if entry is timer or (entry.grace and entry.timer is timer):
                del entries[key]
                self._weight -= entry.weight
                self._expirations += 1
                gone.append(entry)
        self._fit_table()
        return gone

    # Below: without the lock.

    def _cleared(self, gone: Detached, now: float) -> None:
        interruption: BaseException | None = None
        while removed := self._count_batch(gone, now):
            try:
                self._removed(removed)
            except BaseException as error:
                # After the others were counted and told.
                interruption = error
        if interruption is not None:
            raise interruption

    def _count_cleared(self, gone: Detached, now: float) -> None:
        """Count what is left of ``gone``, if the telling of it was interrupted."""
        while self._count_batch(gone, now):
            pass

    def _count_batch(self, gone: Detached, now: float) -> Removals:
        """Some more of ``gone``, counted."""
        batch = gone.batch()
        if not batch:
            return []
        removed = [(entry.key, entry.value, EXPIRED if entry.due <= now else CLEARED) for entry in batch]
        expired = sum(cause is EXPIRED for _, _, cause in removed)
        cleared = len(batch) - expired
        for entry in batch:
            # They point at each other, and would wait for the garbage collector.
            timer = entry.timer if entry.grace else entry
            timer.prev = timer.next = None
        counted = gone.counted + len(batch)
        with suppress(CacheClosed), self._lock:
            # No calls: all of them, or none.
            self._expirations += expired
            self._clearings += cleared
            gone.counted = counted
        gone.counted = counted
        return removed

    def _set(self, key: Any, value: Any, due: float, now: float) -> bool:
        weight = self._weigh(key, value)
        note = None if self._board is None else self._seen_at_miss(key)
        removed: Removals = []
        try:
            with self._lock:
                seen = None if note is None else self._fills(key, note, now, removed)
                stored = self._put(key, value, due, weight, now, removed, seen=seen)
            self._written(due, now, removed)
        except BaseException:
            self._interrupted()
            raise
        return stored

    def _note_miss(self, key: Any, seen: Seen) -> None:
        if self._tells_others():
            current_holder().note_miss((self._identity, _noted(key)), (seen, self.clock()))

    def _seen_at_miss(self, key: Any) -> tuple[Seen, float] | None:
        """What the board showed when the running thread or task missed ``key``, and when that was, if it did. Forgotten
        by this call."""
        return current_holder().was_missed((self._identity, _noted(key))) if self._tells_others() else None

    def _tells_others(self) -> bool:
        """Whether other processes see what is written here, so that a fill has to be told from news."""
        return self._board is not None and self._board.mismatch_is_a_write

    def _finish(self, done: list[Any]) -> None:
        if self._on_removal is not None:
            self._removed([(entry.key, entry.value, EXPIRED) for entry in done])

    def _plain(self, key: Any) -> Any:
        if type(key) is str:
            return key
        return self._handles.plain(key)

    def _due(self, ttl: TTL, now: float) -> float:
        seconds = self._seconds(ttl)
        return inf if seconds is None else now + seconds

    def _jittered_due(self, ttl: TTL, now: float) -> float:
        seconds = self._seconds(ttl)
        return inf if seconds is None else now + self._jitter(seconds)

    def _seconds(self, ttl: TTL) -> float | None:
        if ttl is DEFAULT_TTL:
            return self._ttl
        if type(ttl) is int and 0 < ttl < CENTURIES:
            return ttl
        return options.ttl("ttl", ttl)

    def _weigh(self, key: Any, value: Any) -> int:
        if self._weigher is None:
            return 0
        return options.whole("what the weigher returns", self._weigher(original(key), value))

    def _look_up(self, key: Any) -> Any:
        """The way of a miss, and of the rare hit that the lock-free way could not be sure of."""
        now = self.clock()
        if self._board is not None:
            self._check_board()
        removed: Removals = []
        with self._lock:
            entry = self._live(key, now, removed)
            if entry is not None:
                self.entries.move_to_end(key)
            seen = self._seen(key) if entry is None else NOTHING_SEEN
        if entry is None:
            next(self._miss_tally.ticks)
            if self._board is not None:
                self._note_miss(key, seen)
        else:
            next(self.hits)
        self._removed(removed)
        return entry

    def _delete(self, key: Hashable) -> Any:
        plain = self._plain(key)
        now = self.clock()
        removed: Removals = []
        with self._lock:
            self._forget(plain)
            entry = self.entries.get(plain)
            if entry is not None:
                self._unlink(entry, DELETED, now, removed)
                self._fit_table()
        self._removed(removed)
        if entry is None:
            return MISSING
        (_, value, cause) = removed[0]
        return MISSING if cause is EXPIRED else value

    def _written(self, due: float, now: float, removed: Removals, written: int = 1) -> None:
        """After a write: tell the listener, and see that the wheel turns."""
        if self._board is not None:
            self._check_board()
        while self._weight > self._max_weight:
            # One heavy entry can cost more light ones than one hold of the lock allows.
            more: Removals = []
            with self._lock:
                self._evict_excess(now, more)
                self._fit_table()
            removed += more
        self._removed(removed)
        self._scheduled(due, now, written)

    def _removed(self, removals: Removals) -> None:
        """After a write or a look-up: tell those who wait for a lease, and the listener."""
        self._leases.wake()
        if self._on_removal is None:
            return
        interruption: BaseException | None = None
        for plain, value, cause in removals:
            key = original(plain)
            try:
                self._on_removal(key, value, cause)
            except Exception:
                logger.exception("on_removal of the cache %r raised for %r.", self.name, key)
            except BaseException as error:
                # An exit or Ctrl-C: after the others were told.
                interruption = error
        if interruption is not None:
            raise interruption

    def _check_board(self) -> None:
        """Every now and then: whether the processes that start now find the board that this one has."""
        now = self.steady()
        if self._board is None or now < self._board_checked + BOARD_CHECK:
            return
        self._board_checked = now
        if not self._board.is_gone():
            return
        gone = Detached()
        try:
            with self._lock:
                self._board.open()
                self.stamps = self._board.stamps
                self._detach_all(gone)
        except (FileUnusable, OSError):
            logger.exception("The board of the cache %r was removed and cannot be made anew.", self.name)
        else:
            logger.warning("The board of the cache %r was removed; it is new, and the cache empty.", self.name)
            self._cleared(gone, self.clock())
        finally:
            self._count_cleared(gone, self.clock())

    def _give_up(self, lease: Lease) -> None:
        now = self.steady()
        with suppress(CacheClosed), self._lock:
            self._leases.pass_on(lease, now)
        self._leases.wake()

    def _give_up_soon(self) -> None:
        if self._is_closed():
            return
        lock = behind(self._lock)
        # In one step: an exception from outside, between a call of acquire and the try, would leave the lock taken.
        (taken,) = map(lock.acquire, (False,))
        try:
            if taken:
                self._leases.collect(self.steady())
        finally:
            if taken:
                lock.release()
        if taken:
            self._leases.wake()


def group_of(key: Any) -> str | None:
    """The group that ``key``, as the user wrote it, is in, if it is in one."""
    return key[0] if type(key) is tuple and len(key) > 0 and type(key[0]) is str else None


def _is_in_group(plain: Any, name: str) -> bool:
    return group_of(original(plain)) == name


def _noted(key: Any) -> str | bytes:
    """``key`` in a form of bounded size, the same for keys that are equal."""
    if type(key) is str and len(key) <= PLAINLY_NOTED:
        return key
    text = repr(key if isinstance(key, str) else canonical(key))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def stale_until(entry: Entry) -> float:
    return entry.due + entry.grace if type(entry) is GracedEntry else entry.due


class Detached:
    """The entries that a clear has taken out of a map.

    Attributes:
        entries: the map that they were in.
        counted: how many of them are counted by now.
    """

    __slots__ = ("_listed", "counted", "entries")

    def __init__(self) -> None:
        self.entries: OrderedDict[Any, Entry] = OrderedDict()
        self.counted = 0
        self._listed: list[Any] | None = None

    def batch(self) -> list[Any]:
        """Some of those that are not counted yet."""
        if self._listed is None:
            # Made in one step: a hit that began before may still move an entry in the old map. In the dict's order,
            # which for a million entries takes 10 ms; in the order of use it would be 220 to 880.
            self._listed = list(dict.values(self.entries))
        return self._listed[self.counted : self.counted + BATCH]


def batched(items: Iterable[Any], count: int = BATCH) -> Iterable[list[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, count)):
        yield batch
