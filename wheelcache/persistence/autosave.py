"""Keeps the entries of a cache on disk, from one process to the next: a directory in which each process saves its own.

A process has a number there (see ``worker_number``), and with it a file for each cache, which it replaces every few
minutes and when it exits. The number of a process that is gone is free for the next: there are never more files than
there were processes at once. A process that starts loads the newest readable snapshot; no process waits for another.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from wheelcache.errors import CacheClosed, FileUnusable, SnapshotRefused, UnknownFormat, Unloaded
from wheelcache.persistence.exit_save import exit_save
from wheelcache.persistence.snapshot_directory import made_and_opened, make_and_check, opened
from wheelcache.persistence.snapshot_file import refuse
from wheelcache.runtime import lifecycle, threads
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.lazy import Lazy, end_under_a_patch, lazy_lock
from wheelcache.runtime.threads import wait_for_end
from wheelcache.runtime.weak_registry import WeakRegistry
from wheelcache.runtime.worker_pool import refresh_pool

logger = logging.getLogger("wheelcache")

SUFFIX: Final = ".snapshot"
NAME_LENGTH: Final = 40


class Savable(Protocol):
    """What is saved and loaded."""

    @property
    def name(self) -> str: ...

    def save(
        self, path: Path, *, secret: bytes | None = None, seconds: float | None = None, dir_fd: int | None = None
    ) -> object:
        """See ``saving.save``."""

    def load_from(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> object:
        """See ``loading_snapshot.load_from``."""

    def is_in_use(self) -> bool:
        """Whether the cache was used, and its load is over, and it was not closed since."""


class Autosave:
    """Loads a cache when it is first used, and saves it every so often and at the exit. A job of ``periodic_jobs``.

    Args:
        directory: where; made, with mode 0700, if it isn't there.
        period: seconds between two saves.
        secret: what the files are signed with, or None.
        target: the cache.

    Attributes:
        period, directory, secret: as given.

    Raises:
        FileUnusable: the directory is not this user's, others may use it, or they may put another in its place. If that
            becomes so later, nothing is loaded or saved, which is logged.
    """

    __slots__ = ("__weakref__", "_failing", "_lock", "_number", "_target", "directory", "period", "secret")

    matters: Final = 1

    def __init__(self, directory: Path, period: float, secret: bytes | None, target: Savable) -> None:
        make_and_check(directory)
        self.period = period
        self.directory = directory
        self.secret = secret
        self._target = target
        self._number = WorkerNumber()
        self._failing = False
        self._lock = lazy_lock()
        exit_save.add(self)

    def load(self) -> None:
        """Load the newest readable snapshot. If it is damaged, the records before the damage, and then the next one."""
        try:
            with opened(self.directory) as directory:
                self._load_newest(directory)
        except FileNotFoundError:
            pass
        except FileUnusable as error:
            logger.warning("The cache %r is not loaded: %s.", self._target.name, error)

    def _load_newest(self, directory: int) -> None:
        ignored: UnknownFormat | None = None
        try:
            for name in _newest_first(directory, self._target.name):
                path = self.directory / name
                try:
                    self._target.load_from(path, self.secret, directory)
                except FileNotFoundError:
                    # Replaced at this moment.
                    continue
                except UnknownFormat as error:
                    ignored = ignored or error
                except SnapshotRefused as error:
                    refuse(f"the cache {self._target.name!r}", path, error, directory)
                except (CacheClosed, Unloaded):
                    return
                except Exception:
                    # The caller that was the first to need the cache has no part in this.
                    logger.exception("The cache %r cannot be loaded from %s.", self._target.name, path)
                else:
                    return
        finally:
            if ignored is not None:
                # After another version, each process of it has left one: a line for all of them.
                logger.warning("The cache %r ignores what another version left: %s.", self._target.name, ignored)

    def snapshots(self) -> list[Path]:
        """The files of this cache, newest first."""
        return [self.directory / name for name in _newest_first(self.directory, self._target.name)]

    def save(self, seconds: float | None = None) -> bool:
        """Save the cache, in at most so many seconds. Whether that was done; if not, the log says why."""
        lock = self._lock.get()
        # In one step: an exception from outside, between a call of acquire and the try, would leave the lock taken.
        (taken,) = map(lock.acquire, (True,), (-1 if seconds is None else seconds,))
        if not taken:
            return False
        try:
            if not self._target.is_in_use():
                return False
            with made_and_opened(self.directory) as directory:
                stem = stem_of(self._target.name)
                path = self.directory / f"{stem}.{self._number.hold(directory, stem)}{SUFFIX}"
                self._target.save(path, secret=self.secret, seconds=seconds, dir_fd=directory)
        except (CacheClosed, Unloaded):
            return False
        except Exception as error:
            # Of any kind: the pool and the exit that call this report none.
            if not self._failing:
                # Not the exception: a record of the log that is kept would keep what its frames have.
                logger.warning("The cache %r cannot be saved: %s", self._target.name, str(error))
            self._failing = True
            return False
        else:
            self._failing = False
            return True
        finally:
            lock.release()
            if not self._target.is_in_use():
                # The cache was closed meanwhile.
                self._number.release()

    def begin(self) -> None:
        """Nothing is to be saved yet."""
        exit_save.start()

    def run(self) -> None:
        """Have the pool save."""
        if not self._lock.get().locked():
            # Else the last save is in progress, and waiting for it would keep a thread from refreshes.
            self._have_done(self.save, "saved")

    def run_load(self) -> None:
        """Have the pool load the newest snapshot, beside what is there."""
        self._have_done(self.load, "loaded")

    def _have_done(self, job: Callable[[], object], done: str) -> None:
        try:
            taken = refresh_pool.submit(job)
        except RuntimeError:
            taken = False
        if not taken and not self._failing:
            self._failing = True
            logger.warning("The cache %r is not %s: there is no thread for it.", self._target.name, done)

    def close(self) -> None:
        """No more saves; what was saved stays."""
        if not self._lock.get().locked():
            self._number.release()

    def start_over(self) -> None:
        """In the child of a fork, which gets a number of its own."""
        self._lock = lazy_lock()
        self._failing = False
        self._number.release()


def _newest_first(directory: Path | int, name: str) -> list[str]:
    """The snapshots of the cache ``name``."""
    found = []
    now = time.time_ns()
    start = f"{stem_of(name)}."
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(start) and entry.name.endswith(SUFFIX):
                with suppress(OSError):
                    saved_at = entry.stat(follow_symlinks=False).st_mtime_ns
                    # One of a time to come, when the clock was wrong, would else be the newest for years, and what is
                    # in it as young at each start as when it was saved.
                    found.append((saved_at <= now, saved_at, entry.name))
    return [name for *_, name in sorted(found, reverse=True)]


def stem_of(name: str) -> str:
    """A file name for the name of a cache: what can be read of it, and what tells it from all others."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:NAME_LENGTH]
    return f"{readable}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


