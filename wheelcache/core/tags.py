"""The tags of a Python core: names under which entries are dropped together.

All entries that are stored with a name between two drops of it share one ``Tag``, so dropping them is one change.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from wheelcache.core.contract import SWEEP_INTERVAL
from wheelcache.runtime.clock import moment

MOMENTS: Final = 65_536
"""The system provides memory for the pages of the table that are used."""


class Tag:
    """The keys of the entries that were stored with a tag since it was last dropped."""

    __slots__ = ("is_dropped", "keys", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_dropped = False
        self.keys: set[Any] = set()


def are_dropped(tags: tuple[Tag, ...]) -> bool:
    """Return whether one of the tags was dropped."""
    return any(tag.is_dropped for tag in tags)


class Tags:
    """The tags of one core, which calls every method under its lock.

    Attributes:
        dropped: the dropped tags whose entries are still in memory.
        due: the time of the next sweep; -inf: now; inf: after the next drop. See ``Core.next_due``.
    """

    __slots__ = ("_by_name", "_moments", "dropped", "due")

    def __init__(self) -> None:
        self._by_name: dict[str, Tag] = {}
        # The moments of the last drops, by the hash of the name: for values that were computed during a drop.
        self._moments = memoryview(bytearray(8 * MOMENTS)).cast("Q")
        self.dropped: list[Tag] = []
        self.due = inf

    def dropped_since(self, names: tuple[str, ...], since: int) -> bool:
        """Return whether one of the tags was dropped after the moment ``since``. Since tags share places in the table,
        a drop of another tag may count."""
        return since > 0 and any(self._moments[hash(name) % MOMENTS] >= since for name in names)

    def make(self, names: tuple[str, ...], since: int) -> tuple[Tag, ...] | None:
        """Return the tags for an entry that the caller stores afterwards; None if one was dropped after ``since``."""
        if self.dropped_since(names, since):
            return None
        return tuple([self._by_name.setdefault(name, Tag(name)) for name in names])

    def forget_unused(self, tags: tuple[Tag, ...]) -> None:
        """Forget the tags that no entry has."""
        for tag in tags:
            if not tag.keys and self._by_name.get(tag.name) is tag:
                self._by_name.pop(tag.name, None)

    def replace(self, old: tuple[Tag, ...], new: tuple[Tag, ...], key: Any) -> tuple[Tag, ...]:
        """Replace the tags ``old`` of an entry, and return ``new``."""
        self.discard(tuple([tag for tag in old if tag not in new]), key)
        return new

    def discard(self, tags: tuple[Tag, ...], key: Any) -> None:
        """Remove a key from its tags, after its entry was removed or got other tags."""
        for tag in tags:
            tag.keys.discard(key)
        self.forget_unused(tags)

    def drop(self, name: str) -> int:
        """Drop a tag, and return the number of entries that had it."""
        self._moments[hash(name) % MOMENTS] = moment()
        tag = self._by_name.pop(name, None)
        if tag is None:
            return 0
        tag.is_dropped = True
        self.dropped.append(tag)
        if self.due == inf:
            self.due = -inf
        return len(tag.keys)

    def forget(self) -> None:
        """Forget all tags, after all entries were detached."""
        self._by_name = {}
        self.dropped = []
        self.due = inf

    def was_swept(self, now: float) -> None:
        """Determine the time of the next sweep, after a step of the last one or on another clock."""
        if self.dropped:
            self.due = -inf
        elif self.due < inf:
            self.due = now + SWEEP_INTERVAL if self._by_name else inf
