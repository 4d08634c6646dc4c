"""Remembers pages that could not be stored ("hit-for-miss"), so that requests for them do not wait for each other.

Such a page has a *mark*. Marks are kept outside the cache, so that they evict no stored pages. Once a second, the cache
checks the headers of another response of a marked page. If this response could be stored, the mark is removed, and the
next request stores its response.
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
    """The mark of a page that could not be stored.

    Attributes:
        reason: why it could not be stored, for the figures.
        until: the time at which the mark is forgotten.
        next_look: the time from which the headers of another response are checked.
    """

    __slots__ = ("next_look", "reason", "until")

    def __init__(self, reason: str, until: float, next_look: float) -> None:
        self.reason = reason
        self.until = until
        self.next_look = next_look

    def holds(self, *, has_session: bool) -> bool:
        """Return whether the mark applies to a request, which has a session or not."""
        return has_session or self.reason != SESSION

    def is_due(self, now: float) -> bool:
        """Return whether to check the headers of this response. The next check is due a second later."""
        if now < self.next_look:
            return False
        self.next_look = now + LOOK_INTERVAL
        return True


class Marks:
    """The marks, by the key of their page."""

    __slots__ = ("_lock", "_marks")

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._marks: OrderedDict[str, Mark] = OrderedDict()

    def add(self, key: str, reason: str, now: float, *, is_lasting: bool) -> None:
        """Mark a page.

        Args:
            is_lasting: whether the headers of a response cannot show that it is storable, for example because the page
                was too long. They are then not checked.
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
        """Remove the mark of a page that can be stored now."""
        with self._lock.get():
            self._marks.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._lock.forget()
