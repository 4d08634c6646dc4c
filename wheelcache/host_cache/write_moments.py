"""The writes of a host cache since the beginning of a database transaction.

The rows, the floors and the dropped tags have the moments of their writes, so that a write by any process shows. A
transaction that is being committed raises the floors of its keys into the future, by MARKED at most: a value that
another process computes before the commit is then not stored. Nor is one that it writes after a look-up: for this, the
keys are marked for the same time. Sets of other keys with the same floor must not be lost. If the process is killed,
floors and marks end by themselves.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Final

from wheelcache.host_cache import statements as sql
from wheelcache.host_cache.host_core import HostCore, lane_of, name_of, tag_name
from wheelcache.keys import CALLERS, GROUP
from wheelcache.machine_clock import moment
from wheelcache.writing.write_moments import APPLIED, WriteMoments

MARKED: Final = 10_000_000_000
"""Nanoseconds for which a commit is covered."""


class Commit:
    """A commit in progress: ``end`` lets others store computed values again.

    Args:
        covers_all: whether it concerns all keys.
    """

    def __init__(self, core: HostCore, keys: list[Any], tags: list[str], *, covers_all: bool) -> None:
        self._core, self._keys, self._tags, self._covers_all = core, keys, tags, covers_all
        self._until = moment() + MARKED
        # The commit itself has one, too, for the case that a clear leads to a new file meanwhile.
        self._marks = [(key, self._until) for key in (self._until, *keys)]

    def begin(self) -> None:
        def work(cursor: Any) -> None:
            # For a new file that cannot read the marks.
            self._core.file.cover(self._until)
            cursor.execute(sql.FORGET_MARKS, (moment(),))
            cursor.executemany(sql.MARK, self._marks)
            if self._covers_all:
                self._core.raise_fill_floor(cursor, self._until)
            for key in self._keys:
                self._core.raise_floor(cursor, key, self._until)
            for tag in self._tags:
                self._core.raise_drop(cursor, tag, self._until)

        self._core.file.transaction(work, None)

    def end(self) -> None:
        until, now, note = self._until, moment(), self._core.note

        def work(cursor: Any) -> None:
            cursor.executemany(sql.UNMARK, self._marks)
            if cursor.execute(sql.LOWER_FILL_FLOOR, (now, until)).rowcount and note is not None:
                note("", until, now)
            # Not those that another commit has raised.
            lanes = ((lane, sql.LOWER_FLOOR, lane) for lane in map(lane_of, self._keys))
            tags = ((tag_name(tag), sql.LOWER_DROP, tag) for tag in self._tags)
            for name, lower, place in (*lanes, *tags):
                if cursor.execute(lower, (now, name, until)).rowcount and note is not None:
                    note(place, until, now)

        self._core.file.transaction(work, None)


class HostMoments(WriteMoments):
    """The moments of the last writes of a host cache. The core itself records them."""

    __slots__ = ("_core",)

    def __init__(self, core: HostCore) -> None:
        self._core = core
        # The compiled fast paths, which a host cache does not use, write these.
        self.own = array("Q", bytes(8))
        core.note = self._note

    def written(self, name: Hashable) -> None:
        """Do nothing: the write itself has a moment."""

    def cleared(self) -> None:
        self._core.outdate_fills()

    def _note(self, place: Hashable, before: int, now: int) -> None:
        commit = APPLIED.get()
        if commit is not None and commit.moments is self:
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
            yield lane, (read(sql.LAST_WRITE, (key, lane)) or (0,))[0]

    def begin_commit(self, names: Iterable[Hashable] | None) -> Callable[[], object] | None:
        """Let nobody store computed values of these keys and tags, or any if that is None, until the end of the
        commit."""
        found = list(names or ())
        if names is not None and not found:
            return None
        keys, tags = [*map(name_of, found)], [str(name) for name in found if _may_be_tag(name)]
        commit = Commit(self._core, keys, tags, covers_all=names is None)
        commit.begin()
        return commit.end


def _may_be_tag(name: Any) -> bool:
    return type(name) is str and name[:1] in (CALLERS, GROUP)
