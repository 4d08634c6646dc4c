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
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.machine_clock import moment
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.held_file import HeldFile
from wheelcache.runtime.private_files import NEEDS_UNIX, FileLocked, locked_file, make_private, pause, runtime_directory

logger = logging.getLogger("wheelcache")

EPOCH, BOOT = range(2)
"""The words: the epoch of the file in use, and a number that stands for the boot of the machine."""

SUFFIXES: Final = ("", "-wal")
"""The files of an epoch that take room."""

SIZE: Final = 64
"""Bytes of the file of words."""

PATIENCE: Final = 0.5
"""Seconds to wait for another process, which needs some 20 us for a write and 0.4 ms for a new file."""

REMOTE: Final = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "ceph", "glusterfs", "lustre", "afs", "9p", "fuse.sshfs")
"""The file systems on which several machines would share a file without sharing its locks or its memory."""

TEST_PREFIX: Final = "host-test-"

MINUTE: Final = 60

BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def folder_of(location: str, identity: str, *, is_test: bool = False) -> Path:
    """Return the folder of a cache.

    Args:
        location: the folder, if it is an absolute path. Otherwise, the folder is in the runtime directory, which is
            private to the user and in shared memory.
        identity: distinguishes the caches of the user there.
        is_test: whether this process runs tests. It then has a folder of its own in the runtime directory, which is
            removed at its end, or by a later test process if it is killed.
    """
    if is_test:
        return _test_folder(f"{location} {identity}")
    if os.path.isabs(location):
        return Path(location)
    return runtime_directory() / f"host-{hashlib.sha256(identity.encode(errors='surrogatepass')).hexdigest()[:24]}"


def is_test_process(*, is_testing: bool) -> bool:
    """Return whether this process runs tests: the framework says so, or it is a worker of pytest-xdist."""
    return is_testing or "PYTEST_XDIST_WORKER" in os.environ


_test_folders: Final[dict[str, tuple[Path, HeldFile]]] = {}
"""The folders of this test process, with files that are locked while it lives. A child of a fork shares them."""


def _test_folder(identity: str) -> Path:
    if identity not in _test_folders:
        parent = runtime_directory()
        for old in parent.glob(f"{TEST_PREFIX}*"):
            # Not a new one, which is not locked yet.
            if SystemClock.time() - old.stat().st_mtime > MINUTE and HeldFile().hold(old / "alive"):
                shutil.rmtree(old, ignore_errors=True)
        folder, held = Path(tempfile.mkdtemp(prefix=TEST_PREFIX, dir=parent)), HeldFile()
        held.hold(folder / "alive")
        _test_folders[identity] = folder, held
    return _test_folders[identity][0]


def _remove_test_folders() -> None:
    for folder, held in _test_folders.values():
        # Not in a child of a fork.
        if held.is_at(folder / "alive"):
            shutil.rmtree(folder, ignore_errors=True)


lifecycle.STOP_TRACKING.add(_remove_test_folders)


class Place:
    """The folder of one cache, as one process uses it.

    Args:
        folder: the folder. Its parent must exist.

    Raises:
        FileUnusable: if other users can access the folder, or if it is on a network file system.
    """

    def __init__(self, folder: Path) -> None:
        if sys.platform == "win32":
            raise FileUnusable(f"a HostCache {NEEDS_UNIX}")
        self.folder = folder
        self._open()

    def _open(self) -> None:
        make_private(self.folder)
        kind = file_system_of(self.folder)
        if kind in REMOTE:
            raise FileUnusable(f"{self.folder} is on a network file system ({kind}), which has no shared memory")
        with locked_file(self.folder / "words", PATIENCE) as file:
            if os.fstat(file).st_size != SIZE:
                # Written and not only resized: a write to a hole in a full file system would kill the process.
                os.pwrite(file, bytes(SIZE), 0)
            found = os.fstat(file)
            self._identity = found.st_dev, found.st_ino
            self._map = mmap.mmap(file, SIZE)
            self.words = memoryview(self._map).cast("q")
            boot = _boot()
            if self.words[BOOT] != boot:
                # The file was not closed: rows that were not yet on the disk are damaged.
                self.words[BOOT], self.words[EPOCH] = boot, 0
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

    def is_gone(self) -> bool:
        """Return whether the folder was removed or replaced, so that new processes use another one."""
        try:
            found = os.stat(self.folder / "words")
        except OSError:
            return True
        return (found.st_dev, found.st_ino) != self._identity

    def room(self, epoch: int) -> int:
        """Return the bytes that the file system has for the file of ``epoch``, including those that it already has."""
        found = os.statvfs(self.folder)
        room = found.f_bavail * found.f_frsize
        for suffix in SUFFIXES:
            with suppress(OSError):
                room += os.stat(f"{self.path(epoch)}{suffix}").st_blocks * 512
        return room

    def replace(self, epoch: int, create: Callable[[Path], object]) -> int:
        """Let all processes go on with a new file, unless the one in use is no longer that of ``epoch``. Return the
        epoch of the file in use; 0 if none can be created now.

        Args:
            create: creates an empty file at a path.
        """
        until = SystemClock.steady() + PATIENCE
        while self.words[EPOCH] == epoch:
            try:
                with locked_file(self.folder / "words", 0.0):
                    if self.words[EPOCH] == epoch:
                        # From here on, no process finds an old entry, also if the next steps fail.
                        self.words[EPOCH] = 0
                        self._remove_others()
                        new = moment()
                        create(self.path(new))
                        self.words[EPOCH] = new
                        break
            except FileLocked as error:
                if SystemClock.steady() < until:
                    # Another process creates a file, which takes 0.4 ms.
                    pause()
                    continue
                # That process was stopped.
                self.words[EPOCH] = 0
                logger.warning("The host cache in %s has no file now: %s.", self.folder, error)
                break
        return self.words[EPOCH]


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
