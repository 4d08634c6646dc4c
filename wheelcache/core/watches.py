"""Watches on keys: they notify a part that loads a key, or waits for its value, of writes during that time."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any, Final
from weakref import ref

from wheelcache.core.contract import MISSING
from wheelcache.runtime.clock import moment

PURGED: Final = 8
"""The number of ended watches that a call forgets: more than the one watch that it may add, so that they do not pile
up."""


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
        "since",
        "trust",
        "value",
        "wants_value",
    )

    def __init__(self, key: Any, trust: int, wants_value: bool, ended: deque[Any]) -> None:
        self.key = key
        self.trust = trust
        self.since = moment()
        self.broken = False
        self.value: Any = MISSING
        self.wants_value = wants_value
        self.is_open = True
        self._ended = ended
        self.reference = _Reference(self, ended.append)
        self.reference.key = key

    def close(self) -> None:
        """End the watch. This needs no lock, so a caller may close a watch anywhere."""
        self.is_open = False
        # Append the reference, not the watch, which would keep its value alive.
        self._ended.append(self.reference)


class _Reference(ref[Watch]):
    """A weak reference with the key. Its callback is a C function: in a Python callback, or in a ``__del__``, an
    asynchronous exception (a time limit) would be printed and lost."""

    __slots__ = ("key",)

    key: Any


class Watches:
    """The watches on the keys of one core, which calls every method under its lock. They are held weakly.

    Attributes:
        by_key: references to the watches on each key. Every ``set`` of the core checks whether it is empty.
    """

    __slots__ = ("_ended", "by_key")

    def __init__(self) -> None:
        self.by_key: dict[Any, tuple[_Reference, ...]] = {}
        # References to watches that were closed or dropped. Appending is one C call, so it is safe in a collection.
        self._ended: deque[Any] = deque()

    def add(self, key: Any, trust: int, wants_value: bool) -> Watch:
        self.purge()
        watch = Watch(key, trust, wants_value, self._ended)
        while not self._replace(key, old := self.by_key.get(key, ()), (*old, watch.reference)):
            pass
        return watch

    def complete(self, key: Any, value: Any, under: Watch | None, done: deque[Watch]) -> bool:
        """Break the watches on ``key`` and complete the ones that want a value.

        Args:
            value: the value that was set.
            under: the watch under which it was set, which stays as it is, or None.
            done: receives the completed watches.

        Returns:
            Whether any watch was completed.
        """
        self.purge()
        completed = False
        for watch in self._of(key):
            if watch is under:
                continue
            watch.broken = True
            if watch.wants_value:
                watch.value = value
                watch.close()
                done.append(watch)
                completed = True
        return completed

    def break_watches(self, key: Any, under: Watch | None = None) -> None:
        """Break the watches on ``key``, except ``under``, without completing them."""
        for watch in self._of(key):
            if watch is not under:
                watch.broken = True

    def break_all(self) -> None:
        """Break the watches on all keys."""
        for key in list(self.by_key):
            self.break_watches(key)

    def end_all(self) -> None:
        """Break and end all watches after a fork: their callers are in the parent process."""
        for key in list(self.by_key):
            for watch in self._of(key):
                watch.broken = True
                watch.close()
        self.by_key.clear()
        self._ended.clear()

    def purge(self) -> None:
        """Forget some ended watches and their keys."""
        for _ in range(PURGED):
            if not self._ended:
                break
            key = self._ended.popleft().key
            old = self.by_key.get(key, ())
            self._replace(key, old, tuple([watch.reference for watch in self._of(key)]))

    def _of(self, key: Any) -> Iterator[Watch]:
        """Iterate over the watches on ``key`` that are open when their turn comes."""
        return (watch for each in self.by_key.get(key, ()) if (watch := each()) is not None and watch.is_open)

    def _replace(self, key: Any, old: tuple[_Reference, ...], new: tuple[_Reference, ...]) -> bool:
        """Replace the watches on ``key``. Return False, and change nothing, if they are no longer ``old``.

        Building ``new`` may start the garbage collector, which may run a finalizer that watches the same key. This
        method contains no call, so no collection starts in it.
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
