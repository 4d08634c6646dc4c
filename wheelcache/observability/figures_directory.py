"""Where the processes of a site publish their figures: by default, and how such directories are removed."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.observability.site_file import ALIVE, LOCK, check_sqlite, lives
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import (
    locked_file,
    make_private,
    runtime_directory,
)

logger = logging.getLogger("wheelcache")

OURS: Final = "figures-"
"""The prefix of the directories that are used by default."""

FORGOTTEN: Final = 7 * 86_400.0
"""Seconds after which such a directory, without a living worker and without new files, is removed."""


def directory_of(site: str) -> Path | None:
    """Where the processes of ``site`` publish by default: any text that all of them know, and no others.

    None, which is logged, if there is no directory of this user's alone.
    """
    try:
        check_sqlite()
        # A path in it may have any bytes.
        digest = hashlib.sha256(site.encode(errors="surrogatepass")).hexdigest()
        directory = runtime_directory() / f"{OURS}{digest[:32]}"
        make_private(directory)
    except FileUnusable as error:
        logger.warning("The figures of the caches are not published, so each worker shows its own only: %s", error)
        return None
    return directory


def remove_forgotten() -> None:
    """Remove the directories of ``directory_of`` that no process used for long: each SECRET_KEY, and each place of a
    Flask app, has one, and some are never the same again.
    """
    with suppress(FileUnusable, OSError):
        for path in runtime_directory().glob(f"{OURS}*"):
            with suppress(FileUnusable, OSError):
                if path.lstat().st_mtime < SystemClock.time() - FORGOTTEN:
                    _remove_if_deserted(path)


def _remove_if_deserted(directory: Path) -> None:
    """Remove a directory with all in it, unless a worker lives there. A worker that comes meanwhile makes it again.

    Raises:
        FileUnusable, OSError: it stays, as another process is at it, or there is more in it than our files.
    """
    with locked_file(directory / LOCK, patience=0.0):
        # A worker that comes from here on is not among them.
        there = list(directory.iterdir())
        if not any(path.suffix == ALIVE and lives(path) for path in there):
            for path in there:
                path.unlink()
            directory.rmdir()
