"""The figures of a site, as its processes have published them. Reading writes nothing and runs nothing.

Whichever process answers, the answer is the same, and sums never go down. So the unpublished figures of this process
count only if no process has published anything about a cache of that name.
"""

from __future__ import annotations

import json
from collections import namedtuple
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from math import floor
from operator import add
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheelcache.core import IMPLEMENTATION
from wheelcache.errors import CacheClosed, FileUnusable
from wheelcache.observability.event_log import Event, add_events, events_in
from wheelcache.observability.figures import CacheFigures, Sum, WorkerFigures, rate_of
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.recorder import MINUTE, Steps, last_steps
from wheelcache.observability.site_file import (
    DAY,
    GAUGES,
    HOUR,
    LEVELS,
    LONG_STEP,
    STEP,
    USE,
    SiteFile,
    encoded,
    lives,
)
from wheelcache.observability.worker_requests import add_request
from wheelcache.runtime.clock import SystemClock, this_process
from wheelcache.stats import COUNTS, STORE_GAUGES, Row, Stats, added, subtracted

if TYPE_CHECKING:
    import sqlite3

SETTLED: Final = INTERVAL + 1.0
"""Seconds after the end of a step by which a worker that began in it has published."""

AT_WORK: Final = 2.5 * INTERVAL
"""Seconds since its last publication after which a process is not waited for: it is idle, or was stopped."""

Step = namedtuple("Step", (*LEVELS, *COUNTS))  # type: ignore[misc]  # the names are those of a table
"""What all workers counted in a step, with the entries and bytes at its end."""


class Glance(NamedTuple):
    """The counts of a step that the overview of all caches needs."""

    hits: int
    stale_hits: int
    misses: int
    puts: int
    evictions: int
    loads: int
    load_failures: int
    load_timeouts: int
    refreshes_dropped: int
    read_errors: int
    read_refused: int
    write_errors: int
    write_refused: int


RECENTLY: Final = 600
"""Seconds of the steps in the overview."""


OWN: Final = ""
"""Stands for this process, whatever it is called in each of several databases."""


class Own(Enum):
    """Which figures of this process are added to the published ones.

    NONE: none, as this process only looks. UNPUBLISHED: those of a cache that does not publish, or cannot. UNSEEN: also
    those of a cache about which nobody has published anything.
    """

    NONE = 1
    UNPUBLISHED = 2
    UNSEEN = 3


