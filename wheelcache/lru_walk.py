"""A walk through a map in order of use, oldest first, in short steps, while everybody goes on using it.

A million keys of an ``OrderedDict`` cannot be listed in one step: that takes 220 ms if they came in order and 880 if
they were used at random, and no other thread runs meanwhile. Nor can an iterator be kept from step to step: each hit
ends it. So the walk moves what it has seen from the old end of the map to the young one, like a hit, until it has been
round, and everything is in its place again.

Two markers in the map tell where it is. Before ``last`` is what was there at first, so the walk has been round when
that is the oldest. ``young`` is put behind each batch that was moved: what is found behind it at the next step was set
or hit meanwhile. That is noted, and in the end moved to the young end once more, in its order, where it belongs.

What is oldest is what it would be without a walk, so the right ones are evicted meanwhile. The order after a walk is
exact as well, except for hits within the fraction of a millisecond that a step takes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Protocol

STEP: Final = 256
"""Entries a step: 0.5 ms, if they were used at random."""


class Marker(Protocol):
    """Something in the map that is no entry."""

    key: Any


class LruWalk:
    """One walk. Every method is called under the lock that guards the map, and is given the map, which may be another
    one each time, with the same entries in the same order.

    Args:
        last, young: markers, whose keys are in no map.
    """

    __slots__ = ("_last", "_touched", "_young")

    def __init__(self, last: Marker, young: Marker) -> None:
        self._last = last
        self._young = young
        # The keys that were used since the walk began, in order, some of them more than once: a dict would hold each
        # once, but when that grows past half a million, nothing else runs for 60 ms.
        self._touched: deque[Any] = deque()

    def start(self, entries: OrderedDict[Any, Any]) -> None:
        """Put the markers in."""
        for marker in (self._last, self._young):
            entries[marker.key] = marker

    def step(self, entries: OrderedDict[Any, Any]) -> list[Any]:
        """The next entries, at most 256, oldest first; none when there are no more."""
        self._note_the_touched(entries)
        batch = []
        for entry in _first(STEP, entries.values):
            if entry is self._last or entry is self._young:
                # Round. Or ``last`` was evicted, with all that was there before it.
                break
            batch.append(entry)
        if self._last.key not in entries:
            return []
        for entry in batch:
            entries.move_to_end(entry.key)
        self._put_young_last(entries)
        return batch

    def settle(self, entries: OrderedDict[Any, Any]) -> bool:
        """Move some of what was used meanwhile to where it belongs. Whether more is to be moved."""
        self._note_the_touched(entries)
        for _ in range(min(STEP, len(self._touched))):
            key = self._touched.popleft()
            if key in entries:
                entries.move_to_end(key)
        self._put_young_last(entries)
        return bool(self._touched)

    def steps_to_settle(self) -> int:
        """How often ``settle`` should be called at most: twice what is to be moved by now, as more may come."""
        return 2 * len(self._touched) // STEP + 2

    def end(self, entries: OrderedDict[Any, Any]) -> None:
        """Take the markers out."""
        for marker in (self._last, self._young):
            entries.pop(marker.key, None)

    def markers_in(self, entries: OrderedDict[Any, Any]) -> int:
        """How many of the map are no entries."""
        return (self._last.key in entries) + (self._young.key in entries)

    def _note_the_touched(self, entries: OrderedDict[Any, Any]) -> None:
        if self._young.key not in entries:
            # Evicted, with all that was there before it: what is left was used in this order anyhow.
            self._touched.clear()
            return
        some = STEP
        while True:
            latest = _first(some, entries.__reversed__)
            if self._young.key in latest:
                break
            some *= 4
        touched = latest[: latest.index(self._young.key)]
        self._touched.extend(reversed(touched))

    def _put_young_last(self, entries: OrderedDict[Any, Any]) -> None:
        entries[self._young.key] = self._young
        entries.move_to_end(self._young.key)


def _first(count: int, iterate: Callable[[], Iterable[Any]]) -> list[Any]:
    """The first ones of what ``iterate`` returns an iterator of."""
    while True:
        # A hit takes no lock, and may come between the making of the iterator and the one C call that reads it.
        with suppress(RuntimeError):
            return list(islice(iterate(), count))
