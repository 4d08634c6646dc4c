"""Which misses a ``set`` answers: a fill is quiet, and everything else that is written is news.

A caller that misses a key computes its value and sets it. That ``set`` tells the other processes nothing, since the
truth did not change; and it is dropped if another process wrote the key since the miss. For this the miss is noted,
with what the stamps showed, in the scope of the thread, task or request that missed.
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
end the entries of other processes, and is not kept if one of them wrote the key meanwhile. A later one is news."""

Answered = tuple[Seen | None, int]
"""The miss that a write answers: what the stamps showed, and its moment."""

NEWS: Final[Answered] = (None, 0)
"""For a write that answers no miss."""

PLAIN_LENGTH: Final = 256
"""Characters. A miss of a longer key, and of a key that is no string, is noted by its digest, of 16 bytes."""


class FillNotes:
    """The notes of one cache.

    Args:
        clock: seconds.
    """

    __slots__ = ("_clock", "_identity")

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        # Not id(self), which the notes of another cache may have when these are gone.
        self._identity = object()

    def missed(self, key: Any, seen: Seen) -> None:
        """``key`` was missed while the stamps showed ``seen``."""
        current_scope().note_miss((self._identity, _noted(key)), (seen, moment(), self._clock()))

    def take(self, key: Any) -> Answered:
        """Return and forget the miss that a write of ``key`` answers."""
        note = current_scope().take_miss((self._identity, _noted(key)))
        if note is None:
            return NEWS
        seen, since, missed_at = note
        return (seen, since) if self._clock() - missed_at <= FILL_WINDOW else NEWS

    def forget(self) -> None:
        """The cache was cleared: what the running thread or task missed before is filled by no later ``set``."""
        current_scope().forget_misses(self._identity)


def _noted(key: Any) -> str | bytes:
    """``key`` in a form of bounded size, the same for keys that are equal."""
    if type(key) is str and len(key) <= PLAIN_LENGTH:
        return key
    text = repr(key if isinstance(key, str) else canonical(key))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
