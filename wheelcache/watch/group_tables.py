"""The counts of the groups of keys in the database of a site, in total and by steps.

Workers add the counts of a step of ten seconds to the rows of the step, in ``groups``. When a step is older than an
hour, its counts leave for the row of the total and for the row of the hour, in ``group_hours``, which also has the
counts of each minute, in a compressed document. So the total is the sum of both kinds of rows. With a row for each
minute instead, 64 busy groups took 5 MB a day, and adding them up took 90 ms.

Each worker distinguishes ``MOST_GROUPS`` groups of a cache; so does the database. A group that has been computed
recently takes the place of the one that took least time to compute in the last day, whose counts are added to the group
without a name. So names that strangers choose do not keep out those of the site for long.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelcache.engine.stats import MOST_GROUPS
from wheelcache.watch.key_groups import (
    SECONDS,
    Groups,
    GroupSteps,
    merged_minutes,
    packed,
    sum_of,
    unpacked,
)
from wheelcache.watch.rows import NO_GROUP, Row, added
from wheelcache.watch.tables import (
    COUNTS_OF_GROUP,
    DAY,
    HOUR,
    KEPT,
    LONG_STEP,
    OF_NAME,
    STEP,
    TOTAL,
    add_rows,
    adds,
)

if TYPE_CHECKING:
    import sqlite3

TOGETHER: Final = 600
"""Seconds of the steps that are moved to the hours together."""

_KEYS: Final = ("kind", "place", "cache", "name")
_SUMS: Final = ", ".join(f"sum({name})" for name in COUNTS_OF_GROUP)
_LIST: Final = ", ".join(COUNTS_OF_GROUP)


# Writing.


def add_groups(db: sqlite3.Connection, cache: int, steps: GroupSteps, *, makes_places: bool = True) -> None:
    """Add counts to the steps of a cache.

    Args:
        makes_places: whether a new group may take the place of another one. That takes 7 ms, so it is not for every
            publication.
    """
    for start, groups in steps.items():
        _add(db, (STEP, start, cache), groups, makes_places=makes_places)


def add_totals(db: sqlite3.Connection, cache: int, groups: Groups) -> None:
    """Add counts to the totals of a cache."""
    _add(db, (TOTAL, 0, cache), groups, makes_places=True)


def _add(db: sqlite3.Connection, place: tuple[int, int, int], groups: Groups, *, makes_places: bool) -> None:
    ids = _ids(db, place[-1], groups, makes_places=makes_places)
    rows: dict[int, Row] = {}
    for name, row in groups.items():
        number = ids[name]
        rows[number] = added(rows[number], row) if number in rows else row
    add_rows(db, "groups", _KEYS, COUNTS_OF_GROUP, [(*place, number, *row) for number, row in rows.items()])


def _ids(db: sqlite3.Connection, cache: int, new: Groups, *, makes_places: bool) -> dict[str, int]:
    """Return the numbers of the groups of a cache by name, and add those that are missing."""
    known = dict(db.execute("SELECT name, id FROM group_names WHERE cache = ?", (cache,)))
    missing = [name for name in new if name not in known]
    if not missing:
        return known
    # The group without a name comes first: it has the counts of those that find no place.
    missing = ["", *(name for name in missing if name)] if "" not in known else missing
    missing.sort(key=lambda name: -new[name][SECONDS] if name else -inf)
    seconds = [new[name][SECONDS] for name in missing if name and new[name][SECONDS] > 0.0]
    if makes_places and seconds and len(known) + len(missing) > MOST_GROUPS + 1:
        _make_places(db, cache, known, new, seconds)
    for name in missing:
        if len(known) <= MOST_GROUPS:
            added_row = db.execute("INSERT INTO group_names (cache, name) VALUES (?, ?)", (cache, name))
            known[name] = added_row.lastrowid or 0
        else:
            known[name] = known[""]
    return known


def _make_places(
    db: sqlite3.Connection, cache: int, known: dict[str, int], new: Groups, seconds: Sequence[float]
) -> None:
    """Remove groups for newcomers that took longer to compute: each for one of ``seconds``, in descending order.

    Args:
        known: the numbers of the groups by name. Those that are removed leave it.
        new: the counts that are being added: their groups stay.
    """
    if "" not in known:
        return
    spent: dict[int, float] = defaultdict(float)
    for table in ("group_hours WHERE", f"groups WHERE kind = {STEP} AND"):
        for number, one in db.execute(f"SELECT name, sum(load_seconds) FROM {table} cache = ? GROUP BY 1", (cache,)):
            spent[number] += one
    others = sorted((spent[number], name) for name, number in known.items() if name and name not in new)
    for (least, name), most in zip(others, seconds, strict=False):
        if least >= most:
            break
        _merge_into_rest(db, known.pop(name), known[""])


def _merge_into_rest(db: sqlite3.Connection, group: int, rest: int) -> None:
    """Add the counts of a group to the group without a name, and remove the group."""
    db.execute(
        f"INSERT INTO groups SELECT kind, place, cache, ?, {_LIST} FROM groups WHERE name = ?"
        f" ON CONFLICT (kind, place, cache, name) DO UPDATE SET {adds(COUNTS_OF_GROUP)}",
        (rest, group),
    )
    for hour, cache, minutes in db.execute(
        "SELECT hour, cache, minutes FROM group_hours WHERE name = ?", (group,)
    ).fetchall():
        _add_minutes(db, hour, cache, rest, unpacked(minutes))
    for table in ("groups WHERE name", "group_hours WHERE name", "group_names WHERE id"):
        db.execute(f"DELETE FROM {table} = ?", (group,))


def shorten_groups(db: sqlite3.Connection, time: float) -> None:
    """Move the steps that are older than an hour to the totals and the hours, and drop hours that no chart shows.

    Those of ten minutes and one cache are moved together: that takes 30 ms for 64 groups, and those of one minute would
    take 20. Steps of the future, which a clock that was set back has left, are moved to the totals only.
    """
    db.execute("DELETE FROM group_hours WHERE hour < ? OR hour > ?", (time - DAY - KEPT - HOUR, time))
    found = None
    for order, old in (("", f"place < {time - KEPT!r}"), ("DESC", f"place > {time + HOUR!r}")):
        row = db.execute(
            f"SELECT place, cache FROM groups WHERE kind = {STEP} ORDER BY place {order}, cache LIMIT 1"
        ).fetchone()
        if row is not None and not time - KEPT - TOGETHER <= row[0] <= time + HOUR:
            found = f"kind = {STEP} AND cache = {row[1]} AND {old}"
    if found is not None:
        _shorten(db, found, time)


def _shorten(db: sqlite3.Connection, old: str, time: float) -> None:
    """Move the steps of a condition."""
    found = db.execute(
        f"SELECT cache, name, place - place % {LONG_STEP}, {_SUMS} FROM groups WHERE {old} GROUP BY 1, 2, 3"
    ).fetchall()
    total: dict[tuple[int, int], Row] = defaultdict(lambda: NO_GROUP)
    hours: dict[tuple[int, int, int], dict[int, Row]] = defaultdict(dict)
    for cache, name, minute, *row in found:
        total[cache, name] = added(total[cache, name], tuple(row))
        if minute < time:
            hours[minute - minute % HOUR, cache, name][minute] = tuple(row)
    add_rows(db, "groups", _KEYS, COUNTS_OF_GROUP, [(TOTAL, 0, *each, *row) for each, row in total.items()])
    for each, minutes in hours.items():
        _add_minutes(db, *each, minutes)
    db.execute(f"DELETE FROM groups WHERE {old}")


def _add_minutes(db: sqlite3.Connection, hour: int, cache: int, name: int, minutes: Mapping[int, Row]) -> None:
    """Add counts by the start of their minutes to an hour of a group."""
    place = (hour, cache, name)
    where = "hour = ? AND cache = ? AND name = ?"
    known = db.execute(f"SELECT minutes FROM group_hours WHERE {where}", place).fetchone()
    if known is not None:
        minutes = merged_minutes(unpacked(known[0]), minutes)
    db.execute(
        f"INSERT OR REPLACE INTO group_hours VALUES (?, ?, ?{', ?' * len(COUNTS_OF_GROUP)}, ?)",
        (*place, *sum_of(minutes.values()), packed(minutes)),
    )


# Reading.


def totals_in(db: sqlite3.Connection) -> dict[int, dict[str, Row]]:
    """Return all counts of the groups of each cache, by its number."""
    found: dict[int, dict[str, Row]] = defaultdict(dict)
    for cache, name, *row in db.execute(
        f"SELECT groups.cache, group_names.name, {_SUMS} FROM groups JOIN group_names ON id = groups.name"
        " GROUP BY groups.name"
    ):
        found[cache][name] = tuple(row)
    return found


def groups_between(db: sqlite3.Connection, cache: bytes, since: int, until: int) -> dict[str, Row]:
    """Return the counts of the groups of a cache in the steps from ``since`` to ``until``.

    Args:
        cache: the encoded name of the cache.
        since, until: in seconds since 1970. Before the last hour, they must be whole minutes.
    """
    names = _names(db, cache)
    found: dict[str, Row] = defaultdict(lambda: NO_GROUP)
    whole = -(-since // HOUR) * HOUR, until - until % HOUR - HOUR
    for query, given in (
        (f"groups WHERE kind = {STEP} AND place >= ? AND place < ?", (since, until)),
        ("group_hours WHERE hour BETWEEN ? AND ?", whole),
    ):
        for number, *row in db.execute(
            f"SELECT name, {_SUMS} FROM {query} AND {OF_NAME} GROUP BY name", (*given, cache)
        ):
            found[names[number]] = added(found[names[number]], tuple(row))
    for hour in {since - since % HOUR, until - until % HOUR}:
        if not whole[0] <= hour <= whole[1]:
            for number, document in db.execute(
                f"SELECT name, minutes FROM group_hours WHERE hour = ? AND {OF_NAME}", (hour, cache)
            ):
                within = [row for start, row in unpacked(document).items() if since <= start < until]
                found[names[number]] = added(found[names[number]], sum_of(within))
    return {name: row for name, row in found.items() if any(row)}


class LoadStep(NamedTuple):
    """The loads of a group in a step: those that returned, and those that failed."""

    loads: int
    load_failures: int


def loads_since(db: sqlite3.Connection, since: int) -> list[tuple[str, str, int, LoadStep]]:
    """Return the names of a cache and a group, the start of a step, and the loads, for the steps with any, oldest
    first."""
    return [
        (bytes(cache).decode(errors="surrogatepass"), group, start, LoadStep(loads - failures, failures))
        for cache, group, start, loads, failures in db.execute(
            "SELECT caches.name, group_names.name, place, loads, load_failures FROM groups"
            " JOIN group_names ON group_names.id = groups.name JOIN caches ON caches.id = groups.cache"
            f" WHERE kind = {STEP} AND place >= ? AND loads > 0 ORDER BY place",
            (since,),
        )
    ]


def seconds_between(
    db: sqlite3.Connection, cache: bytes, since: int, until: int, wanted: Collection[str]
) -> list[tuple[str, int, float]]:
    """Return the seconds that groups took to compute, with their name and the start of the step or minute."""
    names = {number: name for number, name in _names(db, cache).items() if name in wanted}
    chosen = f"name IN ({', '.join('?' * len(names))}) AND {OF_NAME}"
    found = db.execute(
        f"SELECT name, place, load_seconds FROM groups WHERE kind = {STEP} AND place >= ? AND place < ? AND {chosen}",
        (since, until, *names, cache),
    ).fetchall()
    for number, document in db.execute(
        f"SELECT name, minutes FROM group_hours WHERE hour > ? AND hour < ? AND {chosen}",
        (since - HOUR, until, *names, cache),
    ):
        found += [(number, start, row[SECONDS]) for start, row in unpacked(document).items() if row[SECONDS]]
    return [(names[number], start, seconds) for number, start, seconds in found]


def _names(db: sqlite3.Connection, cache: bytes) -> dict[int, str]:
    return dict(db.execute(f"SELECT id, name FROM group_names WHERE {OF_NAME}", (cache,)))
