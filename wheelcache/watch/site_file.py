"""The database through which the processes of a site share their figures: an SQLite file in a private directory.

All processes add their counts to shared rows, so the end of a process changes nothing, and reading takes a few queries.
``tables`` defines the tables.

Decisions:

- Each publication and each reading opens the file (0.2 ms), and no connection survives a fork. If a process forked
  while another thread was inside SQLite, the child would hang at its first use of SQLite, even by Django's database.
  Therefore ``USE`` is held during each use, and by the fork hook.
- ``journal_mode=TRUNCATE``. WAL fails at cold starts and on a small tmpfs, and takes 4 MB more.
- SQLite's own waiting blocks a whole gevent process, so the timeout is 0 and Python retries. Writers wait for a lock on
  a separate file before they open the database. An attempt to lock costs microseconds; a failed attempt to open the
  database costs as much CPU time as writing, and twenty processes that tried together prevented each other from
  writing at all.
- A damaged or foreign file is replaced under an exclusive lock on another file. Publishers and readers share that lock,
  because SQLite must not find the journal of the old file next to the new file.
- The name of the file contains the number of the schema, which is computed from the columns. Processes of two versions
  use different files, so a new column needs no migration.
- Each living process holds a lock on a file of its own. This cannot be the database: a process that opens and closes
  an SQLite file without SQLite drops its locks on it.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import quote_from_bytes

from wheelcache.errors import FileUnusable
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import (
    NEEDS_UNIX,
    FileLocked,
    check_private,
    locked_file,
    make_private,
    not_for_children,
    pause,
)
from wheelcache.runtime.shared_objects import HeldLock
from wheelcache.watch.tables import SCHEMA, VERSION

try:
    # Not at the first use: the child of a fork that happens during an import waits for its lock forever.
    import sqlite3
except ImportError:
    sqlite3 = None  # type: ignore[assignment]

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("wheelcache")

T = TypeVar("T")

OLDEST: Final = (3, 24)
"""The first version of SQLite that supports UPSERT."""

PATIENCE: Final = 0.5
"""Seconds that a publisher waits for others. It blocks the wheel thread. A publication holds the file for 2 ms."""

READ_PATIENCE: Final = 2.0
"""Seconds that a reader waits for others. It does not retry later."""

COMMIT_PATIENCE: Final = 0.1
"""Seconds that a commit waits for readers, each of which takes 10 ms at most. Other threads of the process go on."""

NAME: Final = f"figures-{VERSION:08x}.sqlite3"
LOCK: Final = "lock"

QUEUE: Final = "queue"
"""The file that a writer locks before it opens the database. It keeps this lock, but not ``USE``, while it waits for
readers."""

ALIVE: Final = ".alive"
"""The suffix of the files whose locks show which processes live."""


USE: Final = HeldLock()
"""The right to use SQLite, for one thread of the process at a time."""

lifecycle.HELD.add(USE)


class Busy(Exception):
    """Another process is writing."""


class Damaged(Exception):
    """The file is not a database of this version, or is broken."""


def check_sqlite() -> None:
    """Check that SQLite is present and new enough.

    Raises:
        FileUnusable: if SQLite is missing or too old.
    """
    if sys.platform == "win32":
        raise FileUnusable(f"sharing figures between processes {NEEDS_UNIX}")
    if sqlite3 is None:
        raise FileUnusable("figures are shared through sqlite3, which this Python does not have")
    if sqlite3.sqlite_version_info < OLDEST:
        raise FileUnusable(
            f"figures are shared through SQLite {'.'.join(map(str, OLDEST))} or newer, and this Python has "
            f"{sqlite3.sqlite_version}"
        )


class SiteFile:
    """The database of a site.

    Args:
        directory: the directory of the site. It is made with mode 0700 if it does not exist; its parent must exist.

    Raises:
        FileUnusable: if the directory belongs to another user, if others may use it, or if there is no SQLite.
    """

    def __init__(self, directory: Path) -> None:
        check_sqlite()
        make_private(directory)
        self.directory = directory
        self.path = directory / NAME

    def alive(self, process: int) -> Path:
        """Return the path of the file that a process keeps locked while it lives."""
        return self.directory / f"{process:012x}{ALIVE}"

    def make_again(self) -> None:
        """Make the directory again if it was removed while in use.

        Raises:
            FileUnusable: as for the constructor.
        """
        make_private(self.directory)

    def write(
        self,
        change: Callable[[sqlite3.Connection], T],
        patience: float = PATIENCE,
        committed: Callable[[T], object] = lambda result: None,
    ) -> T:
        """Call ``change(connection)`` in a transaction, and return its result. ``change`` may be called several times.

        Args:
            committed: called with the result after the commit, still under ``USE``.

        Raises:
            FileUnusable: if the file cannot be written. Nothing was changed.
            FileLocked: if others hold the file for longer than ``patience`` seconds. Nothing was changed.
        """

        def step() -> T:
            result = self._write(change)
            committed(result)
            return result

        until = SystemClock.steady() + patience
        if not self.directory.exists():
            self.make_again()
        damage = ""
        try:
            with locked_file(self.directory / QUEUE, patience):
                try:
                    return self._insist(until, step)
                except Damaged:
                    pass
                except FileNotFoundError:
                    self.make_again()
                try:
                    with USE.lock, locked_file(self.directory / LOCK, PATIENCE):
                        damage = self._replace_if_damaged()
                    return self._insist(until, step)
                except (Busy, Damaged, FileNotFoundError) as error:
                    raise FileUnusable(f"{self.path} cannot be used: {error}") from error
        finally:
            if damage:
                # Not under the locks: the handlers of the log are the site's code.
                logger.warning(
                    "The database of the figures %s was damaged (%s) and is replaced; the counts of workers that have "
                    "ended are lost.",
                    self.path,
                    damage,
                )

    def read(self, query: Callable[[sqlite3.Connection], T], default: Callable[[], T]) -> T:
        """Return ``query(connection)``, or ``default()`` if there is no readable file. This writes nothing.

        Raises:
            FileLocked: if another process holds the file for too long.
        """
        if not self.path.exists():
            return default()
        try:
            return self._insist(SystemClock.steady() + READ_PATIENCE, lambda: self._read(query))
        except (Damaged, FileNotFoundError):
            return default()

    def _insist(self, until: float, step: Callable[[], T]) -> T:
        while True:
            try:
                # The lock is not held during the pause, because a fork waits for it.
                with USE.lock, locked_file(self.directory / LOCK, 0.0, shared=True):
                    return step()
            except (Busy, FileUnusable) as error:
                if not self.directory.exists():
                    raise FileNotFoundError(str(self.directory)) from None
                if SystemClock.steady() >= until:
                    kind = FileLocked if isinstance(error, (Busy, FileLocked)) else FileUnusable
                    raise kind(f"{self.path}: {error}") from error
            pause()

    def _write(self, change: Callable[[sqlite3.Connection], T]) -> T:
        with self._opened() as connection:
            return _commit(connection, change)

    def _read(self, query: Callable[[sqlite3.Connection], T]) -> T:
        with self._opened() as connection:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("BEGIN")
            try:
                return query(connection)
            except (LookupError, TypeError, ValueError) as error:
                # SQLite checks pages but not rows, which may be inconsistent in a damaged file.
                raise Damaged(f"{self.path} has malformed rows: {error!r}") from error

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Open the database. The value of the context is the connection.

        Raises:
            FileNotFoundError, Damaged, Busy, OSError: if that fails, or instead of the exceptions of SQLite.
        """
        try:
            check_private(self.path)
        except FileUnusable as error:
            raise Damaged(str(error)) from error
        with _connected(self.path) as connection:
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if version != VERSION:
                raise Damaged(f"it has the version {version}")
            # Otherwise, a damaged page may be read as one without rows, and the counts before the damage are lost.
            connection.execute("PRAGMA cell_size_check = ON")
            connection.execute("PRAGMA journal_mode = TRUNCATE")
            # Without syncing, a killed process damages nothing; a loss of power may, and then the file is replaced.
            connection.execute("PRAGMA synchronous = OFF")
            yield connection

    def _replace_if_damaged(self) -> str:
        """Replace the database if it is missing or damaged. Return the damage, or an empty string.

        The caller holds the exclusive lock, so no other process uses it.
        """
        damage = ""
        try:
            with self._opened() as connection:
                (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
                (tables,) = connection.execute("SELECT count(*) FROM sqlite_master WHERE type = 'table'").fetchone()
            if damage == "ok":
                if tables == SCHEMA.count("CREATE TABLE"):
                    # Another process has already replaced it.
                    return ""
                damage = f"it has {tables} tables"
        except FileNotFoundError:
            pass
        except Damaged as error:
            damage = str(error)
        for path in (self.path, Path(f"{self.path}-journal")):
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise FileUnusable(f"{path} cannot be replaced: {error}") from error
        try:
            # With some umasks, SQLite would create a file that others may read. The journal inherits this mode.
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
        except OSError as error:
            raise FileUnusable(f"{self.path} cannot be made: {error}") from error
        with _connected(self.path) as connection:
            connection.executescript(
                f"PRAGMA journal_mode = TRUNCATE; PRAGMA synchronous = OFF; BEGIN; {SCHEMA}"
                f"PRAGMA user_version = {VERSION}; PRAGMA application_id = {secrets.randbits(31)}; COMMIT;"
            )
        return damage


def lives(path: Path) -> bool:
    """Return whether a living process holds the lock on ``path``. A stopped process still lives."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    not_for_children.add(file)
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        return False
    finally:
        not_for_children.discard(file)
        os.close(file)


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """Open an existing database. The value of the context is the connection.

    Raises:
        Busy, Damaged, Failed: instead of the exceptions of SQLite, also of those in the block.
    """
    # Readers open the file for writing too: one that finds the journal of a killed writer rolls it back.
    uri = f"file:{quote_from_bytes(os.fsencode(path))}?mode=rw"
    try:
        with closing(sqlite3.connect(uri, timeout=0.0, isolation_level=None, uri=True)) as connection:
            yield connection
    except sqlite3.Error as error:
        if _is_busy(error):
            raise Busy("another process has held it for too long") from error
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith(("no such", "table")):
            raise Damaged(str(error)) from error
        raise Failed(f"{path}: {error}") from error


def _commit(connection: sqlite3.Connection, change: Callable[[sqlite3.Connection], T]) -> T:
    process = os.getpid()
    connection.execute("BEGIN IMMEDIATE")
    result = change(connection)
    if process != os.getpid():
        # Closing the connection writes nothing, because all changes are in memory until the commit.
        raise Failed("a signal handler forked during the transaction, which is the parent's")
    until = SystemClock.steady() + COMMIT_PATIENCE
    while True:
        try:
            connection.execute("COMMIT")
        except Exception as error:
            if not _is_busy(error) or SystemClock.steady() >= until:
                raise
            pause()
        else:
            return result


class Failed(OSError):
    """SQLite cannot read or write the file, for instance because the disk is full."""


def _is_busy(error: Exception) -> bool:
    # SQLITE_BUSY and SQLITE_LOCKED, with all their extended codes.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (5, 6)
