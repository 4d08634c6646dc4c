"""The core of a host cache: the contract of ``core.contract`` on the rows of a database that processes share.

What differs from a core in memory: values are strings, ints of 64 bits, None and ``Serialized``; keys are stored as
text; a full cache evicts in the order of use as far as it is known (see ``_used``); a core notifies no listener of
removals by other processes.

**Nothing old is stored.** A computation begins with a watch, which has its moment and the moment of the row of its key,
if there is one. Its value is stored only if the row is still the same. If there is no row, another process may have
deleted it, or it may have been removed to make room, so that its moment is lost. Therefore, each removal of a row
raises a *floor*, to the moment of the row, and each delete raises it to the moment of the delete. There is one floor
for each of LANES hashes of keys; without one, the floor is the epoch of the file. A value whose computation began
before the floor is not stored. So a delete needs no tombstone: it may only keep the value of another key with the same
hash from being stored, once. A transaction that is being committed raises the floors of its keys into the future.

**Tags.** An entry is not current if one of its tags was dropped after it was written. Entries of dropped tags are
removed by the janitor.

**The janitor** is the one process that holds the claim on JANITOR. Its wheel thread removes rows that are over.

**A local core** of one entry counts look-ups, and has the watches of this process: each write also reaches it.
"""

from __future__ import annotations

import json
import pickle
from collections import deque
from collections.abc import Callable, Iterable
from itertools import islice
from math import inf
from random import SystemRandom
from sys import maxsize
from typing import Any, Final
from zlib import crc32

from wheelcache.core import CoreClass
from wheelcache.core.access import Serialized
from wheelcache.core.contract import (
    ABSENT,
    ALL,
    ANY,
    BATCH,
    CHANGED,
    DEAD,
    KEEP_TTL,
    MISSING,
    OUTDATED,
    PRESENT,
    SAME,
    STORED,
    TOO_HEAVY,
    WAKE,
    Counts,
    GroupCounts,
    GroupRule,
    Record,
    RemovalCause,
    Removals,
    Seen,
    TagName,
    Times,
)
from wheelcache.host_cache.claims import Claim, Claims
from wheelcache.host_cache.host_file import HostFile
from wheelcache.machine_clock import moment

LANES: Final = 16_384
"""The floors, at most 300 kB of them."""

ROW_BYTES: Final = 90
"""The bytes of a row and its places in the indexes, without its key, which is stored twice, and its value."""

STEP: Final = 200
"""The rows that the janitor removes in a transaction, in some 2 ms."""

USES_TOGETHER: Final = 50
"""The uses that are written in a transaction, in 0.3 ms."""

MOST_USES: Final = 16_384
"""The used keys that a process keeps until its next tick."""

SLOW_TICK: Final = 10.0
"""Seconds between two ticks of a process that has nothing to do but to see whether there is a janitor."""

DROPS_KEPT: Final = 60_000_000_000
"""Nanoseconds for which a dropped tag is remembered after its entries are gone. A value that was computed for longer,
and has a tag, is then not stored."""

JANITOR: Final = "\0janitor"

NEVER: Final = 1e300
"""Times from here on are not in the index."""

SCHEMA: Final = """
CREATE TABLE entries(
    id INTEGER PRIMARY KEY, key UNIQUE NOT NULL, value, fresh REAL NOT NULL, gone REAL NOT NULL,
    moment INTEGER NOT NULL, lane INTEGER NOT NULL, size INTEGER NOT NULL, tags TEXT
);
CREATE INDEX due ON entries(gone) WHERE gone < 1e300;
CREATE INDEX tagged ON entries(id) WHERE tags IS NOT NULL;
CREATE TABLE floors(lane INTEGER PRIMARY KEY, moment INTEGER NOT NULL);
CREATE TABLE drops(tag TEXT PRIMARY KEY, moment INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE state(
    bytes INTEGER, entries INTEGER, evicted INTEGER, drop_floor INTEGER, fill_floor INTEGER, max_bytes INTEGER,
    max_entries INTEGER
);
INSERT INTO state VALUES(0, 0, 0, 0, 0, {max_bytes}, {max_entries});
CREATE VIEW excess AS SELECT max(entries - max_entries, 20 * (bytes > max_bytes)) AS number FROM state;
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE state SET bytes = bytes + new.size, entries = entries + 1;
END;
CREATE TRIGGER resized AFTER UPDATE OF size ON entries WHEN new.size <> old.size BEGIN
    UPDATE state SET bytes = bytes + new.size - old.size;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE state SET bytes = bytes - old.size, entries = entries - 1;
    INSERT INTO floors VALUES(old.lane, old.moment)
        ON CONFLICT(lane) DO UPDATE SET moment = max(moment, excluded.moment);
END;
"""

