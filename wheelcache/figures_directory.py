"""The directory through which the processes of a site show their figures to each other and to whoever looks.

Each cache of each process has a file there, which is replaced every few seconds, atomically, and locked by its process
for as long as that lives: a file whose lock is free is that of a process that is gone, however that came about. The
first to find it adds what it counted to the file of the departed, so that sums over all processes never go down, as
metrics want it, and removes it. There are figures in these files and names of caches; no keys and no values.

Two more files are how somebody who looks can act. One has what every process had counted when the figures were reset;
since it is taken away when they are read, nobody else need know. The other counts, for each cache, how often it was to
be cleared; its caches look at that whenever they publish.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from wheelcache.errors import FileUnusable
from wheelcache.figures import CacheFigures, WorkerFigures, stats_from_json
from wheelcache.private_files import locked_file, make_private, runtime_directory
from wheelcache.stats import Stats

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("wheelcache")

VERSION: Final = 1
"""Of the files. Those of another are left alone while their processes live, and else removed."""

WORKER: Final = ".worker"
"""The suffix of the files of processes."""

DEPARTED: Final = "departed.json"
RESET: Final = "reset.json"
CLEARS: Final = "clears.json"
LOCK: Final = "lock"

NAMES: Final = 1000
"""Caches of which the counts of departed processes are kept, and clears; those that came first go first."""


LEFTOVER: Final = 60.0
"""Seconds after which a file that was to be moved into its place is one of somebody who was killed before that."""


def directory_of(site: str) -> Path | None:
    """Where the processes of ``site`` publish if nobody says where: any text that all of them know, and no others.

    None, which is logged, if there is no directory of this user's alone.
    """
    try:
        directory = runtime_directory() / f"figures-{hashlib.sha256(site.encode()).hexdigest()[:32]}"
        make_private(directory)
    except (FileUnusable, AttributeError) as error:
        # The system may know no users, as Windows does.
        logger.warning("The figures of %s are not published: %s", site, error)
        return None
    return directory


class FiguresDirectory:
    """Where the processes of a site publish their figures.

    Args:
        path: made, with mode 0700, if it isn't there; its parent has to be.

    Raises:
        FileUnusable: it is not this user's, or others may use it; or the system has no files as Unix has them.
    """

    __slots__ = ("path",)

    def __init__(self, path: Path) -> None:
        if sys.platform == "win32":
            raise FileUnusable("what the processes of a machine show each other needs files as Unix has them")
        make_private(path)
        self.path = path

    def publish(self, figures: WorkerFigures) -> int:
        """Put ``figures`` in the place of those that this worker published before.

        Returns:
            A file descriptor whose lock says that they are of a living process. Close that of the one before.

        Raises:
            OSError
        """
        target = self.path / f"{figures.worker}{WORKER}"
        return self._replace(target, {"version": VERSION, **figures.as_json()}, keep_open=True)

    def read(self) -> list[CacheFigures]:
        """The figures of all caches that living processes published, by name, and of the departed."""
        workers: dict[str, list[WorkerFigures]] = {}
        for each in self._living():
            workers.setdefault(each.name, []).append(each)
        departed = self._departed()
        return [
            CacheFigures(
                name,
                tuple(sorted(workers.get(name, ()), key=lambda each: (each.started, each.worker))),
                departed.get(name, Stats()),
            )
            for name in sorted({*workers, *departed})
        ]

    def retire_the_dead(self) -> None:
        """Add what processes that are gone had counted to the counts of the departed, and remove their files."""
        self._living()

    def reset(self, figures: list[CacheFigures]) -> None:
        """From now on, ``since_reset`` takes ``figures`` away."""
        before = {each.worker: asdict(each.stats) for cache in figures for each in cache.workers}
        with self._locked():
            self._replace(self.path / RESET, {"at": time.time(), "before": before})

    def since_reset(self) -> tuple[float | None, Mapping[str, Stats]]:
        """When the figures were reset, in seconds since 1970, and what each worker had counted by then."""
        document = self._load(RESET)
        try:
            return float(document["at"]), {name: stats_from_json(each) for name, each in document["before"].items()}
        except (TypeError, KeyError, ValueError):
            return None, {}

    def clear(self, name: str) -> None:
        """Have all processes clear the cache ``name``, when they publish next."""
        with self._locked():
            clears = self._load(CLEARS)
            clears[name] = clears.pop(name, 0) + 1
            self._replace(self.path / CLEARS, _newest(clears))

    def clears(self, name: str) -> int:
        """How often that was said, up to now. Costs 2 us if it never was, and else 20."""
        count = self._load(CLEARS).get(name, 0)
        return count if isinstance(count, int) else 0

    def remove(self, worker: str) -> None:
        """Count a worker of this process, which holds its lock no longer, among the departed."""
        with suppress(OSError, FileUnusable), self._locked():
            self._retire([self.path / f"{worker}{WORKER}"])

    def _living(self) -> list[WorkerFigures]:
        living, dead = [], []
        for path in sorted(self.path.glob(f"*{WORKER}")):
            figures, lives = _look_at(path)
            if not lives:
                dead.append(path)
            elif figures is not None:
                living.append(figures)
        if dead:
            with suppress(OSError, FileUnusable), self._locked():
                # Somebody else may have been at it, and a process may have taken its number again.
                self._retire([path for path in dead if not _look_at(path)[1]])
        return living

    def _retire(self, paths: list[Path]) -> None:
        """Called under the lock. Whoever is killed in the middle leaves names by which nothing is counted twice."""
        document = self._load(DEPARTED)
        counted = set(document.get("counted", ()))
        caches = document.get("caches", {})
        for path in paths:
            figures = _figures_in(path)
            if figures is not None and path.name not in counted:
                before = stats_from_json(caches.pop(figures.name)) if figures.name in caches else Stats()
                caches[figures.name] = asdict(replace(before + figures.stats, size=0, weight=0))
        there = {path.name for path in self.path.glob(f"*{WORKER}")}
        counted = (counted & there) | {path.name for path in paths}
        self._replace(self.path / DEPARTED, {"caches": _newest(caches), "counted": sorted(counted)})
        left = time.time() - LEFTOVER
        for path in (*paths, *(each for each in self.path.glob(".*") if each.lstat().st_mtime < left)):
            path.unlink(missing_ok=True)

    def _departed(self) -> dict[str, Stats]:
        try:
            return {name: stats_from_json(each) for name, each in self._load(DEPARTED).get("caches", {}).items()}
        except (TypeError, KeyError, ValueError, AttributeError):
            # Of another version.
            return {}

    def _load(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads((self.path / name).read_bytes())
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def _replace(self, target: Path, document: Mapping[str, Any], *, keep_open: bool = False) -> int:
        """Write a file beside ``target``, locked, and move it there."""
        new = target.with_name(f".{target.name}.{os.getpid()}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(new, flags, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with open(file, "wb", closefd=False) as stream:
                stream.write(json.dumps(document, separators=(",", ":")).encode())
            os.replace(new, target)
        except BaseException:
            new.unlink(missing_ok=True)
            os.close(file)
            raise
        if keep_open:
            return file
        os.close(file)
        return -1

    def _locked(self) -> AbstractContextManager[int]:
        """For what is read, changed and written: one process at a time, for a millisecond."""
        return locked_file(self.path / LOCK)


def _look_at(path: Path) -> tuple[WorkerFigures | None, bool]:
    """The figures in a file, if they can be read, and whether its process lives."""
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            # Removed by now: nothing is left to do about it.
            return None, True
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return _figures_in(path), True
            with suppress(FileNotFoundError):
                if os.stat(path).st_ino != os.fstat(file).st_ino:
                    # Replaced since it was opened, and that one's lock let go.
                    continue
            return None, False
        finally:
            os.close(file)


def _figures_in(path: Path) -> WorkerFigures | None:
    try:
        document = json.loads(path.read_bytes())
        if document.pop("version") != VERSION:
            return None
        return WorkerFigures.from_json(document)
    except (OSError, TypeError, KeyError, ValueError, AttributeError):
        return None


def _newest(names: dict[str, Any]) -> dict[str, Any]:
    return dict(list(names.items())[-NAMES:])
