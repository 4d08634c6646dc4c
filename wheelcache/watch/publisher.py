"""Publish the figures of the caches of this process, every few seconds, in one transaction for all caches."""

from __future__ import annotations

import logging
import secrets
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheelcache.core import IMPLEMENTATION
from wheelcache.errors import CacheClosed, FileUnusable
from wheelcache.pages.busiest import Occurrences
from wheelcache.runtime import lifecycle
from wheelcache.runtime.clock import Clock, SystemClock
from wheelcache.runtime.periodic_jobs import PeriodicJob
from wheelcache.runtime.private_files import FileLocked
from wheelcache.runtime.shared_objects import WeakRegistry
from wheelcache.watch.cache_events import CacheEvents
from wheelcache.watch.event_log import EXITED, STARTED, Event, add_events
from wheelcache.watch.figures_directory import remove_forgotten
from wheelcache.watch.group_tables import add_groups, add_totals
from wheelcache.watch.held_file import HeldFile, this_process
from wheelcache.watch.inquiries import Inquiries, inquiries_in
from wheelcache.watch.key_groups import changes, sum_of_steps
from wheelcache.watch.key_samples import KeySamples
from wheelcache.watch.page_paths import add_paths
from wheelcache.watch.recorder import Recorder, Steps
from wheelcache.watch.rehearsals import Rehearsed, add_rehearsed, modes_in
from wheelcache.watch.releases import this_release
from wheelcache.watch.rows import NOTHING, Row, subtracted
from wheelcache.watch.site_file import PATIENCE, USE, SiteFile
from wheelcache.watch.tables import (
    NO_LEVELS,
    NUMBERS,
    OF_WORKER,
    PUBLISHED,
    SETTINGS_OF_WORKER,
    TOTAL,
    WORKER,
    add_rows,
    cache_ids,
    put,
    storable,
)
from wheelcache.watch.tidying import tidy

if TYPE_CHECKING:
    import sqlite3

    from wheelcache.pages.figures import Figures as PageFigures

logger = logging.getLogger("wheelcache")

INTERVAL: Final = 3.0
"""Seconds between two publications."""

FIRST: Final = 0.5
"""Seconds from the first use of a cache until it is published, so that a reload of a site leaves a short gap."""

MIN_INTERVAL: Final = 0.75 * INTERVAL
"""Least seconds between two publications of a process. Each cache has a job, and the first one that is due publishes
all caches."""

TIDY_EVERY: Final = 60.0
"""Seconds between two searches for killed processes and outdated rows."""

LATE: Final = 3
"""Successive publications that other processes may block before this counts as a failure. No counts are lost."""

LAST_PATIENCE: Final = 5.0
"""Seconds that an exiting process waits for others that exit at the same time. It cannot retry later."""


class _Counted(NamedTuple):
    """The part of a publication that belongs to one cache: its counts, steps and gauges at that time, the new
    occurrences of paths, and the results of a rehearsal."""

    row: Row
    steps: Steps
    gauges: tuple[Any, ...]
    paths: list[Occurrences]
    rehearsed: Rehearsed


_NOTHING: Final = _Counted(NOTHING, {}, (), [], {})


class _Batch(NamedTuple):
    """A publication.

    Attributes:
        gone: the numbers of the caches to remove.
        events: the events to add.
        is_listed: whether the process is in the database afterwards.
    """

    publications: list[tuple[Publication, _Counted]]
    gone: list[int]
    events: list[Event]
    is_listed: bool


