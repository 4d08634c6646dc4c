"""Show the figures of a site's caches in a terminal. ``manage.py wheelcache`` and ``flask wheelcache`` share this.

``--json`` prints one document. Times are in seconds since 1970. A value that is unknown, or a bound that is not set, is
null. More keys may be added.

- ``at``: when the document was made.
- ``since``: when the figures of all caches were reset, or null.
- ``looked_in``: the directories where the workers of the site publish.
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
  ``load_failures``, ``load_ms`` (the average load) and ``stampedes_prevented``.
- At present: ``entries``, ``max_entries``, ``bytes``, ``max_bytes`` and ``bytes_are_estimated`` (true if the cache has
  no bound in bytes).
- ``store``: the store behind a near cache, or null. It has ``hits`` and ``misses`` (look-ups without a copy for which
  the store had a value, or had none), ``reads``, ``read_ms`` (the average read), ``writes``, ``write_ms``, ``errors``,
  ``refused`` (calls that were not made) and ``open_breakers`` (processes that do not call the store now).
- ``pages``: the pages of an HTTP cache, or null. It has ``fresh`` and ``stale`` (responses from stored pages),
  ``revalidated`` (pages that the application confirmed), ``collapsed`` (requests that received the page of another
  request's run), ``bytes_sent``, ``stored``, and ``not_stored`` (responses that were not stored, by reason).
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, TextIO

from wheelcache.observability import documents
from wheelcache.observability.figures import CacheFigures, WorkerFigures
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.site import Own, Site
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import PageStats, Stats, StoreStats

if TYPE_CHECKING:
    # Only tables need rich.
    from rich.console import Console, RenderableType
    from rich.table import Table

if sys.platform != "win32":
    import pwd

WATCH: Final = INTERVAL
"""Default of ``--watch``, in seconds. Workers do not publish more often."""

Figures = Mapping[str, Any]


class Undone(Exception):
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
        Undone: if no worker publishes anything; if a table is wanted and rich is not installed; if ``watch`` is
            given and ``out`` is not a terminal; or if the options contradict each other.
    """
    caches = list(caches)
    if as_json:
        if watch is not None:
            raise Undone("--json prints one document: leave --watch out.")
        found = document(caches)
        out.write(json.dumps(found) + "\n")
        if not found["caches"]:
            raise Undone(nothing_found(caches))
        return
    console = console_for(out, styled)
    if watch is None:
        if not Site(caches, Own.NONE).caches:
            raise Undone(nothing_found(caches))
        console.print(_view(caches, console))
        return
    if not console.is_terminal:
        raise Undone("--watch needs a terminal, and the output is not one: leave --watch out.")
    _watch(console, lambda: _view(caches, console), watch)


def seconds(text: str) -> float:
    """Return the value of ``--watch``.

    Raises:
        ValueError: if ``text`` is not a number of seconds.
    """
    with suppress(ValueError):
        found = float(text)
        if isfinite(found) and found > 0:
            return found
    raise ValueError(f"must be a number of seconds above 0, not {text!r}")


def document(caches: Iterable[ObservedCache]) -> dict[str, Any]:
    """Return the figures that the workers of the site publish, as the JSON document described above."""
    site = Site(caches, Own.NONE)
    return {
        "at": SystemClock.time(),
        "since": site.reset_at,
        "looked_in": [str(each.directory) for each in site.files],
        "caches": [
            {
                "name": each.name,
                "reset_at": each.reset_at,
                "total": _figures(each.stats, each),
                "workers": [_worker(worker) for worker in site.workers(each.name)],
            }
            for each in site.caches
        ],
    }


def table(site: Site, *, width: int | None = None) -> Table:
    """Return a table with a row for each cache, followed by a row for each of its workers.

    Args:
        width: the available width in characters; None if it is not limited. If the table does not fit, each worker gets
            a column instead of a row, and columns that do not fit continue further down.
    """
    known = any(each.memory is not None for each in site.caches)
    stale = any(each.stats.stale_hits for each in site.caches)
    tiered = any(each.stats.store is not None for each in site.caches)
    shown = {"bytes": known, STALE: stale, BOTH: tiered}
    headings = [heading for heading in HEADINGS if shown.get(heading, True)]
    blocks = [_block(each, site.workers(each.name), headings) for each in site.caches]
    wide = _wide(headings, blocks)
    return wide if width is None or width_of(wide) <= width else _narrow(headings, blocks, width)


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

BOTH: Final = "both tiers\nnow"
"""The heading of the share of look-ups that a cache or the store behind it answered. Shown if a cache has a store."""

