"""Stamps that make all copies suspect when the connection that reports writes is lost."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Final


class TrustEpoch:
    """Stamps with a single slot, which contains the number of the present epoch. An entry is current during its epoch.

    An epoch lasts as long as all writes are reported to this process. Its end makes all entries suspect in one step:
    they may be old, and reads miss them. They stay in memory until they are replaced, deleted or expire, for callers
    that cannot get another value. A value that is stored after the end of the epoch in which it was read is suspect as
    well.

    Attributes:
        table: the number of the epoch, as the only slot.
        invalidations: unused, since the end of an epoch does not mean that a key was written.
        first: None, for the same reason.
        tags, writes, commits: None, since tags are dropped, and writes recorded, in this process only.
        is_notified: whether writes are reported to this process. Entries that are stored while it is False are suspect.
        is_refused: whether the store refuses to report writes.
        identity: the object itself.
    """

    __slots__ = ("_number", "invalidations", "is_notified", "is_refused", "table")

    first: Final = None
    tags: Final = None
    writes: Final = None
    commits: Final = None
    is_in_file: Final = False

    def __init__(self) -> None:
        self._number = array("Q", [1])
        self.table = memoryview(self._number)
        self.invalidations = memoryview(array("Q", [0]))
        self.is_notified = True
        self.is_refused = False

    @property
    def identity(self) -> TrustEpoch:
        return self

    def open(self) -> None:
        """Do nothing: there is no file to open."""

    def open_in_child(self) -> None:
        """Make all inherited entries suspect, in the child of a fork."""
        self.write_all()

    def is_gone(self) -> bool:
        return False

    def slot(self, key: object) -> int:
        return 0

    def begin_commit(self, slots: Iterable[int] | None) -> None:
        """Do nothing: other processes do not share these stamps."""

    def is_committing(self, slot: int) -> bool:
        return False

    def restamp(self, slot: int) -> None:
        """Do nothing: the stamps do not record writes."""

    def write_all(self) -> None:
        """End the epoch, without a lock."""
        self._number[0] += 1
