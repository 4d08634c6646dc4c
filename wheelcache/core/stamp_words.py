"""A core's view of the stamps that processes share: see ``contract.Stamps``."""

from __future__ import annotations

import platform
import threading
from contextlib import AbstractContextManager
from sys import byteorder
from typing import Any, Final

from wheelcache.core.contract import Seen, Stamps

TOTAL_STORE_ORDER: Final = ("x86_64", "AMD64", "i386", "i686")
"""Machines on which the locked instruction that takes a lock is a full barrier."""


def new_fence() -> AbstractContextManager[object]:
    """Return a context manager whose entry is a full barrier: no later load passes an earlier store.

    Its entry keeps the global interpreter lock, so that no other thread sees the core in between. Python has no barrier
    of its own. On other machines than x86, taking a lock only keeps later accesses behind it: an earlier store may
    still be delayed beyond it. The scheduler of Linux passes a full barrier at each call (``smp_mb__after_spinlock`` in
    ``__schedule``, on which ``membarrier(2)`` relies), so ``sched_yield`` is one, too.
    """
    if platform.machine() in TOTAL_STORE_ORDER:
        return threading.Lock()
    # Not at the top: it takes 1 MB, which x86 does not need.
    from ctypes import PyDLL

    class SchedulerCall:
        __enter__ = PyDLL(None).sched_yield

        def __exit__(self, *error: object) -> None:
            pass

    return SchedulerCall()


class StampWords:
    """The two tables, and the stamps that are left of the range reserved for this core. Called under the core's lock.

    Attributes:
        table, news: the words by slot.
        next: the next stamp; None if writes leave the table alone.
    """

    __slots__ = ("_fence", "news", "next", "table")

    def __init__(self, stamps: Stamps) -> None:
        self.table = stamps.table
        self.news = stamps.news
        self.next = stamps.first
        self._fence = new_fence()

    def seen(self, slot: int) -> Seen:
        # The news word first: if another write comes in between, the stamp differs as well.
        news = self.news[slot]
        return news, self.table[slot]

    def is_outdated(self, slot: int, seen: Seen) -> bool:
        """Whether another process wrote since the slot showed ``seen``. Stamps that are never written tell of no
        writes."""
        return self.next is not None and bool(self.table[slot] != seen[1])

    def write(self, slot: int) -> None:
        """Put a fresh stamp into ``slot``, as news."""
        if self.next is not None:
            self.news[slot] = self.table[slot] = self.next
            self.next += 1

    def write_all(self) -> None:
        """Put a fresh stamp into every slot, as news."""
        if self.next is not None:
            words = memoryview(self.next.to_bytes(8, byteorder) * len(self.table)).cast("Q")
            self.next += 1
            self.news[:] = words
            self.table[:] = words

    def stamp(self, entry: Any, slot: int, seen: Seen | None) -> None:
        """Give the stamp that the slot showed when it was ``seen`` to an entry; without it, a fresh one, as news."""
        entry.slot = slot
        if seen is not None:
            entry.news, entry.stamp = seen
        elif self.next is None:
            entry.news, entry.stamp = self.news[slot], self.table[slot]
        else:
            # In the table's news first. No other thread of this process runs between here and the entry's own stamp,
            # so none finds the key missing.
            self.news[slot] = self.table[slot] = entry.news = entry.stamp = self.next
            self.next += 1

    def restamp(self, entry: Any) -> bool:
        """Put a fresh stamp into the slot of an entry, but no news. Return False if another process has written."""
        if self.next is None:
            return bool(self.news[entry.slot] == entry.news)
        stamp = self.next
        self.next += 1
        self.table[entry.slot] = stamp
        # The news is read behind a full barrier: see ``coherence.shared_stamps``. Entering the fence lets no other
        # thread run, but leaving it does: with the entry's stamp written after that, readers would miss the key.
        with self._fence:
            if self.news[entry.slot] != entry.news:
                return False
            entry.stamp = stamp
            return True

    def forget_locks(self) -> None:
        """Replace the fence after a fork: another thread may have held it."""
        self._fence = new_fence()
