"""The refreshes that wait for a thread, or run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from wheelcache.loading.request import LoadRequest


class Refreshes:
    """One refresh a key at a time. A refresh by a task whose event loop stands still does not count."""

    __slots__ = ("_in_progress", "_lock")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._in_progress: dict[Any, tuple[LoadRequest, asyncio.AbstractEventLoop | None]] = {}

    def __len__(self) -> int:
        return len(self._in_progress)

    def claim(self, request: LoadRequest) -> bool:
        """Whether ``request`` is now the refresh of its key."""
        loop = asyncio._get_running_loop()
        with self._lock:
            there = self._in_progress.get(request.key)
            if there is not None and (there[1] is None or there[1].is_running()):
                return False
            self._in_progress[request.key] = (request, loop)
        return True

    def end(self, request: LoadRequest) -> None:
        """Take back the claim of ``request``, if it has one."""
        with self._lock:
            there = self._in_progress.get(request.key)
            if there is not None and there[0] is request:
                del self._in_progress[request.key]
