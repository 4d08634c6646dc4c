"""An exact count that any thread may raise without a lock."""

from __future__ import annotations

from itertools import count


class Tally:
    """An exact count that any thread may raise without a lock.

    ``next(tally.ticks)`` adds one: a single C call, hence atomic, where ``x += 1`` on an attribute is three steps that
    threads can interleave. Reading takes a number as well, so the readings are counted and subtracted.
    """

    __slots__ = ("_readings", "ticks")

    def __init__(self) -> None:
        self.ticks = count()
        self._readings = 0

    def read(self) -> int:
        """Return the count. One reader at a time: call this under a lock."""
        # The loop runs once, and without a call: an exception from another thread is raised after calls, and the
        # reading would be counted forever.
        total = 0
        for ticks in self.ticks:
            total = ticks - self._readings
            self._readings += 1
            break
        return total
