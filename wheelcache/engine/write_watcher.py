"""The seam for parts that follow the writes of a cache: the moments of its writes, the leases on its keys.

The path of a write knows no such part. It notifies the watchers that are attached to the cache (``Engine.watcher``):
before each write by a caller, so that a value computed in the meantime is known to be outdated, and after those writes
for which other callers may wait. A load that stores its value is no write: it counts as one only if it is refused.

Without watchers, none of this costs anything: the compiled calls look at one field.

``WriteMoments`` records the moments of the last writes, by slot: they show whether a name was written since a
transaction began.

A value that a transaction computed may be as old as the beginning of the transaction, which no watch of the core
covers: it begins later, with the look-up. So a cache that follows transactions also records the moment of
every write of a key and of every drop of a tag, before the write. Loads and evictions are no writes. Several names
share a slot; a value of one is then not kept because of a write of another.

A commit first applies its own deletes and drops, and then stores its values. Its own writes must not outdate its
values, but those of others that come in between must. Therefore a word is exchanged, not assigned: the previous moment
shows whether another caller wrote before, and a different moment in the slot that another caller wrote after.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from wheelcache.core import exchange_word
from wheelcache.runtime.clock import moment


class WriteWatcher:
    """A part that follows the writes of one cache. Keys are those of its core. A watcher overrides what it needs.

    Attributes:
        words: where the compiled calls record the moment of a plain write themselves, instead of calling ``writing``:
            see ``WriteMoments``. None for a watcher that needs the other calls, and does nothing in ``writing``.
        open: the keys whose deletes the compiled calls report to a watcher without words. It changes in place.
    """

    words: array[int] | None = None
    open: dict[Hashable, Any]

    def writing(self, name: Hashable) -> None:
        """A caller will write or delete the entry of a key, or drop a tag, given by the core's name."""

    def writing_any(self) -> None:
        """A caller will remove entries of an unknown set of keys."""

    def completed(self) -> None:
        """The core has completed watches, and keeps them in ``completed``."""

    def refused(self, key: Hashable) -> None:
        """A value of ``key`` was not stored, since it may be outdated: whoever waits for it must look again."""

    def deleted(self, key: Hashable) -> None:
        """The running code has deleted ``key``."""

    def cleared(self) -> None:
        """The running code is removing all entries."""

    def close(self) -> None:
        """The cache is closed: nobody may wait any longer."""

    def after_fork_in_child(self) -> None:
        """Forget everything that concerns callers in the parent process."""


SLOTS: Final = 16_384
"""The words of a cache in memory, in 128 KiB. With 100 writes per second and transactions of 0.1 s, a value in
1,600 is not kept because of a write of another key."""


ALL_WRITES: Final = 0
"""The place of the moment of the last write of everything."""


def _place(name: Hashable) -> int:
    """Return the place of the moment of the last write of ``name``."""
    return 1 + hash(name) % (SLOTS - 1)


class WriteMoments(WriteWatcher):
    """The moments of the last writes of one cache. Names are keys of its core, or the core's names of tags.

    Attributes:
        words: the moments by their places. The compiled fast paths of ``core.access`` write them, too.
    """

    def __init__(self) -> None:
        # Not a memoryview, which the garbage collector could not release while the compiled core holds its buffer.
        self.words: array[int] = array("Q", bytes(8 * SLOTS))

    def last_writes(self, names: Iterable[Hashable]) -> Iterator[tuple[Hashable, int]]:
        """Yield the places of names, and the moments of their last writes; first those of all names."""
        for place in (ALL_WRITES, *map(_place, names)):
            yield place, self.words[place]

    def begin_commit(self, names: Collection[Hashable], *, covers_all: bool) -> Callable[[], object] | None:
        """Let no other process keep computed values of these keys and tags, or of any if ``covers_all`` is true, until
        the function that this returns is called. None if no other process has the entries."""
        return None

    def writing(self, name: Hashable) -> None:
        self._write(_place(name))

    def writing_any(self) -> None:
        self._write(ALL_WRITES)

    def _write(self, place: int) -> None:
        now = moment()
        before = exchange_word(self.words, place, now)
        commit = APPLIED.get()
        if commit is not None and commit.moments is self:
            commit.note(place, before, now)


class WritesSince:
    """The writes of a cache by others since a moment, the beginning of a transaction.

    Attributes:
        moments: the moments of all writes of the cache.
        since: the moment; 0 if it is not known, so that every name counts as written.
    """

    __slots__ = ("_own", "moments", "since")

    def __init__(self, moments: WriteMoments, since: int) -> None:
        self.moments = moments
        self.since = since
        # By place, the moment of the write before the first one of the transaction, and that of its last one, unless
        # others have written in between.
        self._own: dict[Hashable, tuple[int, int]] = {}

    @contextmanager
    def apply(self) -> Iterator[None]:
        """Count writes of this cache by the running code in this block as those of the transaction."""
        token = APPLIED.set(self)
        try:
            yield
        finally:
            APPLIED.reset(token)

    def note(self, place: Hashable, before: int, now: int) -> None:
        """Note a write by the transaction, and the moment of the write before it."""
        first, last = self._own.get(place, (before, before))
        if before == last:
            self._own[place] = first, now

    def add(self, inner: WritesSince) -> None:
        """Count the writes of a transaction that was committed within this one as those of this one, which may now
        share values that are as old as the beginning of either."""
        self.since = min(self.since, inner.since)
        for place, (before, now) in inner._own.items():
            self.note(place, before, now)

    def contain(self, names: Iterable[Hashable]) -> bool:
        """Return whether others have written one of the names, or cleared the cache."""
        for place, written in self.moments.last_writes(names):
            if written >= self.since:
                before, last = self._own.get(place, (written, 0))
                if before >= self.since or written != last:
                    return True
        return False


APPLIED: Final[ContextVar[WritesSince | None]] = ContextVar("wheelcache_applied", default=None)
"""The writes since the begin of the transaction whose values the running code applies; None for no transaction."""
