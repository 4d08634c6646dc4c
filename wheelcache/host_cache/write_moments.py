"""The writes of a host cache since the beginning of a database transaction.

The rows, the floors and the dropped tags have the moments of their writes, so that a write by any process shows. A
transaction that is being committed marks its keys and tags for MARKED at most: a value that another process computes
before the commit is then not stored, nor is one that it writes after a look-up. Each commit has marks of its own, so
the end of one leaves those of the others. If the process is killed, its marks end by themselves. The floor of all keys
then keeps out the values whose computations began before.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from typing import Any, Final

from wheelcache.engine.keys import CALLERS, GROUP
from wheelcache.engine.write_watcher import APPLIED, WriteMoments
from wheelcache.host_cache import statements as sql
from wheelcache.host_cache.host_core import HostCore, lane_of, name_of, tag_name
from wheelcache.runtime.machine_clock import moment

MARKED: Final = 10_000_000_000
"""Nanoseconds for which a commit is covered."""


class Commit:
    """A commit in progress: ``end`` lets others store computed values again.

    Args:
        names: those of its keys and tags.
        covers_all: whether it concerns all keys.
    """

    def __init__(self, core: HostCore, names: set[Any], *, covers_all: bool) -> None:
        self._core, self._names, self._covers_all = core, names, covers_all
        self._marks: list[tuple[Any, int]] = []

    def begin(self) -> None:
        def work(cursor: Any) -> None:
            now = moment()
            until = now + MARKED
            # For a new file that cannot read the marks.
            self._core.file.cover(until)
            (forgotten,) = cursor.execute(sql.LAST_MARK_BEFORE, (now,)).fetchone()
            if forgotten is not None:
                # Not a write by this transaction: its values may be older.
                cursor.execute(sql.RAISE_FILL_FLOOR, (forgotten,))
                cursor.execute(sql.FORGET_MARKS, (now,))
            names = [*self._names, sql.ALL_KEYS] if self._covers_all else self._names
            cursor.executemany(sql.MARK, [(name, until) for name in names])
            # Also of a file in which this was lost, or which has a mark of all keys instead.
            self._marks += [(name, until) for name in (*self._names, sql.ALL_KEYS)]

        self._core.file.transaction(work, None)

    def end(self) -> None:
        def work(cursor: Any) -> None:
            cursor.executemany(sql.UNMARK, self._marks)
            if self._covers_all:
                # The invalidations have raised the floors of single keys and tags.
                self._core.raise_fill_floor(cursor)

        self._core.file.transaction(work, None)


class HostMoments(WriteMoments):
    """The moments of the last writes of a host cache. The core itself records them."""

    def __init__(self, core: HostCore) -> None:
        self._core = core
        # Without places: the compiled calls, which a host cache does not use, would write to them.
        self.words = array("Q", bytes(8))
        core.note = self._note

    def writing(self, name: Hashable) -> None:
        """Do nothing: the write itself has a moment."""

    def writing_any(self) -> None:
        self._core.outdate_fills()

    def _note(self, place: Hashable, before: int, now: int, row: int) -> None:
        commit = APPLIED.get()
        # Not if others have written the row: the floor, which another key may have raised, does not show that.
        if commit is not None and commit.moments is self and row < commit.since:
            commit.note(place, before, now)

    def last_writes(self, names: Iterable[Hashable]) -> Iterator[tuple[Hashable, int]]:
        """Yield the places of names, and the moments of their last writes."""
        read = self._core.file.read
        # Nobody's own, not even that of a transaction that has cleared the cache: a new file has none of the moments
        # that others have left in the one before.
        yield "file", self._core.epoch
        yield "", (read(sql.FILL_FLOOR) or (0,))[0]
        for name in names:
            if _may_be_tag(name):
                yield name, (read(sql.DROPPED, (tag_name(str(name)),)) or (0,))[0]
            key = name_of(name)
            lane = lane_of(key)
            row, floor = read(sql.LAST_WRITES, (key, lane)) or (0, 0)
            # Nobody's own, since a transaction deletes its rows.
            yield "row", row
            yield lane, floor

    def begin_commit(self, names: Collection[Hashable], *, covers_all: bool) -> Callable[[], object] | None:
        """Let nobody store computed values of these keys and tags, or any if ``covers_all`` is true, until the end of
        the commit."""
        if not (names or covers_all):
            return None
        tags = [tag_name(str(name)) for name in names if _may_be_tag(name)]
        commit = Commit(self._core, {*map(name_of, names), *tags}, covers_all=covers_all)
        commit.begin()
        return commit.end


def _may_be_tag(name: Any) -> bool:
    return type(name) is str and name[:1] in (CALLERS, GROUP)
