"""Stamps in a shared file: the processes of one machine see each other's writes, without any server.

All processes map the same small file, a table with one stamp for each slot. The hash of a key selects its slot. A write
puts a fresh stamp, unlike any before it, into the slot of its key. An entry remembers the stamp that it was filled
under, and is current as long as the slot still shows this stamp. The check costs one read of shared memory and one
comparison.

A fill after a miss is quiet: it writes no stamp. The value is kept under the stamp that the slot showed at the miss. If
the slot shows another stamp when the value is set, another process wrote the key in the meantime and the value may be
outdated, so it is dropped. This is the lease of "Scaling Memcache at Facebook" (NSDI 2013), without a server: readers
never invalidate each other, and a slow computation never brings back a deleted value.

A write counts as a fill if it is the first ``set`` or ``add`` of a key within ``FILL_WINDOW`` (10 seconds) of a miss of
the key by the same thread or task, in the same request. So code that changes the source of a value after a miss, and
then sets the key, should delete the key instead. Any later ``set`` invalidates: other processes see it, and it is kept
even if they wrote the key since the miss, because a process without requests may have missed the key at its start. So
a ``get``, a computation of more than 10 seconds and a ``set`` can restore a value that was overwritten during the
computation. Loads, such as those of ``memoize``, are always quiet and never do that, however long they take. The pages
that Django caches are also fills at any time: see ``Misses.fill``.

A ``touch`` stamps an existing value, which another process may overwrite at the same moment. The stamp of the touch
must not make the old value look current. So each slot has a second word, the invalidation word, which only writes that
invalidate change, and before the stamp. A touch writes its stamp, and uses it only if the invalidation word is still
the one that its value was filled under. ``incr`` has no such protection: of two processes that count at the same
moment, each counts on its own.

**Memory order.** A processor may let a later load pass an earlier store, and many let any access pass any other. Four
orders are needed, and both cores keep them:

1. A write changes the invalidation word first, then the stamp (store before store). A reader reads them in the same
   order (load before load). So a reader that finds the new stamp finds the new invalidation word, or a newer one.
2. A touch writes its stamp, then reads the invalidation word (store before load). This is the one order that even x86
   does not keep, so a full barrier stands between the two. Without it, this could happen: the touch reads the old
   invalidation word, another process writes both words, and the stamp of the touch reaches memory last. Then the old
   value would look current. With the barrier, the stamp of the touch is in memory before the invalidation word is read.
   If the word was written before the read, the touch finds it and gives up. If it is written later, its stamp
   overwrites the stamp of the touch.
3. A fill reads the stamp before its value is computed and once more when it is stored (load before load).
4. A clear changes the invalidation words of all slots first, then their stamps. So a process that finds the new stamp
   of one key finds the new invalidation words of all others: ``Misses.fill`` compares those of another key.

The compiled core uses ``__ATOMIC_SEQ_CST`` for every word, and ``__atomic_thread_fence(__ATOMIC_SEQ_CST)`` in a touch:
on ARM, a sequentially consistent store alone is no full barrier. In the Python core, the interpreter's own locks order
stores and loads of different words, and ``core.stamp_words.new_fence`` is the full barrier.

Two keys may share a slot. A write of one of them causes a needless miss of the other, but never a wrong value. If ``w``
writes per second go to random keys, each of ``n`` slots is written ``w / n`` times per second, so an entry that is read
again after ``t`` seconds was lost to a write of another key with a probability of ``1 - exp(-w * t / n)``. With 65,536
slots, 100 writes per second and entries that are read every 10 seconds, that is 1.5%.

Stamps are unique without a common counter of writes: 24 bits are the number of the process, from a counter in the
file's header that is raised under a lock of the file, and 40 bits count the writes of that process. A stamp is written
and read as one aligned word. If a machine should tear it, it differs from every other stamp and causes a miss.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import mmap
import os
import struct
import sys
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sys import byteorder
from typing import Any, Final, Protocol
from zlib import crc32

from wheelcache.coherence.commits import PLACES, Commit, begin_commit, is_committing
from wheelcache.core import contract
from wheelcache.errors import FileUnusable
from wheelcache.machine_clock import moment
from wheelcache.runtime.private_files import NEEDS_UNIX, locked_file, runtime_directory

logger = logging.getLogger("wheelcache")

SLOTS: Final = 65_536
"""Each slot has four words of 8 bytes, so the file takes 2 MiB, and 128 KiB for the marks of commits."""

ALL_WRITES: Final = 0
"""The place of the moment of the last write of everything."""

MAGIC: Final = b"wheelcache stamps 4"
HEADER: Final = struct.Struct("<24sQQ")
"""The magic, the number of slots, and the number of processes that have opened the file."""

HEADER_BYTES: Final = 64
MARKS_BYTES: Final = PLACES * contract.COMMIT_LANES
PROCESS_BITS: Final = 24
WRITE_BITS: Final = 40
WORD: Final = 8


class Stamps(contract.Stamps, Protocol):
    """The stamps that a cache can use: ``SharedStamps`` of this module, or ``TrustEpoch`` of ``near_cache``.

    Attributes:
        is_notified: whether this process is notified of writes. A value that is stored while this is False is never
            current.
        is_in_file: whether the stamps are in a file, which may be removed.
        identity: equal for two objects whose stamps are the same.
        writes: the moments of the last writes: see ``write_moments``. None if no other process records them.
    """

    @property
    def identity(self) -> Hashable: ...
    @property
    def writes(self) -> memoryview | None: ...
    @property
    def is_notified(self) -> bool: ...
    @property
    def is_in_file(self) -> bool: ...

    def open(self) -> None: ...
    def open_in_child(self) -> None: ...
    def is_gone(self) -> bool: ...
    def slot(self, key: object) -> int: ...
    def begin_commit(self, slots: Iterable[int] | None) -> Commit | None: ...
    def is_committing(self, slot: int) -> bool: ...
    def restamp(self, slot: int) -> None: ...


class SharedStamps:
    """The stamps that all processes of one user on this machine share under one name.

    Args:
        name: processes that give the same name share their stamps.
        directory: the directory of the file; by default a private directory of the user. See ``private_files``.
        slots: the number of stamps.

    Attributes:
        table: the stamps, by slot.
        invalidations: by slot, the stamp of the last write that invalidated.
        tags: by slot, the moment at which its tags were last dropped; initially the moment of the file's creation.
        writes: by slot, the moment of the last write: see ``write_moments``; initially that of the file's creation.
        commits: the marks of the commits in progress: see ``commits``.
        first: the first of 2**39 stamps that the core of one cache may write.
        is_notified: True, since every write changes the shared file.
        identity: the device and the number of the file.

    Raises:
        FileUnusable: if another user can access the file or its directory, or the file does not contain stamps.
    """

    table: memoryview
    invalidations: memoryview
    tags: memoryview
    writes: memoryview
    commits: memoryview
    first: int
    identity: tuple[int, int]
    is_notified: Final = True
    is_in_file: Final = True

    def __init__(self, name: str, directory: Path | None = None, slots: int = SLOTS) -> None:
        if sys.platform == "win32":
            raise FileUnusable(f"sharing stamps between processes {NEEDS_UNIX}")
        self._slots = slots
        self._path = stamps_path(name, directory, slots)
        self._is_in_ours = directory is None
        self._user = os.geteuid()
        self.open()

    def open(self) -> None:
        """Map the file under a new process number, at first and after a fork. Create the file unless it exists."""
        if self._may_move():
            # The directory may have been removed, as systemd does when the user logs out. Then it is created again, or
            # another directory is, if another user has taken its name in the meantime.
            self._path = runtime_directory() / self._path.name
        while (found := self._map_file()) is None:
            # Another process found no room on the disk and removed the file while this one waited for its lock.
            pass
        mapped, identity = found
        words, marks = memoryview(mapped)[HEADER_BYTES:-MARKS_BYTES].cast("Q"), memoryview(mapped)[-MARKS_BYTES:]
        # No Python code runs between the assignments, so an exception cannot leave the words of two files.
        slots = self._slots
        self.table, self.invalidations = words[:slots], words[slots : 2 * slots]
        self.tags, self.writes, self.commits = words[2 * slots : 3 * slots], words[3 * slots :], marks
        self.identity = identity

    def _map_file(self) -> tuple[mmap.mmap, tuple[int, int]] | None:
        """Map the file. Return the map and the identity of the file; None if the file was removed in the meantime."""
        size = HEADER_BYTES + 4 * self._slots * WORD + MARKS_BYTES
        with locked_file(self._path) as file, _or_unusable(self._path):
            found = os.fstat(file)
            if found.st_nlink == 0:
                return None
            is_new = found.st_size < size
            try:
                self._take_number(file, is_empty=found.st_size == 0)
                if is_new:
                    # Written instead of extended with ftruncate: on a full disk, the kernel would send a signal at some
                    # later write. Not zeros: entries that a child of a fork inherited, filled under the stamps of
                    # another file, must not look current.
                    stamp = next(self._next)
                    content = 2 * self._words(stamp) + 2 * self._words(moment()) + bytes(MARKS_BYTES)
                    _write(file, content, HEADER_BYTES)
            except OSError:
                if is_new:
                    # The incomplete file would keep the disk full.
                    self._path.unlink(missing_ok=True)
                raise
            return mmap.mmap(file, size), _identity(found)

    def _take_number(self, file: int, *, is_empty: bool) -> None:
        """Give this process a number of its own, from the counter in the header."""
        if is_empty:
            # The header comes before the rest: if this process is killed in between, the next one completes the file.
            # The counter starts at a random number, so that no stamp of an earlier file is used again.
            os.pwrite(file, HEADER.pack(MAGIC, self._slots, int.from_bytes(os.urandom(3))), 0)
        header = os.pread(file, HEADER.size, 0)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise FileUnusable(f"{self._path} is not a file of stamps of this version of wheelcache; remove it")
        _, slots, processes = HEADER.unpack(header)
        if slots != self._slots:
            raise FileUnusable(f"{self._path} has {slots} slots instead of {self._slots}; remove it")
        os.pwrite(file, HEADER.pack(MAGIC, slots, processes + 1), 0)
        self._reserve((processes + 1) % (1 << PROCESS_BITS))

    def _reserve(self, process: int) -> None:
        """Reserve half of the stamps of ``process`` for the core, and the other half for new files and ``restamp``."""
        self.first = (process << WRITE_BITS) + 1
        self._next = itertools.count(self.first + (1 << WRITE_BITS - 1))

    def _may_move(self) -> bool:
        """Return whether the file follows the runtime directory of this process, which may change."""
        # It does not if this server opened the file as root, and has become another user since.
        return self._is_in_ours and os.geteuid() == self._user

    def open_in_child(self) -> None:
        """Open the file in the child of a fork. If that fails, the child uses the parent's map with random stamps."""
        try:
            self.open()
        except (FileUnusable, OSError):
            logger.exception("The child of a fork cannot open the stamps of a cache; it uses those of its parent.")
            self._reserve(int.from_bytes(os.urandom(PROCESS_BITS // 8)))

    def is_gone(self) -> bool:
        """Return whether the file was removed or replaced, so that new processes use another one. This takes 10 us."""
        with suppress(FileUnusable):
            if self._may_move() and runtime_directory() != self._path.parent:
                return True
        try:
            return _identity(os.stat(self._path)) != self.identity
        except FileNotFoundError:
            return True
        except OSError:
            # Inaccessible: this server opened the file as root, and has become another user since. The map still works.
            return False

    def slot(self, key: object) -> int:
        """Return the slot of ``key``, computed from its text, since ``hash`` differs between processes.

        Raises:
            TypeError: if ``key`` is not a string, number, bytes, None or a tuple of these. The processes would compute
                different slots.
        """
        text = key if isinstance(key, str) else repr(canonical(key))
        return crc32(text.encode("utf-8", "surrogatepass")) % self._slots

    def restamp(self, slot: int) -> None:
        """Put a fresh stamp into a slot, without invalidating: entries are no longer current, but fills in progress
        are not outdated."""
        self.table[slot] = next(self._next)

    def begin_commit(self, slots: Iterable[int] | None) -> Commit | None:
        """Let no process keep fills of keys, or with tags, of these slots until the end of a commit. See
        ``commits.begin_commit``."""
        return begin_commit(self._path, self.commits, slots)

    def is_committing(self, slot: int) -> bool:
        """Return whether a commit that may have invalidated names of ``slot`` is in progress. Unlike a core, this
        finds out that the process of a commit was killed."""
        return is_committing(self._path, self.commits, slot, self._outdate_each)

    def _outdate_each(self, first: int, distance: int) -> None:
        """Put fresh stamps into the slot ``first`` and all later ones in this distance, and drop their tags."""
        now, stamp = moment(), next(self._next)
        for slot in range(first, self._slots, distance):
            self.invalidations[slot] = self.table[slot] = stamp
            self.tags[slot] = max(now, self.tags[slot] + 1)

    def _words(self, word: int) -> bytes:
        return word.to_bytes(WORD, byteorder) * self._slots


def place_of_writes(slot: int, places: int) -> int:
    """Return the place of the moment of the last write of the names with this slot, among so many ``places``."""
    return 1 + slot % (places - 1)


def stamps_path(name: str, directory: Path | None = None, slots: int = SLOTS) -> Path:
    """Return the path of the file of ``SharedStamps`` with the same arguments."""
    folder = runtime_directory() if directory is None else directory
    return folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}-{slots}-4.stamps"


def canonical(key: Any) -> Any:
    """Return ``key`` in a form that has the same ``repr`` for equal keys, such as 1, 1.0 and True."""
    kind = type(key)
    if kind is tuple:
        return tuple(map(canonical, key))
    if kind is bool or (kind is float and key.is_integer()):
        return int(key)
    if kind not in (str, int, float, bytes, type(None)):
        allowed = "strings, ints, floats, bytes, None and tuples of these"
        raise TypeError(f"the keys of a coherent cache are {allowed}, not {kind.__qualname__} as {key!r}")
    return key


def _write(file: int, data: bytes, offset: int) -> None:
    while data:
        written = os.pwrite(file, data, offset)
        data, offset = data[written:], offset + written


@contextmanager
def _or_unusable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileUnusable(f"{path} cannot be created: {error}") from error


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
