"""A file that a process keeps locked to show that it lives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from wheelcache.runtime.private_files import not_for_children

if sys.platform != "win32":
    import fcntl


class HeldFile:
    """A file with a lock (``flock``), which is free once the process has ended for any reason.

    The child of a fork does not hold it.
    """

    def __init__(self) -> None:
        self._file = -1

    def __del__(self) -> None:
        self.release()

    def is_at(self, path: Path) -> bool:
        """Return whether a file is held, and still has this name."""
        try:
            return self._file >= 0 and os.path.samestat(os.fstat(self._file), os.lstat(path))
        except OSError:
            return False

    def hold(self, path: Path) -> None:
        """Lock a file that no other process locks, and make it if it does not exist.

        Raises:
            OSError: if the file cannot be created or locked.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        not_for_children.add(file)
        self._file = file
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def release(self) -> None:
        """Release the lock. In the child of a fork, the parent keeps it."""
        held, self._file = self._file, -1
        # The child of a fork has closed it already. At the exit, the module may be empty.
        if held >= 0 and held in not_for_children:
            not_for_children.discard(held)
            os.close(held)
