"""Read the figures that the processes of a site have published. Reading writes nothing and runs no request.

Every process of the site gives the same answer, and sums never decrease. Therefore the unpublished figures of this
process count only if no process has published anything about a cache of that name.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections import defaultdict, namedtuple
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from functools import partial
from math import floor, inf
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from wheelcache.cache import Cache
from wheelcache.core import IMPLEMENTATION
from wheelcache.engine.stats import LOAD_BOUNDS
from wheelcache.errors import CacheClosed, FileUnusable
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.event_log import Event, add_events, events_in
from wheelcache.watch.figures import COMBINERS, CacheFigures, Process, Sum, WorkerFigures
from wheelcache.watch.group_tables import LoadStep, loads_since, totals_in
from wheelcache.watch.held_file import this_process
from wheelcache.watch.inquiries import Inspector, add_request
from wheelcache.watch.observers import observer_of
from wheelcache.watch.page_paths import no_paths, of_site, paths_in
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.recorder import Recorder
from wheelcache.watch.rehearsals import Outcome, modes_in, put_mode, rehearsed_in
from wheelcache.watch.releases import TOGETHER, Release, releases_in
from wheelcache.watch.rows import COUNTS, NOTHING, Row, group_of, reading_of
from wheelcache.watch.site_file import USE, SiteFile, lives
from wheelcache.watch.spans import Span, Within
from wheelcache.watch.tables import (
    BOUNDS,
    DAY,
    GAUGES_OF_WORKER,
    HOUR,
    LONG_STEP,
    LOOKUPS,
    NUMBERS,
    OF_NAME,
    SETTINGS,
    STEP,
    TOTAL,
    WORKER,
    encoded,
)

if TYPE_CHECKING:
    import sqlite3

SETTLED: Final = INTERVAL + 1.0
"""Seconds after the end of a step until every worker that started during the step has published."""

AT_WORK: Final = 2.5 * INTERVAL
"""Seconds without a publication after which a process is assumed to be idle or stopped."""

_SUMMED: Final[dict[str, tuple[str, ...]]] = {
    **{name: (name,) for name in (*LOOKUPS, "evictions", "load_failures")},
    "store_errors": ("read_errors", "write_errors"),
    **{name: (name,) for name in ("loads", "load_timeouts", "refreshes_dropped", "pages_variants_removed")},
    "misses_lost": ("misses_evicted", "misses_unknown"),
    "store_refused": ("read_refused", "write_refused"),
    "store_calls": tuple(f"{kind}_{place}" for kind in ("read", "write") for place in range(len(LOAD_BOUNDS) + 1)),
}
"""The counts of an ``OverviewStep``, and the columns of which each is the sum."""

OVERVIEW: Final = (*LOOKUPS, "evictions", "load_failures", "store_errors")
"""The counts that the overview of all caches shows. The others are those of problems."""

WITHOUT_STORE: Final = tuple(_SUMMED)[: -len(("store_refused", "store_calls"))]
"""The counts of caches without a store. Adding up the buckets of the calls takes most of the time."""

OverviewStep = namedtuple("OverviewStep", _SUMMED, defaults=(0,) * (len(_SUMMED) - len(OVERVIEW)))  # type: ignore[misc]
"""The counts of all workers in a step, for the overview and for problems."""

LoadRow = tuple[str, str, int, LoadStep]
"""The names of a cache and of a group, the start of a step, and the loads in it."""

RECENTLY: Final = 600
"""Seconds for which problems look back."""

MOST_STEPS: Final = 400
"""The number of steps in a chart."""

OWN: Final = 0
"""Stands for this process, which may have a different number in each of several databases."""


class Own(Enum):
    """Select the figures of this process that are added to the published ones.

    NONE: none, because this process only reads. UNPUBLISHED: the figures of caches that do not or cannot publish.
    UNSEEN: as UNPUBLISHED, and the figures of caches about which no process has published anything.
    """

    NONE = 1
    UNPUBLISHED = 2
    UNSEEN = 3


class Site:
    """The figures of a site, and the actions of its operators, from the point of view of this process.

    Args:
        own: the caches of this process. They publish to the same databases as the other processes.
        include: the figures of this process that are added to the published ones.

    Attributes:
        own: the caches of this process.
        files: the databases of the site.
        time: the end of the steps, in seconds since 1970.
    """

    def __init__(self, own: Iterable[Cache], include: Own = Own.UNSEEN) -> None:
        self.own = list(own)
        publications = [observer_of(each).publication for each in self.own]
        self._own_processes = {each.publisher.process for each in publications if each is not None}
        files = {each.publisher.file.path: each.publisher.file for each in publications if each is not None}
        self.files = list(files.values())
        # The time of a ManualClock, if there is one.
        self.time = max((observer_of(each).recorder.time() for each in self.own), default=SystemClock.time())
        self._include = include
        self._caches: list[CacheFigures] | None = None
        self._releases: list[Release] | None = None
        self._edges: dict[Path, int] = {}

    # The figures.

    @property
    def caches(self) -> list[CacheFigures]:
        """The figures of all caches, sorted by name. They are read once.

        Raises:
            FileUnusable: if another process holds the database for too long.
        """
        # Not a cached_property: that holds a lock of its class during the call, even in the child of a fork.
        if self._caches is None:
            self._caches = self.figures_by_name(str)
        return self._caches

    def figures_by_name(self, spelled: Callable[[str], str]) -> list[CacheFigures]:
        """Return the figures of all caches, sorted by ``spelled(name)``. Caches with the same result count as one."""
        found: dict[str, Sum] = {}
        known: set[str] = set()
        for file in self.files:
            for name, one in file.read(partial(self._read, file), dict[str, Sum]).items():
                known.add(name)
                found.setdefault(spelled(name), Sum()).add(one)
        for cache in self.own:
            if self._is_added(cache, known):
                _add_own(found, cache, spelled)
        return [found[name].of_cache(name) for name in sorted(found)]

    def _is_added(self, cache: Cache, known: Collection[str]) -> bool:
        """Return whether the figures of a cache of this process are added to the published ones."""
        publication = observer_of(cache).publication
        if self._include is Own.NONE:
            return False
        if publication is None or publication.cannot_publish():
            return True
        return self._include is Own.UNSEEN and cache.name not in known

    @property
    def nothing_found(self) -> str | None:
        """Where figures were looked for, in a sentence, if no worker publishes any; otherwise None."""
        if any(each.workers for each in self.caches):
            return None
        directories = [str(each.directory) for each in self.files]
        if not directories:
            return "The caches of this site do not publish their figures, so there is nowhere to look."
        user = f", as user {os.geteuid()}" if sys.platform != "win32" else ""
        return (
            f"No worker of this site publishes figures. Looked in {' and '.join(directories)}{user}. "
            f"A worker publishes every {INTERVAL:g} seconds from its first use of a cache on."
        )

    def workers(self, name: str) -> list[WorkerFigures]:
        """Return the figures of the cache ``name`` in each living process, oldest first."""
        found: dict[tuple[int, float], tuple[Sum, dict[str, Any]]] = {}

        def add(one: Sum, given: dict[str, Any]) -> None:
            # A process may have several caches of a name, which may publish to different databases.
            total, _ = found.setdefault((given["pid"], given["started"]), (Sum(), given))
            total.add(one)

        for file in self.files:
            for one, given in file.read(partial(_workers_in, file, name), list[tuple[Sum, dict[str, Any]]]):
                add(one, given)
        known = {each.name for each in self.caches if each.workers} if found else ()
        for cache in self.own:
            if cache.name == name and self._is_added(cache, known):
                one = _own_process(cache)
                add(one, {"worker": OWN, **one.processes[OWN]._asdict()})
        places = sorted(found, key=lambda process: (process[1], process[0]))
        return [total.of_worker(**given) for total, given in map(found.__getitem__, places)]

    @property
    def edge(self) -> int:
        """The end of the last complete step of all databases, in seconds since 1970."""
        edges = [
            self._edges[file.path] if file.path in self._edges else file.read(partial(self._edge_in, file), lambda: inf)
            for file in self.files
        ]
        return floor(min([floor(self.time / STEP) * STEP, *edges]))

    def span(self, since: float, until: float = inf) -> Span:
        """Return the complete steps from ``since`` to ``until``, of a length with which a chart has room for them.

        Before the last hour, they begin and end with whole minutes. There are none before the last day.
        """
        edge = self.edge
        since, until = (max(_whole(each, edge), edge - DAY) for each in (since, min(until, edge)))
        since = min(since, until)
        span = Span(since, until, _shortest(since, edge)).with_at_most(MOST_STEPS)
        return span._replace(since=since - since % span.step)

    def within(self, figures: CacheFigures, span: Span, until: int | None = None, charted: int = 0) -> Within:
        """Return the figures of a cache in a span. They are read together, so that the sums of the groups are exact.

        Args:
            until: the end of the sums, if they include counts after the last step; by default, that of the span.
            charted: the number of groups whose computing time is wanted by steps.
        """
        name, found = figures.name, Within(figures)
        until = span.until if until is None else until
        for file in self.files:
            file.read(partial(found.read, encoded(name), span, until, charted), lambda: None)
        for recorder in self._own_recorders(name):
            with USE.lock:
                steps, groups = dict(recorder.steps), dict(recorder.group_steps)
            found.add_own(span, until, charted, steps, groups)
        return found

    def recent(self) -> dict[str, dict[int, OverviewStep]]:
        """Return the steps of the last ten minutes for each cache, by their start, oldest first."""
        has_store = any(each.stats.store is not None for each in self.caches)
        return self.overview(self.span(self.edge - RECENTLY), tuple(_SUMMED) if has_store else WITHOUT_STORE)

    def recent_loads(self) -> dict[str, dict[str, dict[int, LoadStep]]]:
        """Return the loads of the last ten minutes by cache and by group, in steps by their start, oldest first."""
        found: dict[str, dict[str, dict[int, LoadStep]]] = defaultdict(lambda: defaultdict(dict))
        since = self.edge - RECENTLY
        rows = [row for file in self.files for row in file.read(partial(loads_since, since=since), list[LoadRow])]
        for name in {each.name for each in self.own}:
            for recorder in self._own_recorders(name):
                rows += _own_loads(recorder, since)
        for name, group, start, loads in rows:
            steps = found[name][group]
            steps[start] = LoadStep(*map(add, steps[start], loads)) if start in steps else loads
        return found

    def overview(self, span: Span, counts: Sequence[str] = OVERVIEW) -> dict[str, dict[int, OverviewStep]]:
        """Return the steps of each cache, by their start, oldest first.

        Args:
            counts: the first counts of an ``OverviewStep`` that are wanted.
        """
        found: dict[str, dict[int, OverviewStep]] = {}

        def add_steps(name: str, new: Mapping[int, OverviewStep]) -> None:
            steps = found.setdefault(name, {})
            for start, step in new.items():
                steps[start] = OverviewStep._make(map(add, steps[start], step)) if start in steps else step

        for file in self.files:
            for name, steps in file.read(partial(_overview, span, counts), dict[str, dict[int, OverviewStep]]).items():
                add_steps(name, steps)
        for cache in self.own:
            for recorder in self._own_recorders(cache.name):
                with USE.lock:
                    rows = sorted((at, row) for (_, at), row in recorder.steps.items() if span.has(at))
                for start, row in rows:
                    add_steps(cache.name, {span.start_of(start): _overview_step(row)})
        return found

    def _own_recorders(self, name: str) -> list[Recorder]:
        """Return the recorders of the caches of this process with this name that do not publish."""
        observers = [observer_of(each) for each in self.own if each.name == name]
        hidden = (each for each in observers if each.publication is None or each.publication.cannot_publish())
        return [each.recorder for each in hidden]

    def _edge_in(self, file: SiteFile, db: sqlite3.Connection) -> float:
        """Return the end of the last complete step. It is determined once, so that all figures of a page end there."""
        if file.path not in self._edges:
            living, _ = _processes(db, file)
            self._edges[file.path] = self._edge(each.published for each in living.values())
        return self._edges[file.path]

    def _edge(self, published: Iterable[float]) -> int:
        """Return the end of the last step after which every process at work has published."""
        at_work = [each for each in published if each > self.time - AT_WORK]
        return floor(min([self.time - SETTLED, *at_work]) / STEP) * STEP

    def _read(self, file: SiteFile, db: sqlite3.Connection) -> dict[str, Sum]:
        living, dead = _processes(db, file)
        self._edges[file.path] = self._edge(each.published for each in living.values())
        found, names = {}, {}
        for number, name, since, published, *settings in db.execute(
            f"SELECT id, name, since, published, {', '.join(SETTINGS)} FROM caches"
        ):
            names[number] = bytes(name).decode(errors="surrogatepass")
            by_name = dict(zip(SETTINGS, settings, strict=True))
            found[number] = Sum(since=since, published=published, settings=by_name)
        # Every other table has rows of these caches only: see ``tidying``.
        for number, killed, *row in db.execute(
            f"SELECT cache, killed, {', '.join(COUNTS)} FROM counts WHERE kind = {TOTAL}"
        ):
            found[number].counts, found[number].killed = tuple(row), killed
        for number, paths in paths_in(db).items():
            found[number].paths = paths
        for number, groups in totals_in(db).items():
            found[number].groups = groups
        for number, processes, *gauges in db.execute(
            f"SELECT cache, group_concat(DISTINCT process), {_TOGETHER} FROM workers"
            f" WHERE process NOT IN ({', '.join('?' * len(dead))}) GROUP BY cache",
            dead,
        ):
            one, of_cache = found[number], set(map(int, processes.split(",")))
            one.gauges = dict(zip(GAUGES_OF_WORKER, gauges, strict=True))
            if one.gauges["is_shared"]:
                # One bound for all workers of the machine.
                one.gauges |= {bound: one.settings[bound] for bound in BOUNDS}
            one.processes = {OWN if each in self._own_processes else each: living[each] for each in of_cache}
            one.published = max(each.published for each in one.processes.values())
        return {names[number]: one for number, one in found.items()}

    # Events and requests.

    def is_shared(self, name: str) -> bool:
        """Return whether the workers of the site share figures and requests of the cache ``name``."""
        own = [observer_of(each).publication for each in self.own if each.name == name]
        return None not in own and bool(self.files)

    @property
    def reachable(self) -> list[str]:
        """The names of the caches that have workers, or whose entries processes share, sorted."""
        shared = {each.name for each in self.own if each.has_shared_entries}
        return sorted(shared | {each.name for each in self.caches if each.workers})

    def shared(self, name: str) -> Cache | None:
        """Return the cache ``name`` of this process, if the processes of the machine share its entries."""
        return next((each for each in self.own if each.name == name and each.has_shared_entries), None)

    def inspector(self, name: str) -> Inspector | None:
        """Return what answers inquiries about the cache ``name`` here, if processes share its entries."""
        shared = self.shared(name)
        return None if shared is None else observer_of(shared).inspector

    def events(self, most: int) -> list[Event]:
        """Return the recent events, newest first."""
        found = [event for file in self.files for event in file.read(partial(events_in, most=most), list[Event])]
        for each in self.own:
            if observer_of(each).publication is None:
                found += observer_of(each).recent_events()
        return sorted(found, key=lambda event: event.at, reverse=True)[:most]

    def releases(self) -> list[Release]:
        """Return the first start of workers with each release, oldest first. They are read once."""
        if self._releases is not None:
            return self._releases
        found: list[Release] = []
        for each in sorted(each for file in self.files for each in file.read(releases_in, list[Release])):
            # Each database of a site has the release.
            if not found or each.name != found[-1].name or each.at > found[-1].at + TOGETHER:
                found.append(each)
        self._releases = found
        return found

    def note(self, kind: str, by: str, name: str | None = None) -> None:
        """Record an operator's action on the cache ``name``, or on all caches, as an event. Ignore failures."""
        event = Event.of(kind, SystemClock.time(), cache=name, subject=by)
        for file in self.files:
            with suppress(OSError, FileUnusable):
                file.write(lambda db: add_events(db, [event]))
        if not self.files:
            for each in self.own:
                if each.name == name:
                    observer_of(each).memory_log.append(event)

    def workers_to_ask(self, name: str) -> dict[int, int]:
        """Return the pids of the workers of a cache by their numbers, without the idle ones, which have no entries and
        do not look for inquiries."""
        idle_since = SystemClock.time() - 3 * INTERVAL
        return {each.worker: each.pid for each in self.workers(name) if each.stats.size or each.published >= idle_since}

    def ask(self, action: str, name: str, **arguments: str) -> str:
        """Ask all workers that live now for ``action`` on the cache ``name``. Return the token of the request.

        Raises:
            OSError, FileUnusable: if the workers cannot be asked.
        """
        own = [each for each in self.own if each.name == name]
        token, request = secrets.token_hex(8), {"kind": action, **arguments}
        for file in Site(own).files if own else self.files:
            file.write(lambda db: add_request(db, token, name, request))
        return token

    def rehearsed(self) -> dict[str, dict[tuple[str, str], Outcome]]:
        """Return the results of rehearsals by the name of the cache, and by view and kind."""
        found: dict[str, dict[tuple[str, str], Outcome]] = {}
        for file in self.files:
            found |= file.read(rehearsed_in, dict)
        return found

    def modes(self) -> dict[str, str]:
        """Return the modes of HTTP caches that operators have chosen, by the name of the cache."""
        found: dict[str, str] = {}
        for file in self.files:
            found |= file.read(modes_in, dict)
        return found

    def change_mode(self, name: str, mode: str) -> None:
        """Let all workers adopt the mode of an HTTP cache, within seconds.

        Raises:
            OSError, FileUnusable: if it cannot be stored.
        """
        for file in self.files:
            file.write(partial(put_mode, name=name, mode=mode))


