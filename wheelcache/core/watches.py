"""Watches on keys: a part that loads a key, or waits for its value, learns here of what is written meanwhile."""

from __future__ import annotations

from collections import deque
from typing import Any, Final
from weakref import ref

from wheelcache.core.contract import MISSING, Seen

PURGED: Final = 8
"""Ended watches that each call forgets. More than the one that a call may add, so that they do not pile up."""


class Watch:
    """A watch on one key: see ``contract.Watch``."""

    __slots__ = ("__weakref__", "_closed", "_ended", "_reference", "broken", "key", "seen", "value", "wants_value")

    _reference: _Reference

    def __init__(self, key: Any, seen: Seen | None, wants_value: bool, closed: deque[Any]) -> None:
        self.key = key
        self.seen = seen
        self.broken = False
        self.value: Any = MISSING
        self.wants_value = wants_value
        self._ended = False
        self._closed = closed

    def close(self) -> None:
        """End the watch. It takes no lock, so a caller may close a watch anywhere."""
        self._ended = True
        # Not the watch, which may have a value.
        self._closed.append(self._reference)

    @property
    def is_open(self) -> bool:
        return not self._ended


class _Reference(ref[Watch]):
    """A weak reference that knows the key, so that its callback can be a C function, which nothing interrupts."""

    __slots__ = ("key",)

    key: Any


class Watches:
    """The watches on the keys of one core, which calls every method under its lock. They are held weakly.

    Attributes:
        by_key: empty if there are no watches, which the core asks at every ``set``.
    """

    __slots__ = ("_closed", "by_key")

    def __init__(self) -> None:
        self.by_key: dict[Any, tuple[ref[Watch], ...]] = {}
        # References to watches that were closed or dropped. One C call appends, also amid a collection.
        self._closed: deque[Any] = deque()

    def __contains__(self, key: Any) -> bool:
        """Whether there is an open watch on ``key``."""
        return any(watch.is_open for watch in self._of(key))

    def add(self, key: Any, seen: Seen | None, wants_value: bool) -> Watch:
        self.purge()
        watch = Watch(key, seen, wants_value, self._closed)
        reference = _Reference(watch, self._closed.append)
        reference.key = key
        watch._reference = reference
        while True:
            there = self.by_key.get(key, ())
            more = (*there, reference)
            # Making the tuple may start the collector, and with it a __del__ that watches the same key.
            if self.by_key.get(key, ()) is there:
                self.by_key[key] = more
                return watch

    def written(self, key: Any, value: Any, under: Any, told: deque[Watch]) -> bool:
        """``key`` was set to ``value`` under the watch ``under``, or None: break the others, complete those that want a
        value. Whether there were any, which are in ``told`` then."""
        self.purge()
        is_told = False
        for watch in self._of(key):
            if watch is under or not watch.is_open:
                continue
            watch.broken = True
            if watch.wants_value:
                # No call comes before it is told, so no exception from outside does.
                watch.value = value
                watch._ended = True
                told.append(watch)
                is_told = True
                watch.close()
        return is_told

    def deleted(self, key: Any, under: Any = None) -> None:
        """``key`` was deleted, or set under the watch ``under`` to a value that completes none: break the others."""
        for watch in self._of(key):
            if watch is not under:
                watch.broken = True

    def cleared(self) -> None:
        """All keys were deleted."""
        for key in list(self.by_key):
            self.deleted(key)

    def end_all(self) -> None:
        """After a fork: the callers are in the other process."""
        for key in list(self.by_key):
            for watch in self._of(key):
                watch.broken = True
                watch.close()
        self.by_key.clear()
        self._closed.clear()

    def _of(self, key: Any) -> list[Watch]:
        return [watch for each in self.by_key.get(key, ()) if (watch := each()) is not None]

    def purge(self) -> None:
        """Forget some of the watches that have ended, and with them their keys."""
        for _ in range(PURGED):
            try:
                key = self._closed.popleft().key
            except IndexError:
                break
            left = tuple(each for each in self.by_key.get(key, ()) if (watch := each()) is not None and watch.is_open)
            if left:
                self.by_key[key] = left
            else:
                self.by_key.pop(key, None)
