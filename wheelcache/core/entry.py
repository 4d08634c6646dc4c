"""What the Python core keeps of a key: an entry is the timer of its own expiry."""

from __future__ import annotations

from math import inf
from secrets import token_hex
from typing import Any

from wheelcache.core.timing_wheel import Timer


class Entry(Timer):
    """A key, its value, and its two times: ``fresh_until``, and ``due``, when it expires and leaves memory.

    A new value for a key goes into the entry that is there. A reader without the lock finds it or the old one, both
    whole, since ``value`` is one reference.
    """

    __slots__ = ("fresh_until", "key", "value")

    # Made bare and filled in by the core: without an __init__ in Python a new key takes 100 ns less.
    __init__ = object.__init__

    key: Any
    value: Any
    fresh_until: float
    weight = 0


class TrackedEntry(Entry):
    """An entry of a core with weights or stamps: its weight, and what the slot of its key shows while it is current."""

    __slots__ = ("news", "slot", "stamp", "weight")

    weight: int
    slot: int
    news: int
    stamp: int


class Marker(Entry):
    """What an ordered scan has in the map while it lasts. No entry: it is never fresh, found or counted."""

    __slots__ = ()

    def __init__(self) -> None:
        # Unlike every caller's key. And a string: in a dict of strings the first other key rebuilds the table, and for
        # a million entries no other thread runs for 300 ms.
        self.key = f"marker {token_hex(16)}"
        self.value = None
        self.prev = self.next = None
        self.due = self.fresh_until = -inf
