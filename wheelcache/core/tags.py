"""The tags of a Python core: names under which entries are dropped together.

All entries that are stored with a name between two drops of it share one ``Tag``, so dropping them is one change.
"""

from __future__ import annotations

from math import inf
from typing import Any, Final

from wheelcache.core.contract import SWEEP_INTERVAL, TagName
from wheelcache.core.stamp_words import is_marked
from wheelcache.machine_clock import moment

MOMENTS: Final = 256


class Tag:
    """The keys of the entries that were stored with a tag since it was last dropped.

    Attributes:
        stamp: the word of the tag's slot when this object was created; 0 if other processes drop no tags.
    """

    __slots__ = ("is_dropped", "keys", "name", "slot", "stamp")

    def __init__(self, name: str, slot: int, stamp: int) -> None:
        self.name = name
        self.slot = slot
        self.stamp = stamp
        self.is_dropped = False
        self.keys: set[Any] = set()


class Tags:
    """The tags of one core, which calls every method but ``are_dropped`` under its lock.

    Attributes:
        words: for each slot, the moment of the last drop of its tags by any process; None if other processes drop none.
        commits: see ``contract.Stamps``.
        dropped: the dropped tags whose entries are still in memory.
        due: the time of the next sweep; -inf: now; inf: after the next drop. See ``Core.next_due``.
    """

    __slots__ = ("_by_name", "_moments", "commits", "dropped", "due", "words")

    def __init__(self) -> None:
        self._by_name: dict[str, Tag] = {}
        # The moments of the last drops, by the hash of the name: for values that were computed during a drop.
        self._moments = [0] * MOMENTS
        self.words: memoryview | None = None
        self.commits: memoryview | None = None
        self.dropped: list[Tag] = []
        self.due = inf

    def are_dropped(self, tags: tuple[Tag, ...]) -> bool:
        words = self.words
        return any(tag.is_dropped or (words is not None and words[tag.slot] != tag.stamp) for tag in tags)

    def dropped_since(self, names: tuple[TagName, ...], since: int) -> bool:
        """Return whether one of the tags was dropped after the moment ``since``, or by a transaction that is being
        committed. Since tags share places in the tables, a drop of another tag may count."""
        return since > 0 and any(
            self._last_drop(name, slot) >= since or is_marked(self.commits, slot) for name, slot in names
        )

    def make(self, names: tuple[TagName, ...], since: int) -> tuple[Tag, ...] | None:
        """Return the tags for an entry that the caller stores afterwards; None if one was dropped after ``since``."""
        if self.dropped_since(names, since):
            return None
        tags = tuple([self._tag(name, slot) for name, slot in names])
        # Check again, after the stamps of the tags were read: another process may have dropped one in between.
        if not self.dropped_since(names, since):
            return tags
        self.forget_unused(tags)
        return None

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

    def drop(self, name: str, slot: int) -> int:
        """Drop a tag, and return the number of entries that had it."""
        dropped = max(moment(), self._last_drop(name, slot) + 1)
        if self.words is None:
            self._moments[hash(name) % MOMENTS] = dropped
        else:
            self.words[slot] = dropped
        tag = self._by_name.pop(name, None)
        return 0 if tag is None else self._mark_dropped(tag)

    def find_dropped(self) -> None:
        """Mark the tags that other processes have dropped."""
        for tag in [tag for tag in self._by_name.values() if not tag.is_dropped and self.are_dropped((tag,))]:
            self._mark_dropped(tag)

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

    def _last_drop(self, name: str, slot: int) -> int:
        return self._moments[hash(name) % MOMENTS] if self.words is None else self.words[slot]

    def _tag(self, name: str, slot: int) -> Tag:
        stamp = 0 if self.words is None else self.words[slot]
        tag = self._by_name.get(name)
        if tag is None or tag.stamp != stamp:
            if tag is not None:
                # Another process has dropped it.
                self._mark_dropped(tag)
            tag = self._by_name[name] = Tag(name, slot, stamp)
        return tag

    def _mark_dropped(self, tag: Tag) -> int:
        tag.is_dropped = True
        self.dropped.append(tag)
        if self.due == inf:
            self.due = -inf
        return len(tag.keys)
