"""The purges of the processes of a machine, in a file that they share.

Each process has its own pages. A purge appends its tag to the file, and then raises the word at its beginning, which
all processes have in memory. A look-up compares this word with the one that it has seen, and first carries out the
purges in between. So a look-up that begins after a purge finds no purged page, nor one whose run began before the
purge: that is refused, or purged by the next look-up.

A file of MOST_BYTES begins again, under another number. A process that has not read its end removes all pages.
"""

from __future__ import annotations

import json
import mmap
import os
import sys
from collections.abc import Callable
from hashlib import sha256
from typing import Any, Final

from wheelcache.errors import FileUnusable
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import NEEDS_UNIX, locked_file, runtime_directory
from wheelcache.runtime.shared_objects import lazy_lock

WORD: Final = 8
"""The bytes of the word: the number of the file in the upper half, its size in the lower one."""

MOST_BYTES: Final = 1 << 20

CHECK_INTERVAL: Final = 10.0
"""Seconds between two checks that the file still exists."""


class SharedPurges:
    """The purges of the HTTP caches of one name.

    Args:
        name: the name.
        purge: carries out a purge, given the tag, and whether it is soft.
        purge_all: removes all pages.

    Raises:
        FileUnusable: on Windows, or if another user can access the file.
    """

    def __init__(self, name: str, purge: Callable[[str, bool], object], purge_all: Callable[[], object]) -> None:
        if sys.platform == "win32":
            raise FileUnusable(f"sharing purges between processes {NEEDS_UNIX}")
        self._name = f"{sha256(name.encode()).hexdigest()[:32]}.purges"
        self._purge, self._purge_all = purge, purge_all
        self._lock = lazy_lock()
        self._open()

    def _open(self) -> None:
        with locked_file(runtime_directory() / self._name) as file:
            self._map(file)

    def _map(self, file: int) -> None:
        if os.fstat(file).st_size < WORD:
            # Never a number of an earlier file.
            os.pwrite(file, _first_word(int.from_bytes(os.urandom(3))), 0)
        words = memoryview(mmap.mmap(file, WORD)).cast("Q")
        self._identity = _identity(os.fstat(file))
        self._words, self._seen, self._checked = words, words[0], SystemClock.steady()

    def announce(self, tag: str, *, soft: bool) -> None:
        """Let all processes purge the pages with a tag."""
        record = json.dumps([tag, soft]).encode() + b"\n"
        with locked_file(runtime_directory() / self._name) as file:
            if _identity(os.fstat(file)) != self._identity:
                self._map(file)
                self._purge_all()
            word = self._words[0]
            if _size(word) + len(record) > MOST_BYTES:
                word = int.from_bytes(_first_word(_number(word) + 1), sys.byteorder)
                # Before the records of the old number are overwritten.
                self._words[0] = word
            os.pwrite(file, record, _size(word))
            self._words[0] = word + len(record)

    def before(self, find: Callable[[str], Any]) -> Callable[[str], Any]:
        """Return a look-up that first carries out the purges of other processes."""

        def find_after_purges(key: str) -> Any:
            self.catch_up()
            return find(key)

        return find_after_purges

    def catch_up(self) -> None:
        """Carry out the purges since the last call."""
        if self._words[0] == self._seen:
            return
        with self._lock.get():
            word, records = self._words[0], b""
            if _number(word) == _number(self._seen):
                records = self._read(_size(self._seen), _size(word))
            if _number(self._words[0]) != _number(self._seen) or not records.endswith(b"\n"):
                self._purge_all()
            else:
                for record in records.splitlines():
                    self._purge(*json.loads(record))
            self._seen = word

    def check(self) -> None:
        """Use another file if this one was removed or replaced: once in CHECK_INTERVAL."""
        now = SystemClock.steady()
        if now < self._checked + CHECK_INTERVAL:
            return
        self._checked = now
        try:
            is_gone = _identity(os.stat(runtime_directory() / self._name)) != self._identity
        except FileNotFoundError:
            is_gone = True
        if is_gone:
            with self._lock.get():
                self._open()
                self._purge_all()

    def _read(self, start: int, end: int) -> bytes:
        try:
            with open(runtime_directory() / self._name, "rb") as file:
                file.seek(start)
                return file.read(end - start)
        except FileNotFoundError:
            return b""

    def after_fork_in_child(self) -> None:
        self._lock.forget()


def _number(word: int) -> int:
    return word >> 32


def _size(word: int) -> int:
    return word & 0xFFFFFFFF


def _first_word(number: int) -> bytes:
    return (number % (1 << 31) << 32 | WORD).to_bytes(WORD, sys.byteorder)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
