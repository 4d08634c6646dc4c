"""A circuit breaker: after repeated failures, calls are not made for a while, so that no caller waits for them.

The pattern is Michael Nygard's ("Release It!"). A closed breaker lets every call through. After ``FAILURES`` failures
in a row it opens and lets no call through, except for an occasional try that shows whether the breaker can close again.
"""

from __future__ import annotations

from typing import Final

FAILURES: Final = 3
FIRST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 5.0
"""Seconds until the next try, doubled after every try that fails."""


class CircuitBreaker:
    """Decides whether to make a call. The owner passes the time in seconds. Any thread may call the methods.

    Concurrent threads may count one failure too few or let two tries through. Avoiding that is not worth a lock.
    """

    __slots__ = ("_failures", "_next_try", "_pause")

    def __init__(self) -> None:
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._next_try = 0.0

    def is_open(self) -> bool:
        """Return whether calls are refused, except for an occasional try."""
        return self._failures >= FAILURES

    def allows(self, now: float) -> bool:
        """Return whether to make a call now."""
        if not self.is_open():
            return True
        if now < self._next_try:
            return False
        # This call is the try. Other calls are still refused.
        self._next_try = now + self._pause
        return True

    def failed(self, now: float) -> bool:
        """Record a failure. Return whether it opened the breaker."""
        was_open = self.is_open()
        self._failures += 1
        if not self.is_open():
            return False
        self._pause = min(self._pause * 2, LONGEST_PAUSE) if was_open else FIRST_PAUSE
        self._next_try = now + self._pause
        return not was_open

    def succeeded(self) -> bool:
        """Record a success. Return whether it closed the breaker."""
        was_open = self.is_open()
        self._failures = 0
        return was_open
