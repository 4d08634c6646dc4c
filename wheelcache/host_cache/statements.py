"""The tables of a host cache, and the statements on them.

``entries`` has a row for each entry. ``id`` is the order of use, ``moment`` the moment of the last write. An entry is
fresh until ``fresh``, and leaves after ``gone``, both in seconds on the machine's clock. ``due`` is ``gone`` in steps
of ``DUE_STEP`` seconds, later by the jitter at most. It may be earlier: a write that postpones the end of an entry
leaves its place in the index, which saves one or two of its pages, and the janitor moves the entry when it is due.
``tags`` is a JSON array.

A write of an existing key stays at its place in the order of use, and is noted as a use of it. Only while the cache is
over half full, it moves the row to the end, which costs two more pages.

``floors``, ``drops`` and ``marks`` are explained in ``host_core``. ``state`` has a single row, which triggers keep. In
addition, ``floors`` has the rest of the hash of the last key that left its lane, and why it left, for the causes of
misses; ``removing`` is the cause of the removals in progress.
"""

from __future__ import annotations

import sys
from typing import Final
from zlib import crc32

from wheelcache.core.contract import MissCause

DUE_STEP: Final = 2
"""Seconds. The janitor removes a row when the step after its end has begun."""

EVICTED_TOGETHER: Final = 2_000
"""The most entries that leave a full cache with a write, in some 10 ms."""

LANES: Final = 16_384
"""The floors, at most 400 kB of them."""

EXPIRED, EVICTED, DELETED, TAG, UNKNOWN = map(
    [*MissCause].index,
    (MissCause.EXPIRED, MissCause.EVICTED, MissCause.DELETED, MissCause.TAG, MissCause.UNKNOWN),
)

SCHEMA: Final = """
CREATE TABLE entries(
    id INTEGER PRIMARY KEY, key UNIQUE NOT NULL, value, fresh REAL NOT NULL, gone REAL NOT NULL, due INTEGER,
    moment INTEGER NOT NULL, hash INTEGER NOT NULL, size INTEGER NOT NULL, tags TEXT
);
CREATE INDEX due ON entries(due) WHERE due IS NOT NULL;
CREATE INDEX tagged ON entries(id) WHERE tags IS NOT NULL;
CREATE TABLE floors(lane INTEGER PRIMARY KEY, moment INTEGER NOT NULL, last INTEGER, cause INTEGER);
CREATE TABLE drops(tag TEXT PRIMARY KEY, moment INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE marks(name, until INTEGER, PRIMARY KEY(name, until)) WITHOUT ROWID;
CREATE TABLE state(
    bytes INTEGER, entries INTEGER, evicted INTEGER, drop_floor INTEGER, fill_floor INTEGER, max_bytes INTEGER,
    max_entries INTEGER, more_bytes INTEGER, more_entries INTEGER, removing INTEGER
);
INSERT INTO state VALUES(0, 0, 0, 0, 0, {max_bytes}, {max_entries}, 0, 0, {deleted});
CREATE VIEW surplus AS WITH RECURSIVE oldest(id, bytes, entries) AS (
    SELECT entries.id, bytes + more_bytes - max_bytes * 4095 / 4096 - size, entries + more_entries - max_entries - 1
    FROM state, entries
    WHERE entries.id = (SELECT min(id) FROM entries)
        AND (bytes + more_bytes > max_bytes OR entries + more_entries > max_entries)
    UNION ALL
    SELECT next.id, bytes - size, entries - 1 FROM oldest, entries AS next
    WHERE (bytes > 0 OR entries > 0) AND next.id = (SELECT min(id) FROM entries WHERE id > oldest.id)
    LIMIT {together}
) SELECT id FROM oldest;
CREATE TRIGGER added AFTER INSERT ON entries BEGIN
    UPDATE state SET bytes = bytes + new.size, entries = entries + 1;
END;
CREATE TRIGGER resized AFTER UPDATE OF size ON entries WHEN new.size <> old.size BEGIN
    UPDATE state SET bytes = bytes + new.size - old.size;
END;
CREATE TRIGGER removed AFTER DELETE ON entries BEGIN
    UPDATE state SET bytes = bytes - old.size, entries = entries - 1;
    INSERT INTO floors VALUES(old.hash % {lanes}, old.moment, old.hash / {lanes}, (SELECT removing FROM state))
        ON CONFLICT(lane) DO UPDATE SET
            moment = max(moment + 1, excluded.moment), last = excluded.last, cause = excluded.cause;
END;
"""

