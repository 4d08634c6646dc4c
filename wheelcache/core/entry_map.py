"""The entries of the reference core: in an ``OrderedDict`` in order of use, and, as timers, in a timing wheel.

The garbage collector may run a finalizer in the middle of a method, and the finalizer may call the core. CPython starts
a collection at allocations and, from 3.12 on, after calls. Therefore a method that changes the map first creates the
objects it needs, and then looks up and changes entries in lines without calls. No finalizer can run between these
lines, so each finalizer finds a complete map. Only timers of removed entries may remain; the wheel drops them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from math import inf
from typing import Any, Final

from wheelcache.core.contract import MAX_WEIGHT, WAKE, Record, RemovalCause, Removals
from wheelcache.core.tags import Tags
from wheelcache.core.timing_wheel import FINEST_SLOTS, Timer, TimingWheel

CAUSES: Final = tuple(RemovalCause)
EXPIRED, EVICTED, REPLACED, DELETED, CLEARED, *_ = CAUSES
AS_EXPIRED, AS_REPLACED, AS_CLEARED = map(CAUSES.index, (EXPIRED, REPLACED, CLEARED))

SMALL_TABLE: Final = 1024
SHRINK_FACTOR: Final = 8
"""A table is rebuilt if it once held more than this many times its current entries, and more than SMALL_TABLE entries,
for which a table takes 90 KB."""


def check_weight(weight: int) -> None:
    """Raise an OverflowError if ``weight`` is negative, or more than MAX_WEIGHT."""
    if not 0 <= weight <= MAX_WEIGHT:
        raise OverflowError(f"a weight must be from 0 to 2**62, not {weight!r}")


class Entry(Timer):
    """A key, its value, and its two times: ``fresh_until``, and ``due``, when it expires and leaves memory.

    A new value for a key replaces the value of the existing entry. Since ``value`` is one reference, a reader without
    the lock finds either the old value or the new one.
    """

    __slots__ = ("fresh_until", "key", "tags", "value")

    # The map sets the attributes: without an __init__ in Python, a new key takes 100 ns less.
    __init__ = object.__init__

    weight = 0


class TrackedEntry(Entry):
    """An entry of a core with weights or trust: its weight, and the word under which it was stored."""

    __slots__ = ("trust", "weight")

    def __init__(self) -> None:
        self.weight = self.trust = 0


class EntryMap:
    """The entries of one core, which calls every method under its lock. Only look-ups in ``entries`` need no lock.

    Attributes:
        entries: the entries by key, the least recently used first. ``detach_all`` and ``fit_table`` replace this
            object.
        detached: the maps that ``detach_all`` detached, as a linked list of pairs (map, rest); None at its end.
        entry_class: the class of new entries.
        size: the number of entries: ``len(entries)``, without the call.
        weight: the sum of the entries' weights.
        next_due: the time at which the core has work, in seconds: see ``Core``.
        tags: the tags of the entries.
        removals: the number of removals for each cause, in the order of CAUSES.
        evicted_weight: the sum of the weights of evicted entries.
    """

    def __init__(self, max_entries: float, max_weight: float, interval: float, now: float) -> None:
        self._max_entries = max_entries
        self._max_weight = max_weight
        self._wheel = TimingWheel(interval, FINEST_SLOTS, now)
        self.entry_class: type[Entry] = Entry
        self.entries: OrderedDict[Any, Any] = OrderedDict()
        self.detached: tuple[OrderedDict[Any, Any], Any] | None = None
        # The largest number of entries since the table was built.
        self._most = 0
        self.size = 0
        self.weight = 0
        self.next_due = inf
        self._filings = 0
        self.tags = Tags()
        self.count_from_zero()

    def count_from_zero(self) -> None:
        self.removals = [0] * len(CAUSES)
        self.evicted_weight = 0

    def store(
        self,
        key: Any,
        value: Any,
        fresh_until: float,
        expires_at: float,
        weight: int,
        now: float,
        removed: Removals | None,
        gone: list[Any],
    ) -> Any:
        """Store a value at the young end and return its entry, which the caller passes to ``file``. If the map is full,
        evict the oldest entries first.

        Args:
            weight: 0 in a core without weights and trust.
            gone: receives references that the caller drops after it released the lock.
        """
        if expires_at < self.next_due == inf:
            # The wheel was idle. Seen from its old tick, the new timer would look far off.
            self._wheel.turn(now)
        entries = self.entries
        if key not in entries:
            made: Any = self.entry_class()
            made.key = key
            made.value = value
            made.prev = made.next = None
            made.filed = inf
            made.due = expires_at
            made.fresh_until = fresh_until
            made.tags = ()
            while self.size >= self._max_entries:
                self._evict_oldest(now, removed, gone)
            # A finalizer may have set the key, or detached all entries.
            entries = self.entries
            if key not in entries:
                entries[key] = made
                self.size += 1
                if self.size > self._most:
                    self._most = self.size
                if weight:
                    made.weight = weight
                    self.weight += weight
                return made
        entry = entries[key]
        replaced, is_fresh = entry.value, entry.fresh_until > now
        self.removals[AS_REPLACED if is_fresh else AS_EXPIRED] += 1
        entry.value = value
        entry.due = expires_at
        entry.fresh_until = fresh_until
        if weight != entry.weight:
            self.weight += weight - entry.weight
            entry.weight = weight
        gone.append(replaced)
        if removed is not None:
            removed.append((key, replaced, REPLACED if is_fresh else EXPIRED))
        if key in entries:
            entries.move_to_end(key)
        return entry

    def file(self, entry: Any, expires_at: float) -> int:
        """Put an entry into the wheel. Return WAKE if ``next_due`` became earlier, else 0."""
        self._filings += 1
        self._wheel.schedule(entry, expires_at)
        if expires_at < self.next_due:
            wakes_at = self._wheel.next_time(expires_at)
            if wakes_at < self.next_due:
                self.next_due = wakes_at
                return WAKE
        return 0

    def renew(self, entry: Any, fresh_until: float, expires_at: float, now: float) -> int:
        """Give an entry new times. Return WAKE if ``next_due`` became earlier, else 0."""
        if expires_at < self.next_due == inf:
            self._wheel.turn(now)
        entry.due = expires_at
        entry.fresh_until = fresh_until
        return self.file(entry, expires_at) if expires_at < entry.filed else 0

    def remove(self, key: Any, cause: RemovalCause, now: float, removed: Removals | None, gone: list[Any]) -> None:
        """Remove the entry of a key, if there is one, and append it to ``gone``."""
        entries = self.entries
        if key not in entries:
            return
        entry = entries[key]
        del entries[key]
        self.size -= 1
        self.weight -= entry.weight
        if entry.fresh_until <= now:
            cause = EXPIRED
        elif cause is EVICTED:
            self.evicted_weight += entry.weight
        gone.append(entry)
        self.removals[CAUSES.index(cause)] += 1
        self._wheel.cancel(entry)
        if entry.tags:
            self.tags.discard(entry.tags, key)
        if removed is not None:
            removed.append((key, entry.value, cause))

    def evict(self, most: float, budget: int, now: float, removed: Removals | None, gone: list[Any]) -> bool:
        """Evict until at most ``most`` entries are left, and they fit ``max_weight``. Return whether this takes more
        than ``budget`` evictions."""
        for _ in range(budget):
            if self.size <= most and self.weight <= self._max_weight:
                return False
            self._evict_oldest(now, removed, gone)
        return self.size > most or self.weight > self._max_weight

    def _evict_oldest(self, now: float, removed: Removals | None, gone: list[Any]) -> None:
        # A hit, which needs no lock, may move an entry after the iterator is created and before its first step. The
        # caller tries again.
        with suppress(RuntimeError):
            self.remove(next(iter(self.entries), None), EVICTED, now, removed, gone)

    def remove_due(self, now: float, budget: int, removed: Removals | None, gone: list[Any]) -> int:
        """Remove expired entries. Look at ``budget`` timers at most, and return the number of timers looked at."""
        looked = 0
        wheel = self._wheel
        while looked < budget and (slot := wheel.turn(now)) is not None:
            reached = wheel.time_of(wheel.tick)
            while looked < budget:
                entry: Any = slot.next
                if entry is slot:
                    # Emptied, perhaps by a finalizer after any check.
                    break
                looked += 1
                has_left = self.entries.get(entry.key) is not entry
                if not has_left and entry.due <= reached:
                    self.remove(entry.key, EXPIRED, now, removed, gone)
                elif not has_left and entry.due < inf:
                    # The entry got a later expiry.
                    wheel.schedule(entry, entry.due)
                else:
                    wheel.cancel(entry)
                    entry.filed = inf
        return looked

    def sweep(self, budget: int, now: float, removed: Removals | None, gone: list[Any]) -> int:
        """Remove the entries of dropped tags. Look at ``budget`` keys at most, and return the number of keys looked
        at."""
        looked = 0
        while looked < budget:
            try:
                tag = self.tags.dropped[0]
            except IndexError:
                # All are swept; a finalizer may have done it after any check.
                break
            if not tag.keys:
                with suppress(ValueError):
                    self.tags.dropped.remove(tag)
                continue
            looked += 1
            key = tag.keys.pop()
            entry = self.entries.get(key)
            if entry is not None and tag in entry.tags:
                self.remove(key, DELETED, now, removed, gone)
        self.tags.was_swept(now)
        return looked

    def detach_all(self) -> int:
        """Detach all entries, in O(1), and return their number. They count as CLEARED."""
        entries: OrderedDict[Any, Any] = OrderedDict()
        wheel = self._wheel.emptied()
        size = self.size
        if size:
            self.detached = self.entries, self.detached
        self.entries = entries
        self._wheel = wheel
        self.removals[AS_CLEARED] += size
        self.size = self._most = self.weight = 0
        self.tags.forget()
        self.next_due = inf if self.detached is None else -inf
        return size

    def drop_detached(self, budget: int, removed: Removals | None, gone: list[Any]) -> None:
        """Drop detached entries until ``gone`` has ``budget`` items."""
        while len(gone) < budget and self.detached is not None:
            entries, rest = self.detached
            while len(gone) < budget and entries:
                key, entry = entries.popitem()
                # Timers of a slot refer to each other, so only the garbage collector would free them. If a finalizer
                # detached an entry before it was filed, it is in the present wheel.
                self._wheel.cancel(entry)
                gone.append(entry)
                if removed is not None:
                    removed.append((key, entry.value, CLEARED))
            if not entries and self.detached is not None and self.detached[0] is entries:
                self.detached = rest

    def fit_table(self) -> None:
        """Rebuild the table if it is far too large: a dict that once held many entries keeps its size otherwise."""
        if self._most <= SMALL_TABLE or self.size * SHRINK_FACTOR >= self._most:
            return
        size, removals = self.size, [*self.removals]
        try:
            entries = self.entries.copy()
        except RuntimeError:
            # A hit moved an entry during the copy. The next call tries again.
            return
        # Otherwise a finalizer has added or removed entries.
        if self.size == size and self.removals == removals:
            self.entries = entries
            self._most = size

    def find_next_due(self) -> None:
        """Update ``next_due`` after removals, which can only make it later.

        The wheel may have to turn earlier, but only to move timers to a finer level: no entry expires at that time."""
        filings = -1
        # Repeat if a finalizer has filed an entry.
        while filings != self._filings:
            filings = self._filings
            wake = self._wheel.next_wake()
        self.next_due = -inf if self.detached is not None else min(max(wake, self.next_due), self.tags.due)

    def follow(self, now: float) -> None:
        """Continue at the time ``now`` of another clock. If it is behind the wheel, file all entries again, in O(n)."""
        if now < self._wheel.time_of(self._wheel.tick):
            self._wheel = TimingWheel(self._wheel.interval, FINEST_SLOTS, now)
            entries = list(self.entries.values())
            # Unlink all entries first: a finalizer may remove one, which would change its neighbors in the old wheel.
            for entry in entries:
                entry.prev = entry.next = None
            for entry in entries:
                if entry.due != inf:
                    self._wheel.schedule(entry, entry.due)
        self.tags.was_swept(now)
        self.next_due = -inf
        self.find_next_due()


class KeyScan:
    """A walk over a copy of the keys: see ``contract.Scan``.

    Args:
        keys: the keys, copied in one step of the core. For a million keys, this takes 10 ms.
        records_of: returns the records of the keys that still have entries, in one step.
    """

    __slots__ = ("_keys", "_records_of")

    def __init__(self, keys: list[Any], records_of: Callable[[list[Any]], list[Record]]) -> None:
        self._keys = iter(keys)
        self._records_of = records_of

    def step(self, count: int) -> list[Record]:
        # Skip keys without entries: an empty list would mean the end.
        while keys := self.keys(count):
            if records := self._records_of(keys):
                return records
        return []

    def keys(self, count: int) -> list[Any]:
        return list(islice(self._keys, count))
