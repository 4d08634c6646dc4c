"""Show the figures of a site's caches in a terminal. ``manage.py wheelcache`` and ``flask wheelcache`` share this.

``--json`` prints one document. Times are in seconds since 1970. A value that is unknown, or a bound that is not set, is
null. More keys may be added.

- ``at``: when the document was made.
- ``since``: when the figures of all caches were reset, or null.
- ``looked_in``: the directories where the workers of the site publish.
- ``problems``: a list of sentences, the worst problem first.
- ``caches``: a list with an object for each cache:

  - ``name``.
  - ``reset_at``: when the figures of this cache were reset, alone or together with all others, or null.
  - ``total``: the figures of all its workers together, including workers that have exited.
  - ``workers``: its living workers, oldest first. Each has figures, and also ``pid``, ``started``, ``published``,
    ``thread`` (the state of the wheel thread), ``lag`` (of that thread, in seconds) and ``core`` ("compiled" or
    "python").

``total`` and each worker have these figures:

- Over the last minute: ``answered_ratio_now`` (the share of look-ups that a near cache or the store behind it
  answered), ``hit_ratio_now``, ``stale_ratio_now`` (stale answers are neither hits nor misses) and
  ``requests_per_second``.
- Since the reset or the start: ``answered_ratio``, ``hit_ratio``, ``stale_ratio``, ``requests``, ``hits``,
  ``stale_hits``, ``misses``, ``puts``, ``evictions``, ``evicted_bytes``, ``expirations``, ``loads``,
  ``load_failures``, ``load_ms`` (the average load), ``stampedes_prevented`` and ``misses_by_cause`` (an object; the
  causes of keys that left long ago are estimates). The command ``misses`` also shows the groups of keys.
- At present: ``entries``, ``max_entries``, ``bytes``, ``max_bytes`` and ``bytes_are_estimated`` (true if the cache has
  no bound in bytes).
- ``store``: the store behind a near cache, or null. It has ``hits`` and ``misses`` (look-ups without a copy for which
  the store had a value, or had none), ``reads``, ``read_ms`` (the average read), ``writes``, ``write_ms``, ``errors``,
  ``refused`` (calls that were not made) and ``open_breakers`` (processes that do not call the store now).
- ``pages``: the pages of an HTTP cache, or null. It has ``fresh`` and ``stale`` (responses from stored pages),
  ``revalidated`` (pages that the application confirmed), ``collapsed`` (requests that received the page of another
  request's run), ``bytes_sent``, ``stored``, ``variants_removed`` (because their page had too many), and
  ``not_stored`` (responses that were not stored, by reason). The total also has ``not_stored_paths`` (by reason, the
  paths with most of these responses, and how many each has at least) and ``full_variants`` (by header, or "cookie
  <name>", the paths with most variants that were removed because of it).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, TextIO

from wheelcache.observability import advice, documents
from wheelcache.observability.event_log import MAX_EVENTS
from wheelcache.observability.figures import CacheFigures, WorkerFigures, sum_of
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.problems import headline, problems_of
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import REASONS, PageStats, Stats, StoreStats

if TYPE_CHECKING:
    # Only tables need rich.
    from rich.console import Console, RenderableType
    from rich.table import Table

if sys.platform != "win32":
    import pwd

WATCH: Final = INTERVAL
"""Default of ``--watch``, in seconds. Workers do not publish more often."""

UNLIMITED: Final = 10_000
"""The width of output that is not a terminal, in characters."""

SHOWN_PATHS: Final = 3
"""The number of paths of each reason why pages are not stored. ``--json`` has more."""

Figures = Mapping[str, Any]


class CommandFailed(Exception):
    """An action was not carried out, or not by all workers, for the reason in the message."""


def show(
    caches: Iterable[ObservedCache],
    out: TextIO,
    *,
    watch: float | None = None,
    as_json: bool = False,
    styled: bool = True,
) -> None:
    """Print the figures that the workers of the site publish.

    Args:
        caches: the caches of this process, which is not a worker itself.
        out: the output. If it is not a terminal, the width of a table is not limited.
        watch: seconds between updates, until Ctrl-C; None to print once.
        as_json: print the document described above instead of a table.
        styled: whether the table may use bold text.

    Raises:
        CommandFailed: if there is no worker, after the last figures have been printed; if a table is wanted and rich is
            not installed; if ``watch`` is given and ``out`` is not a terminal; or if the options contradict each other.
    """
    caches = list(caches)
    if as_json:
        if watch is not None:
            raise CommandFailed("--json prints one document: leave --watch out.")
        found = document(caches)
        out.write(json.dumps(found) + "\n")
        if not any(each["workers"] for each in found["caches"]):
            raise CommandFailed(nothing_found(caches))
        return
    console = console_for(out, styled)
    if watch is None:
        known = Site(caches, Own.NONE).caches
        if known:
            console.print(_view(caches, console))
        if not any(each.workers for each in known):
            raise CommandFailed(nothing_found(caches))
        return
    if not console.is_terminal:
        raise CommandFailed("--watch needs a terminal, and the output is not one: leave --watch out.")
    _watch(console, lambda: _view(caches, console), watch)


def advise(caches: Iterable[ObservedCache], name: str | None, out: TextIO, *, as_json: bool = False) -> None:
    """Print the advice for the cache ``name``, or for all caches if it is None.

    With ``as_json``, print a list with an object for each advice: ``cache``, ``text``, ``change`` (the new values of
    options, by their names in the engine), ``hit_ratio`` and ``promised`` (null without a promise).

    Raises:
        CommandFailed: if no worker has the cache.
    """
    caches = list(caches)
    known = [each for each in Site(caches, Own.NONE).caches if each.workers and name in (None, each.name)]
    if not known:
        raise CommandFailed(nothing_found(caches))
    found = advice.advise(known)
    if as_json:
        out.write(json.dumps([asdict(each) for each in found]) + "\n")
        return
    out.writelines(f"{each}\n" for each in found)
    silent = {each.name for each in known} - {each.cache for each in found}
    out.writelines(f"Cache {each.name!r}: {advice.silence(each)}\n" for each in known if each.name in silent)


def document(caches: Iterable[ObservedCache]) -> dict[str, Any]:
    """Return the figures that the workers of the site publish, as the JSON document described above."""
    site = Site(caches, Own.NONE)
    return {
        "at": SystemClock.time(),
        "since": site.reset_at,
        "looked_in": [str(each.directory) for each in site.files],
        "problems": _problems(site),
        "caches": [
            {
                "name": each.name,
                "reset_at": each.reset_at,
                "total": _total(each, workers),
                "workers": [_worker(worker) for worker in workers],
            }
            for each, workers in ((each, site.workers(each.name)) for each in site.caches)
        ],
    }


def _problems(site: Site) -> list[str]:
    return list(map(str, problems_of(site, site.recent(), site.events(MAX_EVENTS))))


def tables(site: Site, width: int) -> list[Table]:
    """Return a table with a row for each cache, followed by a row for each of its workers.

    Args:
        width: the available width in characters. Columns that do not fit are in further tables.
    """
    known = any(each.memory is not None for each in site.caches)
    stale = any(each.stats.stale_hits for each in site.caches)
    tiered = any(each.stats.store is not None for each in site.caches)
    is_shown = {"bytes": known, STALE: stale, TIERS_HEADING: tiered, STORE_ERRORS: tiered}
    pairs = [(each, site.workers(each.name)) for each in site.caches]
    caches = [(each.name, [_total(each, workers), *map(_worker, workers)]) for each, workers in pairs]
    found: list[Table] = []
    headings: list[str] = []
    for heading in HEADINGS:
        if is_shown.get(heading, True):
            if headings and _width_of(_table([*headings, heading], caches)) > width:
                found.append(_table(headings, caches))
                headings = []
            headings.append(heading)
    return [*found, _table(headings, caches)]


def _table(headings: Iterable[str], caches: Iterable[tuple[str, Sequence[Figures]]]) -> Table:
    """Return a table of the names of caches with the figures of all workers and of each worker."""
    from rich.text import Text

    shown = plain_table("cache and workers")
    for heading in headings:
        shown.add_column(heading, justify="right", no_wrap=True)
    for name, (total, *workers) in caches:
        shown.add_row(Text(name), *(HEADINGS[heading](total) for heading in headings), style="bold")
        for worker in workers:
            shown.add_row(f"  {worker['pid']}", *(HEADINGS[heading](worker) for heading in headings))
        shown.add_section()
    return shown


def plain_table(first: str) -> Table:
    """Return a table without lines between its columns, and with the first column."""
    from rich import box
    from rich.table import Column, Table

    return Table(
        Column(first, overflow="fold"), box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0)
    )


def _width_of(shown: Table) -> int:
    """Return the number of characters that a table needs."""
    from rich.console import Console

    return Console(width=UNLIMITED).measure(shown).maximum


def _figures(stats: Stats, cache: CacheFigures | WorkerFigures) -> Figures:
    total = documents.totals(stats, cache)
    rate = documents.last_minute(cache.minute)
    return {
        "answered_ratio_now": rate["answered_ratio"],
        "hit_ratio_now": rate["hit_ratio"],
        "stale_ratio_now": rate["stale_ratio"],
        "requests_per_second": rate["requests_per_second"],
        **{name: value for name, value in total.items() if name not in ("removals", "coalesced", "load_seconds")},
        "stampedes_prevented": total["coalesced"],
        "store": None if stats.store is None else _store(stats.store),
        "pages": documents.pages(stats.pages),
    }


def _total(cache: CacheFigures, workers: Sequence[WorkerFigures]) -> Figures:
    """Return the figures of all workers together. Those of the last minute cover the same time as the workers' own."""
    minute = sum_of([each.minute for each in workers]) if workers else cache.minute
    return _figures(cache.stats, replace(cache, minute=minute))


