"""Show why look-ups miss in a terminal. ``manage.py wheelcache misses`` and ``flask wheelcache misses`` share this.

``--json`` prints a list with an object for each cache. More keys may be added.

- ``cache``: its name.
- ``requests``, ``misses``: its look-ups, and those that found no value.
- ``misses_by_cause``: an object with the number of misses for each cause.
- ``groups``: the groups of keys, those that took most time to compute first. Each has ``name`` (empty for all other
  keys), ``requests``, ``hits``, ``misses``, ``hit_ratio``, ``misses_by_cause``, ``puts`` (stored values), ``loads``,
  ``load_seconds``, ``hour_seconds`` (the seconds that living workers spent on loads in the last hour) and ``bytes`` (an
  estimate of the memory of its entries in living workers, or null).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TextIO

from wheelcache.observability import documents
from wheelcache.observability.console import CommandFailed, console_for, nothing_found, plain_table, size_in_words
from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.site import Own, Site

if TYPE_CHECKING:
    # Only tables need rich.
    from rich.console import RenderableType
    from rich.table import Table


def show(caches: Iterable[ObservedCache], name: str | None, out: TextIO, *, as_json: bool, styled: bool) -> None:
    """Print the causes of misses and the groups of keys of the cache ``name``, or of all caches if it is None.

    Args:
        styled: whether tables may use bold text.

    Raises:
        CommandFailed: if there is no worker, after the last figures have been printed; or if a table is wanted and rich
            is not installed.
    """
    caches = list(caches)
    known = [each for each in Site(caches, Own.NONE).caches if name in (None, each.name)]
    if as_json:
        out.write(json.dumps([_document(each) for each in known]) + "\n")
    else:
        console = console_for(out, styled)
        for each in known:
            console.print(*_view(_document(each)), sep="\n")
    if not any(each.workers for each in known):
        raise CommandFailed(nothing_found(caches))


def _document(figures: CacheFigures) -> dict[str, Any]:
    stats = figures.stats
    return {
        "cache": figures.name,
        "requests": stats.requests,
        "misses": stats.misses,
        "misses_by_cause": stats.misses_by_cause,
        "groups": documents.groups(figures),
    }


def _view(found: dict[str, Any]) -> Iterator[RenderableType]:
    from rich.text import Text

    yield Text(f"Cache {found['cache']!r}: {found['misses']:,} of {found['requests']:,} look-ups missed")
    if found["misses"]:
        yield _causes(found["misses_by_cause"], found["misses"])
    if found["groups"]:
        yield _groups(found["groups"])


def _causes(numbers: dict[str, int], misses: int) -> Table:
    shown = plain_table("cause")
    for heading in ("misses", "share"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for cause, number in sorted(numbers.items(), key=lambda each: -each[1]):
        if number:
            shown.add_row(cause, f"{number:,}", f"{number / misses:.1%}")
    return shown


def _groups(groups: list[dict[str, Any]]) -> Table:
    from rich.text import Text

    shown = plain_table("group of keys")
    shown.add_column("look-ups", justify="right", no_wrap=True)
    shown.add_column("hit ratio", justify="right", no_wrap=True)
    shown.add_column("main cause of misses")
    for heading in ("loads", "seconds\nin loads", "in the\nlast hour", "bytes"):
        shown.add_column(heading, justify="right", no_wrap=True)
    for each in groups:
        name = each["name"] or "(other)"
        cause, number = max(each["misses_by_cause"].items(), key=lambda pair: pair[1])
        shown.add_row(
            # Names come from keys, and so perhaps from strangers: a name must not move the cursor.
            Text(name if name.isprintable() else repr(name)),
            f"{each['requests']:,}",
            "-" if each["hit_ratio"] is None else f"{each['hit_ratio']:.1%}",
            f"{cause} {number / each['misses']:.1%}" if number else "-",
            f"{each['loads']:,}",
            f"{each['load_seconds']:,.1f}",
            f"{each['hour_seconds']:,.1f}",
            "-" if each["bytes"] is None else f"~{size_in_words(each['bytes'], None)}",
        )
    return shown
