"""The results of rehearsals as JSON documents and in words, for the terminal and the dashboard.

A document has ``cache``, ``mode`` (null if no operator has chosen one), ``since``, ``sentence``, the sums of all views,
and ``views``. Each of these has ``view``, ``visits``, ``hits`` (requests that would have been hits), ``compared``,
``equal``, ``wrong``, ``outdated``, ``noise``, ``unclear``, ``differences`` (``kind``, ``url``, ``line``, ``stored``,
``visitor``) and ``not_stored`` (``reason``, ``number``, ``url``, ``detail``, ``where``, ``advice``). More keys may be
added.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final

from wheelcache.pages.reasons import BYPASSING, REASONS
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.rehearsals import Outcome

Result = dict[str, Any]

KINDS: Final = ("wrong", "outdated", "noise", "unclear", "equal")
COUNTED: Final = ("visits", "hits", "compared", *KINDS)
NOT_STORED: Final = "not stored: "

ENOUGH: Final = 100
"""Compared answers without a wrong one, from which the result is a reason to serve."""


def result_of(cache: str, outcomes: Mapping[tuple[str, str], Outcome], mode: str | None) -> Result:
    """Return the results of one cache.

    Args:
        outcomes: by view and kind: see ``pages.rehearsing``.
    """
    views: dict[str, Result] = defaultdict(lambda: {**dict.fromkeys(COUNTED, 0), "differences": [], "not_stored": []})
    for (view, kind), (number, _, example) in outcomes.items():
        if not number:
            # A later comparison has withdrawn it.
            continue
        row = views[view]
        row["view"] = view
        if kind in KINDS:
            row[kind] = number
            row["compared"] += number
        else:
            row["visits"] += number
        if kind == "hits":
            row["hits"] = number
        elif kind.startswith(NOT_STORED):
            reason = kind.removeprefix(NOT_STORED)
            path = example.get("url", "").partition("?")[0]
            advice = {**REASONS, **BYPASSING}.get(reason, REASONS["other"]).advice_for(path or "/*")
            row["not_stored"].append({"reason": reason, "number": number, "advice": advice, "url": "", **example})
        elif kind in ("wrong", "outdated", "unclear"):
            row["differences"].append({"kind": kind, **example})
    rows = sorted(views.values(), key=lambda row: (-row["wrong"], -row["visits"]))
    sums = {kind: sum(row[kind] for row in rows) for kind in COUNTED}
    since = min(each.since for each in outcomes.values())
    sentence = _sentence(sums, SystemClock.time() - since)
    return {"cache": cache, "mode": mode, "since": since, **sums, "sentence": sentence, "views": rows}


def _sentence(sums: Mapping[str, int], seconds: float) -> str:
    days, hours = round(seconds / 86_400), round(seconds / 3600)
    long = f"{days} days" if days >= 2 else f"{hours} hours" if hours >= 2 else "less than two hours"
    share = sums["hits"] / max(sums["visits"], 1)
    begin = f"{sums['visits']:,} visits in {long}, {share:.0%} would have been hits"
    if sums["wrong"]:
        return f"{begin}, {sums['wrong']:,} of {sums['compared']:,} compared answers wrong: mend these views first."
    if sums["compared"] < ENOUGH:
        return f"{begin}, none of {sums['compared']:,} compared answers wrong: too few to be certain, so wait."
    return f"{begin}, none wrong: serve."


def findings(result: Result, *, shows_texts: bool) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the differences and the reasons, each as a sentence, with lines of details.

    Args:
        shows_texts: whether the reader may see the differing texts and the queries of URLs, and not only the place.
    """
    for row in result["views"]:
        for each in row["differences"]:
            place = f"line {each['line']}" if each["line"] else "status, headers or cookies"
            texts = [f"stored:  {each['stored']}", f"visitor: {each['visitor']}"] if shows_texts else []
            url = each["url"] if shows_texts else each["url"].partition("?")[0]
            if each["kind"] == "unclear":
                place, texts = each["visitor"], []
            yield f"{each['kind']}: {row['view']}, {url}, {place}", texts
    for row in result["views"]:
        for each in row["not_stored"]:
            where = f", {each['where']}" if each.get("where") else ""
            asked = each["url"] if shows_texts else each["url"].partition("?")[0]
            url = f" at {asked}" if asked else ""
            why = f"{each.get('detail', each['reason'])}{where}"
            yield f"not stored: {row['view']}, {each['number']:,} of {row['visits']:,}{url}: {why}", [each["advice"]]
