"""Publishes what the caches of this process have counted, every few seconds, in one transaction for all of them."""

from __future__ import annotations

import logging
import os
import secrets
import sys
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from wheelcache.core import IMPLEMENTATION
from wheelcache.errors import CacheClosed, FileUnusable
from wheelcache.observability.cache_events import CacheEvents
from wheelcache.observability.event_log import EXITED, STARTED, Event, add_events
from wheelcache.observability.figures_directory import remove_forgotten
from wheelcache.observability.recorder import Recorder, Steps
from wheelcache.observability.site_file import (
    PATIENCE,
    USE,
    SiteFile,
)
from wheelcache.observability.site_rows import (
    ADD_TO_STEPS,
    ADD_TO_TOTALS,
    PUT_PROCESS,
    PUT_WORKER,
    ids_of,
    storable,
    worker_row,
)
from wheelcache.observability.tidying import tidy
from wheelcache.observability.worker_requests import WorkerRequests, requests_in
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, SystemClock, this_process
from wheelcache.runtime.private_files import FileLocked, is_in_ours, not_for_children
from wheelcache.runtime.shared_objects import WeakRegistry
from wheelcache.stats import NOTHING, Row, subtracted

if TYPE_CHECKING:
    import sqlite3

if sys.platform != "win32":
    import fcntl

logger = logging.getLogger("wheelcache")

INTERVAL: Final = 3.0
"""Seconds between two publications."""

SOONEST: Final = 0.75 * INTERVAL
"""Seconds to the next publication of a process. Each of its caches has a job: the first that is due publishes all."""

TIDY_EVERY: Final = 60.0
"""Seconds between two looks for processes that were killed, and for rows that are too old."""

LATE: Final = 3
"""Publications in a row that others have kept from being written, after which it is a failure. Nothing is lost."""

LAST_PATIENCE: Final = 5.0
"""Seconds that the exit waits for other processes that exit at the same time. There is no other try."""


class _Part(NamedTuple):
    """What a publication says of one cache."""

    publication: Publication
    before: Row
    now: Row
    steps: Steps


class _Batch(NamedTuple):
    """A publication.

    Attributes:
        gone, events: the workers that are removed, and the events: the first of those that wait.
        stays: the process is in the database afterwards.
    """

    number: int
    parts: list[_Part]
    gone: list[str]
    events: list[Event]
    stays: bool