class SitePublisher:
    """Publishes the caches of this process that share a directory. A member of ``lifecycle.HELD``.

    Attributes:
        file: the database.
        process: distinguishes this process from all others, even from later ones with the same ``pid``.
        is_known: whether the process is in the database.
        numbers: the source of the numbers of caches.
    """

    def __init__(self, file: SiteFile) -> None:
        self.file = file
        self.numbers = count()
        self._publications: WeakRegistry[Publication] = WeakRegistry()
        self.start_over()
        lifecycle.HELD.add_weakly(self)

    def start_over(self) -> None:
        """Set the initial state, also in the child of a fork."""
        self.process = secrets.randbits(48)
        self.is_known = False
        self._database = 0
        self._has_started = False
        self._is_over = False
        self._alive = HeldFile()
        self._gone: deque[int] = deque()
        self._events: list[Event] = []
        self._tidied_at = -inf

    def before_fork(self) -> None:
        """Do nothing: ``USE`` is held, and it protects everything that a publication changes."""

    def after_fork(self, *, in_child: bool) -> None:
        if in_child:
            self.start_over()

    def add(self, publication: Publication) -> None:
        self._publications.add(publication)

    def all(self) -> list[Publication]:
        """Return the publications of the open caches."""
        return [each for each in self._publications if not each.is_closed]

    def forget(self, number: int) -> None:
        """Remove the cache ``number`` with the next publication. The garbage collector may call this at any point."""
        self._gone.append(number)
        if self.is_known and not self.all() and USE.is_free():
            with suppress(FileUnusable, OSError):
                self.publish(0.0)

    def publish(self, patience: float = PATIENCE, closed: Publication | None = None) -> None:
        """Publish all caches of this process.

        Args:
            closed: a closed cache, which is published for the last time.

        Raises:
            FileUnusable, OSError: if nothing was published. The next publication includes this one.
            FileLocked: if other processes were writing. A later attempt may succeed.
        """
        if not _is_silent:
            self.file.write(partial(self._publish, closed=closed), patience, self._committed)

    def end(self) -> None:
        """Publish before the process exits. Later counts are still published, but the process is no longer listed."""
        self._is_over = True
        if self._has_started:
            with USE.lock:
                self._events.append(Event.of(EXITED, SystemClock.time(), this_process()))
        elif not any(each.is_used() for each in self.all()):
            return
        with suppress(FileUnusable, OSError):
            self.publish(LAST_PATIENCE)

    def _publish(self, db: sqlite3.Connection, closed: Publication | None) -> _Batch:
        (database,) = db.execute("PRAGMA application_id").fetchone()
        found = db.execute("SELECT id FROM processes WHERE id = ?", (self.process,)).fetchone()
        publications = self.all()
        if database != self._database:
            # This is a new database, so it receives all counts.
            for each in publications if closed is None else [*publications, closed]:
                each.publish_again()
            self._database = database
        is_listed = not self._is_over and any(each.is_used() for each in publications)
        if is_listed:
            self._show_alive()
        batch = self._collect(publications if closed is None else [*publications, closed], is_listed=is_listed)
        self._write(db, batch, is_known=found is not None)
        if self._is_tidying():
            is_first, self._tidied_at = self._tidied_at == -inf, SystemClock.steady()
            tidy(db, self.file, self.process)
            if is_first:
                remove_forgotten(self.file.directory)
        inquiries, modes = inquiries_in(db), modes_in(db)
        for each in publications:
            each.inquiries.note(inquiries)
            each.adopt_mode(modes)
        return batch

    def _is_tidying(self) -> bool:
        return SystemClock.steady() >= self._tidied_at + TIDY_EVERY

    def _collect(self, publications: Iterable[Publication], *, is_listed: bool) -> _Batch:
        parts = []
        for each in publications:
            with suppress(CacheClosed):
                if each.is_used():
                    recorder = each.recorder
                    recorder.mark()
                    gauges = tuple(map(storable, recorder.now))
                    pages = each.pages
                    paths = [] if pages is None else pages.unpublished_paths()
                    rehearsed: Rehearsed = {} if pages is None else pages.rehearsed()
                    steps = dict(recorder.steps)
                    now = _Counted(recorder.row, steps, gauges, paths, rehearsed)
                    parts.append((each, now))
            self._events += each.events.take()
        return _Batch(parts, list(self._gone), list(self._events), is_listed and bool(parts))

    def _committed(self, batch: _Batch) -> None:
        """Record that ``batch`` is in the database, before another thread publishes and would add its counts again."""
        for publication, counted in batch.publications:
            publication.published = counted
            publication.recorder.published(counted.steps)
            if publication.pages is not None:
                publication.pages.published_paths(counted.paths)
        for number in batch.gone:
            with suppress(ValueError):
                self._gone.remove(number)
        self._events = [each for each in self._events if not any(each is other for other in batch.events)]
        self.is_known = batch.is_listed
        self._has_started |= batch.is_listed
        if not batch.is_listed:
            self._remove_alive_file()

    def _write(self, db: sqlite3.Connection, batch: _Batch, *, is_known: bool) -> None:
        pid, started = this_process()
        time = max((publication.recorder.time() for publication, _ in batch.publications), default=0.0)
        settings = {each.recorder.name: counted.gauges[SETTINGS_OF_WORKER] for each, counted in batch.publications}
        ids = cache_ids(db, settings, started, time)
        counts: list[tuple[float, ...]] = []
        workers = []
        for publication, counted in batch.publications:
            cache, before = ids[publication.recorder.name], publication.published
            add_paths(db, cache, counted.paths, time)
            recorder = publication.recorder
            if before.row == NOTHING:
                # The steps that a lost database had are in the totals only.
                add_totals(db, cache, changes(recorder.groups, sum_of_steps(recorder.group_steps)))
            add_groups(db, cache, recorder.group_steps, makes_places=self._is_tidying())
            add_rehearsed(db, cache, counted.rehearsed, before.rehearsed, time)
            if counted.row != before.row:
                counts.append((TOTAL, 0, cache, *NO_LEVELS, *subtracted(counted.row, before.row)))
            for place, row in counted.steps.items():
                known = before.steps.get(place)
                if row is not known:
                    counts.append((*place, cache, *(row if known is None else subtracted(row, known))))
            if batch.is_listed and not publication.is_closed:
                if not is_known:
                    # The process is new, or another process assumed it to be dead and removed it.
                    before = _NOTHING
                if counted.row != before.row:
                    counts.append((WORKER, self.process, cache, *NO_LEVELS, *subtracted(counted.row, before.row)))
                if publication.samples is not None:
                    publication.samples.publish(db, self.process, publication.number, cache)
                if counted.gauges != before.gauges:
                    workers.append((self.process, publication.number, cache, *counted.gauges))
        add_rows(db, "counts", ("kind", "place", "cache"), NUMBERS, counts)
        put(db, "workers", workers)
        events = list(batch.events)
        if batch.is_listed:
            thread = batch.publications[0][0].thread()
            put(db, "processes", [(self.process, pid, started, time, thread, IMPLEMENTATION, this_release())])
            if batch.gone:
                rows = [(self.process, number) for number in batch.gone]
                for table in ("workers", "key_samples"):
                    db.executemany(f"DELETE FROM {table} WHERE process = ? AND number = ?", rows)
            if not self._has_started:
                events.append(Event.of(STARTED, started, this_process(), subject=this_release()))
            gone = [(time, ids[each.recorder.name]) for each, _ in batch.publications if each.is_closed]
        else:
            gone = [(time, number) for number in ids.values()]
            for where in ("processes WHERE id", "workers WHERE process", "key_samples WHERE process", OF_WORKER):
                db.execute(f"DELETE FROM {where} = ?", (self.process,))
        if gone:
            # Without this, the stored time would be up to a minute old: see ``tidy``.
            db.executemany(f"{PUBLISHED} (?)", gone)
        add_events(db, events)

    def _show_alive(self) -> None:
        """Make and lock the file that shows that this process lives, unless it is already there."""
        path = self.file.alive(self.process)
        with USE.lock:
            if not self._alive.is_at(path):
                self._remove_alive_file()
                new = path.with_suffix(".new")
                self._alive.hold(new)
                # Renamed after locking, so that no process finds the file unlocked.
                new.rename(path)

    def _remove_alive_file(self) -> None:
        with USE.lock:
            with suppress(OSError):
                self.file.alive(self.process).unlink()
            self._alive.release()


