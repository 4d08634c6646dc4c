"""The number of a process in a directory: the lowest number that no other process holds."""

from __future__ import annotations

import os
import sys
from itertools import count
from typing import Final

if sys.platform != "win32":
    import fcntl

SUFFIX: Final = ".lock"


class WorkerNumber:
    """A number, held by a lock on its file (``flock``), so it is free once the process has ended for any reason."""

    def __init__(self) -> None:
        self._file = -1
        self._number = 0

    def __del__(self) -> None:
        self.release()

    def hold(self, directory: int, stem: str) -> int:
        """Return the number. It stays the same unless its file was removed.

        Args:
            directory: a descriptor of the directory.
            stem: the first part of the file names, the same in each call.

        Raises:
            OSError: if the file of a number cannot be created or locked.
        """
        if not self._is_held(directory, stem):
            self.release()
            self._acquire(directory, stem)
        return self._number

    def release(self) -> None:
        """Release the number. In the child of a fork, the parent keeps it, since both share the lock."""
        held, self._file = self._file, -1
        if held >= 0:
            os.close(held)

    def _is_held(self, directory: int, stem: str) -> bool:
        if self._file < 0:
            return False
        try:
            there = os.lstat(self._name(stem), dir_fd=directory)
            return os.path.samestat(os.fstat(self._file), there)
        except OSError:
            return False

    def _acquire(self, directory: int, stem: str) -> None:
        for number in count(1):
            self._number = number
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            file = os.open(self._name(stem), flags, 0o600, dir_fd=directory)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(file)
            except BaseException:
                os.close(file)
                raise
            else:
                self._file = file
                return

    def _name(self, stem: str) -> str:
        return f"{stem}.{self._number}{SUFFIX}"
