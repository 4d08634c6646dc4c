"""The directory of snapshots, which is checked at every use and then accessed by its descriptor.

Snapshots are unpickled, which runs code. Mode 0700 alone is no protection: another user with write access to a parent
directory can rename the directory and replace it, for example by a link to a directory where this user's files have
contents that the other user chose, such as uploads. So other users must not have write access to any parent directory,
except for sticky ones such as ``/tmp``, in which users can rename only their own files. Access by the descriptor
ensures that the checked directory is the one that is used.
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
from wheelcache.runtime.private_files import NEEDS_UNIX, check_private, make_private

if sys.platform != "win32":
    import grp
    import pwd

ROOT: Final = 0
"""The number of the user root, and of its group."""


@contextmanager
def made_and_opened(directory: Path) -> Iterator[int]:
    """Do the same as ``opened``, but first create ``directory`` with mode 0700 unless it exists. Its parent must exist.

    Raises:
        FileUnusable: as in ``opened``, or if the directory cannot be created.
    """
    _check_way(directory)
    make_private(directory)
    with opened(directory) as descriptor:
        yield descriptor


@contextmanager
def opened(directory: Path) -> Iterator[int]:
    """Check and open ``directory``. The value of the context is its descriptor.

    Raises:
        FileNotFoundError: if it does not exist.
        FileUnusable: if it is not a directory or belongs to another user, or if other users can use or replace it.
    """
    _check_way(directory)
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except NotADirectoryError as error:
        raise FileUnusable(f"{directory} must be a directory, not a link to one") from error
    except OSError as error:
        raise FileUnusable(f"{directory} cannot be opened: {error.strerror}") from error
    try:
        check_private(directory, os.fstat(descriptor), stat.S_ISDIR, "a directory")
        yield descriptor
    finally:
        os.close(descriptor)


def _check_way(directory: Path) -> None:
    """Check all parents of ``directory``, and the targets of links among them.

    The parents are checked by name, from the root down: other users cannot change the entries of a checked directory.

    Raises:
        FileUnusable: if other users can write to a parent, or it does not exist. The message names the parent.
    """
    if sys.platform == "win32":
        raise FileUnusable(f"a directory of snapshots {NEEDS_UNIX}")
    try:
        # This raises if links form a cycle, before ``_check`` would follow them forever.
        directory.parent.stat()
        _check(directory.parent, directory)
    except FileNotFoundError as error:
        raise FileUnusable(f"{directory} has no parent directory: {directory.parent} does not exist") from error
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
            f"not to {found.st_uid}, because that user could put another directory there"
        )
    if stat.S_ISLNK(found.st_mode):
        _check(path.parent / path.readlink(), directory)
    elif _others_may_write(found):
        raise FileUnusable(
            f"{path}, on the way to {directory}, must not be writable by other users, but its mode is "
            f"{stat.S_IMODE(found.st_mode):o}: they could put another directory there"
        )


def _others_may_write(found: os.stat_result) -> bool:
    if found.st_mode & stat.S_ISVTX:
        return False
    return bool(found.st_mode & stat.S_IWOTH or (found.st_mode & stat.S_IWGRP and not _is_own_group(found.st_gid)))


def _is_own_group(gid: int) -> bool:
    """Return whether a group has no other members than root and this user.

    This holds for root's group and for the group with this user's name.
    """
    if gid == ROOT:
        return True
    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(gid)
    except KeyError:
        return False
    return (group.gr_gid, group.gr_name) == (user.pw_gid, user.pw_name) and set(group.gr_mem) <= {user.pw_name}