class SitePublisher:
    """Publishes the caches of this process that share a directory. A member of ``lifecycle.HELD``.

    Attributes:
        file: the database.
        process: distinguishes this process from all others, also from later ones with the same number.
        is_known: the process is in the database.
    """

    def __init__(self, file: SiteFile) -> None:
        self.file = file
        self._publications: WeakRegistry[Publication] = WeakRegistry()
        self.start_over()
        lifecycle.HELD.add_weakly(self)

    def start_over(self) -> None:
        """At first, and in the child of a fork, where the descriptor of the parent's file is closed by now."""
        self.process = f"{os.getpid()}-{secrets.token_hex(6)}"
        self.is_known = False
        self._has_started = False
        self._is_over = False
        self._alive = -1
        self._number = 0
        self._in_doubt: _Batch | None = None
        self._gone: deque[str] = deque()
        self._events: list[Event] = []
        self._tidied_at = -inf

    def before_fork(self) -> None:
        """``USE`` is held, and with it all that a publication changes."""

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self.start_over()

    def add(self, publication: Publication) -> None:
        self._publications.add(publication)

    def all(self) -> list[Publication]:
        """Those of the caches of this process that are not closed."""
        return [each for each in self._publications if not each.is_closed]

    def forget(self, worker: str) -> None:
        """The cache ``worker`` is gone. Called by the garbage collector too, anywhere."""
        self._gone.append(worker)
        if self.is_known and not self.all() and USE.is_free():
            with suppress(FileUnusable, OSError):
                self.publish(0.0)

    def publish(self, patience: float = PATIENCE, closed: Publication | None = None) -> None:
        """Publish all caches of this process.

        Args:
            closed: one of them, which is published for the last time.

        Raises:
            FileUnusable, OSError: nothing was published. The next publication includes this one.
            FileLocked: for now, as other processes were writing.
        """
        publications = self.all()
        every = publications if closed is None else [*publications, closed]
        stays = not self._is_over and any(each.is_used() for each in publications)
        if stays:
            self._show_alive()
        with USE.lock:
            # Before others have to wait for this process.
            batch = self._collect(every, stays=stays)

        def change(db: sqlite3.Connection) -> None:
            nonlocal batch
            # The commit before may have been interrupted by an exception from outside.
            found = db.execute("SELECT seq FROM processes WHERE process = ?", (self.process,)).fetchone()
            if self._in_doubt is not None and found == (self._in_doubt.number,):
                self._settle(self._in_doubt)
            self._in_doubt = None
            if batch.number != self._number + 1:
                # That one, or another thread's, has been published since this one was collected.
                batch = self._collect(every, stays=stays)
            # One may have been closed by another thread since.
            batch = batch._replace(stays=stays and not all(each.is_closed for each in publications))
            self._write(db, batch, is_new=found is None and self.is_known)
            self._tidy(db)
            requests = requests_in(db)
            for each in publications:
                each.requests.note(requests)
            self._in_doubt = batch

        try:
            self.file.write(change, patience)
        except (FileUnusable, OSError):
            with USE.lock:
                if self._in_doubt is batch:
                    self._in_doubt = None
            raise
        with USE.lock:
            # Or another thread has found it to be in the database.
            if self._in_doubt is batch:
                self._settle(batch)
                self._in_doubt = None
        if not batch.stays:
            self._hide()

    def end(self) -> None:
        """Publish for the last time: the process exits. What it counts from now on is still published."""
        self._is_over = True
        if self._has_started:
            self._events.append(Event.of(EXITED, SystemClock.time(), this_process()))
        elif not any(each.is_used() for each in self.all()):
            return
        with suppress(FileUnusable, OSError):
            self.publish(LAST_PATIENCE)

    def _collect(self, publications: Iterable[Publication], *, stays: bool) -> _Batch:
        parts = []
        for each in publications:
            with suppress(CacheClosed):
                if each.is_used():
                    each.recorder.mark()
                    parts.append(_Part(each, each.published, each.recorder.row, dict(each.recorder.steps)))
            self._events += each.events.taken()
        return _Batch(self._number + 1, parts, list(self._gone), list(self._events), stays)

    def _settle(self, batch: _Batch) -> None:
        """``batch`` is in the database. If this is interrupted, it goes on when it is called again."""
        self._number = batch.number
        for part in batch.parts:
            part.publication.published = part.now
            part.publication.recorder.published(part.steps)
        while batch.gone:
            del batch.gone[-1], self._gone[0]
        while batch.events:
            del batch.events[-1], self._events[0]
        self.is_known = batch.stays
        self._has_started |= batch.stays

    def _write(self, db: sqlite3.Connection, batch: _Batch, *, is_new: bool) -> None:
        """
        Args:
            is_new: the database is not the one that this process has published in: it gets all that was counted.
        """
        pid, started = this_process()
        ids = ids_of(db, [part.publication.recorder for part in batch.parts])
        totals, steps, workers = [], [], []
        for publication, before, now, new_steps in batch.parts:
            cache = ids[publication.recorder.name]
            totals.append((cache, started, *subtracted(now, NOTHING if is_new else before)))
            steps += [(seconds, cache, start, *row) for (seconds, start), row in new_steps.items()]
            if batch.stays and not publication.is_closed:
                workers.append(worker_row(publication.worker, self.process, cache, publication.recorder))
        db.executemany(ADD_TO_TOTALS, map(storable, totals))
        db.executemany(ADD_TO_STEPS, map(storable, steps))
        db.executemany(PUT_WORKER, workers)
        db.executemany("DELETE FROM workers WHERE worker = ?", ((worker,) for worker in batch.gone))
        events = list(batch.events)
        if batch.stays:
            time = max(part.publication.recorder.time() for part in batch.parts)
            thread = batch.parts[0].publication.thread()
            db.execute(PUT_PROCESS, (self.process, pid, started, time, batch.number, thread, IMPLEMENTATION))
            if not self._has_started:
                events.append(Event.of(STARTED, started, this_process()))
        else:
            for table in ("processes", "workers"):
                db.execute(f"DELETE FROM {table} WHERE process = ?", (self.process,))
        add_events(db, events)

    def _show_alive(self) -> None:
        """Have a locked file, which may have been removed from outside."""
        path = self.file.alive(self.process)
        with USE.lock:
            if self._alive >= 0:
                with suppress(FileNotFoundError):
                    if path.stat().st_ino == os.fstat(self._alive).st_ino:
                        return
                self._hide()
            self.file.make_again()
            new = path.with_suffix(".new")
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            not_for_children.add(file)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Nobody finds it without the lock.
                new.rename(path)
            except BaseException:
                not_for_children.discard(file)
                os.close(file)
                raise
            self._alive = file

    def _hide(self) -> None:
        with USE.lock:
            file, self._alive = self._alive, -1
            if file >= 0:
                with suppress(OSError):
                    self.file.alive(self.process).unlink()
                not_for_children.discard(file)
                os.close(file)

    def _tidy(self, db: sqlite3.Connection) -> None:
        """Once a minute, remove what killed processes have left, and what is too old."""
        now = SystemClock.steady()
        if now >= self._tidied_at + TIDY_EVERY:
            is_first, self._tidied_at = self._tidied_at == -inf, now
            tidy(db, self.file, self.process)
            if is_first and is_in_ours(self.file.directory):
                remove_forgotten()


