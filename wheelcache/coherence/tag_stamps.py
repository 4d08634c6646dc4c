"""Stamps for a cache whose entries other processes outdate by their tags alone, as the pages of an HTTP cache are.

The stamps of keys say that a key was written. A page may be made by several processes, each for itself, and making it
again does not outdate the pages of the others, so keys have no stamps here. A purge drops a tag, in all processes that
share the tags.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Final

from wheelcache.coherence.shared_stamps import SLOTS, WORD, SharedStamps
from wheelcache.keys import CALLERS


class TagStamps:
    """The moments at which tags were dropped: see ``contract.Stamps``.

    Args:
        name: processes of this machine that give the same name share their tags; None to share them with no process.

    Attributes:
        table, invalidations: never written.
        first, writes: None, for the same reason.
        commits: None, since purges follow no transactions.
        identity: that of the shared tags, or the object itself.

    Raises:
        FileUnusable: see ``SharedStamps``.
    """

    first: Final = None
    writes: Final = None
    commits: Final = None
    is_notified: Final = True

    def __init__(self, name: str | None) -> None:
        self._shared = None if name is None else SharedStamps(name)
        # The system provides memory for the pages of a table that are used, so these take little.
        self.table = self.invalidations = memoryview(bytearray(SLOTS * WORD)).cast("Q")
        self._own_tags = memoryview(bytearray(SLOTS * WORD)).cast("Q")

    @property
    def identity(self) -> Hashable:
        return self if self._shared is None else self._shared.identity

    @property
    def is_in_file(self) -> bool:
        return self._shared is not None

    @property
    def tags(self) -> memoryview | None:
        return self._own_tags if self._shared is None else self._shared.tags

    def slot(self, key: object) -> int:
        """Return the slot of a tag, by the core's name for it. All other keys have the first one."""
        if type(key) is not str or not key.startswith(CALLERS):
            return 0
        # Python's hash differs between processes, so no stranger can choose URLs that share a slot.
        return hash(key) % SLOTS if self._shared is None else self._shared.slot(key)

    def begin_commit(self, slots: Iterable[int] | None) -> None:
        """Do nothing: other processes do not share these stamps."""

    def is_committing(self, slot: int) -> bool:
        return False

    def restamp(self, slot: int) -> None:
        """Do nothing: keys have no stamps."""

    def open(self) -> None:
        if self._shared is not None:
            self._shared.open()

    def open_in_child(self) -> None:
        if self._shared is not None:
            self._shared.open_in_child()

    def is_gone(self) -> bool:
        return self._shared is not None and self._shared.is_gone()
