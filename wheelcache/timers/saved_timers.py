"""Saves keyed timers to a file, each with the time left until it fires, and loads them.

The first line of the file names the format. An HMAC-SHA256 of the rest follows, whose key is derived from the secret;
without a secret, the key is empty, and the check detects damage, but not forgery. The rest is the pickle of the time of
the save and of a list with a pickle for each timer. Nothing is unpickled before it was checked.
"""

from __future__ import annotations

import hmac
import logging
import os
import pickle
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, Final

from wheelcache.engine import options
from wheelcache.errors import FileUnusable, WheelClosed
from wheelcache.runtime.clock import Clock
from wheelcache.runtime.private_files import NEEDS_UNIX, check_private

logger = logging.getLogger("wheelcache")

FIRST_LINE: Final = b"wheelcache timers 1\n"
"""Raise the number whenever the format changes."""

ASIDE: Final = ".refused"
"""The suffix of the name of a file that was not loaded."""

SavedTimer = tuple[Any, Any, float]
"""The key and value of a timer, and the seconds from the save until it fires."""


def save_timers(
    path: str | os.PathLike[str], timers: Iterable[SavedTimer], *, saved_at: float, secret: str | bytes | None
) -> int:
    """Write timers to a file, in the order given, and return their number.

    Raises:
        TypeError: if a key or value cannot be pickled. The message names the key. No file is written.
        OSError: if the file cannot be written. The incomplete file is removed.
        FileUnusable: on Windows.
    """
    signing_key = options.secret_or_none("secret", secret)
    file_path = options.encodable_path("path", path)
    _need_unix()
    records = []
    for timer in timers:
        try:
            records.append(pickle.dumps(timer, pickle.HIGHEST_PROTOCOL))
        except Exception as error:
            raise TypeError(f"the timer of {timer[0]!r} cannot be pickled: {error!r}") from error
    body = pickle.dumps((saved_at, records), pickle.HIGHEST_PROTOCOL)
    _replace(file_path, FIRST_LINE + _check(signing_key, body) + body)
    return len(records)


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
        wall, records = pickle.loads(_read(file_path, signing_key))
    except FileNotFoundError:
        return 0
    except FileUnusable as error:
        _refuse(owner, file_path, error)
        return 0
    # By the clock of the timers, since the time spent loading counts as well.
    saved_at = clock() - max(0.0, time.time() - wall)
    for record in records:
        try:
            key, value, left = pickle.loads(record)
            loaded += set_timer(key, value, _finite(left) - (clock() - saved_at))
        except WheelClosed:
            raise
        except Exception:
            logger.exception("A saved timer cannot be read, and will not fire.")
    return loaded


def _need_unix() -> None:
    if sys.platform == "win32":
        raise FileUnusable(f"a file of timers {NEEDS_UNIX}")


def _check(secret: bytes | None, body: bytes) -> bytes:
    # The secret is hashed because HMAC pads short keys with zeros: "secret" and "secret\0" would be the same key.
    return hmac.digest(b"" if secret is None else sha256(secret).digest(), FIRST_LINE + body, "sha256")


def _replace(path: Path, content: bytes) -> None:
    """Replace the file at ``path`` in one step, after ``content`` is on the disk."""
    # Only this user can access the new file.
    file, temporary = tempfile.mkstemp(dir=path.parent, prefix=f"{path.name}.")
    try:
        with os.fdopen(file, "wb") as opened:
            opened.write(content)
            opened.flush()
            os.fsync(file)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _read(path: Path, secret: bytes | None) -> bytes:
    """Return the pickle in a file, checked.

    Raises:
        FileNotFoundError: if there is no such file.
        FileUnusable: if it must not be unpickled. The message names the file and the reason.
    """
    _need_unix()
    try:
        # Without blocking, even if ``path`` is a pipe.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(file, "rb") as opened:
            check_private(path, file)
            content = opened.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        raise FileUnusable(f"{path} cannot be read: {error.strerror}") from error
    if not content.startswith(FIRST_LINE):
        raise FileUnusable(f"{path} is not a file of timers that this version of wheelcache can read")
    check, body = content[len(FIRST_LINE) :][:32], content[len(FIRST_LINE) + 32 :]
    if not hmac.compare_digest(check, _check(secret, body)):
        raise FileUnusable(f"{path} is damaged, or was saved with another secret")
    return body


def _refuse(owner: str, path: Path, error: FileUnusable) -> None:
    """Log why a file is not loaded, and rename it, so that the next save does not replace it."""
    aside = path.with_name(f"{path.name}{ASIDE}")
    kept = ""
    # Only a regular file is renamed: a path that was given by mistake, such as ``/dev/null``, stays.
    with suppress(OSError):
        if stat.S_ISREG(os.lstat(path).st_mode):
            os.replace(path, aside)
            kept = f"; it is kept as {aside}"
    logger.warning("A file of timers is not loaded by %s: %s%s.", owner, error, kept)


def _finite(seconds: Any) -> float:
    if not isfinite(seconds):
        raise ValueError(f"a timer is due in {seconds!r} s")
    return float(seconds)
