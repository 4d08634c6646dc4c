"""The releases of a site. A start of workers with another release is a mark on all charts.

The release is ``WHEELCACHE_RELEASE`` in the environment, or else the name that the framework's settings have given.
A worker of the release of the last mark, or of one that has had workers ever since, begins no other release: workers of
two releases may be replaced one by one.

Without a name, the time of the start distinguishes releases: a mark is a moment from which more than half of the living
workers have been started within a minute. So a server that replaces one of its workers makes no mark.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelcache.watch.tables import DAY, KEPT

if TYPE_CHECKING:
    import sqlite3

VARIABLE: Final = "WHEELCACHE_RELEASE"

MOST_CHARACTERS: Final = 64
"""The length of a name. The rest of a longer one in the environment is cut off."""

TOGETHER: Final = 60.0
"""Seconds within which workers are started together."""

_named = ""


class Release(NamedTuple):
    """The first start of workers with a release.

    Attributes:
        at: the time of the start, in seconds since 1970.
        name: the name of the release; empty without one.
    """

    at: float
    name: str

    @property
    def phrase(self) -> str:
        """The release in a sentence."""
        return str(self) if self.name else "the restart"

    def __str__(self) -> str:
        return f"release {self.name}" if self.name else "restart"


def name_release(name: str) -> None:
    """Use ``name`` for the release of this process, unless the environment has one."""
    global _named
    _named = name


def this_release() -> str:
    """Return the name of the release of this process; empty without one."""
    name = os.environ.get(VARIABLE) or _named
    # A variable may contain bytes that are not UTF-8, which SQLite does not accept in a text.
    return name.encode(errors="replace").decode()[:MOST_CHARACTERS]


def note_release(db: sqlite3.Connection, living: Sequence[tuple[float, str]], time: float) -> None:
    """Record the latest start, if it is one of another release, and remove the releases that no chart shows.

    Args:
        living: the start and the release of each living worker.
    """
    if not living:
        return
    (latest, name), last = max(living), max(releases_in(db), default=Release(0.0, ""))
    alike = [start for start, other in living if other == name and (name or start >= latest - TOGETHER)]
    if name:
        is_other = name != last.name and min(alike) > last.at
    else:
        is_other = 2 * len(alike) > len(living) and min(alike) > last.at + TOGETHER
    if is_other:
        db.execute("INSERT INTO releases VALUES (?, ?)", (min(alike), name))
    db.execute("DELETE FROM releases WHERE at < ? AND at < (SELECT max(at) FROM releases)", (time - DAY - KEPT,))


def releases_in(db: sqlite3.Connection) -> list[Release]:
    """Return the releases of the site, oldest first."""
    return sorted(map(Release._make, db.execute("SELECT at, name FROM releases")))
