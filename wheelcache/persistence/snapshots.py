"""Saves the entries of a cache to a file, and restores those of a file beside what is there.

Records come least recently used first. What does not fit makes room at the expense of the oldest ones that came from
the same file, so the most recently used entries are loaded, in their order, and none that was there before is lost.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any

from wheelcache.core.contract import NO_ROOM, STORED, Core, Seen
from wheelcache.errors import CacheClosed, SnapshotDamaged, SnapshotRefused, Unloaded
from wheelcache.keys import KeyProxies
from wheelcache.persistence.saving import KIND, SavedRecord, save
from wheelcache.persistence.snapshot_file import Snapshot, open_snapshot, refuse
from wheelcache.writing.entry_writer import EntryWriter

logger = logging.getLogger("wheelcache")


class Snapshots:
    """What is saved and loaded of one cache.

    Args:
        max_entries: the bound of the core. Older records that would only be evicted again are not even unpickled.
        is_coherent: the core has stamps. Entries that were saved without are left out, since it is not known whether
            they were written since.
        is_portable: whether a key, as the caller wrote it, means the same in another process.
        is_in_use: whether the cache was used, its load is over, and it was not closed since.
    """

    def __init__(
        self,
        name: str,
        core: Core,
        writer: EntryWriter,
        keys: KeyProxies,
        *,
        max_entries: int | None,
        is_coherent: bool,
        is_portable: Callable[[Any], bool],
        is_in_use: Callable[[], bool],
    ) -> None:
        self.name = name
        self.core = core
        self.writer = writer
        self.keys = keys
        self.is_coherent = is_coherent
        self.is_portable = is_portable
        self.is_in_use = is_in_use
        self._max_entries = inf if max_entries is None else max_entries

    def save(self, path: str | os.PathLike[str], **given: Any) -> int:
        """See ``saving.save``."""
        return save(self.core, path, name=self.name, is_portable=self.is_portable, **given)

    def load(self, path: Path, secret: bytes | None) -> int:
        """``load_from`` for a user's file: how many entries. A file that may not be loaded is renamed, which is
        logged."""
        try:
            return self.load_from(path, secret)
        except FileNotFoundError:
            return 0
        except SnapshotRefused as error:
            refuse(f"the cache {self.name!r}", path, error)
            return error.loaded

    def load_from(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> int:
        """Store the entries of a file, except those that have expired since: how many are there after that.

        The time since the save counts, and so does the time that loading takes. If the system's clock was set back,
        entries live as if no time had passed between the save and the load, and no longer.

        Args:
            secret: what the file must have been signed with.
            dir_fd: a descriptor of the directory of ``path``, which then is not looked up by its name.

        Raises:
            FileNotFoundError: there is no such file.
            SnapshotRefused: it may not be loaded; SnapshotDamaged: no further; UnknownFormat: it is to be ignored.
            CacheClosed: the cache was closed, perhaps meanwhile.
        """
        with open_snapshot(path, KIND, secret, dir_fd) as snapshot:
            try:
                saved_at, entries = float(snapshot.header["saved_at"]), int(snapshot.header["entries"])
                since = int(snapshot.header.get("moment", 1))
            except (KeyError, TypeError, ValueError, OverflowError):
                raise SnapshotRefused(f"{path} does not say when it was saved") from None
            # Before the records are counted, which takes a while.
            now, elapsed = self.core.now(), max(0.0, time.time() - saved_at)
            skipped = 0
            room = self._max_entries - len(self.core)
            if entries > room:
                skipped = max(0, _good_records(snapshot) - int(room))
            loading = _Loading(self, now - elapsed, since)
            try:
                for payload in islice(snapshot, skipped, None):
                    loading.take(payload)
            except SnapshotDamaged as error:
                error.loaded = loading.loaded
                raise
        logger.info(
            "Loaded %d entries of the cache %r from %s, saved %.1f s ago; %d had expired, %d cannot be read.",
            *(loading.loaded, self.name, path, elapsed, loading.expired, loading.unreadable),
        )
        return loading.loaded


class _Loading:
    """One load, record by record.

    Args:
        saved_at: the time of the save on the clock of the core.
        since: the moment of the save: entries whose tags were dropped after it are left out.

    Attributes:
        loaded, expired, unreadable: how many records.
    """

    def __init__(self, snapshots: Snapshots, saved_at: float, since: int) -> None:
        self._of = snapshots
        self._now = snapshots.core.now
        self._writer = snapshots.writer
        self._saved_at = saved_at
        self._since = since
        # The keys that were loaded, as they are stored, oldest first.
        self._own: deque[Any] = deque()
        self.expired = 0
        self.unreadable = 0

    @property
    def loaded(self) -> int:
        return len(self._own)

    def take(self, payload: bytes) -> None:
        try:
            record: SavedRecord = pickle.loads(payload)
            key, value, left, grace, seen = record
            ttl = None if left is None else left - (self._now() - self._saved_at)
            if not (ttl is None or ttl + grace > 0) or not grace >= 0 or (self._of.is_coherent and seen is None):
                self.expired += 1
            elif not self._of.is_portable(key):
                self.unreadable += 1
            else:
                key = self._of.keys.adapt(key)
                self._restore(key, value, ttl, grace, seen if self._of.is_coherent else None)
        except (CacheClosed, Unloaded):
            raise
        except Exception:
            # A class that was moved or changed, for one, or a weigher that raises.
            self.unreadable += 1

    def _restore(self, key: Any, value: Any, ttl: float | None, grace: float, seen: Seen | None) -> None:
        while True:
            outcome = self._writer.restore(key, value, ttl, grace, seen, self._since)
            if outcome & STORED:
                self._own.append(key)
            if not outcome & NO_ROOM or not self._own:
                return
            self._of.writer.evict(self._own.popleft())


def _good_records(snapshot: Snapshot) -> int:
    count = 0
    with suppress(SnapshotDamaged):
        for _ in snapshot:
            count += 1
    return count