# After an insert and after an update. The newest row, which was just written, leaves last.
SCHEMA_OF_BOUND: Final = """
CREATE TRIGGER {name} AFTER {event} ON entries WHEN (SELECT number FROM excess) > 0 BEGIN
    UPDATE state SET evicted = evicted + entries;
    DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY id LIMIT (SELECT number FROM excess));
    UPDATE state SET evicted = evicted - entries;
END;
"""

CURRENT: Final = (
    "(tags IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(entries.tags) AS tag JOIN drops ON drops.tag = tag.value "
    "WHERE drops.moment >= entries.moment))"
)
LIVE: Final = f"fresh > :now AND {CURRENT}"
FIND: Final = f"SELECT value, fresh FROM entries WHERE key = ? AND {CURRENT}"
TIMES: Final = "SELECT fresh, gone FROM entries WHERE key = ? AND " + CURRENT
ENTRY: Final = "SELECT value, fresh, gone, size, tags FROM entries WHERE key = ? AND " + CURRENT
MOMENT: Final = "SELECT moment FROM entries WHERE key = ?"
FLOOR: Final = "SELECT moment FROM floors WHERE lane = ?"
DROPPED: Final = "SELECT moment FROM drops WHERE tag = ?"
FILL_FLOOR: Final = "SELECT fill_floor FROM state"

NEW_ROW: Final = "INSERT INTO entries SELECT :id, :key, :value, :fresh, :gone, :id, :lane, :size, :tags WHERE "
IN_PLACE: Final = (
    " ON CONFLICT(key) DO UPDATE SET id = excluded.id, value = excluded.value, fresh = excluded.fresh, "
    "gone = excluded.gone, moment = excluded.moment, size = excluded.size, tags = excluded.tags"
)
PUT: Final = f"{NEW_ROW}1{IN_PLACE}"
# The names of the tags are those of the value that is stored.
IS_UNDROPPED: Final = (
    "NOT EXISTS (SELECT 1 FROM json_each(:tags) AS tag JOIN drops ON drops.tag = tag.value "
    "WHERE drops.moment >= :since) AND (SELECT drop_floor FROM state) <= :since"
)
IS_ABSENT: Final = f" WHERE NOT (entries.fresh > :now AND {CURRENT.replace('(tags', '(entries.tags', 1)})"
FILL: Final = (
    f"{NEW_ROW}(coalesce((SELECT moment FROM floors WHERE lane = :lane), :epoch) < :since "
    f"OR EXISTS (SELECT 1 FROM entries WHERE key = :key)) AND ({FILL_FLOOR}) < :since AND {{undropped}}" + IN_PLACE + " WHERE entries.moment = :seen"
)
SAME_VALUE: Final = (
    f"UPDATE entries SET id = :id, value = :value, moment = :id, size = :size, fresh = {{fresh}}, gone = {{gone}} "
    f"WHERE key = :key AND value IS :expected AND {LIVE}"
)
RAISE_FLOOR: Final = "INSERT INTO floors VALUES(?, ?) ON CONFLICT(lane) DO UPDATE SET moment = max(moment, excluded.moment)"
DROP: Final = "INSERT INTO drops VALUES(?, ?) ON CONFLICT(tag) DO UPDATE SET moment = max(moment, excluded.moment)"
REMOVE_DUE: Final = "DELETE FROM entries WHERE id IN (SELECT id FROM entries WHERE gone <= ? ORDER BY gone LIMIT ?)"
REMOVE_DROPPED: Final = f"DELETE FROM entries WHERE tags IS NOT NULL AND id > ? AND id <= ? AND NOT {CURRENT}"


