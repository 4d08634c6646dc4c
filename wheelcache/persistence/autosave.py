"""Keeps the entries of a cache on disk, from one process to the next: each process saves its own in one directory.

A process has a number there (see ``worker_number``), and thus a file for each cache, which it replaces every few
minutes and when it exits. The number of an ended process is free for the next one, so there are never more files than
processes at one time. A new process loads the newest readable snapshot; no process waits for another.
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
from typing import Final

from wheelcache.errors import CacheClosed, FileUnusable, SnapshotRefused, UnknownFormat, Unloaded
from wheelcache.persistence.snapshot_directory import made_and_opened, make_and_check, opened
from wheelcache.persistence.snapshot_file import refuse
from wheelcache.persistence.snapshots import Snapshots
from wheelcache.persistence.worker_number import WorkerNumber
from wheelcache.runtime.exit_save import exit_save
from wheelcache.runtime.shared_objects import acquiring, lazy_lock
from wheelcache.runtime.worker_pool import refresh_pool

logger = logging.getLogger("wheelcache")

SUFFIX: Final = ".snapshot"
NAME_LENGTH: Final = 40


class Autosave:
    """Loads a cache when it is first used, and saves it periodically and at the exit. A job of ``periodic_jobs``.

    Args:
        directory: the directory. It is made with mode 0700 if it does not exist.
        period: seconds between two saves.
        secret: signs the files; None for no signature.
        target: the cache.

    Attributes:
        period, directory, secret: as given.

    Raises:
        FileUnusable: the directory is not this user's, others may use it, or they may put another in its place. If that
            happens later, nothing is loaded or saved, which is logged.
    """

    __slots__ = ("__weakref__", "_failing", "_lock", "_number", "_target", "directory", "period", "secret")

    matters: Final = 1

    def __init__(self, directory: Path, period: float, secret: bytes | None, target: Snapshots) -> None:
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
        """Load the newest readable snapshot; of a damaged one, the records before the damage, and then the next one."""
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
                    # Another process is replacing it.
                    continue
                except UnknownFormat as error:
                    ignored = ignored or error
                except SnapshotRefused as error:
                    refuse(f"the cache {self._target.name!r}", path, error, directory)
                except (CacheClosed, Unloaded):
                    return
                except Exception:
                    # The first caller that needs the cache is not responsible for this.
                    logger.exception("The cache %r cannot be loaded from %s.", self._target.name, path)
                else:
                    return
        finally:
            if ignored is not None:
                # Each process of the other version has left one: log one line for all of them.
                logger.warning("The cache %r ignores what another version left: %s.", self._target.name, ignored)

    def snapshots(self) -> list[Path]:
        """Return the files of this cache, newest first."""
        return [self.directory / name for name in _newest_first(self.directory, self._target.name)]

    def save(self, seconds: float | None = None) -> bool:
        """Save the cache in at most so many seconds. Return whether that succeeded; if not, the reason is logged."""
        lock = self._lock.get()
        (acquired,) = acquiring(lock, seconds)
        if not acquired:
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
            # Of any kind, since the pool and the exit that call this report no exception.
            if not self._failing:
                # Without the exception: log records that are kept would keep the objects in its frames.
                logger.warning("The cache %r cannot be saved: %s", self._target.name, str(error))
            self._failing = True
            return False
        else:
            self._failing = False
            return True
        finally:
            lock.release()
            if not self._target.is_in_use():
                # The cache was closed during the save.
                self._number.release()

    def begin(self) -> None:
        """Prepare the save at the exit; there is nothing to save yet."""
        exit_save.start()

    def run(self) -> None:
        """Submit a save to the pool."""
        if not self._lock.get().locked():
            # Otherwise the last save is in progress, and waiting for it would keep a thread from refreshes.
            self._submit(self.save, "saved")

    def run_load(self) -> None:
        """Submit a load of the newest snapshot to the pool. Existing entries stay."""
        self._submit(self.load, "loaded")

    def _submit(self, job: Callable[[], object], done: str) -> None:
        try:
            taken = refresh_pool.submit(job)
        except RuntimeError:
            taken = False
        if not taken and not self._failing:
            self._failing = True
            logger.warning("The cache %r is not %s: there is no thread for it.", self._target.name, done)

    def close(self) -> None:
        """End the saves. The files stay."""
        if not self._lock.get().locked():
            self._number.release()

    def start_over(self) -> None:
        """Give the child of a fork a number of its own."""
        self._lock = lazy_lock()
        self._failing = False
        self._number.release()


def _newest_first(directory: Path | int, name: str) -> list[str]:
    """Return the names of the snapshots of the cache ``name``."""
    found = []
    now = time.time_ns()
    start = f"{stem_of(name)}."
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(start) and entry.name.endswith(SUFFIX):
                with suppress(OSError):
                    saved_at = entry.stat(follow_symlinks=False).st_mtime_ns
                    # Otherwise, a file dated in the future by a wrong clock would remain the newest for years, and its
                    # entries would be as young at each start as when they were saved.
                    found.append((saved_at <= now, saved_at, entry.name))
    return [name for *_, name in sorted(found, reverse=True)]


def stem_of(name: str) -> str:
    """Return a file name for the name of a cache: its readable part, and a hash that makes it unique."""
    readable = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:NAME_LENGTH]
    return f"{readable}-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"
