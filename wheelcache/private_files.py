"""Files that are this user's alone, and where those are that his processes share while they run."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from wheelcache.errors import FileUnusable


def runtime_directory() -> Path:
    """A directory of this user's alone, the same for all his processes, in memory where the system has such a place.

    Not ``XDG_RUNTIME_DIR``: a server started at boot does not have it, a command typed by the same user does, and they
    have to meet. Nor ``/tmp``, of which systemd gives a service one of its own.

    Raises:
        FileUnusable: it is not this user's, or others may use it.
    """
    shared_memory = Path("/dev/shm")  # noqa: S108  # what is made in it is private
    parent = shared_memory if os.access(shared_memory, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    directory = parent / f"wheelcache-{os.geteuid()}"
    make_private(directory)
    return directory


def make_private(directory: Path) -> None:
    """Make ``directory`` with mode 0700, unless it is there. Its parent has to be.

    Raises:
        FileUnusable: it cannot be made, is not this user's, or others may use it.
    """
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
