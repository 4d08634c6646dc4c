"""The command ``wheelcache`` of both frameworks: the figures, and the actions of operators."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TextIO

from wheelcache.errors import FileUnusable
from wheelcache.observability import console, snapshot_commands
from wheelcache.observability.console import nothing_found, user_name
from wheelcache.observability.event_log import CLEARED, RESET
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.observability.snapshot_commands import Undone
from wheelcache.observability.worker_requests import CLEAR

ACTIONS: Final = {
    "save": "Have all workers save their entries now, and wait until they have.",
    "load": "Have all workers load the newest snapshot, in addition to their entries.",
    "clear": "Have all workers clear their entries.",
    "reset": "Have the figures start from zero, here and on the dashboard.",
    "inspect": "Show the snapshots there are, how old they are, and whether they are whole.",
}
"""The actions, and their help."""


def run(
    action: str | None,
    caches: Iterable[ObservedCache],
    option: str,
    out: TextIO,
    error: Callable[[str], Exception],
    *,
    name: str | None = None,
    watch: float | None = None,
    as_json: bool = False,
    styled: bool = True,
) -> None:
    """Run one of ``ACTIONS``; show the figures if it is None.

    Args:
        caches: the caches of the site.
        option: the option that says where snapshots are, as the user writes it.
        error: makes the exception that is raised if the action is impossible, from the reason.
        name: the cache to clear or reset; all if not given.
        watch, as_json, styled: see ``console.show``.
    """
    on_snapshots: dict[str, Any] = {"save": snapshot_commands.save, "load": snapshot_commands.load}
    on_figures: dict[str, Any] = {"clear": clear, "reset": reset}
    try:
        if name is not None and action not in on_figures:
            raise Undone("--cache is for clear and reset.")
        if action is None:
            console.show(caches, out, watch=watch, as_json=as_json, styled=styled)
            return
        snapshot_commands.check(action, watch=watch, as_json=as_json)
        if action == "inspect":
            snapshot_commands.inspect(caches, option, out, as_json=as_json, styled=styled)
        elif action in on_figures:
            on_figures[action](caches, name, out)
        else:
            on_snapshots[action](caches, option, out)
    except (console.Unshowable, Undone, FileUnusable) as reason:
        raise error(str(reason)) from None


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
