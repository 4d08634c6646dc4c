"""A lock that does something first: what stands in for the lock of a cache until its snapshot is loaded.

Every use of a cache takes its lock but a hit, and there is nothing to hit before. So whoever needs it first loads, and
the hit path has no part in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any


class LoadFirst:
    """Stands in for a lock.

    Args:
        lock: the lock.
        load: called by the first who acquires it, once, without the lock, which it may acquire. Others wait for it.
        loaded: called after that, whatever came of it, to put the lock in its place again.

    Attributes:
        lock: as given.
    """

    __slots__ = ("_begun", "_load", "_loaded", "_loading", "lock")

    def __init__(self, lock: Any, load: Callable[[], object], loaded: Callable[[Any], object]) -> None:
        self.lock = lock
        self._load = load
        self._loaded = loaded
        self._loading = threading.RLock()
        self._begun = False

    def acquire(self, blocking: bool = True) -> bool:
        if blocking:
            with self._loading:
                if not self._begun:
                    self._begun = True
                    try:
                        self._load()
                    finally:
                        self._loaded(self.lock)
        return bool(self.lock.acquire(blocking))

    __enter__ = acquire

    def release(self) -> None:
        self.lock.release()

    def __exit__(self, *exc_info: object) -> None:
        self.lock.release()

    def _is_owned(self) -> bool:
        return bool(self.lock._is_owned())


def behind(lock: Any) -> Any:
    """The lock that ``lock`` stands in for, or itself."""
    return lock.lock if isinstance(lock, LoadFirst) else lock
