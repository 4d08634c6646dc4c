"""Find the default directory where the processes of a site publish their figures, and remove unused ones."""

from __future__ import annotations

import hashlib
import logging
from contextlib import suppress
from pathlib import Path
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.private_files import locked_file, make_private, runtime_directory
from wheelcache.watch.site_file import ALIVE, LOCK, check_sqlite, lives

logger = logging.getLogger("wheelcache")

OURS: Final = "figures-"
"""The prefix of default directories."""

FORGOTTEN: Final = 7 * 86_400.0
"""Seconds without a living worker and without new files after which a default directory is removed."""


def directory_of(site: str) -> Path | None:
    """Return the default directory where the processes of a site publish; None if this user has no private directory.

    A warning is logged in that case.

    Args:
        site: any text that all processes of the site know, and no other process.
    """
    try:
        check_sqlite()
        # The text may contain a path with arbitrary bytes.
        digest = hashlib.sha256(site.encode(errors="surrogatepass")).hexdigest()
        directory = runtime_directory() / f"{OURS}{digest[:32]}"
        make_private(directory)
    except FileUnusable as error:
        logger.warning("The figures of the caches are not published, so each worker shows only its own: %s", error)
        return None
    return directory


def remove_forgotten(used: Path) -> None:
    """Remove default directories that have not been used for a week, if the one that is ``used`` is a default one, too.

    Each SECRET_KEY, and each path of a Flask app, has its own directory, and some of these are never used again.
    """
    with suppress(FileUnusable, OSError):
        if not used.name.startswith(OURS) or used.parent != runtime_directory():
            return
        for path in used.parent.glob(f"{OURS}*"):
            with suppress(FileUnusable, OSError):
                if path.lstat().st_mtime < SystemClock.time() - FORGOTTEN:
                    _remove_if_deserted(path)


def _remove_if_deserted(directory: Path) -> None:
    """Remove a directory with its files, unless a living worker uses it. A worker that starts later makes it again.

    Raises:
        FileUnusable, OSError: if the directory stays, because another process uses it or it contains other files.
    """
    with locked_file(directory / LOCK, patience=0.0):
        # If a worker starts after this, its file is not listed, so ``rmdir`` fails and the directory stays.
        there = list(directory.iterdir())
        if not any(path.suffix == ALIVE and lives(path) for path in there):
            for path in there:
                path.unlink()
            directory.rmdir()
