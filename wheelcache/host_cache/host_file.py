"""The database of a host cache, as one process uses it: its connections, reads and writes.

**Reads** are single statements. A statement that stayed open would keep the write-ahead log from being reset, and it
would grow without a bound.

**Writes** take turns: SQLite's lock, which the kernel releases if its holder is killed. SQLite's own waiting sleeps for
1 to 100 ms; a process here tries again after 20 to 500 us. If no process gets a turn within ``PATIENCE``, and the
holder is stopped, all processes go on with a new file. So does a write that fails for any other reason, since the old
entry of its key must not be found any more. After a write, the process looks whether its file is still in use;
otherwise it writes again to the new one.

**Connections** are taken from a pool and returned to it by each call: one for each call in progress, whether in threads
or greenlets. Python releases the GIL in each step of SQLite. All connections are closed before a fork. SQLite counts
the locks of a process in its memory, so a child that had a copy of these counts would not lock a file that it opens:
the next process that closes the file would remove its log.
"""

from __future__ import annotations

import logging
import os
import random
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from math import inf
from pathlib import Path
from sys import maxsize
from typing import Any, Final, TypeVar

from wheelcache.errors import FileUnusable
from wheelcache.host_cache.place import COVERED, EPOCH, PATIENCE, Place
from wheelcache.host_cache.statements import ALL_KEYS, AT_MOST, MARK, MARKS, RAISE_FILL_FLOOR
from wheelcache.runtime.clock import SystemClock, moment
from wheelcache.runtime.shared_objects import Lazy

logger = logging.getLogger("wheelcache")

T = TypeVar("T")

PAGE_SIZE: Final = 1024
"""Bytes. A write puts four to six pages into the log: with 4,096 bytes it takes 12% longer, and values of 1 kB take 20%
more memory."""

MOST_LOG: Final = 64 << 20
"""Bytes of the write-ahead log from which on a reader must have been stopped inside a read. Usually it has 1 MiB."""

RETRY_INTERVAL: Final = 1.0
"""Seconds between two attempts to create a file, and between two looks at the folder."""

WARNING_INTERVAL: Final = 60.0

FORK_PATIENCE: Final = 5.0
"""Seconds that a fork waits for calls in progress."""

NEVER: Final = -2
"""No result of ``_version``."""

MORE_PATIENCE: Final = 4.5
"""Seconds to wait in addition for a writer that is not known to be stopped. Its thread may wait for the GIL, or its
machine may be overloaded."""

MOST_FAILURES: Final = 5
"""A call that fails as often, with a new file each time, is an error: a new file is no remedy for it."""

NO_FILE: Final = -1
"""No epoch: 0 and more are in the words."""


class Pool(deque[Any]):
    """The free connections to a file, as cursors. A call that is interrupted by any exception, for example that of a
    time limit, drops its connection, which may be in the middle of a statement.

    Attributes:
        path: the file.
        epoch: the epoch of the file.
        made: the number of connections, which includes those in use.
    """

    def __init__(self, path: Path, epoch: int) -> None:
        super().__init__()
        self.path, self.epoch = path, epoch
        self.made = 0

    def close(self) -> None:
        with suppress(IndexError):
            while True:
                self.drop(self.pop())

    def drop(self, cursor: Any) -> None:
        """Close a connection, which ends its statement and its transaction."""
        # First: a statement that a cursor keeps after an error would keep the connection open.
        cursor.close()
        cursor.connection.close()
        self.made -= 1


NO_POOL: Final = Pool(Path(), NO_FILE)


