"""The groups of keys, such as the fragments of one name, by rules of the backend: see ``contract.GroupRule``.

Misses count exactly; of the hits and the stored values, every 61st counts 61 times. A sample in time is right for hot
keys, which a sample of the keys is not. 61 is a prime, so that a page that always reads as many keys is not always
sampled at the same one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final

from wheelcache.core.contract import GROUP_SAMPLE, GroupCounts, GroupRule, MissCause

MOST_GROUPS: Final = 64
LOOKED_AT: Final = 128
"""Characters of a key."""
LONGEST_NAME: Final = 96


class KeyGroup:
    """The counts of one group: see ``GroupCounts``."""

    __slots__ = ("hits", "load_seconds", "loads", "misses", "puts")

    def __init__(self) -> None:
        self.hits = self.puts = self.loads = 0
        self.load_seconds = 0.0
        self.misses = [0] * len(MissCause)


class KeyGroups:
    """The groups of one core, which calls every method under its lock."""

    def __init__(self) -> None:
        self.use_rules(())
        self.start_over()

    def use_rules(self, rules: Iterable[GroupRule]) -> None:
        self._rules = tuple(rules)

    def start_over(self) -> None:
        self._groups: dict[str, KeyGroup] = {}

    def hit(self, key: Hashable, number: int = GROUP_SAMPLE) -> None:
        """Count a sampled hit, or ``number`` hits."""
        self._of(key).hits += number

    def put(self, key: Hashable) -> None:
        """Count a sampled stored value."""
        self._of(key).puts += GROUP_SAMPLE

    def miss(self, key: Hashable, cause: int) -> None:
        self._of(key).misses[cause] += 1

    def load(self, key: Hashable, seconds: float) -> None:
        group = self._of(key)
        group.loads += 1
        group.load_seconds += seconds

    def read(self) -> list[GroupCounts]:
        return [
            GroupCounts(name, each.hits, each.puts, each.loads, each.load_seconds, tuple(each.misses))
            for name, each in list(self._groups.items())
        ]

    def _of(self, key: Hashable) -> KeyGroup:
        if not self._groups:
            self._groups[""] = KeyGroup()
        name = self.name(key)
        if name not in self._groups:
            if len(self._groups) > MOST_GROUPS:
                name = ""
            else:
                self._groups[name] = KeyGroup()
        return self._groups[name]

    def name(self, key: Any) -> str:
        """Return the name of the group of a key; an empty string if it is in no group."""
        # Also a named tuple. Its methods may be Python code, and so may the class that ``isinstance`` reads.
        is_tuple = issubclass(type(key), tuple)
        is_whole = is_tuple and tuple.__len__(key) > 1
        text = tuple.__getitem__(key, 0) if is_tuple and tuple.__len__(key) else key
        if type(text) is not str:
            return ""
        text = text[:LOOKED_AT]
        if not text.isascii():
            is_whole = False
            text = text[: next(place for place, each in enumerate(text) if not each.isascii())]
        for rule in self._rules:
            if text.startswith(rule.prefix):
                rest, stop, _ = text[len(rule.prefix) :].partition(rule.stop) if rule.stop else ("", "all", "")
                if stop or is_whole:
                    name = rule.name + rest
                    return name if len(name) <= LONGEST_NAME else ""
        return ""
