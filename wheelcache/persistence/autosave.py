"""Keeps the entries of a cache on disk for the next process. All processes save their entries in one directory.

Each process has a number in the directory (see ``worker_number``), and thus its own file for each cache, which it
replaces periodically and when it exits. The number of an ended process is free for the next one, so there are never
more files than there were processes at one time. A new process loads the newest readable snapshot. No process waits for
another.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from wheelcache.errors import CacheClosed, FileUnusable, SnapshotRefused, UnknownFormat, Unloaded
from wheelcache.persistence.snapshot_directory import made_and_opened, opened
from wheelcache.persistence.snapshot_file import refuse
from wheelcache.persistence.snapshots import Snapshots
from wheelcache.persistence.worker_number import WorkerNumber
from wheelcache.runtime.exit_save import exit_save
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.shared_objects import acquiring, lazy_lock
from wheelcache.runtime.worker_pool import refresh_pool

logger = logging.getLogger("wheelcache")

SUFFIX: Final = ".snapshot"
NAME_LENGTH: Final = 40


class Autosave(PeriodicJob):
    """Loads a cache when it is first used, and saves it periodically and at the exit. A job of ``periodic_jobs``.

    Args:
        directory: the directory. It is created with mode 0700 if it does not exist.
        period: seconds between two saves.
        secret: signs the files; None for no signature.
        target: loads and saves the entries of the cache.

    Attributes:
        period, directory, secret: see above.

    Raises:
        FileUnusable: if the directory belongs to another user, or other users can use or replace it. If that happens
            later, the cache is neither loaded nor saved, which is logged.
    """

    def __init__(self, directory: Path, period: float, secret: bytes | None, target: Snapshots) -> None:
        with made_and_opened(directory):
            # Only to check it.
            pass
        self.period = period
        self.directory = directory
        self.secret = secret
        self._target = target
        self._number = WorkerNumber()
        self._failing = False
        self._lock = lazy_lock()
        exit_save.add(self)

    def load(self) -> None:
        """Load the newest readable snapshot. If it is damaged, load its good records, and then the next snapshot."""
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
                    # It was removed since the directory was listed.
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
                logger.warning("The cache %r ignores snapshots of another version: %s.", self._target.name, ignored)

    def snapshots(self, suffix: str = SUFFIX) -> list[Path]:
        """Return the files of this cache, newest first."""
        return [self.directory / name for name in _newest_first(self.directory, self._target.name, suffix)]

    def save(self, seconds: float | None = None) -> Path | None:
        """Save the cache in at most ``seconds``. Return the file; None if it was not saved.

        The first failure in a row is logged.
        """
        lock = self._lock.get()
        (acquired,) = acquiring(lock, seconds)
        if not acquired:
            return None
        try:
            if not self._target.is_in_use():
                return None
            with made_and_opened(self.directory) as directory:
                stem = stem_of(self._target.name)
                path = self.directory / f"{stem}.{self._number.hold(directory, stem)}{SUFFIX}"
                self._target.save(path, secret=self.secret, seconds=seconds, dir_fd=directory)
        except (CacheClosed, Unloaded):
            return None
        except Exception as error:
            # Any exception is logged here, since the pool and the exit, which call this, report none.
            if not self._failing:
                # Log the text only: a stored log record would keep the objects in the frames of the exception alive.
                logger.warning("The cache %r cannot be saved: %s", self._target.name, str(error))
            self._failing = True
            return None
        else:
            self._failing = False
            return path
        finally:
            lock.release()
            if not self._target.is_in_use():
                # The cache was closed during the save.
                self._number.release()

    def begin(self) -> None:
        """Start the thread that saves at the exit. There is nothing to save yet."""
        exit_save.start()

    def run(self) -> None:
        """Submit a save to the pool."""
        if self._lock.get().locked():
            # The last save is still in progress: a job that waits for it would block a thread of the refreshes.
            return
        try:
            submitted = refresh_pool.submit(self.save)
        except RuntimeError:
            submitted = False
        if not submitted and not self._failing:
            self._failing = True
            logger.warning("The cache %r is not saved: there is no thread for it.", self._target.name)

    def close(self) -> None:
        """Release the process's number. The files stay."""
        if not self._lock.get().locked():
            self._number.release()

    def start_over(self) -> None:
        """Give the child of a fork a number of its own."""
        self._lock = lazy_lock()
        self._failing = False
        self._number.release()


def _newest_first(directory: Path | int, name: str, suffix: str = SUFFIX) -> list[str]:
    """Return the names of the snapshots of the cache ``name``."""
    found = []
    now = time.time_ns()
    start = f"{stem_of(name)}."
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.name.startswith(start) and entry.name.endswith(suffix):
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
