"""The seam for parts that follow the writes of a cache: the moments of its writes, the leases on its keys.

The path of a write knows no such part. It notifies the watchers that are attached to the cache (``Engine.watcher``):
before each write by a caller, so that a value computed in the meantime is known to be outdated, and after those writes
for which other callers may wait. A load that stores its value is no write: it counts as one only if it is refused.

Without watchers, none of this costs anything: the compiled calls look at one flag.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable


class WriteWatcher:
    """A part that follows the writes of one cache. Keys are those of its core. A watcher overrides what it needs.

    Attributes:
        words: where the compiled calls record the moment of a plain write themselves, instead of calling ``writing``:
            see ``WriteMoments``. None for a watcher that needs the other calls, and does nothing in ``writing``.
    """

    words: array[int] | None = None

    def writing(self, name: Hashable) -> None:
        """A caller will write or delete the entry of a key, or drop a tag, given by the core's name."""

    def writing_any(self) -> None:
        """A caller will remove entries of an unknown set of keys."""

    def completed(self) -> None:
        """The core has completed watches, and keeps them in ``completed``."""

    def refused(self, key: Hashable) -> None:
        """A value of ``key`` was not stored, since it may be outdated: whoever waits for it must look again."""

    def deleted(self, key: Hashable) -> None:
        """The running code has deleted ``key``."""

    def cleared(self) -> None:
        """The running code is removing all entries."""

    def close(self) -> None:
        """The cache is closed: nobody may wait any longer."""

    def after_fork_in_child(self) -> None:
        """Forget everything that concerns callers in the parent process."""