@dataclass(eq=False, repr=False)
class Publication(PeriodicJob):
    """Publishes the figures of one cache, together with those of the other caches of the process in its directory.

    A job of ``periodic_jobs``.

    Args:
        publisher: the publisher of the process for the directory.
        recorder: records the counts of the cache.
        inquiries: the inquiries and requests of operators to the cache.
        events: the events of the cache.
        pages: returns the figures of the pages of an HTTP cache; None for any other cache.
        samples: the samples of its keys; None for a cache whose misses have other remedies.
        thread: returns the state of the wheel thread.
        is_in_use: returns whether the cache was used and not closed since.

    Attributes:
        number: distinguishes this cache from the others of the process.
        published: the figures of the cache in the database.
    """

    publisher: SitePublisher
    recorder: Recorder
    inquiries: Inquiries
    events: CacheEvents
    _pages: Callable[[], PageFigures | None]
    samples: KeySamples | None
    thread: Callable[[], str]
    _is_in_use: Callable[[], bool]
    _clock: Clock

    period = INTERVAL

    def __post_init__(self) -> None:
        publisher = self.publisher
        self.number = next(publisher.numbers)
        self.is_closed = False
        self.start_over()
        # A cache that is dropped without being closed leaves no row behind.
        self._finalizer = weakref.finalize(self, publisher.forget, self.number)
        self._finalizer.atexit = False
        publisher.add(self)

    @property
    def pages(self) -> PageFigures | None:
        """The figures of the pages of an HTTP cache; None for any other cache."""
        return self._pages()

    def start_over(self) -> None:
        """Set the initial state, also in the child of a fork."""
        self.published = _NOTHING
        self.is_failing = False
        self.has_begun = False
        self._held_up = 0
        self._due_at = -inf
        self.inquiries.start_over()

    def publish_again(self) -> None:
        """Publish all figures with the next publication, as if none had been published, but for those of steps."""
        self.published = _NOTHING._replace(steps=self.published.steps)
        if self.pages is not None:
            self.pages.publish_paths_again()

    def is_used(self) -> bool:
        """Return whether there is anything to publish."""
        return self.has_begun or (self._is_in_use() and self.recorder.uses() > 0)

    def cannot_publish(self) -> bool:
        """Return whether other processes see no figures of this process because its last attempt failed."""
        return self.is_failing and not self.publisher.is_known

    def begin(self) -> None:
        self.has_begun = True
        self.inquiries.begin()
        if self.pages is not None and not _is_silent:
            # Before the first page is served: an operator may have switched the cache off.
            with suppress(FileUnusable, OSError):
                self.adopt_mode(self.publisher.file.read(modes_in, dict))

    def adopt_mode(self, modes: Mapping[str, str]) -> None:
        """Adopt the mode that an operator has chosen for the pages of this cache."""
        if self.pages is not None and self.recorder.name in modes:
            self.pages.change_mode(modes[self.recorder.name])

    def next_run(self, due: float, now: float) -> float:
        return due + (INTERVAL if self.publisher.is_known else FIRST)

    def run(self) -> None:
        if not self.is_closed and self._clock() >= self._due_at:
            for each in self.publisher.all():
                each.was_published()
            self._publish()
        self.inquiries.run(self.publisher.file, self.publisher.process)

    def run_now(self) -> None:
        """Publish immediately instead of within a few seconds, if there is anything to publish."""
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
        """Postpone the next publication, because another cache of the process is publishing all of them."""
        self._due_at = self._clock() + MIN_INTERVAL

    def close(self) -> None:
        """Publish for the last time. The counts stay in the database; the cache is removed from the worker."""
        is_used = self.is_used()
        self.is_closed = True
        if self._finalizer.detach() is not None and is_used:
            self.publisher.forget(self.number)
            with suppress(FileUnusable, OSError):
                self.publisher.publish(LAST_PATIENCE, closed=self)


_publishers: Final[dict[Path, SitePublisher]] = {}


def publisher_of(directory: Path) -> SitePublisher:
    """Return the publisher of this process for ``directory``.

    Raises:
        FileUnusable: if figures cannot be shared there.
    """
    # The constructor checks the directory, and makes it.
    file = SiteFile(directory)
    found = _publishers.get(directory)
    return _publishers.setdefault(directory, SitePublisher(file)) if found is None else found


_is_silent = False


def publish_nothing() -> None:
    """Keep this process out of the figures until it exits: it runs a command, and is not a worker of the site."""
    global _is_silent
    _is_silent = True


def _publish_all() -> None:
    for publisher in list(_publishers.values()):
        publisher.end()


lifecycle.PUBLISH.add(_publish_all)
