"""The counts of an HTTP cache.

A hit appends the size of its page to a deque. That is a single call in C, so the count is exact under threads, whereas
``count += 1`` is not. The sizes are added up when the counts are read, and when the deque has become long. In the same
way, each response that is not stored appends its reason, its path and its view.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from wheelcache.engine.keys import NO_VIEW
from wheelcache.engine.stats import MOST_GROUPS
from wheelcache.pages.busiest import FULL, LONGEST_PATH, NOT_STORED, NamedPaths, Occurrences
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.reasons import MOST_REASONS, REASONS, Refusal

Counts = Mapping[tuple[str, str], tuple[int, dict[str, Any]]]
"""Numbers and examples, by view and kind."""

LONGEST_VIEW: Final = 96
"""The bytes of the name of a view. The rest is cut off."""

FOLDED_AT: Final = 4096
"""The number of hits that are added up together."""

PATHS_FOLDED_AT: Final = 64
"""The number of paths that are added up together. A stranger can make each of them 200 characters long."""

MOST_NAMES: Final = {NOT_STORED: 20, FULL: 8}
"""The number of reasons, and of headers and cookies, whose paths are known. Together, they take 250 KiB at most."""


class Figures:
    """Counts the responses of an HTTP cache.

    Args:
        rehearsed: returns the results of a rehearsal.
        change_mode: changes the mode of the cache, as an operator requests.

    Attributes:
        unsent: the bytes of recorded responses that their clients have not received yet.
    """

    def __init__(
        self, rehearsed: Callable[[], Counts] = dict, change_mode: Callable[[str], object] = lambda mode: None
    ) -> None:
        self.rehearsed = rehearsed
        self._change_mode = change_mode
        self._lock = threading.Lock()
        self._sizes: deque[int] = deque()
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._paths = NamedPaths(MOST_NAMES)
        self._new_paths: deque[tuple[str, str, str, str]] = deque()
        self._views: Counter[str] = Counter()
        self.unsent = 0
        self.served = self._sizes.append
        """Count a response from a fresh page; the argument is the size of its body."""

    def count(self, name: str, size: int = 0) -> None:
        """Add 1 to a field of ``PageStats``, and ``size`` to the bytes that were sent."""
        with self._lock:
            self._counts[name] += 1
            self._counts["bytes_sent"] += size

    def refused(self, refusal: Refusal, path: str, view: str) -> None:
        """Count a response that was not stored.

        Args:
            path: the path of the request, without its query, one character for each byte.
            view: the name of the view that made it, or NO_VIEW.
        """
        # As the core keeps the name of a group of keys.
        view = view.encode(errors="replace")[:LONGEST_VIEW].decode(errors="ignore")
        self._add_path(NOT_STORED, refusal.reason, path, view)

    def variants_full(self, path: str, field: str) -> None:
        """Count a variant that was removed because its page had too many.

        Args:
            path: as for ``refused``.
            field: the header that has too many values, or ``"cookie <name>"``.
        """
        self._add_path(FULL, field, path, NO_VIEW)

    def _add_path(self, kind: str, name: str, path: str, view: str) -> None:
        self._new_paths.append((kind, name, path[:LONGEST_PATH], view))
        if len(self._new_paths) > PATHS_FOLDED_AT:
            self.fold()

    def fold(self) -> None:
        """Add up the sizes and the paths since the last call."""
        with self._lock:
            for _ in range(len(self._sizes)):
                self._counts["bytes_sent"] += self._sizes.popleft()
                self._counts["fresh"] += 1
            for _ in range(len(self._new_paths)):
                kind, name, path, view = self._new_paths.popleft()
                if kind is FULL:
                    self._counts["variants_removed"] += 1
                else:
                    if len(self._reasons) >= MOST_REASONS and name not in self._reasons and name not in REASONS:
                        # The application makes up too many.
                        name = "other"
                    self._reasons[name] += 1
                    self._views[view if view in self._views or len(self._views) < MOST_GROUPS else ""] += 1
                self._paths.add(kind, name[:LONGEST_PATH], path)

    def fold_if_many(self) -> None:
        """Call ``fold`` if the deque of sizes has become long."""
        if len(self._sizes) > FOLDED_AT:
            self.fold()

    def stats(self) -> PageStats:
        paths = self.paths()
        return replace(self.figures(), not_stored_paths=paths.numbers(NOT_STORED), full_variants=paths.numbers(FULL))

    def figures(self) -> PageStats:
        """Return ``stats`` without the paths, which takes less time."""
        self.fold()
        with self._lock:
            numbers: dict[str, Any] = {**self._counts}
            return PageStats(**numbers, not_stored=dict(self._reasons), refused_by_view=dict(self._views))

    @property
    def weight(self) -> int:
        return self.unsent

    def paths(self) -> NamedPaths:
        """Return a copy of the paths of ``stats``."""
        self.fold()
        copy = NamedPaths(MOST_NAMES)
        with self._lock:
            copy.merge(self._paths)
        return copy

    # The publication of the paths: see ``NamedPaths``.

    def change_mode(self, mode: str) -> None:
        self._change_mode(mode)

    def unpublished_paths(self) -> list[Occurrences]:
        with self._lock:
            return self._paths.unpublished()

    def published_paths(self, occurrences: list[Occurrences]) -> None:
        with self._lock:
            self._paths.published(occurrences)

    def publish_paths_again(self) -> None:
        with self._lock:
            self._paths.publish_again()

    def after_fork_in_child(self) -> None:
        self._lock = threading.Lock()
        self.unsent = 0
        self._sizes.clear()
        self._new_paths.clear()
        self._counts = Counter()
        self._reasons = Counter()
        self._views = Counter()
        self._paths = NamedPaths(MOST_NAMES)
