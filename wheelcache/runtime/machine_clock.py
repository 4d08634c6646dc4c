"""The clock of the machine, which all its processes share: ``now`` in seconds, ``moment`` in nanoseconds.

It counts the time during which the machine is suspended, so an entry of an hour does not survive a night. On Linux and
macOS, ``time.monotonic`` does not count it. ``core/platform.pxi`` reads the same clock. No library that freezes the
time in tests moves it.

Locks and selectors wait by a clock that stands still during a suspension. So a thread that sleeps until a time of this
clock may wake up too late, and compares the time again wherever that matters.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Final

now: Callable[[], float]
moment: Callable[[], int]


def real(name: str) -> Callable[[], float]:
    """Return ``time.<name>``, even if this is imported while freezegun has replaced it."""
    freezegun = sys.modules.get("freezegun.api")
    function: Callable[[], float] = getattr(freezegun, f"real_{name}", None) or getattr(time, name)
    return function


if sys.platform == "win32":
    now, moment = partial(real("monotonic")), partial(real("monotonic_ns"))
else:
    # Elsewhere, CLOCK_MONOTONIC is the best there is. macOS counts suspensions in it.
    SYSTEM_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    now, moment = partial(time.clock_gettime, SYSTEM_CLOCK), partial(time.clock_gettime_ns, SYSTEM_CLOCK)