def _store(stats: StoreStats) -> Figures:
    reads, writes = stats.reads, stats.writes
    return {
        "hits": stats.hits,
        "misses": stats.misses,
        "reads": reads.calls,
        "read_ms": documents.mean_ms(reads.seconds, reads.calls),
        "writes": writes.calls,
        "write_ms": documents.mean_ms(writes.seconds, writes.calls),
        "errors": reads.errors + writes.errors,
        "refused": reads.refused + writes.refused,
        "open_breakers": stats.open_breakers,
    }


def _worker(figures: WorkerFigures) -> Figures:
    return {**documents.worker(figures), **_figures(figures.stats, figures)}


def _share(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.1%}"


def _count(number: int, most: int | None = None) -> str:
    return f"{number:,}" if most is None else f"{number:,} / {most:,}"


def size_in_words(number: int, most: int | None) -> str:
    """Return a number of bytes, and its limit if there is one, in the same unit."""
    unit, name = next((each for each in UNITS if max(number, most or 0) >= each[0]), UNITS[-1])
    return f"{number / unit:,.1f} {name}" if most is None else f"{number / unit:,.1f} / {most / unit:,.1f} {name}"


def _bytes(row: Figures) -> str:
    if row["bytes"] is None:
        return "-"
    return f"{'~' if row['bytes_are_estimated'] else ''}{size_in_words(row['bytes'], row['max_bytes'])}"