class Site:
    """What there is to see of a site from this process, and what operators do to it.

    Args:
        own: the caches of this process, which publish where the others do.
        include: which figures of this process are added to the published ones.

    Attributes:
        own: the same.
        files: the databases where they publish.
        time: the end of the steps, in seconds since 1970.
    """

    def __init__(self, own: Iterable[ObservedCache], include: Own = Own.UNSEEN) -> None:
        self.own = list(own)
        publications = [each.observer.publication for each in self.own]
        self._own_processes = {each.publisher.process for each in publications if each is not None}
        files = {each.publisher.file.path: each.publisher.file for each in publications if each is not None}
        self.files = list(files.values())
        # That of a ManualClock, if there is one.
        self.time = max((each.observer.recorder.time() for each in self.own), default=SystemClock.time())
        self._include = include
        self._caches: list[CacheFigures] | None = None

    # The figures.

    @property
    def caches(self) -> list[CacheFigures]:
        """The figures of all caches, by name, at the first look.

        Raises:
            FileUnusable: another process has held the database for too long.
        """
        # No cached_property: it holds a lock of its class meanwhile, which the child of a fork would never get.
        if self._caches is None:
            self._caches = self.look(str)
        return self._caches

    def look(self, spelled: Callable[[str], str]) -> list[CacheFigures]:
        """The figures of all caches, by ``spelled(name)``: caches for which that is the same are one."""
        found: dict[str, Sum] = {}
        known: set[str] = set()
        for file in self.files:
            for name, one in file.read(partial(self._read, file), dict[str, Sum]).items():
                known.add(name)
                found.setdefault(spelled(name), Sum()).add(one)
        for cache in self.own:
            if self._is_added(cache, known):
                with suppress(CacheClosed):
                    one = alone(cache)
                    found.setdefault(spelled(cache.name), Sum()).add(one)
        return [found[name].figures(name) for name in sorted(found)]

    def _is_added(self, cache: ObservedCache, known: Collection[str]) -> bool:
        """Whether the figures of a cache of this process are added to those that are published."""
        publication = cache.observer.publication
        if self._include is Own.NONE:
            return False
        if publication is None or publication.cannot_publish():
            return True
        return self._include is Own.UNSEEN and cache.name not in known

    @property
    def reset_at(self) -> float | None:
        """When all figures were reset together, in seconds since 1970."""
        times = [at for file in self.files for at in file.read(_reset_at, list[float])]
        return max(times, default=None)

    def workers(self, name: str) -> list[WorkerFigures]:
        """A cache in each living process, oldest first."""
        found = [
            each for file in self.files for each in file.read(partial(_workers_in, file, name), list[WorkerFigures])
        ]
        known = {each.name for each in self.caches if each.workers} if found else ()
        found += [_own_worker(each) for each in self.own if each.name == name and self._is_added(each, known)]
        by_process: dict[tuple[int, float], WorkerFigures] = {}
        for each in sorted(found, key=lambda each: (each.started, each.pid)):
            # A process may have several caches of a name.
            process = each.pid, each.started
            by_process[process] = by_process[process].together_with(each) if process in by_process else each
        return list(by_process.values())

    def steps(self, name: str, *, day: bool = False, since: float = 0.0) -> tuple[int, dict[int, Step]]:
        """How a cache went: the seconds of a step, and the steps that are over by their start, oldest first.

        Args:
            day: whether to go back by a day instead of an hour.
            since: the time of a reset: only steps that began after it are returned.
        """
        seconds, kept = (LONG_STEP, DAY) if day else (STEP, HOUR)
        found: dict[int, Row] = {}

        def add(rows: Mapping[int, Row]) -> None:
            for start, row in rows.items():
                found[start] = added(found[start], row) if start in found else row

        for file in self.files:
            add(file.read(partial(self._steps, file, name, seconds, kept), dict[int, Row]))
        for cache in self.own:
            observer = cache.observer
            if cache.name == name and observer.publication is None and observer.keeps_history:
                with USE.lock:
                    steps: Steps = dict(observer.recorder.steps)
                end = floor(self.time / STEP) * STEP
                add(last_steps(steps, seconds, end - kept, end - seconds + 1))
        return seconds, {start: Step._make(found[start]) for start in sorted(found) if start >= since}

    def recent(self) -> dict[str, dict[int, Glance]]:
        """What each cache counted in the steps of the last ten minutes that are over, by their start, oldest first."""
        found: dict[str, dict[int, Glance]] = {}

        def count(name: str, start: int, row: Iterable[Any]) -> None:
            steps = found.setdefault(name, {})
            steps[start] = Glance._make(map(add, steps[start], row)) if start in steps else Glance._make(row)

        for file in self.files:
            for name, start, *row in file.read(partial(self._recent, file), list[Any]):
                count(bytes(name).decode(errors="surrogatepass"), start, row)
        end = floor(self.time / STEP) * STEP
        for cache in self.own:
            observer = cache.observer
            if observer.publication is None and observer.keeps_history:
                with USE.lock:
                    steps: Steps = dict(observer.recorder.steps)
                for start, step in sorted(last_steps(steps, STEP, end - RECENTLY, end).items()):
                    count(cache.name, start, map(step.__getitem__, _GLANCE))
        return found

    def _recent(self, file: SiteFile, db: sqlite3.Connection) -> list[Any]:
        edge = self._edge(_processes(db, file)[0].values())
        return db.execute(_RECENT, (edge - RECENTLY, edge)).fetchall()

    def _edge(self, published: Iterable[float]) -> int:
        """The end of the last step that is complete: each process at work has published since."""
        at_work = [each for each in published if each > self.time - AT_WORK]
        return floor(min([self.time - SETTLED, *at_work]) / STEP) * STEP

    def _steps(self, file: SiteFile, name: str, seconds: int, kept: int, db: sqlite3.Connection) -> dict[int, Row]:
        edge = self._edge(_processes(db, file)[0].values())
        rows = db.execute(
            f"SELECT start, {_STEP} FROM steps WHERE seconds = ? AND cache = (SELECT id FROM caches WHERE name = ?)"
            " AND start >= ? AND start <= ?",
            (seconds, encoded(name), edge - kept, edge - seconds),
        )
        return {start: tuple(row) for start, *row in rows}

    def _read(self, file: SiteFile, db: sqlite3.Connection) -> dict[str, Sum]:
        living, dead = _processes(db, file)
        edge = self._edge(living.values())
        names = {number: bytes(name).decode(errors="surrogatepass") for number, name in db.execute(_NAMES)}
        found = {number: Sum(weighs_bytes=True) for number in names}
        for number, settings, published in db.execute("SELECT id, settings, published FROM caches"):
            found[number].settings, found[number].published = json.loads(settings), published
        for number, since, *row in db.execute(f"SELECT cache, since, {_COUNTS} FROM totals"):
            if number in found:
                found[number].counts, found[number].since = tuple(row), since
        for number, at, *row in db.execute(f"SELECT cache, at, {_COUNTS} FROM resets WHERE cache != 0"):
            if number in found:
                found[number].base, found[number].reset_at = tuple(row), at
        query = _WORKERS.format(", ".join("?" * len(dead)))
        for number, processes, core, pids, lag, refused, weighs, has_store, *rest in db.execute(query, dead):
            one = found[number]
            one.refused = refused
            one.pids = frozenset(map(int, pids.split(",")))
            one.processes = frozenset(OWN if each in self._own_processes else each for each in processes.split(","))
            one.cores, one.lag = frozenset(core.split(",")), lag
            one.weighs_bytes, one.has_store = bool(weighs), bool(has_store)
            one.memory, one.max_entries, one.max_weight, *gauges = rest
            one.gauges = tuple(gauges)
        for number, first, *sums in db.execute(_MINUTE, (edge - MINUTE * STEP, edge)):
            one = found[number]
            one.minute = tuple(each or 0 for each in sums)
            one.seconds = 0 if first is None else max(0, min(MINUTE * STEP, edge - first))
        return {names[number]: one for number, one in found.items()}

    # Events, requests, resets.

    def is_shared(self, name: str) -> bool:
        """Whether the workers of the site notify each other about the cache ``name``."""
        own = [each.observer.publication for each in self.own if each.name == name]
        return None not in own and bool(self.files)

    def saved_at(self, name: str) -> float | None:
        """When a process last saved the cache ``name``, in seconds since 1970; None if none has."""
        keepers = {each.keeper.directory: each.keeper for each in self.own if each.name == name and each.keeper}
        times = []
        for keeper in keepers.values():
            for path in keeper.snapshots()[:1]:
                # Replaced at this moment.
                with suppress(OSError):
                    times.append(path.lstat().st_mtime)
        return max(times, default=None)

    def events(self, most: int) -> list[Event]:
        """The recent events, newest first."""
        found = [event for file in self.files for event in file.read(partial(events_in, most=most), list[Event])]
        for each in self.own:
            if each.observer.publication is None:
                found += each.observer.recent_events()
        return sorted(found, key=lambda event: event.at, reverse=True)[:most]

    def note(self, kind: str, by: str, name: str | None = None) -> None:
        """An operator did something to the cache ``name``, or to all: note it as an event, if that is possible."""
        event = Event.of(kind, SystemClock.time(), cache=name, subject=by)
        for file in self.files:
            with suppress(OSError, FileUnusable):
                file.write(lambda db: add_events(db, [event]))
        if not self.files:
            for each in self.own:
                if each.name == name:
                    each.observer.memory_log.add([event])

    def ask(self, action: str, name: str) -> Mapping[SiteFile, str]:
        """Ask all workers that live now for ``action`` on the cache ``name``.

        Returns:
            The token of the request in each database.

        Raises:
            OSError, FileUnusable: the workers cannot be asked.
        """
        own = [each for each in self.own if each.name == name]
        files = Site(own).files if own else self.files
        return {file: file.write(lambda db: add_request(db, encoded(name), action)) for file in files}

    def reset(self, name: str | None = None) -> None:
        """Have the figures start from zero, for all readers.

        Args:
            name: of the cache; None for all.

        Raises:
            OSError, FileUnusable: it cannot be noted.
        """
        # What a killed worker has counted is what it published, so that is what the reset starts from.
        which = "" if name is None else "WHERE cache = (SELECT id FROM caches WHERE name = :name)"
        given = {"at": SystemClock.time(), **({} if name is None else {"name": encoded(name)})}

        def reset(db: sqlite3.Connection) -> None:
            db.execute(f"INSERT OR REPLACE INTO resets SELECT cache, :at, {_COUNTS} FROM totals {which}", given)
            db.execute(f"UPDATE workers SET base = counts {which}", given)
            if name is None:
                db.execute("INSERT OR REPLACE INTO resets (cache, at) VALUES (0, :at)", given)

        for file in self.files:
            file.write(reset)


