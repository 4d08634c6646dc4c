"""The outages of the store behind a near cache, for an observer that asks every few seconds."""

from __future__ import annotations

import threading

from wheelcache.engine.failures import MAX_LENGTH, Failure, message_of


class Outages:
    """Records the failed calls of a store in this process until ``take`` returns them, in 1 us each.

    An outage begins with a failed call and ends with the next call that succeeds. The records of an outage have its
    beginning in common, so that an observer can join them even if there were no calls for a while. Times are in seconds
    since 1970.

    Attributes:
        began: the time of the first failed call since the last one that succeeded; None if the last one succeeded.
    """

    __slots__ = ("_found", "_lock", "began")

    began: float | None
    _found: Failure | None

    def __init__(self) -> None:
        self.start_over()

    def failed(self, error: Exception, now: float) -> None:
        """Record a call that failed because of the store."""
        # Not under the lock: this is the client's code.
        message = message_of(error) if self._found is None else ""
        with self._lock:
            if self.began is None:
                self.began = now
            if self._found is None:
                self._found = Failure(type(error).__name__[:MAX_LENGTH], message, 0, self.began, now)
            self._found.count += 1
            self._found.last = now

    def succeeded(self, now: float) -> None:
        """Record a call that succeeded."""
        if self.began is None:
            return
        with self._lock:
            began, self.began = self.began, None
            if began is not None:
                self._found = self._found or Failure("", "", 0, began, now)
                self._found.last = now

    def take(self) -> Failure | None:
        """Return the failures since the last call, and forget them. The count is 0 if the outage has only ended. Return
        None if there is nothing new."""
        if self._found is None:
            return None
        with self._lock:
            found, self._found = self._found, None
        return found

    def start_over(self) -> None:
        """Forget everything. The child of a fork calls this, too: the outage, and perhaps the lock, are the
        parent's."""
        # Re-entrant, since the garbage collector may run code that calls the store while the lock is held.
        self._lock = threading.RLock()
        self.began = None
        self._found = None
