"""Why look-ups miss: the causes for which recent entries left.

A key that leaves overwrites one of ``MOST_GONE`` slots of 4 bytes, or of as many as there are places for entries. The
compiled core remembers more keys, and has a second table, which goes back further: see ``misses.pxi``.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable
from math import inf
from typing import Final

from wheelcache.core.contract import MissCause, RemovalCause

PLACES: Final = {cause: place for place, cause in enumerate(MissCause)}
NEW: Final = PLACES[MissCause.NEW]
NOT_STORED: Final = PLACES[MissCause.NOT_STORED]

OF_REMOVALS: Final = {
    RemovalCause.EXPIRED: PLACES[MissCause.EXPIRED],
    RemovalCause.EVICTED: PLACES[MissCause.EVICTED],
    RemovalCause.REPLACED: NOT_STORED,
    RemovalCause.DELETED: PLACES[MissCause.DELETED],
    RemovalCause.CLEARED: PLACES[MissCause.CLEARED],
}
"""The causes of misses by those of removals. A value that replaces an entry without an entry was refused."""

MOST_GONE: Final = 2**16
GONE_WITHOUT_BOUND: Final = 1024
"""The slots of a core without ``max_entries``."""

FEWEST: Final = 8
CAUSE: Final = 7
"""The bits of a slot with the cause and one more; 0 if the slot is free. The others identify the key."""
MIX: Final = 0x9E3779B97F4A7C15
WORD: Final = 2**64 - 1
HALF: Final = 2**32 - 1


class Past:
    """The causes for which the last keys left. A core calls every method under its lock.

    Args:
        max_entries: the largest number of entries; inf without a bound.
    """

    __slots__ = ("_slots",)

    def __init__(self, max_entries: float) -> None:
        most = GONE_WITHOUT_BOUND if max_entries == inf else max(min(int(max_entries), MOST_GONE), FEWEST)
        self._slots = array("I", bytes(4 * most))

    def note(self, key: Hashable, cause: int) -> None:
        """Note why there is no entry of ``key``."""
        number = hash(key) * MIX & WORD
        slots = self._slots
        slots[(number >> 32) * len(slots) >> 32] = number & HALF & ~CAUSE | cause + 1

    def cause(self, key: Hashable) -> int:
        """Return the cause for which ``key`` left; NEW if it is not known."""
        number = hash(key) * MIX & WORD
        slots = self._slots
        slot = slots[(number >> 32) * len(slots) >> 32]
        return (slot & CAUSE) - 1 if slot & CAUSE and (slot ^ number) & HALF & ~CAUSE == 0 else NEW
