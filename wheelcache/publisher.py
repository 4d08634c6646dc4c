"""Publishes the figures of a cache every few seconds, for those who look from other processes."""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import threading
import weakref
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from wheelcache.errors import FileUnusable
from wheelcache.figures import WorkerFigures
from wheelcache.figures_directory import FiguresDirectory
from wheelcache.private_files import make_private
from wheelcache.weak_registry import WeakRegistry

logger = logging.getLogger("wheelcache")

INTERVAL: Final = 3.0
"""Seconds. With an hour of samples it takes 1 ms each time."""


class Publisher:
    """Shows the figures of one cache of this process in a directory. A job of ``periodic_jobs``.

    Args:
        directory: where.
        name: of the cache.
        figures: tells them.
        clear: empties the cache, which somebody who looks at the figures may ask for.
    """

    __slots__ = ("__weakref__", "_clear", "_clears", "_failing", "_figures", "_lock", "_name", "_shown", "directory")

    period: Final = INTERVAL

    def __init__(
        self,
        directory: FiguresDirectory,
        name: str,
        figures: Callable[[], WorkerFigures],
        clear: Callable[[], None],
    ) -> None:
        self.directory = directory
        self._name = name
        self._figures = figures
        self._clear = clear
        self._clears = 0
        self._failing = False
        self._shown = _Shown(directory)
        self._lock = threading.Lock()
        # A cache that is dropped without being closed leaves no file behind.
        weakref.finalize(self, _Shown.remove, self._shown).atexit = False
        _publishers.add(self)

    @property
    def worker(self) -> str:
        """What tells this cache in this process from all others."""
        return self._shown.worker

    def begin(self) -> None:
        self._clears = self.directory.clears(self._name)

    def run(self) -> None:
        clears = self.directory.clears(self._name)
        if clears != self._clears:
            self._clears = clears
            self._clear()
        with self._lock:
            try:
                if not self.is_published():
                    make_private(self.directory.path)
                    self.directory.retire_the_dead()
                self._shown.replace(self._figures())
            except (FileUnusable, OSError) as error:
                if not self._failing:
                    logger.warning("The figures of the cache %r cannot be published: %s", self._name, error)
                self._failing = True
            else:
                self._failing = False

    def is_published(self) -> bool:
        return self._shown.file >= 0

    def close(self) -> None:
        """What was counted is among the counts of the departed from here on."""
        with self._lock, suppress(FileUnusable, OSError):
            if self.is_published():
                self._shown.replace(self._figures())
            self._shown.remove()

    def start_over(self) -> None:
        self._lock = threading.Lock()
        self._failing = False
        self._shown.start_over()


class _Shown:
    """What a publisher shows of this process."""

    __slots__ = ("_directory", "_pid", "file", "worker")

    def __init__(self, directory: FiguresDirectory) -> None:
        self._directory = directory
        self.file = -1
        self.start_over()

    def replace(self, figures: WorkerFigures) -> None:
        old, self.file = self.file, self._directory.publish(figures)
        if old >= 0:
            os.close(old)

    def remove(self) -> None:
        if self.file >= 0 and self._pid == os.getpid():
            os.close(self.file)
            self.file = -1
            self._directory.remove(self.worker)

    def start_over(self) -> None:
        """At first, and in the child of a fork, where the parent's lock would outlive it if it were kept open."""
        if self.file >= 0:
            os.close(self.file)
        self.file = -1
        self._pid = os.getpid()
        # Numbers of processes come again, and one process may have many caches of one name.
        self.worker = f"{self._pid}-{secrets.token_hex(6)}"


_publishers: Final[WeakRegistry[Publisher]] = WeakRegistry()


def _publish_all() -> None:
    """At the exit of the interpreter: a last time, so that what the departed have counted is complete."""
    for publisher in _publishers:
        if publisher.is_published():
            publisher.run()


atexit.register(_publish_all)