BOUND: Final = """
CREATE TRIGGER full_after_{name} AFTER {event} ON entries
WHEN (SELECT bytes + {bytes} > max_bytes OR entries + {entries} > max_entries FROM state) BEGIN
    UPDATE state SET
        evicted = evicted + entries, more_bytes = {bytes}, more_entries = {entries}, removing = {evicted};
    UPDATE entries SET id = (SELECT max(id) + 1 FROM entries) WHERE id = new.id AND id < (SELECT max(id) FROM entries);
    DELETE FROM entries WHERE id IN (SELECT id FROM surplus);
    UPDATE state SET evicted = evicted - entries, more_bytes = 0, more_entries = 0, removing = {deleted};
END;
"""
"""Removes the oldest entries, and a few more: most writes to a full cache remove none. SQLite does not define the order
of two triggers. This one must be the first, so it adds the new entry. If it were the second, it would remove one entry
too many. The new entry moves to the end: otherwise it might be the oldest, since another process has written uses while
this write waited for its turn, or since it stayed at its place."""

FORMAT: Final = crc32(f"{SCHEMA}{BOUND}".encode())
"""A number that stands for the tables."""


def schema(max_bytes: int, max_entries: int) -> str:
    """Return the statements that make an empty database."""
    numbers = {"together": EVICTED_TOGETHER, "lanes": LANES, "deleted": DELETED, "evicted": EVICTED}
    return (
        SCHEMA.format(max_bytes=max_bytes, max_entries=max_entries, **numbers)
        + BOUND.format(name="insert", event="INSERT", bytes="new.size", entries="1", **numbers)
        + BOUND.format(name="update", event="UPDATE OF size", bytes="new.size - old.size", entries="0", **numbers)
    )


# Reading.

CURRENT: Final = (
    "(entries.tags IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(entries.tags) AS tag "
    "JOIN drops ON drops.tag = tag.value WHERE drops.moment >= entries.moment))"
)
FIND: Final = f"SELECT value, fresh FROM entries WHERE key = ? AND {CURRENT}"
TIMES: Final = f"SELECT fresh, gone FROM entries WHERE key = ? AND {CURRENT}"
ENTRY: Final = f"SELECT value, fresh, gone, size, tags FROM entries WHERE key = ? AND {CURRENT}"
KEYS: Final = (
    f"SELECT key FROM (SELECT id, key FROM entries WHERE fresh > ? AND {CURRENT} ORDER BY id DESC LIMIT ?) ORDER BY id"
)
NEXT_ROWS: Final = f"SELECT id, {{columns}} FROM entries WHERE id > ? AND id <= ? AND {CURRENT} ORDER BY id LIMIT ?"
ENDS: Final = "SELECT coalesce((SELECT min(id) FROM entries), 0), coalesce((SELECT max(id) FROM entries), 0)"
STATE: Final = "SELECT bytes, entries, evicted, max_bytes, max_entries FROM state"
MISS_CAUSE: Final = (
    f"SELECT coalesce((SELECT CASE WHEN fresh <= ?3 THEN {EXPIRED} WHEN {CURRENT} THEN {UNKNOWN} ELSE {TAG} END "
    "FROM entries WHERE key = ?1), "
    f"(SELECT cause FROM floors WHERE lane = ?2 % {LANES} AND last = ?2 / {LANES}), {UNKNOWN})"
)
"""?1: the key, ?2: its hash, ?3: now."""
MOMENT: Final = "SELECT moment FROM entries WHERE key = ?"

ALL_KEYS: Final = 0
"""The name of a mark of all keys."""

OF_KEY: Final = f"{ALL_KEYS}, {{key}}"
OF_TAGS: Final = f"SELECT {ALL_KEYS} UNION ALL SELECT value FROM json_each({{tags}})"
MARKED_SINCE: Final = "EXISTS (SELECT 1 FROM marks WHERE name IN ({names}) AND until >= {since})"
DROPPED_SINCE: Final = (
    "EXISTS (SELECT 1 FROM json_each({tags}) AS tag JOIN drops ON drops.tag = tag.value WHERE drops.moment >= {since})"
)

