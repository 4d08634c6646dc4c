"""The commands that show the figures of a site, clear caches or purge pages, for both frameworks.

With ``--json``, the figures and ``misses`` are the documents that ``documents`` describes. More keys may be added.

- ``compare``: a list with the document of ``comparison`` for each cache, and its name as ``cache``.
- ``clear``, ``purge``: a list with an object for each cache: ``cache``, ``workers`` (the number that was asked, or that
  answered), and ``entries`` or ``pages``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from wheelcache.cache import Cache
from wheelcache.pages.keys import check_purgeable
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.reasons import REASONS
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch import comparison, documents
from wheelcache.watch.causes import name_of
from wheelcache.watch.console import (
    CommandFailed,
    Report,
    Row,
    Table,
    count_of,
    date_of,
    printable,
    size_in_words,
    user_name,
)
from wheelcache.watch.event_log import CLEARED, MAX_EVENTS
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.inquiries import CLEAR, PURGE, ask
from wheelcache.watch.observers import observer_of
from wheelcache.watch.problems import headline, problems_of
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.releases import Release
from wheelcache.watch.site import Own, Site

SHOWN: Final = (
    *("cache_and_workers", "answered_ratio_now", "hit_ratio_now", "stale_ratio_now", "hit_ratio", "requests"),
    *("requests_per_second", "entries", "max_entries", "bytes", "max_bytes", "evictions", "expirations", "load_ms"),
    *("load_failures", "store_errors", "stampedes_prevented", "thread", "lag"),
)
"""The figures in the table; ``--json`` has all. The first column has the names of caches and the pids of workers."""

OPTIONAL: Final = ("answered_ratio_now", "max_entries", "bytes", "max_bytes", "store_errors")
"""The figures that are left out of the table if they are unknown for all caches."""

CAUSE: Final = ("cause", "misses", "share")
GROUP: Final = (
    "group_of_keys",
    "requests",
    "hit_ratio",
    "main_cause",
    "loads",
    "load_failures",
    "load_seconds",
    "refused",
)
"""The columns of the tables of the causes of misses and of the groups of keys."""

SIDE: Final = (
    "side",
    "hit_ratio",
    "requests",
    "requests_per_second",
    "load_p50_ms",
    "load_p90_ms",
    "computing_per_minute",
)
CHANGE: Final = ("group_of_keys", "miss_ratio_before", "miss_ratio_after", "main_cause")
"""The columns of the tables of a comparison."""

LAST_FIGURES: Final = "No worker has the cache {!r} now; these are its last figures."

SHOWN_PATHS: Final = 3
"""The number of paths of each reason why pages are not stored. ``--json`` has more."""

Caches = Sequence[Cache]


def figures(caches: Caches) -> Report:
    """Return the figures that the workers of the site publish. The command fails if there is no worker."""
    site = Site(caches, Own.NONE)
    document = {
        "at": SystemClock.time(),
        "looked_in": [str(each.directory) for each in site.files],
        "problems": list(map(str, problems_of(site, site.events(MAX_EVENTS)))),
        "caches": [documents.cache(each, site.workers(each.name)) for each in site.caches],
    }
    return Report(document, [*_view(document, site)], site.nothing_found)


def _view(document: Row, site: Site) -> Iterator[str | Table]:
    found = site.caches
    if not found:
        return
    yield "\n".join(map(printable, document["problems"])) or headline((), [each.name for each in found])
    sections = [
        [_row(each["name"], each["total"]), *(_row(f"  {one['pid']}", one) for one in each["workers"])]
        for each in document["caches"]
    ]
    rows = [row for section in sections for row in section]
    left_out = {name for name in OPTIONAL if all(row[name] is None for row in rows)}
    if not any(row["stale_hits"] for row in rows):
        left_out.add("stale_ratio_now")
    columns = [name for name in SHOWN if name not in left_out]
    yield Table(sections, columns, "bold")
    for figures, each in zip(found, document["caches"], strict=True):
        if not each["workers"]:
            yield LAST_FIGURES.format(figures.name)
        if each["total"]["store"] is not None:
            yield _store_in_words(figures.name, each["total"]["store"])
        if figures.stats.pages is not None:
            yield pages_in_words(figures.name, figures.stats.pages)
    started = min((each.since for each in found if each.since is not None), default=site.time)
    yield (
        f'Counted since {date_of(started)}, including workers that have exited; "now" and "per second" refer to the '
        "last minute."
    )


def _row(head: str, figures: Row) -> Row:
    store = figures["store"]
    return {SHOWN[0]: head, **figures, "store_errors": None if store is None else store["errors"]}


def _store_in_words(name: str, store: Row) -> str:
    parts = []
    for kind in ("read", "write"):
        ms = store[f"{kind}_ms"]
        parts.append(f"{store[f'{kind}s']:,} {kind}s" + ("" if ms is None else f", {ms:,.1f} ms each"))
    parts += [f"{store[each]:,} {each}" for each in ("errors", "refused") if store[each]]
    if store["open_breakers"]:
        parts.append(f"not called by {store['open_breakers']:,} of its workers because it fails")
    return f"The store behind {name}: {'; '.join(parts)}."


def pages_in_words(name: str, pages: PageStats) -> str:
    """Return a line about the pages of the HTTP cache ``name``, and one about each reason why pages are not stored."""
    parts = [
        f"{pages.fresh:,} fresh and {pages.stale:,} stale responses",
        f"{size_in_words(pages.bytes_sent)} sent",
        f"{pages.stored:,} stored",
        *(f"{number:,} {word}" for word in ("revalidated", "collapsed") if (number := getattr(pages, word))),
    ]
    by_number = sorted(pages.not_stored.items(), key=lambda each: -each[1])
    if by_number:
        parts.append(f"not stored: {', '.join(f'{number:,} {reason}' for reason, number in by_number)}")
    lines = [f"The pages of {name}: {'; '.join(parts)}."]
    for reason, _ in by_number:
        sentence = f" {REASONS[reason].cause}" if reason in REASONS else ""
        lines.append(f"  {reason}:{sentence}{_busiest(pages.not_stored_paths.get(reason, {}))}")
    for cause, paths in pages.full_variants.items():
        lines.append(f"  Variants removed because of {cause}.{_busiest(paths)}")
    return "\n".join(lines)


def _busiest(paths: Mapping[str, int]) -> str:
    shown = ", ".join(f"{path} {number:,}" for path, number in [*paths.items()][:SHOWN_PATHS])
    return f" Most often: {shown}." if shown else ""


def misses(caches: Caches, name: str | None) -> Report:
    """Return why look-ups miss, the groups of keys, and advice about keys. The command fails if there is no worker.

    Raises:
        CommandFailed: if there is no cache ``name``, but there are others.
    """
    site = Site(caches, Own.NONE)
    found = _of_name(site.caches, name) if site.caches else []
    document = list(map(documents.misses, found))
    failure = site.nothing_found
    if failure is None and not any(each.workers for each in found):
        failure = LAST_FIGURES.format(name)
    return Report(document, [part for each in document for part in _misses(each)], failure)


def _misses(found: Row) -> Iterator[str | Table]:
    misses, by_cause = found["misses"], sorted(found["misses_by_cause"].items(), key=lambda each: -each[1])
    yield f"Cache {found['cache']!r}: {misses:,} of {found['requests']:,} look-ups missed"
    causes = [{"cause": name_of(cause), "misses": n, "share": n / misses} for cause, n in by_cause if n]
    groups = [{**each, **_shown_of_group(each)} for each in found["groups"]]
    yield from (Table([rows], columns) for rows, columns in ((causes, CAUSE), (groups, GROUP)) if rows)
    yield from (f"{each[0].upper()}{each[1:]}" for each in found["advice"])


def _shown_of_group(group: Row) -> Row:
    cause, number = max(group["misses_by_cause"].items(), key=lambda pair: pair[1])
    main_cause = f"{name_of(cause)} {number / group['misses']:.1%}" if number else None
    return {GROUP[0]: group["name"] or "(other)", "main_cause": main_cause}


def compare(caches: Caches, name: str | None, before: float | None) -> Report:
    """Return the comparison of the same stretch of time before and after a moment, for each cache that has one.

    Args:
        before: the moment, in seconds since 1970; None for the start of the latest release.

    Raises:
        CommandFailed: if no worker has the cache, there is no release, or one of the stretches is too short.
    """
    site, found = _named(caches, name)
    releases = site.releases()
    if before is None and not releases:
        raise CommandFailed("No start of a release is known. --before compares with a time.")
    mark = releases[-1] if before is None else Release(before, "")
    compared = [{"cache": each.name, **comparison.compare(site, each, mark)} for each in found]
    document = [each for each in compared if each["before"] is not None]
    if not document:
        raise CommandFailed(compared[0]["sentence"])
    return Report(document, [part for each in document for part in _compared(each)])


def _compared(found: Row) -> Iterator[str | Table]:
    release = f" (release {printable(found['release'])})" if found["release"] else ""
    since, sentence = date_of(found["at"]), printable(found["sentence"])
    yield f"Cache {found['cache']!r} since {since}{release}, {found['seconds']:,} seconds each: {sentence}"
    sides = [{"side": side, **found[side]} for side in ("before", "after")]
    yield Table([sides], SIDE)
    groups = [
        {
            "group_of_keys": each["name"] or "(other)",
            "miss_ratio_before": each["before"],
            "miss_ratio_after": each["after"],
            "main_cause": None if each["cause"] is None else name_of(each["cause"]),
        }
        for each in found["groups"]
    ]
    if groups:
        yield Table([groups], CHANGE)


def clear(caches: Caches, name: str | None) -> Report:
    """Ask all workers to empty the cache ``name``, or every cache if it is None. Entries that processes share are
    removed immediately.

    Raises:
        CommandFailed: if no worker has the cache.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    site = Site(caches, Own.NONE)
    known = site.reachable
    if not known:
        raise CommandFailed(site.nothing_found)
    _check_known(known, name)
    # One event for all caches, since the page shows only thirty.
    site.note(CLEARED, user_name(), name)
    figures = {each.name: each for each in site.caches}
    document: list[Row] = []
    view = []
    for each in known if name is None else [name]:
        shared = site.shared(each)
        if shared is not None:
            size = shared.stats().size
            observer_of(shared).run(CLEAR)
            document.append({"cache": each, "workers": 1, "entries": size})
            view.append(f"{each!r}: removed {count_of(size, 'entry', 'entries')}.")
            continue
        found = figures[each]
        site.ask(CLEAR, each)
        many = f"{found.workers} workers" if found.workers > 1 else f"worker {next(iter(found.processes)).pid}"
        size, within = found.stats.size, 2 * INTERVAL
        document.append({"cache": each, "workers": found.workers, "entries": size})
        view.append(
            f"{each!r}: asked {many} to remove {count_of(size, 'entry', 'entries')}, within {within:g} seconds."
        )
    return Report(document, view)


