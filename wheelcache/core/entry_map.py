"""The entries of a Python core: in an ``OrderedDict`` in order of use, and in a timing wheel whose timers they are.

``move_to_end`` is one C call, so recency is exact and a hit needs no lock. Rejected, of a hit that takes 168 ns on
CPython 3.11: a lock around it (+170 ns); linked lists through the entries, which need that lock (+180 ns) and would
save 60 bytes an entry; a stamp on the entry (-27 ns), which leaves finding the oldest of a million to an unlucky
``set``.

How a change is atomic. CPython switches threads, and delivers asynchronous exceptions and signals, after a call, at
the start of a function and where a loop goes back; from 3.12 on it collects garbage there, too. So each method first
looks up, draws and allocates all that it needs, and then changes everything in a few lines that neither call nor loop,
between ``Commit`` and ``Committed``. A finalizer that the collector runs amid the first part may write here, which
``steps`` tells: then the caller begins again. What follows a commit (recency, the list of removals) can be lost to an
asynchronous exception without harm. For this, the links of the wheel's lists are spelled out wherever they change.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from math import inf
from typing import Any, Final

from wheelcache.core.contract import STORED, WAKE, RemovalCause, Removals, Seen
from wheelcache.core.entry import Entry, TrackedEntry
from wheelcache.core.ordered_walk import OrderedWalk
from wheelcache.core.stamp_words import StampWords
from wheelcache.core.timing_wheel import TimingWheel

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

FEW: Final = 8192
SHRINK_IF_FEW: Final = 8
SHRINK_FACTOR: Final = 64
"""The table is rebuilt when it once held this many times what it holds now. No other thread runs meanwhile: 8,192
entries take 1 to 3 ms, and a 16th of half a million, which was tried, 12."""

SMALL_TABLE: Final = 1024
"""Entries. A table that never held more is not worth rebuilding: some 90 KB."""

MARKERS: Final = 3
"""What an ordered walk has in the map beside entries."""

Entries = OrderedDict[Any, Any]


class EntryMap:
    """Called under the lock of its owner, except for look-ups in ``entries``.

    Attributes:
        entries: by key, least recently used first. Another object after ``detach_all`` and ``fit_table``.
        tracks: entries have weights or stamps.
        table: the stamps by slot, as an entry is compared with; None without.
        stamps: the same, to write to.
        walk: the ordered walk in progress, or None.
        weight: the sum of the entries' weights.
        steps: raised by every change.
        next_due: when ``take_due`` has work, in seconds; ``-inf`` while detached entries remain.
        expired, evicted, replaced, deleted, cleared: how many entries left, by cause.
        evicted_weight: the sum of the weights of those that were evicted.
        puts: how many values were stored, but for restored ones.
    """

    __slots__ = (
        "_detached",
        "_entry_class",
        "_max_entries",
        "_most",
        "_weighs",
        "_wheel",
        "cleared",
        "deleted",
        "entries",
        "evicted",
        "evicted_weight",
        "expired",
        "next_due",
        "puts",
        "replaced",
        "stamps",
        "steps",
        "table",
        "tracks",
        "walk",
        "weight",
    )

    def __init__(self, max_entries: float, weighs: bool, wheel: TimingWheel) -> None:
        self._max_entries = max_entries
        self._weighs = weighs
        self._wheel = wheel
        self.entries: Entries = OrderedDict()
        # What ``detach_all`` took out: pairs of a map and such a pair, so that one store adds a map.
        self._detached: tuple[Entries, Any] | None = None
        self._most = 0
        self.walk: OrderedWalk | None = None
        self.weight = 0
        self.steps = 0
        self.next_due = inf
        self.count_from_zero()
        self.use_stamps(None)

    def use_stamps(self, stamps: StampWords | None) -> None:
        self.stamps = stamps
        self.table: memoryview | None = None if stamps is None else stamps.table
        self.tracks = self._weighs or stamps is not None
        self._entry_class: type[Entry] = TrackedEntry if self.tracks else Entry

    def count_from_zero(self) -> None:
        self.expired = self.evicted = self.replaced = self.deleted = self.cleared = 0
        self.evicted_weight = self.puts = 0

    def __len__(self) -> int:
        return len(self.entries) - (0 if self.walk is None else MARKERS)

    def fresh(self, key: Any, now: float) -> Any:
        """The entry of ``key`` if it is fresh and current, else None."""
        entry = self.entries.get(key)
        return entry if entry is not None and entry.fresh_until > now and self.is_current(entry) else None

    def is_current(self, entry: Any) -> bool:
        """Whether no other process has written the key since ``entry`` was stored."""
        return self.table is None or bool(self.table[entry.slot] == entry.stamp)

    def in_order(self) -> list[Any]:
        """All entries, least recently used first."""
        return list(self.entries.values()) if self.walk is None else self.walk.in_order(self.entries)

    def oldest(self) -> Any:
        """The least recently used entry, of at least one."""
        entries = self.entries
        while self.walk is None:
            # A hit takes no lock, and may move an entry between the making of the iterator and its first step.
            with suppress(RuntimeError):
                return entries[next(iter(entries))]
        return self.walk.oldest(entries)

    # Below: changes.

    def store(
        self,
        steps: int,
        key: Any,
        entry: Any,
        value: Any,
        fresh_until: float,
        expires_at: float,
        weight: int,
        slot: int,
        seen: Seen | None,
        now: float,
        puts: int,
        removed: Removals | None,
        gone: list[Any],
    ) -> int:
        """Store a value in ``entry``, or, if that is None, in a new one. If the map is full, the oldest leaves for it.

        STORED, perhaps with WAKE; 0, and nothing changed, if ``steps`` is no longer the number of steps.

        Args:
            puts: 1, or 0 for a value that is restored.
            gone: keeps what leaves, for the caller to drop without the lock.
        """
        entries = self.entries
        home: Any = None
        victim: Any = None
        replaced: Any = None
        is_new = entry is None
        if is_new:
            entry = self._entry_class()
            entry.key = key
            entry.prev = entry.next = None
            entry.filed = inf
            if self.tracks:
                entry.weight = 0
            size = len(entries) if self.walk is None else len(entries) - MARKERS
            if size >= self._max_entries:
                try:
                    victim = entries[next(iter(entries))] if self.walk is None else self.walk.oldest(entries)
                except RuntimeError:
                    # As in ``oldest``, a call of which costs 60 ns.
                    victim = self.oldest()
                gone.append(victim)
            elif size >= self._most:
                self._most = size + 1
        else:
            replaced = entry.value
            gone.append(replaced)
        wakes_at = self.next_due
        if expires_at < entry.filed:
            if wakes_at == inf:
                # Idle until now: the wheel's tick is an old one, from which the new timer would look far off.
                self._wheel.turn(now)
            home = self._wheel.slot_for(expires_at)
            if expires_at < wakes_at:
                wakes_at = self._wheel.next_time(expires_at)
        leaver = victim if is_new else entry
        was_fresh = leaver is not None and leaver.fresh_until > now
        if self.steps != steps:
            return 0
        # Commit.
        self.steps = steps + 1
        if is_new:
            # First in, since that may fail for want of memory.
            entries[key] = entry
            if victim is not None:
                del entries[victim.key]
                if victim.prev is not None:
                    victim.prev.next, victim.next.prev = victim.next, victim.prev
                    victim.prev = victim.next = None
                self.weight -= victim.weight
                if was_fresh:
                    self.evicted += 1
                    self.evicted_weight += victim.weight
                else:
                    self.expired += 1
        elif was_fresh:
            self.replaced += 1
        else:
            self.expired += 1
        self.puts += puts
        entry.value = value
        entry.fresh_until = fresh_until
        entry.due = expires_at
        if self.tracks:
            self.weight += weight - entry.weight
            entry.weight = weight
            stamps = self.stamps
            if stamps is not None:
                entry.slot = slot
                if seen is not None:
                    entry.news, entry.stamp = seen
                elif stamps.next is None:
                    entry.news, entry.stamp = stamps.news[slot], stamps.table[slot]
                else:
                    # In the table's news first. No thread of this process runs between here and the entry's own stamp,
                    # so none finds the key missing.
                    stamps.news[slot] = stamps.table[slot] = entry.news = entry.stamp = stamps.next
                    stamps.next += 1
        if home is not None:
            if entry.prev is not None:
                entry.prev.next, entry.next.prev = entry.next, entry.prev
            entry.filed = expires_at
            entry.prev, entry.next = home.prev, home
            home.prev.next = entry
            home.prev = entry
        outcome = STORED | WAKE if wakes_at < self.next_due else STORED
        self.next_due = wakes_at
        # Committed.
        if is_new:
            if victim is not None and removed is not None:
                removed.append((victim.key, victim.value, EVICTED if was_fresh else EXPIRED))
        else:
            entries.move_to_end(key)
            if removed is not None:
                removed.append((key, replaced, REPLACED if was_fresh else EXPIRED))
        return outcome

    def file(self, entry: Any, fresh_until: float, expires_at: float, now: float) -> int:
        """Give an entry new times. WAKE if ``next_due`` became earlier, else 0."""
        home: Any = None
        wakes_at = self.next_due
        if expires_at < entry.filed:
            if wakes_at == inf:
                self._wheel.turn(now)
            home = self._wheel.slot_for(expires_at)
            if expires_at < wakes_at:
                wakes_at = self._wheel.next_time(expires_at)
        outcome = WAKE if wakes_at < self.next_due else 0
        # Commit.
        self.steps += 1
        entry.fresh_until = fresh_until
        entry.due = expires_at
        if home is not None:
            if entry.prev is not None:
                entry.prev.next, entry.next.prev = entry.next, entry.prev
            entry.filed = expires_at
            entry.prev, entry.next = home.prev, home
            home.prev.next = entry
            home.prev = entry
        self.next_due = wakes_at
        return outcome

    def remove(
        self,
        entry: Any,
        cause: RemovalCause,
        now: float,
        removed: Removals | None,
        gone: list[Any],
        news_in: int | None = None,
    ) -> None:
        """Take an entry out. ``gone`` keeps it until the lock is free.

        Args:
            news_in: the slot that gets a fresh stamp, if there are stamps.
        """
        gone.append(entry)
        if entry.fresh_until <= now:
            cause = EXPIRED
        stamps = self.stamps
        # Commit.
        self.steps += 1
        if news_in is not None and stamps is not None and stamps.next is not None:
            stamps.news[news_in] = stamps.table[news_in] = stamps.next
            stamps.next += 1
        del self.entries[entry.key]
        if entry.prev is not None:
            entry.prev.next, entry.next.prev = entry.next, entry.prev
            entry.prev = entry.next = None
        self.weight -= entry.weight
        if cause is DELETED:
            self.deleted += 1
        elif cause is EVICTED:
            self.evicted += 1
            self.evicted_weight += entry.weight
        elif cause is REPLACED:
            self.replaced += 1
        else:
            self.expired += 1
        # Committed.
        if removed is not None:
            removed.append((entry.key, entry.value, cause))

    def evict_excess(
        self, most: float, max_weight: float, budget: int, now: float, removed: Removals | None, gone: list[Any]
    ) -> bool:
        """Evict until there are ``most`` entries of ``max_weight``. Whether that takes more than ``budget``."""
        for _ in range(budget):
            if len(self) <= most and self.weight <= max_weight:
                return False
            self.remove(self.oldest(), EVICTED, now, removed, gone)
        return len(self) > most or self.weight > max_weight

    def take_due(self, now: float, budget: int, removed: Removals | None, gone: list[Any]) -> int:
        """Remove what has expired, looking at no more than ``budget`` timers. How many were looked at."""
        looked = 0
        wheel = self._wheel
        while looked < budget and (slot := wheel.turn(now)) is not None:
            reached = wheel.time_of(wheel.tick)
            entry: Any = slot.next
            while looked < budget and entry is not slot:
                looked += 1
                if entry.due <= reached:
                    gone.append(entry)
                    # Commit.
                    self.steps += 1
                    entry.prev.next, entry.next.prev = entry.next, entry.prev
                    entry.prev = entry.next = None
                    del self.entries[entry.key]
                    self.weight -= entry.weight
                    self.expired += 1
                    # Committed.
                    if removed is not None:
                        removed.append((entry.key, entry.value, EXPIRED))
                else:
                    self._refile(entry)
                entry = slot.next
        return looked

    def _refile(self, entry: Any) -> None:
        """Put a timer that was moved to a later time where it belongs by now; one that is never due, nowhere."""
        home: Any = None if entry.due == inf else self._wheel.slot_for(entry.due)
        # Commit.
        self.steps += 1
        entry.prev.next, entry.next.prev = entry.next, entry.prev
        entry.filed = entry.due
        if home is None:
            entry.prev = entry.next = None
        else:
            entry.prev, entry.next = home.prev, home
            home.prev.next = entry
            home.prev = entry

    def detach_all(self, *, news: bool = False) -> int:
        """Take everything out in O(1). How many were in; they count as CLEARED.

        Args:
            news: every slot gets a fresh stamp, if there are stamps.
        """
        if self.walk is not None:
            self.walk.end(self.entries)
        new: Entries = OrderedDict()
        wheel = self._wheel.emptied()
        size = len(self.entries)
        detached = (self.entries, self._detached) if size else self._detached
        stamps = self.stamps
        words = stamps.fresh_words() if news and stamps is not None else None
        # Commit.
        self.steps += 1
        if words is not None and stamps is not None:
            stamps.news[:] = words
            stamps.table[:] = words
        self.walk = None
        self.entries = new
        self._wheel = wheel
        self._detached = detached
        self.cleared += size
        self._most = 0
        self.weight = 0
        self.next_due = inf if detached is None else -inf
        return size

    @property
    def has_detached(self) -> bool:
        return self._detached is not None

    def drop_detached(self, budget: int, gone: list[Any], removed: Removals | None) -> None:
        """Drop detached entries until there are ``budget`` in ``gone``."""
        while self._detached is not None and len(gone) < budget:
            entries, rest = self._detached
            while entries and len(gone) < budget:
                key, entry = entries.popitem()
                # They point at each other, and would wait for the garbage collector.
                entry.prev = entry.next = None
                gone.append(entry)
                if removed is not None:
                    removed.append((key, entry.value, CLEARED))
            if not entries and self._detached[0] is entries:
                self._detached = rest

    def fit_table(self) -> None:
        """Give memory back: a table that once held many keeps its size until it is rebuilt."""
        if self._most <= SMALL_TABLE:
            return
        size = len(self.entries)
        if size * (SHRINK_IF_FEW if size <= FEW else SHRINK_FACTOR) < self._most:
            self.entries = OrderedDict(self.entries)
            self._most = size

    def find_next_due(self) -> None:
        """Set ``next_due`` anew, after entries were taken out. It does not get earlier: no entry expires before, and
        timers that wait to move to a finer level are not late."""
        self.next_due = max(self.next_due, self._wheel.next_wake()) if self._detached is None else -inf

    def follow(self, now: float) -> None:
        """The clock was exchanged. Where time went back, all entries are filed anew: O(n)."""
        if now < self._wheel.time_of(self._wheel.tick):
            wheel = TimingWheel(self._wheel.interval, self._wheel.slots, now)
            for entry in self.in_order():
                entry.prev = entry.next = None
                if entry.due != inf:
                    wheel.schedule(entry, entry.due)
            self._wheel = wheel
            self.next_due = -inf
            self.find_next_due()
