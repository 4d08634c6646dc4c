"""Removes from a site what killed processes have left, and what is too old. Each process does it once a minute."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from wheelcache.observability.event_log import KILLED, Event, add_events
from wheelcache.observability.site_file import ALIVE, DAY, HOUR, LONG_STEP, STEP, SiteFile, lives
from wheelcache.runtime.clock import SystemClock

if TYPE_CHECKING:
    import sqlite3

NAMES: Final = 1000
"""Caches without a living worker that are kept; those that were published longest ago go first."""

LEFT_OVER: Final = 60.0
"""Seconds after which the file of a process that has no lock on it is removed, if the process never published."""


def tidy(db: sqlite3.Connection, file: SiteFile, own: str) -> None:
    """Do so within a transaction. What it removes is an event, if it is a process.

    Args:
        own: the process that does it.
    """
    found = db.execute("SELECT process, pid, started, published FROM processes").fetchall()
    dead = [each for each in found if each[0] != own and not lives(file.alive(each[0]))]
    add_events(db, (Event.of(KILLED, published, (pid, started)) for _, pid, started, published in dead))
    for table in ("processes", "workers"):
        db.executemany(f"DELETE FROM {table} WHERE process = ?", ((process,) for process, *_ in dead))
    for process, *_ in dead:
        file.alive(process).unlink(missing_ok=True)
    _remove_files(file, {own, *(process for process, *_ in found)})
    time = SystemClock.time()
    for seconds, kept in ((STEP, HOUR), (LONG_STEP, DAY)):
        db.execute(
            "DELETE FROM steps WHERE seconds = ? AND cache IN (SELECT id FROM caches) AND (start < ? OR start > ?)",
            (seconds, time - kept - LONG_STEP, time + HOUR),
        )
    db.execute(
        "DELETE FROM caches WHERE id NOT IN (SELECT cache FROM workers)"
        " AND id NOT IN (SELECT id FROM caches ORDER BY published DESC LIMIT ?)",
        (NAMES,),
    )
    for table in ("totals", "resets", "steps"):
        db.execute(f"DELETE FROM {table} WHERE cache != 0 AND cache NOT IN (SELECT id FROM caches)")


def _remove_files(file: SiteFile, living: Iterable[str]) -> None:
    """Remove the files of processes that are gone, and databases of other versions that nobody uses."""
    kept = {f"{process}{ALIVE}" for process in living}
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
