"""What there is to see of the caches of a site: what the processes published, and what this one has not yet."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from math import inf

from wheelcache.errors import FileUnusable
from wheelcache.observability.event_log import Event, EventLog, EventsInFile
from wheelcache.observability.figures_directory import FiguresDirectory
from wheelcache.observability.history import HOUR, Ring, last_settled
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.worker_stats import CacheStats, TimeSeries, WorkerStats, by_name
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import Stats


def collect(own: Iterable[ObservedCache], *, with_own: bool = True) -> list[CacheStats]:
    """The figures of caches in all processes of the site, by name, as they were published.

    Whichever process answers, the answer is the same, and what is summed up never goes down. So what this process has
    not published is only told where no process has published anything of a cache of that name.

    Args:
        own: the caches of this process, which publish where the others do.
        with_own: whether this process is one of them. If not, it only looks.
    """
    own = list(own)
    workers: list[WorkerStats] = []
    exited_workers: dict[str, Stats] = {}
    exited_since: dict[str, float] = {}
    for published in (each for directory in directories_of(own) for each in directory.read()):
        workers += published.workers
        exited_workers[published.name] = exited_workers.get(published.name, Stats()) + published.exited_workers
        if published.exited_since is not None:
            exited_since[published.name] = min(published.exited_since, exited_since.get(published.name, inf))
    known = {each.name for each in workers} | exited_workers.keys()
    if with_own:
        workers += [
            cache.figures()
            for cache in own
            if cache.publisher is None or cache.publisher.cannot_publish() or cache.name not in known
        ]
    return by_name(workers, exited_workers, exited_since)


def directories_of(caches: Iterable[ObservedCache]) -> list[FiguresDirectory]:
    """Where ``caches`` are published."""
    found = {each.publisher.directory.path: each.publisher.directory for each in caches if each.publisher is not None}
    return list(found.values())


def is_shared(name: str, own: Iterable[ObservedCache]) -> bool:
    """Whether the workers of the site tell each other of the cache ``name``."""
    own = list(own)
    return all(each.publisher is not None for each in own if each.name == name) and bool(directories_of(own))


def saved_at(name: str, own: Iterable[ObservedCache]) -> float | None:
    """When a process last saved the cache ``name``, in seconds since 1970; None if none did, or none is to."""
    places = {each.keeper.directory: each.keeper for each in own if each.name == name and each.keeper is not None}
    times = []
    for keeper in places.values():
        for path in keeper.snapshots()[:1]:
            # Replaced at this moment.
            with suppress(OSError):
                times.append(path.lstat().st_mtime)
    return max(times, default=None)


def since_reset(figures: list[CacheStats], own: Iterable[ObservedCache]) -> tuple[float | None, list[CacheStats]]:
    """When all figures were reset together, in seconds since 1970, and ``figures`` without what had been counted by
    then, or by a reset of the cache alone.
    """
    latest = None
    for directory in directories_of(own):
        resets = directory.resets()
        figures = resets.apply(figures)
        if resets.at is not None:
            latest = max(resets.at, latest or resets.at)
    return latest, figures


def note_reset(own: Iterable[ObservedCache], name: str | None = None) -> None:
    """Have the figures start from zero, for all readers.

    Args:
        name: of the cache; None for all.

    Raises:
        OSError, FileUnusable: it cannot be noted.
    """
    own = list(own)
    # A worker that is killed has counted what it published, so that is what the reset starts from.
    figures = [each for each in collect(own, with_own=False) if name in (None, each.name)]
    for directory in directories_of(own):
        directory.reset(figures, together=name is None)


def recent_events(own: Iterable[ObservedCache], most: int) -> list[Event]:
    """What happened on the site, newest first."""
    own = list(own)
    found = [event for directory in directories_of(own) for event in EventsInFile(directory.path).read(most)]
    for each in own:
        if each.publisher is None:
            found += each.events.read(most)
    return sorted(found, key=lambda event: event.at, reverse=True)[:most]


def note_event(own: Iterable[ObservedCache], kind: str, by: str, name: str | None = None) -> None:
    """An operator did something to the cache ``name``, or to all: it is among the recent events, if it can be noted."""
    own = list(own)
    event = Event.of(kind, SystemClock.time(), cache=name, subject=by)
    logs: list[EventLog] = [EventsInFile(each.path) for each in directories_of(own)]
    for log in logs or [each.events.log for each in own if each.name == name]:
        with suppress(OSError, FileUnusable):
            log.add([event])


def time_series(
    figures: CacheStats, own: Iterable[ObservedCache], ring: Ring = HOUR, since: float | None = None
) -> TimeSeries:
    """How the figures of a cache went, in all workers, also in those that have exited.

    Args:
        since: the time of a reset, in seconds since 1970.
    """
    own = list(own)
    data = [directory.rings(figures.name).read() for directory in directories_of(own)]
    data += [
        each.history.rings.read()
        for each in own
        if each.publisher is None and each.history is not None and each.name == figures.name
    ]
    until = figures.complete_until
    if until is None:
        # No worker is at work.
        until = last_settled(SystemClock.time())
    return TimeSeries.of(data, ring, until=until, since=since or 0.0)
