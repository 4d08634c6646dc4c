"""The stamps of one cache, by the keys of its core: what they show, which misses its writes answer, and whether the
processes that start now find the same ones."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from typing import Any, Final

from wheelcache.coherence.fill_notes import NEWS, Answered, FillNotes
from wheelcache.coherence.shared_stamps import Stamps
from wheelcache.core.contract import Core, Seen, Watch
from wheelcache.errors import CacheClosed, FileUnusable

logger = logging.getLogger("wheelcache")

CHECK_INTERVAL: Final = 10.0
"""Seconds between looks whether the file of the stamps is still there, at misses and writes. 2 us."""

UNTOLD: Final[Seen] = (0, 0)
"""What no slot shows: a value that is stored under it is never current."""


class KeyStamps:
    """What a cache does with its stamps; nothing, if it has none.

    Attributes:
        are_there: there are stamps: other processes tell this one what they write, or trust in all entries may end.
        tells_of_writes: an entry that is not current was written by another process.
    """

    __slots__ = ("_checked", "_clock", "_core", "_name", "_notes", "_stamps", "_table", "are_there", "tells_of_writes")

    def __init__(self, name: str, core: Core, clock: Callable[[], float], stamps: Stamps | None) -> None:
        self._name = name
        self._core = core
        self._clock = clock
        self._stamps = stamps
        self._checked = clock()
        # The one that the core has.
        self._table = None if stamps is None else stamps.table
        # Stamps that are never written tell no other process of writes, so a fill need not be told from news.
        self._notes = None if stamps is None or stamps.first is None else FillNotes(core.now)
        self.are_there = stamps is not None
        self.tells_of_writes = self._notes is not None

    def slot(self, key: Any) -> int:
        """Of ``key`` in the stamps.

        Raises:
            TypeError: it would not be the same in every process.
        """
        return 0 if self._stamps is None else self._stamps.slot(key)

    def seen(self, key: Any) -> Seen | None:
        """What the stamps show for ``key`` now."""
        stamps = self._stamps
        if stamps is None:
            return None
        slot = stamps.slot(key)
        # The news first: if there is any more in between, the stamp is another one, too.
        news = stamps.news[slot]
        return news, stamps.table[slot]

    def watch(self, key: Any) -> Watch:
        """``core.watch``."""
        return self._core.watch(key, slot=self.slot(key))

    def seen_by_load(self, seen: Seen | None) -> Seen | None:
        """Under what a value is stored that was loaded while the stamps showed ``seen``."""
        return seen if seen is None or self._stamps is None or self._stamps.is_told else UNTOLD

    def missed(self, key: Any) -> None:
        """``key`` was missed, and may be set soon."""
        if self._notes is not None and (seen := self.seen(key)) is not None:
            self._notes.missed(key, seen)

    def noted(self, key: Any) -> Answered:
        """Return and forget the miss that a write of ``key`` answers; NEWS if it answers none."""
        return NEWS if self._notes is None else self._notes.take(key)

    def forget_misses(self) -> None:
        """The cache was cleared."""
        if self._notes is not None:
            self._notes.forget()

    def check(self) -> bool:
        """Every now and then: whether the processes that start now find the stamps that this one has. If not, it has
        others from here on, and what was in the core is detached: then True."""
        stamps, now = self._stamps, self._clock()
        if stamps is None or now < self._checked + CHECK_INTERVAL:
            return False
        # First, so that one thread makes them anew.
        self._checked = now
        try:
            if self._table is stamps.table and not stamps.is_gone():
                return False
            stamps.open()
            self._use(stamps, keep=False)
        except (FileUnusable, OSError):
            logger.exception("The stamps of the cache %r were removed and cannot be made anew.", self._name)
            return False
        except CacheClosed:
            return False
        except BaseException:
            # Interrupted: perhaps the core has not got them. The next miss or write makes others.
            self._checked = -inf
            raise
        logger.warning("The stamps of the cache %r were removed; they are new, and the cache empty.", self._name)
        return True

    def after_fork_in_child(self) -> None:
        if self._stamps is not None:
            self._stamps.open_in_child()
            self._use(self._stamps, keep=True)

    def _use(self, stamps: Stamps, *, keep: bool) -> None:
        self._core.use_stamps(stamps, keep=keep)
        self._table = stamps.table
