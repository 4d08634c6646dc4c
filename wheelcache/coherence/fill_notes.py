"""Notes of misses. They distinguish a ``set`` that fills the cache after a miss from one that changes a value.

A caller that misses a key computes its value and sets it. Such a fill does not notify the other processes, since the
source of the value did not change, and it is dropped if another process wrote the key since the miss. Any other write
invalidates their entries. So each miss is noted, with the stamp of the key at that time, in the scope of the thread,
task or request that missed.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2b
from typing import Any, Final

from wheelcache.coherence.shared_stamps import canonical
from wheelcache.core.contract import Seen
from wheelcache.core.tags import moment
from wheelcache.runtime.request_scope import current_scope

FILL_WINDOW: Final = 10.0
"""Seconds. A ``set`` or ``add`` this soon after the same thread or task missed the key counts as a fill: it does not
invalidate the entries of other processes, and it is dropped if one of them wrote the key in the meantime. A later one
invalidates."""

Answered = tuple[Seen | None, int]
"""The miss that a write fills: the words that its slot of the stamps showed, and its moment."""

INVALIDATES: Final[Answered] = (None, 0)
"""The value of a write that fills no miss."""

PLAIN_LENGTH: Final = 256
"""Characters. The note of a longer key, or of a key that is not a string, contains its 16-byte digest instead."""


class FillNotes:
    """The notes of one cache.

    Args:
        clock: returns seconds, for ``FILL_WINDOW``.
    """

    __slots__ = ("_clock", "_identity")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Not id(self): the notes of another cache may get the same id after this object is freed.
        self._identity = object()

    def missed(self, key: Any, seen: Seen) -> None:
        """Note that ``key`` was missed while its slot of the stamps showed ``seen``."""
        current_scope().note_miss((self._identity, _noted(key)), (seen, moment(), self._clock()))

    def take(self, key: Any) -> Answered:
        """Remove and return the note of the miss that a write of ``key`` fills; INVALIDATES if there is none."""
        note = current_scope().take_miss((self._identity, _noted(key)))
        if note is None:
            return INVALIDATES
        seen, since, missed_at = note
        return (seen, since) if self._clock() - missed_at <= FILL_WINDOW else INVALIDATES

    def forget(self) -> None:
        """Remove the notes of the running thread or task. Later calls of ``set`` are then no fills, but invalidate."""
        current_scope().forget_misses(self._identity)


def _noted(key: Any) -> str | bytes:
    """Return ``key`` in a form of bounded size, which is the same for equal keys."""
    if type(key) is str and len(key) <= PLAIN_LENGTH:
        return key
    text = repr(key if isinstance(key, str) else canonical(key))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