HEADINGS: Final[Mapping[str, Callable[[Figures], str]]] = {
    BOTH: lambda row: _share(row["answered_ratio_now"]),
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
    "stampedes\nprevented": lambda row: _count(row["stampedes_prevented"]),
    "wheel\nthread": lambda row: row.get("thread", ""),
    "lag\nin s": lambda row: f"{row['lag']:.1f}" if "lag" in row else "",
}
"""The columns: headings and formatters. The wide table breaks headings into two lines."""

Row = tuple[str, list[str]]
"""The name of a cache or worker, and its figures."""


def _block(cache: CacheFigures, workers: Iterable[WorkerFigures], headings: Sequence[str]) -> list[Row]:
    """Return the rows of one cache: the total, then one for each worker."""
    rows = [(cache.name, _figures(cache.stats, cache)), *((str(each.pid), _worker(each)) for each in workers)]
    return [(name, [HEADINGS[heading](figures) for heading in headings]) for name, figures in rows]


def _wide(headings: Sequence[str], blocks: Iterable[Sequence[Row]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    wide = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 2, 0, 0))
    wide.add_column("cache and workers", no_wrap=True)
    for heading in headings:
        wide.add_column(heading, justify="right", no_wrap=True)
    for (name, total), *workers in blocks:
        wide.add_row(Text(name), *total, style="bold")
        for pid, figures in workers:
            wide.add_row(f"  {pid}", *figures)
        wide.add_section()
    return wide


def _narrow(headings: Sequence[str], blocks: Iterable[Sequence[Row]], width: int) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    blocks = list(blocks)
    headings = [heading.replace("\n", " ") for heading in headings]
    labels = max(map(len, headings))
    cells = max(len(cell) for block in blocks for number, row in enumerate(block) for cell in _column(row, number))
    per_line = max(1, min((width - labels) // (cells + 2), max(map(len, blocks))))
    narrow = Table(box=box.SIMPLE, show_header=False, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    narrow.add_column(overflow="fold")
    for _ in range(per_line):
        narrow.add_column(justify="right", overflow="fold")
    for block in blocks:
        columns = [_column(row, number) for number, row in enumerate(block)]
        for start in range(0, len(columns), per_line):
            heads, *lines = zip(*columns[start : start + per_line], strict=True)
            narrow.add_row(Text(block[0][0] if start == 0 else ""), *heads, style="bold")
            for heading, line in zip(headings, lines, strict=True):
                narrow.add_row(heading, *line)
            narrow.add_section()
    return narrow


def _column(row: Row, number: int) -> list[str]:
    """Return row ``number`` of a block as a column. Row 0 is the total."""
    name, figures = row
    return ["all" if number == 0 else name, *figures]


def width_of(shown: Table) -> int:
    """Return the number of characters that a table needs."""
    from rich.console import Console

    console = Console(width=10_000)
    return console.measure(shown).maximum


def console_for(out: TextIO, styled: bool) -> Console:
    try:
        from rich.console import Console
    except ImportError:
        raise Undone(
            "A table needs the package rich: run pip install rich, or pip install '.[cli]' in a checkout of "
            "wheelcache. --json does not need it."
        ) from None
    # With FORCE_COLOR, Rich would otherwise assume a terminal, and limit the width to that of a terminal.
    return Console(file=out, force_terminal=out.isatty(), color_system="auto" if styled else None, highlight=False)


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
    """Return a line about the pages of the HTTP cache ``name``."""
    parts = [
        f"{_count(pages.fresh)} fresh and {_count(pages.stale)} stale responses",
        f"{size_in_words(pages.bytes_sent, None)} sent",
        f"{_count(pages.stored)} stored",
        *(f"{_count(number)} {word}" for word in ("revalidated", "collapsed") if (number := getattr(pages, word))),
    ]
    if pages.not_stored:
        by_number = sorted(pages.not_stored.items(), key=lambda each: -each[1])
        parts.append(f"not stored: {', '.join(f'{_count(number)} {reason}' for reason, number in by_number)}")
    return f"The pages of {name}: {'; '.join(parts)}."


def _view(caches: Sequence[ObservedCache], console: Console) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    site = Site(caches, Own.NONE)
    found, since = site.caches, site.reset_at
    if not found:
        return Text(nothing_found(caches))
    fits = console.width if console.is_terminal or "COLUMNS" in os.environ else None
    shown = table(site, width=fits)
    if fits is None:
        console.width = width_of(shown)
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
    return Group(shown, *lines, Text(text, style="dim"))


def nothing_found(caches: Sequence[ObservedCache]) -> str:
    directories = [str(each.directory) for each in Site(caches, Own.NONE).files]
    if not directories:
        return "The caches of this site do not publish their figures, so there is nowhere to look."
    user = f", as user {os.geteuid()}" if sys.platform != "win32" else ""
    return (
        f"No worker of this site publishes figures. Looked in {' and '.join(directories)}{user}. "
        f"A worker starts to publish {INTERVAL:g} seconds after it first stores a value."
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
