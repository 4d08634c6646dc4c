"""Private files of this user, and the directory for files that the user's processes share while they run."""

from __future__ import annotations

import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import SystemRandom
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("wheelcache")

LOCK_PATIENCE: Final = 5.0
"""Seconds to wait for the lock of a file."""

FALLBACK_PATIENCE: Final = 1.0
"""Seconds to wait for another process that chooses a fallback directory. Any user can hold that lock."""


NEEDS_UNIX: Final = "needs the file locks and permissions of Unix, which Windows does not have"
"""The end of the error message of each feature that shares files between processes, or loads only safe files."""


class FileLocked(FileUnusable):
    """Another process held the lock of the file for longer than this one waits."""


def pause() -> None:
    """Wait for a random time between two attempts to lock a file, so that processes do not retry in step."""
    # SystemRandom, because the application may have seeded the default generator, and a fork copies its state.
    time.sleep(SystemRandom().uniform(0.001, 0.004))


def runtime_directory() -> Path:
    """Return the private directory that all processes of this user share, in memory if the system supports that.

    Rejected alternatives: ``XDG_RUNTIME_DIR`` is not set for a server started at boot, but is set for a command that
    the same user types, and both must find the same directory. systemd can give a service its own ``/tmp``. Many
    services have no home directory, or one that several machines share.

    Any local user can create a directory with the expected name first. In that case, this user's directory has the same
    name with a random suffix. Every process of this user recognizes it by its owner, which no other user can forge. It
    stays in use when the expected name is free again: otherwise new processes would not share files with running ones.

    Raises:
        FileUnusable: if other users can access the directory, or it cannot be created.
    """
    directory = shared_memory()
    if _owner(directory) is None:
        there = _fallbacks(directory)
        if there:
            return there[0]
        with suppress(OSError):
            directory.mkdir(mode=0o700)
    owner = _owner(directory)
    if owner is not None and owner != os.geteuid():
        return _fallback(directory, owner)
    make_private(directory)
    return directory


def _owner(path: Path) -> int | None:
    """Return the number of the owner of ``path``; None if ``path`` does not exist."""
    try:
        return os.lstat(path).st_uid
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileUnusable(f"{path} cannot be used: {error}") from error


def _fallback(taken: Path, owner: int) -> Path:
    """Return this user's directory to use instead of ``taken``, which belongs to ``owner``. Create it if necessary."""
    try:
        there = _fallbacks(taken)
        if not there:
            with _choosing(taken.parent):
                there = _fallbacks(taken) or [Path(tempfile.mkdtemp(prefix=f"{taken.name}.", dir=taken.parent))]
    except OSError as error:
        raise FileUnusable(
            f"{taken} belongs to the user {owner}, and no other directory can be created in {taken.parent}: {error}"
        ) from error
    if taken not in _warned_of:
        _warned_of.add(taken)
        logger.warning("%s belongs to the user %d; using %s instead.", taken, owner, there[0])
    return there[0]


_warned_of: Final[set[Path]] = set()


def _fallbacks(taken: Path) -> list[Path]:
    """Return the private directories of this user to use instead of ``taken``, in the same order in every process.

    There is at most one, unless another user held the lock of ``_choosing`` while several processes chose.
    """
    found = []
    for path in sorted(taken.parent.glob(f"{taken.name}.*")):
        with suppress(FileUnusable, FileNotFoundError):
            check_private(path, is_directory=True)
            found.append(path)
    return found


@contextmanager
def _choosing(place: Path) -> Iterator[None]:
    """Let one process at a time choose a directory, unless another user holds the lock.

    In that case two processes may choose different directories. They use the same one after their next look-up.
    """
    file = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    not_for_children.add(file)
    try:
        with suppress(FileUnusable):
            lock_file(place, file, FALLBACK_PATIENCE)
        yield
    finally:
        not_for_children.discard(file)
        os.close(file)


