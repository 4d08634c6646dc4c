"""Claims: of the callers on the machine that need the value of a key, one has the claim to compute it.

A claim is a lock on one byte of a file, whose place is a hash of the key. It is an "open file description" lock: other
locks of Unix belong to the process and know no threads. The kernel releases it if its holder is killed, and a waiter
has it 0.2 ms later. All claims that a process takes are on one descriptor, so a loop over many keys needs no more:
``Turns`` sees to it that no two callers of the process claim a key. A waiter needs a descriptor of its own, since the
wait for a lock has no time limit, and is therefore in a daemon thread. The child of a fork closes all of them: it would
hold the claims of its parent even after the parent was killed.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
import time
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from wheelcache.host_cache.host_file import HostFile
from wheelcache.host_cache.place import Place
from wheelcache.runtime import threads
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.private_files import not_for_children

if sys.platform != "win32":
    import fcntl

LOCK: Final = struct.Struct("hhqqi4x")
"""``struct flock``: the type, the origin, the start, the length and the process."""

MOST_WAITING: Final = 64
"""The threads that wait for claims. Further callers compute the value, too."""

POLL_INTERVAL: Final = 0.005
"""Seconds between two attempts of a greenlet, which must not block the others."""

HAS_CLAIMS: Final = sys.platform == "linux"
"""Only Linux has such locks. Elsewhere, each process computes a missing value once."""


class LockFile:
    """A descriptor of the file of claims. In the child of a fork, it is closed."""

    __slots__ = ("_number", "_process")

    def __init__(self, path: Path) -> None:
        self._process = os.getpid()
        self._number = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        not_for_children.add(self._number)

    @property
    def is_open(self) -> bool:
        return self._number >= 0 and self._process == os.getpid()

    def lock(self, place: int, *, wait: bool) -> bool:
        """Lock a byte. Return False if another descriptor has locked it."""
        try:
            fcntl.fcntl(self._number, fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK, _on(fcntl.F_WRLCK, place))
        except (BlockingIOError, PermissionError):
            return False
        except (OSError, ValueError):
            # The system has no locks left, or the folder was removed: each process computes the value.
            pass
        return True

    def unlock(self, place: int) -> None:
        if self.is_open:
            fcntl.fcntl(self._number, fcntl.F_OFD_SETLK, _on(fcntl.F_UNLCK, place))

    def close(self) -> None:
        if self.is_open:
            number, self._number = self._number, -1
            not_for_children.discard(number)
            os.close(number)


class Claim:
    """The claim of one caller on a key: see ``turns.Claim``."""

    __slots__ = ("_alarm", "_claims", "_held", "_is_over", "_place")

    def __init__(self, claims: Claims, place: int) -> None:
        self._alarm: Alarm | None = None
        self._claims, self._place = claims, place
        # The descriptors with the lock: at most one.
        self._held: list[LockFile] = []
        self._is_over = False

    def take(self) -> bool:
        """Take the claim, unless another process has it. Return whether it is there."""
        file = self._claims.file()
        if file is None or (self._held and self._held[-1].is_open):
            return True
        # First: ``release`` undoes this after an interruption.
        self._held.append(file)
        if not file.lock(self._place, wait=False):
            # Unless another thread has ended the turn, and released this.
            with suppress(ValueError):
                self._held.remove(file)
        return self._is_kept()

    def wait(self) -> Alarm | None:
        """Begin to wait for the claim. Return the alarm that is set when it is there, or was released; None if too many
        threads wait."""
        self._alarm = alarm = Alarm()
        if len(self._claims.waiting) >= MOST_WAITING or self._is_over:
            return None
        try:
            threads.start(threads.make("wheelcache-claim", self._wait, alarm, threading.get_native_id()))
        except RuntimeError:
            return None
        return alarm

    def _wait(self, alarm: Alarm, waiter: int) -> None:
        waiting = self._claims.waiting
        waiting.add(self)
        try:
            file = self._claims.open()
            # Under gevent, this is a greenlet in the thread of the waiter.
            is_thread = threading.get_native_id() != waiter
            while file is not None and not file.lock(self._place, wait=is_thread) and not self._is_over:
                time.sleep(POLL_INTERVAL)
            if file is not None:
                self._held.append(file)
                self._is_kept()
        finally:
            waiting.discard(self)
            alarm.set()

    def _is_kept(self) -> bool:
        if self._is_over:
            self.release()
        return bool(self._held)

    def release(self) -> None:
        """Give the claim back, or stop waiting for it. It cannot be taken any longer."""
        self._is_over = True
        while self._held:
            try:
                # In this order, so that a second call completes an interrupted one.
                self._held[-1].unlock(self._place)
                self._claims.give_back(self._held.pop())
            except IndexError:
                # Another thread does the same.
                break
        if self._alarm is not None:
            self._alarm.set()


class Claims:
    """The claims of one process on the keys of a host cache.

    Attributes:
        waiting: the claims that threads wait for.
    """

    def __init__(self, database: HostFile) -> None:
        self._database = database
        self._forget()

    def _forget(self) -> None:
        self._files: dict[Place, LockFile] = {}
        self.waiting: set[Claim] = set()

    def on(self, key: Any) -> Claim:
        """Return a new claim on ``key``, which is not taken yet."""
        name = repr(key).encode(errors="replace")
        return Claim(self, int.from_bytes(blake2b(name, digest_size=7).digest(), "little"))

    def file(self) -> LockFile | None:
        """Return the descriptor of the claims that are taken without a wait; None if there is no folder."""
        place = self._database.place if HAS_CLAIMS else None
        if place is None:
            return None
        file = self._files.get(place)
        if file is None and (new := self.open()) is not None:
            file = self._files.setdefault(place, new)
            if file is not new:
                # Another thread was faster.
                new.close()
            self.close(place)
        return file

    def close(self, but: Place | None = None) -> None:
        """Give all claims back, except those in the folder ``but``, since others were removed."""
        for place, file in list(self._files.items()):
            if place is not but:
                file.close()
                self._files.pop(place, None)

    def open(self) -> LockFile | None:
        """Return a new descriptor; None if there is no folder."""
        place = self._database.place
        try:
            return None if place is None else LockFile(place.claims)
        except OSError:
            return None

    def give_back(self, file: LockFile) -> None:
        """Close a descriptor unless other claims are on it."""
        if file not in self._files.values():
            file.close()

    def after_fork_in_child(self) -> None:
        self._forget()


def _on(kind: int, place: int) -> bytes:
    return LOCK.pack(kind, os.SEEK_SET, place, 1, 0)
