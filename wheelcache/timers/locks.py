"""Named locks with an owner and an end, with the calls of redis-py's ``Lock``.

``Lock`` is the object that a caller acquires and releases. The state of the locks, by name, is in a table:
``ProcessLocks`` for the threads and tasks of one process, ``MachineLocks`` for the processes of one user on one
machine. A token stands for the holder of a lock. A lock that has ended counts as free.

``MachineLocks`` keeps a file for each held lock in the runtime directory, which is in shared memory if the system
supports that. The holder has the file locked with flock, so the kernel releases the lock of a process that was killed,
however it was killed. The file contains the end and the token of the holder, so a lock also ends if its holder hangs or
is suspended: the next holder replaces the file, and the old one finds that its file is gone. Each step runs under the
lock of one file per table, for some 50 us.

**Asynchronous exceptions.** A caller that is interrupted while it acquires a lock does not hold it. A caller that is
interrupted while it releases one may release it again; ``__exit__`` does so itself. If the exception arrives before
``__exit__`` begins, the lock is released with the last reference to the ``Lock``, at the latest when the exception is
forgotten. Descriptors are in ``FileIO`` objects, which close them: they are made, entered and left in C, where no
exception arrives.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import struct
import sys
import threading
from collections.abc import Callable
from functools import partial
from io import FileIO
from itertools import islice
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from weakref import finalize

from wheelcache.core.contract import BATCH
from wheelcache.engine import options
from wheelcache.errors import FileUnusable, LockError, LockNotOwned
from wheelcache.runtime import lifecycle
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import check_private, lock_file, make_private, runtime_directory
from wheelcache.runtime.shared_objects import HeldLock
from wheelcache.runtime.steps import StepsTo, Wait, drive, drive_async

if sys.platform != "win32":
    import fcntl

STATE: Final = struct.Struct("<d32s")
"""The content of a file: the end of the lock, in seconds of the steady clock, and the token of its holder."""

STEP: Final = "step"
"""The name of the file that is locked during a step."""

PRIVATE: Final = partial(os.open, mode=0o600)
"""Opens a file for its owner only."""

SWEEP_AT: Final = 64
"""The number of locks of a process from which ended ones are looked for, each time there are twice as many. Callers may
leave locks to their timeout, each with a name of its own."""


class ProcessLocks:
    """The locks of one process. The child of a fork starts without any.

    Args:
        clock: returns seconds.
    """

    scope: Final = "process"

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._held: dict[str, tuple[str, float]] = {}
        self._sweep_at = SWEEP_AT
        # Reentrant, because the garbage collector may run a finalizer that releases a lock.
        self._lock = threading.RLock()
        lifecycle.HELD.add_weakly(self)

    def acquire(self, name: str, token: str, seconds: float) -> bool:
        with self._lock:
            if self.holder(name) is not None:
                return False
            now = self._clock()
            if len(self._held) >= self._sweep_at:
                self._held = {each: (owner, end) for each, (owner, end) in list(self._held.items()) if now < end}
                self._sweep_at = max(SWEEP_AT, 2 * len(self._held))
            self._held[name] = token, now + seconds
            return True

    def release(self, name: str, token: str) -> bool:
        with self._lock:
            is_held = self.holder(name) == token
            if is_held:
                del self._held[name]
            return is_held

    abandon = release

    def extend(self, name: str, token: str, seconds: float, *, from_now: bool) -> bool:
        """Move the end of a lock by ``seconds``, or to ``seconds`` from now. Return False unless ``token`` holds it."""
        with self._lock:
            is_held = self.holder(name) == token
            if is_held:
                self._held[name] = token, (self._clock() if from_now else self._held[name][1]) + seconds
            return is_held

    def holder(self, name: str) -> str | None:
        """Return the token of the holder."""
        token, end = self._held.get(name, ("", -inf))
        return token if self._clock() < end else None

    def before_fork(self) -> None:
        """Do nothing: the child takes over neither the locks nor their state."""

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self._lock = threading.RLock()
            self._held.clear()


class MachineLocks:
    """The locks that all processes of one user on this machine share under one name.

    A lock belongs to the process that acquired it: neither the child of a fork nor a subprocess keeps it. It ends with
    this object. If ``acquire``
    is interrupted, its caller calls ``release``.

    Args:
        name: processes that give the same name share their locks.
        clock: returns seconds, the same in all processes of the machine.

    Raises:
        FileUnusable: by every method, if another user can access a file or its directory, or a process is suspended in
            the middle of a step.
    """

    scope: Final = "machine"

    def __init__(self, name: str, clock: Callable[[], float] = SystemClock.steady) -> None:
        self._folder = f"{_digest(name)}-1.locks"
        self._clock = clock
        # The locked files of this process, by token, with their paths, and the ends of the locks.
        self._files: dict[str, tuple[FileIO, Path, float]] = {}
        finalize(self, _close_all, self._files)
        self._sweep_at = 0
        # Held during a step, so that no fork copies the descriptor of its file.
        self._use = HeldLock()
        lifecycle.HELD.add_weakly(self)

    def acquire(self, name: str, token: str, seconds: float) -> bool:
        path = self._path(name)
        with self._use.lock, _step(path):
            if self._holder(path) is not None:
                return False
            if len(self._files) >= self._sweep_at:
                self._sweep(path.parent)
            # A new file, because the holder of a lock that has ended may still have the old file locked.
            path.unlink(missing_ok=True)
            file = FileIO(path, "x+", opener=PRIVATE)
            end = self._clock() + seconds
            self._files[token] = file, path, end
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(file.fileno(), STATE.pack(end, token.encode()), 0)
            return True

    def release(self, name: str, token: str) -> bool:
        if token not in self._files:
            return False
        path = self._path(name)
        with self._use.lock, _step(path):
            is_held = self._holder(path) == token
            if token in self._files:
                self._give_up(token)
            return is_held

    def abandon(self, name: str, token: str) -> None:
        """Release a lock without a step, since the garbage collector may run this during one. Its file stays."""
        file, _, _ = self._files.pop(token, (None, None, None))
        if file is not None:
            file.close()

    def extend(self, name: str, token: str, seconds: float, *, from_now: bool) -> bool:
        path = self._path(name)
        with self._use.lock, _step(path):
            is_held = self._holder(path) == token
            if is_held:
                file, path, end = self._files[token]
                end = (self._clock() if from_now else end) + seconds
                self._files[token] = file, path, end
                os.pwrite(file.fileno(), STATE.pack(end, token.encode()), 0)
            return is_held

    def holder(self, name: str) -> str | None:
        path = self._path(name)
        if not path.exists():
            return None
        with self._use.lock, _step(path):
            return self._holder(path)

    def before_fork(self) -> None:
        self._use.before_fork()

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            # Otherwise the child would hold the locks even after its parent was killed.
            _close_all(self._files)
        self._use.after_fork(in_child=in_child)

    def _path(self, name: str) -> Path:
        return runtime_directory() / self._folder / _digest(name)

    def _sweep(self, folder: Path) -> None:
        """Close the files of locks that have ended. Before the first lock, remove the files of killed processes."""
        if self._sweep_at == 0:
            for path in islice(folder.iterdir(), BATCH):
                if path.name != STEP and self._holder(path) is None:
                    path.unlink()
        now = self._clock()
        for token in [token for token, (_, _, end) in list(self._files.items()) if end <= now]:
            self._give_up(token)
        self._sweep_at = max(SWEEP_AT, 2 * len(self._files))

    def _give_up(self, token: str) -> None:
        """Remove the file of a lock, unless the next holder has replaced it, and close it. The step is in progress. If
        this is interrupted, another call completes it."""
        file, path, _ = self._files[token]
        if not file.closed:
            if os.fstat(file.fileno()).st_nlink:
                path.unlink(missing_ok=True)
            file.close()
        self._files.pop(token, None)

    def _holder(self, path: Path) -> str | None:
        try:
            file = FileIO(path)
        except FileNotFoundError:
            return None
        with file:
            check_private(path, file.fileno())
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                content = os.pread(file.fileno(), STATE.size, 0)
                end, token = STATE.unpack(content) if len(content) == STATE.size else (-inf, b"")
                return token.decode() if self._clock() < end else None
            # The kernel released the lock of a process that was killed.
            return None


def _close_all(files: dict[str, tuple[FileIO, Path, float]]) -> None:
    for file, _, _ in files.values():
        file.close()
    files.clear()


def _step(path: Path) -> FileIO:
    """Return a file that is locked until it is closed. This excludes all other steps of the table of ``path``."""
    make_private(path.parent)
    path = path.parent / STEP
    try:
        file = FileIO(path, "a+", opener=PRIVATE)
    except OSError as error:
        raise FileUnusable(f"{path} cannot be opened: {error}") from error
    try:
        check_private(path, file.fileno())
        lock_file(path, file.fileno())
    except BaseException:
        file.close()
        raise
    return file


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class _Hold:
    """One caller's hold of a lock, made before the lock is acquired.

    Attributes:
        token: stands for the holder in the table.
        finalizer: releases the lock with this object, if it is made for a ``with`` block.
    """

    def __init__(self, table: ProcessLocks | MachineLocks, name: str, *, for_block: bool = False) -> None:
        self.token = secrets.token_hex(16)
        self.finalizer: finalize[[str, str], _Hold] | None = None
        if for_block:
            self.finalizer = finalize(self, table.abandon, name, self.token)
            self.finalizer.atexit = False


class Lock:
    """A lock that excludes the callers of one process or of one machine, with the calls of redis-py's ``Lock``.

    It is a context manager for ``with`` and ``async with``. It is not reentrant: a caller that acquires a lock that it
    holds waits for itself.

    Args:
        table: the state of the locks.
        name: locks with the same name exclude each other.
        timeout: seconds until an acquired lock ends by itself; None or 0 for never.
        sleep: seconds between two attempts.
        blocking: whether ``acquire`` waits for the lock.
        blocking_timeout: the most seconds to wait; None for no limit.
        thread_local: whether only the thread that acquired the lock may release it through this object.

    Attributes:
        name: see above.
        scope: "process" or "machine": the callers that the lock excludes.

    Raises:
        TypeError, ValueError: if an argument is invalid. The message names it.
    """

    def __init__(
        self,
        table: ProcessLocks | MachineLocks,
        name: str,
        timeout: float | None = None,
        sleep: float = 0.1,
        blocking: bool = True,
        blocking_timeout: float | None = None,
        thread_local: bool = True,
    ) -> None:
        self._table = table
        self.name = name
        self.scope = table.scope
        self._timeout = _limit("timeout", timeout) or inf
        self._sleep = options.seconds_or_zero("sleep", sleep)
        self._blocking = blocking
        self._blocking_timeout = _limit("blocking_timeout", blocking_timeout)
        self._own: Any = threading.local() if thread_local else SimpleNamespace()

    def __repr__(self) -> str:
        return f"<Lock {self.name!r}, which covers one {self.scope}>"

    @property
    def _hold(self) -> _Hold | None:
        return getattr(self._own, "hold", None)

    def acquire(
        self, sleep: float | None = None, blocking: bool | None = None, blocking_timeout: float | None = None
    ) -> bool:
        """Acquire the lock. Return False if that fails within the time to wait.

        Args:
            sleep, blocking, blocking_timeout: replace the arguments of ``Lock``.
        """
        return self._drive(_Hold(self._table, self.name), sleep, blocking, blocking_timeout)

    async def aacquire(
        self, sleep: float | None = None, blocking: bool | None = None, blocking_timeout: float | None = None
    ) -> bool:
        """Do the same as ``acquire`` without blocking the event loop."""
        return await self._drive_async(_Hold(self._table, self.name), sleep, blocking, blocking_timeout)

    def _drive(self, hold: _Hold, *waiting: Any) -> bool:
        try:
            return drive(self._acquire(hold, *waiting))
        except BaseException:
            self._end(hold)
            raise

    async def _drive_async(self, hold: _Hold, *waiting: Any) -> bool:
        try:
            return await drive_async(self._acquire(hold, *waiting))
        except BaseException:
            self._end(hold)
            raise

    def _acquire(
        self,
        hold: _Hold,
        sleep: float | None = None,
        blocking: bool | None = None,
        blocking_timeout: float | None = None,
    ) -> StepsTo[bool]:
        pause = self._sleep if sleep is None else options.seconds_or_zero("sleep", sleep)
        waits = self._blocking if blocking is None else blocking
        limit = self._blocking_timeout if blocking_timeout is None else _limit("blocking_timeout", blocking_timeout)
        until = SystemClock.steady() + (limit if waits else 0.0)
        while not self._table.acquire(self.name, hold.token, self._timeout):
            now = SystemClock.steady()
            if now >= until:
                self._end(hold)
                return False
            yield Wait(Alarm(), min(now + pause, until))
        self._own.hold = hold
        return True

    def _end(self, hold: _Hold) -> bool:
        """Release the lock if ``hold`` still holds it. Return whether it did. Another call completes an interrupted
        one."""
        is_released = self._table.release(self.name, hold.token)
        if hold.finalizer is not None:
            hold.finalizer.detach()
        # Another thread may hold the lock by now, through the same object.
        if self._hold is hold:
            self._own.hold = None
        return is_released

    def release(self) -> None:
        """Release the lock.

        Raises:
            LockNotOwned: (a LockError) if it has ended, so that another caller may hold it.
            LockError: if this thread did not acquire it.
        """
        if not self._end(self._held()):
            raise LockNotOwned(f"cannot release the lock {self.name!r}: it has ended since it was acquired")

    def extend(self, additional_time: float, replace_ttl: bool = False) -> bool:
        """Move the end of the held lock by ``additional_time`` seconds. With ``replace_ttl``, count them from now.

        Raises:
            LockNotOwned: (a LockError) if it has ended, so that another caller may hold it.
            LockError: if this thread did not acquire it, or it has no timeout.
        """
        seconds = options.seconds_or_zero("additional_time", additional_time)
        token = self._held().token
        if self._timeout == inf:
            raise LockError(f"cannot extend the lock {self.name!r}: it has no timeout")
        if not self._table.extend(self.name, token, seconds, from_now=replace_ttl):
            raise LockNotOwned(f"cannot extend the lock {self.name!r}: it has ended since it was acquired")
        return True

    def reacquire(self) -> bool:
        """Let the held lock end after its whole ``timeout``, counted from now. Raise the errors of ``extend``."""
        return self.extend(0.0 if self._timeout == inf else self._timeout, replace_ttl=True)

    def locked(self) -> bool:
        """Return whether any caller holds the lock."""
        return self._table.holder(self.name) is not None

    def owned(self) -> bool:
        """Return whether this thread holds the lock through this object."""
        hold = self._hold
        return hold is not None and self._table.holder(self.name) == hold.token

    def __enter__(self) -> Lock:
        if not self._drive(_Hold(self._table, self.name, for_block=True)):
            raise LockError(f"the lock {self.name!r} was not acquired within its blocking_timeout")
        return self

    def __exit__(self, *_: object) -> None:
        hold = self._hold
        try:
            self.release()
        finally:
            # Only an interruption of ``release`` leaves it.
            if hold is not None and self._hold is hold:
                self._end(hold)

    async def __aenter__(self) -> Lock:
        if not await self._drive_async(_Hold(self._table, self.name, for_block=True)):
            raise LockError(f"the lock {self.name!r} was not acquired within its blocking_timeout")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.__exit__()

    def _held(self) -> _Hold:
        hold = self._hold
        if hold is None:
            raise LockError(f"the lock {self.name!r} is not held by this thread through this object")
        return hold


def _limit(name: str, seconds: Any) -> float:
    """Check a number of seconds >= 0, or None, which is returned as infinity."""
    return inf if seconds is None else options.seconds_or_zero(name, seconds)
