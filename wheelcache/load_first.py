"""A lock that does something first: what stands in for the lock of a cache until its snapshot is loaded.

Every use of a cache takes its lock but a hit, and there is nothing to hit before. So whoever needs it first loads, and
the hit path has no part in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final

PATIENCE: Final = 30.0
"""Seconds to wait for another thread that loads. It may be waiting for this one: unpickling runs anybody's code."""


class LoadFirst:
    """Stands in for a lock.

    Args:
        lock: the lock.
        load: called by the first who acquires it, once, without the lock, which it may acquire. Others wait for it.
        loaded: called after that, whatever came of it, with this, to put the lock in its place again.

    Attributes:
        lock: as given.
    """

    __slots__ = ("_begun", "_load", "_loaded", "_loading", "lock")

    def __init__(self, lock: Any, load: Callable[[], object], loaded: Callable[[LoadFirst], object]) -> None:
        self.lock = lock
        self._load = load
        self._loaded = loaded
        self._loading = threading.RLock()
        self._begun = False

    @property
    def __enter__(self) -> Callable[[], bool]:
        """Load, and then be the lock.

        Its own methods are in C. An exception that comes from outside on the return of one in Python would leave the
        lock taken for ever.
        """
        self._once(self._load)
        enter: Callable[[], bool] = self.lock.__enter__
        return enter

    @property
    def __exit__(self) -> Callable[..., None]:
        leave: Callable[..., None] = self.lock.__exit__
        return leave

    def skip(self) -> None:
        """Load nothing, unless that was begun; then wait for it."""
        self._once(lambda: None)

    def _is_owned(self) -> bool:
        return bool(self.lock._is_owned())

    def _once(self, load: Callable[[], object]) -> None:
        # In one step: an exception from outside, between a call of acquire and the try, would leave the lock taken.
        (taken,) = map(self._loading.acquire, (True,), (PATIENCE,))
        try:
            if taken and not self._begun:
                self._begun = True
                try:
                    load()
                finally:
                    self._loaded(self)
            elif taken:
                # The thread that loaded was interrupted before it could say so.
                self._loaded(self)
        finally:
            if taken:
                self._loading.release()


def behind(lock: Any) -> Any:
    """The lock that ``lock`` stands in for, or itself."""
    return lock.lock if isinstance(lock, LoadFirst) else lock
