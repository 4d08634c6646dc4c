"""The folder of a host cache, and the words that its processes share: see ``host_cache``.

The folder contains ``words``, a mapped file, ``claims``, a file of locks, and ``<epoch>.sqlite3``, the file in use. The
epoch is the moment at which the file was created. A process that finds another epoch in the words opens that file.
Epoch 0 means that there is no file, for example because the file system is full: the cache is then empty.

After a restart of the machine, a cache on a disk begins empty, also if it was closed cleanly: its moments and the ends
of its entries count from the boot, and rows that were not yet on the disk are damaged.
"""

from __future__ import annotations

import hashlib
import logging
import mmap
import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from glob import escape
from pathlib import Path
from shutil import rmtree
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.host_cache.statements import FORMAT
from wheelcache.runtime.clock import SystemClock, moment
from wheelcache.runtime.private_files import (
    NEEDS_UNIX,
    FileLocked,
    check_private,
    locked_file,
    make_private,
    pause,
    runtime_directory,
    shared_memory,
)

logger = logging.getLogger("wheelcache")

EPOCH, BOOT, LAST, COVERED = range(4)
"""The words: the epoch of the file in use; a number that stands for the boot of the machine and for the tables; the
epoch of the last file, also while there is none; and the moment at which the newest commit of a transaction ends, or
is given up."""

SIZE: Final = 64
"""Bytes of the file of words."""

PATIENCE: Final = 0.5
"""Seconds to wait for another process, which needs some 20 us for a write and 1 ms for a new file."""

REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "afs", "9p", "fuse.sshfs")
"""The file systems on which several machines would share a file without sharing its locks or its memory."""

WRITE_LOCK: Final = 120
"""The byte of the file "-shm" that a writer locks: see "WAL-mode File Format" in the documentation of SQLite."""

OLDEST_SQLITE: Final = (3, 32)
"""The first one with ``iif``. RHEL 8 has an older one."""

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def folder_of(location: str, identity: str, tests: str = "") -> Path:
    """Return the folder of a cache.

    Args:
        location: the folder, if it is an absolute path. Otherwise, the folder is in the runtime directory, which is
            private to the user and in shared memory.
        identity: distinguishes the caches of the user there.
        tests: see ``test_process``.
    """
    if os.path.isabs(location):
        folder = Path(location)
    else:
        name = hashlib.sha256(identity.encode(errors="surrogatepass")).hexdigest()[:24]
        folder = runtime_directory() / f"host-{name}"
    if not tests:
        return folder
    # Another folder of the site may have a similar name.
    for words in folder.parent.glob(f"{escape(folder.name)}-tests-[0-9]*-[0-9]*/words"):
        process = words.parent.name.rpartition("-")[2]
        if process.isdecimal() and not _is_running(int(process)):
            rmtree(words.parent, ignore_errors=True)
    return folder.with_name(f"{folder.name}-tests-{tests}")


def test_process(*, is_testing: bool, number: int) -> str:
    """Return the name of this process among those that run tests in parallel; empty outside of tests. Each of them has
    entries of its own, until another process runs tests of the site after its end.

    Args:
        number: distinguishes apps in one process.
    """
    return f"{number}-{os.getpid()}" if is_testing or os.environ.get("PYTEST_XDIST_WORKER") else ""


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def check_location(location: str, max_bytes: int) -> None:
    """Check at start-up that a cache can be at a LOCATION, and log a warning if it has not enough room there.

    Creates nothing: a server may load the site before it changes to the user of its workers.

    Raises:
        FileUnusable: as in ``check_folder``, on Windows, with an older SQLite, and if other users can access the
            folder.
    """
    if sys.platform == "win32":
        raise FileUnusable(f"a HostCache {NEEDS_UNIX}")
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        oldest = ".".join(map(str, OLDEST_SQLITE))
        raise FileUnusable(f"a HostCache needs SQLite {oldest} or later, not {sqlite3.sqlite_version}")
    folder = Path(location) if os.path.isabs(location) else shared_memory()
    check_folder(folder)
    with suppress(FileNotFoundError):
        # A server may load the site as another user than that of its workers.
        if folder.lstat().st_uid == os.geteuid():
            check_private(folder, is_directory=True)
    found = os.statvfs(folder.parent)
    room = found.f_blocks * found.f_frsize
    if max_bytes > _for_entries(room):
        logger.warning(
            "The host cache may have %d MiB (MAX_SIZE), but the file system of %s has %d MiB in all: it will evict "
            "entries before that is full. Lower MAX_SIZE, or give the file system more room.",
            *(max_bytes >> 20, folder, room >> 20),
        )


def check_folder(folder: Path) -> None:
    """Check that a folder can be created, and that the processes that use it have memory in common there.

    Raises:
        FileUnusable: if not. The message contains the cause.
    """
    if not folder.parent.is_dir():
        raise FileUnusable(f"{folder} cannot be created, since {folder.parent} is no folder")
    kind = file_system_of(folder)
    if kind in REMOTE:
        raise FileUnusable(f"{folder} is on a network file system ({kind}), which has no shared memory")


