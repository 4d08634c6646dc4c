"""The directory through which the processes of a site show their figures to each other and to readers.

Each cache of each process has a file there, which is replaced every few seconds, atomically, and locked by its process
for as long as that lives: a file whose lock is free is that of a process that is gone, however that came about. The
next process that publishes adds what it counted to the file of exited workers and removes its own. Until then readers
add it themselves, so that sums over all processes never go down, as metrics want it. Reading writes nothing. There are
figures in these files and names of caches; no keys and no values.

One more file has what every process had counted when the figures were reset; since it is taken away when the figures
are read, no process need know. Another one, of ``worker_requests``, has what operators ask of the workers, and that of
``event_log`` has what happened lately, with what exceptions say.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import stat
import sys
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Final

from wheelcache.errors import FileUnusable
from wheelcache.observability.history import DAY, RingsInFile
from wheelcache.observability.worker_stats import CacheStats, Reset, Resets, WorkerStats, by_name
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.json_files import load_document, replace_and_lock, replace_document
from wheelcache.runtime.private_files import (
    locked_file,
    make_private,
    make_private_again,
    not_for_children,
    private_directory_or_none,
    runtime_directory,
)
from wheelcache.stats import Stats

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("wheelcache")

VERSION: Final = 1
"""Of the files. Those of another are left alone while their processes live, and else removed."""

WORKER: Final = ".worker"
"""The suffix of the files of processes."""

HISTORY: Final = ".history"
"""The suffix of the files with the history of a cache. A worker that goes on adds to what others have added."""

EXITED: Final = "exited.json"
RESET: Final = "reset.json"
LOCK: Final = "lock"

NAMES: Final = 1000
"""Caches of which the counts of exited workers are kept, and the requests to workers; the oldest go first."""

AT_ONCE: Final = 250
"""Files of dead processes that are counted in one hold of the lock: 0.3 s, if each has an hour of samples."""

LOOKS: Final = 10
"""Times that a reader begins anew because a worker ended meanwhile."""

NOT_OURS: Final = (errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENXIO, errno.ENODEV)
"""What opening a link, a socket, or what another user has put there gives."""

PAGE: Final = 4096
"""Bytes that are read of a file without a look at its size."""

OURS: Final = "figures-"
"""The prefix of the directories that are used by default."""

FORGOTTEN: Final = 7 * 86_400.0
"""Seconds after which such a directory, without a living worker and without new files, is removed."""

LEFTOVER: Final = 60.0
"""Seconds after which a file that was to be moved into its place is that of a process that was killed before."""


def figures_directory_or_none(option: str, value: Any) -> Path | None:
    """The directory that an option says, made if it isn't there; or None.

    Raises:
        TypeError, ValueError, FileUnusable: naming the option.
    """
    path = private_directory_or_none(option, value)
    return None if path is None else FiguresDirectory(path).path


def directory_of(site: str) -> Path | None:
    """Where the processes of ``site`` publish by default: any text that all of them know, and no others.

    None, which is logged, if there is no directory of this user's alone.
    """
    try:
        # A path in it may have any bytes.
        digest = hashlib.sha256(site.encode(errors="surrogatepass")).hexdigest()
        directory = runtime_directory() / f"{OURS}{digest[:32]}"
        make_private(directory)
    except (FileUnusable, AttributeError) as error:
        # The system may know no users, as Windows does.
        logger.warning("The figures of the caches are not published: %s", error)
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
                    FiguresDirectory(path).remove_if_deserted()


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

    def publish(self, figures: WorkerStats) -> int:
        """Put ``figures`` in the place of those that this worker published before.

        Returns:
            A file descriptor whose lock says that they are of a living process. Close that of the one before.

        Raises:
            OSError
        """
        target = self.path / f"{figures.worker}{WORKER}"
        return replace_and_lock(target, {"version": VERSION, **figures.as_json()})

    def rings(self, name: str) -> RingsInFile:
        """The history of the cache ``name``."""
        digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
        return RingsInFile(self.path / f"{digest[:32]}{HISTORY}")

    def read(self) -> list[CacheStats]:
        """The figures of all caches that living processes published, by name, and of exited workers. Writes nothing."""
        for _ in range(LOOKS):
            before = load_document(self.path / EXITED)
            living, dead = self._look_at_all()
            document = load_document(self.path / EXITED)
            if document == before:
                # Or a process that died in between would be among neither, or both.
                break
        exited_workers, since = _counts(document), _since(document)
        _count(exited_workers, since, dead, _counted(document))
        return by_name(living, exited_workers, since)

    def retire_the_dead(self) -> list[WorkerStats]:
        """Add what processes that are gone had counted to the counts of exited workers, and remove their files.

        Returns:
            What they had published. Of several processes that find the same dead, one is given it.
        """
        gone: list[WorkerStats] = []
        self._retire([path for path in self._files() if not _look_at(path, living=False)[1]], gone)
        return gone

    def remove_if_deserted(self) -> None:
        """Remove it with all in it, unless a worker lives there. A worker that comes meanwhile makes it again.

        Raises:
            FileUnusable, OSError: it stays, as another process is at it, or there is more in it than our files.
        """
        with locked_file(self.path / LOCK, patience=0.0):
            # A worker that comes from here on is not among them.
            there = list(self.path.iterdir())
            if not any(path.suffix == WORKER and _look_at(path, living=False)[1] for path in there):
                for path in there:
                    path.unlink()
                self.path.rmdir()

    def make_again(self) -> None:
        """If it was removed while it was used.

        Raises:
            FileUnusable: as at first.
        """
        make_private_again(self.path)

    def reset(self, figures: Iterable[CacheStats], *, together: bool = True) -> None:
        """From now on, the figures of these caches count from ``figures`` on: see ``resets``.

        Args:
            together: they are all caches that there are. If not, the resets of the others stay.
        """
        with self._locked():
            now = SystemClock.time()
            before = Resets() if together else self.resets()
            caches = {**before.caches, **{each.name: Reset.of(now, each) for each in figures}}
            resets = Resets(now if together else before.at, _newest(caches))
            replace_document(self.path / RESET, resets.as_json())

    def resets(self) -> Resets:
        return Resets.from_json(load_document(self.path / RESET))

    def remove(self, worker: str, patience: float | None = None) -> bool:
        """Count a worker of this process, which holds its lock no longer, among exited workers.

        Args:
            patience: seconds to wait for other processes; see ``locked_file``.

        Returns:
            Whether that was possible. If not, the next look for ended workers does it.
        """
        return self._retire([self.path / f"{worker}{WORKER}"], [], patience)

    def _files(self) -> list[Path]:
        return sorted(self.path.glob(f"*{WORKER}"))

    def _look_at_all(self) -> tuple[list[WorkerStats], list[tuple[str, WorkerStats]]]:
        """The figures of processes that live, and the files and figures of those that are gone."""
        living, dead = [], []
        # No paths, which would take as long again for the thousand files of 40 workers with 25 caches.
        with suppress(FileNotFoundError):
            for name in sorted(filter(lambda name: name.endswith(WORKER), os.listdir(self.path))):
                figures, lives = _look_at(f"{self.path}/{name}", dead=True)
                if figures is None:
                    continue
                if lives:
                    living.append(figures)
                else:
                    dead.append((name, figures))
        return living, dead

    def _retire(self, dead: list[Path], gone: list[WorkerStats], patience: float | None = 0.0) -> bool:
        """Count the dead among exited workers, and remove their files. What they had published is added to ``gone``.

        Returns:
            Whether that was possible. If not, the disk is full or another process is at it.
        """
        for start in range(0, len(dead), AT_ONCE):
            try:
                with locked_file(self.path / LOCK, patience):
                    gone += self._count_and_remove(dead[start : start + AT_ONCE])
            except (OSError, FileUnusable):
                return False
        return True

    def _count_and_remove(self, dead: list[Path]) -> list[WorkerStats]:
        """Called under the lock. A process killed in the middle leaves names by which nothing is counted twice."""
        document = load_document(self.path / EXITED)
        counts, since, counted = _counts(document), _since(document), _counted(document)
        found = [(path, *_look_at(path, living=False, dead=True)) for path in dead]
        # Another process may have been at it since they were found dead, and removed them.
        gone = [path for path, _, lives in found if not lives]
        _count(counts, since, [(path.name, figures) for path, figures, _ in found if figures is not None], counted)
        there = {path.name for path in self._files()}
        counted = (counted & there) | {path.name for path in gone}
        caches = _newest({name: stats.as_row() for name, stats in counts.items()})
        since = {name: at for name, at in since.items() if name in caches}
        replace_document(self.path / EXITED, {"caches": caches, "since": since, "counted": sorted(counted)})
        histories = sorted(self.path.glob(f"*{HISTORY}"), key=_age)
        over = [
            path for number, path in enumerate(histories) if number >= NAMES or _age(path) > DAY.length * DAY.seconds
        ]
        for path in (*gone, *over, *filter(_is_left_over, self.path.glob(".*"))):
            with suppress(OSError):
                path.unlink()
        return [figures for _, figures, lives in found if figures is not None and not lives]

    def _locked(self) -> AbstractContextManager[int]:
        """For what is read, changed and written: one process at a time, for a millisecond."""
        return locked_file(self.path / LOCK)


def _look_at(path: Path | str, *, living: bool = True, dead: bool = False) -> tuple[WorkerStats | None, bool]:
    """The figures in a file, if they can be read, and whether its process lives, or it is none of ours.

    Args:
        living, dead: whether those of such a process are wanted, as reading them takes 0.6 ms, and the look 10 us.
    """
    while True:
        try:
            file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            # Removed by now: nothing is left to do about it.
            return None, True
        except OSError as error:
            if error.errno not in NOT_OURS:
                raise
            return None, True
        not_for_children.add(file)
        try:
            lives = False
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                lives = True
            else:
                status = os.fstat(file)
                if not stat.S_ISREG(status.st_mode):
                    return None, True
                with suppress(FileNotFoundError):
                    if os.stat(path).st_ino != status.st_ino:
                        # Replaced since it was opened, and that one's lock let go.
                        continue
            return (_figures_in(file) if (living if lives else dead) else None), lives
        finally:
            not_for_children.discard(file)
            os.close(file)


def _figures_in(file: int) -> WorkerStats | None:
    try:
        # They take 1 KB, unless the name of the cache is a long one.
        data = os.read(file, PAGE)
        if len(data) == PAGE:
            data += os.read(file, os.fstat(file).st_size)
        document = json.loads(data)
        if document.pop("version") != VERSION:
            return None
        return WorkerStats.from_json(document)
    except (OSError, TypeError, KeyError, ValueError, AttributeError, RecursionError):
        return None


def _counts(document: Mapping[str, Any]) -> dict[str, Stats]:
    """Of exited workers, by the name of the cache. What another version wrote and this one cannot read is left out."""
    caches = document.get("caches")
    counts = {}
    for name, each in caches.items() if isinstance(caches, dict) else ():
        with suppress(TypeError, KeyError, ValueError):
            counts[name] = Stats.from_row(each)
    return counts


def _since(document: Mapping[str, Any]) -> dict[str, float]:
    """When the first exited worker of each cache started."""
    since = document.get("since")
    return {name: at for name, at in since.items() if isinstance(at, int | float)} if isinstance(since, dict) else {}


def _counted(document: Mapping[str, Any]) -> set[str]:
    """The names of files that are among the counts of exited workers and may still be there."""
    counted = document.get("counted")
    return {name for name in counted if isinstance(name, str)} if isinstance(counted, list) else set()


def _count(
    counts: dict[str, Stats], since: dict[str, float], dead: list[tuple[str, WorkerStats]], counted: set[str]
) -> None:
    """Add the dead to ``counts``, last those that came last."""
    for file, figures in dead:
        if file not in counted:
            before = counts.pop(figures.name, Stats())
            counts[figures.name] = (before + figures.stats).exited()
            since[figures.name] = min(figures.started, since.get(figures.name, figures.started))


def _is_left_over(path: Path) -> bool:
    """Whether a file that was to be moved into its place is old enough to be that of a process that was killed."""
    return _age(path) > LEFTOVER


def _age(path: Path) -> float:
    """Seconds since the last write; 0 if it is gone."""
    try:
        return SystemClock.time() - path.lstat().st_mtime
    except OSError:
        return 0.0


def _newest(names: dict[str, Any]) -> dict[str, Any]:
    return dict(list(names.items())[-NAMES:])