_SUMS: Final = {name: f"sum({' + '.join(columns)})" for name, columns in _SUMMED.items()}

_PLACES: Final = [tuple(map(NUMBERS.index, columns)) for columns in _SUMMED.values()]

_HOW: Final = {name: f"{how.__name__}({name})" for name, how in COMBINERS.items()}

_TOGETHER: Final = ", ".join(
    _HOW.get(name, f"CASE WHEN count({name}) = count(*) THEN sum({name}) END") for name in GAUGES_OF_WORKER
)
"""Combines the gauges of several workers. A sum is null if one of them is."""


def _processes(db: sqlite3.Connection, file: SiteFile) -> tuple[dict[int, Process], list[int]]:
    """Return the living processes by their number, and the numbers of the others."""
    living, dead = {}, []
    for process, *row in db.execute(f"SELECT id, {', '.join(Process._fields)} FROM processes"):
        if lives(file.alive(process)):
            living[process] = Process(*row)
        else:
            dead.append(process)
    return living, dead


def _shortest(at: float, edge: int) -> int:
    """Return the length of the steps that are kept at a time, in seconds."""
    return STEP if at >= edge - HOUR else LONG_STEP


def _whole(at: float, edge: int) -> int:
    """Return the start of the kept step that a time belongs to."""
    return floor(at / _shortest(at, edge)) * _shortest(at, edge)


