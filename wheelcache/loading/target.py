"""What loading needs of its cache."""

from __future__ import annotations

from typing import Any, Protocol

from wheelcache.core.contract import Removals, Seen, Watch

Stored = tuple[int, Removals | None]
"""The outcome of ``core.set``, and the entries that left."""


class Target(Protocol):
    """What loading needs of its cache, beside the core."""

    @property
    def name(self) -> str:
        """For logs."""

    def watch(self, key: Any) -> Watch:
        """``core.watch`` with the slot of the key."""

    def seen(self, key: Any) -> Seen | None:
        """What the slot of the key shows now; None without stamps."""

    def store(self, key: Any, value: Any, ttl: float | None, grace: float, watch: Watch) -> Stored:
        """Weigh the value and call ``core.set`` under ``watch`` and what it saw. May raise what a weigher raises."""

    def announce(self, outcome: int, removed: Removals | None) -> None:
        """Tell the listener and the leases, wake the wheel, evict more. Called when no caller waits any more, since a
        listener may look up the key that was loaded."""

    def interrupted(self) -> None:
        """An exception came between ``store`` and the end of ``announce``."""

    def discard(self, key: Any) -> None:
        """Remove an entry that is stale or not current, and notify the listener."""

    @property
    def tells_of_writes(self) -> bool:
        """An entry that is not current was written by another process."""

    def delete(self, key: Any) -> object:
        """``core.delete`` with the slot of the key, telling the listener."""
