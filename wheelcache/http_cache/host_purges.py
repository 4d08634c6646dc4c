"""Purges across the processes of a machine.

Each process has its own pages. What they share are the stamps of ``coherence.shared_stamps``: a purge writes one, for
the key of the page. A second, coherent cache contains the keys of all current pages, without values. A page is
current as long as its key is there. So a purge costs other processes nothing, and renewing a page writes no stamp.
"""

from __future__ import annotations

from typing import Final

from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.runtime.clock import Clock

MOST_KEYS: Final = 65_536
"""Pages beyond this number are made again."""


class HostPurges:
    """Purges by all processes of this machine that have an HTTP cache of the same name.

    Attributes:
        keys: of the current pages.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._stamps = SharedStamps(f"pages {name}")
        self.keys = Cache(
            f"{name}: keys",
            max_entries=MOST_KEYS,
            stamps=self._stamps,
            log_interval=None,
            sample_interval=None,
            clock=clock,
        )

    def stamp(self, key: str) -> int:
        """Return the stamp of a page. It changes when a process purges the page."""
        return self._stamps.table[self._stamps.slot(key)]

    def is_current(self, key: str) -> bool:
        """Whether no process has purged a page since it was stored."""
        return self.keys.find(key) is not None

    def add(self, key: str, stamp: int) -> bool:
        """Note that a page is stored. Return False if it was purged since it had this stamp."""
        is_known = self.is_current(key)
        if self.stamp(key) != stamp:
            return False
        # If the key was missed by the line above, and is purged by now, it is not stored.
        return is_known or self.keys.set(key, True)

    def purge(self, key: str) -> None:
        self.keys.delete(key)

    def purge_all(self) -> None:
        self.keys.clear()