FILL_FLOOR: Final = "SELECT fill_floor FROM state"
LAST_WRITES: Final = (
    "SELECT coalesce((SELECT moment FROM entries WHERE key = ?1), 0), "
    "coalesce((SELECT moment FROM floors WHERE lane = ?2), 0)"
)
WRITTEN_SINCE: Final = (
    "SELECT EXISTS (SELECT 1 FROM entries WHERE key = ?1 AND moment IS NOT ?3) "
    f"OR max(coalesce((SELECT moment FROM floors WHERE lane = ?2), 0), ({FILL_FLOOR})) >= ?4 "
    f"OR {MARKED_SINCE.format(names=OF_KEY.format(key='?1'), since='?4')}"
)
DROPPED: Final = "SELECT moment FROM drops WHERE tag = ?"
ANY_DROPPED: Final = (
    f"SELECT 1 FROM state WHERE max(drop_floor, fill_floor) > ?2 OR {DROPPED_SINCE.format(tags='?1', since='?2')} "
    f"OR {MARKED_SINCE.format(names=OF_TAGS.format(tags='?1'), since='?2')}"
)

# Writing. ?1: the moment, ?2: the key, ?3: the value, ?4 to ?6: fresh, gone and due, ?7: the hash, ?8: the size,
# ?9: the tags, ?10: now, in seconds, or the moment at which the computation began, ?11: the moment of the row at that
# time, or the expected value.

NEW: Final = "INSERT INTO entries SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?1, ?7, ?8, ?9 WHERE {condition} ON CONFLICT(key) DO "
VALUES: Final = (
    "value = excluded.value, fresh = excluded.fresh, gone = excluded.gone, "
    "due = iif(entries.due <= excluded.due, entries.due, excluded.due), "
    "moment = max(excluded.moment, entries.moment + 1), size = excluded.size, tags = excluded.tags"
)
IN_PLACE: Final = f"{NEW}UPDATE SET {VALUES}"
TO_END: Final = f"{NEW}UPDATE SET id = excluded.id, {VALUES}"

UNMARKED: Final = "NOT EXISTS (SELECT 1 FROM marks WHERE name = ?2 AND until > ?1)"
UNMARKED_TAGS: Final = (
    f"(NOT EXISTS (SELECT 1 FROM marks) OR ({UNMARKED} AND NOT EXISTS "
    "(SELECT 1 FROM marks WHERE name IN (SELECT value FROM json_each(?9)) AND until > ?1)))"
)
"""Usually there are no marks: without the first condition, a set with a tag takes 10% longer."""

PUT: Final = IN_PLACE.format(condition=UNMARKED), TO_END.format(condition=UNMARKED)
PUT_TAGGED: Final = IN_PLACE.format(condition=UNMARKED_TAGS), TO_END.format(condition=UNMARKED_TAGS)
ADD: Final = f"{TO_END.format(condition='1')} WHERE NOT (entries.fresh > ?10 AND {CURRENT})"
UNDROPPED: Final = (
    f"NOT {DROPPED_SINCE.format(tags='?9', since='?10')} "
    f"AND NOT {MARKED_SINCE.format(names=OF_TAGS.format(tags='?9'), since='?10')} "
    "AND (SELECT max(drop_floor, fill_floor) FROM state) <= ?10"
)
PUT_UNDROPPED: Final = TO_END.format(condition=f"{UNMARKED} AND {UNDROPPED}")
ADD_UNDROPPED: Final = ADD.replace(" WHERE 1 ", f" WHERE {UNDROPPED.replace('?10', '?11')} ")
UNWRITTEN: Final = (
    f"(coalesce((SELECT moment FROM floors WHERE lane = ?7 % {LANES}), 0) < ?10 "
    "OR EXISTS (SELECT 1 FROM entries WHERE key = ?2))"
    f" AND ({FILL_FLOOR}) < ?10 AND NOT {MARKED_SINCE.format(names=OF_KEY.format(key='?2'), since='?10')}"
)
FILL: Final = f"{TO_END.format(condition=UNWRITTEN)} WHERE entries.moment = ?11"
FILL_UNDROPPED: Final = f"{TO_END.format(condition=f'{UNWRITTEN} AND {UNDROPPED}')} WHERE entries.moment = ?11"
"""Without a row, ?11 is NULL, which no moment equals."""

