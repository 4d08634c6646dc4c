"""Groups of keys: the keys of one memoized function are tuples that begin with its name."""

from __future__ import annotations

from collections import Counter
from typing import Any

from wheelcache.keys import group_of


class Groups:
    """The groups of one cache. Two functions may have the same name, so names are numbered."""

    __slots__ = ("_ambiguous", "_numbers")

    def __init__(self) -> None:
        self._numbers: Counter[str] = Counter()
        self._ambiguous: frozenset[str] = frozenset()

    def add(self, name: str) -> str:
        """``name``, or, if a group was added by that name before, the name and a number.

        Of those, and of what is called <locals>, <lambda> or <partial>, another process may give a name to another
        function.
        """
        self._numbers[name] += 1
        number = self._numbers[name]
        numbered = name if number == 1 else f"{name}#{number}"
        if "<" in name or number > 1:
            self._ambiguous |= {name, numbered}
        return numbered

    def is_portable(self, key: Any) -> bool:
        """Whether ``key`` means the same in another process."""
        return group_of(key) not in self._ambiguous
