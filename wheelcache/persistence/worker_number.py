"""The number of a process in a directory: the lowest number that no other process holds."""

from __future__ import annotations

from itertools import count
from typing import Final

from wheelcache.runtime.held_file import HeldFile

SUFFIX: Final = ".lock"


class WorkerNumber:
    """A number, held by its file, so it is free once the process has ended for any reason."""

    def __init__(self) -> None:
        self._file = HeldFile()
        self._number = 0
        self.release = self._file.release
        """Release the number. In the child of a fork, the parent keeps it."""

    def hold(self, directory: int, stem: str) -> int:
        """Return the number. It stays the same unless its file was removed.

        Args:
            directory: a descriptor of the directory.
            stem: the first part of the file names, the same in each call.

        Raises:
            OSError: if the file of a number cannot be created or locked.
        """
        if not self._file.is_at(f"{stem}.{self._number}{SUFFIX}", directory):
            self.release()
            free = (number for number in count(1) if self._file.hold(f"{stem}.{number}{SUFFIX}", directory))
            self._number = next(free)
        return self._number
