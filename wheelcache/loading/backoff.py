"""How long to leave alone what failed: longer with every failure."""

from __future__ import annotations

from collections.abc import Hashable
from random import random
from typing import Final

FIRST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds from a failure to the next try: 1, 2, 4 ... 60, each times a random number from 0.5 to 1, so that what failed
together is not tried together."""

KEYS_AT_MOST: Final = 4096
"""Failures that are remembered. The oldest are forgotten first; all that costs is an early try."""


class Backoff:
    """Which keys failed lately. The owner calls its methods under a lock of its own."""

    __slots__ = ("_failures",)

    def __init__(self) -> None:
        # How often, when last, and when the key may be tried again.
        self._failures: dict[Hashable, tuple[int, float, float]] = {}

    def is_over(self, key: Hashable, now: float) -> bool:
        """Whether ``key`` may be tried, at ``now`` seconds."""
        failure = self._failures.get(key)
        # Before it failed: a test has moved the time back.
        return failure is None or failure[2] <= now or now < failure[1]

    def failed(self, key: Hashable, now: float) -> float:
        """``key`` failed. Seconds until it may be tried again."""
        count = self._failures.pop(key, (0,))[0]
        pause = min(FIRST * 2.0**count, LONGEST) * (0.5 + random() / 2)
        if len(self._failures) >= KEYS_AT_MOST:
            del self._failures[next(iter(self._failures))]
        # No count above what LONGEST needs, or the power would overflow in the end.
        self._failures[key] = (min(count + 1, 16), now, now + pause)
        return pause

    def succeeded(self, key: Hashable) -> None:
        """``key`` did not fail."""
        if self._failures:
            self._failures.pop(key, None)

    def clear(self) -> None:
        self._failures = {}
