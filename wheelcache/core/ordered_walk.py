"""A walk through a map in order of use, oldest first, in short steps, while everybody goes on using it.

A million keys of an ``OrderedDict`` cannot be listed in one step: that takes 220 ms if they came in order and 880 if
they were used at random, and no other thread runs meanwhile. Nor can an iterator be kept from step to step: each hit
ends it. So the walk moves what it has seen from the old end of the map to the young one, like a hit, until it has been
round, and everything is in its place again.

Markers in the map tell where it is. Before ``last`` is what has its turn yet, so the walk has been round when that
is the oldest. ``young`` is behind what was moved by the last step: what is found behind it at the next one was set or
hit meanwhile. It is noted, comes when the walk has been round, and is in the end moved to the young end once more, in
its order, where it belongs.

Meanwhile the oldest entry is not where it would be without a walk, but behind ``last``. So an eviction asks the walk,
which knows in what order it moved what, and what of it was used since: eviction is exact LRU during a walk as well. So
is the order after it, except for hits within the fraction of a millisecond that a step takes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, Final, Protocol

STEP: Final = 256
"""Entries a step: 0.3 ms, of a million that were used at random."""

SHARDS: Final = 256
"""Dicts for what one would hold: when that grows past half a million, nothing else runs for 60 ms."""

SKIPS: Final = 4096
"""How many a search for the oldest passes over, as they were used or are gone, before it takes the next best."""


class Marker(Protocol):
    """Something in the map that is no entry."""

    key: Any


class OrderedWalk:
    """One walk. Every method is called under the lock that guards the map, and is given the map, which may be another
    one each time, with the same entries in the same order.

    Args:
        last, young, younger: markers, whose keys are in no map. The two others take turns.
    """

    __slots__ = (
        "_came",
        "_first_used",
        "_gone_used",
        "_gone_walked",
        "_last",
        "_places",
        "_settled",
        "_settlings",
        "_used",
        "_walked",
        "_young",
        "_younger",
    )

    def __init__(self, last: Marker, young: Marker, younger: Marker) -> None:
        self._last = last
        self._young = young
        self._younger = younger
        # The keys that were moved by the walk, in order, and how many of them a search for the oldest has passed.
        self._walked: list[Any] = []
        self._gone_walked = 0
        # The keys that were used since the walk began, in order, some of them more than once; how many of them are in
        # their places again; how many a search for the oldest has passed; and of each key the last place in here.
        self._used: list[Any] = []
        self._settled = 0
        self._gone_used = 0
        self._places: list[dict[Any, int]] = [{} for _ in range(SHARDS)]
        # The same keys, each when it was first used, and how many of them have come.
        self._first_used: list[Any] = []
        self._came = 0
        # How many more calls of ``settle`` there are; None until the walk has been round.
        self._settlings: int | None = None

    def start(self, entries: OrderedDict[Any, Any]) -> None:
        """Put the markers in."""
        # No loop and no call: all of them are there, or none, whatever exception comes from outside.
        entries[self._last.key] = self._last
        entries[self._younger.key] = self._younger
        entries[self._young.key] = self._young

    def step(self, entries: OrderedDict[Any, Any], count: int) -> list[Any]:
        """The next entries, at most ``count``, least recently used first; none when the walk has been round."""
        batch = []
        for entry in _first(count, entries.values):
            if entry is self._last:
                break
            batch.append(entry)
        keys = [entry.key for entry in batch]
        for key in keys:
            entries.move_to_end(key)
        self._note_the_used(entries, keys)
        self._walked += keys
        return batch

    def used(self, entries: OrderedDict[Any, Any], upto: int, count: int) -> list[Any]:
        """The next entries, at most ``count``, of the first ``upto`` that were used meanwhile; none if there are no
        more. Some of them were among those of ``step``."""
        self._note_the_used(entries)
        batch: list[Any] = []
        while not batch and self._came < upto:
            some = self._first_used[self._came : min(upto, self._came + count)]
            self._came += len(some)
            batch = [entries[key] for key in some if key in entries]
        return batch

    def how_many_used(self) -> int:
        """How many different keys were used since the walk began."""
        return len(self._first_used)

    def settle(self, entries: OrderedDict[Any, Any]) -> bool:
        """Move some of what was used meanwhile to where it belongs. Whether more is to be moved."""
        self._note_the_used(entries)
        moved = []
        for place in range(self._settled, min(self._settled + STEP, len(self._used))):
            key = self._used[place]
            if self._place(key) == place and key in entries:
                entries.move_to_end(key)
                moved.append(key)
            self._settled += 1
        self._note_the_used(entries, moved)
        return self._settled < len(self._used)

    def steps_to_settle(self) -> int:
        """How often ``settle`` should be called at most: twice what is to be moved by now, as more may come."""
        return 2 * (len(self._used) - self._settled) // STEP + 2

    def finish(self, entries: OrderedDict[Any, Any]) -> bool:
        """One step on the way to everything in its place, from wherever the walk is. Whether more are needed."""
        if self._settlings is None:
            if self.step(entries, STEP):
                return True
            # However much is used meanwhile, it comes to an end.
            self._settlings = self.steps_to_settle()
        self._settlings -= 1
        return self._settlings >= 0 and self.settle(entries)

    def end(self, entries: OrderedDict[Any, Any]) -> None:
        """Take the markers out."""
        # As in ``start``.
        if self._last.key in entries:
            del entries[self._last.key]
        if self._younger.key in entries:
            del entries[self._younger.key]
        if self._young.key in entries:
            del entries[self._young.key]

    def forget(self) -> bool:
        """After the end, without the lock: let go of some keys. Whether there are more: a million take 200 ms."""
        for keys in (self._walked, self._used, self._first_used):
            del keys[-STEP:]
        if self._places:
            self._places.pop()
        return bool(self._walked or self._used or self._places)

    def oldest(self, entries: OrderedDict[Any, Any]) -> Any:
        """The entry that is least recently used, of at least one. It is to be taken out."""
        self._note_the_used(entries)
        skips = SKIPS
        while self._gone_walked < len(self._walked) and skips:
            key = self._walked[self._gone_walked]
            self._gone_walked += 1
            if key in entries and self._place(key) is None:
                return entries[key]
            skips -= 1
        if (oldest := _first(1, entries.values)[0]) is not self._last:
            return oldest
        while self._gone_used < len(self._used) and skips:
            place, key = self._gone_used, self._used[self._gone_used]
            self._gone_used += 1
            if key in entries and self._place(key) == place:
                return entries[key]
            skips -= 1
        markers = (self._last, self._younger, self._young)
        return next(each for each in _first(4, entries.values) if each not in markers)

    def in_order(self, entries: OrderedDict[Any, Any]) -> list[Any]:
        """All entries, least recently used first."""
        self._note_the_used(entries)
        unwalked = list(entries.values())
        del unwalked[unwalked.index(self._last) :]
        walked = islice(self._walked, self._gone_walked, None)
        oldest = [entries[key] for key in walked if key in entries and self._place(key) is None]
        youngest = [
            entries[key] for place, key in enumerate(self._used) if key in entries and self._place(key) == place
        ]
        return [*oldest, *unwalked, *youngest]

    def _note_the_used(self, entries: OrderedDict[Any, Any], moved: Sequence[Any] = ()) -> None:
        """Put a marker behind everything, and note what is between the last one and that, but for ``moved``."""
        young, younger = self._young, self._younger
        # A hit takes no lock, so from here on there may be some behind the new marker: those are for the next time. It
        # was there before, and is moved: each that is put in anew takes a place in the dict's table, which then grows,
        # and for a million entries nothing else runs for 400 ms.
        entries.move_to_end(younger.key)
        some = len(moved) + 16
        while young.key not in (latest := _first(some, entries.__reversed__)):
            some *= 4
        used = latest[latest.index(younger.key) + 1 : latest.index(young.key)]
        if len(used) > len(moved):
            by_the_walk = set(moved)
            for key in reversed(used):
                if key not in by_the_walk:
                    self._note(key)
        # Last: if this is interrupted before, the next call notes them all.
        self._young, self._younger = younger, young

    def _note(self, key: Any) -> None:
        shard = self._shard(key)
        if key not in shard:
            self._first_used.append(key)
        shard[key] = len(self._used)
        self._used.append(key)

    def _place(self, key: Any) -> int | None:
        return self._shard(key).get(key)

    def _shard(self, key: Any) -> dict[Any, int]:
        # In a tuple, whose hash is a better one: that of an int is the int itself.
        return self._places[hash((key,)) % SHARDS]


def _first(count: int, iterate: Callable[[], Iterable[Any]]) -> list[Any]:
    """The first ones of what ``iterate`` returns an iterator of."""
    while True:
        # A hit takes no lock, and may come between the making of the iterator and the one C call that reads it.
        with suppress(RuntimeError):
            return list(islice(iterate(), count))