def purge(caches: Caches, name: str | None, target: str) -> Report:
    """Remove the pages of a target from the HTTP cache ``name`` in all workers, or from all HTTP caches if it is None.

    The command fails if a worker does not answer in time, after all caches were asked.

    Raises:
        NotPurgeable: see ``check_purgeable``.
        CommandFailed: if no worker has the HTTP cache.
        OSError, FileUnusable: if the workers cannot be asked.
    """
    # Refuse an invalid target before any worker is asked.
    check_purgeable(target)
    site, found = _named(caches, name, alive=True)
    document, view, failures = [], [], []
    for each in found:
        if each.stats.pages is None:
            continue
        site.note(PURGE, f"{user_name()}: {target}", each.name)
        answers = ask(site, site.workers_to_ask(each.name), each.name, {"kind": PURGE, "target": target})
        failures += answers.failures
        removed = sum(answer["purged"] for _, answer in answers.good)
        is_empty = not removed and not answers.failures
        outcome = (
            "nothing was stored"
            if is_empty
            else f"removed {count_of(removed, 'page')} in {count_of(len(answers.good), 'worker')}"
        )
        view.append(f"{each.name!r}: {outcome} for {target}.")
        document.append({"cache": each.name, "workers": len(answers.good), "pages": removed})
    if not document:
        failures = ["No running worker has an HTTP cache."]
    return Report(document, view, "\n".join(failures) or None)


def _named(caches: Caches, name: str | None, *, alive: bool = False) -> tuple[Site, list[CacheFigures]]:
    """Return the site, and the figures of the cache ``name``, or of every cache if it is None.

    Args:
        alive: leave out the caches that no worker has now.

    Raises:
        CommandFailed: if there are none.
    """
    site = Site(caches, Own.NONE)
    known = [each for each in site.caches if each.workers or not alive]
    if not known:
        raise CommandFailed(site.nothing_found)
    return site, _of_name(known, name)


def _of_name(known: Sequence[CacheFigures], name: str | None) -> list[CacheFigures]:
    _check_known([each.name for each in known], name)
    return [each for each in known if name in (None, each.name)]


def _check_known(known: Sequence[str], name: str | None) -> None:
    if name not in (None, *known):
        raise CommandFailed(f"No worker has a cache {name!r}: there are {', '.join(map(repr, known))}.")