_COUNTS: Final = ", ".join(COUNTS)
_STEP: Final = ", ".join(Step._fields)
_GLANCE: Final = tuple(map(Step._fields.index, Glance._fields))
_RECENT: Final = f"""
    SELECT name, start, {", ".join(Glance._fields)} FROM caches
    CROSS JOIN steps ON seconds = {STEP} AND cache = id AND start >= ? AND start < ? ORDER BY start"""
_NAMES: Final = "SELECT id, name FROM caches"
_OR_NULL: Final = [
    f"CASE WHEN count({name}) = count(*) THEN sum({name}) END" for name in ("memory", "max_entries", "max_weight")
]
_WORKERS: Final = f"""
    SELECT cache, group_concat(DISTINCT process), group_concat(DISTINCT core), group_concat(DISTINCT pid), max(lag),
        sum(thread = 'refused'), min(weighs_bytes), max(has_store),
        {", ".join((*_OR_NULL, *(f"sum({name})" for name in GAUGES)))}
    FROM workers JOIN processes USING (process) WHERE process NOT IN ({{}}) GROUP BY cache"""
_MINUTE: Final = """
    SELECT id, (SELECT min(start) FROM steps WHERE seconds = 10 AND cache = id),
        sum(hits), sum(stale_hits), sum(misses)
    FROM caches LEFT JOIN steps ON seconds = 10 AND cache = id AND start >= ? AND start < ? GROUP BY id"""


