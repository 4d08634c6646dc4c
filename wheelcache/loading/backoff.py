"""Decides when a key may be loaded again: not soon after a failure, and not while a refresh of it is in progress."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Hashable
from random import SystemRandom
from typing import Any, Final

from wheelcache.loading.request import LoadRequest

random: Final = SystemRandom().random
"""Not the generator that the application may have seeded."""

FIRST: Final = 1.0
LONGEST: Final = 60.0
"""Seconds from a failure to the next try: 1, 2, 4 ... 60, each times a random number from 0.5 to 1, so that keys that
failed together are not tried together."""

KEYS_AT_MOST: Final = 4096
"""The number of failed keys to remember. The oldest are forgotten first and may then be tried too early."""


class Backoff:
    """The keys that failed recently. The owner calls its methods under a lock of its own."""

    def __init__(self) -> None:
        # For each key: the number of failures, the time of the last one, and the time of the next try.
        self._failures: dict[Hashable, tuple[int, float, float]] = {}

    def is_over(self, key: Hashable, now: float) -> bool:
        """Return whether ``key`` may be loaded again at the time ``now``, in seconds."""
        failure = self._failures.get(key)
        # If ``now`` is before the failure, a test has moved the time back.
        return failure is None or failure[2] <= now or now < failure[1]

    def failed(self, key: Hashable, now: float) -> float:
        """Record a failure of ``key``. Return the seconds until it may be tried again."""
        count = self._failures.pop(key, (0,))[0]
        pause = min(FIRST * 2.0**count, LONGEST) * (0.5 + random() / 2)
        if len(self._failures) >= KEYS_AT_MOST:
            del self._failures[next(iter(self._failures))]
        # A count of 16 is more than LONGEST needs. Without a limit, the power would eventually overflow.
        self._failures[key] = (min(count + 1, 16), now, now + pause)
        return pause

    def succeeded(self, key: Hashable) -> None:
        """Forget the failures of ``key``."""
        if self._failures:
            self._failures.pop(key, None)

    def clear(self) -> None:
        self._failures = {}


class Refreshes:
    """The refreshes that are queued or running, one per key. A refresh by a task whose event loop has stopped does not
    count."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._in_progress: dict[Any, tuple[LoadRequest, asyncio.AbstractEventLoop | None]] = {}

    def __len__(self) -> int:
        return len(self._in_progress)

    def claim(self, request: LoadRequest) -> bool:
        """Make ``request`` the refresh of its key. Return False, and do nothing, if the key has one."""
        loop = asyncio._get_running_loop()
        with self._lock:
            claimed = self._in_progress.get(request.key)
            if claimed is not None and (claimed[1] is None or claimed[1].is_running()):
                return False
            self._in_progress[request.key] = (request, loop)
        return True

    def end(self, request: LoadRequest) -> None:
        """Release the claim of ``request``, if it has one."""
        with self._lock:
            claimed = self._in_progress.get(request.key)
            if claimed is not None and claimed[0] is request:
                del self._in_progress[request.key]
