"""Watches on keys: a part that loads a key, or waits for its value, learns here of writes during that time."""

from __future__ import annotations

from collections import deque
from typing import Any, Final
from weakref import ref

from wheelcache.core.contract import MISSING, Seen
from wheelcache.core.tags import moment

PURGED: Final = 8
"""Ended watches that a call forgets. More than the one that it may add, so that they do not pile up."""


class Watch:
    """A watch on one key: see ``contract.Watch``.

    Args:
        ended: receives the reference to a watch that is closed or dropped.
    """

    __slots__ = (
        "__weakref__",
        "_ended",
        "broken",
        "is_open",
        "key",
        "reference",
        "seen",
        "since",
        "value",
        "wants_value",
    )

    def __init__(self, key: Any, seen: Seen | None, wants_value: bool, ended: deque[Any]) -> None:
        self.key = key
        self.seen = seen
        self.since = moment()
        self.broken = False
        self.value: Any = MISSING
        self.wants_value = wants_value
        self.is_open = True
        self._ended = ended
        self.reference = _Reference(self, ended.append)
        self.reference.key = key

    def close(self) -> None:
        """End the watch. It takes no lock, so a caller may close a watch anywhere."""
        self.is_open = False
        # Not the watch, which may have a value.
        self._ended.append(self.reference)


class _Reference(ref[Watch]):
    """A weak reference that knows the key. Its callback is a C function: an asynchronous exception (a time limit) that
    arrived in one in Python, or in a ``__del__``, would be printed and forgotten."""

    __slots__ = ("key",)

    key: Any


class Watches:
    """The watches on the keys of one core, which calls every method under its lock. They are held weakly.

    Attributes:
        by_key: empty if there are no watches, which the core looks at in every ``set``.
    """

    __slots__ = ("_ended", "by_key")

    def __init__(self) -> None:
        self.by_key: dict[Any, tuple[_Reference, ...]] = {}
        # References to watches that were closed or dropped. One C call appends, also during a collection.
        self._ended: deque[Any] = deque()

    def __contains__(self, key: Any) -> bool:
        """Whether there is an open watch on ``key``."""
        return any(watch.is_open for watch in self._of(key))

    def add(self, key: Any, seen: Seen | None, wants_value: bool) -> Watch:
        self.purge()
        watch = Watch(key, seen, wants_value, self._ended)
        while not self._replace(key, old := self.by_key.get(key, ()), (*old, watch.reference)):
            pass
        return watch

    def written(self, key: Any, value: Any, under: Watch | None, done: deque[Watch]) -> bool:
        """Break the watches on ``key``, which was set to ``value`` under a watch or None, and complete those that want
        a value. Return whether any did, and append them to ``done``."""
        self.purge()
        completed = False
        for watch in self._of(key):
            if watch is under or not watch.is_open:
                continue
            watch.broken = True
            if watch.wants_value:
                watch.value = value
                watch.close()
                done.append(watch)
                completed = True
        return completed

    def break_all(self, key: Any, under: Watch | None = None) -> None:
        """``key`` was deleted, or set under the watch ``under`` to a value that completes none: break the others."""
        for watch in self._of(key):
            if watch is not under:
                watch.broken = True

    def cleared(self) -> None:
        """All keys were deleted."""
        for key in list(self.by_key):
            self.break_all(key)

    def end_all(self) -> None:
        """End all watches after a fork: their callers are in the other process."""
        for key in list(self.by_key):
            for watch in self._of(key):
                watch.broken = True
                watch.close()
        self.by_key.clear()
        self._ended.clear()

    def purge(self) -> None:
        """Forget some of the watches that have ended, and with them their keys."""
        for _ in range(PURGED):
            if not self._ended:
                break
            key = self._ended.popleft().key
            old = self.by_key.get(key, ())
            self._replace(key, old, tuple(each for each in old if (watch := each()) is not None and watch.is_open))

    def _of(self, key: Any) -> list[Watch]:
        return [watch for each in self.by_key.get(key, ()) if (watch := each()) is not None]

    def _replace(self, key: Any, old: tuple[_Reference, ...], new: tuple[_Reference, ...]) -> bool:
        """Replace the watches of ``key``. Return False, and change nothing, if they are no longer ``old``.

        Making ``new`` may start the garbage collector, and with it a finalizer that watches the same key. There is no
        call here, and so no collection.
        """
        if key in self.by_key:
            if self.by_key[key] is not old:
                return False
            if new:
                self.by_key[key] = new
            else:
                del self.by_key[key]
        elif new:
            self.by_key[key] = new
        return True
