"""Run the command ``wheelcache`` of both frameworks: show the figures, or carry out an operator's action."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, TextIO

from wheelcache.errors import FileUnusable
from wheelcache.observability import console, entry_commands, snapshot_commands
from wheelcache.observability.console import Undone, nothing_found, user_name
from wheelcache.observability.entry_commands import Target
from wheelcache.observability.event_log import CLEARED, RESET
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.observability.worker_requests import CLEAR, PURGE, NotPurgeable, purge_request

ACTIONS: Final = {
    "save": "Ask all workers to save their entries, and wait until they have.",
    "load": "Ask all workers to load the newest snapshot, in addition to their entries.",
    "clear": "Ask all workers to clear their entries.",
    "purge": "Ask all workers to remove the pages of a URL, or of a host, from the HTTP cache.",
    "reset": "Reset the figures to zero, here and on the dashboard.",
    "inspect": "List the snapshots, their age, and whether they are whole.",
    **entry_commands.ACTIONS,
}
"""The actions and their help texts."""


def run(
    action: str | None,
    caches: Iterable[ObservedCache],
    option: str,
    out: TextIO,
    error: Callable[[str], Exception],
    *,
    name: str | None = None,
    target: str | None = None,
    watch: float | None = None,
    as_json: bool = False,
    styled: bool = True,
    pattern: str | None = None,
    tag: str | None = None,
    show_value: bool = False,
) -> None:
    """Run ``action``, one of ``ACTIONS``, or show the figures if it is None.

    Args:
        caches: the caches of the site.
        option: the name of the option that sets the directory of snapshots, as the user writes it.
        error: returns the exception to raise if the action is impossible, for a reason in words.
        name: the name of the cache; None for all caches, or for the only one.
        target: the URL or the host to purge, or the key or the pattern of the entries.
        watch, as_json, styled: see ``console.show``.
        pattern, tag: the entries to delete.
        show_value: whether to show the value of an entry.
    """
    is_of_entries = action in entry_commands.ACTIONS
    try:
        if name is not None and action not in ("clear", "purge", "reset") and not is_of_entries:
            raise Undone("--cache is only for clear, purge, reset and the entries.")
        if target is not None and action != "purge" and not is_of_entries:
            raise Undone(f"{target!r} is neither an action nor an argument of {action}.")
        if watch is not None and action is not None:
            raise Undone(f"--watch is only for the figures: leave it out of {action}.")
        if as_json and action not in (None, "inspect") and not is_of_entries:
            raise Undone(f"--json is only for the figures, inspect and the entries: leave it out of {action}.")
        for written, value, user in (
            ("--pattern", pattern, "delete"),
            ("--tag", tag, "delete"),
            ("--show-value", show_value, "get"),
        ):
            if value and action != user:
                raise Undone(f"{written} is only for {user}.")
        if action is None:
            console.show(caches, out, watch=watch, as_json=as_json, styled=styled)
        elif is_of_entries:
            entries = Target(target, pattern, tag, show_value=show_value)
            entry_commands.run(action, caches, name, entries, out, as_json=as_json)
        elif action == "inspect":
            snapshot_commands.inspect(caches, option, out, as_json=as_json, styled=styled)
        elif action == "purge":
            purge(caches, name, target or "", out)
        elif action in ("clear", "reset"):
            (clear if action == "clear" else reset)(caches, name, out)
        else:
            (snapshot_commands.save if action == "save" else snapshot_commands.load)(caches, option, out)
    except (Undone, NotPurgeable, FileUnusable) as reason:
        raise error(str(reason)) from None


def clear(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Ask all workers to empty the cache ``name``, or every cache if it is None.

    Raises:
        Undone: if no worker has the cache.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    site = Site(caches, Own.NONE)
    wanted = [each for each in _wanted(site, name) if each.workers]
    if not wanted:
        raise Undone("There is no worker to ask.")
    # Note one event for all caches, since the page shows only thirty.
    site.note(CLEARED, user_name(), name)
    for each in wanted:
        site.ask(CLEAR, each.name)
        _report(each, f"remove {each.stats.size:,} entries", out)


def purge(caches: Iterable[ObservedCache], name: str | None, target: str, out: TextIO) -> None:
    """Ask all workers to remove the pages of a URL or a host from the HTTP cache ``name``, or from all if it is None.

    Raises:
        NotPurgeable: if ``target`` is neither a URL nor a host.
        Undone: if no worker has the HTTP cache.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    request = purge_request(target)
    site = Site(caches, Own.NONE)
    wanted = [each for each in _wanted(site, name) if each.workers and each.counted.pages is not None]
    if not wanted:
        raise Undone("There is no worker with an HTTP cache to ask.")
    for each in wanted:
        site.note(PURGE, f"{user_name()}: {target}", each.name)
        site.ask(request, each.name)
        _report(each, f"purge {target}", out)


def _report(asked: CacheFigures, request: str, out: TextIO) -> None:
    many = f"{asked.workers} workers" if asked.workers > 1 else f"worker {asked.pids[0]}"
    out.write(f"{asked.name!r}: asked {many} to {request}, within {2 * INTERVAL:g} seconds.\n")


def reset(caches: Iterable[ObservedCache], name: str | None, out: TextIO) -> None:
    """Reset the figures of the cache ``name``, or of every cache if it is None.

    The dashboard and the terminal then count from zero. Metrics are not reset.

    Raises:
        Undone: if no worker has the cache.
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
        Undone: if there are none.
    """
    found = site.caches
    if not found:
        raise Undone(nothing_found(site.own))
    wanted = [each for each in found if name in (None, each.name)]
    if not wanted:
        raise Undone(f"No worker has a cache {name!r}: there are {', '.join(repr(each.name) for each in found)}.")
    return wanted
