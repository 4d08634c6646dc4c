"""Stamps in a file: what tells the processes of one machine that a key was written, without any server.

All of them map the same small file: a table of stamps, one for each slot, and a key has a slot by its hash. A write
puts a fresh stamp, unlike any before it, into the slot of its key. An entry remembers the stamp it was filled under,
and is good for as long as the slot still shows it: one read of shared memory, and one comparison.

Filling after a miss is quiet. The value is kept under the stamp that the slot showed at the miss, and none is written;
if the slot shows another by then, the key was written meanwhile, and the value may be older: it is dropped. This
is the lease of "Scaling Memcache at Facebook" (NSDI 2013), without a server: readers never invalidate each other, and a
slow computation never brings back what was deleted.

What is quiet, exactly: the first ``set`` or ``add`` of a key within ``FILL_WINDOW`` (10 seconds) of a miss of it by the
same thread or task, in the same request. So code that changes the truth after a miss, and then sets the key, should
delete it instead. A later ``set`` is news, and kept, whatever was written since the miss: a process without requests
may have missed the key at its start. So a ``get``, a computation of more than 10 seconds and a ``set`` may bring back
what was written over meanwhile. The loads of ``take`` and ``memoize`` are quiet, and do not, however long they take.

A ``touch`` stamps a value that is there already, which another process may write over at that very moment; its stamp
must not make the old value look current. So each slot has a second word, that only news is written to, and before the
stamp. A touch writes its stamp, and then uses it only if that word is still the one that its value was filled
under. Counting is not so lucky: two processes that ``incr`` at the same moment count apart.

**Which accesses may pass which.** A processor may let a later load pass an earlier store, and many let any access pass
any other. Three orders are needed, and both cores keep them:

1. News is written to the news word first, then to the stamp (store before store). A reader reads them in the same order
   (load before load). So a reader that finds the new stamp finds the new news word, or a newer one.
2. A touch writes its stamp, then reads the news word (store before load). This is the one order that x86 does not keep
   either, so a full barrier stands between the two. Without it, this could happen: the touch reads the old news word,
   another process writes its news and its stamp, and the stamp of the touch reaches memory last. Then the old value
   would look current. With the barrier, the stamp of the touch is in memory before the news word is read. Either the
   news came before that: then the touch finds it and gives up. Or it comes later: then its stamp overwrites that of the
   touch.
3. A fill reads the stamp before its value is computed and once more when it is stored (load before load).

The compiled core uses ``__ATOMIC_SEQ_CST`` for every word, and ``__atomic_thread_fence(__ATOMIC_SEQ_CST)`` in a touch:
on ARM, a sequentially consistent store alone is no full barrier. In the Python core, the interpreter's own locks order
stores and loads of different words, and ``core.stamp_words.new_fence`` is the full barrier.

Two keys may share a slot. Writing one of them makes a needless miss of the other, never a wrong value. If ``w`` writes
a second go to keys at random, each of ``n`` slots is written ``w / n`` times a second, so an entry that is read again
after ``t`` seconds was lost to another key's write with the probability ``1 - exp(-w * t / n)``. With 65,536 slots, 100
writes a second and entries that are read every 10 seconds that is 1.5%.

Stamps are unique without a common count: 24 bits number the processes, by a counter in the file's header
that is raised under a lock of the file, 40 count the writes of one. A stamp is written and read as one aligned word,
and if a machine should tear it, it is unlike every other and costs a miss.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from sys import byteorder
from typing import Any, Final, Protocol
from zlib import crc32

from wheelcache.core import contract
from wheelcache.core.tags import moment
from wheelcache.errors import FileUnusable
from wheelcache.runtime.private_files import NEEDS_UNIX, locked_file, runtime_directory

logger = logging.getLogger("wheelcache")

SLOTS: Final = 65_536
"""1.5 MiB, of three words each."""

MAGIC: Final = b"wheelcache stamps 2"
HEADER: Final = struct.Struct("<24sQQ")
"""The magic, how many slots, and how many processes have opened the file."""

HEADER_BYTES: Final = 64
PROCESS_BITS: Final = 24
WRITE_BITS: Final = 40
WORD: Final = 8


class Stamps(contract.Stamps, Protocol):
    """What a cache needs of its stamps, beside what its core does: ``SharedStamps`` of this module, or a
    ``near_cache.trust_epoch.TrustEpoch``.

    Attributes:
        is_told: this process learns of writes. What is stored while it does not is never current.
    """

    @property
    def is_told(self) -> bool: ...

    def open(self) -> None: ...
    def open_in_child(self) -> None: ...
    def is_gone(self) -> bool: ...
    def slot(self, key: object) -> int: ...


class SharedStamps:
    """The stamps of one name, as this process and all others of the same user on this machine see them.

    Args:
        name: processes that give the same one share their stamps.
        directory: where the file is; a private one of the user's if not given. See ``private_files``.
        slots: how many stamps.

    Attributes:
        table: the stamps, by slot.
        news: by slot, the stamp of the last write that was news.
        tags: by slot, the moment at which its tags were last dropped; at first, that at which the file was made.
        first: the first of 2**39 stamps that the core of one cache may write.
        is_told: this process learns of every write.

    Raises:
        FileUnusable: the file, or its directory, is not ours alone, or is no file of stamps.
    """

    __slots__ = (
        *("_identity", "_is_in_ours", "_next", "_path", "_slots", "_user"),
        *("first", "news", "table", "tags"),
    )

    table: memoryview
    news: memoryview
    tags: memoryview | None
    first: int | None
    is_told: Final = True

    def __init__(self, name: str, directory: Path | None = None, slots: int = SLOTS) -> None:
        if sys.platform == "win32":
            raise FileUnusable(f"sharing stamps between processes {NEEDS_UNIX}")
        folder = runtime_directory() if directory is None else directory
        self._slots = slots
        self._path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:32]}-{slots}-2.stamps"
        self._is_in_ours = directory is None
        self._user = os.geteuid()
        self.open()

    def open(self) -> None:
        """Map the file, made if it isn't there, as a process unlike any before: at first, and after a fork."""
        if self._may_move():
            # Removed with all in it, as systemd does when the user logs out, the directory is made anew; or another one
            # is, if another user has taken its name meanwhile.
            self._path = runtime_directory() / self._path.name
        while (found := self._map_file()) is None:
            # Another process found no room and removed the file, while this one waited for its lock.
            pass
        mapped, identity = found
        words = memoryview(mapped)[HEADER_BYTES:].cast("Q")
        # Without calls: of one file, whatever interrupts this.
        slots = self._slots
        self.table, self.news, self.tags = words[:slots], words[slots : 2 * slots], words[2 * slots :]
        self._identity = identity

    def _map_file(self) -> tuple[mmap.mmap, tuple[int, int]] | None:
        """The file in memory, and its identity; None if it is not the one that other processes find."""
        size = HEADER_BYTES + 3 * self._slots * WORD
        with locked_file(self._path) as file, _or_unusable(self._path):
            found = os.fstat(file)
            if found.st_nlink == 0:
                return None
            is_new = found.st_size < size
            try:
                self._take_number(file, is_empty=found.st_size == 0)
                if is_new:
                    # Written, and not ftruncate: where there is no room the kernel would say so by a signal, at some
                    # later write. And no zeros: entries filled under another file's, inherited by a fork, must not
                    # look current.
                    stamp = next(self._next)
                    _write(file, 2 * self._words(stamp) + self._words(moment()), HEADER_BYTES)
            except OSError:
                if is_new:
                    # What was written would keep the disk full.
                    self._path.unlink(missing_ok=True)
                raise
            return mmap.mmap(file, size), _identity(found)

    def _take_number(self, file: int, *, is_empty: bool) -> None:
        """Give this process a number of its own, by the counter in the header."""
        if is_empty:
            # First the header, then the rest: a process that is killed in between leaves what the next one completes.
            # Numbers from anywhere, so that no stamp of a file that was here before comes again.
            os.pwrite(file, HEADER.pack(MAGIC, self._slots, int.from_bytes(os.urandom(3))), 0)
        header = os.pread(file, HEADER.size, 0)
        if len(header) < HEADER.size or not header.startswith(MAGIC):
            raise FileUnusable(f"{self._path} is no file of stamps of this version of wheelcache; remove it")
        _, slots, processes = HEADER.unpack(header)
        if slots != self._slots:
            raise FileUnusable(f"{self._path} has {slots} slots and not {self._slots}; remove it")
        os.pwrite(file, HEADER.pack(MAGIC, slots, processes + 1), 0)
        self._reserve((processes + 1) % (1 << PROCESS_BITS))

    def _reserve(self, process: int) -> None:
        """Half of the stamps of a process are for the core, the others for what this object writes itself."""
        self.first = (process << WRITE_BITS) + 1
        self._next = itertools.count(self.first + (1 << WRITE_BITS - 1))

    def _may_move(self) -> bool:
        """Whether the file is where the runtime directory of this process is, which may come to be another one."""
        # Not of a server that was root when it opened the file, and has become another user since.
        return self._is_in_ours and os.geteuid() == self._user

    def open_in_child(self) -> None:
        """After a fork. If the file can't be opened, the child goes on with what is mapped, and stamps of its own."""
        try:
            self.open()
        except (FileUnusable, OSError):
            logger.exception("The stamps of a cache cannot be opened in the child of a fork, which uses its parent's.")
            self._reserve(int.from_bytes(os.urandom(PROCESS_BITS // 8)))

    def is_gone(self) -> bool:
        """Whether the file was removed or replaced, so that processes which start now use another one. 10 us."""
        with suppress(FileUnusable):
            if self._may_move() and runtime_directory() != self._path.parent:
                return True
        try:
            return _identity(os.stat(self._path)) != self._identity
        except FileNotFoundError:
            return True
        except OSError:
            # Out of sight: opened as root, by a server that has become another user since. What is mapped still serves.
            return False

    def slot(self, key: object) -> int:
        """The slot of a key, by what it looks like: ``hash`` is another in every process.

        Raises:
            TypeError: not every process would find the same: it is no string, number, bytes, None or tuple of these.
        """
        text = key if isinstance(key, str) else repr(canonical(key))
        return crc32(text.encode("utf-8", "surrogatepass")) % self._slots

    def _words(self, word: int) -> bytes:
        return word.to_bytes(WORD, byteorder) * self._slots


def canonical(key: Any) -> Any:
    """``key`` in a form that looks the same for keys that are equal, such as 1, 1.0 and True."""
    kind = type(key)
    if kind is tuple:
        return tuple(map(canonical, key))
    if kind is bool or (kind is float and key.is_integer()):
        return int(key)
    if kind not in (str, int, float, bytes, type(None)):
        takes = "strings, ints, floats, bytes, None and tuples of these"
        raise TypeError(f"the keys of a coherent cache are {takes}, not {kind.__qualname__} as {key!r}")
    return key


def _write(file: int, what: bytes, offset: int) -> None:
    while what:
        written = os.pwrite(file, what, offset)
        what, offset = what[written:], offset + written


@contextmanager
def _or_unusable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise FileUnusable(f"{path} cannot be made: {error}") from error


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
