"""The walks over a Python core's entries: in order of use, and in any order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any, Final, Protocol
from weakref import ref

from wheelcache.core.contract import Record, Times
from wheelcache.core.entry import Marker
from wheelcache.core.entry_map import EntryMap
from wheelcache.core.ordered_walk import OrderedWalk


class Step(Protocol):
    """Call ``function()`` in one step of the core, and return what it returned."""

    def __call__(self, function: Callable[[], Any], passes_gate: bool = False) -> Any: ...


class KeyScan:
    """A walk over keys that were copied in one step, which for a million takes 10 ms."""

    __slots__ = ("_keys", "_scans")

    def __init__(self, scans: Scans, keys: list[Any]) -> None:
        self._scans = scans
        self._keys = iter(keys)

    def step(self, count: int) -> list[Record]:
        # Keys whose entries have left are passed over: an empty list would mean the end.
        while some := list(islice(self._keys, count)):
            if records := self._scans.records_of(some):
                return records
        return []

    def keys(self, count: int) -> list[Any]:
        return list(islice(self._keys, count))

    def close(self) -> None:
        self._keys = iter(())


class OrderedScan:
    """A walk in order of use: see ``ordered_walk``. What is used meanwhile comes at the end, perhaps a second time."""

    __slots__ = ("__weakref__", "_scans", "_upto", "_walk")

    def __init__(self, scans: Scans, walk: OrderedWalk) -> None:
        self._scans = scans
        self._walk = walk
        self._upto: int | None = None

    def step(self, count: int) -> list[Record]:
        walk, records = self._walk, []
        if self._upto is None:
            records = self._scans.walked(walk, lambda entries: walk.step(entries, count))
            if not records:
                # No more than these, or readers could keep the walk going.
                self._upto = walk.how_many_used()
        if self._upto is not None:
            upto = self._upto
            records = self._scans.walked(walk, lambda entries: walk.used(entries, upto, count))
        if not records:
            self.close()
        return records

    def keys(self, count: int) -> list[Any]:
        return [record.key for record in self.step(count)]

    def close(self) -> None:
        """Put everything in its place again, in steps."""
        self._scans.end(self._walk)


class Scans:
    """The scans of one core.

    Args:
        entries: what is walked through.
        step: runs a function under the core's lock.
    """

    __slots__ = ("_map", "_scan", "_step")

    def __init__(self, entries: EntryMap, step: Step) -> None:
        self._map = entries
        self._step = step
        # The ordered scan in progress, for as long as a caller has it.
        self._scan: Callable[[], OrderedScan | None] = _no_scan

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller dropped an ordered scan that is not at its end."""
        return self._map.walk is not None and self._scan() is None

    def in_any_order(self) -> KeyScan:
        return KeyScan(self, self._step(lambda: list(dict.keys(self._map.entries))))

    def sample(self, share: float, count: int) -> list[Record]:
        """The entries that come after this share of all, and then the first."""

        def found() -> list[Any]:
            entries = dict.values(self._map.entries)
            start, most = int(share * len(entries)), max(0, min(count, len(entries)))
            beside = list(islice(entries, start, start + most))
            return beside + list(islice(entries, min(start, most - len(beside))))

        return self._records(found)

    def in_order(self) -> OrderedScan:
        scan: OrderedScan = self._step(self._begin)
        return scan

    def _begin(self) -> OrderedScan:
        if self._map.walk is not None:
            if not self.is_abandoned:
                raise RuntimeError("an ordered scan of this core is in progress")
            self.end(self._map.walk)
        walk = OrderedWalk(Marker(), Marker(), Marker())
        scan = OrderedScan(self, walk)
        self._scan = ref(scan)
        walk.start(self._map.entries)
        self._map.walk = walk
        return scan

    def records_of(self, keys: list[Any]) -> list[Record]:
        """The entries of those keys that are there."""
        entries = self._map.entries
        return self._records(lambda: [entries[key] for key in keys if key in entries])

    def walked(self, walk: OrderedWalk, function: Callable[[Any], list[Any]]) -> list[Record]:
        """The entries that ``function(entries)`` returns; none if ``clear`` has ended the walk."""
        return self._records(lambda: function(self._map.entries) if self._map.walk is walk else [])

    def end(self, walk: OrderedWalk) -> None:
        """Go round to the end, in steps, so that everything is in its place again."""
        while self.finish(walk):
            pass
        # A million keys take 200 ms to forget, so some at a time.
        while walk.forget():
            pass

    def finish(self, walk: OrderedWalk) -> bool:
        """One step on the way to the end. Whether more are needed."""
        return bool(self._step(lambda: self._finish(walk), passes_gate=True))

    def record(self, entry: Any) -> Record:
        map_, seen, is_current = self._map, None, True
        if map_.stamps is not None:
            seen, is_current = (entry.news, entry.stamp), map_.is_current(entry)
        # Not by calls of the named tuples, which run Python code: half the time.
        times = _new(Times, (entry.fresh_until, entry.due, is_current))
        record: Record = _new(Record, (entry.key, entry.value, times, entry.weight, seen))
        return record

    def _finish(self, walk: OrderedWalk) -> bool:
        if self._map.walk is not walk:
            return False
        if walk.finish(self._map.entries):
            return True
        walk.end(self._map.entries)
        self._map.walk = None
        self._scan = _no_scan
        return False

    def _records(self, found: Callable[[], list[Any]]) -> list[Record]:
        records: list[Record] = self._step(
            lambda: [self.record(entry) for entry in found() if type(entry) is not Marker]
        )
        return records


_new: Final[Any] = tuple.__new__


def _no_scan() -> None:
    """The weak reference to no scan."""
