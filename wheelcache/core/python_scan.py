"""The walks over a Python core's entries: in order of use, and in any order."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from itertools import islice
from typing import Any, Protocol

from wheelcache.core.contract import Record
from wheelcache.core.ordered_walk import OrderedWalk

Entries = OrderedDict[Any, Any]


class Step(Protocol):
    """Call ``function(entries)`` in one step of the core, and return what it returned, as records.

    None, if ``walk`` is given and no longer in progress."""

    def __call__(self, function: Callable[[Entries], list[Any]], walk: OrderedWalk | None = None) -> list[Record]: ...


class KeyScan:
    """A walk in the dict's own order. Its keys are copied in one step, which for a million takes 10 ms."""

    __slots__ = ("_keys", "_step")

    def __init__(self, step: Step, keys: list[Any]) -> None:
        self._step = step
        self._keys = iter(keys)

    def step(self, count: int) -> list[Record]:
        # Keys whose entries have left are passed over, and an empty list would mean the end.
        while some := list(islice(self._keys, count)):
            records = self._step(lambda entries, keys=some: [entries[key] for key in keys if key in entries])  # type: ignore[misc]
            if records:
                return records
        return []

    def close(self) -> None:
        self._keys = iter(())


class OrderedScan:
    """A walk in order of use: see ``ordered_walk``. What is used meanwhile comes at the end, perhaps a second time."""

    __slots__ = ("__weakref__", "_close", "_step", "_upto", "_walk")

    def __init__(self, step: Step, walk: OrderedWalk, close: Callable[[OrderedWalk], object]) -> None:
        self._step = step
        self._walk = walk
        self._close = close
        self._upto: int | None = None

    def step(self, count: int) -> list[Record]:
        records: list[Record] = []
        if self._upto is None:
            records = self._step(lambda entries: self._walk.step(entries, count), self._walk)
            if not records:
                # No more than these, or readers could keep the walk going.
                self._upto = self._walk.how_many_used()
        if not records and self._upto is not None:
            upto = self._upto
            records = self._step(lambda entries: self._walk.used(entries, upto, count), self._walk)
        if not records:
            self.close()
        return records

    def close(self) -> None:
        """Put everything in its place again, in steps."""
        self._close(self._walk)
