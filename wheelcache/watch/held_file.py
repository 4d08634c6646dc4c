"""The identity of a process, and a file that it keeps locked to show that it lives."""

from __future__ import annotations

import os
import sys
import time
from functools import lru_cache
from pathlib import Path
from typing import Final

from wheelcache.runtime.clock import SystemClock
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


_IMPORTED: Final = SystemClock.time()


def this_process() -> tuple[int, float]:
    """Return the process id and the start time, which together identify this process: the system reuses ids."""
    pid = os.getpid()
    return pid, _started(pid)


@lru_cache(maxsize=1)
def _started(pid: int) -> float:
    """Return the time at which this process, ``pid``, was started or forked, in seconds since 1970.

    On systems other than Linux, return the time at which this module was imported.
    """
    try:
        # The name of the program, in parentheses, may have spaces and parentheses. The start is the 22nd field.
        ticks = int(Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        up = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    return SystemClock.time() - up
