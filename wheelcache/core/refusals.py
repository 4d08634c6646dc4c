"""Why a Python core does not store a value."""

from __future__ import annotations

from typing import Any

from wheelcache.core.contract import (
    ANY,
    CHANGED,
    MAX_WEIGHT,
    NO_ROOM,
    OUTDATED,
    PRESENT,
    RESTORE,
    SAME,
    TOO_HEAVY,
    RemovalCause,
    Removals,
    Seen,
)
from wheelcache.core.entry_map import EntryMap
from wheelcache.core.watches import Watch, Watches


def check_weight(weight: int) -> None:
    """
    Raises:
        OverflowError: ``weight`` is negative, or more than MAX_WEIGHT.
    """
    if not 0 <= weight <= MAX_WEIGHT:
        raise OverflowError(f"a weight must be from 0 to 2**62, not {weight!r}")


class Refusals:
    """Called under the lock of the core whose ``entries`` and ``watches`` these are."""

    __slots__ = ("_map", "_max_entries", "_max_weight", "_watches")

    def __init__(self, entries: EntryMap, watches: Watches, max_entries: float, max_weight: float) -> None:
        self._map = entries
        self._watches = watches
        self._max_entries = max_entries
        self._max_weight = max_weight

    def reason(
        self,
        key: Any,
        now: float,
        weight: int,
        mode: int,
        expected: Any,
        watch: Watch | None,
        slot: int,
        seen: Seen | None,
        removed: Removals | None,
        gone: list[Any],
    ) -> int:
        """Why a value is not stored; 0 if it may be."""
        if watch is not None and watch.broken:
            return CHANGED
        map_ = self._map
        live = map_.fresh(key, now)
        if mode == SAME:
            if live is None or live.value is not expected:
                return CHANGED
        elif mode != ANY and live is not None:
            return PRESENT
        if mode == RESTORE:
            if self._watches.by_key and key in self._watches:
                return CHANGED
            if not self._has_room(key, weight):
                return NO_ROOM
        if seen is not None and map_.stamps is not None and map_.stamps.is_outdated(slot, seen):
            if watch is None and live is not None:
                map_.remove(live, RemovalCause.REPLACED, now, removed, gone, slot)
            return OUTDATED
        return 0

    def heavy(
        self, key: Any, now: float, slot: int, seen: Seen | None, removed: Removals | None, gone: list[Any]
    ) -> int:
        """A value outweighs ``max_weight``: the entry of its key leaves."""
        map_ = self._map
        entry = map_.entries.get(key)
        if entry is not None:
            map_.remove(entry, RemovalCause.REPLACED, now, removed, gone, slot if seen is None else None)
        elif seen is None and map_.stamps is not None:
            map_.stamps.write(slot)
        return TOO_HEAVY

    def _has_room(self, key: Any, weight: int) -> bool:
        """Whether a value can be restored without evicting."""
        map_ = self._map
        old = map_.entries.get(key)
        if old is None and len(map_) >= self._max_entries:
            return False
        return not weight <= self._max_weight < map_.weight + weight - (0 if old is None else old.weight)
