"""Saving what is in a bounded map, and loading it into another: the same entries, for as long, in the same order."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Iterable
from itertools import islice
from math import inf
from pathlib import Path
from typing import Any, Final

from wheelcache import options
from wheelcache.bounded_map import EXPIRED, BoundedMap, Entry, GracedEntry, Removals, stale_until
from wheelcache.errors import SnapshotRefused
from wheelcache.keys import original
from wheelcache.lru_walk import STEP
from wheelcache.snapshot_file import SnapshotWriter, open_snapshot, refuse

logger = logging.getLogger("wheelcache")

KIND: Final = "cache"

SOON: Final = 60.0
"""Seconds that no load takes."""

Record = tuple[Any, Any, float | None, float, int | None, int | None]
"""Of an entry: its key, its value, how many seconds after the snapshot's time it expires (None for never), its grace in
seconds, and of a coherent cache what the board showed when it was filled. Records are pickled one by one."""


class SavedMap(BoundedMap):
    """A bounded map that can be saved."""

    __slots__ = ()

    def save(
        self, path: str | os.PathLike[str], *, secret: str | bytes | None = None, seconds: float | None = None
    ) -> int:
        """Write all entries to a file, with the time they have left, in the order of their use. How many.

        Nobody is held up meanwhile, and pickling, which may run anybody's code, is done without a lock. What is written
        or deleted meanwhile may be in the file or not. A million entries take 4 seconds. Values that cannot be pickled
        are left out, which is logged.

        Args:
            path: of the file, which is replaced when all is written and synced; what was there stays if it cannot be.
            secret: what the file is to be signed with, so that ``load`` with the same can tell it from others.
            seconds: the longest it may take.

        Raises:
            OSError: the file cannot be written. Nothing is left of it.
            TimeoutError: (an OSError) ``seconds`` have passed.
            RuntimeError: somebody else is saving this cache.
            SnapshotRefused: this is Windows.
        """
        deadline = inf if seconds is None else time.monotonic() + options.seconds("seconds", seconds)
        now = self.clock()
        header = {"kind": KIND, "name": self.name, "saved_at": time.time(), "entries": len(self)}
        saved = refused = 0
        with SnapshotWriter(Path(path), header, options.secret_or_none("secret", secret)) as file:
            for batch in self.in_order_of_use():
                for record in self._records(batch, now):
                    try:
                        payload = pickle.dumps(record, pickle.HIGHEST_PROTOCOL)
                    except Exception:
                        refused += 1
                        continue
                    file.write(payload)
                    saved += 1
                if time.monotonic() > deadline:
                    raise TimeoutError(f"saving the cache {self.name!r} takes longer than {seconds} s")
        if refused:
            logger.warning("%d entries of the cache %r cannot be pickled, and are not in %s.", refused, self.name, path)
        return saved

    def load(self, path: str | os.PathLike[str], *, secret: str | bytes | None = None) -> int:
        """Take in the entries of a file that ``save`` wrote, if they have not expired since. How many.

        They come in the order of their use, as if used now, and up to the bounds of this cache. What is here already
        stays. A coherent cache takes those that nobody has written since they were saved.

        A file that is damaged, foreign, or not this user's own to write, is not loaded, or not beyond the damage; it is
        renamed to ``<name>.refused``, and one warning says why. None is no error: then there is nothing to load.

        Args:
            secret: what the file must have been signed with.

        Raises:
            TypeError, ValueError: naming the argument.
        """
        before = len(self)
        try:
            return self.take_in(Path(path), options.secret_or_none("secret", secret))
        except FileNotFoundError:
            return 0
        except SnapshotRefused as error:
            refuse(f"the cache {self.name!r}", Path(path), error)
            return max(0, len(self) - before)

    def take_in(self, path: Path, secret: bytes | None) -> int:
        """``load``, by who knows what to do where that cannot be done.

        Raises:
            FileNotFoundError: there is no such file.
            SnapshotRefused: it may not be loaded; SnapshotDamaged: no further.
        """
        with open_snapshot(path, KIND, secret) as snapshot:
            try:
                saved_at, entries = float(snapshot.header["saved_at"]), int(snapshot.header["entries"])
            except (KeyError, TypeError, ValueError):
                raise SnapshotRefused(f"{path} does not say when it was saved") from None
            # Whatever became of the clock, nothing lives longer than it would have.
            elapsed = max(0.0, time.time() - saved_at)
            loader = _Loader(self, elapsed)
            # The least recently used ones would be evicted by those that follow.
            payloads = islice(snapshot, entries - int(min(self._max_entries, max(0, entries))), None)
            try:
                while batch := list(islice(payloads, STEP)):
                    loader.load(batch)
            finally:
                loader.finish()
        logger.info(
            "Loaded %d entries of the cache %r from %s, saved %.1f s ago; %d had expired, %d cannot be read.",
            *(loader.loaded, self.name, path, elapsed, loader.expired, loader.unreadable),
        )
        return loader.loaded

    def _records(self, batch: Iterable[Entry], now: float) -> Iterable[Record]:
        for entry in batch:
            # In this order: a writer gives an entry its value first, then its time, then its stamp, so what is read
            # here is never an old value under a new time or stamp.
            stamp, news = (None, None) if self.stamps is None else (entry.stamp, entry.news)
            current = self._is_current(entry)
            due = entry.due
            grace = entry.grace if type(entry) is GracedEntry else 0.0
            if current and due + grace > self.clock():
                yield original(entry.key), entry.value, None if due == inf else due - now, grace, news, stamp


class _Loader:
    """Puts records into a map.

    Args:
        target: the map.
        elapsed: seconds since they were saved.

    Attributes:
        loaded, expired, unreadable: how many.
    """

    def __init__(self, target: SavedMap, elapsed: float) -> None:
        self._target = target
        self._elapsed = elapsed
        # Keys of what expires within the minute.
        self._soon: list[Any] = []
        self.loaded = 0
        self.expired = 0
        self.unreadable = 0

    def load(self, payloads: Iterable[bytes]) -> None:
        """Take in some, by one hold of the lock."""
        target = self._target
        now = target.clock()
        ready = [each for payload in payloads if (each := self._read(payload, now)) is not None]
        removed: Removals = []
        with target._lock:
            for key, value, due, grace, seen, weight in ready:
                if target._live(key, now) is None and target._put(
                    key, value, due, weight, now, removed, grace=grace, seen=seen
                ):
                    self.loaded += 1
                    if due < now + SOON:
                        self._soon.append(key)
        if ready:
            target._written(min(each[2] for each in ready), now, removed, len(ready))

    def finish(self) -> None:
        """Whoever waited for all this looks with the time of when he began: nothing may have expired since."""
        target = self._target
        now = target.clock()
        removed: Removals = []
        with target._lock:
            for key in self._soon:
                entry = target.entries.get(key)
                if entry is not None and stale_until(entry) <= now:
                    target._unlink(entry, EXPIRED, now, removed)
        target._removed(removed)

    def _read(self, payload: bytes, now: float) -> Any:
        target = self._target
        try:
            key, value, left, grace, news, stamp = pickle.loads(payload)
            due = inf if left is None else now + left - self._elapsed
            if due + grace <= now:
                self.expired += 1
                return None
            if target._board is not None and stamp is None:
                # Saved by a cache that was not coherent: whether it was written since is not known.
                self.expired += 1
                return None
            plain = target._plain(key)
            seen = None if target._board is None else (news, stamp)
            return plain, value, due, grace, seen, target._weigh(plain, value)
        except Exception:
            # A class that was moved or changed, say.
            self.unreadable += 1
            return None