_keepers: Final[WeakRegistry[SnapshotKeeper]] = WeakRegistry()


class _Watch:
    """A thread that waits for the exit, and what it waits for.

    Attributes:
        thread: None if it was not started.
        called_off: the thread ends without saving.
    """

    __slots__ = ("_ticket", "asked", "called_off", "done", "thread")

    def __init__(self) -> None:
        # What the thread was started with. One with another ticket ends at once: its start was interrupted.
        self._ticket: object = None
        self.thread: threading.Thread | None = None
        self.asked = Alarm()
        self.done = threading.Event()
        self.called_off = False

    def start(self) -> None:
        """Start the thread, unless it was started."""
        ticket = object()
        thread = threading.Thread(target=self._wait, args=(ticket,), name="wheelcache-save", daemon=True)
        # No call comes in between, so no other thread and no exception from outside does.
        before, self._ticket = self._ticket, self._ticket or ticket
        if before is not None:
            return
        try:
            threads.start(thread)
            self.thread = thread
        except RuntimeError:
            # Where no thread can be had, the thread that exits saves.
            self._ticket = None
        except BaseException:
            self._ticket = None
            self.asked.set()
            self.asked = Alarm()
            raise

    def _wait(self, ticket: object) -> None:
        asked = self.asked
        if self._ticket is ticket:
            asked.wait(None)
        try:
            if self._ticket is ticket and not self.called_off:
                _save_all()
        finally:
            self.done.set()
            end_under_a_patch()


class _ExitSaver:
    """A thread that waits for the exit: a value that cannot be pickled in any time must not keep a process from it.

    It is started early, since some interpreters start none while they exit. It ends before a fork, and starts again in
    the parent.
    """

    def __init__(self) -> None:
        # Events made before gevent patches would have the waiting greenlet stop all others.
        self._watch: Lazy[_Watch] = Lazy(_Watch)
        self._is_wanted = False

    def start(self) -> None:
        """There is something to save at the exit."""
        self._is_wanted = True
        self._watch.get().start()

    def save(self) -> None:
        """Save all caches, once, and for so long."""
        watch = next((each for each in self._watch.all() if each.thread is not None and not each.called_off), None)
        if watch is None:
            _save_all()
        else:
            watch.asked.set()
            watch.done.wait(AT_EXIT + 1)

    def pause(self) -> None:
        for watch in self._watch.all():
            if watch.thread is not None and (watch.called_off or not watch.asked.is_set):
                watch.called_off = True
                watch.asked.set()
                wait_for_end(watch.thread)

    def resume(self) -> None:
        if any(watch.called_off for watch in self._watch.all()):
            self._watch.forget()
        if self._is_wanted:
            self.start()

    def after_fork_in_child(self) -> None:
        self._watch.forget()
        self._is_wanted = False


def exit_on_sigterm() -> None:
    """Where SIGTERM would kill the process at once, have it exit instead, which saves. For the main thread.

    An exit waits for threads, and may be caught. If the process is still there after 10 seconds, it saves and ends.
    """
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    # A second one, such as a process gets that is told together with its parent, is not to end the saving.
    signal.signal(number, signal.SIG_IGN)
    with suppress(RuntimeError):
        threading.Thread(target=_end, args=(128 + number,), name="wheelcache-end", daemon=True).start()
    sys.exit(128 + number)


def _end(status: int) -> None:
    time.sleep(AT_EXIT)
    _exit_saver.save()
    os._exit(status)


def _save_all() -> None:
    deadline = SystemClock.steady() + AT_EXIT
    for keeper in _keepers:
        left = deadline - SystemClock.steady()
        if keeper._target.is_in_use() and left > 0:
            keeper.save(left)


_exit_saver: Final = _ExitSaver()
lifecycle.EXIT_SAVER.add(_exit_saver)
lifecycle.SAVE.add(_exit_saver.save)
