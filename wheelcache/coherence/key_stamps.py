"""The stamps of one cache, looked up by the keys of its core.

``KeyStamps`` also keeps the notes of misses, and opens the stamps again if their file was removed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Any, Final
from zlib import crc32

from wheelcache.coherence.fill_notes import INVALIDATES, Answered, FillNotes
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.core.contract import Core, Seen, Watch
from wheelcache.errors import CacheClosed, FileUnusable

logger = logging.getLogger("wheelcache")

CHECK_INTERVAL: Final = 10.0
"""Seconds between two checks, at a miss or a write, that the file of the stamps still exists. A check takes 2 us."""

NEVER_CURRENT: Final[Seen] = (0, 0)
"""A pair of words that no slot ever shows: a value that is stored under it is never current."""


class KeyStamps:
    """The stamps of one cache. Without stamps, every method does nothing.

    Attributes:
        are_there: whether the cache has stamps, written by other processes or by a connection that reports writes.
        reports_writes: whether other processes write the stamps. If so, another process has written or deleted the key
            of every entry that is not current.
    """

    __slots__ = (
        *("_checked", "_clock", "_core", "_drops", "_name", "_notes", "_stamps", "_table"),
        *("are_there", "reports_writes"),
    )

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
        self._notes = None if stamps is None or stamps.first is None else FillNotes(core.now)
        self.are_there = stamps is not None
        self.reports_writes = self._notes is not None

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
        if self._notes is not None and (seen := self.seen(key)) is not None:
            self._notes.missed(key, seen)

    def noted(self, key: Any) -> Answered:
        """Remove and return the note of the miss that a write of ``key`` fills; INVALIDATES if there is none."""
        return INVALIDATES if self._notes is None else self._notes.take(key)

    def forget_misses(self) -> None:
        """Remove the notes of the running thread or task, after the cache was cleared."""
        if self._notes is not None:
            self._notes.forget()

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
