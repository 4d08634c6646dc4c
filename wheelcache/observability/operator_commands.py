"""What operators do to all workers from a terminal: ``wheelcache clear`` and ``wheelcache reset``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TextIO

from wheelcache.observability.collect import directories_of, note_event, note_reset
from wheelcache.observability.console import look, nothing_found, user_name
from wheelcache.observability.event_log import CLEARED, RESET
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.snapshot_commands import Undone
from wheelcache.observability.worker_requests import CLEAR, RequestBox
from wheelcache.observability.worker_stats import CacheStats

ACTIONS: Final = ("clear", "reset")


def clear(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Have all workers empty the cache ``name``, or every cache.

    Raises:
        Undone: no worker has it.
        OSError, FileUnusable: the workers cannot be asked.
    """
    caches = list(caches)
    wanted = _wanted(caches, name)
    boxes = [RequestBox(directory.path) for directory in directories_of(caches)]
    # One event, for any number of caches: the page shows thirty.
    note_event(caches, CLEARED, user_name(), name)
    for each in wanted:
        for box in boxes:
            box.ask(CLEAR, each.name)
        pids = sorted({worker.pid for worker in each.workers})
        many = f"{len(pids)} workers" if len(pids) > 1 else f"worker {pids[0]}"
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
    caches = list(caches)
    _wanted(caches, name)
    note_reset(caches, name)
    note_event(caches, RESET, user_name(), name)
    out.write(f"The figures{'' if name is None else f' of {name!r}'} start from zero.\n")


def _wanted(caches: list[ObservedCache], name: str | None) -> list[CacheStats]:
    """The figures of the cache ``name``, or of every cache, that a worker has.

    Raises:
        Undone: no worker has it.
    """
    _, found = look(caches)
    if not found:
        raise Undone(nothing_found(caches))
    wanted = [each for each in found if name in (None, each.name)]
    if not wanted:
        raise Undone(f"No worker has a cache {name!r}: there are {', '.join(repr(each.name) for each in found)}.")
    return wanted
