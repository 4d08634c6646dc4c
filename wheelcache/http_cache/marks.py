"""Pages that turned out not to be storable ("hit-for-miss"): requests for them do not wait for each other.

They are remembered outside the cache, so that requests for such pages evict no stored ones.
"""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final

from wheelcache.runtime.lazy import lazy_lock

MARKED: Final = 120.0
"""Seconds for which a page is remembered."""

MOST_MARKS: Final = 10_000


class Mark(Enum):
    """The part of a response that showed that it cannot be stored."""

    HEADERS = "headers"
    BODY = "body"


MARKED_BY_HEADERS: Final = Mark.HEADERS
"""The next response may have other headers, which are looked at."""

MARKED_BY_BODY: Final = Mark.BODY
"""For instance, the body was too long. Its headers do not show that."""


class Marks:
    """The pages that cannot be stored, by key."""

    __slots__ = ("_lock", "_marks")

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._marks: OrderedDict[str, tuple[Mark, float]] = OrderedDict()

    def add(self, key: str, mark: Mark, now: float) -> None:
        with self._lock.get():
            self._marks[key] = mark, now + MARKED
            self._marks.move_to_end(key)
            if len(self._marks) > MOST_MARKS:
                self._marks.popitem(last=False)

    def get(self, key: str, now: float) -> Mark | None:
        """Return the mark of a page; None if it has none."""
        found = self._marks.get(key)
        return found[0] if found is not None and now < found[1] else None

    def remove(self, key: str) -> None:
        """Remove the mark of a page that can be stored now."""
        with self._lock.get():
            self._marks.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._lock.forget()
