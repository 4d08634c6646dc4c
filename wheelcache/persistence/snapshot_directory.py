"""The directory of snapshots: checked at every use, and then used by its descriptor.

Snapshots are unpickled, which runs code. Mode 0700 alone is no protection: another user with write access to a parent
directory can rename the directory and put another one in its place, or a link to a place where files of this user have
contents made by the other user, as uploads have. So no other user may write a directory above it, except for sticky
ones such as ``/tmp``, in which users rename only their own files. And the directory is used by its descriptor, so that
it stays the one that was checked.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.runtime.private_files import NEEDS_UNIX, check_private

if sys.platform != "win32":
    import grp
    import pwd

ROOT: Final = 0
"""The number of the user, and of its group."""


def make_and_check(directory: Path) -> None:
    """
    Raises:
        FileUnusable: as ``made_and_opened``.
    """
    with made_and_opened(directory):
        pass


@contextmanager
def made_and_opened(directory: Path) -> Iterator[int]:
    """Do the same as ``opened``, after making ``directory`` with mode 0700 unless it exists. Its parent must exist.

    Raises:
        FileUnusable: as ``opened``; or it cannot be made.
    """
    _check_way(directory)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be made: {error.strerror}") from error
    with opened(directory) as descriptor:
        yield descriptor


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Open ``directory``. The context is its descriptor.

    Raises:
        FileNotFoundError: it is not there.
        FileUnusable: it is no directory, is not this user's, others may use it, or they may put another one in its
            place.
    """
    _check_way(directory)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileUnusable(f"{directory} must be a directory, and no link to one") from error
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be opened: {error.strerror}") from error
    try:
        check_private(directory, os.fstat(descriptor), stat.S_ISDIR, "a directory")
        yield descriptor
    finally:
        os.close(descriptor)


def _check_way(directory: Path) -> None:
    """Check all parents of ``directory``, and the targets of links among them.

    By name, from the root down: other users can no longer change the contents of a directory that passed.

    Raises:
        FileUnusable: naming the parent that others may write, or that does not exist.
    """
    if sys.platform == "win32":
        raise FileUnusable(f"a directory of snapshots {NEEDS_UNIX}")
    try:
        # Before the links are followed one by one: they may lead in a circle.
        directory.parent.stat()
        _check(directory.parent, directory)
    except FileNotFoundError as error:
        raise FileUnusable(f"{directory} is in no directory: there is no {directory.parent}") from error
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be reached: {error.strerror}") from error


def _check(path: Path, directory: Path) -> None:
    """Check ``path``, which is above ``directory``, and its own parents."""
    if path != path.parent:
        _check(path.parent, directory)
    found = path.lstat()
    if found.st_uid not in (ROOT, os.geteuid()):
        raise FileUnusable(
            f"{path}, on the way to {directory}, must belong to root or to the user {os.geteuid()}, "
            f"not to {found.st_uid}, who could put another directory there"
        )
    if stat.S_ISLNK(found.st_mode):
        _check(path.parent / path.readlink(), directory)
    elif _others_may_write(found):
        raise FileUnusable(
            f"{path}, on the way to {directory}, must not be for other users to write, as its mode "
            f"{stat.S_IMODE(found.st_mode):o} says: they could put another directory there"
        )


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)))


def _is_own_group(gid: int) -> bool:
    """Return whether a group has no members but root and this user: root's, or the group with this user's name."""
    if gid == ROOT:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name) and set(group.gr_mem) <= {user.pw_name}
