"""Saving what is in a bounded map, and loading it into another: the same entries, for as long, in the same order."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final

from wheelcache import options
from wheelcache.bounded_map import EVICTED, EXPIRED, BoundedMap, Entry, GracedEntry, Removals, batched, group_of
from wheelcache.errors import CacheClosed, SnapshotDamaged, SnapshotRefused
from wheelcache.keys import original
from wheelcache.persistence.snapshot_file import Snapshot, SnapshotWriter, open_snapshot, refuse
from wheelcache.runtime.clock import SystemClock

logger = logging.getLogger("wheelcache")

KIND: Final = "cache"

STEP: Final = 256
"""Records a hold of the lock when they are loaded: 0.5 ms."""

SOON: Final = 60.0
"""Seconds that no load takes."""

Record = tuple[Any, Any, float | None, float, int | None, int | None]
"""Of an entry: its key, its value, how many seconds after the snapshot's time it expires (None for never), its grace in
seconds, and of a coherent cache what the board showed when it was filled. Records are pickled one by one."""


class SavedMap(BoundedMap):
    """A bounded map that can be saved."""

    __slots__ = ()

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        secret: str | bytes | None = None,
        seconds: float | None = None,
        dir_fd: int | None = None,
    ) -> int:
        """Write all entries to a file, with the time they have left, in the order of their use. How many.

        Nobody is held up meanwhile, and pickling, which may run anybody's code, is done without a lock. What is written
        or deleted meanwhile may be in the file or not, and what is used meanwhile may be in it, and be counted, twice:
        then ``load`` takes the first, which is older.
        A million short strings take 3 seconds, 4 with a secret. Values that cannot be pickled are left out, which is
        logged. Left out as well is what functions returned that are memoized and not the only ones of their name, or
        inside others: in another process, their keys may mean other functions.

        Args:
            path: of the file, which is replaced when all is written and synced; what was there stays if it cannot be.
            secret: what the file is to be signed with, so that ``load`` with the same can tell it from others.
            seconds: the longest it may take.
            dir_fd: a descriptor of the directory of ``path``, which then is not looked up by its name.

        Raises:
            OSError: the file cannot be written. Nothing is left of it.
            TimeoutError: (an OSError) ``seconds`` have passed.
            RuntimeError: somebody else is saving this cache.
            CacheClosed: the cache was closed, perhaps meanwhile. Nothing is left of the file.
            SnapshotRefused: this is Windows.
        """
        deadline = inf if seconds is None else SystemClock.steady() + options.seconds("seconds", seconds)
        key = options.secret_or_none("secret", secret)
        with self._lock:
            # If it is to be loaded first, the time is that after it.
            now, saved_at = self.clock(), time.time()
        header = {"kind": KIND, "name": self.name, "saved_at": saved_at, "entries": len(self)}
        saved = refused = 0
        # Closed at once when anything fails, and not when the collector finds it.
        with (
            SnapshotWriter(Path(path), header, key, dir_fd) as file,
            closing(self.in_order_of_use()) as batches,
        ):
            for batch in batches:
                for record in self._records(batch, now):
                    try:
                        payload = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
                    except Exception:
                        refused += 1
                        continue
                    file.write(payload)
                    saved += 1
                    if SystemClock.steady() > deadline:
                        raise TimeoutError(f"saving the cache {self.name!r} takes longer than {seconds} s")
            with self._lock:
                # Or what is left would pass for all there was.
                self._check_open()
        if refused:
            logger.warning("%d entries of the cache %r cannot be pickled, and are not in %s.", refused, self.name, path)
        return saved

    def load(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Take in the entries of a file that ``save`` wrote, if they have not expired since. How many.

        They come in the order of their use, as if used now. What is here already stays, and so does its value; if there
        is not room for all, the most recently used come. A coherent cache takes those that nobody has written since
        they were saved.

        A file that is damaged, foreign, or not this user's own to write, is not loaded, or not beyond the damage; it is
        renamed to ``<name>.refused``, and one warning says why. None is no error: then there is nothing to load.

        Args:
            secret: what the file must have been signed with.

        Raises:
            TypeError, ValueError: naming the argument.
            CacheClosed: the cache was closed.
        """
        loader = Loader(self)
        try:
            loader.take_in(Path(path), options.secret_or_none("secret", secret))
        except FileNotFoundError:
            pass
        except SnapshotRefused as error:
            refuse(f"the cache {self.name!r}", Path(path), error)
        return loader.loaded

    def take_in(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> None:
        """``load``, for a caller that handles what cannot be loaded.

        Args:
            dir_fd: as in ``save``.

        Raises:
            FileNotFoundError: there is no such file.
            SnapshotRefused: it may not be loaded; SnapshotDamaged: no further.
        """
        Loader(self).take_in(path, secret, dir_fd)

    def load_from(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> None:
        """``take_in``, for ``Autosave``."""
        self.take_in(path, secret, dir_fd)

    def _records(self, batch: Iterable[Entry], now: float) -> Iterator[Record]:
        with self._lock:
            # As they are at one moment: no value under another one's time or stamp.
            found = [
                (
                    entry.key,
                    entry.value,
                    entry.due,
                    entry.grace if type(entry) is GracedEntry else 0.0,
                    *((None, None) if self.stamps is None else (entry.news, entry.stamp)),
                )
                for entry in batch
                if self.entries.get(entry.key) is entry and self._is_current(entry)
            ]
        for key, value, due, grace, news, stamp in found:
            written = original(key)
            if due + grace > self.clock() and group_of(written) not in self._ambiguous:
                yield written, value, None if due == inf else due - now, grace, news, stamp


class Loader:
    """Puts records into a map.

    Args:
        target: the map.

    Attributes:
        loaded, expired, unreadable: how many.
    """

    def __init__(self, target: SavedMap) -> None:
        self._target = target
        self._elapsed = 0.0
        # Keys of what expires within the minute.
        self._soon: list[Any] = []
        # Keys of what was loaded, oldest first, if there may not be room for all.
        self._own: deque[Any] | None = None
        if target._max_entries < inf or target._max_weight < inf:
            self._own = deque()
        self.loaded = 0
        self.expired = 0
        self.unreadable = 0

    def take_in(self, path: Path, secret: bytes | None, dir_fd: int | None = None) -> None:
        """See ``SavedMap.take_in``."""
        target = self._target
        with open_snapshot(path, KIND, secret, dir_fd) as snapshot:
            try:
                saved_at, entries = float(snapshot.header["saved_at"]), int(snapshot.header["entries"])
            except (KeyError, TypeError, ValueError, OverflowError):
                raise SnapshotRefused(f"{path} does not say when it was saved") from None
            # If the clock was set back, what is saved lives as long as if no time had passed, and no longer.
            self._elapsed = max(0.0, time.time() - saved_at)
            room = target._max_entries - len(target)
            skipped = 0
            if entries > room:
                # These would only be evicted by those that follow.
                skipped = max(0, _good_records(snapshot) - int(room))
            payloads = islice(snapshot, skipped, None)
            try:
                for batch in _batches(payloads):
                    self._load(batch)
            finally:
                self._finish()
        logger.info(
            "Loaded %d entries of the cache %r from %s, saved %.1f s ago; %d had expired, %d cannot be read.",
            *(self.loaded, target.name, path, self._elapsed, self.expired, self.unreadable),
        )

    def _load(self, payloads: Iterable[bytes]) -> None:
        """Take in some, by one hold of the lock."""
        target = self._target
        now = target.clock()
        ready = [each for payload in payloads if (each := self._read(payload, now)) is not None]
        removed: Removals = []
        with target._lock:
            target._check_open()
            for key, value, due, grace, seen, weight in ready:
                if key in target._flights.in_progress:
                    # What is being loaded is newer.
                    continue
                if target._live(key, now) is not None or not self._has_room(key, weight, now, removed):
                    continue
                if target._put(key, value, due, weight, now, removed, grace=grace, seen=seen):
                    self.loaded += 1
                    if self._own is not None:
                        self._own.append(key)
                    if now < due < now + SOON:
                        self._soon.append(key)
        if ready:
            target._written(min(each[2] for each in ready), now, removed, len(ready))

    def _has_room(self, key: Any, weight: int, now: float, removed: Removals) -> bool:
        """Whether ``key`` can be put in without anything else going than what was loaded before it."""
        target = self._target
        entry = target.entries.get(key)
        there = (0, 0) if entry is None else (1, entry.weight)
        if self._own is None:
            return True
        if weight > target._max_weight:
            return False
        while len(target) - there[0] >= target._max_entries or target._weight - there[1] + weight > target._max_weight:
            if not self._own:
                return False
            oldest = target.entries.get(self._own.popleft())
            if oldest is not None and oldest is not entry:
                target._unlink(oldest, EVICTED, now, removed)
                self.loaded -= 1
        return True

    def _finish(self) -> None:
        """Whoever waited for all this looks with the time of when he began: nothing may have expired since."""
        target = self._target
        removed: Removals = []
        for keys in batched(self._soon, STEP):
            now = target.clock()
            with suppress(CacheClosed), target._lock:
                for key in keys:
                    entry = target.entries.get(key)
                    if entry is not None and entry.due <= now:
                        target._unlink(entry, EXPIRED, now, removed)
        target._removed(removed)

    def _read(self, payload: bytes, now: float) -> Any:
        target = self._target
        try:
            key, value, left, grace, news, stamp = pickle.loads(payload)
            due = inf if left is None else now + left - self._elapsed
            if not due + grace > now:
                self.expired += 1
                return None
            if target._board is not None and stamp is None:
                # Saved by a cache that was not coherent: whether it was written since is not known.
                self.expired += 1
                return None
            if group_of(key) in target._ambiguous:
                # By now: see ``save``.
                self.unreadable += 1
                return None
            plain = target._plain(key)
            seen = None if target._board is None else (news, stamp)
            return plain, value, due, grace, seen, target._weigh(plain, value)
        except Exception:
            # A class that was moved or changed, say.
            self.unreadable += 1
            return None


def _good_records(snapshot: Snapshot) -> int:
    count = 0
    with suppress(SnapshotDamaged):
        for _ in snapshot:
            count += 1
    return count


def _batches(payloads: Iterable[bytes]) -> Iterator[list[bytes]]:
    batch = []
    try:
        for payload in payloads:
            batch.append(payload)
            if len(batch) == STEP:
                yield batch
                batch = []
    except SnapshotDamaged:
        # Those before it are good.
        yield batch
        raise
    yield batch
