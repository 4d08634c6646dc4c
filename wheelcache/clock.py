"""Time as an argument: a clock that stands still until it is told to move.

Everything in wheelcache takes ``clock``, a callable that returns seconds as a float; ``time.monotonic`` unless told
otherwise. With a ``ManualClock`` no thread runs: moving the clock is what advances the wheels.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import inf, isfinite
from typing import Protocol

from wheelcache.weak_registry import WeakRegistry

Clock = Callable[[], float]


class Driven(Protocol):
    """What a clock or the wheel thread drives: something with timers."""

    clock: Clock
    wake_at: float

    def advance(self, now: float) -> None:
        """Do a bounded amount of the work that is due at ``now``, and set ``wake_at``."""


class ManualClock:
    """A clock for tests: ``clock()`` tells the time, ``clock.advance(seconds)`` moves it.

    Moving it stops at every time at which one of its caches or timers has something to do, in order, so a jump of an
    hour has the same effects as an hour.
    """

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._driven: WeakRegistry[Driven] = WeakRegistry()
        self._moving = threading.Lock()

    def __call__(self) -> float:
        return self._now

    def attach(self, driven: Driven) -> None:
        """Advance ``driven`` from now on. It is held weakly."""
        self._driven.add(driven)

    def wake(self) -> None:
        """Nothing to wake: work that became due is done when the clock moves."""

    def advance(self, seconds: float) -> None:
        """Move on by ``seconds`` and do what falls due on the way.

        Raises:
            ValueError: ``seconds`` is negative or not finite.
        """
        if not (seconds >= 0 and isfinite(seconds)):
            raise ValueError(f"seconds must be a finite number >= 0, not {seconds!r}")
        with self._moving:
            target = self._now + seconds
            while True:
                driven = min(self._driven, key=lambda each: each.wake_at, default=None)
                wake_at = inf if driven is None else driven.wake_at
                if driven is None or wake_at > target:
                    break
                self._now = max(self._now, wake_at)
                driven.advance(self._now)
            self._now = target
