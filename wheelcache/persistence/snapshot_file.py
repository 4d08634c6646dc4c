"""The file format of snapshots, written completely or not at all, and read as far as it is undamaged.

The file begins with a magic and a version and ends with an end mark, as Redis's RDB files do. In between, each record
has its length and its own check, as in LevelDB's log. Unlike in either, the check also covers the record's position in
this particular file, so that no record can be mistaken for another one::

    header   magic, version (u16), flags (u16), salt (16 random bytes), length (u32), that many bytes of JSON, check
    record   length (u32), check, payload: that many bytes
    end      0xFFFFFFFF, check

Integers are little-endian. A check covers the header, including its salt; the length word; the index, counted from 0
(the index of the end mark is the number of records); and the payload. So a record that was moved, duplicated, left out
or copied from another file does not pass. A damaged record and all later ones are lost, but none before it.

- Without a secret, the check is the CRC-32 of these, 4 bytes. A random change passes with a probability of 1 in 2**32.
  It does not protect against forged files.
- With a secret, the check is the first 16 bytes of an HMAC-SHA256 of these (RFC 2104). Its key is specific to the file:
  the HMAC of the header with the SHA-256 of the secret. A record is authenticated before it is unpickled. A wrong
  secret is detected in the header. A truncated tail is detected only after the remaining records were read. The
  replacement of a file by an older complete one is not detected.

A writer creates a temporary file in the same directory, syncs it and renames it, so a process that is killed leaves the
old file or the new one, and perhaps the temporary one. A writer holds a lock on its temporary file (``flock``) as long
as it lives; if the lock is free, the next writer removes the file. Process ids would not work: two containers that
share a volume both have a process 1.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import re
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Final, Self
from zlib import crc32

from wheelcache.errors import SnapshotDamaged, SnapshotRefused, UnknownFormat
from wheelcache.runtime.private_files import NEEDS_UNIX

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("wheelcache")

MAGIC: Final = b"wheelcache snapshot\n"
VERSION: Final = 2
"""The version of the format, including that of the records. Raise it whenever either changes."""
SIGNED: Final = 1
"""The only flag: the checks are HMACs."""

PREFIX: Final = struct.Struct("<20sHH16sI")
"""The magic, the version, the flags, the salt, and the length of the JSON."""

LENGTH: Final = struct.Struct("<I")
CRC: Final = struct.Struct("<I")
PLACE: Final = struct.Struct("<IQ")
"""The length word and the index."""

END: Final = 0xFFFF_FFFF
HEADER: Final = 0xFFFF_FFFE
"""Length words that no record has, for the check of the end mark and for the check of the header."""

MAC_BYTES: Final = 16
SALT_BYTES: Final = 16
BUFFER_BYTES: Final = 1 << 20

ASIDE: Final = ".refused"
"""The suffix of the name of a refused file."""

Seal = Callable[[int, int, bytes], bytes]
"""A function that returns the check of a length word, an index and a payload."""


class SnapshotWriter:
    """A context manager that writes a snapshot. The file appears at ``path`` if the block ends without an exception.

    Only one thread may use it. A million records of 100 bytes take 0.7 s, and 1.8 s with a secret, most of it in HMACs
    (CPython 3.11, OpenSSL 3.0). One MiB is buffered.

    Args:
        path: the path of the snapshot, in an existing directory. An existing file is replaced as the last step, and
            stays unchanged if anything fails.
        header: a mapping that JSON can represent. The reader must pass the same "kind", a string.
        secret: the secret that the checks are keyed with, or None.
        dir_fd: a descriptor of the directory, which is then not looked up by its name.

    Raises:
        SnapshotRefused: by the constructor, on Windows, which has neither these locks nor these modes.
        TypeError, ValueError: by the constructor, if ``header`` cannot be converted to JSON.
        OSError: on entry, ``write`` or exit, for example if the disk is full, the permission is missing or the
            directory does not exist.
        RuntimeError: on ``write`` or exit in a child of a fork. The file belongs to its parent.
    """

    def __init__(self, path: Path, header: Mapping[str, Any], secret: bytes | None, dir_fd: int | None = None) -> None:
        self._file = -1
        _need_unix()
        text = json.dumps(dict(header)).encode()
        flags = 0 if secret is None else SIGNED
        head = PREFIX.pack(MAGIC, VERSION, flags, os.urandom(SALT_BYTES), len(text)) + text
        self._path = path
        self._dir_fd = dir_fd
        self._seal = _sealing(head, secret)
        self._buffer = bytearray(head + self._seal(HEADER, 0, b""))
        self._records = 0

    def __del__(self) -> None:
        # Needed if ``__exit__`` was interrupted: once the lock is free, the next writer removes the temporary file.
        self._close()

    def __enter__(self) -> Self:
        remove_leftovers(self._path, self._dir_fd)
        self._process = os.getpid()
        self._temporary, self._file = _make_temporary(self._path, self._dir_fd)
        return self

    def write(self, payload: bytes) -> None:
        """Append a record.

        Raises:
            ValueError: if ``payload`` has 4 GiB - 2 bytes or more.
        """
        length = len(payload)
        if length >= HEADER:
            raise ValueError(f"a record must have fewer than {HEADER} bytes, not {length}")
        self._buffer += LENGTH.pack(length) + self._seal(length, self._records, payload) + payload
        self._records += 1
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self._commit()
        finally:
            if os.getpid() == self._process:
                # After a successful rename, no file has this name.
                with suppress(OSError):
                    os.unlink(self._temporary, dir_fd=self._dir_fd)
            self._close()

    def _close(self) -> None:
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    def _commit(self) -> None:
        self._buffer += LENGTH.pack(END) + self._seal(END, self._records, b"")
        self._flush()
        os.fsync(self._file)
        target = _at(self._path, self._dir_fd)
        os.replace(self._temporary, target, src_dir_fd=self._dir_fd, dst_dir_fd=self._dir_fd)
        if self._dir_fd is not None:
            os.fsync(self._dir_fd)
            return
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)

    def _flush(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError(f"{self._path} is being written by a parent of this process; only the parent may write")
        while self._buffer:
            del self._buffer[: os.write(self._file, self._buffer)]


class Snapshot:
    """A snapshot opened by ``open_snapshot``: a context manager that closes it, and an iterable of its payloads.

    Each iteration starts at the first record and reads the records one by one: a million of 100 bytes take 0.8 s, and
    1.9 s with a secret.

    Attributes:
        header: the header, as it was written.

    Raises:
        SnapshotDamaged: during iteration, if the next record is damaged, records or the end mark are missing, or bytes
            follow the end mark. All payloads returned before are undamaged.
    """

    def __init__(self, path: Path, file: BinaryIO, header: dict[str, Any], seal: Seal) -> None:
        self.header = header
        self._path = path
        self._file = file
        self._seal = seal
        self._first = file.tell()
        self._size = os.fstat(file.fileno()).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()

    def __iter__(self) -> Iterator[bytes]:
        file, seal = self._file, self._seal
        check_bytes = len(seal(END, 0, b""))
        left = self._size - self._first
        file.seek(self._first)
        for index in count():
            try:
                head = file.read(LENGTH.size + check_bytes)
                left -= len(head)
                if len(head) < LENGTH.size + check_bytes:
                    raise self._damaged(index, "it ends too early")
                (length,) = LENGTH.unpack_from(head)
                if length != END and length > left:
                    raise self._damaged(index, "the next is longer than the rest of the file")
                payload = b"" if length == END else file.read(length)
                left -= len(payload)
            except OSError as error:
                raise self._damaged(index, f"the next cannot be read, {error.strerror}") from error
            if not hmac.compare_digest(seal(length, index, payload), head[LENGTH.size :]):
                raise self._damaged(index, "the next does not match its check")
            if length == END:
                break
            yield payload
        if left:
            raise self._damaged(index, f"{left} bytes follow its end")

    def number(self, name: str, default: float | None = None) -> float:
        """Return a number in the header.

        Raises:
            SnapshotRefused: if there is none.
        """
        found = self.header.get(name, default)
        if not isinstance(found, int | float) or not abs(found) < 1 << 63:
            raise SnapshotRefused(f"{self._path} does not say when it was saved")
        return found

    def _damaged(self, records: int, problem: str) -> SnapshotDamaged:
        return SnapshotDamaged(f"{self._path} is damaged after {records} good records: {problem}")


def open_snapshot(path: Path, kind: str, secret: bytes | None, dir_fd: int | None = None) -> Snapshot:
    """Open the snapshot at ``path`` and check its header. This never blocks, even if ``path`` is a pipe.

    Args:
        path: the path of the file.
        kind: the "kind" that its header must contain.
        secret: the secret that it was written with, or None.
        dir_fd: a descriptor of its directory, which is then not looked up by its name.

    Raises:
        FileNotFoundError: if there is no such file.
        SnapshotRefused: if ``path`` is not a regular file, belongs to another user, can be written by other users, is
            not a snapshot, is of another kind, was written with another secret, or has a damaged header.
        UnknownFormat: (a SnapshotRefused) if its version is unknown.
    """
    _need_unix()
    file = _open_own(path, dir_fd)
    try:
        header, seal = _read_header(path, file, secret)
        if header["kind"] != kind:
            raise SnapshotRefused(f"{path} is a snapshot of the kind {header['kind']!r}, not {kind!r}")
        return Snapshot(path, file, header, seal)
    except OSError as error:
        file.close()
        raise SnapshotRefused(f"{path} cannot be read: {error.strerror}") from error
    except BaseException:
        file.close()
        raise


def remove_leftovers(path: Path, dir_fd: int | None = None) -> None:
    """Remove the temporary files of ``path`` whose writers have ended. Files that cannot be removed stay.

    A child of a fork shares the locks of its parent, so the temporary files of the parent stay until the child ends.

    Raises:
        OSError: if the directory cannot be read.
    """
    leftover = re.compile(re.escape(path.name) + r"\.[0-9a-f]{16}\.tmp")
    for name in os.listdir(path.parent if dir_fd is None else dir_fd):
        if leftover.fullmatch(name):
            with suppress(OSError):
                _remove_if_dead(_at(path.with_name(name), dir_fd), dir_fd)


def set_aside(path: Path, dir_fd: int | None = None) -> Path | None:
    """Rename a refused file to ``<name>.refused``, replacing an earlier one. Return the new path; None on failure.

    Only regular files are renamed: a path that was given by mistake, such as ``/dev/null``, stays.
    """
    aside = path.with_name(f"{path.name}{ASIDE}")
    try:
        name = _at(path, dir_fd)
        if not stat.S_ISREG(os.lstat(name, dir_fd=dir_fd).st_mode):
            return None
        os.replace(name, _at(aside, dir_fd), src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        return None
    return aside


def refuse(owner: str, path: Path, error: SnapshotRefused, dir_fd: int | None = None) -> None:
    """Log why ``owner`` does not load a file, and rename the file, unless another version of wheelcache can use it."""
    aside = None if isinstance(error, UnknownFormat) else set_aside(path, dir_fd)
    logger.warning(
        "A snapshot is not loaded%s by %s: %s%s.",
        " any further" if isinstance(error, SnapshotDamaged) else "",
        owner,
        error,
        f"; it is kept as {aside}" if aside else "",
    )


def _at(path: Path, dir_fd: int | None) -> str:
    """Return the name of ``path`` for the functions of ``os`` when they are called with ``dir_fd``."""
    return str(path) if dir_fd is None else path.name


def _need_unix() -> None:
    if sys.platform == "win32":
        raise SnapshotRefused(f"a snapshot {NEEDS_UNIX}")


def _sealing(head: bytes, secret: bytes | None) -> Seal:
    """Return the function that computes the checks of a file whose header is ``head``."""
    if secret is None:
        start = crc32(head)
        return lambda length, index, payload: CRC.pack(crc32(payload, crc32(PLACE.pack(length, index), start)))
    # The secret is hashed because HMAC pads short keys with zeros: "secret" and "secret\0" would be the same key.
    keyed = hmac.new(hmac.digest(sha256(secret).digest(), head, "sha256"), digestmod="sha256")

    def mac(length: int, index: int, payload: bytes) -> bytes:
        # Copying takes 1.3 us for 100 bytes; hmac.digest, which looks up the hash and sets the key each time, 1.8 us.
        check = keyed.copy()
        check.update(PLACE.pack(length, index))
        check.update(payload)
        return check.digest()[:MAC_BYTES]

    return mac


def _make_temporary(path: Path, dir_fd: int | None) -> tuple[str, int]:
    while True:
        temporary = _at(path.with_name(f"{path.name}.{os.urandom(8).hex()}.tmp"), dir_fd)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=dir_fd)
        try:
            # The umask may have removed permissions of the owner, too.
            os.fchmod(file, 0o600)
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_there(temporary, dir_fd):
                    return temporary, file
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=dir_fd)
            os.close(file)
            raise
        # Another writer found the file before it was locked, and has removed it or is about to do so.
        os.close(file)


def _is_there(name: str, dir_fd: int | None) -> bool:
    try:
        os.lstat(name, dir_fd=dir_fd)
    except FileNotFoundError:
        return False
    return True


def _remove_if_dead(leftover: str, dir_fd: int | None) -> None:
    # Opened for writing, which an exclusive lock requires on NFS.
    file = os.open(leftover, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # If the file was renamed in the meantime, no file has this name.
        os.unlink(leftover, dir_fd=dir_fd)
    finally:
        os.close(file)


def _open_own(path: Path, dir_fd: int | None) -> BinaryIO:
    name = _at(path, dir_fd)
    try:
        # Checked by name first, for an error that names the reason if it cannot be opened. Checked again after opening,
        # since the name may belong to another file by then.
        _check_own(path, os.lstat(name, dir_fd=dir_fd))
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=dir_fd)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise SnapshotRefused(f"{path} cannot be opened: {error.strerror}") from error
    try:
        _check_own(path, os.fstat(file))
    except BaseException:
        os.close(file)
        raise
    return os.fdopen(file, "rb", BUFFER_BYTES)


def _check_own(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise SnapshotRefused(f"{path} must be a file, not a link to one")
    if found.st_uid != os.geteuid():
        raise SnapshotRefused(f"{path} must belong to the user {os.geteuid()}, not to {found.st_uid}")
    if found.st_mode & 0o022:
        mode = stat.S_IMODE(found.st_mode)
        raise SnapshotRefused(f"{path} must be writable by its owner only, but its mode is {mode:o}")


def _read_header(path: Path, file: BinaryIO, secret: bytes | None) -> tuple[dict[str, Any], Seal]:
    damaged = SnapshotRefused(f"{path} has a damaged header")
    prefix = file.read(PREFIX.size)
    if not prefix.startswith(MAGIC):
        raise SnapshotRefused(f"{path} is not a snapshot of wheelcache")
    if len(prefix) < PREFIX.size:
        raise damaged
    _, version, flags, _, length = PREFIX.unpack(prefix)
    if version != VERSION or flags & ~SIGNED:
        found = f"version {version}, flags {flags:#x}"
        raise UnknownFormat(f"{path} has an unknown format ({found}); this wheelcache reads version {VERSION}")
    if flags & SIGNED and secret is None:
        raise SnapshotRefused(f"{path} is signed, and there is no secret to check it with")
    if not flags & SIGNED and secret is not None:
        raise SnapshotRefused(f"{path} is not signed, but the secret requires a signature")
    if length > os.fstat(file.fileno()).st_size - PREFIX.size:
        raise damaged
    text = file.read(length)
    seal = _sealing(prefix + text, secret)
    expected = seal(HEADER, 0, b"")
    if not hmac.compare_digest(expected, file.read(len(expected))):
        raise damaged if secret is None else SnapshotRefused(f"{path} was signed with another secret, or is damaged")
    try:
        header = json.loads(text)
    except (ValueError, RecursionError):
        raise damaged from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise damaged
    return header, seal
