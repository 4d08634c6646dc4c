"""The stamps of one cache, looked up by the keys of its core, and the notes of its misses.

The notes distinguish a ``set`` that fills the cache after a miss from one that changes a value. A caller that misses a
key computes its value and sets it. Such a fill does not notify the other processes, since the source of the value did
not change, and it is dropped if another process wrote the key since the miss. Any other write invalidates their
entries. So each miss is noted, with the stamp of the key at that time, in the scope of the thread, task or request that
missed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from hashlib import blake2b
from math import inf
from typing import Any, Final
from zlib import crc32

from wheelcache.coherence.shared_stamps import Stamps, canonical
from wheelcache.core.contract import Core, Seen, Watch
from wheelcache.core.tags import moment
from wheelcache.errors import CacheClosed, FileUnusable
from wheelcache.runtime.request_scope import current_scope

logger = logging.getLogger("wheelcache")

CHECK_INTERVAL: Final = 10.0
"""Seconds between two checks, at a miss or a write, that the file of the stamps still exists. A check takes 2 us."""

NEVER_CURRENT: Final[Seen] = (0, 0)
"""A pair of words that no slot ever shows: a value that is stored under it is never current."""

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


class KeyStamps:
    """The stamps of one cache. Without stamps, every method does nothing.

    Attributes:
        are_there: whether the cache has stamps, written by other processes or by a connection that reports writes.
        reports_writes: whether other processes write the stamps. If so, another process has written or deleted the key
            of every entry that is not current.
    """

    def __init__(self, name: str, core: Core, clock: Callable[[], float], stamps: Stamps | None) -> None:
        self._name = name
        self._core = core
        self._clock = clock
        self._stamps = stamps
        self._checked = clock()
        # The table that the core uses.
        self._table = None if stamps is None else stamps.table
        self._drops = 0
        # Stamps that are never written report no writes, so fills need no notes.
        self.reports_writes = stamps is not None and stamps.first is not None
        # Identifies the cache in the notes. Not id(self): another cache may get the same id after this object is freed.
        self._identity = object()
        self.are_there = stamps is not None

    def slot(self, key: Any) -> int:
        """Return the slot of ``key`` in the stamps.

        Raises:
            TypeError: if the slot would not be the same in every process.
        """
        return 0 if self._stamps is None else self._stamps.slot(key)

    def seen(self, key: Any) -> Seen | None:
        """Return the present words in the slot of ``key``; None without stamps."""
        stamps = self._stamps
        if stamps is None:
            return None
        slot = stamps.slot(key)
        # The invalidation word first: if another process writes between the two reads, the stamp differs as well.
        invalidation = stamps.invalidations[slot]
        return invalidation, stamps.table[slot]

    def watch(self, key: Any) -> Watch:
        """Watch ``key`` in the core. See ``Core.watch``."""
        return self._core.watch(key, slot=self.slot(key))

    def seen_by_load(self, seen: Seen | None) -> Seen | None:
        """Return ``seen``, under which a loaded value is stored, or NEVER_CURRENT if no writes are reported now."""
        return seen if seen is None or self._stamps is None or self._stamps.is_notified else NEVER_CURRENT

    def missed(self, key: Any) -> None:
        """Note that ``key`` was missed, and may be set soon."""
        if self.reports_writes and (seen := self.seen(key)) is not None:
            current_scope().note_miss((self._identity, _noted(key)), (seen, moment(), self._core.now()))

    def noted(self, key: Any) -> Answered:
        """Remove and return the note of the miss that a write of ``key`` fills; INVALIDATES if there is none."""
        if not self.reports_writes:
            return INVALIDATES
        note = current_scope().take_miss((self._identity, _noted(key)))
        if note is None:
            return INVALIDATES
        seen, since, missed_at = note
        return (seen, since) if self._core.now() - missed_at <= FILL_WINDOW else INVALIDATES

    def forget_misses(self) -> None:
        """Remove the notes of the running thread or task, after the cache was cleared: a later ``set`` invalidates."""
        if self.reports_writes:
            current_scope().forget_misses(self._identity)

    def check(self) -> bool:
        """Open the stamps again if their file was removed or replaced. Return whether that was the case.

        Processes that start later would not share the old stamps. The entries of the core are then detached, since they
        were stored under the old stamps. The file is checked once in ``CHECK_INTERVAL``.
        """
        stamps, now = self._stamps, self._clock()
        if stamps is None or now < self._checked + CHECK_INTERVAL:
            return False
        # Set before the check, so that only one thread opens the stamps again.
        self._checked = now
        try:
            if self._table is stamps.table and not stamps.is_gone():
                self._find_drops(stamps)
                return False
            stamps.open()
            self._use(stamps, keep=False)
        except (FileUnusable, OSError):
            logger.exception("The stamps of the cache %r were removed and cannot be created again.", self._name)
            return False
        except CacheClosed:
            return False
        except BaseException:
            # This was interrupted, so the core may not have the new stamps. The next miss or write opens others.
            self._checked = -inf
            raise
        logger.warning("The stamps of the cache %r were removed; it has new ones and starts empty.", self._name)
        return True

    def _find_drops(self, stamps: Stamps) -> None:
        """If any process has dropped a tag since the last check, let the wheel remove entries of dropped tags."""
        # A checksum takes 0.3 ms, a copy of the words half a megabyte.
        drops = 0 if stamps.tags is None else crc32(stamps.tags)
        if drops != self._drops:
            self._drops = drops
            self._core.sweep_tags()

    def after_fork_in_child(self) -> None:
        if self._stamps is not None:
            self._stamps.open_in_child()
            self._use(self._stamps, keep=True)

    def _use(self, stamps: Stamps, *, keep: bool) -> None:
        self._core.use_stamps(stamps, keep=keep)
        self._table = stamps.table


def _noted(key: Any) -> str | bytes:
    """Return ``key`` in a form of bounded size, which is the same for equal keys."""
    if type(key) is str and len(key) <= PLAIN_LENGTH:
        return key
    text = repr(key if isinstance(key, str) else canonical(key))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
