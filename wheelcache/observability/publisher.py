"""Publishes the figures of a cache every few seconds, for readers in other processes."""

from __future__ import annotations

import logging
import os
import secrets
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.observability.figures_directory import FiguresDirectory, remove_forgotten
from wheelcache.observability.process_events import note_dead, note_exit, note_start
from wheelcache.observability.worker_stats import WorkerStats
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import SystemClock
from wheelcache.runtime.lazy import lazy_lock
from wheelcache.runtime.private_files import is_in_ours
from wheelcache.runtime.weak_registry import WeakRegistry

logger = logging.getLogger("wheelcache")

INTERVAL: Final = 3.0
"""Seconds. With an hour of samples it takes 0.5 ms each time in memory, and 0.7 on a disk."""


RETIRE_EVERY: Final = 60.0
"""Seconds between two looks of a process for the dead of a directory."""


class Publisher:
    """Shows the figures of one cache of this process in a directory. A job of ``periodic_jobs``.

    Args:
        directory: where.
        name: of the cache.
        figures: tells them.
        is_used: whether there can be any: asking for them may load what was saved.
    """

    __slots__ = (
        "__weakref__",
        "_closed",
        "_failing",
        "_figures",
        "_is_last",
        "_is_used",
        "_lock",
        "_name",
        "_shown",
        "directory",
    )

    period: Final = INTERVAL
    matters: Final = 1

    def __init__(
        self,
        directory: FiguresDirectory,
        name: str,
        figures: Callable[[], WorkerStats],
        is_used: Callable[[], bool],
    ) -> None:
        self.directory = directory
        self._name = name
        self._figures = figures
        self._is_used = is_used
        self._closed = False
        self._failing = False
        self._is_last = False
        self._shown = _Shown(directory)
        self._lock = lazy_lock()
        # A cache that is dropped without being closed leaves no file behind.
        weakref.finalize(self, _Shown.remove, self._shown).atexit = False
        _publishers.add(self)

    @property
    def worker(self) -> str:
        """What tells this cache in this process from all others."""
        return self._shown.worker

    def begin(self) -> None:
        """There is nothing to prepare."""

    def run(self) -> None:
        with self._lock.get():
            if self._closed:
                # By another thread, while this one was on its way here.
                return
            try:
                self._publish()
            except (FileUnusable, OSError) as error:
                if not self._failing:
                    logger.warning("The figures of the cache %r cannot be published: %s", self._name, error)
                self._failing = True
            else:
                self._failing = False

    def is_published(self) -> bool:
        return self._shown.file >= 0

    def cannot_publish(self) -> bool:
        """Whether other processes see no figures of this one because its last try failed."""
        return self._failing and not self.is_published()

    def run_now(self) -> None:
        """Not in a few seconds, if there is anything to publish."""
        if self.is_published() or (self._is_used() and self._figures().stats.uses):
            self.run()

    def run_last(self) -> None:
        """At the exit of the interpreter, so that what exited workers have counted is complete."""
        self._is_last = True
        self.run_now()

    def close(self) -> None:
        """What was counted is among the counts of exited workers from here on."""
        with self._lock.get():
            self._closed = True
            with suppress(FileUnusable, OSError):
                if self.is_published():
                    self._shown.replace(replace(self._figures(), is_last=True))
            self._shown.remove(patience=None)

    def start_over(self) -> None:
        self._lock = lazy_lock()
        self._failing = False
        self._is_last = False
        self._shown.start_over()

    def _publish(self) -> None:
        if not self.is_published():
            self.directory.make_again()
        _retire_the_dead(self.directory)
        _remove_what_is_left()
        figures = replace(self._figures(), is_last=self._is_last)
        try:
            self._shown.replace(figures)
        except FileNotFoundError:
            self.directory.make_again()
            self._shown.replace(figures)
        if not self._is_last:
            note_start(self.directory.path)


class _Shown:
    """What a publisher shows of this process."""

    __slots__ = ("_directory", "_pid", "file", "worker")

    def __init__(self, directory: FiguresDirectory) -> None:
        self._directory = directory
        self.file = -1
        self.start_over()

    def replace(self, figures: WorkerStats) -> None:
        old, self.file = self.file, self._directory.publish(figures)
        if old >= 0:
            os.close(old)

    def remove(self, patience: float | None = 0.0) -> None:
        """Without patience, it may be called by the garbage collector: in a thread that is at the same at the time."""
        if self.file >= 0 and self._pid == os.getpid():
            os.close(self.file)
            self.file = -1
            with suppress(OSError):
                if not self._directory.remove(self.worker, patience):
                    _left.append((self._directory, self.worker))

    def start_over(self) -> None:
        """At first, and in the child of a fork, where the parent's lock would outlive it if it were kept open."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1
        self._pid = os.getpid()
        # Numbers of processes come again, and one process may have many caches of one name.
        self.worker = f"{self._pid}-{secrets.token_hex(6)}"


_publishers: Final[WeakRegistry[Publisher]] = WeakRegistry()
_retired: dict[tuple[int, Path], float] = {}
"""When a process last looked for the dead of a directory."""

_left: list[tuple[FiguresDirectory, str]] = []
"""What could not be removed at once, since another process had the lock: the next publication does it."""


def _remove_what_is_left() -> None:
    for _ in range(len(_left)):
        with suppress(IndexError):
            directory, worker = _left.pop()
            directory.remove(worker)


def _retire_the_dead(directory: FiguresDirectory) -> None:
    """Once a minute, not for each of a thousand caches, which would open a million files."""
    once = (os.getpid(), directory.path)
    last, now = _retired.get(once), SystemClock.steady()
    if last is None or now >= last + RETIRE_EVERY:
        _retired[once] = now
        note_dead(directory.path, directory.retire_the_dead())
        if last is None and is_in_ours(directory.path):
            remove_forgotten()


def _publish_all() -> None:
    for publisher in _publishers:
        publisher.run_last()
    note_exit()


lifecycle.PUBLISH.add(_publish_all)
