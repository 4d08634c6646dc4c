"""Finds the paths that occur most often, in bounded memory, no matter how many others a stranger requests.

This is the space-saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient Computation of Frequent and Top-k
Elements in Data Streams", 2005). There are a few places. A new item takes the place of the item with the lowest count,
and continues that count; the count at that moment is the *error* of the new item. So the count is an upper bound, and
the count minus the error is a lower bound. An item with more than one in ``PLACES`` of all occurrences has a place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from operator import itemgetter
from typing import Final, NamedTuple
from urllib.parse import quote

PLACES: Final = 20

LONGEST_PATH: Final = 200
"""Characters of a path, of which the rest is cut off."""

_PLAIN: Final = re.compile("""[!"$&->@-~]*""")

NOT_STORED: Final = "not_stored_paths"
FULL: Final = "full_variants"
"""The kinds of streams: fields of ``PageStats``."""

Names = Mapping[str, Mapping[str, int]]
"""Numbers by name and path."""

Place = tuple[int, int, float]
"""The count and the error of an item, and a mark. The mark of a path is the count that was published, in a worker; the
time of the last occurrence, in the database of a site. A named tuple would take three times as long to make."""


class SpaceSaving:
    """The paths that occur most often in one stream.

    Attributes:
        places: the places by path.
    """

    __slots__ = ("places",)

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}

    def add(self, path: str, number: int = 1, mark: float | None = None) -> None:
        """Add ``number`` occurrences of ``path``, and raise its mark to ``mark``."""
        count, error, old_mark = self.places.get(path) or self._new_place()
        self.places[path] = (count + number, error, old_mark if mark is None else max(mark, old_mark))

    def _new_place(self) -> Place:
        if len(self.places) < PLACES:
            return 0, 0, 0
        least, _, _ = self.places.pop(min(self.places, key=self.places.__getitem__))
        return least, least, least

    def numbers(self) -> dict[str, int]:
        """Return lower bounds of the occurrences of each path, in descending order."""
        numbers = {path: count - error for path, (count, error, _) in self.places.items()}
        return dict(sorted(numbers.items(), key=itemgetter(1), reverse=True))


class Occurrences(NamedTuple):
    """The occurrences of a path that are not published yet.

    Attributes:
        kind, name: see ``NamedPaths``.
        number: their number.
        until: the count of the path, for ``NamedPaths.published``.
    """

    kind: str
    name: str
    path: str
    number: int
    until: int


class NamedPaths:
    """The busiest paths of several streams.

    Args:
        most_names: the number of streams of each kind. Those that come later are left out.

    Attributes:
        found: the paths of each stream, by its kind and name.
    """

    def __init__(self, most_names: Mapping[str, int]) -> None:
        self._most_names = most_names
        self.found: dict[tuple[str, str], SpaceSaving] = {}

    def add(self, kind: str, name: str, path: str, number: int = 1, mark: float | None = None) -> None:
        """Add occurrences of ``path`` to the stream ``name``."""
        busiest = self.found.get((kind, name))
        if busiest is None:
            if sum(each == kind for each, _ in self.found) >= self._most_names[kind]:
                return
            busiest = self.found[kind, name] = SpaceSaving()
        busiest.add(path, number, mark)

    def merge(self, other: NamedPaths) -> None:
        """Add the occurrences in ``other``."""
        for (kind, name), busiest in other.found.items():
            for path, (count, error, mark) in busiest.places.items():
                self.add(kind, name, path, count - error, mark)

    def numbers(self, kind: str) -> Names:
        """Return the readable paths of all streams of a kind with their numbers, in descending order."""
        return {
            name if name.isprintable() else repr(name): {
                readable(path): number for path, number in busiest.numbers().items()
            }
            for (each, name), busiest in self.found.items()
            if each == kind
        }

    def unpublished(self) -> list[Occurrences]:
        return [
            Occurrences(kind, name, path, int(count - mark), count)
            for (kind, name), busiest in self.found.items()
            for path, (count, _, mark) in busiest.places.items()
            if count != mark
        ]

    def published(self, occurrences: Iterable[Occurrences]) -> None:
        """Mark these occurrences as published. It is safe to call this twice."""
        for kind, name, path, _, until in occurrences:
            places = self.found[kind, name].places if (kind, name) in self.found else {}
            count, error, mark = places.get(path, (0, 0, until))
            # The path may have lost its place since, and got another one, whose mark is at least the old count.
            if mark < until:
                places[path] = (count, error, until)

    def publish_again(self) -> None:
        """Mark all occurrences as not published, because the database is new."""
        for busiest in self.found.values():
            busiest.places = {path: (count, error, error) for path, (count, error, _) in busiest.places.items()}


def readable(path: str) -> str:
    """Return a path, one character for each byte, as it is shown to humans: without spaces and control characters.

    The result contains no character that moves the cursor of a terminal or changes the direction of the text.
    """
    if _PLAIN.fullmatch(path):
        return path
    text = path.encode("latin-1", "replace").decode("utf-8", "surrogateescape")
    return "".join(each if each.isprintable() and each not in " %?#" else _quoted(each) for each in text)


def _quoted(character: str) -> str:
    return quote(character, safe="", errors="surrogateescape")
