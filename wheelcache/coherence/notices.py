"""Notices: the writes that one machine reports to the others, as slots of the stamps, without keys and values.

A key has the same slot on all machines. A slot takes five characters, whatever the length of its key, and shows neither
the key nor the value.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

MOST_SLOTS: Final = 1_000
"""The largest number of slots of a notice, and of the notices of one transaction. Beyond it, everything is reported."""


@dataclass(frozen=True, slots=True)
class Notice:
    """Writes that outdate the entries of other machines.

    Attributes:
        keys, tags: the slots of written keys and of dropped tags.
        everything: whether all entries are outdated.
    """

    keys: frozenset[int] = frozenset()
    tags: frozenset[int] = frozenset()
    everything: bool = False

    def __len__(self) -> int:
        """Return the number of slots."""
        return len(self.keys) + len(self.tags)

    def payload(self, slots: int) -> str:
        """Return the notice as text, for stamps with so many ``slots``."""
        if self.everything or len(self) > MOST_SLOTS:
            return json.dumps({"slots": slots, "everything": True})
        return json.dumps({"slots": slots, "keys": sorted(self.keys), "tags": sorted(self.tags)})


EVERYTHING: Final = Notice(everything=True)


def merged(notices: Iterable[Notice]) -> Notice:
    """Return one notice of the same writes."""
    keys: set[int] = set()
    tags: set[int] = set()
    for notice in notices:
        if notice.everything:
            return EVERYTHING
        keys |= notice.keys
        tags |= notice.tags
    return Notice(frozenset(keys), frozenset(tags))


def notice_of(payload: str, slots: int) -> Notice:
    """Return the notice of a payload. A payload of another version of wheelcache outdates everything."""
    try:
        document: Any = json.loads(payload)
        if document.keys() != {"slots", "keys", "tags"} or document["slots"] != slots:
            return EVERYTHING
        return Notice(_checked(document["keys"], slots), _checked(document["tags"], slots))
    except (AttributeError, TypeError, ValueError, RecursionError):
        return EVERYTHING


def _checked(found: Iterable[Any], slots: int) -> frozenset[int]:
    if not all(type(slot) is int and 0 <= slot < slots for slot in found):
        raise ValueError("there is no such slot")
    return frozenset(found)


class Bus(Protocol):
    """Carries the notices of this process to all machines, and those of all machines to the stamps of this machine."""

    def start(self) -> object:
        """Read notices from now on, unless another process of this machine does. A second call has no effect."""

    def publish(self, notice: Notice) -> bool:
        """Report writes by this process, which its own machine has noticed already. Return whether the notice belongs
        to an open transaction of the running thread, whose commit will report it."""

    def take_restored(self) -> Sequence[tuple[float, int]]:
        """Return how many notices of a restored dump were removed since the last call, with the times in seconds since
        1970."""


def report(bus: Bus, notice: Notice) -> None:
    """Publish a notice, unless the running code collects those for ``bus``."""
    held = _held.get()
    if held is not None and held[0] is bus:
        held[1].append(notice)
    else:
        bus.publish(notice)


@contextmanager
def collected(bus: Bus | None) -> Iterator[list[Notice]]:
    """Collect the notices for ``bus`` by the running code in this block instead of publishing them."""
    notices: list[Notice] = []
    token = _held.set((bus, notices))
    try:
        yield notices
    finally:
        _held.reset(token)


_held: Final[ContextVar[tuple[Bus | None, list[Notice]] | None]] = ContextVar("wheelcache_held", default=None)
