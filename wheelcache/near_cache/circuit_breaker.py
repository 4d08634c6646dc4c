"""A circuit breaker: what fails again and again is left alone for a while, so that no caller waits for it.

The pattern is Michael Nygard's ("Release It!"): closed, everything goes through; after ``FAILURES`` in a row open,
nothing does; and every now and then one call goes through to see whether it may be closed again.
"""

from __future__ import annotations

from typing import Final

FAILURES: Final = 3
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds until the next try, doubled with every one that fails."""


class CircuitBreaker:
    """Whether to try. Its owner tells the time, in seconds; it may be called by any thread.

    Threads that meet may count a failure too few, or let two tries through; no lock is worth sparing that.
    """

    __slots__ = ("_failures", "_next_try", "_pause")

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._next_try = 0.0

    def is_open(self) -> bool:
        return self._failures >= FAILURES

    def allows(self, now: float) -> bool:
        """Whether to try now."""
        if not self.is_open():
            return True
        if now < self._next_try:
            return False
        # This one is the try; the others go on as before.
        self._next_try = now + self._pause
        return True

    def failed(self, now: float) -> bool:
        """A try failed. Whether that opened the circuit."""
        was_open = self.is_open()
        self._failures += 1
        if not self.is_open():
            return False
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if was_open else FIRST_PAUSE
        self._next_try = now + self._pause
        return not was_open

    def succeeded(self) -> bool:
        """A try succeeded. Whether that closed the circuit."""
        was_open = self.is_open()
        self._failures = 0
        return was_open
