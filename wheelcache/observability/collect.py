"""What there is to see of the caches of a site: those of this process, and what the others published."""

from __future__ import annotations

from collections.abc import Iterable

from wheelcache.observability.figures_directory import FiguresDirectory
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.worker_stats import CacheStats, by_name
from wheelcache.stats import Stats


def collect(own: Iterable[ObservedCache], *, with_own: bool = True) -> list[CacheStats]:
    """The figures of caches in all processes of the site, by name.

    Args:
        own: the caches of this process, which publish where the others do.
        with_own: whether this process is one of them, whose figures are taken now. If not, it only looks.
    """
    own = list(own)
    workers = [cache.figures() for cache in own] if with_own else []
    here = {each.worker for each in workers}
    exited_workers: dict[str, Stats] = {}
    for published in (each for directory in directories_of(own) for each in directory.read()):
        workers += [each for each in published.workers if each.worker not in here]
        exited_workers[published.name] = exited_workers.get(published.name, Stats()) + published.exited_workers
    return by_name(workers, exited_workers)


def directories_of(caches: Iterable[ObservedCache]) -> list[FiguresDirectory]:
    """Where ``caches`` are published."""
    found = {each.publisher.directory.path: each.publisher.directory for each in caches if each.publisher is not None}
    return list(found.values())


def since_reset(figures: list[CacheStats], own: Iterable[ObservedCache]) -> tuple[float | None, list[CacheStats]]:
    """When the figures were reset, in seconds since 1970, and ``figures`` without what had been counted by then.

    None if they never were, or if all workers started after that: they count since then.
    """
    times: list[float] = []
    counted: dict[str, Stats] = {}
    for directory in directories_of(own):
        at, of_workers = directory.since_reset()
        if at is not None:
            times.append(at)
            counted.update(of_workers)
    is_seen = any(each.worker in counted for cache in figures for each in cache.workers)
    return max(times) if is_seen else None, [each.since(counted) for each in figures]