OF_LIVE: Final = f"WHERE key = ?2 AND fresh > ?10 AND {CURRENT}"
REPLACE: Final = f"UPDATE entries SET value = ?3, moment = max(?1, moment + 1), size = ?8 {OF_LIVE} AND value IS ?11"
REPLACE_WITH_TTL: Final = (
    "UPDATE entries SET value = ?3, fresh = ?4, gone = ?5, due = iif(due <= ?6, due, ?6), "
    f"moment = max(?1, moment + 1), size = ?8 {OF_LIVE} AND value IS ?11"
)
GRACE: Final = "iif(fresh < 1e300, gone - fresh, 0)"
TOUCH: Final = f"""
UPDATE entries SET
    fresh = ?4, gone = ?4 + {GRACE},
    due = min(coalesce(due, {sys.maxsize}), CAST(?4 + {GRACE} AS INTEGER) / {DUE_STEP})
{OF_LIVE}
"""
TOUCH_FOREVER: Final = f"UPDATE entries SET fresh = ?4, gone = ?4, due = NULL {OF_LIVE}"
USE: Final = "UPDATE entries SET id = ? WHERE key = ?"
DELETE: Final = "DELETE FROM entries WHERE key = ?"
DELETE_UNWRITTEN: Final = "DELETE FROM entries WHERE key = ? AND moment = ?"
DELETE_VALUE: Final = "DELETE FROM entries WHERE key = ? AND value IS ?"
RAISE_FLOOR: Final = (
    "INSERT INTO floors(lane, moment) VALUES(?, ?) "
    "ON CONFLICT(lane) DO UPDATE SET moment = max(moment, excluded.moment)"
)
RAISE_DROP: Final = (
    "INSERT INTO drops VALUES(?, ?) ON CONFLICT(tag) DO UPDATE SET moment = max(moment, excluded.moment)"
)
MARK: Final = "INSERT OR IGNORE INTO marks VALUES(?, ?)"
UNMARK: Final = "DELETE FROM marks WHERE name = ? AND until = ?"
MARKS: Final = "SELECT name, until FROM marks WHERE until > ?"
LAST_MARK_BEFORE: Final = "SELECT max(until) FROM marks WHERE until <= ?"
FORGET_MARKS: Final = "DELETE FROM marks WHERE until <= ?"
RAISE_FILL_FLOOR: Final = "UPDATE state SET fill_floor = max(fill_floor, ?)"

# The work of the janitor.

MORE_BYTES: Final = "UPDATE state SET more_bytes = ?, evicted = evicted + ?"
REMOVING: Final = "UPDATE state SET removing = ?"
REMOVE_SURPLUS: Final = "DELETE FROM entries WHERE id IN (SELECT id FROM surplus)"
AT_MOST: Final = "UPDATE state SET max_bytes = min(max_bytes, ?)"
SET_BOUNDS: Final = "UPDATE state SET max_bytes = ?, max_entries = ?"
EVICT: Final = (
    "DELETE FROM entries WHERE id IN "
    "(SELECT id FROM entries ORDER BY id LIMIT (SELECT max(0, min(?, entries - ?)) FROM state))"
)
DUE: Final = f"SELECT id FROM entries WHERE due < ?1 / {DUE_STEP} AND due IS NOT NULL ORDER BY due LIMIT ?2"
REMOVE_DUE: Final = f"DELETE FROM entries WHERE id IN ({DUE}) AND gone <= ?1"
POSTPONE: Final = f"UPDATE entries SET due = CAST(gone AS INTEGER) / {DUE_STEP} WHERE id IN ({DUE}) AND gone > ?1"
NEWEST_DROP: Final = "SELECT max(moment) FROM drops"
NEWEST_DROP_BEFORE: Final = f"{NEWEST_DROP} WHERE moment < ?"
FORGET_DROPS: Final = "DELETE FROM drops WHERE moment < ?"
DROP_FLOOR_TO: Final = "UPDATE state SET drop_floor = ?"
LAST_TAGGED: Final = (
    "SELECT max(id) FROM (SELECT id FROM entries WHERE tags IS NOT NULL AND id > ? ORDER BY id LIMIT ?)"
)
REMOVE_DROPPED: Final = f"DELETE FROM entries WHERE tags IS NOT NULL AND id > ? AND id <= ? AND NOT {CURRENT}"
