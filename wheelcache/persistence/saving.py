"""Writes the entries of a core to a file, in order of use, while other threads go on using them."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from math import inf
from typing import Any, Final

from wheelcache import options
from wheelcache.core.contract import Core, Record, Scan, Seen
from wheelcache.core.tags import moment
from wheelcache.errors import CacheClosed
from wheelcache.keys import unwrap
from wheelcache.persistence.snapshot_file import SnapshotWriter
from wheelcache.runtime.clock import SystemClock

logger = logging.getLogger("wheelcache")

KIND: Final = "cache"
"""What the header of a snapshot of a cache says."""

SavedRecord = tuple[Any, Any, float | None, float, Seen | None]
"""Of an entry: the caller's key, its value, the seconds from the header's ``saved_at`` until it is stale (None for
never, and not above 0 if it is stale already), its grace in seconds, and with stamps what its slot showed when it was
stored. Records are pickled one by one."""

STEP: Final = 256
"""Entries a step: 0.3 ms, of a million that were used at random."""

SLOW: Final = 0.002
"""Seconds. A batch that takes longer to be written halves the next step, which has to note what was used meanwhile."""


def save(
    core: Core,
    path: str | os.PathLike[str],
    *,
    name: str,
    is_portable: Callable[[Any], bool],
    secret: str | bytes | None = None,
    seconds: float | None = None,
    dir_fd: int | None = None,
) -> int:
    """Write the entries of a core to a file: how many were written.

    Values are pickled, which may run user code, outside of the core's steps. What is written or deleted meanwhile may
    be in the file or not. What is used meanwhile may be in it, and be counted, twice: then the first record, which is
    the older one, is loaded. Entries that are not current, or past their grace, are left out, and so are values that
    cannot be pickled, which is logged. A million short strings take 3 seconds, 4 with a secret.

    Args:
        path: of the file, which is replaced when all is written and synced; what was there stays if it cannot be.
        name: the name of the cache.
        is_portable: whether a caller's key means the same in another process. Entries for which it is False are left
            out.
        secret: what the file is signed with.
        seconds: the longest it may take.
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
    with closing(_scan(core, name)) as scan:
        now, saved_at = core.now(), time.time()
        header = {"kind": KIND, "name": name, "saved_at": saved_at, "moment": moment(), "entries": len(core)}
        with SnapshotWriter(file_path, header, signing_key, dir_fd) as file:
            for batch in _batches(scan):
                latest = core.now()
                for key, value, (fresh_until, expires_at, is_current), _, seen, _ in batch:
                    key = unwrap(key)
                    if not is_current or expires_at <= latest or not is_portable(key):
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
                        raise TimeoutError(f"saving the cache {name!r} takes longer than {seconds} s")
            # A cache that was closed meanwhile has lost entries: the file would pass for all there were.
            core.times(name)
    if refused:
        logger.warning("%d entries of the cache %r cannot be pickled, and are not in %s.", refused, name, path)
    return saved


def _scan(core: Core, name: str) -> Scan:
    try:
        return core.scan(ordered=True)
    except CacheClosed:
        raise
    except RuntimeError:
        raise RuntimeError(f"the cache {name!r} is being saved already") from None


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