class HostWatch:
    """A watch on the writes of a key by all processes: see ``Watch``."""

    __slots__ = ("_core", "epoch", "inner", "key", "moment", "seen", "since", "value")

    def __init__(self, core: HostCore, key: Any, inner: Any) -> None:
        self.key = key
        self.inner = inner
        self.since = moment()
        self.seen: Seen | None = None
        self.value = MISSING
        self._core = core
        self.epoch, self.moment = core.epoch, core.written_at(key)

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
        file: the database.
        max_bytes: the most bytes of all rows.
        largest: the most bytes of one row.
        jitter, max_jitter, interval, clock: see ``Core``.

    Attributes:
        claims: of the callers on the machine that miss a key, one has its claim.
    """

    entry_bytes = ROW_BYTES
    in_step = False

    def __init__(
        self,
        find_place: Callable[[], Any],
        name: str,
        *,
        max_bytes: int,
        max_entries: int | None,
        jitter: float,
        max_jitter: float,
        interval: float,
        clock: Any,
    ) -> None:
        limits = SCHEMA.format(max_bytes=max_bytes, max_entries=max_entries or maxsize)
        bounds = (("too_many", "INSERT"), ("too_large", "UPDATE OF size"))
        triggers = "".join([SCHEMA_OF_BOUND.format(name=name, event=event) for name, event in bounds])
        self.file = HostFile(find_place, limits + triggers, name)
        self.claims = Claims(self.file)
        self.max_bytes = max_bytes
        self._largest = max_bytes // 8
        self._max_entries = max_entries or maxsize
        self._local: Any = CoreClass(
            max_entries=1, max_weight=None, jitter=0.0, max_jitter=0.0, interval=interval, clock=clock, stamps=None,
            policy="lru",
        )
        self._jitter, self._max_jitter, self._interval = jitter, max_jitter, interval
        self._random = SystemRandom().random
        local = self._local
        self.completed = local.completed
        self.now, self.count_hit = local.now, local.count_hit
        self.count_stale_hit, self.count_miss, self.count_load = local.count_stale_hit, local.count_miss, local.count_load
        self.miss_cause, self.sample = local.miss_cause, local.sample
        self.group_by, self.group_name, self.groups = local.group_by, local.group_name, local.groups
        self.use_clock, self.use_stamps, self.gate = local.use_clock, local.use_stamps, local.gate
        # Called with the name of a write, the moment of the write before it, and its own: for transactions.
        self.note: Callable[[Any, int, int], object] | None = None
        self._notes_uses = False
        self._used: dict[Any, None] = {}
        self._janitor: Claim | None = None
        self._next_tick = inf
        self._swept = self._sweeps = self._swept_to = 0
        self._evicted_before: int | None = None
        self._removals = dict.fromkeys(RemovalCause, 0)

    # Reading.

    def find(self, key: Any, default: Any = None) -> Any:
        name = key if type(key) is str and key.isascii() else name_of(key)
        row = self.file.read(FIND, (name,))
        if row is None or row[1] <= self.now():
            return default
        self.count_hit(key)
        if self._notes_uses and len(self._used) < MOST_USES:
            self._used[name] = None
        value = row[0]
        return Serialized(value) if type(value) is bytes else value

    def times(self, key: Any) -> Times | None:
        row = self.file.read(TIMES, (name_of(key),))
        return None if row is None else Times(row[0], row[1], True)

    def peek(self, key: Any, *, use: bool = False) -> Record | None:
        name = name_of(key)
        row = self.file.read(ENTRY, (name,))
        if row is None:
            return None
        if use and self._notes_uses and len(self._used) < MOST_USES:
            self._used[name] = None
        return _record(key, *row)

    def __len__(self) -> int:
        return self._state()[1]

    @property
    def weight(self) -> int:
        return self._state()[0]

    def _state(self) -> tuple[int, int, int]:
        return self.file.read("SELECT bytes, entries, evicted FROM state") or (0, 0, 0)

    # Writing.

    def set(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float = 0.0,
        exact: bool = False,
        weight: int = 0,
        mode: int = ANY,
        expected: Any = MISSING,
        watch: Any = None,
        slot: int = 0,
        seen: Seen | None = None,
        removed: Removals | None = None,
        tags: tuple[TagName, ...] = (),
        since: int = 0,
        standing: int = 0,
        group: str | None = None,
    ) -> int:
        name = name_of(key)
        stored = storable(value)
        text = json.dumps([tag for tag, _ in tags]) if tags else None
        size = ROW_BYTES + 2 * len(name) + (len(stored) if type(stored) in SIZED else 8) + len(text or "")
        if size > self._largest:
            if watch is None:
                self.delete(key)
            return TOO_HEAVY
        lane = lane_of(name)
        keeps_ttl = ttl == KEEP_TTL
        seconds = self._seconds(ttl, exact=exact)
        given = {"key": name, "value": stored, "lane": lane, "size": size, "tags": text}
        refusal = CHANGED
        if mode == SAME:
            times = {"fresh": "fresh", "gone": "gone"} if keeps_ttl else {"fresh": ":fresh", "gone": ":gone"}
            statement = SAME_VALUE.format(**times)
            given["expected"] = storable(expected)
        elif watch is not None:
            if watch.inner.broken or watch.epoch != self.epoch:
                return CHANGED
            statement = FILL.format(undropped=IS_UNDROPPED if tags else "1")
            given |= {"epoch": watch.epoch, "since": watch.since, "seen": watch.moment}
        elif mode == ABSENT:
            statement, refusal = PUT + IS_ABSENT, PRESENT
        elif tags and since:
            statement, refusal = NEW_ROW + IS_UNDROPPED + IN_PLACE, OUTDATED
            given["since"] = since
        else:
            statement = PUT

        def arguments() -> dict[str, Any]:
            given["now"] = now = self.now()
            given["fresh"], given["gone"] = now + seconds, now + seconds + grace
            given["id"] = moment()
            return given

        written = self.file.write(statement, arguments)
        if written != 1:
            return refusal if written == 0 else CHANGED
        outcome = self._local.set(
            key, value, None, exact=True, watch=None if watch is None else watch.inner, group=group
        )
        return (outcome & ~WAKE) | self._will_tick()

    def _seconds(self, ttl: float | None, *, exact: bool) -> float:
        if ttl is None or ttl == KEEP_TTL:
            return inf
        return ttl if exact else ttl - min(ttl * self._jitter, self._max_jitter) * self._random()

    def _will_tick(self) -> int:
        """Let the wheel thread begin to tick. Return WAKE if it does not tick yet."""
        if self._next_tick < inf:
            return 0
        self._next_tick = self.now() + self._interval
        return WAKE

    def touch(self, key: Any, ttl: float | None) -> int:
        name, now = name_of(key), self.now()
        fresh = inf if ttl is None else now + ttl
        statement = (
            "UPDATE entries SET fresh = :fresh, gone = CASE WHEN fresh < 1e300 THEN :fresh + (gone - fresh) ELSE :fresh "
            f"END WHERE key = :key AND {LIVE}"
        )
        written = self.file.write(statement, lambda: {"key": name, "fresh": fresh, "now": now})
        return STORED | self._will_tick() if written == 1 else 0

    def delete(
        self,
        key: Any,
        default: Any = None,
        only: int = ALL,
        cause: RemovalCause = RemovalCause.DELETED,
        slot: int = 0,
        removed: Removals | None = None,
    ) -> Any:
        name, now = name_of(key), self.now()

        def work(cursor: Any) -> Any:
            row = cursor.execute(ENTRY, (name,)).fetchone()
            if only == DEAD:
                if row is None or row[1] <= now:
                    cursor.execute("DELETE FROM entries WHERE key = ?", (name,))
                return None
            self.raise_floor(cursor, name)
            cursor.execute("DELETE FROM entries WHERE key = ?", (name,))
            return row

        row = self.file.transaction(work, None)
        if only == DEAD:
            return default
        # Breaks the watches of this process.
        self._local.delete(key)
        if row is None or row[1] <= now:
            return default
        self._removals[cause] += 1
        value = in_memory(row[0])
        if removed is not None:
            removed.append((key, value, cause))
        return value

    def raise_floor(self, cursor: Any, name: Any, until: int = 0) -> None:
        """Refuse the values of a key whose computations begin before ``until``, by default now. Called within a
        transaction."""
        lane = lane_of(name)
        if self.note is None:
            cursor.execute(RAISE_FLOOR, (lane, until or moment()))
            return
        (row,) = cursor.execute(MOMENT, (name,)).fetchone() or (0,)
        (floor,) = cursor.execute(FLOOR, (lane,)).fetchone() or (0,)
        now = max(until or moment(), floor)
        self.note(lane, max(row, floor), now)
        cursor.execute(RAISE_FLOOR, (lane, now))

    def raise_drop(self, cursor: Any, tag: str, until: int = 0) -> None:
        """Do the same for a tag, whose entries are no longer current."""
        (before,) = cursor.execute(DROPPED, (tag,)).fetchone() or (0,)
        now = max(until or moment(), before)
        if self.note is not None:
            self.note(tag, before, now)
        cursor.execute(DROP, (tag, now))

    def outdate_fills(self) -> None:
        """Refuse all values whose computations have begun."""
        note = self.note

        def work(cursor: Any) -> None:
            (before,), now = cursor.execute(FILL_FLOOR).fetchone(), moment()
            if note is not None:
                note("", max(before, self.epoch), now)
            cursor.execute("UPDATE state SET fill_floor = ?", (now,))

        self.file.transaction(work, None)

    def remove_value(self, key: Any, value: Any, removed: Removals | None = None, *, was_hit: bool = False) -> None:
        name, stored = name_of(key), storable(value)
        self.file.write("DELETE FROM entries WHERE key = ? AND value IS ?", lambda: (name, stored))

    def drop_tag(self, name: str, slot: int = 0) -> int:
        self._local.drop_tag(name)
        self.file.transaction(lambda cursor: self.raise_drop(cursor, name), None)
        return 0

    def sweep_tags(self) -> None:
        """Do nothing: the janitor looks for dropped tags."""

    def dropped_since(self, tags: tuple[TagName, ...], since: int) -> bool:
        statement = (
            "SELECT 1 FROM json_each(?) AS tag JOIN drops ON drops.tag = tag.value WHERE drops.moment >= ? "
            "UNION ALL SELECT 1 FROM state WHERE drop_floor > ?"
        )
        names = json.dumps([tag for tag, _ in tags])
        return self.epoch > since or self.file.read(statement, (names, since, since)) is not None

    def evict(self, budget: int = BATCH, removed: Removals | None = None, *, size: int | None = None) -> bool:
        if size is None:
            return False
        statement = (
            "DELETE FROM entries WHERE id IN (SELECT id FROM entries ORDER BY id LIMIT "
            "(SELECT max(0, min(?, entries - ?)) FROM state))"
        )
        self._removals[RemovalCause.EVICTED] += max(0, self.file.write(statement, lambda: (budget, size)))
        return len(self) > size

    def clear(self, *, invalidate: bool = True) -> int:
        """Go on with a new file. A core that closes leaves the entries to the other processes."""
        self._local.clear()
        if not invalidate:
            return 0
        removed, before = len(self), self.epoch
        self.file.clear()
        if self.note is not None:
            self.note("", before, self.epoch)
        self._removals[RemovalCause.CLEARED] += removed
        return 0

    def drain(self, budget: int = BATCH, removed: Removals | None = None) -> bool:
        return self._local.drain(budget)  # type: ignore[no-any-return]

    # The work of the wheel thread.

    @property
    def next_due(self) -> float:
        return self._next_tick

    def advance(self, budget: int = BATCH, removed: Removals | None = None) -> int:
        """Remove rows that are over, if this process is the janitor, and write the uses of entries."""
        self._local.advance(budget)
        self.file.check()
        size, entries, evicted = self._state()
        self._notes_uses = 2 * size > self.max_bytes or 2 * entries > self._max_entries
        self._write_uses()
        if self._janitor is None:
            self._janitor = self.claims.take(JANITOR)
        if self._janitor is None:
            self._next_tick = self.now() + (self._interval if self._notes_uses else SLOW_TICK)
            return 0
        self._count_evictions(evicted)
        now = self.now()
        expired = max(0, self.file.write(REMOVE_DUE, lambda: (now, STEP)))
        self._removals[RemovalCause.EXPIRED] += expired
        is_sweeping = self._sweep()
        # Immediately, if more rows are over, after other threads and processes had their turn.
        self._next_tick = now if expired == STEP or is_sweeping else now + self._interval
        return expired

    def _write_uses(self) -> None:
        used, self._used = self._used, {}
        names = iter(used)
        while batch := [*islice(names, USES_TOGETHER)]:

            def work(cursor: Any, batch: list[Any] = batch) -> None:
                first = moment()
                cursor.executemany(
                    "UPDATE entries SET id = ? WHERE key = ?", [(first + n, name) for n, name in enumerate(batch)]
                )

            self.file.transaction(work, None)

    def _count_evictions(self, evicted: int) -> None:
        if self._evicted_before is not None:
            self._removals[RemovalCause.EVICTED] += max(0, evicted - self._evicted_before)
        self._evicted_before = evicted

    def _sweep(self) -> bool:
        """Remove some of the entries of dropped tags. Return whether more must be looked at."""
        (newest,) = self.file.read("SELECT max(moment) FROM drops") or (None,)
        if newest is None or (newest <= self._swept and not self._swept_to):
            return False
        start = self._swept_to
        if start == 0:
            self._sweeps = moment()
        (last,) = self.file.read(
            "SELECT max(id) FROM (SELECT id FROM entries WHERE tags IS NOT NULL AND id > ? ORDER BY id LIMIT ?)",
            (start, STEP),
        ) or (None,)
        if last is None:
            self._swept, self._swept_to = self._sweeps, 0
            self._forget_drops(self._sweeps - DROPS_KEPT)
            return False
        self.file.write(REMOVE_DROPPED, lambda: (start, last))
        self._swept_to = last
        return True

    def _forget_drops(self, until: int) -> None:
        def work(cursor: Any) -> None:
            (newest,) = cursor.execute("SELECT max(moment) FROM drops WHERE moment < ?", (until,)).fetchone()
            if newest is not None:
                cursor.execute("DELETE FROM drops WHERE moment < ?", (until,))
                cursor.execute("UPDATE state SET drop_floor = ?", (newest,))

        self.file.transaction(work, None)

    # Walks.

    def scan(self, *, ordered: bool = False, start: float = 0.0) -> HostScan:
        return HostScan(self.file)

    def keys(self, limit: int = maxsize) -> list[Any]:
        rows = self.file.read_all(
            f"SELECT key FROM (SELECT id, key FROM entries WHERE fresh > ? AND {CURRENT} ORDER BY id DESC LIMIT ?) "
            "ORDER BY id",
            (self.now(), limit),
        )
        return [key_of(name) for (name,) in rows]

    # Figures: those of the local core.

    def counts(self) -> Counts:
        return self._local.counts()._replace(removals=dict(self._removals), evicted_weight=0)  # type: ignore[no-any-return]

    # Moments.

    @property
    def epoch(self) -> int:
        return self.file.epoch

    def written_at(self, key: Any) -> int | None:
        """Return the moment of the row of a key; None if there is none."""
        row = self.file.read(MOMENT, (name_of(key),))
        return None if row is None else row[0]

    def was_written_since(self, watch: HostWatch) -> bool:
        if watch.epoch != self.epoch:
            return True
        name = name_of(watch.key)
        row = self.file.read(MOMENT, (name,))
        if row is not None:
            return bool(row[0] != watch.moment)
        floor = self.file.read(f"{FLOOR} UNION ALL {FILL_FLOOR} ORDER BY 1 DESC LIMIT 1", (lane_of(name),))
        return floor is not None and floor[0] >= watch.since

    def watch(self, key: Any, *, slot: int = 0, wants_value: bool = False) -> Any:
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
            self._random = SystemRandom().random
            self._used, self._janitor, self._next_tick = {}, None, inf
            self._removals = dict.fromkeys(RemovalCause, 0)


class HostScan:
    """A walk over the entries in the order of use. An entry that is used meanwhile comes again."""

    def __init__(self, file: HostFile) -> None:
        self._file = file
        self._last = 0

    def step(self, count: int) -> list[Record]:
        return [_record(key_of(name), *row) for name, *row in self._rows("key, value, fresh, gone, size, tags", count)]

    def keys(self, count: int) -> list[Any]:
        return [key_of(name) for (name,) in self._rows("key", count)]

    def _rows(self, columns: str, count: int) -> list[Any]:
        rows = self._file.read_all(
            f"SELECT id, {columns} FROM entries WHERE id > ? AND {CURRENT} ORDER BY id LIMIT ?", (self._last, count)
        )
        if rows:
            self._last = rows[-1][0]
        return [row[1:] for row in rows]

    def close(self) -> None:
        """Do nothing: no statement stays open."""


def _record(key: Any, value: Any, fresh: float, gone: float, size: int, tags: str | None) -> Record:
    return Record(key, in_memory(value), Times(fresh, gone, True), size, None, tuple(json.loads(tags)) if tags else ())


# Keys and values in the database.


def name_of(key: Any) -> str | bytes:
    """Return the key of a row: text, or bytes for keys that are not ASCII, and for tuples of one text."""
    if type(key) is str:
        return key if key.isascii() else key.encode(errors="surrogatepass")
    if type(key) is tuple and len(key) == 1 and type(key[0]) is str:
        return b"\0" + key[0].encode(errors="surrogatepass")
    return b"\1" + repr(key).encode(errors="surrogatepass")


def key_of(name: str | bytes) -> Any:
    if type(name) is str:
        return name
    text = name.removeprefix(b"\0").removeprefix(b"\1").decode(errors="surrogatepass")  # type: ignore[union-attr]
    return (text,) if name[:1] in (b"\0", b"\1") else text


def lane_of(name: str | bytes) -> int:
    return crc32(name.encode() if type(name) is str else name) % LANES  # type: ignore[arg-type, union-attr]


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
