"""The samples of the keys that the processes of a site have computed, in its database.

A row has the sample of one cache of one process: the period in which it ends, and its hashes as text, of eight
hexadecimal digits each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from wheelcache.watch.computed_keys import PERIOD, Computed, merged
from wheelcache.watch.tables import put

if TYPE_CHECKING:
    import sqlite3

_DIGITS: Final = 8

Samples = dict[int, tuple[int, ...]]
"""The sample of a cache in each process, by the number of the process."""


def put_computed(db: sqlite3.Connection, rows: Iterable[tuple[int, int, int, Computed]]) -> None:
    """Put the samples of a process into the database.

    Args:
        rows: the number of the process, the number of the cache in the process, that of the cache in the database, and
            the sample.
    """
    put(
        db,
        "computed",
        ((*numbers, period, "".join(f"{each:0{_DIGITS}x}" for each in hashes)) for *numbers, (period, hashes) in rows),
    )


def computed_in(db: sqlite3.Connection, living: Collection[int], time: float) -> dict[int, Samples]:
    """Return the samples of each cache in the living processes, by the number of the cache.

    The sample of a process that has been idle for a period is left out: its keys were not computed recently.

    Args:
        time: the present time, in seconds since 1970.
    """
    found: dict[int, Samples] = defaultdict(dict)
    oldest = time // PERIOD - 1
    for cache, process, text in db.execute("SELECT cache, process, hashes FROM computed WHERE period >= ?", (oldest,)):
        if process in living and text:
            hashes = [int(text[start : start + _DIGITS], 16) for start in range(0, len(text), _DIGITS)]
            # A process may have several caches of a name.
            found[cache][process] = merged(found[cache].get(process, ()), hashes)
    return found
