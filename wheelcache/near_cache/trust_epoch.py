"""Trust in a whole cache at once, in the form of stamps: every entry is good as long as the epoch it was stored in.

An entry of an epoch that is over is suspect: it may be old, and is no hit. It stays until it is replaced, deleted or
expires, for a caller that has no other value. So does a value that is stored when its epoch is over already.
"""

from __future__ import annotations

from array import array
from typing import Final


class TrustEpoch:
    """Stamps with one slot, of one process. Ending the epoch makes every entry suspect, without touching one.

    Attributes:
        table: the number of the epoch.
        news: nothing, since a mismatch tells of no write.
        first: None, for the same reason.
        is_told: this process is told of writes. What is stored while it is not, is suspect.
    """

    __slots__ = ("_number", "is_told", "news", "table")

    first: Final = None

    def __init__(self) -> None:
        self._number = array("Q", [1])
        self.table = memoryview(self._number)
        self.news = memoryview(array("Q", [0]))
        self.is_told = True

    def open(self) -> None:
        """There is nothing to open."""

    def open_in_child(self) -> None:
        """After a fork: what the child inherited is suspect."""
        self.write_all()

    def is_gone(self) -> bool:
        return False

    def slot(self, key: object) -> int:
        return 0

    def write_all(self) -> None:
        """End the epoch. It takes no lock."""
        self._number[0] += 1