def _overview(span: Span, counts: Sequence[str], db: sqlite3.Connection) -> dict[str, dict[int, OverviewStep]]:
    found: dict[int, dict[int, OverviewStep]] = defaultdict(dict)
    for cache, number, *row in db.execute(
        f"SELECT cache, (place - ?) / ?, {', '.join(_SUMS[name] for name in counts)} FROM counts"
        f" WHERE kind IN ({STEP}, {LONG_STEP}) AND place >= ? AND place < ? GROUP BY 1, 2",
        (span.since, span.step, span.since, span.until),
    ):
        found[cache][span.since + number * span.step] = OverviewStep(*row)
    names = db.execute("SELECT id, name FROM caches")
    return {bytes(name).decode(errors="surrogatepass"): found[number] for number, name in names if number in found}


def _own_loads(recorder: Recorder, since: int) -> list[LoadRow]:
    with USE.lock:
        groups = sorted((start, dict(rows)) for start, rows in recorder.group_steps.items() if start >= since)
    found = ((start, name, group_of(row)) for start, rows in groups for name, row in rows.items())
    return [
        (recorder.name, name, start, LoadStep(one.loads - one.load_failures, one.load_failures))
        for start, name, one in found
        if one.loads
    ]


def _overview_step(row: Row) -> OverviewStep:
    return OverviewStep._make(sum(row[place] for place in places) for places in _PLACES)


