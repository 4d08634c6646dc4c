"""Keyed timers in a file: each with the time that is left until it fires."""

from __future__ import annotations

import logging
import os
import pickle
import time
from collections.abc import Callable, Iterable
from math import isfinite
from typing import Any, Final

from wheelcache import options
from wheelcache.errors import SnapshotRefused, WheelClosed
from wheelcache.persistence.snapshot_file import SnapshotWriter, open_snapshot, refuse
from wheelcache.runtime.clock import Clock

logger = logging.getLogger("wheelcache")

KIND: Final = "timers"

SavedTimer = tuple[Any, Any, float]
"""Of a timer: its key, its value, and the seconds from the header's ``saved_at`` until it fires."""


def save_timers(
    path: str | os.PathLike[str], timers: Iterable[SavedTimer], *, saved_at: float, secret: str | bytes | None
) -> int:
    """Write timers to a file, in the order given: how many.

    Raises:
        TypeError: a key or value cannot be pickled; names the key. Nothing is written.
        OSError: the file cannot be written. Nothing is left of it.
        SnapshotRefused: this is Windows.
    """
    saved = 0
    signing_key = options.secret_or_none("secret", secret)
    file_path = options.encodable_path("path", path)
    with SnapshotWriter(file_path, {"kind": KIND, "saved_at": saved_at}, signing_key) as file:
        for timer in timers:
            try:
                payload = pickle.dumps(timer, pickle.HIGHEST_PROTOCOL)
            except Exception as error:
                raise TypeError(f"the timer of {timer[0]!r} cannot be pickled: {error!r}") from error
            file.write(payload)
            saved += 1
    return saved


def load_timers(
    path: str | os.PathLike[str],
    set_timer: Callable[[Any, Any, float], bool],
    *,
    owner: str,
    clock: Clock,
    secret: str | bytes | None,
) -> int:
    """Set the timers of a file again: how many were set.

    A file that may not be loaded, or no further, is renamed, which is logged. A missing one is no error.

    Args:
        set_timer: ``set_timer(key, value, left)`` sets a timer that is due in ``left`` seconds, perhaps <= 0. Whether
            it did.
        owner: what the log calls the timers.
        clock: of the timers.

    Raises:
        WheelClosed: the timers were stopped.
    """
    signing_key = options.secret_or_none("secret", secret)
    file_path = options.encodable_path("path", path)
    loaded = 0
    try:
        with open_snapshot(file_path, KIND, signing_key) as snapshot:
            try:
                elapsed = max(0.0, time.time() - float(snapshot.header["saved_at"]))
            except (KeyError, TypeError, ValueError, OverflowError):
                raise SnapshotRefused(f"{file_path} does not say when it was saved") from None
            # On the clock of the timers: the time that loading takes counts, too.
            saved_at = clock() - elapsed
            for payload in snapshot:
                try:
                    key, value, left = pickle.loads(payload)
                    loaded += set_timer(key, value, _finite(left) - (clock() - saved_at))
                except WheelClosed:
                    raise
                except Exception:
                    logger.exception("A timer that was saved cannot be read, and will not fire.")
    except FileNotFoundError:
        pass
    except SnapshotRefused as error:
        refuse(owner, file_path, error)
    return loaded


def _finite(seconds: Any) -> float:
    if not isfinite(seconds):
        raise ValueError(f"a timer is due in {seconds!r} s")
    return float(seconds)
