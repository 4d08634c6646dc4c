"""Pages that turned out not to be storable ("hit-for-miss"): requests for them do not wait for each other.

They are remembered outside the cache, so that requests for such pages evict no stored ones. Once a second, the headers
of such a response are checked. If it could be stored now, the next request stores it.
"""

from __future__ import annotations

from collections import OrderedDict
from math import inf
from typing import Final

from wheelcache.runtime.shared_objects import lazy_lock

MARKED: Final = 120.0
"""Seconds for which a page is remembered."""

LOOK_INTERVAL: Final = 1.0

MOST_MARKS: Final = 10_000

SESSION: Final = "session"
"""The reason that holds only for requests with a session. Other requests may store the page."""


class Mark:
    """A page that could not be stored.

    Attributes:
        reason: the reason, for the figures.
        until: when it is forgotten.
        next_look: when the headers of a response are looked at again.
    """

    __slots__ = ("next_look", "reason", "until")

    def __init__(self, reason: str, until: float, next_look: float) -> None:
        self.reason = reason
        self.until = until
        self.next_look = next_look

    def holds(self, *, has_session: bool) -> bool:
        """Return whether the page cannot be stored by a request."""
        return has_session or self.reason != SESSION

    def is_due(self, now: float) -> bool:
        """Return whether the headers of this response must be looked at."""
        if now < self.next_look:
            return False
        self.next_look = now + LOOK_INTERVAL
        return True


class Marks:
    """The pages that cannot be stored, by key."""

    __slots__ = ("_lock", "_marks")

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._marks: OrderedDict[str, Mark] = OrderedDict()

    def add(self, key: str, reason: str, now: float, *, is_lasting: bool) -> None:
        """Remember a page.

        Args:
            is_lasting: its headers do not show that it cannot be stored: it is too long, for instance.
        """
        with self._lock.get():
            self._marks[key] = Mark(reason, now + MARKED, inf if is_lasting else now)
            self._marks.move_to_end(key)
            if len(self._marks) > MOST_MARKS:
                self._marks.popitem(last=False)

    def get(self, key: str, now: float) -> Mark | None:
        """Return the mark of a page; None if it has none."""
        mark = self._marks.get(key)
        return mark if mark is not None and now < mark.until else None

    def remove(self, key: str) -> None:
        """Forget a page that can be stored now."""
        with self._lock.get():
            self._marks.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._lock.forget()
