"""The tables of a site's database, and the rows that a publication adds to them.

- ``counts``: all counts, in rows of equal shape that can be added up. ``kind`` is the period of a row: ``TOTAL``, since
  the file was made; the seconds of a step, whose start is in ``place``; or ``WORKER``, the life of one process, whose
  number is in ``place``.
- ``caches``: the names, the settings that were published last, and the time since which there are counts.
- ``processes``: the processes that publish.
- ``workers``: the gauges of each cache in each process.
- ``paths``: the paths with most responses that were not stored, by reason, and with most variants, by header: see
  ``page_paths``.
- ``group_names``, ``groups``, ``group_hours``: the counts of the groups of keys, in total and by steps: see
  ``key_groups``.
- ``releases``: the starts of workers with another release: see ``releases``.
- ``rehearsals`` and ``modes``: the results of rehearsals, and the modes of HTTP caches: see ``rehearsals``.
- ``key_samples``: hashes of some keys of each cache in each process, and its misses of values that others have: see
  ``key_samples``.
- ``events``: recent events. ``inquiries`` and ``answers``: see ``inquiries``.

A process that opens the file parses the whole schema. A table with a column for each count takes 50 us, so there is one
such table, and its columns have no types. Its rows are ordered by time, so that a publication writes 3 pages instead of
50.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from wheelcache.engine.stats import MISSES
from wheelcache.watch.rows import COUNTS, GAUGES, GROUP_COUNTS

if TYPE_CHECKING:
    import sqlite3

STEP: Final = 10
"""Seconds of a step."""

HOUR: Final = 3600
DAY: Final = 86_400
LONG_STEP: Final = 60
"""Seconds of the longer steps, to which steps older than an hour are added."""

KEPT: Final = HOUR + LONG_STEP
"""Seconds for which the shorter steps are kept: a little more than an hour, since charts may end some seconds ago."""

TOTAL: Final = 0
WORKER: Final = 1

LEVELS: Final = ("entries", "memory", "started", "killed")
"""The columns in addition to the counts. Of a step: entries and bytes at its end (0 bytes unless entries are
weighed in bytes), multiplied by its seconds so that steps of any length can be added up; and the number of workers that
started during the step. Of the total: the number of workers that ended abruptly."""

NO_LEVELS: Final = (0,) * len(LEVELS)

NUMBERS: Final = (*LEVELS, *COUNTS)
"""The numbers of a row of ``counts``."""

LOOKUPS: Final = ("hits", "stale_hits", "misses", "store_hits")
"""The counts of the last minute."""

SETTINGS: Final = ("max_entries", "max_weight", "weighs_bytes", "has_store", "has_pages", "is_shared")

BOUNDS: Final = ("max_entries", "max_weight")
"""The settings that are added over all workers."""

MINUTE: Final = (*(f"minute_{name}" for name in LOOKUPS), "minute_seconds")

GAUGES_OF_WORKER: Final = (*GAUGES, *MINUTE, "peak", "lag", *SETTINGS)
"""The present state of a cache in one process."""

SETTINGS_OF_WORKER: Final = slice(-len(SETTINGS), None)
"""The position of ``SETTINGS`` in ``GAUGES_OF_WORKER``."""

COUNTS_OF_GROUP: Final = (*GROUP_COUNTS, *MISSES.values())

PUBLISHED: Final = "UPDATE caches SET published = ? WHERE id IN"

OF_NAME: Final = "cache = (SELECT id FROM caches WHERE name = ?)"
"""The condition for the rows of a cache. The argument is its encoded name."""

OF_WORKER: Final = f"counts WHERE kind = {WORKER} AND place"


def _columns(*names: str) -> str:
    return ", ".join(f"{name} DEFAULT 0" for name in names)


SCHEMA: Final = f"""
CREATE TABLE counts (
    kind INTEGER, place INTEGER, cache INTEGER, {_columns(*NUMBERS)}, PRIMARY KEY (kind, place, cache)) WITHOUT ROWID;
CREATE TABLE caches (
    id INTEGER PRIMARY KEY, name BLOB UNIQUE, {_columns("since", *SETTINGS, "published")});
CREATE TABLE processes (
    id INTEGER PRIMARY KEY, {_columns("pid", "started", "published", "thread", "core", "release_name")});
CREATE TABLE workers (
    process INTEGER, number INTEGER, cache INTEGER, {_columns(*GAUGES_OF_WORKER)},
    PRIMARY KEY (process, number)) WITHOUT ROWID;
CREATE TABLE paths (
    cache INTEGER, kind TEXT, name BLOB, document DEFAULT '', PRIMARY KEY (cache, kind, name)) WITHOUT ROWID;
