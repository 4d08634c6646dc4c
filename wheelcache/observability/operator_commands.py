"""What operators do to all workers from a terminal: ``wheelcache clear`` and ``wheelcache reset``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TextIO

from wheelcache.observability.console import nothing_found, user_name
from wheelcache.observability.event_log import CLEARED, RESET
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.observability.snapshot_commands import Undone
from wheelcache.observability.worker_requests import CLEAR

ACTIONS: Final = ("clear", "reset")


def clear(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Have all workers empty the cache ``name``, or every cache.

    Raises:
        Undone: no worker has it.
        OSError, FileUnusable: the workers cannot be asked.
    """
    site = Site(caches, Own.NONE)
    wanted = [each for each in _wanted(site, name) if each.workers]
    if not wanted:
        raise Undone("No worker is left to be asked.")
    # One event, for any number of caches: the page shows thirty.
    site.note(CLEARED, user_name(), name)
    for each in wanted:
        site.ask(CLEAR, each.name)
        many = f"{each.workers} workers" if each.workers > 1 else f"worker {each.pids[0]}"
        out.write(
            f"{each.name!r}: asked {many} to remove {each.stats.size:,} entries, within {2 * INTERVAL:g} seconds.\n"
        )


def reset(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Have the figures of the cache ``name``, or of every cache, start from zero, on the dashboard and in the terminal.
    Metrics go on.

    Raises:
        Undone: no worker has it.
        OSError, FileUnusable: it cannot be noted.
    """
    site = Site(caches, Own.NONE)
    _wanted(site, name)
    site.reset(name)
    site.note(RESET, user_name(), name)
    out.write(f"The figures{'' if name is None else f' of {name!r}'} start from zero.\n")


def _wanted(site: Site, name: str | None) -> list[CacheFigures]:
    """The figures of the cache ``name``, or of every cache.

    Raises:
        Undone: there are none.
    """
    found = site.caches
    if not found:
        raise Undone(nothing_found(site.own))
    wanted = [each for each in found if name in (None, each.name)]
    if not wanted:
        raise Undone(f"No worker has a cache {name!r}: there are {', '.join(repr(each.name) for each in found)}.")
    return wanted
