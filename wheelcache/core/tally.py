"""An exact count that any thread may increase without a lock."""

from __future__ import annotations

from itertools import count


class Tally:
    """An exact count that any thread may increase without a lock.

    ``next(tally.ticks)`` adds one. It is a single C call and therefore atomic, whereas ``x += 1`` on an attribute is
    three steps that threads can interleave. Reading also advances the iterator, so readings are counted and subtracted.
    """

    __slots__ = ("_readings", "ticks")

    def __init__(self) -> None:
        self.ticks = count()
        self._readings = 0

    def read(self) -> int:
        """Return the count. Call this under a lock: only one thread may read at a time."""
        # The loop runs once and makes no call. An asynchronous exception is raised after calls; between the two lines,
        # it would leave the reading in the count forever.
        total = 0
        for ticks in self.ticks:
            total = ticks - self._readings
            self._readings += 1
            break
        return total
