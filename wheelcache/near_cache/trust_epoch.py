"""Trust in a whole cache at once, in the form of a board: every entry is good as long as the epoch it was filled in.

An entry of an epoch that is over is suspect: it may be old, and is no hit. It stays until it is replaced, deleted or
expires, for a caller that has no other value. So does a value that is filled when its epoch is over already.
"""

from __future__ import annotations

from array import array
from typing import Final

SUSPECT: Final = 0
"""The number of no epoch: what is filled under it is suspect from the start."""


class Epoch:
    """A board with one slot, of one process. Ending the epoch makes every entry suspect, without touching one.

    Attributes:
        stamps: the number of the epoch, where a ``Board`` has the stamps of its keys.
        is_told: whether this process is told of writes. What is filled while it is not, is suspect.
    """

    __slots__ = ("_number", "is_told", "stamps")

    mismatch_is_a_write = False
    """An entry of another epoch is suspect, but nobody is known to have written its key."""

    def __init__(self) -> None:
        self._number = array("Q", [1])
        self.stamps = memoryview(self._number)
        self.is_told = True

    def open(self) -> None:
        """Nothing to open."""

    def open_in_child(self) -> None:
        """After a fork: what the child inherited is suspect."""
        self.write_all()

    def is_gone(self) -> bool:
        return False

    def slot(self, key: object) -> int:
        return 0

    def seen(self, slot: int) -> tuple[int, int]:
        return 0, self._number[0] if self.is_told else SUSPECT

    def touch(self, slot: int, news: int) -> int | None:
        return self._number[0]

    def write(self, slot: int) -> int:
        """A key is written, which is no matter of the others."""
        return self._number[0]

    def write_all(self) -> None:
        """End the epoch. Needs no lock."""
        self._number[0] += 1
