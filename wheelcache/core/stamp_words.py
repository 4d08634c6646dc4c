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
        table, invalidations: the words by slot.
        next: the next stamp; None if writes leave the table alone.
    """

    __slots__ = ("_fence", "invalidations", "next", "table")

    def __init__(self, stamps: Stamps) -> None:
        self.table = stamps.table
        self.invalidations = stamps.invalidations
        self.next = stamps.first
        self._fence = new_fence()

    def seen(self, slot: int) -> Seen:
        # The invalidation word first: if another write comes in between, the stamp differs as well.
        invalidation = self.invalidations[slot]
        return invalidation, self.table[slot]

    def is_outdated(self, slot: int, seen: Seen) -> bool:
        """Whether another process wrote since the slot showed ``seen``. Stamps that are never written tell of no
        writes."""
        return self.next is not None and bool(self.table[slot] != seen[1])

    def write(self, slot: int) -> None:
        """Put a fresh stamp into both words of ``slot``."""
        if self.next is not None:
            self.invalidations[slot] = self.table[slot] = self.next
            self.next += 1

    def write_all(self) -> None:
        """Put a fresh stamp into both words of every slot."""
        if self.next is not None:
            words = memoryview(self.next.to_bytes(8, byteorder) * len(self.table)).cast("Q")
            self.next += 1
            self.invalidations[:] = words
            self.table[:] = words

    def stamp(self, entry: Any, slot: int, seen: Seen | None) -> None:
        """Give an entry the stamp of its slot when it was ``seen``; without ``seen``, a fresh one in both words."""
        entry.slot = slot
        if seen is not None:
            entry.invalidation, entry.stamp = seen
        elif self.next is None:
            entry.invalidation, entry.stamp = self.invalidations[slot], self.table[slot]
        else:
            # The invalidation word first. No other thread of this process runs between here and the entry's own stamp,
            # so none finds the key missing.
            self.invalidations[slot] = self.table[slot] = entry.invalidation = entry.stamp = self.next
            self.next += 1

    def restamp(self, entry: Any) -> bool:
        """Put a fresh stamp into the slot of an entry, without invalidating. Return False if another process wrote."""
        if self.next is None:
            return bool(self.invalidations[entry.slot] == entry.invalidation)
        stamp = self.next
        self.next += 1
        self.table[entry.slot] = stamp
        # The invalidation word is read behind a full barrier: see ``coherence.shared_stamps``. Entering the fence lets
        # no other thread run, but leaving it does: if the entry's stamp were written after that, readers would miss the
        # key.
        with self._fence:
            if self.invalidations[entry.slot] != entry.invalidation:
                return False
            entry.stamp = stamp
            return True

    def forget_locks(self) -> None:
        """Replace the fence after a fork: another thread may have held it."""
        self._fence = new_fence()
