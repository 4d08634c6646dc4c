"""The recent exceptions of loaders, by type, for an observer that asks every few seconds."""

from __future__ import annotations

import threading
from typing import Final

from wheelcache.engine.failures import MAX_LENGTH, Failure, message_of
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.event_log import MAX_GROUPS

TYPES: Final = 8
"""The most types of exceptions that are counted separately between two calls of ``take``; others count together."""

OTHERS: Final = "exceptions of other types"


class RecentFailures:
    """Records the exceptions of loaders, in 1 us each, until ``take`` returns them. Only the first exception of a type
    is asked for its message.
    """

    _found: dict[str, Failure]

    def __init__(self) -> None:
        self.start_over()

    def note(self, error: Exception, group: str) -> None:
        kind = type(error).__name__[:MAX_LENGTH]
        # Not under the lock: this is the user's code.
        message = "" if kind in self._found else message_of(error)
        now = SystemClock.time()
        with self._lock:
            found = self._found.get(kind)
            if found is None:
                if len(self._found) >= TYPES:
                    kind, message = OTHERS, ""
                found = self._found.setdefault(kind, Failure(kind, message, 0, now, now))
            found.count += 1
            found.last = now
            if group and group not in found.groups and len(found.groups) < MAX_GROUPS:
                found.groups.append(group)

    def __bool__(self) -> bool:
        return bool(self._found)

    def take(self) -> list[Failure]:
        """Return the failures since the last call, and forget them."""
        with self._lock:
            found, self._found = self._found, {}
        return list(found.values())

    def start_over(self) -> None:
        """Forget everything. The child of a fork calls this, too: the failures, and perhaps the lock, are the
        parent's."""
        # Re-entrant, since the garbage collector may run a failing loader while the lock is held.
        self._lock = threading.RLock()
        self._found = {}
