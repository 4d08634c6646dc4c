"""The counts of the groups of keys in the database of a site.

A row has the counts of one group of a cache. Workers add their new counts with each publication, so the counts include
workers that have exited. Each worker distinguishes ``MOST_GROUPS`` groups; so does the database, which adds the others
to the group without a name.

The present state of the groups in one process is a JSON object in its row of ``workers``, and leaves with it.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from wheelcache.observability.tables import COUNTS_OF_GROUP
from wheelcache.stats import NO_GROUP, Row, added, subtracted

if TYPE_CHECKING:
    import sqlite3

MOST_GROUPS: Final = 64

Groups = Mapping[str, Row]
"""The counts of groups by name, each in the order of ``COUNTS_OF_GROUP``."""

GroupLevels = Mapping[str, tuple[int | None, float]]
"""By the name of a group, the estimated bytes of its entries, None if they are unknown, and the seconds that were spent
computing its values in the last hour."""


def add_groups(db: sqlite3.Connection, cache: int, counted: Groups, before: Groups) -> None:
    """Add the counts since ``before`` to those of a cache."""
    new = {name: row for name, row in counted.items() if row != before.get(name)}
    if not new:
        return
    known = {name for (name,) in db.execute("SELECT name FROM groups WHERE cache = ?", (cache,))}
    rows: dict[str, Row] = defaultdict(lambda: NO_GROUP)
    for name, row in new.items():
        if name not in known and len(known) > MOST_GROUPS:
            name = ""
        known.add(name)
        rows[name] = added(rows[name], subtracted(row, before.get(name, NO_GROUP)))
    adds = ", ".join(f"{column} = {column} + excluded.{column}" for column in COUNTS_OF_GROUP)
    db.executemany(
        f"INSERT INTO groups VALUES (?, ?{', ?' * len(COUNTS_OF_GROUP)})"
        f" ON CONFLICT (cache, name) DO UPDATE SET {adds}",
        [(cache, name, *row) for name, row in rows.items()],
    )


def groups_in(db: sqlite3.Connection) -> dict[int, dict[str, Row]]:
    """Return the groups of each cache, by its number."""
    found: dict[int, dict[str, Row]] = defaultdict(dict)
    for cache, name, *row in db.execute(f"SELECT cache, name, {', '.join(COUNTS_OF_GROUP)} FROM groups"):
        found[cache][name] = tuple(row)
    return found


def levels_in(db: sqlite3.Connection, dead: Sequence[int], since: float) -> dict[int, GroupLevels]:
    """Return the sums of the levels over all workers of each cache, by its number.

    Args:
        dead: the numbers of the processes to leave out.
        since: an hour ago. A process that has published nothing since then is idle, and has computed nothing.
    """
    found: dict[int, GroupLevels] = defaultdict(dict)
    for cache, document, published in db.execute(
        "SELECT cache, groups, published FROM workers JOIN processes ON id = process"
        f" WHERE process NOT IN ({', '.join('?' * len(dead))})",
        dead,
    ):
        is_at_work = published > since
        levels = {
            name: (memory, seconds if is_at_work else 0.0) for name, (memory, seconds) in json.loads(document).items()
        }
        found[cache] = merged_levels(found[cache], levels)
    return found


def merged_levels(one: GroupLevels, other: GroupLevels) -> GroupLevels:
    """Return the sums of two sets of levels."""
    found = {**one, **other}
    for name in one.keys() & other.keys():
        (memory, seconds), (more, longer) = one[name], other[name]
        found[name] = (None if memory is None or more is None else memory + more, seconds + longer)
    return found


def merged(one: Groups, other: Groups) -> dict[str, Row]:
    """Return the sums of two sets of groups."""
    names = dict.fromkeys((*one, *other))
    return {name: added(one.get(name, NO_GROUP), other.get(name, NO_GROUP)) for name in names}
