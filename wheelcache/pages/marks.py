"""Facts about pages that are kept outside the cache, so that they evict no stored pages.

A page that could not be stored has a *mark* ("hit-for-miss"), so that requests for it do not wait for each other. Once
a second, the response of one request for a marked page may be stored after all, which removes the mark.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass
from math import inf
from typing import Final, Generic, TypeVar

from wheelcache.pages.reasons import Refusal
from wheelcache.pages.variants import cookies

T = TypeVar("T")

MARK_SECONDS: Final = 120.0
"""Seconds for which a page is remembered."""

LOOK_INTERVAL: Final = 1.0

MOST_PAGES: Final = 4096
"""With keys of at most 250 characters, they take 3 MB."""


class Facts(Generic[T]):
    """A fact about each of some pages. Beyond ``MOST_PAGES``, the oldest fact is forgotten.

    Attributes:
        find: a function: ``find(key)`` returns the fact about the page with this key, or None.
    """

    __slots__ = ("_facts", "_lock", "find")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._facts: OrderedDict[str, T] = OrderedDict()
        self.find = self._facts.get

    def add(self, key: str, fact: T) -> None:
        with self._lock:
            self._facts[key] = fact
            self._facts.move_to_end(key)
            if len(self._facts) > MOST_PAGES:
                self._facts.popitem(last=False)

    def remove(self, key: str) -> None:
        if key in self._facts:
            with self._lock:
                self._facts.pop(key, None)

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()


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


def new_mark(refusal: Refusal, now: float, *, is_lasting: bool, view: str | None = None) -> Mark:
    """Return a mark.

    Args:
        view: see ``Mark``.
        is_lasting: whether the headers of a response cannot show that it is storable, for example because the page was
            too long. No other response is then recorded.
    """
    return Mark(refusal, now + MARK_SECONDS, inf if is_lasting else now, view)