CREATE TABLE group_names (id INTEGER PRIMARY KEY, cache INTEGER, name TEXT, UNIQUE (cache, name));
CREATE TABLE groups (
    kind INTEGER, place INTEGER, cache INTEGER, name INTEGER, {_columns(*COUNTS_OF_GROUP)},
    PRIMARY KEY (kind, place, cache, name)) WITHOUT ROWID;
CREATE TABLE group_hours (
    hour INTEGER, cache INTEGER, name INTEGER, {_columns(*COUNTS_OF_GROUP)}, minutes BLOB,
    PRIMARY KEY (hour, cache, name));
CREATE TABLE releases (at DEFAULT 0, name DEFAULT '');
CREATE TABLE key_samples (
    process INTEGER, number INTEGER, cache INTEGER, held BLOB, counts TEXT,
    PRIMARY KEY (process, number)) WITHOUT ROWID;
CREATE TABLE rehearsals (
    cache INTEGER, view TEXT, kind TEXT, {_columns("number", "since")}, document DEFAULT '{{}}',
    PRIMARY KEY (cache, view, kind)) WITHOUT ROWID;
CREATE TABLE modes (cache INTEGER PRIMARY KEY, mode DEFAULT '');
CREATE TABLE events (at DEFAULT 0, document DEFAULT '');
CREATE TABLE inquiries (token DEFAULT '', cache BLOB, document DEFAULT '', at DEFAULT 0, until DEFAULT 0);
CREATE TABLE answers (token DEFAULT '', process INTEGER, document DEFAULT '', until DEFAULT 0);
"""

VERSION: Final = crc32(SCHEMA.encode()) >> 1
"""The number of the schema, below 2**31 as ``user_version`` must be."""

_MOST: Final = 1 << 62


def storable(number: Any) -> Any:
    """Return ``number``, or a float if it is too great for SQLite, as weights and their sums may be."""
    return float(number) if number is not None and number >= _MOST else number


def encoded(name: str) -> bytes:
    """Return the name of a cache as it is stored: as bytes, because SQLite accepts no lone surrogates in a text."""
    return name.encode(errors="surrogatepass")


def adds(names: Iterable[str]) -> str:
    """Return the assignments that add the columns of a row to those of the present one, for an UPSERT."""
    return ", ".join(f"{name} = {name} + excluded.{name}" for name in names)


def add_rows(
    db: sqlite3.Connection, table: str, keys: Sequence[str], names: Sequence[str], rows: Sequence[tuple[float, ...]]
) -> None:
    """Add each row to the row of the table with the same values of ``keys``.

    Only columns with new counts are named, because most have none, and each named column costs a microsecond.

    Args:
        rows: the values of ``keys``, and then of ``names``.
    """
    if not rows:
        return
    columns = list(zip(*rows, strict=True))
    named, counts = columns[: len(keys)], zip(names, columns[len(keys) :], strict=True)
    changed = {name: column for name, column in counts if any(column)}
    if "evicted_weight" in changed:
        changed["evicted_weight"] = tuple(map(storable, changed["evicted_weight"]))
    db.executemany(
        f"INSERT INTO {table} ({', '.join((*keys, *changed))}) VALUES ({', '.join('?' * (len(keys) + len(changed)))})"
        f" ON CONFLICT ({', '.join(keys)}) DO {f'UPDATE SET {adds(changed)}' if changed else 'NOTHING'}",
        zip(*named, *changed.values(), strict=True),
    )


def put(db: sqlite3.Connection, table: str, rows: Iterable[Sequence[Any]]) -> None:
    """Put whole rows into a table, and replace rows with the same key."""
    rows = list(rows)
    if rows:
        db.executemany(f"INSERT OR REPLACE INTO {table} VALUES ({', '.join('?' * len(rows[0]))})", rows)


def cache_ids(
    db: sqlite3.Connection, settings: Mapping[str, Sequence[Any]], started: float, now: float
) -> dict[str, int]:
    """Return the numbers of caches by name, and store their settings. Add the caches that are missing.

    Args:
        settings: the values of ``SETTINGS``, by the name of the cache.
        started: the time when this process was started, in seconds since 1970.
        now: the time of this publication, in seconds since 1970.
    """
    columns = f"since, {', '.join(SETTINGS)}"
    known = {name: (number, *rest) for name, number, *rest in db.execute(f"SELECT name, id, {columns} FROM caches")}
    ids, changed = {}, []
    for name, given in settings.items():
        number, since, *before = known.get(encoded(name), (None, started))
        if (since, *before) != (min(since, started), *given):
            changed.append((number, encoded(name), min(since, started), *given, now))
        ids[name] = number
    if changed:
        put(db, "caches", changed)
        found = dict(db.execute("SELECT name, id FROM caches"))
        ids = {name: found[encoded(name)] for name in settings}
    return ids
