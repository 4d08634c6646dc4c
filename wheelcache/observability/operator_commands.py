"""Clear caches, purge pages or reset the figures in all workers, from a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from wheelcache.observability.console import CommandFailed, nothing_found, user_name
from wheelcache.observability.event_log import CLEARED, RESET
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.inquiries import ask
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.observability.worker_requests import CLEAR, PURGE, check_purgeable


def clear(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Ask all workers to empty the cache ``name``, or every cache if it is None.

    Raises:
        CommandFailed: if no worker has the cache.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    site = Site(caches, Own.NONE)
    wanted = [each for each in _wanted(site, name) if each.workers]
    if not wanted:
        raise CommandFailed("There is no worker to ask.")
    # Note one event for all caches, since the page shows only thirty.
    site.note(CLEARED, user_name(), name)
    for each in wanted:
        site.ask(CLEAR, each.name)
        many = f"{each.workers} workers" if each.workers > 1 else f"worker {each.pids[0]}"
        entries, within = f"{each.stats.size:,} entries", f"within {2 * INTERVAL:g} seconds"
        out.write(f"{each.name!r}: asked {many} to remove {entries}, {within}.\n")


def purge(caches: Iterable[ObservedCache], name: str | None, target: str, out: TextIO) -> None:
    """Remove the pages of a target from the HTTP cache ``name`` in all workers, or from all HTTP caches if it is None.

    Raises:
        NotPurgeable: see ``check_purgeable``.
        CommandFailed: if no worker has the HTTP cache, or a worker does not answer in time.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    # Refuse an invalid target before any worker is asked.
    check_purgeable(target)
    site = Site(caches, Own.NONE)
    wanted = [each for each in _wanted(site, name) if each.workers and each.counted.pages is not None]
    if not wanted:
        raise CommandFailed("There is no worker with an HTTP cache to ask.")
    for each in wanted:
        site.note(PURGE, f"{user_name()}: {target}", each.name)
        answers = ask(site, site.workers_to_ask(each.name), each.name, {"kind": PURGE, "target": target})
        if answers.failures:
            raise CommandFailed("\n".join(answers.failures))
        removed = sum(answer["purged"] for _, answer in answers.good)
        outcome = f"removed {removed:,} pages in {len(answers.good)} workers" if removed else "nothing was stored"
        out.write(f"{each.name!r}: {outcome} for {target}.\n")


def reset(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Reset the figures of the cache ``name``, or of every cache if it is None.

    The dashboard and the terminal then count from zero. Metrics are not reset.

    Raises:
        CommandFailed: if no worker has the cache.
        OSError, FileUnusable: if the reset cannot be stored.
    """
    site = Site(caches, Own.NONE)
    _wanted(site, name)
    site.reset(name)
    site.note(RESET, user_name(), name)
    out.write(f"The figures{'' if name is None else f' of {name!r}'} start from zero.\n")


def _wanted(site: Site, name: str | None) -> list[CacheFigures]:
    """Return the figures of the cache ``name``, or of every cache if it is None.

    Raises:
        CommandFailed: if there are none.
    """
    found = site.caches
    if not found:
        raise CommandFailed(nothing_found(site.own))
    wanted = [each for each in found if name in (None, each.name)]
    if not wanted:
        raise CommandFailed(
            f"No worker has a cache {name!r}: there are {', '.join(repr(each.name) for each in found)}."
        )
    return wanted
