"""The entries of a reference core with ``policy="adaptive"``: a dict by key, and a duel that orders the keys."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from wheelcache.core.duel import Duel


class Events:
    """Calls one function at a time. A call by a finalizer, in the middle of another call, waits for the end of that
    one, so that it finds a complete order.

    Attributes:
        is_running: whether a call is in progress.
        is_broken: whether an exception has ended a call in the middle.
    """

    __slots__ = ("_waiting", "is_broken", "is_running")

    def __init__(self) -> None:
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self.is_running = self.is_broken = False

    def call(self, function: Callable[..., None], *args: Any) -> None:
        self._waiting.append((function, args))
        if self.is_running:
            return
        try:
            self.is_running = True
            while self._waiting:
                function, args = self._waiting.popleft()
                function(*args)
        except BaseException:
            self.is_broken = True
            raise
        finally:
            self.is_running = False


class Adaptive(dict[Any, Any]):
    """The eviction policy: the entries by key. The core calls the other methods after each change, under its lock.

    An asynchronous exception may lose an event. Then the order is made again from the entries, before it is needed.
    """

    __slots__ = ("_duel", "_events")

    def __init__(self, duel: Duel, events: Events, entries: Iterable[tuple[Any, Any]] = ()) -> None:
        super().__init__(entries)
        self._duel = duel
        self._events = events

    @property
    def is_lru(self) -> bool:
        """Whether LRU is in force."""
        return self._duel.order.is_lru

    def emptied(self) -> Adaptive:
        """Return the entries of a core whose entries are detached."""
        self._events.call(self._duel.clear)
        return Adaptive(self._duel, self._events)

    def copy(self) -> Adaptive:
        return Adaptive(self._duel, self._events, self.items())

    def on_hit(self, key: Any) -> None:
        """Note that a look-up found a fresh and current entry."""
        self._events.call(self._duel.hit, key, self[key].fresh_until)

    def on_use(self, key: Any) -> None:
        self._events.call(self._duel.use, key)

    def on_stored(self, key: Any, *details: Any) -> None:
        """Note that a value was stored: see ``Duel.store``."""
        self._events.call(self._duel.store, key, *details)

    def on_remove(self, key: Any, is_delete: bool) -> None:
        self._events.call(self._duel.remove, key, is_delete)

    def on_delete(self, key: Any) -> None:
        """Note that a key without an entry was deleted."""
        self._events.call(self._duel.delete, key)

    def standing(self, key: Any) -> int:
        return self._duel.standing(key)

    def victim(self, excess: int = 0) -> Any:
        """Return the key that the next eviction removes, or None: see ``Order.victim``."""
        if self._events.is_running:
            return next(iter(self), None)
        self._mend()
        place = self._duel.order.victim(excess)
        if place is None or place.key in self:
            return None if place is None else place.key
        self._events.is_broken = True
        return self.victim(excess)

    def in_eviction_order(self) -> list[Any]:
        """Return the keys in the order in which they would be evicted."""
        if self._events.is_running:
            return list(self)
        self._mend()
        return self._duel.order.keys()

    def youngest(self, count: int) -> list[Any]:
        """Return the entries that would be evicted last."""
        keys = self.in_eviction_order()
        return [self[key] for key in keys[max(len(keys) - count, 0) :] if key in self]

    def _mend(self) -> None:
        """Make the order again if it lacks entries, or has too many."""
        if self._events.is_broken or len(self._duel.order.places) != len(self):
            self._events.is_broken = False
            self._events.call(self._duel.begin_again, [(key, self[key].weight) for key in list(self) if key in self])
