"""Purges across the processes of a machine.

Each process has its own pages. The processes share the stamps of ``coherence.shared_stamps``: a purge writes one, for
the key of the page. A second, coherent cache contains the keys of all current pages, without values. A page is
current as long as its key is there. So a purge costs other processes nothing, and renewing a page writes no stamp. For
each page with tags, it contains one more key, which has these tags.
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
    """Purges by all processes of this machine that have an HTTP cache of the same name.

    Attributes:
        keys: of the current pages.
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
        """Return the stamp of a page. It changes when a process purges the page."""
        return self._stamps.table[self._stamps.slot(key)]

    def is_current(self, key: str) -> bool:
        """Return whether no process has purged a page since it was stored."""
        return self.keys.find(key) is not None

    def add(self, key: str, stamp: int) -> bool:
        """Note that a page is stored. Return False if it was purged since it had this stamp."""
        is_known = self.is_current(key)
        if self.stamp(key) != stamp:
            return False
        # If the key was missed by the line above, and is purged by now, it is not stored.
        return is_known or self.keys.set(key, True)

    def add_tags(self, selected: str, tags: tuple[str, ...], since: int) -> str | None:
        """Note the tags of a page that is stored.

        Args:
            selected: the key of the page, or of the variant.
            since: the moment at which the run that made the page began.

        Returns:
            The key to pass to ``is_current``; None if one of the tags was dropped since that moment.
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
        """Give the process keys of its own for the tags of its pages."""
        self._process = secrets.token_hex(8)

    def purge_all(self) -> None:
        self.keys.clear()