class HostFile:
    """The database of one cache.

    Args:
        find_place: finds the folder. Called at the first use, so that a master process opens nothing before it forks.
        schema: the statements that make an empty database.
        name: the name of the cache, for the log.
        check: raises the error of each use, if there is one: see ``Core.gate``.

    Attributes:
        opened: called without arguments whenever the process begins to use a file.
    """

    def __init__(self, find_place: Callable[[], Place], schema: str, name: str, check: Callable[[], object]) -> None:
        self._find_place = find_place
        self._check = check
        self._schema = schema
        self._name = name
        self.opened: Callable[[], object] = bool
        self._opening = Lazy(lambda: threading.RLock())
        self._next_try = self._warned_until = -inf
        self._events: deque[tuple[Any, ...]] = deque()
        self._free = NO_POOL
        self._forget()

    def _forget(self) -> None:
        self._place: Place | None = None
        self._words: Sequence[int] = (0,)
        self._leave_file()

    def _leave_file(self) -> None:
        """Close the connections. Calls in progress leave theirs to the garbage collector."""
        self._free.close()
        self._free = NO_POOL

    # Calls.

    def read(self, statement: str, arguments: Sequence[Any] = ()) -> Any:
        """Return the first row; None if there is none, or if there is no file."""
        free = self._free
        if self._words[EPOCH] == free.epoch:
            # The usual case, without the calls of ``_in_turn``.
            try:
                cursor = free.pop()
            except IndexError:
                pass
            else:
                try:
                    row = cursor.execute(statement, arguments).fetchone()
                except sqlite3.Error:
                    free.append(cursor)
                except BaseException:
                    free.drop(cursor)
                    raise
                else:
                    free.append(cursor)
                    return row
        return self._in_turn(lambda cursor: cursor.execute(statement, arguments).fetchone(), None)

    def read_all(self, statement: str, arguments: Sequence[Any] = ()) -> list[Any]:
        """Return all rows, of which the statement limits the number."""
        return self._in_turn(lambda cursor: cursor.execute(statement, arguments).fetchall(), [])

    def write(self, statement: str, arguments: Sequence[Any]) -> int:
        """Execute one statement that changes rows. Return the number of rows; -1 if there is no file.

        Args:
            arguments: the first one is a moment, if the statement adds a row.
        """
        free = self._free
        if self._words[EPOCH] == free.epoch:
            # The usual case, without the calls of ``_in_turn``: a set takes 13.0 us instead of 13.6.
            try:
                cursor = free.pop()
            except IndexError:
                pass
            else:
                try:
                    number: int = cursor.execute(statement, arguments).rowcount
                except sqlite3.Error:
                    free.append(cursor)
                except BaseException:
                    free.drop(cursor)
                    raise
                else:
                    free.append(cursor)
                    if self._words[EPOCH] == free.epoch:
                        return number
        return self._in_turn(lambda cursor: self._written(cursor, statement, arguments), -1)

    def _written(self, cursor: Any, statement: str, arguments: Sequence[Any]) -> int:
        try:
            return cursor.execute(statement, arguments).rowcount  # type: ignore[no-any-return]
        except sqlite3.IntegrityError:
            # Two processes write in the same nanosecond.
            return cursor.execute(statement, (moment(), *arguments[1:])).rowcount  # type: ignore[no-any-return]

    def transaction(self, work: Callable[[Any], T], otherwise: T) -> T:
        """Return the result of ``work(cursor)``, which is called in a transaction, perhaps more than once; without a
        file, ``otherwise``. ``work`` runs no code of the site."""

        def in_transaction(cursor: Any) -> T:
            try:
                cursor.execute("BEGIN IMMEDIATE")
                found = work(cursor)
                cursor.execute("COMMIT")
                return found
            except BaseException:
                with suppress(sqlite3.Error):
                    cursor.execute("ROLLBACK")
                raise

        return self._in_turn(in_transaction, otherwise)

    def _in_turn(self, work: Callable[[Any], T], otherwise: T) -> T:
        until = next_look = pause = 0.0
        version, is_stuck, failures = NEVER, False, 0
        while self._words[EPOCH] == self._free.epoch or self._open():
            free, cursor = self._free, None
            try:
                cursor, free = self._cursor()
                found = work(cursor)
            except sqlite3.IntegrityError:
                # Two writes at the same nanosecond.
                free.append(cursor)
                continue
            except sqlite3.Error as error:
                now = SystemClock.steady()
                if now >= next_look:
                    before, version = version, _version(cursor)
                    next_look = now + PATIENCE / 5
                    if version != before:
                        until = now + PATIENCE
                    is_stuck = now >= until and (now >= until + MORE_PATIENCE or self._is_hopeless(error, free.epoch))
                if cursor is not None:
                    free.append(cursor)
                if is_stuck or not self._may_pass(error, free.epoch):
                    failures += 1
                    if failures == MOST_FAILURES:
                        raise
                    self._replace(free.epoch, error)
                    next_look, version, is_stuck = 0.0, NEVER, False
                    continue
            except BaseException:
                if cursor is not None:
                    free.drop(cursor)
                raise
            else:
                free.append(cursor)
                if self._words[EPOCH] == free.epoch:
                    return found
                # Another process has replaced the file during the write.
                continue
            pause = min(2 * pause, 0.0005) or 0.00002
            time.sleep(pause * random.uniform(0.5, 1.0))
        return otherwise

    def _may_pass(self, error: sqlite3.Error, epoch: int) -> bool:
        """Return whether the call may succeed later: another connection writes, or the process has no descriptors left,
        while other threads have connections."""
        place = self._place
        return is_busy(error) or ("unable to open" in str(error) and place is not None and place.path(epoch).exists())

    def _is_hopeless(self, error: sqlite3.Error, epoch: int) -> bool:
        place = self._place
        if not is_busy(error):
            # Unless other threads will return their connections.
            return not self._free.made
        return place is None or place.is_writer_stopped(epoch)

    def clear(self) -> None:
        """Go on with an empty file."""
        if self._place is not None or self._open():
            # One that another process is creating may be from before this call.
            epoch = self._words[EPOCH] or self._use_new_file(0)
            if epoch != 0:
                self._use_new_file(epoch)
            self._log()

    def check(self) -> None:
        """Look whether the folder was removed, and whether the log has grown too large."""
        place, epoch = self._place, self._free.epoch
        if place is None or self._has_left(place) or epoch == NO_FILE:
            return
        with suppress(OSError):
            size = os.stat(f"{place.path(epoch)}-wal").st_size
            if size > MOST_LOG:
                self._replace(epoch, f"its log has {size >> 20} MiB, since a reader was stopped")

    def _has_left(self, place: Place) -> bool:
        """Leave the folder, if it was removed. Return whether it was."""
        if not place.is_gone():
            return False
        self._warn("The folder of the host cache %r was removed; it begins empty in a new one.", self._name)
        self._log()
        with self._opening.get():
            if self._place is place:
                self._forget()
        return True

    def close(self) -> None:
        """Close all connections. The next use opens the file again."""
        with self._opening.get():
            self._forget()

    def open(self) -> None:
        """Use the file that the words name, as each call does."""
        if self._words[EPOCH] != self._free.epoch:
            self._open()

    @property
    def epoch(self) -> int:
        """The epoch of the file in use."""
        self.open()
        return self._free.epoch

    @property
    def place(self) -> Place | None:
        """The folder, once it was used."""
        if self._place is None:
            self._open()
        return self._place

    # Files.

    def _cursor(self) -> tuple[Any, Pool]:
        """Return a connection, and the pool to which it belongs."""
        free = self._free
        try:
            return free.pop(), free
        except IndexError:
            # Waits for the end of a fork, which has replaced the pool.
            with self._opening.get():
                free = self._free
                cursor = connect(free.path).cursor()
                free.made += 1
                return cursor, free

    def _open(self) -> bool:
        """Use the file that the words name. Return False if there is none."""
        self._check()
        with self._opening.get():
            # Perhaps another thread has opened it.
            is_open = self._words[EPOCH] == self._free.epoch or self._use_file()
        self._log()
        if is_open:
            self.opened()
        return is_open

    def _use_file(self) -> bool:
        place = self._place
        if place is None:
            try:
                place = self._find_place()
            except FileUnusable as error:
                self._warn("The host cache %r cannot be used: %s.", self._name, error)
                return False
            self._place, self._words = place, place.words
        self._leave_file()
        epoch = self._words[EPOCH]
        if epoch == 0 and SystemClock.steady() >= self._next_try:
            epoch = self._use_new_file(0)
        if epoch == 0:
            return False
        self._free = Pool(place.path(epoch), epoch)
        return True

    def _use_new_file(self, epoch: int) -> int:
        new = 0
        # A fork waits for this: its child must have no copy of a connection.
        with self._opening.get():
            try:
                if self._place is not None:
                    new = self._place.replace(epoch, self._create)
            except (sqlite3.Error, OSError, FileUnusable) as error:
                self._warn("The host cache %r has no file now, so it is empty: %s.", self._name, error)
                # Not if another process is creating one: the next call waits for that.
                self._next_try = SystemClock.steady() + RETRY_INTERVAL
        return new

    @contextmanager
    def _create(self, path: Path, last: Path | None) -> Iterator[None]:
        """Create a file in which the marks of the last one hold. No process uses that any longer: a commit that marks
        keys in it marks them again in the new one."""
        marks = [] if last is None else self._marks(last)
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        connection = connect(path)
        try:
            connection.execute(f"PRAGMA page_size={PAGE_SIZE}")
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(f"BEGIN; {self._schema}")
            epoch = int(path.stem)
            connection.executemany(MARK, marks)
            # No value is stored whose computation began before the file was made.
            connection.execute(RAISE_FILL_FLOOR, (epoch,))
            connection.execute(AT_MOST, (self.most_bytes(epoch),))
            connection.execute("COMMIT")
            # Nor one from before it is used: others have deleted without a file, if this took long. They cannot write
            # to this one before the end of the transaction.
            connection.execute("BEGIN IMMEDIATE")
            yield
            connection.execute(RAISE_FILL_FLOOR, (moment(),))
            connection.execute("COMMIT")
        finally:
            connection.close()

    def _marks(self, last: Path) -> list[Any]:
        try:
            with closing(connect(last)) as connection:
                return connection.execute(MARKS, (moment(),)).fetchall()
        except sqlite3.Error:
            # Unknown: the file is damaged, or removed. Until the end of the newest commit, no computed value is stored.
            covered = self._words[COVERED]
            return [(ALL_KEYS, covered)]

    def cover(self, until: int) -> None:
        """Note until when a commit of a transaction is in progress. Called within a transaction of the file."""
        place = self._place
        if place is not None:
            place.words[COVERED] = max(until, place.words[COVERED])

    def most_bytes(self, epoch: int) -> int:
        """Return the bytes of entries for which there is room."""
        try:
            return maxsize if self._place is None else self._place.most_bytes(epoch)
        except OSError:
            return maxsize

    def _replace(self, epoch: int, reason: object) -> None:
        place = self._place
        if self._words[EPOCH] != epoch or place is None or self._has_left(place):
            # Another process has replaced it, or the folder was removed.
            return
        self._warn("The host cache %r begins with a new file, without entries: %s.", self._name, reason)
        self._use_new_file(epoch)
        self._log()

    def _warn(self, message: str, *arguments: object) -> None:
        """Let ``_log`` log an event."""
        now = SystemClock.steady()
        if now >= self._warned_until:
            self._warned_until = now + WARNING_INTERVAL
            self._events.append((message, *arguments))

    def _log(self) -> None:
        """Log the events. Called without the lock: a handler may wait for another thread that uses the cache."""
        while self._events:
            try:
                event = self._events.popleft()
            except IndexError:
                # Another thread logs it.
                break
            logger.warning(*event)

    # Forks.

    def before_fork(self) -> None:
        """Return when no call is in progress and no connection is open. Until ``after_fork``, none begins."""
        self._opening.get().acquire()
        # Calls find no connection in the new pool, and wait for the end of the fork.
        free, self._free = self._free, Pool(self._free.path, self._free.epoch)
        until = SystemClock.steady() + FORK_PATIENCE
        free.close()
        while free.made and SystemClock.steady() < until:
            time.sleep(0.0001)
            free.close()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._opening.forget()
            # It may be another test process, or that of another user: each has its own folder.
            self._forget()
        else:
            self._opening.get().release()


def connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{path}?mode=rw", uri=True, isolation_level=None, timeout=0, check_same_thread=False, cached_statements=64
    )
    try:
        connection.execute("PRAGMA synchronous=OFF")
    except BaseException:
        # Now, and not by the garbage collector, which may do so during a fork.
        connection.close()
        raise
    return connection


def _version(cursor: Any) -> int:
    """Return a number that changes if another connection has written; -1 if this one could not be opened."""
    try:
        return -1 if cursor is None else cursor.execute("PRAGMA data_version").fetchone()[0]
    except sqlite3.Error:
        return -1


def is_busy(error: sqlite3.Error) -> bool:
    return isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
