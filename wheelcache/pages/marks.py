"""Remembers pages that could not be stored ("hit-for-miss"), so that requests for them do not wait for each other.

Such a page has a *mark*. Marks are kept outside the cache, so that they evict no stored pages. Once a second, the
response of one request for a marked page may be stored after all, which removes the mark.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import Final

from wheelcache.engine.runtime.shared_objects import lazy_lock
from wheelcache.pages.reasons import Refusal
from wheelcache.pages.variants import cookies

MARK_SECONDS: Final = 120.0
"""Seconds for which a page is remembered."""

LOOK_INTERVAL: Final = 1.0

MOST_MARKS: Final = 4096
"""With keys of at most 250 characters, they take 3 MB."""


@dataclass(eq=False, slots=True)
class Mark:
    """The mark of a page that could not be stored.

    Attributes:
        refusal: why it could not be stored.
        until: the time at which the mark is forgotten.
        next_look: the time from which another response may be stored.
        view: the view that made the page; None if it is unknown.
    """

    refusal: Refusal
    until: float
    next_look: float
    view: str | None = None

    def concerns(self, header: bytes | None) -> bool:
        """Return whether it is for a request with this Cookie header."""
        cookie = self.refusal.cookie
        return cookie is None or (header is not None and cookie in (cookies(header) or ()))

    def is_due(self, now: float) -> bool:
        """Return whether this response may be stored. The next one may be a second later."""
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

    def add(self, key: str, refusal: Refusal, now: float, *, is_lasting: bool, view: str | None = None) -> None:
        """Mark a page.

        Args:
            view: see ``Mark``.
            is_lasting: whether the headers of a response cannot show that it is storable, for example because the page
                was too long. No other response is then recorded.
        """
        with self._lock.get():
            self._marks[key] = Mark(refusal, now + MARK_SECONDS, inf if is_lasting else now, view)
            self._marks.move_to_end(key)
            if len(self._marks) > MOST_MARKS:
                self._marks.popitem(last=False)

    def get(self, key: str, now: float) -> Mark | None:
        """Return the mark of a page; None if it has none."""
        mark = self._marks.get(key)
        return mark if mark is not None and now < mark.until else None

    def remove(self, key: str) -> None:
        """Remove the mark of a page that was stored."""
        if key in self._marks:
            with self._lock.get():
                self._marks.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._lock.forget()
