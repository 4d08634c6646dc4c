"""Decides when a key may be loaded again after a failure."""

from __future__ import annotations

from collections.abc import Hashable
from contextlib import suppress
from random import SystemRandom
from typing import Final

random: Final = SystemRandom().random
"""Not the generator that the application may have seeded."""

FIRST: Final = 1.0
LONGEST_PAUSE: Final = 60.0
"""Seconds from a failure to the next try: 1, 2, 4 ... 60, each times a random number from 0.5 to 1, so that keys that
failed together are not tried together."""

KEYS_AT_MOST: Final = 4096
"""The number of failed keys to remember. The oldest are forgotten first and may then be tried too early."""


class Backoff:
    """The keys that failed recently.

    Attributes:
        failures: for each key, the number of failures, the time of the last one, and the time of the next try.
    """

    def __init__(self) -> None:
        self.failures: dict[Hashable, tuple[int, float, float]] = {}

    def is_over(self, key: Hashable, now: float) -> bool:
        """Return whether ``key`` may be loaded again at the time ``now``, in seconds."""
        failure = self.failures.get(key)
        # If ``now`` is before the failure, a test has moved the time back.
        return failure is None or failure[2] <= now or now < failure[1]

    def failed(self, key: Hashable, now: float) -> float:
        """Record a failure of ``key``. Return the seconds until it may be tried again."""
        count = self.failures.pop(key, (0,))[0]
        pause = min(FIRST * 2.0**count, LONGEST_PAUSE) * (0.5 + random() / 2)
        while len(self.failures) >= KEYS_AT_MOST:
            # Another thread may remove the same key.
            with suppress(KeyError, RuntimeError, StopIteration):
                del self.failures[next(iter(self.failures))]
        # A count of 16 is more than LONGEST_PAUSE needs. Without a limit, the power would eventually overflow.
        self.failures[key] = (min(count + 1, 16), now, now + pause)
        return pause

    def succeeded(self, key: Hashable) -> None:
        """Forget the failures of ``key``."""
        self.failures.pop(key, None)

    def clear(self) -> None:
        self.failures = {}