class Publication:
    """What one cache of this process publishes. A job of ``periodic_jobs``, which publishes for all of them.

    Args:
        publisher: of the process and the directory.
        recorder: what the cache counts.
        requests: what operators ask of it.
        events: what happened to it.
        thread: returns the state of the wheel thread.
        is_in_use: whether the cache was used, and not closed since: asking for its figures may load its snapshot.

    Attributes:
        worker: distinguishes this cache in this process from all others.
        published: all that was counted and is in the database.
    """

    period: Final = INTERVAL
    matters: Final = 1

    def __init__(
        self,
        publisher: SitePublisher,
        recorder: Recorder,
        requests: WorkerRequests,
        events: CacheEvents,
        thread: Callable[[], str],
        is_in_use: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self.publisher = publisher
        self.recorder = recorder
        self.requests = requests
        self.events = events
        self.thread = thread
        self._is_in_use = is_in_use
        self._clock = clock
        self.published: Row = NOTHING
        self.is_failing = False
        self.has_begun = False
        self._held_up = 0
        self._due_at = -inf
        self.is_closed = False
        self._name_worker()
        publisher.add(self)

    def _name_worker(self) -> None:
        self.worker = f"{os.getpid()}-{secrets.token_hex(6)}"
        # A cache that is dropped without being closed leaves no row behind.
        self._finalizer = weakref.finalize(self, self.publisher.forget, self.worker)
        self._finalizer.atexit = False

    def is_used(self) -> bool:
        """Whether there is anything to publish."""
        return self.has_begun or (self._is_in_use() and self.recorder.uses() > 0)

    def is_published(self) -> bool:
        return self.has_begun and self.publisher.is_known

    def cannot_publish(self) -> bool:
        """Whether other processes see no figures of this one because its last try failed."""
        return self.is_failing and not self.publisher.is_known

    def begin(self) -> None:
        self.has_begun = True
        self.requests.begin()

    def run(self) -> None:
        if not self.is_closed and self._clock() >= self._due_at:
            for each in self.publisher.all():
                each.was_published()
            self._publish()
        self.requests.run()

    def run_now(self) -> None:
        """Publish now instead of in a few seconds, if there is anything to publish."""
        if self.is_used():
            self._publish()

    def _publish(self) -> None:
        try:
            self.publisher.publish()
        except (FileUnusable, OSError) as error:
            self._held_up += 1
            if isinstance(error, FileLocked) and self._held_up < LATE:
                return
            if not self.is_failing:
                logger.warning("The figures of the cache %r cannot be published: %s", self.recorder.name, error)
            self.is_failing = True
        else:
            self.is_failing = False
            self._held_up = 0

    def was_published(self) -> None:
        """The process publishes. Its caches need not, for a while."""
        self._due_at = self._clock() + SOONEST

    def start_over(self) -> None:
        """In the child of a fork."""
        self._finalizer.detach()
        self.published = NOTHING
        self.is_failing = False
        self.has_begun = False
        self._held_up = 0
        self._due_at = -inf
        self._name_worker()
        self.requests.start_over()

    def close(self) -> None:
        """What was counted stays, and the cache is no longer one of a worker."""
        is_used = self.is_used()
        self.is_closed = True
        if self._finalizer.detach() is not None and is_used:
            self.publisher.forget(self.worker)
            with suppress(FileUnusable, OSError):
                self.publisher.publish(LAST_PATIENCE, closed=self)


_publishers: Final[dict[Path, SitePublisher]] = {}


def publisher_of(directory: Path) -> SitePublisher:
    """The publisher of this process for ``directory``.

    Raises:
        FileUnusable: figures cannot be shared there.
    """
    # This checks the directory, and makes it.
    file = SiteFile(directory)
    found = _publishers.get(directory)
    return _publishers.setdefault(directory, SitePublisher(file)) if found is None else found


def _publish_all() -> None:
    for publisher in list(_publishers.values()):
        publisher.end()


lifecycle.PUBLISH.add(_publish_all)
