"""A lock that a fork holds."""

from __future__ import annotations

from typing import Any


class HeldLock:
    """Takes a lock before a fork and releases it after it, whatever exception from outside falls between two lines.

    One fork is in progress at a time, so this has no lock of its own. Both methods may be called again after an
    exception interrupted them.
    """

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock: Any = None

    def hold(self, lock: Any) -> None:
        if self._lock is None:
            # The interpreter raises what comes from outside when a call has returned. ``map`` acquires after that, and
            # no call follows until the lock is noted.
            (_,) = map(lock.acquire, (True,))
            self._lock = lock

    def release(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def forget(self) -> None:
        """In the child of a fork: a new lock takes the place of the old one."""
        self._lock = None
