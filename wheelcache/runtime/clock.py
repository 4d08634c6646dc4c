"""Time as an argument: the system's clocks.

Everything in wheelcache accepts ``clock``, a callable that returns seconds as a float; the default is ``now``.

``now`` and ``moment`` are the clock of the machine, which all its processes share, in seconds and in nanoseconds.
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

Clock = Callable[[], float]
"""Returns a time in seconds, which may begin anywhere."""

now: Callable[[], float]
moment: Callable[[], int]
"""Returns the time of the machine in nanoseconds."""


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


class SystemClock:
    """The system's clocks. These are attributes of a class because freezegun replaces attributes of modules.

    Attributes:
        steady: the clock of the machine, which no test moves. Wheels and waiting threads use it.
        travelling_time: ``time.time``, which time-machine moves.
    """

    steady: Clock = staticmethod(now)
    travelling_time = staticmethod(real("time"))

    @classmethod
    def time(cls) -> float:
        """Return the seconds since 1970, which no test moves."""
        if time_machine_travels():
            seconds: float = sys.modules["time_machine"].escape_hatch.time.time()
            return seconds
        return cls.travelling_time()


def time_machine_travels() -> bool:
    escape_hatch = getattr(sys.modules.get("time_machine"), "escape_hatch", None)
    return escape_hatch is not None and escape_hatch.is_travelling()


def unfrozen(clock: Clock) -> Clock:
    """Return ``clock``; the clock of the machine for ``time.monotonic``, which tests freeze."""
    replaced = getattr(sys.modules.get("freezegun.api"), "fake_monotonic", None)
    return now if clock is real("monotonic") or (replaced is not None and clock is replaced) else clock
