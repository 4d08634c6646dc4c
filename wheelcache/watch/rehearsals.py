"""The results of rehearsals, and the modes of HTTP caches, in the database of a site.

A row of ``rehearsals`` has the number of one kind of outcome for one view of a cache, the time of the first, and the
last example as a JSON object: see ``pages.rehearsing``. Workers add their new counts with each publication. A row
of ``modes`` has the mode that an operator has chosen, which every worker adopts with its next publication.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheelcache.watch.tables import encoded, put

if TYPE_CHECKING:
    import sqlite3

MOST_ROWS: Final = 2_000
"""Of each cache."""


class Outcome(NamedTuple):
    """How often an outcome happened, when it did for the first time, and its last example."""

    number: int
    since: float
    example: dict[str, Any]


Rehearsed = Mapping[tuple[str, str], tuple[int, dict[str, Any]]]
"""Numbers and examples, by view and kind."""


def add_rehearsed(db: sqlite3.Connection, cache: int, counted: Rehearsed, before: Rehearsed, time: float) -> None:
    """Add the outcomes since ``before`` to those of a cache."""
    new = {key: found for key, found in counted.items() if found != before.get(key)}
    if not new:
        return
    known = {*db.execute("SELECT view, kind FROM rehearsals WHERE cache = ?", (cache,))}
    if len(known | new.keys()) > MOST_ROWS:
        new = {key: each for key, each in new.items() if key in known}
    # An outcome of an earlier rehearsal may be corrected after a new one has begun.
    db.executemany(
        "INSERT INTO rehearsals VALUES (?, ?, ?, max(?, 0), ?, ?) ON CONFLICT (cache, view, kind)"
        " DO UPDATE SET number = max(number + ?4, 0), document = excluded.document",
        [
            (cache, view, kind, number - before.get((view, kind), (0,))[0], time, json.dumps(example))
            for (view, kind), (number, example) in new.items()
        ],
    )


def rehearsed_in(db: sqlite3.Connection) -> dict[str, dict[tuple[str, str], Outcome]]:
    """Return the outcomes by the name of the cache, and by view and kind."""
    found: dict[str, dict[tuple[str, str], Outcome]] = defaultdict(dict)
    query = "SELECT name, view, kind, number, rehearsals.since, document FROM rehearsals JOIN caches ON id = cache"
    for name, view, kind, number, since, document in db.execute(query):
        cache = bytes(name).decode(errors="surrogatepass")
        found[cache][view, kind] = Outcome(number, since, dict(json.loads(document)))
    return dict(found)


def modes_in(db: sqlite3.Connection) -> dict[str, str]:
    """Return the modes that operators have chosen, by the name of the cache."""
    query = "SELECT name, mode FROM modes JOIN caches ON id = cache"
    return {bytes(name).decode(errors="surrogatepass"): mode for name, mode in db.execute(query)}


def put_mode(db: sqlite3.Connection, name: str, mode: str) -> None:
    """Store the mode of a cache that publishes its figures. A new rehearsal forgets the results of the last one."""
    rows = db.execute("SELECT id FROM caches WHERE name = ?", (encoded(name),)).fetchall()
    put(db, "modes", [(number, mode) for (number,) in rows])
    if mode == "rehearse":
        db.executemany("DELETE FROM rehearsals WHERE cache = ?", rows)
