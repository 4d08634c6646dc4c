"""The core of a host cache: the contract of ``core.contract`` on the rows of a database that processes share.

What differs from a core in memory: values are strings, ints of 64 bits, None and ``Serialized``; keys are stored as
text; a full cache evicts in the order of use as far as it is known (see ``_used``); a core notifies no listener of
removals by other processes.

**Nothing old is stored.** A computation begins with a watch, which has its moment and the moment of the row of its key,
if there is one. Its value is stored only if the row is still the same. If there is no row, another process may have
deleted it, or it may have been removed to make room, so that its moment is lost. Therefore, each removal of a row
raises a *floor*, at least to the moment of the row, and each delete raises it to the moment of the delete. There is
one floor for each of LANES hashes of keys, and one for all keys, at least the epoch of the file. A value whose
computation began before the floor is not stored. So a delete needs no tombstone: it may only keep the value of another
key with the same hash from being stored, once. A transaction that is being committed *marks* its keys and tags until a
moment in the future: no value is stored whose computation began before it, and a plain write counts as one before the
commit, which deletes the key. Floors and marks are apart, so that the floors show all writes, also those of others
during a commit.

**Tags.** An entry is not current if one of its tags was dropped after it was written. Entries of dropped tags are
removed by the janitor.

**The janitor** is the one process that holds the claim on JANITOR. Its wheel thread removes rows that are over.

**A local core** of one entry counts look-ups, and has the watches of this process: each write also reaches it.

**Why a look-up missed** is in the database, since any process may have removed the entry: the last key that left each
lane is remembered with the cause. A delete is a delete, whichever worker called it.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from math import inf
from random import Random, SystemRandom
from sys import maxsize
from typing import Any, Final
from zlib import crc32

from wheelcache.core import IMPLEMENTATION, CoreClass
from wheelcache.core.access import Serialized
from wheelcache.core.contract import (
    BATCH,
    CHANGED,
    KEEP_TTL,
    MISSING,
    OUTDATED,
    PRESENT,
    STORED,
    TOO_HEAVY,
    WAKE,
    Counts,
    GroupRule,
    Labels,
    Record,
    RemovalCause,
    Removals,
    Times,
)
from wheelcache.core.group_rules import group_by_rules
from wheelcache.engine.options import MAX_JITTER
from wheelcache.host_cache import statements as sql
from wheelcache.host_cache.claims import Claims
from wheelcache.host_cache.host_file import HostFile
from wheelcache.runtime.clock import moment

ROW_BYTES: Final = 90
"""The bytes of a row and its places in the indexes, without its key, which is stored twice, and its value."""

STEP: Final = 200
"""The rows that the janitor removes in a transaction, in some 2 ms."""

USES_TOGETHER: Final = 50
"""The uses that are written in a transaction, in 0.3 ms."""

MOST_USES: Final = 16_384
"""The used keys that a process keeps until its next tick."""

DROPS_KEPT: Final = 60_000_000_000
"""Nanoseconds for which a dropped tag is remembered after its entries are gone. A value that was computed for longer,
and has a tag, is then not stored."""

LATEST: Final = 2.0**62
"""The latest end of an entry in the index, in seconds. Integers of SQLite have 64 bits."""

LONGEST: Final = 900_000_000
"""Bytes of the largest row. SQLite has a limit of 1,000,000,000."""

JANITOR: Final = "\0janitor"


class HostWatch:
    """A watch on the writes of a key by all processes: see ``Watch``."""

    __slots__ = ("_core", "inner", "key", "moment", "since", "trust", "value")

    def __init__(self, core: HostCore, key: Any, inner: Any) -> None:
        self.key = key
        self.inner = inner
        # The first use may create the file, which holds no value of an earlier computation.
        core.file.open()
        self.since = moment()
        self.trust = 0
        self.value = MISSING
        self._core = core
        self.moment = core.written_at(key)

    @property
    def broken(self) -> bool:
        # A floor that was raised for another key breaks the watch, too: the value would not be stored.
        return self.inner.broken or self._core.was_written_since(self)

    @broken.setter
    def broken(self, is_broken: bool) -> None:
        self.inner.broken = is_broken

    def close(self) -> None:
        self.inner.close()


class HostCore:
    """The entries of a host cache: see ``Core`` for the calls.

    Args:
        find_place: finds the folder, at the first use.
        name: the name of the cache, for the log.
        max_bytes: the most bytes of all rows.
        max_entries, jitter, interval, clock: see ``Core``.

    Attributes:
        file: the database.
        claims: of the callers on the machine that miss a key, one has its claim.
        wake: called when the wheel thread must begin to tick.
        note: called with the place of a write, the moment of the write before it, its own, and for a delete, the moment
            of the deleted row: for transactions.
    """

    entry_bytes = ROW_BYTES
    in_step = False
    trust = 0

    def __init__(
        self,
        find_place: Callable[[], Any],
        name: str,
        *,
        max_bytes: int,
        max_entries: int | None,
        jitter: float,
        interval: float,
        clock: Any,
    ) -> None:
        self._bounds = [max_bytes, max_entries or maxsize]
        self.file = HostFile(find_place, sql.schema(*self._bounds), name, self._check_gate)
        self.file.opened = self._begin_ticks
        self.wake: Callable[[], object] = bool
        self._gate_error: Callable[[], Exception] | None = None
        self.claims = Claims(self.file)
        self._largest = min(max_bytes // 8, LONGEST)
        self._local: Any = CoreClass(
            max_entries=1,
            max_weight=None,
            jitter=0.0,
            interval=interval,
            clock=clock,
            policy="lru",
        )
        self._jitter, self._interval = jitter, interval
        self._random = Random(SystemRandom().getrandbits(64)).random
        local = self._local
        self.completed = local.completed
        self.now, self.count_hit = local.now, local.count_hit
        self.count_stale_hit, self.count_load = local.count_stale_hit, local.count_load
        self.groups, self.is_preliminary = local.groups, local.is_preliminary
        self._rules: tuple[GroupRule, ...] = ()
        self.use_clock = local.use_clock
        self.note: Callable[[Any, int, int, int], object] | None = None
        self._notes_uses = False
        self._used: dict[Any, None] = {}
        self._janitor, self._is_janitor = self.claims.on(JANITOR), False
        self._next_tick = inf
        self._swept = self._sweeps = self._swept_to = 0
        self._evicted_before: int | None = None
        self._removals = dict.fromkeys(RemovalCause, 0)

    def group_by(self, rules: Iterable[GroupRule]) -> None:
        rules = tuple(rules)
        self._local.group_by(rules)
        # The core in Python has one group.
        self._rules = rules if IMPLEMENTATION == "compiled" else ()

    # Reading.

    def find(self, key: Any, default: Any = None) -> Any:
        name = key if type(key) is str and key.isascii() else name_of(key)
        row = self.file.read(sql.FIND, (name,))
        if row is None or row[1] <= self.now():
            return default
        self.count_hit(key)
        if self._notes_uses and len(self._used) < MOST_USES:
            self._used[name] = None
        value = row[0]
        return Serialized(value) if type(value) is bytes else value

    def miss_cause(self, key: Any) -> int:
        name = name_of(key)
        row = None if self.is_shut else self.file.read(sql.MISS_CAUSE, (name, hash_of(name), self.now()))
        return sql.UNKNOWN if row is None else row[0]

    def count_miss(self, key: Any, cause: int = -1, *, group: str | None = None) -> None:
        self._local.count_miss(key, self.miss_cause(key) if cause < 0 else cause, group=group)

    def times(self, key: Any) -> Times | None:
        row = self.file.read(sql.TIMES, (name_of(key),))
        return None if row is None else Times(row[0], row[1], True)

    def peek(self, key: Any, *, use: bool = False) -> Record | None:
        name = name_of(key)
        row = self.file.read(sql.ENTRY, (name,))
        if row is None:
            return None
        if use and self._notes_uses and len(self._used) < MOST_USES:
            self._used[name] = None
        return _record(key, *row)._replace(group=group_by_rules(self._rules, key))

    def __len__(self) -> int:
        return self._state()[1]

    @property
    def weight(self) -> int:
        return self._state()[0]

    def _state(self) -> tuple[int, int, int, int, int]:
        # Never an error: a ``repr`` needs it.
        return (self.file.read(sql.STATE) if self._gate_error is None else None) or (0, 0, 0, *self._bounds)

    def own_part(self) -> tuple[int, int]:
        """Return the entries and their weight that count among the figures of this process: all, if it is the janitor,
        so that the sums over all processes are true."""
        size, entries, *_ = self._state() if self._is_janitor else (0, 0)
        return entries, size

    # The gate.

    def gate(self, error: Callable[[], Exception] | None) -> None:
        self._gate_error = error
        self._local.gate(error)
        if error is not None:
            # An open file is used without a check.
            self.file.close()
            self.claims.close()

    @property
    def is_shut(self) -> bool:
        return self._gate_error is not None

    def _check_gate(self) -> None:
        error = self._gate_error
        if error is not None:
            raise error()

    # Writing.

    def set(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        row = self._row(self.now(), key, value, ttl, grace, exact, labels)
        if row is None:
            self.delete(key)
            return TOO_HEAVY
        if labels is not None and labels[0] and labels[1]:
            return self._written(self.file.write(sql.PUT_UNDROPPED, (*row, labels[1])), OUTDATED, key, value, labels)
        put = sql.PUT if row[-1] is None else sql.PUT_TAGGED
        written = self.file.write(put[self._notes_uses], row)
        if written == 0:
            # A commit in progress has marked the key. It must not store an older value later.
            self.delete(key, removed=removed)
        return self._written(written, OUTDATED, key, value, labels)

    def add(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        now = self.now()
        row = self._row(now, key, value, ttl, 0.0, True, labels)
        if row is None:
            times = self.times(key)
            return TOO_HEAVY if times is None or times.fresh_until <= now else PRESENT
        if labels is not None and labels[0] and labels[1]:
            written = self.file.write(sql.ADD_UNDROPPED, (*row, now, labels[1]))
        else:
            written = self.file.write(sql.ADD, (*row, now))
        return self._written(written, PRESENT, key, value, labels)

    def replace(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        expected: Any,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        removed: Removals | None = None,
    ) -> int:
        now = self.now()
        row = self._row(now, key, value, ttl, grace, exact, None)
        if row is None:
            deleted = self.file.write(sql.DELETE_VALUE, (name_of(key), storable(expected)))
            return TOO_HEAVY if deleted == 1 else CHANGED
        statement = sql.REPLACE if ttl == KEEP_TTL else sql.REPLACE_WITH_TTL
        return self._written(self.file.write(statement, (*row, now, storable(expected))), CHANGED, key, value)

    def fill(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        watch: Any,
        grace: float = 0.0,
        weight: int = 0,
        labels: Labels | None = None,
        removed: Removals | None = None,
    ) -> int:
        row = self._row(self.now(), key, value, ttl, grace, False, labels)
        if row is None:
            deleted = self.file.write(sql.DELETE_UNWRITTEN, (name_of(key), watch.moment))
            return TOO_HEAVY if deleted >= 0 else CHANGED
        if watch.inner.broken:
            return CHANGED
        fill = sql.FILL if row[-1] is None else sql.FILL_UNDROPPED
        written = self.file.write(fill, (*row, watch.since, watch.moment))
        return self._written(written, CHANGED, key, value, labels, watch.inner)

    def _row(
        self,
        now: float,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float,
        exact: bool,
        labels: Labels | None,
    ) -> tuple[Any, ...] | None:
        """Return the row of an entry, and make room for it; None if it is too heavy."""
        name = key if type(key) is str and key.isascii() else name_of(key)
        stored = value if type(value) is Serialized else storable(value)
        text = json.dumps([*map(tag_name, labels[0])]) if labels is not None and labels[0] else None
        size = ROW_BYTES + 2 * len(name) + (len(stored) if type(stored) in SIZED else 8) + len(text or "")
        if size > self._largest:
            return None
        if size > sql.EVICTED_TOGETHER * ROW_BYTES:
            self._make_room(size)
        if ttl is None or ttl == KEEP_TTL:
            fresh = gone = inf
            due = None
        else:
            fresh = now + (ttl if exact else ttl - min(ttl * self._jitter, MAX_JITTER) * self._random())
            gone = fresh + grace
            # Without the jitter: the next write, if its jitter is larger, does not have to move the row in the index.
            due = int(min(now + ttl + grace, LATEST)) // sql.DUE_STEP
        return moment(), name, stored, fresh, gone, due, hash_of(name), size, text

    def _written(
        self, written: int, refusal: int, key: Any, value: Any, labels: Labels | None = None, inner: Any = None
    ) -> int:
        """Return the outcome of a statement that has changed ``written`` rows. A value that was stored also reaches
        the local core, under the watch ``inner``."""
        if written != 1:
            return refusal
        if labels is not None:
            labels = (), 0, labels[2]
        local = self._local
        if inner is None:
            outcome: int = local.set(key, value, None, labels=labels)
        else:
            outcome = local.fill(key, value, None, inner, labels=labels)
        return outcome & ~WAKE

    def _make_room(self, size: int) -> None:
        """Remove the oldest entries in several transactions. That of a write would be too long for small entries."""

        def work(cursor: Any) -> int:
            cursor.execute(sql.MORE_BYTES, (size, 0))
            removed = _removed(cursor, sql.EVICTED, sql.REMOVE_SURPLUS)
            cursor.execute(sql.MORE_BYTES, (0, removed))
            return removed

        while self.file.transaction(work, 0) >= sql.EVICTED_TOGETHER:
            pass

    def touch(self, key: Any, ttl: float | None) -> int:
        now = self.now()
        # Only the numbers that the statement contains are bound: ?2, ?4 and ?10.
        statement, fresh = (sql.TOUCH_FOREVER, inf) if ttl is None else (sql.TOUCH, now + ttl)
        row = None, name_of(key), None, fresh, None, None, None, None, None, now
        return STORED if self.file.write(statement, row) == 1 else 0

    def delete(
        self,
        key: Any,
        default: Any = None,
        only_dead: bool = False,
        removed: Removals | None = None,
    ) -> Any:
        name, now = name_of(key), self.now()

        def work(cursor: Any) -> Any:
            row = cursor.execute(sql.ENTRY, (name,)).fetchone()
            if only_dead:
                if row is None:
                    cursor.execute(sql.DELETE, (name,))
                elif row[1] <= now:
                    _removed(cursor, sql.EXPIRED, sql.DELETE, (name,))
                return None
            self._delete_and_raise_floor(cursor, name)
            return row

        row = self.file.transaction(work, None)
        if only_dead:
            return default
        # Breaks the watches of this process.
        self._local.delete(key)
        if row is None or row[1] <= now:
            return default
        self._removals[RemovalCause.DELETED] += 1
        value = in_memory(row[0])
        if removed is not None:
            removed.append((key, value, RemovalCause.DELETED))
        return value

    def _delete_and_raise_floor(self, cursor: Any, name: Any) -> None:
        """Delete the row of a key, and refuse the values whose computations have begun."""
        lane, now = lane_of(name), moment()
        if self.note is not None:
            row, before = cursor.execute(sql.LAST_WRITES, (name, lane)).fetchone()
            now = max(now, row + 1, before + 1)
            self.note(lane, before, now, row)
        cursor.execute(sql.DELETE, (name,))
        # After the delete, which raises it as well.
        cursor.execute(sql.RAISE_FLOOR, (lane, now))

    def raise_drop(self, cursor: Any, tag: str) -> None:
        """Refuse the values of a tag whose computations have begun. Its entries are no longer current."""
        name = tag_name(tag)
        (before,) = cursor.execute(sql.DROPPED, (name,)).fetchone() or (0,)
        now = max(moment(), before + 1)
        if self.note is not None:
            self.note(tag, before, now, 0)
        cursor.execute(sql.RAISE_DROP, (name, now))

    def raise_fill_floor(self, cursor: Any) -> None:
        """Do the same for all keys."""
        (before,) = cursor.execute(sql.FILL_FLOOR).fetchone()
        now = max(moment(), before + 1)
        if self.note is not None:
            self.note("", before, now, 0)
        cursor.execute(sql.RAISE_FILL_FLOOR, (now,))

    def outdate_fills(self) -> None:
        """Refuse all values whose computations have begun."""
        self.file.transaction(self.raise_fill_floor, None)

    def remove_value(self, key: Any, value: Any, removed: Removals | None = None, *, was_hit: bool = False) -> None:
        name, stored = name_of(key), storable(value)
        self._removals[RemovalCause.DELETED] += max(0, self.file.write(sql.DELETE_VALUE, (name, stored)))
        # Counts the look-up.
        self._local.remove_value(key, value, was_hit=was_hit)

    def drop_tag(self, name: str) -> int:
        self._local.drop_tag(name)
        self.file.transaction(lambda cursor: self.raise_drop(cursor, name), None)
        return 0

    def dropped_since(self, tags: tuple[str, ...], since: int) -> bool:
        return self.file.read(sql.ANY_DROPPED, (json.dumps([*map(tag_name, tags)]), since)) is not None

    def evict(self, budget: int = BATCH, removed: Removals | None = None, *, size: int | None = None) -> bool:
        if size is None:
            return False
        evicted = self.file.transaction(lambda cursor: _removed(cursor, sql.EVICTED, sql.EVICT, (budget, size)), 0)
        self._removals[RemovalCause.EVICTED] += evicted
        return len(self) > size

    def clear(self, *, invalidate: bool = True) -> int:
        """Go on with a new file. A core that closes leaves the entries to the other processes."""
        self._local.clear()
        if not invalidate:
            return 0
        removed = len(self)
        self.file.clear()
        self._removals[RemovalCause.CLEARED] += removed
        return 0

    def drain(self, budget: int = BATCH, removed: Removals | None = None) -> bool:
        return self._local.drain(budget)  # type: ignore[no-any-return]

    # The work of the wheel thread.

    def _begin_ticks(self) -> None:
        """Let the wheel thread tick, also in a process that only reads: it must notice if the folder is removed."""
        if self._next_tick == inf:
            self._next_tick = self.now() + self._interval
            self.wake()

    @property
    def next_due(self) -> float:
        return self._next_tick

    def advance(self, budget: int = BATCH, removed: Removals | None = None) -> int:
        """Remove rows that are over, if this process is the janitor, and write the uses of entries."""
        self._local.advance(budget)
        if self._gate_error is not None:
            self._next_tick = inf
            return 0
        self.file.check()
        size, entries, evicted, *bounds = self._state()
        self._notes_uses = 2 * size > bounds[0] or 2 * entries > bounds[1]
        self._write_uses()
        self._is_janitor = self._janitor.take()
        if not self._is_janitor:
            self._next_tick = self.now() + self._interval
            return 0
        self._count_evictions(evicted)
        wanted = [min(self._bounds[0], self.file.most_bytes(self.epoch)), self._bounds[1]]
        if bounds != wanted:
            # Those of an older release of the site, or the room has changed.
            self.file.write(sql.SET_BOUNDS, wanted)
        now = int(self.now())

        def remove_due(cursor: Any) -> tuple[int, int]:
            if cursor.execute(sql.DUE, (now, 1)).fetchone() is None:
                # Without a write, the log does not grow.
                return 0, 0
            postponed = cursor.execute(sql.POSTPONE, (now, STEP)).rowcount
            return postponed, _removed(cursor, sql.EXPIRED, sql.REMOVE_DUE, (now, STEP))

        postponed, expired = self.file.transaction(remove_due, (0, 0))
        self._removals[RemovalCause.EXPIRED] += expired
        # Immediately, if there is more to do, after other threads and processes had their turn.
        is_done = expired + postponed < STEP and not self._sweep()
        self._next_tick = self.now() + (self._interval if is_done else 0.0)
        return expired

    def _write_uses(self) -> None:
        used, self._used = self._used, {}
        names = iter(used)
        while batch := [*islice(names, USES_TOGETHER)]:

            def work(cursor: Any, batch: list[Any] = batch) -> None:
                first = moment()
                cursor.executemany(sql.USE, [(first + n, name) for n, name in enumerate(batch)])

            self.file.transaction(work, None)

    def _count_evictions(self, evicted: int) -> None:
        if self._evicted_before is not None:
            self._removals[RemovalCause.EVICTED] += max(0, evicted - self._evicted_before)
        self._evicted_before = evicted

    def _sweep(self) -> bool:
        """Remove some of the entries of dropped tags. Return whether more must be looked at."""
        (newest,) = self.file.read(sql.NEWEST_DROP) or (None,)
        if newest is None or (newest <= self._swept and not self._swept_to):
            return False
        start = self._swept_to
        if start == 0:
            self._sweeps = moment()
        (last,) = self.file.read(sql.LAST_TAGGED, (start, STEP)) or (None,)
        if last is None:
            self._swept, self._swept_to = self._sweeps, 0
            self._forget_drops(self._sweeps - DROPS_KEPT)
            return False
        self.file.transaction(lambda cursor: _removed(cursor, sql.TAG, sql.REMOVE_DROPPED, (start, last)), 0)
        self._swept_to = last
        return True

    def _forget_drops(self, until: int) -> None:
        def work(cursor: Any) -> None:
            (newest,) = cursor.execute(sql.NEWEST_DROP_BEFORE, (until,)).fetchone()
            if newest is not None:
                cursor.execute(sql.FORGET_DROPS, (until,))
                cursor.execute(sql.DROP_FLOOR_TO, (newest,))

        self.file.transaction(work, None)

    # Walks.

    def scan(self, *, start: float = 0.0) -> HostScan:
        first, last = self.file.read(sql.ENDS) or (0, 0)
        return HostScan(self.file, int(first + start * (last - first)) - 1, last, self._rules)

    def keys(self, limit: int = maxsize) -> list[Any]:
        if limit <= BATCH:
            return [key_of(name) for (name,) in self.file.read_all(sql.KEYS, (self.now(), limit))]
        # In steps: while a statement reads a million rows, the log cannot be reset, and grows beyond its bound.
        scan, now, names = self.scan(), self.now(), dict[Any, None]()
        while rows := scan.rows("key, fresh", BATCH):
            for name, fresh in rows:
                # An entry that was used meanwhile comes again, and is then the latest.
                names.pop(name, None)
                if fresh > now:
                    names[name] = None
        return [*map(key_of, names)][-limit:]

    # Figures: those of the local core.

    def counts(self) -> Counts:
        return self._local.counts()._replace(removals=dict(self._removals), evicted_weight=0)  # type: ignore[no-any-return]

    # Moments.

    @property
    def epoch(self) -> int:
        return self.file.epoch

    def written_at(self, key: Any) -> int | None:
        """Return the moment of the row of a key; None if there is none."""
        row = self.file.read(sql.MOMENT, (name_of(key),))
        return None if row is None else row[0]

    def was_written_since(self, watch: HostWatch) -> bool:
        name = name_of(watch.key)
        row = self.file.read(sql.WRITTEN_SINCE, (name, lane_of(name), watch.moment, watch.since))
        return row is not None and bool(row[0])

    def watch(self, key: Any, *, wants_value: bool = False) -> Any:
        inner = self._local.watch(key, wants_value=wants_value)
        return inner if wants_value else HostWatch(self, key, inner)

    # Forks.

    def before_fork(self) -> None:
        self.file.before_fork()
        self._local.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        self._local.after_fork(in_child=in_child)
        self.file.after_fork(in_child=in_child)
        if in_child:
            self.claims.after_fork_in_child()
            self._random = Random(SystemRandom().getrandbits(64)).random
            self._janitor, self._is_janitor = self.claims.on(JANITOR), False
            self._used, self._next_tick = {}, inf
            self._removals = dict.fromkeys(RemovalCause, 0)


class HostScan:
    """A walk over the entries in the order of use, to the end that they had at its beginning, and then twice to the end
    that they have meanwhile. An entry that is used during the walk may come again.

    Args:
        last, end: the places after which it begins, and to which it goes first.
        rules: name the groups of the entries.
    """

    def __init__(self, file: HostFile, last: int, end: int, rules: Sequence[GroupRule]) -> None:
        self._file, self._rules = file, rules
        self._last, self._end = last, end
        self._rounds = 3

    def step(self, count: int) -> list[Record]:
        rows = self.rows("key, value, fresh, gone, size, tags", count)
        records = (_record(key_of(name), *row) for name, *row in rows)
        return [each._replace(group=group_by_rules(self._rules, each.key)) for each in records]

    def keys(self, count: int) -> list[Any]:
        return [key_of(name) for (name,) in self.rows("key", count)]

    def rows(self, columns: str, count: int) -> list[Any]:
        rows: list[Any] = []
        while self._rounds and not rows:
            rows = self._file.read_all(sql.NEXT_ROWS.format(columns=columns), (self._last, self._end, count))
            if rows:
                self._last = rows[-1][0]
            else:
                self._rounds -= 1
                self._last, self._end = self._end, (self._file.read(sql.ENDS) or (0, 0))[1]
        return [row[1:] for row in rows]


def _record(key: Any, value: Any, fresh: float, gone: float, size: int, tags: str | None) -> Record:
    names = map(tag_of, json.loads(tags)) if tags else ()
    return Record(key, in_memory(value), Times(fresh, gone, True), size, tuple(names))


def _removed(cursor: Any, cause: int, statement: str, given: tuple[Any, ...] = ()) -> int:
    """Run a statement that removes entries for a cause, and return their number."""
    cursor.execute(sql.REMOVING, (cause,))
    removed: int = cursor.execute(statement, given).rowcount
    cursor.execute(sql.REMOVING, (sql.DELETED,))
    return removed


# Keys and values in the database.


def name_of(key: Any) -> str | bytes:
    """Return the key of a row: text, or bytes for keys that are not ASCII, and for tuples of one text."""
    if type(key) is str:
        if key.isascii():
            return key
        name = key.encode(errors="surrogatepass")
        return name if name > b"\3" else b"\2" + name
    if type(key) is tuple and len(key) == 1 and type(key[0]) is str:
        return b"\0" + key[0].encode(errors="surrogatepass")
    return b"\1" + repr(key).encode(errors="surrogatepass")


def key_of(name: str | bytes) -> Any:
    if isinstance(name, str):
        return name
    kind = name[0]
    text = (name if kind > 2 else name[1:]).decode(errors="surrogatepass")
    return text if kind > 1 else (text,)


def tag_name(tag: str) -> str:
    """Return the name of a tag: SQLite's functions for JSON know neither the character 0 nor surrogates."""
    return tag if tag.isascii() and tag.isprintable() and "\\" not in tag else json.dumps(tag)[1:-1]


def tag_of(name: str) -> str:
    return json.loads(f'"{name}"') if "\\" in name else name


def hash_of(name: str | bytes) -> int:
    return crc32(name.encode() if isinstance(name, str) else name)


def lane_of(name: str | bytes) -> int:
    return hash_of(name) % sql.LANES


SIZED: Final = (str, bytes, Serialized)


def is_storable(value: Any) -> bool:
    """Return whether a value is stored as it is."""
    if type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return value is None or (type(value) is str and (value.isascii() or _is_encodable(value)))


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def storable(value: Any) -> Any:
    """Return the form of a value in the database. A codec keeps only such values as they are; others are pickled."""
    return value if type(value) is Serialized or is_storable(value) else pickle.dumps(value, pickle.HIGHEST_PROTOCOL)


def in_memory(value: Any) -> Any:
    return Serialized(value) if type(value) is bytes else value
