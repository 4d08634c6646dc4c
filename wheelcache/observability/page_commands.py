"""The commands of HTTP caches that rehearse, for both frameworks: ``rehearsal`` and ``pages``.

With ``--json``, ``rehearsal`` prints a list with an object for each cache: ``cache``, ``mode`` (null if no operator has
chosen one), ``since``, ``sentence``, and ``views``, each with ``view``, ``visits``, ``hits``, ``compared``, ``equal``,
``wrong``, ``outdated``, ``noise``, ``differences`` (``kind``, ``url``, ``line``, ``stored``, ``visitor``) and
``not_stored`` (``reason``, ``number``, ``url``, ``detail``, ``where``, ``advice``). ``pages`` prints ``cache`` and
``mode``. More keys may be added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from wheelcache.observability.console import CommandFailed, Report, Row, Table, date_of, printable, user_name
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.publisher import INTERVAL
from wheelcache.observability.rehearsals import Outcome
from wheelcache.observability.site import Own, Site
from wheelcache.runtime.clock import SystemClock
from wheelcache.stats import REASONS

COUNTED: Final = ("visits", "hits", "compared", "equal", "wrong", "outdated", "noise")
SHOWN: Final = ("view", "visits", "hits", "compared", "wrong", "outdated", "noise")
DIFFERENT: Final = ("wrong", "outdated", "noise")
NOT_STORED: Final = "not stored: "

ENOUGH: Final = 100
"""Compared answers without a wrong one, from which the result is a reason to serve."""

Outcomes = Mapping[tuple[str, str], Outcome]


def rehearsal(caches: Sequence[ObservedCache], name: str | None, path: str | None = None) -> Report:
    """Return the results of the rehearsals.

    Args:
        path: only the differences and reasons of this URL; None for all.

    Raises:
        CommandFailed: if there are none.
    """
    site = Site(caches, Own.NONE)
    found, modes = site.rehearsed(), site.modes()
    results = [
        result_of(cache, outcomes, modes.get(cache), path) for cache, outcomes in found.items() if name in (None, cache)
    ]
    if not results:
        raise CommandFailed(
            "No HTTP cache of this site has rehearsed. Begin with: wheelcache pages rehearse, or the option "
            "rehearse=0.05 of the cache."
        )
    return Report(results, [part for each in results for part in _view(each)])


def result_of(cache: str, outcomes: Outcomes, mode: str | None, path: str | None = None) -> dict[str, Any]:
    """Return the results of the rehearsal of one cache."""
    views: dict[str, dict[str, Any]] = defaultdict(lambda: {**dict.fromkeys(COUNTED, 0)})
    for (view, kind), (number, _, example) in outcomes.items():
        row = views[view]
        row.setdefault("view", view)
        row.setdefault("differences", [])
        row.setdefault("not_stored", [])
        url = printable(example.get("url", ""))
        if kind in COUNTED:
            row[kind] = number
        if path is not None and url != path:
            continue
        if kind in DIFFERENT:
            row["differences"].append({"kind": kind, **example, "url": url})
        if kind.startswith(NOT_STORED):
            reason = kind.removeprefix(NOT_STORED)
            advice = REASONS.get(reason, REASONS["other"]).advice_for(url.partition("?")[0] or "/*")
            row["not_stored"].append({"reason": reason, "number": number, "advice": advice, **example, "url": url})
    rows = sorted(views.values(), key=lambda row: (-row["wrong"], -row["visits"]))
    total = {kind: sum(row[kind] for row in rows) for kind in COUNTED}
    since = min(each.since for each in outcomes.values())
    return {
        "cache": cache,
        "mode": mode,
        "since": since,
        **total,
        "sentence": _sentence(total, SystemClock.time() - since),
        "views": rows,
    }


def _sentence(total: Mapping[str, int], seconds: float) -> str:
    days, hours = round(seconds / 86_400), round(seconds / 3600)
    long = f"{days} days" if days >= 2 else f"{hours} hours" if hours >= 2 else "less than two hours"
    share = total["hits"] / max(total["visits"], 1)
    begin = f"{total['visits']:,} visits in {long}, {share:.0%} would have been hits"
    if total["wrong"]:
        return f"{begin}, {total['wrong']:,} of {total['compared']:,} compared answers wrong: mend these views first."
    if total["compared"] < ENOUGH:
        return f"{begin}, none of {total['compared']:,} compared answers wrong: too few to be certain, so wait."
    return f"{begin}, none wrong: serve."


def _view(result: Row) -> Iterator[str | Table]:
    mode = "" if result["mode"] is None else f", mode {result['mode']}"
    yield f"Cache {result['cache']!r}{mode}, since {date_of(result['since'])}"
    yield Table([result["views"]], SHOWN)
    for row in result["views"]:
        for each in row["differences"]:
            if each["kind"] != "noise":
                place = f"line {each['line']}" if each["line"] else "status, headers or cookies"
                yield f"{each['kind']}: {row['view']}, {each['url']}, {place}"
                yield f"  stored:  {printable(each['stored'])}\n  visitor: {printable(each['visitor'])}"
        for each in row["not_stored"]:
            where = f", {each['where']}" if each.get("where") else ""
            url = f" at {each['url']}" if each["url"] else ""
            yield f"not stored: {row['view']}, {each['number']:,} of {row['visits']:,}{url}: {_detail(each)}{where}"
            yield f"  {each['advice']}"
    yield result["sentence"]


def _detail(found: Row) -> str:
    return printable(found.get("detail", found["reason"]))


def change_mode(caches: Sequence[ObservedCache], name: str | None, mode: str) -> Report:
    """Let all workers serve pages, only rehearse, or neither.

    Raises:
        CommandFailed: if no worker has an HTTP cache of this name.
        OSError, FileUnusable: if the mode cannot be stored.
    """
    site = Site(caches, Own.NONE)
    names = [each.name for each in site.caches if each.counted.pages is not None and name in (None, each.name)]
    if not names:
        raise CommandFailed(site.nothing_found or "There is no worker with such an HTTP cache.")
    for each in names:
        site.change_mode(each, mode)
        site.note(f"pages {mode}", user_name(), each)
    within = 2 * INTERVAL
    lines = [f"{each!r}: all workers have the mode {mode} within {within:g} seconds." for each in names]
    return Report([{"cache": each, "mode": mode} for each in names], lines)