UNITS: Final = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))

STALE: Final = "stale\nnow"
"""The heading of the share of look-ups that were stale hits. The column is shown if there are any."""

TIERS_HEADING: Final = "both tiers\nnow"
"""The heading of the share of look-ups that a cache or the store behind it answered. Shown if a cache has a store."""

STORE_ERRORS: Final = "store\nerrors"
"""The heading of the failed calls of the store behind. The column is shown if a cache has a store."""

HEADINGS: Final[Mapping[str, Callable[[Figures], str]]] = {
    TIERS_HEADING: lambda row: _share(row["answered_ratio_now"]),
    "hit ratio\nnow": lambda row: _share(row["hit_ratio_now"]),
    STALE: lambda row: _share(row["stale_ratio_now"]),
    "hit ratio\nin all": lambda row: _share(row["hit_ratio"]),
    "look-ups": lambda row: _count(row["requests"]),
    "look-ups\na second": lambda row: f"{row['requests_per_second']:,.1f}",
    "entries": lambda row: _count(row["entries"], row["max_entries"]),
    "bytes": _bytes,
    "evicted": lambda row: _count(row["evictions"]),
    "expired": lambda row: _count(row["expirations"]),
    "ms\na load": lambda row: "-" if row["load_ms"] is None else f"{row['load_ms']:,.1f}",
    "loads\nfailed": lambda row: _count(row["load_failures"]),
    STORE_ERRORS: lambda row: "-" if row["store"] is None else _count(row["store"]["errors"]),
    "stampedes\nprevented": lambda row: _count(row["stampedes_prevented"]),
    "wheel\nthread": lambda row: row.get("thread", ""),
    "lag\nin s": lambda row: f"{row['lag']:.1f}" if "lag" in row else "",
}
"""The columns: headings and formatters."""


