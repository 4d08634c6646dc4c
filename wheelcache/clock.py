"""Time as an argument: a clock that stands still until it is told to move.

Everything in wheelcache takes ``clock``, a callable that returns seconds as a float; ``time.monotonic`` unless told
otherwise. With a ``ManualClock`` no thread runs: moving the clock is what advances the wheels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import isfinite
from typing import Final, Protocol

from wheelcache.weak_registry import WeakRegistry

Clock = Callable[[], float]

LATEST: Final = float(1 << 40)
"""Seconds that a ``ManualClock`` shows at most: 34,865 years. A float still tells a quarter of a millisecond there.
Where adding a period changes nothing any more, a periodic job would be due again and again for ever."""


class Steppable(Protocol):
    """What a ``ManualClock`` or the wheel thread advances."""

    clock: Clock
    wake_at: float

    def advance(self, now: float) -> None: ...


class ManualClock:
    """A clock for tests: ``clock()`` tells the time, ``clock.advance(seconds)`` moves it.

    Moving it stops at every time at which one of its caches or timers has something to do, in order, so a jump of an
    hour has the same effects as an hour. In a jump of years, samples of a cache's figures are taken for the last hour.
    """

    state: Final = "not started"
    """That of the wheel thread, which has nothing to do here."""

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
        """Where it is being moved to; the time, while it stands still."""
        return max(self._now, self._target)

    def attach(self, driven: Steppable) -> None:
        """Advance ``driven`` from now on. It is held weakly."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Nothing to wake: work that became due is done when the clock moves."""

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds`` and do what falls due on the way.

        Raises:
            ValueError: ``seconds`` is negative or not finite, or the clock would show more than ``LATEST``.
            RuntimeError: called by something that this clock's moving set off.
        """
        if not (seconds >= 0 and isfinite(seconds)):
            raise ValueError(f"seconds must be a finite number >= 0, not {seconds!r}")
        if self._mover == threading.get_ident():
            raise RuntimeError("a ManualClock cannot be advanced by what it advances")
        if self._now + seconds > LATEST:
            raise ValueError(f"the clock shows {self._now!r}, and at most {LATEST:.0f}: it cannot move by {seconds!r}")
        with self._moving:
            self._mover = threading.get_ident()
            self._target = self._now + seconds
            try:
                self._advance(self._target)
            finally:
                # Where it stands now, if it was interrupted.
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
