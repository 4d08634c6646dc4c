"""Claims: of the callers on the machine that need the value of a key, one has the claim to compute it.

A claim is a lock on one byte of a file, whose place is a hash of the key. It is an "open file description" lock: other
locks of Unix belong to the process and know no threads. The kernel releases it if its holder is killed, and a waiter
has it 0.2 ms later. Each claim has a descriptor of its own. The child of a fork closes all of them: it would hold the
claims of its parent even after the parent was killed.

The wait for a lock has no time limit, so it is in a daemon thread, one for each key. If gevent or eventlet has replaced
threads by greenlets, of which one that waits would block all others, it asks again and again instead.
"""

from __future__ import annotations

import _thread
import errno
import os
import struct
import sys
import threading
import time
from hashlib import blake2b
from types import BuiltinFunctionType
from typing import Any, Final

from wheelcache.host_cache.host_file import HostFile
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.private_files import not_for_children

if sys.platform != "win32":
    import fcntl

LOCK: Final = struct.Struct("hhqqi4x")
"""``struct flock``: the type, the origin, the start, the length and the process."""

MOST_IDLE: Final = 32
"""The descriptors that are kept for later claims."""

MOST_WAITING: Final = 64
"""The threads that wait for claims."""

POLL_INTERVAL: Final = 0.005
"""Seconds between two attempts of a greenlet."""

HAS_CLAIMS: Final = hasattr(fcntl, "F_OFD_SETLK")
"""Only Linux has such locks. Elsewhere, each process computes a missing value once."""


class Claim:
    """A claim on a key, until it is released."""

    __slots__ = ("_claims", "_file", "_place")

    def __init__(self, claims: Claims, file: int | None, place: int) -> None:
        self._claims, self._file, self._place = claims, file, place

    def release(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            self._claims.give_back(file, self._place)


class Waiting:
    """A wait for a claim.

    Attributes:
        alarm: set when the claim is there.
    """

    __slots__ = ("_claim", "_is_over", "_lock", "alarm")

    def __init__(self) -> None:
        self.alarm = Alarm()
        self._lock = threading.Lock()
        self._claim: Claim | None = None
        self._is_over = False

    def take(self) -> Claim | None:
        """End the wait. Return the claim if it is there."""
        with self._lock:
            self._is_over = True
            claim, self._claim = self._claim, None
            return claim

    def give(self, claim: Claim) -> None:
        with self._lock:
            if self._is_over:
                claim.release()
            else:
                self._claim = claim
        self.alarm.set()


class Claims:
    """The claims of one process on the keys of a host cache."""

    def __init__(self, file: HostFile) -> None:
        self._database = file
        self._forget()

    def _forget(self) -> None:
        self._idle: list[int] = []
        self._threads: set[Waiting] = set()

    def take(self, key: Any) -> Claim | None:
        """Return the claim on ``key``; None if another caller has it."""
        place = _place_of(key)
        file = self._descriptor()
        if file is None or _lock(file, place, wait=False):
            return Claim(self, file, place)
        self._keep(file)
        return None

    def wait(self, key: Any) -> Waiting | None:
        """Begin to wait for the claim on ``key``; None if too many threads wait already."""
        if len(self._threads) >= MOST_WAITING:
            return None
        waiting = Waiting()
        threading.Thread(
            target=self._wait, args=(_place_of(key), waiting), daemon=True, name="wheelcache-claim"
        ).start()
        return waiting

    def _wait(self, place: int, waiting: Waiting) -> None:
        self._threads.add(waiting)
        try:
            file = self._descriptor()
            if file is not None:
                while not _lock(file, place, wait=not _are_greenlets()):
                    time.sleep(POLL_INTERVAL)
            waiting.give(Claim(self, file, place))
        finally:
            self._threads.discard(waiting)

    def _descriptor(self) -> int | None:
        """Return a descriptor of the file of locks; None if there is no folder."""
        try:
            return self._idle.pop()
        except IndexError:
            pass
        place = self._database.place if HAS_CLAIMS else None
        if place is None:
            return None
        try:
            file = os.open(place.claims, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            return None
        not_for_children.add(file)
        return file

    def give_back(self, file: int, place: int) -> None:
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, place, 1, 0))
        self._keep(file)

    def _keep(self, file: int) -> None:
        if len(self._idle) < MOST_IDLE:
            self._idle.append(file)
        else:
            not_for_children.discard(file)
            os.close(file)

    def after_fork_in_child(self) -> None:
        self._forget()


def _are_greenlets() -> bool:
    return not isinstance(_thread.start_new_thread, BuiltinFunctionType)


def _place_of(key: Any) -> int:
    return int.from_bytes(blake2b(repr(key).encode(errors="replace"), digest_size=7).digest(), "little")


def _lock(file: int, place: int, *, wait: bool) -> bool:
    command = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
    try:
        fcntl.fcntl(file, command, LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0))
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
