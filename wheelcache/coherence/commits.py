"""The commits in progress on one machine: while a transaction is being committed, no process keeps a fill of its keys.

A transaction invalidates its keys before COMMIT and again after it, because another process may fill a key in between
with the value from before the commit. If the process is killed in between, nothing repeats the second invalidation.
So it marks the places of its keys and tags before the first invalidation, and removes the marks after the second one.
The cores refuse fills of marked places: see ``contract.Stamps.commits``. Writes that are no fills are not affected.

Each commit has a lane of its own: a byte at each place, and a file that it keeps locked with flock. The kernel releases
the lock of a process that was killed. A caller whose fill is refused looks at the lanes with marks. If nobody has a
lane locked, the owner of its marks is dead. The server may still be executing its COMMIT, so the marks stay for
``SERVER_TIME`` after a caller has found this out, which it notes in the file. Then they are replaced by fresh stamps,
which outdate all computations that began before.

Two commits never write the same byte, so no atomic operation is necessary. Marks of a dead owner stay if another commit
takes its lane. They are found when that commit has ended.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path
from sys import byteorder
from typing import Final

from wheelcache.core import is_marked
from wheelcache.core.contract import COMMIT_LANES
from wheelcache.core.stamp_words import new_fence
from wheelcache.machine_clock import moment
from wheelcache.runtime import lifecycle
from wheelcache.runtime.shared_objects import WeakRegistry

if sys.platform != "win32":
    import fcntl

PLACES: Final = 2048
"""The places of names in the table of marks, which takes 128 KiB. While a transaction that has invalidated ten keys is
being committed, one of 200 fills of other keys is not kept."""

SERVER_TIME: Final = 10.0
"""Seconds for which a database may continue to execute the COMMIT of a process that was killed."""

PRIVATE: Final = partial(os.open, mode=0o600)
"""Opens a file for its owner only."""

MOMENT_BYTES: Final = 8
"""A file of a lane contains the moment at which its owner was found dead, or nothing."""


class Commit:
    """A commit in progress. If this object is dropped before its ``end``, its marks are those of a dead owner."""

    __slots__ = ("__weakref__", "_file", "_lane", "_marks", "_places")

    def __init__(self, file: FileIO, lane: int, marks: memoryview, places: set[int] | None) -> None:
        self._file = file
        self._lane = lane
        self._marks = marks
        self._places = places
        _open.add(self)
        self._write(1)
        # The marks must be in memory before the stamps of the invalidations, which follow.
        with new_fence():
            pass

    def end(self) -> None:
        """Remove the marks, after the last invalidation."""
        # The child of a fork has closed the file: the commit is its parent's.
        if not self._file.closed:
            with new_fence():
                self._write(0)
            self._file.close()

    def close(self) -> None:
        """Leave the lane: to the parent, in the child of a fork."""
        self._file.close()

    __del__ = close

    def _write(self, mark: int) -> None:
        marks, lane = self._marks, self._lane
        if self._places is None:
            marks[lane::COMMIT_LANES] = bytes([mark]) * PLACES
            return
        for place in self._places:
            marks[place * COMMIT_LANES + lane] = mark


def begin_commit(path: Path, marks: memoryview, slots: Iterable[int] | None) -> Commit | None:
    """Mark the places of ``slots``; all places if that is None.

    Return None if ``COMMIT_LANES`` commits are in progress on this machine, or no file can be locked. The transaction
    is then committed without marks.
    """
    places = None if slots is None else {slot % PLACES for slot in slots}
    for number in range(COMMIT_LANES):
        lane = (os.getpid() + number) % COMMIT_LANES
        try:
            file = _locked(path, lane)
            if file is not None:
                file.truncate(0)
                return Commit(file, lane, marks, places)
        except OSError:
            return None
    return None


def is_committing(path: Path, marks: memoryview, slot: int, outdate: Callable[[int, int], object]) -> bool:
    """Return whether the place of ``slot`` has marks. Those of a dead owner are removed if it was found dead
    ``SERVER_TIME`` ago.

    Args:
        outdate: puts fresh stamps into slots, given as the first one and the distance to the next.
    """
    if not is_marked(marks, slot):
        return False
    place = slot % PLACES
    found = bytes(marks[place * COMMIT_LANES : (place + 1) * COMMIT_LANES])
    for lane, mark in enumerate(found):
        if mark:
            # If this fails, the marks stay.
            with suppress(OSError):
                _remove_if_dead(path, marks, lane, place, outdate)
    return True


def _remove_if_dead(
    path: Path, marks: memoryview, lane: int, place: int, outdate: Callable[[int, int], object]
) -> None:
    file = _locked(path, lane)
    if file is None:
        return
    with file:
        now, noted = moment(), os.pread(file.fileno(), MOMENT_BYTES, 0)
        if len(noted) < MOMENT_BYTES:
            os.pwrite(file.fileno(), now.to_bytes(MOMENT_BYTES, byteorder), 0)
        # A moment of the future is one from before the last boot.
        elif not 0 <= now - int.from_bytes(noted, byteorder) < SERVER_TIME * 1e9:
            outdate(place, PLACES)
            with new_fence():
                marks[place * COMMIT_LANES + lane] = 0


def _locked(path: Path, lane: int) -> FileIO | None:
    """Return the file of a lane, locked; None if another caller has it locked."""
    file = FileIO(f"{path}.commit-{lane}", "a+", opener=PRIVATE)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    return file


_open: Final[WeakRegistry[Commit]] = WeakRegistry()


def _close_in_child() -> None:
    # Otherwise the child would hold the locks even after its parent was killed.
    for commit in _open:
        commit.close()


lifecycle.RENEWED.add(_close_in_child)
