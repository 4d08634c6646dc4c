"""Saves keyed timers to a file, each with the time left until it fires, and loads them."""

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
"""The key and value of a timer, and the seconds from the header's ``saved_at`` until it fires."""


def save_timers(
    path: str | os.PathLike[str], timers: Iterable[SavedTimer], *, saved_at: float, secret: str | bytes | None
) -> int:
    """Write timers to a file, in the order given, and return their number.

    Raises:
        TypeError: if a key or value cannot be pickled. The message names the key. No file is written.
        OSError: if the file cannot be written. The incomplete file is removed.
        SnapshotRefused: on Windows.
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
    """Set the timers that were saved in a file. Return the number of timers that were set.

    A foreign or damaged file is renamed, and a warning gives the reason. A missing file is not an error.

    Args:
        set_timer: ``set_timer(key, value, left)`` sets a timer that is due in ``left`` seconds, which may be <= 0, and
            returns whether it was set.
        owner: the name of the timers in log lines.
        clock: the clock of the timers.

    Raises:
        WheelClosed: if the timers were stopped.
    """
    signing_key = options.secret_or_none("secret", secret)
    file_path = options.encodable_path("path", path)
    loaded = 0
    try:
        with open_snapshot(file_path, KIND, signing_key) as snapshot:
            elapsed = max(0.0, time.time() - snapshot.number("saved_at"))
            # By the clock of the timers, since the time spent loading counts as well.
            saved_at = clock() - elapsed
            for payload in snapshot:
                try:
                    key, value, left = pickle.loads(payload)
                    loaded += set_timer(key, value, _finite(left) - (clock() - saved_at))
                except WheelClosed:
                    raise
                except Exception:
                    logger.exception("A saved timer cannot be read, and will not fire.")
    except FileNotFoundError:
        pass
    except SnapshotRefused as error:
        refuse(owner, file_path, error)
    return loaded


def _finite(seconds: Any) -> float:
    if not isfinite(seconds):
        raise ValueError(f"a timer is due in {seconds!r} s")
    return float(seconds)
