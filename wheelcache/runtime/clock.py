"""Time as an argument: the system's clocks, and a clock that stands still until a test moves it.

Everything in wheelcache accepts ``clock``, a callable that returns seconds as a float; the default is ``now``. With a
``ManualClock``, no thread runs: moving the clock advances the wheels.

``now`` and ``moment`` are the clock of the machine, which all its processes share, in seconds and in nanoseconds.
It counts the time during which the machine is suspended, so an entry of an hour does not survive a night. On Linux and
macOS, ``time.monotonic`` does not count it. ``core/platform.pxi`` reads the same clock. No library that freezes the
time in tests moves it.

Locks and selectors wait by a clock that stands still during a suspension. So a thread that sleeps until a time of this
clock may wake up too late, and compares the time again wherever that matters.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import lru_cache, partial
from math import isfinite
from pathlib import Path
from typing import Final, Protocol

from wheelcache.runtime.shared_objects import WeakRegistry

Clock = Callable[[], float]

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

LATEST: Final = float(1 << 40)
"""The largest time of a ``ManualClock`` in seconds: 34,865 years, at which a float still resolves a quarter of a
millisecond. At much later times, adding a period would not change the time, and a periodic job would be due forever."""


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


class Steppable(Protocol):
    """An object that a ``ManualClock`` or the wheel thread advances: ``advance(clock())`` when ``wake_at`` has come.

    Attributes:
        wake_at: the next time at which there is work, in seconds on ``clock``; inf if nothing is scheduled.
    """

    @property
    def clock(self) -> Clock: ...
    @property
    def wake_at(self) -> float: ...

    def advance(self, now: float) -> None: ...


class ManualClock:
    """A clock for tests: ``clock()`` returns the time, ``clock.advance(seconds)`` moves it.

    A move stops, in order, at every time at which one of its caches or timers has work, so a jump of an hour has the
    same effects as an hour. In a jump of years, samples of a cache's figures are taken for the last hour only.
    """

    state: Final = "not started"
    """The state of the wheel thread, which is not used here."""

    def __init__(self, now: float = 0.0) -> None:
        if not -LATEST <= now <= LATEST:
            raise ValueError(f"now must be a number of seconds from {-LATEST:.0f} to {LATEST:.0f}, not {now!r}")
        self._now = now
        self._target = now
        self._driven: WeakRegistry[Steppable] = WeakRegistry()
        self._moving = threading.Lock()
        self._mover: int | None = None

    def __call__(self) -> float:
        return self._now

    @property
    def target(self) -> float:
        """The time to which the clock is being moved; the time itself while it stands still."""
        return max(self._now, self._target)

    def attach(self, driven: Steppable) -> None:
        """Advance ``driven`` from now on. The reference to it is weak."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Do nothing: due work is done when the clock moves."""

    def advance(self, seconds: float) -> None:
        """Move the clock by ``seconds``, and do the work that falls due on the way.

        Raises:
            ValueError: ``seconds`` is negative or not finite, or the clock would show more than ``LATEST``.
            RuntimeError: called by work that this clock is advancing.
        """
        if not (seconds >= 0 and isfinite(seconds)):
            raise ValueError(f"seconds must be a finite number >= 0, not {seconds!r}")
        if self._mover == threading.get_ident():
            raise RuntimeError("a ManualClock cannot be advanced by work that it is advancing")
        if self._now + seconds > LATEST:
            raise ValueError(f"the clock shows {self._now!r}, and at most {LATEST:.0f}: it cannot move by {seconds!r}")
        with self._moving:
            self._mover = threading.get_ident()
            self._target = self._now + seconds
            try:
                self._advance(self._target)
            finally:
                # The current time, if this was interrupted.
                self._target = self._now
                self._mover = None

    def _advance(self, target: float) -> None:
        while True:
            driven = min(self._driven, key=lambda each: each.wake_at, default=None)
            if driven is None or driven.wake_at > target:
                break
            self._now = max(self._now, driven.wake_at)
            driven.advance(self._now)
        self._now = target


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
