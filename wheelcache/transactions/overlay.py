"""The overlay of one transaction over one cache: the values that it set, and what it deleted.

The transaction reads its overlay first, and the cache where the overlay has nothing. At commit, the invalidations are
applied to the cache, and then the values are shared. Two facts keep this simple: a value may always be dropped, and an
invalidation may always be applied, also if it was not necessary.

There is one layer for each savepoint. A rollback to a savepoint drops its layer and those above it; its release merges
them into the layer below.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from math import inf
from typing import Any, Final

from wheelcache.engine.layer import Select
from wheelcache.engine.write_watcher import WritesSince

MAX_MISSED: Final = 1024
"""The largest number of missed keys that an overlay notes. Later sets of a forgotten key count as writes, not fills."""


@dataclass(slots=True, eq=False)
class Fill:
    """A value that a transaction has set.

    Attributes:
        origin: its grace and its tags, as the caller spells them.
        value: the encoded value.
        expires_at: on the clock of the cache; ``inf`` for never.
        tags: the names of the tags in the cache.
        weight: the weight of the entry.
    """

    origin: Any
    value: Any
    expires_at: float
    tags: tuple[str, ...] = ()
    weight: int = 0

    def seconds_left(self, now: float) -> float | None:
        """Return the seconds until the value expires; None if it never does."""
        return None if self.expires_at == inf else self.expires_at - now


class _Hidden:
    """Stands for the value of a key that the transaction has deleted. ``PrefixAccess.get`` reads when it expires."""

    expires_at = -inf


HIDDEN: Final = _Hidden()


class Layer:
    """The changes since a savepoint, or since the beginning of the transaction.

    Attributes:
        savepoint: the identifier of the savepoint; None for the beginning.
        fills: the values by key, oldest first. They were set after all invalidations of their keys in this layer.
        deleted: the deleted keys, as a dict, in their order.
        revealed: keys whose entry in the cache is visible again: it was written outside of the transaction since.
        patterns: the deleted patterns, by their origins.
        tags: the dropped tags, by name, with their origins.
        is_cleared: whether everything was deleted.
    """

    __slots__ = ("deleted", "fills", "is_cleared", "patterns", "revealed", "savepoint", "tags")

    def __init__(self, savepoint: Hashable) -> None:
        self.savepoint = savepoint
        self.is_cleared = False
        self._empty()

    def _empty(self) -> None:
        self.fills: dict[Any, Fill] = {}
        self.deleted: dict[Any, None] = {}
        self.revealed: set[Any] = set()
        self.patterns: dict[Any, Select] = {}
        self.tags: dict[str, Any] = {}

    def clear(self) -> None:
        self._empty()
        self.is_cleared = True

    def delete(self, key: Any) -> None:
        self.fills.pop(key, None)
        self.revealed.discard(key)
        self.deleted[key] = None

    def drop_tags(self, tags: dict[str, Any]) -> None:
        self.tags |= tags
        for key in [key for key, fill in self.fills.items() if not tags.keys().isdisjoint(fill.tags)]:
            del self.fills[key]

    def delete_pattern(self, select: Select, origin: Any) -> int:
        matching = select([*self.fills])
        for key in matching:
            del self.fills[key]
        self.revealed.difference_update(select([*self.revealed]))
        self.patterns[origin] = select
        return len(matching)

    def hides(self, key: Any) -> bool:
        return (
            key in self.deleted
            or self.is_cleared
            or (bool(self.patterns) and any(select([key]) for select in self.patterns.values()))
        )

    def merge(self, upper: Layer) -> None:
        """Add the changes of the layer above."""
        if upper.is_cleared:
            self.clear()
        self.drop_tags(upper.tags)
        for origin, select in upper.patterns.items():
            self.delete_pattern(select, origin)
        for key in upper.deleted:
            self.delete(key)
        for key in upper.revealed:
            self.fills.pop(key, None)
            self.revealed.add(key)
        for key, fill in upper.fills.items():
            self.fills.pop(key, None)
            self.fills[key] = fill


class Overlay:
    """The changes of one transaction to one cache.

    Args:
        others: the writes by others since the transaction began.
        now: returns the time on the clock of the cache.
        max_entries, max_weight: the bounds of the cache, which are those of the values here, too; None for no bound.

    Attributes:
        origin: the layer below of the caller that used it last.
        end_commit: lets others keep fills again; None if there is no commit in progress, or it refuses none.
        of_thread: the overlays of the thread that made it, among which it is while it is in use.
        visible: the results of ``find`` for all keys, except that values may be over; None if only the layers show
            them, because tags, patterns or everything was deleted.
    """

    __slots__ = (
        "_max_entries",
        "_max_weight",
        "_missed",
        "_weight",
        "end_commit",
        "layers",
        "now",
        "of_thread",
        "origin",
        "reported",
        "visible",
        "writes_by_others",
    )

    def __init__(
        self, others: WritesSince, now: Callable[[], float], max_entries: int | None, max_weight: int | None
    ) -> None:
        self.writes_by_others = others
        self.origin: Any = None
        self.end_commit: Callable[[], object] | None = None
        self.now = now
        self.layers = [Layer(None)]
        self.of_thread: list[Overlay] = []
        self.visible: dict[Any, Any] | None = {}
        self._max_entries = inf if max_entries is None else max_entries
        self._max_weight = inf if max_weight is None else max_weight
        self._missed: set[Any] = set()
        self._weight = 0

    # Reading.

    def find(self, key: Any) -> Any:
        """Return the Fill of ``key``, HIDDEN, or None if the cache must be asked."""
        if self.visible is not None:
            fill = self.visible.get(key)
            return HIDDEN if type(fill) is Fill and fill.expires_at <= self.now() else fill
        dropped: set[str] = set()
        for layer in reversed(self.layers):
            fill = layer.fills.get(key)
            if fill is not None:
                is_over = fill.expires_at <= self.now() or not dropped.isdisjoint(fill.tags)
                return HIDDEN if is_over else fill
            if key in layer.revealed:
                return None
            if layer.hides(key):
                return HIDDEN
            if layer.tags:
                dropped.update(layer.tags)
        return None

    def has_dropped(self, tags: Iterable[str]) -> bool:
        """Return whether the transaction has dropped one of the tags of an entry of the cache."""
        return any(not layer.tags.keys().isdisjoint(tags) for layer in self.layers)

    @property
    def drops_tags(self) -> bool:
        return any(layer.tags for layer in self.layers)

    def fills(self) -> dict[Any, Fill]:
        """Return the values that the transaction sees."""
        keys = self.visible or {key for layer in self.layers for key in layer.fills}
        found = {key: self.find(key) for key in keys}
        return {key: fill for key, fill in found.items() if type(fill) is Fill}

    # Writing.

    def missed(self, key: Any) -> None:
        """Note that the transaction missed ``key``: if it sets the key, this is a fill."""
        if len(self._missed) >= MAX_MISSED:
            self._missed.clear()
        self._missed.add(key)

    def forget_miss(self, key: Any) -> None:
        """Let the next set of ``key`` be a write."""
        self._missed.discard(key)

    def set(self, key: Any, fill: Fill) -> None:
        """Set a value. The first set after a miss is a fill. Any other is a write, which invalidates."""
        top = self.layers[-1]
        if key in self._missed:
            self.forget_miss(key)
        else:
            top.deleted[key] = None
        top.revealed.discard(key)
        top.fills.pop(key, None)
        top.fills[key] = fill
        self._show(key, fill)
        self._weight += fill.weight
        self._make_room()

    def delete(self, key: Any) -> None:
        self._missed.discard(key)
        self.layers[-1].delete(key)
        self._show(key, HIDDEN)

    def reveal(self, key: Any) -> None:
        """Show the entry of the cache again, which was written there after the transaction had deleted its key."""
        for layer in self.layers:
            layer.deleted.pop(key, None)
            # Otherwise, a rollback to a savepoint would show a value again that was deleted before it.
            layer.fills.pop(key, None)
        self.layers[-1].revealed.add(key)
        self._show(key, None)

    def drop_tags(self, tags: dict[str, Any]) -> None:
        self.visible = None
        self.layers[-1].drop_tags(tags)

    def delete_pattern(self, select: Select, origin: Any) -> int:
        """Delete the keys that match. Return the number of deleted values of the overlay."""
        deleted = len(select([*self.fills()]))
        self.visible = None
        self.layers[-1].delete_pattern(select, origin)
        return deleted

    def clear(self) -> None:
        self._missed.clear()
        self.visible = None
        self.layers[-1].clear()

    def _make_room(self) -> None:
        """Drop the oldest values beyond the bounds. Invalidations are kept: to clear the cache instead would also
        remove counters and sessions, and the entries of others in a store behind."""
        layers = self.layers
        while sum([len(layer.fills) for layer in layers]) > self._max_entries:
            self._drop_oldest()
        if self._weight > self._max_weight:
            # The sum is exact only now: it included values that were replaced or dropped.
            self._weight = sum([fill.weight for layer in layers for fill in layer.fills.values()])
        if self._weight > self._max_weight:
            # An eighth more than necessary. Otherwise, every later set would sum up again: 20,000 sets took 9 s.
            while self._weight > self._max_weight * 7 / 8:
                self._weight -= self._drop_oldest().weight

    def _show(self, key: Any, found: Any) -> None:
        if self.visible is not None:
            if found is None:
                self.visible.pop(key, None)
            else:
                self.visible[key] = found

    def _look_through(self) -> None:
        """Find out what is visible, after a change of the layers."""
        layers = self.layers
        self.visible = None
        if not any(layer.is_cleared or layer.tags or layer.patterns for layer in layers):
            keys = {key for layer in layers for key in (*layer.fills, *layer.deleted)}
            found = {key: self.find(key) for key in keys}
            self.visible = {key: each for key, each in found.items() if each is not None}

    def _drop_oldest(self) -> Fill:
        oldest = next(layer.fills for layer in self.layers if layer.fills)
        key = next(iter(oldest))
        fill = oldest.pop(key)
        self._show(key, HIDDEN if any(key in layer.deleted for layer in self.layers) else None)
        return fill

    # Savepoints.

    def savepoint(self, identifier: Hashable) -> None:
        self.layers.append(Layer(identifier))

    def roll_back_to(self, identifier: Hashable, *, keeps_invalidations: bool) -> None:
        place = self._place(identifier)
        dropped = self.layers[place:]
        # A savepoint that the overlay does not know is older than the overlay.
        self.layers[place:] = [Layer(identifier if place else None)]
        for layer in dropped if keeps_invalidations else ():
            layer.fills.clear()
            self.layers[-1].merge(layer)
        self._look_through()

    def release(self, identifier: Hashable) -> None:
        place = self._place(identifier)
        if place:
            self._merge_from(place)

    def changes(self) -> Layer:
        """Return all changes, as one layer."""
        self._merge_from(1)
        return self.layers[0]

    def drop_fills(self) -> None:
        """Keep the invalidations only."""
        for layer in self.layers:
            layer.fills.clear()
        self._look_through()

    def add(self, upper: Overlay) -> None:
        """Add the changes of a transaction that was committed within this one."""
        self.writes_by_others.add(upper.writes_by_others)
        self.origin = upper.origin
        self.layers[-1].merge(upper.changes())
        self._look_through()

    def _place(self, identifier: Hashable) -> int:
        # The last one: SQL finds the latest savepoint of a name.
        return max((place for place, layer in enumerate(self.layers) if layer.savepoint == identifier), default=0)

    def _merge_from(self, place: int) -> None:
        upper = self.layers[place:]
        del self.layers[place:]
        for layer in upper:
            self.layers[-1].merge(layer)
