"""Files that are this user's alone, and where those are that the user's processes share while they run."""

from __future__ import annotations

import logging
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
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
"""Seconds."""

FALLBACK_PATIENCE: Final = 1.0
"""Seconds that processes which choose another runtime directory wait for each other. Any user can hold that lock."""


NEEDS_UNIX: Final = "needs file locks and permissions as Unix has them, which Windows does not"
"""The end of the error message of each feature that shares files between processes, or loads only safe files."""


class FileLocked(FileUnusable):
    """Another process has locked the file for longer than this one waits."""


def pause() -> None:
    """Wait between two tries to lock a file, for a random time: in step with others, some would never be first."""
    # Not of the generator that the application may have seeded, which a fork copies as well.
    time.sleep(SystemRandom().uniform(0.001, 0.004))


def runtime_directory() -> Path:
    """A directory of this user's alone, the same for all of its processes, in memory where the system has such a place.

    Not ``XDG_RUNTIME_DIR``: a server started at boot does not have it, a command typed by the same user does, and they
    have to meet. Nor ``/tmp``, of which systemd gives a service one of its own.

    Any local user can take its name. Then it is a directory beside it, whose name has a random suffix. Every process of
    this user finds that one by its owner, which no other user can imitate. It remains the choice when the name is free
    again: otherwise processes that start by then would not meet those that run. A home directory was rejected: many
    services have none, or one that several machines share.

    Raises:
        FileUnusable: others may use it, or it cannot be made.
    """
    directory = _runtime_directory()
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
    """None if nothing is there."""
    try:
        return os.lstat(path).st_uid
    except FileNotFoundError:
        return None
    except OSError as error:
        raise FileUnusable(f"{path} cannot be used: {error}") from error


def _fallback(taken: Path, owner: int) -> Path:
    """This user's directory in the place of ``taken``, which is another user's."""
    try:
        there = _fallbacks(taken)
        if not there:
            with _one_chooses(taken.parent):
                there = _fallbacks(taken) or [Path(tempfile.mkdtemp(prefix=f"{taken.name}.", dir=taken.parent))]
    except OSError as error:
        raise FileUnusable(f"{taken} belongs to the user {owner}, and none can be made beside it: {error}") from error
    if taken not in _warned_of:
        _warned_of.add(taken)
        logger.warning("%s belongs to the user %d: %s is used in its place.", taken, owner, there[0])
    return there[0]


_warned_of: Final[set[Path]] = set()


def _fallbacks(taken: Path) -> list[Path]:
    """The private directories of this user in the place of ``taken``, in the same order in every process.

    There is one. Only if another user kept processes from choosing one at a time, there may be more.
    """
    found = []
    for path in sorted(taken.parent.glob(f"{taken.name}.*")):
        with suppress(FileUnusable, FileNotFoundError):
            check_private(path, path.lstat(), stat.S_ISDIR, "a directory")
            found.append(path)
    return found


@contextmanager
def _one_chooses(place: Path) -> Iterator[None]:
    """One process at a time, unless another user holds the lock. Then boards notice later which of two is chosen."""
    file = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    not_for_children.add(file)
    try:
        with suppress(FileUnusable):
            _lock(place, file, FALLBACK_PATIENCE)
        yield
    finally:
        not_for_children.discard(file)
        os.close(file)


def make_private_again(directory: Path) -> None:
    """``make_private``, and before that the runtime directory, if it is in that: systemd may have removed all of it.

    Raises:
        FileUnusable: as the others.
    """
    if is_in_ours(directory):
        make_private(directory.parent)
    make_private(directory)


def is_in_ours(path: Path) -> bool:
    """Whether it is in the runtime directory, or in one that is used in its place."""
    try:
        ours = _runtime_directory()
    except FileUnusable:
        return False
    return path.parent == ours or (path.parent.parent == ours.parent and path.parent.name.startswith(f"{ours.name}."))


def _runtime_directory() -> Path:
    shared_memory = Path("/dev/shm")  # noqa: S108  # what is made in it is private
    try:
        parent = shared_memory if os.access(shared_memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise FileUnusable(str(error)) from error
    return parent / f"wheelcache-{os.geteuid()}"


def make_private(directory: Path) -> None:
    """Make ``directory`` with mode 0700, unless it is there. Its parent has to be.

    Raises:
        FileUnusable: it cannot be made, is not this user's, or others may use it.
    """
    if sys.platform == "win32":
        raise FileUnusable(f"a directory for one user {NEEDS_UNIX}")
    try:
        with suppress(FileExistsError):
            directory.mkdir(mode=0o700)
        found = directory.lstat()
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be made: {error}") from error
    check_private(directory, found, stat.S_ISDIR, "a directory")


def check_private(path: Path, found: os.stat_result, is_kind: Callable[[int], bool], kind: str) -> None:
    """
    Raises:
        FileUnusable: ``found`` is of another kind, is not this user's, or others may use it.
    """
    if not is_kind(found.st_mode):
        raise FileUnusable(f"{path} must be {kind}")
    if found.st_uid != os.geteuid():
        raise FileUnusable(f"{path} must belong to the user {os.geteuid()}, not to {found.st_uid}")
    if found.st_mode & 0o077:
        raise FileUnusable(f"{path} must be for its owner only, not have the mode {stat.S_IMODE(found.st_mode):o}")


@contextmanager
def locked_file(path: Path, patience: float | None = None, *, shared: bool = False) -> Iterator[int]:
    """A private file, made if it isn't there, open to read and write, that no other thread or process has locked.

    Args:
        patience: seconds to wait for the lock, 0.0 for not at all; 5 if not given.
        shared: whether others may have the lock in the same way.

    Raises:
        FileUnusable: it cannot be opened, or is not this user's alone.
        FileLocked: another process has locked it for that long.
    """
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be opened: {error}") from error
    not_for_children.add(file)
    try:
        check_private(path, os.fstat(file), stat.S_ISREG, "a file")
        _lock(path, file, LOCK_PATIENCE if patience is None else patience, shared=shared)
        yield file
    finally:
        # In the child of a fork by a signal handler in between, it is closed, and the lock is the parent's.
        if file in not_for_children:
            # Closing would not do where the file is mapped: the map has a descriptor of its own.
            fcntl.flock(file, fcntl.LOCK_UN)
            not_for_children.discard(file)
            os.close(file)


def _lock(path: Path, file: int, patience: float, *, shared: bool = False) -> None:
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    until = SystemClock.steady() + patience
    while True:
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            # Held for microseconds, unless its holder was stopped in the middle.
            if SystemClock.steady() >= until:
                raise FileLocked(f"{path} has been locked by another process for {patience} s") from None
            pause()
        else:
            return


not_for_children: Final[set[int]] = set()
"""Descriptors with locks of this process. The child of a fork would hold them as well, and go on holding them after its
parent was killed."""


def _close_in_child() -> None:
    while not_for_children:
        with suppress(OSError):
            os.close(not_for_children.pop())


lifecycle.RENEWED.add(_close_in_child)
