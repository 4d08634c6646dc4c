"""The uses of keys that left a cache or a miniature, in sets of 8 slots of 4 bytes.

A set is in the order of departure. A new key replaces the one with the fewest uses, of several the one that left first,
so a flood of keys that are used once replaces only its own kind. Keys are given by 64 bits that nobody can choose.
"""

from __future__ import annotations

from array import array
from typing import Final

WAYS: Final = 8
EPOCHS: Final = 16
NAME: Final = 0xFFFFF000
"""The bits of a slot that identify a key. Then follow 4 bits of epoch, and 4 bits of uses."""


def aged(uses: int, epoch: int, now: int) -> int:
    """Return a number of uses that was noted in an epoch, halved for each epoch since."""
    return uses >> ((now - epoch) % EPOCHS)


class Departed:
    """See the module.

    Args:
        keys: the number of keys, which is rounded up to full sets.
    """

    __slots__ = ("_sets", "_slots")

    def __init__(self, keys: int) -> None:
        self._sets = -(-keys // WAYS)
        self._slots = array("I", bytes(4 * WAYS * self._sets))

    def _start(self, spread: int) -> int:
        return WAYS * ((spread & 0xFFFFFFFF) * self._sets >> 32)

    def uses(self, spread: int, epoch: int) -> int:
        """Return the uses of a key when it left, aged; 0 if they are not known."""
        start, name = self._start(spread), spread >> 32 << 12 & NAME
        for slot in self._slots[start : start + WAYS]:
            if slot and slot & NAME == name:
                return aged(slot & 15, slot >> 4 & 15, epoch)
        return 0

    def note(self, spread: int, uses: int, epoch: int) -> None:
        """Note the uses of a key that leaves."""
        start, name = self._start(spread), spread >> 32 << 12 & NAME
        ways = self._slots[start : start + WAYS].tolist()
        names = [slot & NAME for slot in ways]
        if name in names:
            replaced = names.index(name)
        else:
            replaced = min(range(WAYS), key=lambda way: (aged(ways[way] & 15, ways[way] >> 4 & 15, epoch), -way))
        del ways[replaced]
        ways.insert(0, name | epoch % EPOCHS << 4 | uses)
        self._slots[start : start + WAYS] = array("I", ways)
