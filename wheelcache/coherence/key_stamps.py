"""The stamps of one cache, looked up by the keys of its core."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable
from math import inf
from typing import Any, Final
from zlib import crc32

from wheelcache.coherence.commits import Commit
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.core import is_marked
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
        source: the source of the invalidations, the same for all caches with these stamps; None if none are reported.
        are_there: whether the cache has stamps, written by other processes or by a connection that reports writes.
        are_in_file: whether the stamps are in a file that may be removed, so that misses must check it.
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
        self.reports_writes = stamps is not None and stamps.first is not None
        self.source: Hashable = stamps.identity if stamps is not None and self.reports_writes else None
        self.are_there = stamps is not None
        self.are_in_file = stamps is not None and stamps.is_in_file

    @property
    def writes(self) -> memoryview | None:
        """The moments of the last writes, which processes share; None if they share none."""
        return None if self._stamps is None else self._stamps.writes

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

    def seen_unless_committing(self, key: Any) -> Seen | None:
        """Do the same as ``seen``, but return None while a commit that has invalidated ``key`` is in progress."""
        stamps = self._stamps
        if stamps is None:
            return None
        slot = stamps.slot(key)
        seen = stamps.invalidations[slot], stamps.table[slot]
        # The words first: if they are from before the end of a commit, they are outdated afterwards.
        return None if is_marked(stamps.commits, slot) and stamps.is_committing(slot) else seen

    def restamp(self, key: Any) -> None:
        """End the entries of ``key`` in all processes, without outdating fills in progress."""
        if self._stamps is not None:
            self._stamps.restamp(self._stamps.slot(key))

    def watch(self, key: Any) -> Watch:
        """Watch ``key`` in the core. See ``Core.watch``."""
        return self._core.watch(key, slot=0 if self._stamps is None else self._stamps.slot(key))

    def seen_by_load(self, seen: Seen | None) -> Seen | None:
        """Return ``seen``, under which a loaded value is stored, or NEVER_CURRENT if no writes are reported now."""
        return seen if seen is None or self._stamps is None or self._stamps.is_notified else NEVER_CURRENT

    def begin_commit(self, names: Iterable[Any] | None) -> Commit | None:
        """Let no process keep fills of the keys and tags ``names`` until the end of a commit; of all names if that is
        None. Return None if other processes write no stamps, or too many commits are in progress."""
        if self._stamps is None or not self.reports_writes:
            return None
        return self._stamps.begin_commit(None if names is None else map(self.slot, names))

    def is_committing(self, slots: Iterable[int]) -> bool:
        """Return whether a commit that has invalidated one of the names is in progress. This ends the commits of
        processes that were killed."""
        stamps = self._stamps
        return stamps is not None and self.reports_writes and any(stamps.is_committing(slot) for slot in slots)

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
        self.source = stamps.identity if self.reports_writes else None
