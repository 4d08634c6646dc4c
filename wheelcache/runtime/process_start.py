"""When this process started."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Final

from wheelcache.runtime.clock import SystemClock

_IMPORTED: Final = SystemClock.time()
_started: dict[int, float] = {}


def process_started() -> float:
    """When this process was started or forked, in seconds since 1970. Without Linux: when this module was imported."""
    pid = os.getpid()
    if pid not in _started:
        _started.clear()
        _started[pid] = _read()
    return _started[pid]


def this_process() -> tuple[int, float]:
    """What tells this process from all others: its number, which comes again, and when it started."""
    return os.getpid(), process_started()


def _read() -> float:
    try:
        # The name of the program, in parentheses, may have spaces and parentheses. The start is the 22nd field.
        ticks = int(Path("/proc/self/stat").read_text(errors="replace").rpartition(")")[2].split()[19])
        up = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    return SystemClock.time() - up