class Place:
    """The folder of one cache, as one process uses it.

    Args:
        folder: the folder. Its parent must exist.

    Raises:
        FileUnusable: if other users can access the folder, and as in ``check_folder``.
    """

    def __init__(self, folder: Path) -> None:
        check_folder(folder)
        self.folder = folder
        self._open()

    def _open(self) -> None:
        make_private(self.folder)
        with locked_file(self.folder / "words", PATIENCE) as file:
            if os.fstat(file).st_size != SIZE:
                # Written and not only resized: a write to a hole in a full file system would kill the process.
                os.pwrite(file, bytes(SIZE), 0)
            found = os.fstat(file)
            self._identity = found.st_dev, found.st_ino
            self._map = mmap.mmap(file, SIZE)
            self.words = memoryview(self._map).cast("q")
            boot = _boot() ^ FORMAT
            if self.words[BOOT] != boot:
                # Rows that were not yet on the disk are damaged, or another release has made the tables.
                self.words[BOOT], self.words[EPOCH], self.words[LAST], self.words[COVERED] = boot, 0, 0, 0
            self._remove_others()

    def _remove_others(self) -> None:
        """Remove the files of other epochs. The words are locked."""
        for path in self.folder.glob("*.sqlite3*"):
            if not path.name.startswith(f"{self.words[EPOCH]}."):
                with suppress(OSError):
                    path.unlink()

    def path(self, epoch: int) -> Path:
        return self.folder / f"{epoch}.sqlite3"

    @property
    def claims(self) -> Path:
        return self.folder / "claims"

    def most_bytes(self, epoch: int) -> int:
        """Return the bytes of entries for which the file system has room in the file of ``epoch``, which includes the
        room that the file has already."""
        found = os.statvfs(self.folder)
        room = found.f_bavail * found.f_frsize
        for suffix in ("", "-wal"):
            with suppress(OSError):
                room += os.stat(f"{self.path(epoch)}{suffix}").st_blocks * 512
        return _for_entries(room)

    def is_gone(self) -> bool:
        """Return whether the folder was removed or replaced, so that new processes use another one."""
        try:
            found = os.stat(self.folder / "words")
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def is_writer_stopped(self, epoch: int) -> bool:
        """Return whether the process that writes to the file of ``epoch`` is stopped; False if that is not known."""
        with suppress(OSError, ValueError, IndexError):
            # The file itself must not be opened: closing it would release the locks of this process.
            index = os.stat(f"{self.path(epoch)}-shm").st_ino
            for line in Path("/proc/locks").read_text().splitlines():
                # For example "7: POSIX ADVISORY WRITE 4711 00:1b:2646916 120 120".
                words = line.split()
                if words[5:7] == [f"{words[5].rpartition(':')[0]}:{index}", str(WRITE_LOCK)]:
                    return Path(f"/proc/{words[4]}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
        return False

    def replace(self, epoch: int, create: Callable[[Path, Path | None], AbstractContextManager[object]]) -> int:
        """Let all processes go on with a new file, unless the one in use is no longer that of ``epoch``. Return the
        epoch of the file in use.

        Args:
            create: creates an empty file at a path, and receives the path of the last file, if there was one. It may be
                gone, if a process was killed here. Processes begin to use the file within its context.

        Raises:
            FileUnusable, OSError, sqlite3.Error: if none can be created now. The cache is then empty.
        """
        until = SystemClock.steady() + PATIENCE
        # Read once: a moment later, a third process may be creating another one.
        while (found := self.words[EPOCH]) == epoch:
            try:
                with locked_file(self.folder / "words", 0.0):
                    if self.words[EPOCH] == epoch:
                        # From here on, no process finds an old entry, also if the next steps fail.
                        self.words[EPOCH] = 0
                        self._create(create)
            except FileUnusable as error:
                if isinstance(error, FileLocked) and SystemClock.steady() < until:
                    # Another process creates a file, which takes 1 ms.
                    pause()
                    continue
                # That process was stopped, or this one has no descriptors left.
                self.words[EPOCH] = 0
                raise
        return found

    def _create(self, create: Callable[[Path, Path | None], AbstractContextManager[object]]) -> None:
        """Let all processes go on with a new file. The words are locked."""
        try:
            new, last = moment(), self.words[LAST]
            with create(self.path(new), self.path(last) if last else None):
                self.words[LAST] = self.words[EPOCH] = new
        except BaseException:
            self.words[EPOCH] = 0
            raise
        finally:
            self._remove_others()


def _for_entries(room: int) -> int:
    """Return the bytes of entries for which there is room. The log and the indexes need the rest."""
    return room * 3 // 4


def file_system_of(path: Path) -> str:
    """Return the type of the file system of ``path``; an empty string if it is not known."""
    try:
        lines = Path("/proc/self/mounts").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    path = path.resolve()
    mounts = [line.split(" ")[1:3] for line in lines]
    # Spaces in the names are written as "\040".
    found = [(point, kind) for point, kind in mounts if path.is_relative_to(point.replace("\\040", " "))]
    return max(found, key=lambda mount: len(mount[0]), default=("", ""))[1]


def _boot() -> int:
    """Return a number that stands for the boot of the machine; 1 if the system does not name its boots."""
    try:
        return int(BOOT_ID.read_text().replace("-", ""), 16) & (2**63 - 1) or 1
    except (OSError, ValueError):
        return 1
