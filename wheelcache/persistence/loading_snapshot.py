"""Reads the entries of a file that ``saving`` wrote, and has each stored beside what is there.

Records come least recently used first. What does not fit makes room at the expense of the oldest ones that came from
the same file, so the most recently used entries are loaded, in their order, and none that was there before is lost.
"""

from __future__ import annotations

import logging
import pickle
import time
from collections import deque
from contextlib import suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Protocol

from wheelcache.core.contract import NO_ROOM, STORED, Core, Seen
from wheelcache.errors import CacheClosed, SnapshotDamaged, SnapshotRefused, Unloaded
from wheelcache.persistence.saving import KIND, SavedRecord
from wheelcache.persistence.snapshot_file import Snapshot, open_snapshot

logger = logging.getLogger("wheelcache")


class Store(Protocol):
    """The cache, as far as loading needs it. Keys are the caller's."""

    def restore(self, key: Any, value: Any, ttl: float | None, grace: float, seen: Seen | None) -> int:
        """The outcome of ``core.set(..., exact=True, mode=RESTORE)``."""

    def evict(self, key: Any) -> None:
        """Remove what ``restore`` has stored, as EVICTED."""

    def is_portable(self, key: Any) -> bool:
        """Whether ``key`` meant the same in the process that saved it."""


def load_from(
    core: Core,
    store: Store,
    path: Path,
    *,
    name: str,
    is_coherent: bool,
    max_entries: int | None = None,
    secret: bytes | None = None,
    dir_fd: int | None = None,
) -> int:
    """Store the entries of a file, except those that have expired since: how many are there after that.

    The time since the save counts, and so does the time that loading takes. If the system's clock was set back, entries
    live as if no time had passed between the save and the load, and no longer.

    Args:
        core: what ``store`` stores them in. Its clock is read, and its length.
        name: the name of the cache.
        is_coherent: whether the core has stamps. Then entries that were saved without are left out, since it is not
            known whether they were written since.
        max_entries: the bound of the core. Older records that would only be evicted again are not even unpickled.
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
        except (KeyError, TypeError, ValueError, OverflowError):
            raise SnapshotRefused(f"{path} does not say when it was saved") from None
        # Before the records are counted, which takes a while.
        now, elapsed = core.now(), max(0.0, time.time() - saved_at)
        skipped = 0
        room = inf if max_entries is None else max_entries - len(core)
        if entries > room:
            skipped = max(0, _good_records(snapshot) - int(room))
        loading = _Loading(core, store, now - elapsed, is_coherent)
        try:
            for payload in islice(snapshot, skipped, None):
                loading.take(payload)
        except SnapshotDamaged as error:
            error.loaded = loading.loaded
            raise
    logger.info(
        "Loaded %d entries of the cache %r from %s, saved %.1f s ago; %d had expired, %d cannot be read.",
        *(loading.loaded, name, path, elapsed, loading.expired, loading.unreadable),
    )
    return loading.loaded


class _Loading:
    """One load, record by record.

    Args:
        saved_at: the time of the save on the clock of the core.

    Attributes:
        loaded, expired, unreadable: how many records.
    """

    def __init__(self, core: Core, store: Store, saved_at: float, is_coherent: bool) -> None:
        self._core = core
        self._store = store
        self._saved_at = saved_at
        self._is_coherent = is_coherent
        # The keys that were loaded, oldest first.
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
            ttl = None if left is None else left - (self._core.now() - self._saved_at)
            if not (ttl is None or ttl + grace > 0) or not grace >= 0 or (self._is_coherent and seen is None):
                self.expired += 1
            elif not self._store.is_portable(key):
                self.unreadable += 1
            else:
                self._restore(key, value, ttl, grace, seen if self._is_coherent else None)
        except (CacheClosed, Unloaded):
            raise
        except Exception:
            # A class that was moved or changed, for one, or a weigher that raises.
            self.unreadable += 1

    def _restore(self, key: Any, value: Any, ttl: float | None, grace: float, seen: Seen | None) -> None:
        while True:
            outcome = self._store.restore(key, value, ttl, grace, seen)
            if outcome & STORED:
                self._own.append(key)
            if not outcome & NO_ROOM or not self._own:
                return
            self._store.evict(self._own.popleft())


def _good_records(snapshot: Snapshot) -> int:
    count = 0
    with suppress(SnapshotDamaged):
        for _ in snapshot:
            count += 1
    return count
