"""A core's view of the stamps that processes share: see ``contract.Stamps``."""

from __future__ import annotations

import platform
import threading
from array import array
from contextlib import AbstractContextManager
from sys import byteorder
from typing import Any, Final

from wheelcache.core.contract import COMMIT_LANES, Seen, Stamps

TOTAL_STORE_ORDER: Final = ("x86_64", "AMD64", "i386", "i686")
"""Machines on which the instruction that acquires a lock is a full barrier."""

if platform.machine() not in TOTAL_STORE_ORDER:
    # Not at the first use: the child of a fork that happens during an import waits for its lock forever.
    import ctypes  # noqa: F401


def new_fence() -> AbstractContextManager[object]:
    """Return a context manager whose entry is a full barrier: no later load passes an earlier store.

    Entering it does not release the global interpreter lock, so no other thread sees an unfinished step. Python has no
    barrier of its own. On machines other than x86, acquiring a lock only keeps later accesses behind it: an earlier
    store may still be delayed beyond it. The scheduler of Linux executes a full barrier at each call
    (``smp_mb__after_spinlock`` in ``__schedule``, on which ``membarrier(2)`` relies), so ``sched_yield`` is one, too.
    """
    if platform.machine() in TOTAL_STORE_ORDER:
        return threading.Lock()
    # Imported here, since ctypes takes 1 MB, which x86 does not need.
    from ctypes import PyDLL

    class SchedulerCall:
        __enter__ = PyDLL(None).sched_yield

        def __exit__(self, *error: object) -> None:
            pass

    return SchedulerCall()


NO_COMMITS: Final = bytes(COMMIT_LANES)


def exchange_word(words: memoryview | array[int], index: int, word: int) -> int:
    """Put ``word`` into a buffer of 64-bit words, and return the word that it replaces.

    Only the compiled core does this in one step. Here, a write by another thread or process may come in between.
    """
    before: int = words[index]
    words[index] = word
    return before


def is_marked(commits: memoryview | None, slot: int) -> bool:
    """Return whether a commit that has invalidated names of this slot's place is in progress: see
    ``contract.Stamps.commits``."""
    if commits is None:
        return False
    begin = slot * COMMIT_LANES % len(commits)
    return bytes(commits[begin : begin + COMMIT_LANES]) != NO_COMMITS


class StampWords:
    """The two tables of stamps, and the stamps that are reserved for this core and not yet used.

    The core calls every method under its lock. Without the global interpreter lock, it also reads ``table`` under it.

    Attributes:
        table, invalidations: the words by slot.
        commits: see ``contract.Stamps``.
        next: the next stamp; None if this core writes no stamps.
    """

    __slots__ = ("_fence", "commits", "invalidations", "next", "table")

    def __init__(self, stamps: Stamps) -> None:
        self.table = stamps.table
        self.invalidations = stamps.invalidations
        self.commits = stamps.commits
        self.next = stamps.first
        self._fence = new_fence()

    def seen(self, slot: int) -> Seen:
        # Read the invalidation word first: if another process writes between the two reads, the stamp differs as well.
        invalidation = self.invalidations[slot]
        return invalidation, self.table[slot]

    def is_outdated(self, slot: int, seen: Seen) -> bool:
        """Return whether another process wrote to the slot since it showed ``seen``, or a commit that has invalidated
        it is in progress. Always False if this core writes no stamps: the table does not record writes then."""
        return self.next is not None and bool(self.table[slot] != seen[1] or is_marked(self.commits, slot))

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
        """Store the words under which an entry is current: ``seen``, or without it, a fresh stamp, which is also put
        into both words of the slot."""
        entry.slot = slot
        if seen is not None:
            entry.invalidation, entry.stamp = seen
        elif self.next is None:
            entry.invalidation, entry.stamp = self.invalidations[slot], self.table[slot]
        else:
            # The invalidation word comes first. No other thread of this process can run before the entry has the stamp
            # as well, so none finds the key missing.
            self.invalidations[slot] = self.table[slot] = entry.invalidation = entry.stamp = self.next
            self.next += 1

    def restamp(self, entry: Any) -> bool:
        """Put a fresh stamp into the slot of an entry, without invalidating. Return False if another process wrote."""
        if self.next is None:
            return bool(self.invalidations[entry.slot] == entry.invalidation)
        stamp = self.next
        self.next += 1
        self.table[entry.slot] = stamp
        # The invalidation word must be read after a full barrier: see ``coherence.shared_stamps``. Entering the fence
        # lets no other thread run, but leaving it does: if the entry's stamp were written after that, other threads
        # would not find the key in the meantime.
        with self._fence:
            if self.invalidations[entry.slot] != entry.invalidation:
                return False
            entry.stamp = stamp
            return True

    def forget_locks(self) -> None:
        """Replace the fence after a fork: another thread may have held it."""
        self._fence = new_fence()
