"""Remove the remains of killed processes, and outdated rows, from a site. Each process does this once a minute."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.event_log import KILLED, Event, add_events
from wheelcache.watch.group_tables import shorten_groups
from wheelcache.watch.inquiries import remove_old
from wheelcache.watch.releases import note_release
from wheelcache.watch.site_file import ALIVE, SiteFile, lives
from wheelcache.watch.tables import DAY, HOUR, KEPT, LONG_STEP, NUMBERS, OF_WORKER, PUBLISHED, STEP, TOTAL, adds

if TYPE_CHECKING:
    import sqlite3

NAMES: Final = 1000
"""Number of caches without a living worker that are kept; those with the oldest publications are removed first."""

LEFT_OVER: Final = 60.0
"""Seconds after which an unlocked file of a process that never published is removed."""


def tidy(db: sqlite3.Connection, file: SiteFile, own: int) -> None:
    """Remove the remains and the outdated rows within a transaction, and record an event for each killed process.

    Args:
        own: the number of this process.
    """
    found = db.execute("SELECT id, pid, started, published FROM processes").fetchall()
    dead = [each for each in found if each[0] != own and not lives(file.alive(each[0]))]
    add_events(db, (Event.of(KILLED, published, (pid, started)) for _, pid, started, published in dead))
    for process, *_, published in dead:
        db.execute(f"{PUBLISHED} (SELECT cache FROM workers WHERE process = ?)", (published, process))
        db.execute(
            f"UPDATE counts SET killed = killed + 1 WHERE kind = {TOTAL}"
            " AND cache IN (SELECT cache FROM workers WHERE process = ?)",
            (process,),
        )
        db.execute("DELETE FROM processes WHERE id = ?", (process,))
        file.alive(process).unlink(missing_ok=True)
    _remove_files(file, {own, *(process for process, *_ in found)})
    time = SystemClock.time()
    note_release(db, db.execute("SELECT started, release_name FROM processes").fetchall(), time)
    shorten_steps(db, time)
    shorten_groups(db, time)
    remove_old(db)
    db.execute(f"{PUBLISHED} (SELECT cache FROM workers WHERE process = ?)", (time, own))
    for statement in _LEFT:
        db.execute(statement, {"names": NAMES} if ":names" in statement else ())


_LEFT: Final = (
    "DELETE FROM workers WHERE process NOT IN (SELECT id FROM processes)",
    f"DELETE FROM {OF_WORKER} NOT IN (SELECT id FROM processes)",
    "DELETE FROM key_samples WHERE process NOT IN (SELECT 0 UNION SELECT id FROM processes)",
    """DELETE FROM caches WHERE id NOT IN (SELECT cache FROM workers)
        AND id NOT IN (SELECT id FROM caches ORDER BY published DESC LIMIT :names)""",
    *(
        f"DELETE FROM {table} WHERE cache NOT IN (SELECT id FROM caches)"
        for table in ("counts", "paths", "groups", "group_hours", "group_names", "rehearsals", "modes")
    ),
)


def shorten_steps(db: sqlite3.Connection, time: float) -> None:
    """Add the steps that are older than an hour to longer ones, and drop those that no chart shows."""
    old = f"kind = {STEP} AND place < {time - KEPT!r}"
    if db.execute(f"SELECT 1 FROM counts WHERE {old} LIMIT 1").fetchone():
        sums = ", ".join(f"sum({name})" for name in NUMBERS)
        db.execute(
            f"INSERT INTO counts SELECT {LONG_STEP}, place - place % {LONG_STEP}, cache, {sums} FROM counts"
            f" WHERE {old} GROUP BY 2, 3 ON CONFLICT (kind, place, cache) DO UPDATE SET {adds(NUMBERS)}"
        )
        db.execute(f"DELETE FROM counts WHERE {old}")
    db.execute(
        f"DELETE FROM counts WHERE kind IN ({STEP}, {LONG_STEP}) AND place > ? OR kind = {LONG_STEP} AND place < ?",
        (time + HOUR, time - DAY - KEPT),
    )


def _remove_files(file: SiteFile, living: Collection[int]) -> None:
    """Remove the files of processes that have ended, and databases of other versions that are not in use."""
    kept = {file.alive(process).name for process in living}
    time = SystemClock.time()
    for path in file.directory.iterdir():
        with suppress(OSError):
            age = time - path.lstat().st_mtime
            if (
                (path.suffix == ALIVE and path.name not in kept and age > LEFT_OVER and not lives(path))
                or (path.suffix == ".new" and age > LEFT_OVER)
                or (path.name.startswith("figures-") and path != file.path and age > DAY)
            ):
                path.unlink()
