"""Saves the entries of a cache to a file, and loads the entries of a file into a cache.

Records are in order of use, the least recently used first. If the cache is full, a record replaces the oldest one of
the same file. So the most recently used records are loaded, in their order, and existing entries stay.
"""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final

from wheelcache import options
from wheelcache.core.contract import NO_ROOM, STORED, Core, Record, Scan, Seen
from wheelcache.errors import CacheClosed, SnapshotDamaged, SnapshotRefused, Unloaded
from wheelcache.keys import KeyProxies, callers_tags, unwrap
from wheelcache.machine_clock import moment
from wheelcache.persistence.snapshot_file import Snapshot, SnapshotWriter, open_snapshot, refuse
from wheelcache.runtime.clock import SystemClock
from wheelcache.writing.entry_writer import EntryWriter

logger = logging.getLogger("wheelcache")

KIND: Final = "cache"
"""The kind in the header of a snapshot of a cache."""

SavedRecord = tuple[Any, ...]
"""A saved entry: the caller's key, the value, the seconds from the header's ``saved_at`` until it is stale (None for
never, <= 0 if it is stale already), its grace in seconds, with stamps the words that its slot showed when it was
stored, otherwise None, its standing in the order of eviction if the header has "standings", the name of its group of
keys if the header has "groups" (None if it follows from the key), and the caller's tags. Records are pickled one by
one."""

STEP: Final = 256
"""Entries per step. A step takes 0.3 ms if a million entries were used in random order."""

SLOW: Final = 0.002
"""Seconds. If writing a batch takes longer, the next step is half as long: it must also note the entries that were used
during the write."""


