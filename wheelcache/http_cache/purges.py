"""Remembers recent purges, since a run that began before the purge of its page must not store the page."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

MOST_PURGES: Final = 10_000


class Purges:
    """The recent purges. Purges are numbered, and each key has the number of its last purge.

    Attributes:
        number: the number of the last purge of any key. A run remembers it when it begins.
    """

    __slots__ = ("_by_key", "_of_all", "number")

    def __init__(self) -> None:
        self.number = 0
        self._by_key: OrderedDict[str, int] = OrderedDict()
        self._of_all = 0

    def note(self, key: str) -> None:
        """Record the purge of a page. The caller holds a lock."""
        self.number += 1
        self._by_key[key] = self.number
        self._by_key.move_to_end(key)
        if len(self._by_key) > MOST_PURGES:
            # As if it had been a purge of all: some page is not stored that could be.
            self._of_all = self._by_key.popitem(last=False)[1]

    def note_all(self) -> None:
        """Record a purge of all pages."""
        self.number += 1
        self._of_all = self.number

    def is_outdated(self, key: str, number: int) -> bool:
        """Return whether a page was purged after the purge with this number."""
        return self._of_all > number or self._by_key.get(key, 0) > number
