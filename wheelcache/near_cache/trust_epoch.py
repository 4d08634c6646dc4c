"""Trust in all entries of a cache, in the form of stamps: an entry is current during the epoch in which it was stored.

After the end of its epoch an entry is suspect: it may be old, and reads miss it. It stays until it is replaced, deleted
or expires, for a caller that cannot get another value. The same holds for a value that is stored after its epoch ended.
"""

from __future__ import annotations

from array import array
from typing import Final


class TrustEpoch:
    """The stamps of one process, with a single slot. The end of an epoch makes all entries suspect in one step.

    Attributes:
        table: the number of the epoch.
        news: unused, since a mismatch does not mean that the key was written.
        first: None, for the same reason.
        tags: None, since tags are dropped in this process only.
        is_told: whether writes are reported to this process. Entries that are stored while it is False are suspect.
    """

    __slots__ = ("_number", "is_told", "news", "table")

    first: Final = None
    tags: Final = None

    def __init__(self) -> None:
        self._number = array("Q", [1])
        self.table = memoryview(self._number)
        self.news = memoryview(array("Q", [0]))
        self.is_told = True

    def open(self) -> None:
        """Do nothing: there is no file to open."""

    def open_in_child(self) -> None:
        """Make the entries suspect that the child of a fork has inherited."""
        self.write_all()

    def is_gone(self) -> bool:
        return False

    def slot(self, key: object) -> int:
        return 0

    def write_all(self) -> None:
        """End the epoch, without a lock."""
        self._number[0] += 1
