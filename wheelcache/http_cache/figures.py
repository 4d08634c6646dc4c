"""The counts of an HTTP cache.

A hit appends the size of its page to a deque. That is a single call in C, so the count is exact under threads, whereas
``count += 1`` is not. The sizes are added up when the counts are read, and when the deque has become long.
"""

from __future__ import annotations

from collections import Counter, deque
from typing import Final

from wheelcache.runtime.shared_objects import lazy_lock
from wheelcache.stats import PageStats

FOLDED_AT: Final = 4096
"""The number of hits that are added up together."""


class Figures:
    """Counts the responses of an HTTP cache."""

    def __init__(self) -> None:
        self._lock = lazy_lock()
        self._sizes: deque[int] = deque()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._new_reasons: deque[str] = deque()
        self.served = self._sizes.append
        """Count a response from a fresh page; the argument is the size of its body."""

    def count(self, name: str, size: int = 0) -> None:
        """Add 1 to a field of ``PageStats``, and ``size`` to the bytes that were sent."""
        with self._lock.get():
            self._counts[name] += 1
            self._counts["bytes_sent"] += size

    def refused(self, reason: str) -> None:
        """Count a response that was not stored."""
        self._new_reasons.append(reason)
        if len(self._new_reasons) > FOLDED_AT:
            self.fold()

    def fold(self) -> None:
        """Add up the sizes and the reasons since the last call."""
        with self._lock.get():
            for _ in range(len(self._sizes)):
                self._counts["bytes_sent"] += self._sizes.popleft()
                self._counts["fresh"] += 1
            for _ in range(len(self._new_reasons)):
                self._reasons[self._new_reasons.popleft()] += 1

    def fold_if_many(self) -> None:
        """Call ``fold`` if the deque of sizes has become long."""
        if len(self._sizes) > FOLDED_AT:
            self.fold()

    def stats(self) -> PageStats:
        self.fold()
        with self._lock.get():
            return PageStats(**self._counts, not_stored=dict(self._reasons))

    def after_fork_in_child(self) -> None:
        self._lock.forget()
        self._sizes.clear()
        self._new_reasons.clear()
        self._counts = Counter()
        self._reasons = Counter()
