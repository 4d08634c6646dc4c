"""Saves the entries of a cache to a file, and adds the entries of a file to those of a cache.

Records are in order of use, the least recently used first. Where there is no room, a record replaces the oldest record
of the same file, so the most recently used entries are loaded, in their order, and existing entries stay.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final

from wheelcache import options
from wheelcache.core.contract import NO_ROOM, STORED, Core, Record, Scan, Seen
from wheelcache.core.tags import moment
from wheelcache.errors import CacheClosed, SnapshotDamaged, SnapshotRefused, Unloaded
from wheelcache.keys import KeyProxies, unwrap
from wheelcache.persistence.snapshot_file import Snapshot, SnapshotWriter, open_snapshot, refuse
from wheelcache.runtime.clock import SystemClock
from wheelcache.writing.entry_writer import EntryWriter

logger = logging.getLogger("wheelcache")

KIND: Final = "cache"
"""The kind in the header of a snapshot of a cache."""

SavedRecord = tuple[Any, Any, float | None, float, Seen | None]
"""Of an entry: the caller's key, its value, the seconds from the header's ``saved_at`` until it is stale (None for
never, and not above 0 if it is stale already), its grace in seconds, and with stamps what its slot showed when it was
stored. Records are pickled one by one."""

STEP: Final = 256
"""Entries a step: 0.3 ms, of a million that were used at random."""

SLOW: Final = 0.002
"""Seconds. A batch that takes longer to be written halves the next step, which has to note what was used meanwhile."""


class Snapshots:
    """Saves and loads the entries of one cache.

    Args:
        max_entries: the bound of the core. Older records that would only be evicted again are not even unpickled.
        is_coherent: whether the core has stamps. Then entries that were saved without are left out, since it is unknown
            whether they were written since.
        is_portable: whether a key of the caller means the same in another process. Other entries are not saved.
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

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        secret: str | bytes | None = None,
        seconds: float | None = None,
        dir_fd: int | None = None,
    ) -> int:
        """Write the entries to a file, in order of use, while other threads go on using them. Return their number.

        Values are pickled outside of the core's steps, since pickling may run user code. An entry that is written or
        deleted meanwhile may be in the file or not. An entry that is used meanwhile may be in it, and be counted,
        twice: then the first record, which is the older one, is loaded. Entries that are not current or past their
        grace are left out, as are values that cannot be pickled, which is logged. A million short strings take 3
        seconds, 4 with a secret.

        Args:
            path: the file. It is replaced once everything is written and synced; otherwise the old file stays.
            secret: signs the file.
            seconds: the longest time that the save may take.
            dir_fd: a descriptor of the directory of ``path``, which then is not looked up by its name.

        Raises:
            OSError: the file cannot be written. Nothing is left of it.
            TimeoutError: (an OSError) ``seconds`` have passed.
            RuntimeError: another save of this core is in progress.
            CacheClosed: the cache was closed, perhaps meanwhile. Nothing is left of the file.
            SnapshotRefused: this is Windows.
        """
        deadline = inf if seconds is None else SystemClock.steady() + options.seconds("seconds", seconds)
        signing_key = options.secret_or_none("secret", secret)
        file_path = options.encodable_path("path", path)
        saved = refused = 0
        # First: if the gate of the core is shut, nothing is written.
        with closing(self._scan()) as scan:
            now, saved_at = self.core.now(), time.time()
            header = {"kind": KIND, "name": self.name, "saved_at": saved_at, "entries": len(self.core)}
            header["moment"] = moment()
            with SnapshotWriter(file_path, header, signing_key, dir_fd) as file:
                for batch in _batches(scan):
                    latest = self.core.now()
                    for key, value, (fresh_until, expires_at, is_current), _, seen, _ in batch:
                        key = unwrap(key)
                        if not is_current or expires_at <= latest or not self.is_portable(key):
                            continue
                        record: SavedRecord = (key, value, None, 0.0, seen)
                        if fresh_until != inf:
                            record = (key, value, fresh_until - now, expires_at - fresh_until, seen)
                        try:
                            payload = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
                        except Exception:
                            refused += 1
                            continue
                        file.write(payload)
                        saved += 1
                        if SystemClock.steady() > deadline:
                            raise TimeoutError(f"saving the cache {self.name!r} takes longer than {seconds} s")
                # A cache that was closed meanwhile has lost entries: the file would pass for all there were.
                self.core.times(self.name)
        if refused:
            logger.warning("%d entries of the cache %r cannot be pickled, and are not in %s.", refused, self.name, path)
        return saved

    def load(self, path: Path, secret: bytes | None) -> int:
        """``load_from`` for a user's file. Return the number of entries. A refused file is renamed, which is logged."""
        try:
            return self.load_from(path, secret)
        except FileNotFoundError:
            return 0
        except SnapshotRefused as error:
            refuse(f"the cache {self.name!r}", path, error)
            return error.loaded

    def load_from(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> int:
        """Store the entries of a file, except those that have expired since, and return how many are in the cache then.

        The time since the save counts, and so does the time that loading takes. If the system's clock was set back,
        entries live as if no time had passed between the save and the load, and no longer.

        Args:
            secret: the secret that the file must be signed with.
            dir_fd: a descriptor of the directory of ``path``, which then is not looked up by its name.

        Raises:
            FileNotFoundError: there is no such file.
            SnapshotRefused: it must not be loaded; SnapshotDamaged: no further; UnknownFormat: it is ignored.
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

    def _scan(self) -> Scan:
        try:
            return self.core.scan(ordered=True)
        except CacheClosed:
            raise
        except RuntimeError:
            raise RuntimeError(f"the cache {self.name!r} is being saved already") from None


class _Loading:
    """A load in progress.

    Args:
        saved_at: the time of the save on the clock of the core.
        since: the moment of the save: entries whose tags were dropped after it are left out.

    Attributes:
        loaded, expired, unreadable: the numbers of records.
    """

    def __init__(self, snapshots: Snapshots, saved_at: float, since: int) -> None:
        self._snapshots = snapshots
        self._now = snapshots.core.now
        self._writer = snapshots.writer
        self._saved_at = saved_at
        self._since = since
        # The loaded keys as they are stored, oldest first.
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
            if not (ttl is None or ttl + grace > 0) or not grace >= 0 or (self._snapshots.is_coherent and seen is None):
                self.expired += 1
            elif not self._snapshots.is_portable(key):
                self.unreadable += 1
            else:
                key = self._snapshots.keys.adapt(key)
                self._restore(key, value, ttl, grace, seen if self._snapshots.is_coherent else None)
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
            self._writer.evict(self._own.popleft())


def _good_records(snapshot: Snapshot) -> int:
    count = 0
    with suppress(SnapshotDamaged):
        for _ in snapshot:
            count += 1
    return count


def _batches(scan: Scan) -> Iterator[list[Record]]:
    """The records of a scan, so many at a time that other threads are not held up."""
    count = STEP
    while True:
        asked = SystemClock.steady()
        records = scan.step(count)
        if not records:
            return
        began = SystemClock.steady()
        if began - asked > SLOW:
            # Another thread ran meanwhile, and may have met the core's lock: without this, it would wait for the
            # interpreter a second time.
            time.sleep(0)
        yield records
        slow = SystemClock.steady() - began > SLOW
        count = max(1, count // 2) if slow else min(STEP, 2 * count)