@dataclass(slots=True, eq=False)
class Snapshots:
    """Saves and loads the entries of one cache.

    Attributes:
        max_entries: the bound of the core. Older records that would be evicted again are not unpickled.
        is_coherent: whether the core has stamps. If it has, entries that were saved without stamps are not loaded,
            since another process may have written them since.
        is_portable: returns whether a key means the same in another process. Entries with other keys are not saved.
        is_in_use: returns whether the cache was used, its load is over, and it was not closed since.
    """

    name: str
    core: Core
    writer: EntryWriter
    keys: KeyProxies
    max_entries: int | None
    is_coherent: bool
    is_portable: Callable[[Any], bool]
    is_in_use: Callable[[], bool]

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        secret: str | bytes | None = None,
        seconds: float | None = None,
        dir_fd: int | None = None,
    ) -> int:
        """Write the entries to a file, in order of use. Return their number. Other threads may use the cache meanwhile.

        Values are pickled outside of the core's steps, since pickling may run user code. An entry that is written or
        deleted during the save may be in the file or not. An entry that is used during the save may be in the file
        twice, and is then counted twice; the first record, which is the older one, will be loaded. Entries that are not
        current, or are past their grace, are left out. Values that cannot be pickled are left out and logged. A million
        short strings take 3 seconds, 4 with a secret.

        Args:
            path: the file. It is replaced after everything was written and synced; otherwise the old file stays.
            secret: signs the file.
            seconds: the longest time that the save may take.
            dir_fd: a descriptor of the directory of ``path``, which is then not looked up by its name.

        Raises:
            OSError: if the file cannot be written. The incomplete file is removed.
            TimeoutError: (an OSError) if ``seconds`` have passed.
            RuntimeError: if another save of this core is in progress.
            CacheClosed: if the cache was closed before or during the save. The incomplete file is removed.
            SnapshotRefused: on Windows.
        """
        deadline = inf if seconds is None else SystemClock.steady() + options.seconds("seconds", seconds)
        signing_key = options.secret_or_none("secret", secret)
        file_path = options.encodable_path("path", path)
        saved = refused = 0
        # Before the file is created: this raises if the gate of the core is shut.
        with closing(self._scan()) as scan:
            now, saved_at = self.core.now(), time.time()
            header = {"kind": KIND, "name": self.name, "saved_at": saved_at, "entries": len(self.core)}
            header["moment"], header["standings"], header["groups"] = moment(), True, True
            with SnapshotWriter(file_path, header, signing_key, dir_fd) as file:
                for batch in _batches(scan):
                    latest = self.core.now()
                    for stored_key, value, (
                        fresh_until,
                        expires_at,
                        is_current,
                    ), _, seen, names, standing, group in batch:
                        key = unwrap(stored_key)
                        if not is_current or expires_at <= latest or not self.is_portable(key):
                            continue
                        left, grace = None, 0.0
                        if fresh_until != inf:
                            left, grace = fresh_until - now, expires_at - fresh_until
                        given = group if group and group != self.core.group_name(stored_key) else None
                        record: SavedRecord = (key, value, left, grace, seen, standing, given, *callers_tags(names))
                        try:
                            payload = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
                        except Exception:
                            refused += 1
                            continue
                        file.write(payload)
                        saved += 1
                        if SystemClock.steady() > deadline:
                            raise TimeoutError(f"saving the cache {self.name!r} takes longer than {seconds} s")
                # Raises if the cache was closed during the save: its entries were dropped, so the file is incomplete.
                self.core.times(self.name)
        if refused:
            logger.warning("%d entries of the cache %r cannot be pickled, and are not in %s.", refused, self.name, path)
        return saved

    def load(self, path: Path, secret: bytes | None) -> int:
        """Load a user's file as ``load_from`` does, but log a refusal and rename the file. Return the number loaded."""
        try:
            return self.load_from(path, secret)
        except FileNotFoundError:
            return 0
        except SnapshotRefused as error:
            refuse(f"the cache {self.name!r}", path, error)
            return error.loaded

    def load_from(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> int:
        """Store the entries of a file, except for expired ones. Return the number of entries that are in the cache.

        The time since the save counts against their TTLs, as does the time that loading takes. If the system's clock
        was set back since the save, no time counts as passed between the save and the load.

        Args:
            secret: the secret that the file must be signed with.
            dir_fd: a descriptor of the directory of ``path``, which is then not looked up by its name.

        Raises:
            FileNotFoundError: if there is no such file.
            SnapshotRefused: if the file must not be loaded.
            SnapshotDamaged: (a SnapshotRefused) if the file is damaged. The records before the damage are loaded.
            UnknownFormat: (a SnapshotRefused) if another version of wheelcache wrote the file.
            CacheClosed: if the cache was closed before or during the load.
        """
        with open_snapshot(path, KIND, secret, dir_fd) as snapshot:
            saved_at, entries = snapshot.number("saved_at"), snapshot.number("entries")
            since = int(snapshot.number("moment", 1))
            # Read before the records are counted, which takes a while.
            now, elapsed = self.core.now(), max(0.0, time.time() - saved_at)
            skipped = 0
            room = inf if self.max_entries is None else self.max_entries - len(self.core)
            if entries > room:
                skipped = max(0, _good_records(snapshot) - int(room))
            loading = _Loading(self, now - elapsed, since, snapshot.header)
            try:
                for payload in islice(snapshot, skipped, None):
                    loading.add(payload)
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
            raise RuntimeError(f"the cache {self.name!r} is already being saved") from None


class _Loading:
    """A load in progress.

    Args:
        saved_at: the time of the save on the clock of the core.
        since: the moment of the save: entries whose tags were dropped after it are left out.
        header: the header of the file. Earlier versions of wheelcache saved no standings and no groups.

    Attributes:
        loaded, expired, unreadable: the numbers of records.
    """

    def __init__(self, snapshots: Snapshots, saved_at: float, since: int, header: Mapping[str, Any]) -> None:
        self._snapshots = snapshots
        self._now = snapshots.core.now
        self._writer = snapshots.writer
        self._saved_at = saved_at
        self._since = since
        self._has_standings, self._has_groups = "standings" in header, "groups" in header
        # The loaded keys, in the form that the core stores, oldest first.
        self._own: deque[Any] = deque()
        self.expired = 0
        self.unreadable = 0

    @property
    def loaded(self) -> int:
        return len(self._own)

    def add(self, payload: bytes) -> None:
        try:
            record: SavedRecord = pickle.loads(payload)
            key, value, left, grace, seen, *tags = record
            standing = tags.pop(0) if self._has_standings else 0
            group = tags.pop(0) if self._has_groups else None
            ttl = None if left is None else left - (self._now() - self._saved_at)
            if not (ttl is None or ttl + grace > 0) or not grace >= 0 or (self._snapshots.is_coherent and seen is None):
                self.expired += 1
            elif not self._snapshots.is_portable(key):
                self.unreadable += 1
            else:
                key = self._snapshots.keys.adapt(key)
                seen = seen if self._snapshots.is_coherent else None
                self._restore(key, value, ttl, grace, seen, tuple(tags), standing, group)
        except (CacheClosed, Unloaded):
            raise
        except Exception:
            # For example, a class was moved or changed, or a weigher raised.
            self.unreadable += 1

    def _restore(
        self,
        key: Any,
        value: Any,
        ttl: float | None,
        grace: float,
        seen: Seen | None,
        tags: tuple[str, ...],
        standing: int,
        group: str | None,
    ) -> None:
        while True:
            outcome = self._writer.restore(key, value, ttl, grace, seen, self._since, tags, standing, group)
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
    """Yield the records of a scan, in batches that are small enough not to delay other threads."""
    count = STEP
    while True:
        asked = SystemClock.steady()
        records = scan.step(count)
        if not records:
            return
        began = SystemClock.steady()
        if began - asked > SLOW:
            # Another thread may have waited for the core's lock during the step. This lets it run now; otherwise it
            # would also wait for the interpreter.
            time.sleep(0)
        yield records
        slow = SystemClock.steady() - began > SLOW
        count = max(1, count // 2) if slow else min(STEP, 2 * count)
