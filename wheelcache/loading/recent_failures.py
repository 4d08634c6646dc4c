"""The loads that failed lately: what loaders raised, by type, for an observer that asks every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from wheelcache.runtime.clock import SystemClock

TYPES: Final = 8
"""Types of exceptions that are told apart between two calls of ``take``. Further ones count together."""

OTHERS: Final = "exceptions of other types"

LONGEST: Final = 200
"""Characters of a message that are kept."""


@dataclass(slots=True)
class Failure:
    """The failures of one type.

    Attributes:
        kind: the name of the type.
        message: of one of them.
        first, last: when, in seconds since 1970.
    """

    kind: str
    message: str
    count: int
    first: float
    last: float


class RecentFailures:
    """Notes what loaders raise, in 1 us each. Only the first of its type since ``take`` is asked for its message.

    Attributes:
        on_first: called after the first one since ``take``.
    """

    __slots__ = ("_found", "_lock", "on_first")

    _found: dict[str, Failure]

    def __init__(self) -> None:
        self.on_first: Callable[[], object] | None = None
        self.start_over()

    def note(self, error: BaseException) -> None:
        """What is no Exception (a cancellation, an exit) is about the leader of the load, and is not noted."""
        if not isinstance(error, Exception):
            return
        kind = type(error).__name__[:LONGEST]
        # Not under the lock: this is the user's code.
        message = "" if kind in self._found else message_of(error)
        now = SystemClock.time()
        with self._lock:
            is_first = not self._found
            found = self._found.get(kind)
            if found is None:
                if len(self._found) >= TYPES:
                    kind, message = OTHERS, ""
                found = self._found.setdefault(kind, Failure(kind, message, 0, now, now))
            found.count += 1
            found.last = now
        if is_first and self.on_first is not None:
            self.on_first()

    def __bool__(self) -> bool:
        return bool(self._found)

    def copies(self) -> list[Failure]:
        """Those since the last call of ``take``."""
        with self._lock:
            return [replace(each) for each in self._found.values()]

    def take(self) -> list[Failure]:
        """Those since the last call."""
        with self._lock:
            found, self._found = self._found, {}
        return list(found.values())

    def start_over(self) -> None:
        """At first, and in the child of a fork: the failures, and perhaps the lock, are the parent's."""
        # The garbage collector may run a loader that fails inside it.
        self._lock = threading.RLock()
        self._found = {}


def message_of(error: Exception) -> str:
    """In one line, cut, in characters that UTF-8 has: names of files may have others."""
    try:
        message = " ".join(str(error)[: 2 * LONGEST].split())
        return message.encode("utf-8", "backslashreplace").decode()[:LONGEST]
    except Exception:
        return ""