def _workers_in(file: SiteFile, name: str, db: sqlite3.Connection) -> list[tuple[Sum, dict[str, Any]]]:
    """Return the figures of a cache in each living process, and the facts about the process."""
    living, _ = _processes(db, file)
    query = f"SELECT place, {', '.join(COUNTS)} FROM counts WHERE kind = {WORKER} AND {OF_NAME}"
    counts = {process: tuple(row) for process, *row in db.execute(query, (encoded(name),))}
    found = []
    for process, *gauges in db.execute(
        f"SELECT process, {_TOGETHER} FROM workers WHERE {OF_NAME} GROUP BY process", (encoded(name),)
    ):
        if process in living:
            one = Sum(gauges=dict(zip(GAUGES_OF_WORKER, gauges, strict=True)))
            one.counts = counts.get(process, NOTHING)
            found.append((one, {"worker": process, **living[process]._asdict()}))
    return found


def own_figures(caches: Iterable[Cache], spelled: Callable[[str], str] = str) -> list[CacheFigures]:
    """Return the figures of ``caches`` in this process only, sorted by ``spelled(name)``."""
    found: dict[str, Sum] = {}
    for each in caches:
        _add_own(found, each, spelled)
    return [found[name].of_cache(name) for name in sorted(found)]


def _add_own(found: dict[str, Sum], cache: Cache, spelled: Callable[[str], str]) -> None:
    # The cache may have been closed since it was listed.
    with suppress(CacheClosed):
        one = _own_process(cache)
        found.setdefault(spelled(cache.name), Sum()).add(one)


def _own_process(cache: Cache) -> Sum:
    """Return the figures of a cache in this process only.

    Raises:
        CacheClosed: if the cache is closed.
    """
    if cache.is_closed:
        raise CacheClosed(f"the cache {cache.name!r} was closed")
    observer = observer_of(cache)
    pid, started = this_process()
    process = Process(pid, started, observer.recorder.time(), observer.thread(), IMPLEMENTATION)
    counts, own_gauges, groups = reading_of(observer.stats())
    with USE.lock:
        values = observer.recorder.row_of_worker(own_gauges, observer.state())
    gauges = dict(zip(GAUGES_OF_WORKER, values, strict=True))
    pages = observer.pages
    return Sum(
        groups=groups,
        paths=no_paths() if pages is None else of_site(pages.paths()),
        counts=counts,
        since=started,
        processes={OWN: process},
        gauges=gauges,
    )