def _processes(db: sqlite3.Connection, file: SiteFile) -> tuple[dict[str, float], list[str]]:
    """When each process that lives has published, and the processes that are gone."""
    living, dead = {}, []
    for process, published in db.execute("SELECT process, published FROM processes"):
        if lives(file.alive(process)):
            living[process] = published
        else:
            dead.append(process)
    return living, dead


_FIELDS: Final = ("worker", "pid", "started", "published", "thread", "lag", "core", "max_entries", "max_weight")


def _reset_at(db: sqlite3.Connection) -> list[float]:
    return [at for (at,) in db.execute("SELECT at FROM resets WHERE cache = 0")]


def _workers_in(file: SiteFile, name: str, db: sqlite3.Connection) -> list[WorkerFigures]:
    living, _ = _processes(db, file)
    rows = db.execute(
        "SELECT process, weighs_bytes, memory, counts, base, minute, has_store, size, weight,"
        " worker, pid, started, workers.published, thread, lag, core, max_entries, max_weight,"
        f" {', '.join(STORE_GAUGES)}"
        " FROM workers JOIN processes USING (process) WHERE cache = (SELECT id FROM caches WHERE name = ?)",
        (encoded(name),),
    )
    found = []
    for process, weighs, memory, counts, base, minute, has_store, size, weight, *rest in rows:
        if process in living:
            row = json.loads(counts)
            if base:
                row = subtracted(row, json.loads(base))
            fields, of_store = rest[: -len(STORE_GAUGES)], rest[-len(STORE_GAUGES) :]
            gauges = dict(zip(STORE_GAUGES, of_store, strict=True)) if has_store else {}
            stats = Stats.of(row, has_store=bool(has_store), size=size, weight=weight, **gauges)
            given: dict[str, Any] = dict(zip(_FIELDS, fields, strict=True))
            rate = rate_of(*json.loads(minute))
            found.append(WorkerFigures(**given, weighs_bytes=bool(weighs), memory=memory, stats=stats, minute=rate))
    return found


def alone(cache: ObservedCache) -> Sum:
    """The figures of a cache in this process only.

    Raises:
        CacheClosed: the cache was closed.
    """
    worker = _own_worker(cache)
    stats, store = worker.stats, worker.stats.store
    gauges = () if store is None else tuple(getattr(store, name) for name in STORE_GAUGES)
    rate = worker.minute
    return Sum(
        counts=stats.counts(),
        since=worker.started,
        processes=frozenset((OWN,)),
        gauges=(stats.size, stats.weight, *(gauges or (0,) * len(STORE_GAUGES))),
        memory=worker.memory,
        lag=worker.lag,
        refused=int(worker.thread == "refused"),
        max_entries=worker.max_entries,
        max_weight=worker.max_weight,
        weighs_bytes=worker.weighs_bytes,
        has_store=store is not None,
        cores=frozenset((worker.core,)),
        pids=frozenset((worker.pid,)),
        minute=(rate.hits, rate.stale_hits, rate.misses),
        seconds=rate.seconds,
    )


def own_figures(caches: Iterable[ObservedCache], spelled: Callable[[str], str] = str) -> list[CacheFigures]:
    """The figures of ``caches`` in this process only, by ``spelled(name)``."""
    found: dict[str, Sum] = {}
    for each in caches:
        # Closed since they were listed.
        with suppress(CacheClosed):
            one = alone(each)
            found.setdefault(spelled(each.name), Sum()).add(one)
    return [found[name].figures(name) for name in sorted(found)]


def _own_worker(cache: ObservedCache) -> WorkerFigures:
    if cache.is_closed:
        raise CacheClosed(f"the cache {cache.name!r} was closed")
    observer = cache.observer
    pid, started = this_process()
    with USE.lock:
        gauges, minute = observer.gauges(), observer.recorder.minute()
    worker = f"{pid}-{id(cache)}" if observer.publication is None else observer.publication.worker
    time = observer.recorder.time()
    return WorkerFigures(
        *(worker, pid, started, time, observer.thread(), gauges.lag, IMPLEMENTATION),
        *(
            gauges.max_entries,
            gauges.max_weight,
            gauges.weighs_bytes,
            gauges.memory,
            observer.stats(),
            rate_of(*minute),
        ),
    )
