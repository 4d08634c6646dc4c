"""Purges across the processes of a machine.

Each process stores its own pages in one cache, and the keys of these pages in a second cache, which is coherent: a
purge deletes the key there, so that the key is missing in all processes, by the stamps of ``coherence.shared_stamps``.
A page whose key is missing is not used. So a purge costs other processes nothing, and renewing a page writes no stamp.
For each page with tags, the second cache contains another key, stored with these tags: dropping one of the tags in any
process removes that key.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from typing import Final

from wheelcache.cache import Cache
from wheelcache.coherence.shared_stamps import SharedStamps
from wheelcache.core.contract import STORED
from wheelcache.runtime.clock import Clock

MOST_KEYS: Final = 65_536
"""Pages beyond this number are made again."""


class HostPurges:
    """The purges by all processes of this machine that have an HTTP cache of the same name.

    Attributes:
        keys: the cache with the keys of the current pages.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._stamps = SharedStamps(f"pages {name}")
        self.after_fork_in_child()
        self.keys = Cache(
            f"{name}: keys",
            max_entries=MOST_KEYS,
            stamps=self._stamps,
            log_interval=None,
            sample_interval=None,
            clock=clock,
        )

    def stamp(self, key: str) -> int:
        """Return the stamp of the page with this key. It changes when any process purges the page."""
        return self._stamps.table[self._stamps.slot(key)]

    def is_current(self, key: str) -> bool:
        """Return whether the page with this key was stored, and no process has purged it since."""
        return self.keys.find(key) is not None

    def add(self, key: str, stamp: int) -> bool:
        """Record that a page is stored. Return False if it was purged after ``stamp`` was read."""
        is_known = self.is_current(key)
        if self.stamp(key) != stamp:
            return False
        # If the key was missed by the line above, and is purged by now, it is not stored.
        return is_known or self.keys.set(key, True)

    def add_tags(self, selected: str, tags: tuple[str, ...], since: int) -> str | None:
        """Record the tags of a page that is stored.

        Args:
            selected: the key of the page, or of its variant.
            since: the moment at which the run that made the page began.

        Returns:
            A key for ``is_current``, which returns False for it once one of the tags is dropped; None if one was
            dropped since that moment.
        """
        # A key of this process, since the page of another one may have other tags.
        key, parts = f"{self._process} {selected}", self.keys.parts
        known = self.keys.find(key)
        if parts.core.dropped_since(parts.writer.tag_names(key, tags), since):
            return None
        if known != tags and not parts.writer.set(key, tags, None, tags=tags, since=since) & STORED:
            return None
        return key

    def purge(self, key: str) -> None:
        self.keys.delete(key)

    def delete_tags(self, tags: Iterable[str]) -> None:
        self.keys.delete_tags(*tags)

    def after_fork_in_child(self) -> None:
        """Choose a new prefix for the keys that stand for tags, so that they differ from those of the parent."""
        self._process = secrets.token_hex(8)

    def purge_all(self) -> None:
        self.keys.clear()