def printable(text: str) -> str:
    """Return a text in which each character that could control a terminal is an escape sequence of Python."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def console_for(out: TextIO, styled: bool) -> Console:
    """Return a console of Rich. Its width is unlimited if ``out`` is not a terminal, unless COLUMNS is set.

    Raises:
        CommandFailed: if Rich is not installed.
    """
    try:
        from rich.console import Console
    except ImportError:
        raise CommandFailed(
            "A table needs the package rich: run pip install rich, or pip install '.[cli]' in a checkout of "
            "wheelcache. --json does not need it."
        ) from None
    is_terminal = out.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else UNLIMITED
    # With FORCE_COLOR, Rich would otherwise assume a terminal.
    return Console(
        file=out, force_terminal=is_terminal, width=width, color_system="auto" if styled else None, highlight=False
    )


def store_in_words(name: str, store: Figures) -> str:
    """Return a line about the store behind the cache ``name``."""

    def calls(kind: str, ms: float | None) -> str:
        return _count(store[kind]) + f" {kind}" + ("" if ms is None else f", {ms:,.1f} ms each")

    parts = [calls("reads", store["read_ms"]), calls("writes", store["write_ms"])]
    parts += [f"{_count(store[each])} {each}" for each in ("errors", "refused") if store[each]]
    if store["open_breakers"]:
        parts.append(f"not called by {_count(store['open_breakers'])} of its workers because it fails")
    return f"The store behind {name}: {'; '.join(parts)}."


def pages_in_words(name: str, pages: PageStats) -> str:
    """Return a line about the pages of the HTTP cache ``name``, and one about each reason why pages are not stored."""
    parts = [
        f"{_count(pages.fresh)} fresh and {_count(pages.stale)} stale responses",
        f"{size_in_words(pages.bytes_sent, None)} sent",
        f"{_count(pages.stored)} stored",
        *(f"{_count(number)} {word}" for word in ("revalidated", "collapsed") if (number := getattr(pages, word))),
    ]
    by_number = sorted(pages.not_stored.items(), key=lambda each: -each[1])
    if by_number:
        parts.append(f"not stored: {', '.join(f'{_count(number)} {reason}' for reason, number in by_number)}")
    lines = [f"The pages of {name}: {'; '.join(parts)}."]
    for reason, _ in by_number:
        sentence = f" {REASONS[reason].cause}" if reason in REASONS else ""
        lines.append(f"  {reason}:{sentence}{_busiest(pages.not_stored_paths.get(reason, {}))}")
    for cause, paths in pages.full_variants.items():
        lines.append(f"  Variants removed because of {cause}.{_busiest(paths)}")
    return "\n".join(lines)


def _busiest(paths: Mapping[str, int]) -> str:
    shown = ", ".join(f"{path} {_count(number)}" for path, number in [*paths.items()][:SHOWN_PATHS])
    return f" Most often: {shown}." if shown else ""


def _view(caches: Sequence[ObservedCache], console: Console) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    site = Site(caches, Own.NONE)
    found, since = site.caches, site.reset_at
    if not found:
        return Text(nothing_found(caches))
    sentences = _problems(site)
    state = Text("\n".join(sentences) or headline((), [each.name for each in found]), "bold" if sentences else "")
    started = min((each.since for each in found if each.since is not None), default=site.time)
    counted = f"since {date_of(started)}" if since is None else f"since the reset, {date_of(since)}"
    counted += "".join(
        f", {each.name!r} since its reset, {date_of(each.reset_at)}"
        for each in found
        if each.reset_at is not None and each.reset_at != since
    )
    text = f'Counted {counted}, including workers that have exited; "now" and "a second" refer to the last minute.'
    lines = [
        Text(f"No worker has the cache {each.name!r} now; these are its last figures.")
        for each in found
        if not each.workers
    ]
    lines += [
        Text(store_in_words(each.name, _store(each.stats.store))) for each in found if each.stats.store is not None
    ]
    lines += [Text(pages_in_words(each.name, each.stats.pages)) for each in found if each.stats.pages is not None]
    return Group(state, *tables(site, console.width), *lines, Text(text, style="dim"))


def nothing_found(caches: Sequence[ObservedCache]) -> str:
    directories = [str(each.directory) for each in Site(caches, Own.NONE).files]
    if not directories:
        return "The caches of this site do not publish their figures, so there is nowhere to look."
    user = f", as user {os.geteuid()}" if sys.platform != "win32" else ""
    return (
        f"No worker of this site publishes figures. Looked in {' and '.join(directories)}{user}. "
        f"A worker publishes every {INTERVAL:g} seconds from its first use of a cache on."
    )


def user_name() -> str:
    """Return the name of the user that runs the command, for the recent events."""
    uid = os.geteuid()
    try:
        return f"{pwd.getpwuid(uid).pw_name}, in a terminal"
    except KeyError:
        return f"user {uid}, in a terminal"


def date_of(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _watch(console: Console, view: Callable[[], RenderableType], every: float) -> None:
    from rich.live import Live

    try:
        with Live(view(), console=console, auto_refresh=False) as live:
            while True:
                time.sleep(every)
                live.update(view(), refresh=True)
    except KeyboardInterrupt:
        return
