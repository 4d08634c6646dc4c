"""The commands of HTTP caches that rehearse, for both frameworks: ``rehearsal`` and ``pages``.

With ``--json``, ``rehearsal`` prints a list with the results of each cache: see ``rehearsal_results``. ``pages`` prints
``cache`` and ``mode``. More keys may be added.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from wheelcache.cache import Cache
from wheelcache.watch.console import CommandFailed, Report, date_of, printable, user_name
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.rehearsal_results import Result, findings, result_of
from wheelcache.watch.site import Own, Site

SHOWN: Final = ("view", "visits", "hits", "compared", "wrong", "outdated", "noise", "unclear")


def rehearsal(caches: Sequence[Cache], name: str | None) -> Report:
    """Return the results of the rehearsals.

    Raises:
        CommandFailed: if there are none.
    """
    site = Site(caches, Own.NONE)
    found, modes = site.rehearsed(), site.modes()
    results = [result_of(cache, found[cache], modes.get(cache)) for cache in found if name in (None, cache)]
    if not results:
        raise CommandFailed(
            "No HTTP cache of this site has rehearsed. Begin with: wheelcache pages rehearse, or the option "
            "rehearse=0.05 of the cache."
        )
    return Report(results, [part for each in results for part in _view(each)])


def _view(result: Result) -> Iterator[str]:
    mode = "" if result["mode"] is None else f", mode {result['mode']}"
    # It may contain a key of a session.
    yield printable(result["sentence"])
    yield f"Cache {result['cache']!r}{mode}, since {date_of(result['since'])}"
    yield from _rows(result["views"])
    yield from lines_of(result)
    if result["block"]:
        yield ""
        yield from map(printable, result["block"].split("\n"))


def _rows(views: Sequence[Result]) -> Iterator[str]:
    """Iterate over the lines of a table of the views. A terminal must not wrap the lines of the block below it, as it
    does with those of a ``Table``."""
    cells = [SHOWN, *([printable(row["view"]), *(f"{row[name]:,}" for name in SHOWN[1:])] for row in views)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for first, *others in cells:
        numbers = (each.rjust(width) for each, width in zip(others, widths[1:], strict=True))
        yield "  ".join([first.ljust(widths[0]), *numbers])


def lines_of(result: Result) -> Iterator[str]:
    """Iterate over the differences and the reasons in a result, as lines for the terminal."""
    for sentence, details in findings(result, shows_texts=True):
        yield printable(sentence)
        yield from (f"  {printable(each)}" for each in details)


def change_mode(caches: Sequence[Cache], name: str | None, mode: str) -> Report:
    """Let all workers serve pages, only rehearse, or neither.

    Raises:
        CommandFailed: if no worker has an HTTP cache of this name.
        OSError, FileUnusable: if the mode cannot be stored.
    """
    site = Site(caches, Own.NONE)
    names = [each.name for each in site.caches if each.stats.pages is not None and name in (None, each.name)]
    if not names:
        raise CommandFailed(
            site.nothing_found or "No running worker has an HTTP cache" + ("." if name is None else f" {name!r}.")
        )
    for each in names:
        site.change_mode(each, mode)
        site.note(f"pages {mode}", user_name(), each)
    within = 2 * INTERVAL
    lines = [f"{each!r}: all workers have the mode {mode} within {within:g} seconds." for each in names]
    return Report([{"cache": each, "mode": mode} for each in names], lines)