def _is_in_ours(path: Path) -> bool:
    """Return whether ``path`` is in the runtime directory, or in a directory that is used instead."""
    try:
        ours = shared_memory()
    except FileUnusable:
        return False
    return path.parent == ours or (path.parent.parent == ours.parent and path.parent.name.startswith(f"{ours.name}."))


def shared_memory() -> Path:
    """Return the usual name of ``runtime_directory``, which need not exist."""
    memory = Path("/dev/shm")  # noqa: S108  # the directory made in it is private
    try:
        parent = memory if os.access(memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise FileUnusable(str(error)) from error
    return parent / f"wheelcache-{os.geteuid()}"


def make_private(directory: Path) -> None:
    """Create ``directory`` with mode 0700 unless it exists.

    Its parent must exist, unless that is the runtime directory, which systemd may have removed.

    Raises:
        FileUnusable: if it cannot be created, belongs to another user, or can be accessed by other users.
    """
    if sys.platform == "win32":
        raise FileUnusable(f"a directory for one user {NEEDS_UNIX}")
    if _is_in_ours(directory):
        make_private(directory.parent)
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        check_private(directory, is_directory=True)
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be created: {error.strerror}") from error


def check_private(path: Path, file: int | None = None, *, is_directory: bool = False) -> None:
    """Check that only this user can access a file or a directory.

    Args:
        file: the descriptor of the file, if it is open. ``path`` is then only for error messages.

    Raises:
        FileNotFoundError: if there is nothing.
        FileUnusable: if it is of the other kind or a link, belongs to another user, or can be accessed by other users.
    """
    found = path.lstat() if file is None else os.fstat(file)
    is_kind, kind = (stat.S_ISDIR, "directory") if is_directory else (stat.S_ISREG, "regular file")
    if not is_kind(found.st_mode):
        raise FileUnusable(f"{path} must be a {kind}; links are not followed")
    if found.st_uid != os.geteuid():
        raise FileUnusable(f"{path} must belong to the user {os.geteuid()}, not to {found.st_uid}")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise FileUnusable(f"{path} must be accessible to its owner only, but its mode is {mode:o}")


@contextmanager
def locked_file(path: Path, patience: float | None = None, *, shared: bool = False) -> Iterator[int]:
    """Open and lock a private file for reading and writing, and yield its descriptor. Create the file if necessary.

    Args:
        patience: seconds to wait for the lock; 5 if not given. 0.0 means to try once.
        shared: whether to acquire a shared lock.

    Raises:
        FileUnusable: if it cannot be opened, belongs to another user, or can be accessed by other users.
        FileLocked: if another thread or process held the lock during all of ``patience``.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be opened: {error}") from error
    not_for_children.add(file)
    try:
        check_private(path, file)
        lock_file(path, file, patience, shared=shared)
        yield file
    finally:
        # If a signal handler forked in between, the child has closed the file, and the lock belongs to the parent.
        if file in not_for_children:
            # Closing would not release the lock of a mapped file: the map has a descriptor of its own.
            fcntl.flock(file, fcntl.LOCK_UN)
            not_for_children.discard(file)
            os.close(file)


def lock_file(path: Path, file: int, patience: float | None = None, *, shared: bool = False) -> None:
    """Lock an open file. The arguments and errors are those of ``locked_file``."""
    patience = LOCK_PATIENCE if patience is None else patience
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    until = SystemClock.steady() + patience
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            # Locks are held for microseconds, unless a holder is suspended.
            if SystemClock.steady() >= until:
                raise FileLocked(f"{path} has been locked by another process for {patience} s") from None
            pause()
        else:
            return


not_for_children: Final[set[int]] = set()
"""Descriptors with locks of this process. The child of a fork closes them; otherwise it would hold the locks even after
its parent was killed."""


def _close_in_child() -> None:
    while not_for_children:
        with suppress(OSError):
            os.close(not_for_children.pop())


lifecycle.RENEWED.add(_close_in_child)
