"""The results of rehearsals as JSON documents and in words, for the terminal and the dashboard.

A document has ``cache``, ``mode`` (null if no operator has chosen one), ``since``, ``verdict`` ("serve", "apply",
"wait" or "cannot gain"), the same as a ``sentence``, the ``block`` of rules and options to paste ("" if there is
nothing to change), the sums of all views, and ``views``. Each of these has ``view``, ``visits``, ``hits`` (requests
that would have been hits), ``compared``, ``equal``, ``wrong``, ``outdated``, ``noise``, ``unclear``, ``differences``
(``kind``, ``url``, ``line``, ``header``, ``stored``, ``visitor``) and ``not_stored`` (``reason``, ``number``, ``url``,
``detail``, ``where``, ``advice``). A difference of the kind "refuted" is one of a page that rules would have stored,
and which are therefore not in the block. More keys may be added.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import unquote

from wheelcache.pages.needs import Obstacle
from wheelcache.pages.reasons import BYPASSING, REASONS, Reason
from wheelcache.pages.rehearsing import GAINS, NEEDS, NOT_STORED, OPTIONS, PROVED, REFUTED
from wheelcache.runtime.clock import SystemClock
from wheelcache.watch.rehearsal_advice import LEAST_PROVED, Advice, advice_of, block_of, share_of
from wheelcache.watch.rehearsals import Outcome

Result = dict[str, Any]

KINDS: Final = ("wrong", "outdated", "noise", "unclear", "equal")
COUNTED: Final = ("visits", "hits", "compared", *KINDS)
OF_TRIALS: Final = tuple(f"{each}: " for each in (NEEDS, GAINS, PROVED, REFUTED))

ENOUGH: Final = 100
"""Visits, and compared answers without a wrong one, from which the result is a reason to serve."""

FEW: Final = 0.1
"""A site cannot gain if a smaller share of the visits would be hits, whatever the rules."""

TO_CHANGE: Final = ", which its author would have to change"

SERVE, APPLY, WAIT, CANNOT_GAIN = "serve", "apply", "wait", "cannot gain"


def result_of(cache: str, outcomes: Mapping[tuple[str, str], Outcome], mode: str | None) -> Result:
    """Return the results of one cache.

    Args:
        outcomes: by view and kind: see ``pages.rehearsing``.
    """
    advice = advice_of(outcomes)
    views: dict[str, Result] = defaultdict(lambda: {**dict.fromkeys(COUNTED, 0), "differences": [], "not_stored": []})
    for (view, kind), (number, _, example) in outcomes.items():
        if not number or kind == OPTIONS or kind.startswith(OF_TRIALS):
            # A later comparison has withdrawn it, or it is a part of the advice.
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
        elif kind.startswith(f"{NOT_STORED}: "):
            reason = kind.removeprefix(f"{NOT_STORED}: ")
            found = {"reason": reason, "number": number, "url": "", **example}
            row["not_stored"].append(found | {"advice": _advice_on(found, view, advice)})
        elif kind in ("wrong", "outdated", "unclear"):
            row["differences"].append({"kind": kind, **example})
    for trial in advice.trials:
        if trial.difference is not None and trial.view in views:
            views[trial.view]["differences"].append({"kind": REFUTED, **trial.difference})
    rows = sorted(views.values(), key=lambda row: (-row["wrong"], -row["visits"]))
    sums = {kind: sum(row[kind] for row in rows) for kind in COUNTED}
    since = min(each.since for each in outcomes.values())
    verdict, sentence = _verdict(sums, rows, advice, SystemClock.time() - since)
    block = "" if verdict == CANNOT_GAIN else block_of(advice.lines, sums["visits"])
    found = {"cache": cache, "mode": mode, "since": since, "verdict": verdict, "sentence": sentence, "block": block}
    return {**found, **sums, "views": rows}


def _advice_on(found: Mapping[str, Any], view: str, advice: Advice) -> str:
    """Return what to change so that a page is stored."""
    reason, detail = found["reason"], found.get("detail", "")
    trial = next((each for each in advice.trials if each.view == view and each.row == found.get("row")), None)
    pattern = unquote(found["url"].partition("?")[0]) or "/*" if trial is None or not trial.pattern else trial.pattern
    if trial in advice.safe:
        return "The rules below store this page."
    if trial is not None and trial.refuted:
        return "No rule is safe: compared answers differed."
    if trial is not None and trial.stuck is None:
        return f"Not certain yet: fewer than {LEAST_PROVED} answers without the visitor were compared."
    stuck = None if trial is None else trial.stuck
    if stuck is not None and stuck.reason != reason:
        advised = _reason(stuck.reason).advice_for(pattern, stuck.detail, advice.sessions)
        return f"A rule would not suffice, because of the next obstacle: {_in_words(stuck)}. {advised}"
    return _reason(reason).advice_for(pattern, detail, advice.sessions)


def _reason(name: str) -> Reason:
    return {**BYPASSING, **REASONS}.get(name, REASONS["other"])


def _in_words(obstacle: Obstacle) -> str:
    where = f" ({obstacle.where})" if obstacle.where else ""
    return f"{described(obstacle.reason, obstacle.detail)}{where}"


def described(reason: str, detail: str) -> str:
    """Return the detail of a reason, or what it means if it has no detail."""
    if detail and detail != reason:
        return detail
    cause = _reason(reason).cause
    return cause[0].lower() + cause[1:].removesuffix(".")


def _verdict(sums: Mapping[str, int], rows: list[Result], advice: Advice, seconds: float) -> tuple[str, str]:
    """Return the verdict, and the same as a sentence."""
    visits, hits, compared, wrong = (sums[kind] for kind in ("visits", "hits", "compared", "wrong"))
    if visits < ENOUGH:
        return WAIT, f"Wait: {_visits(visits)} in {_duration(seconds)} {'is' if visits == 1 else 'are'} too few."
    possible = sum(each.visits for each in advice.trials if each.stuck is None and not each.refuted)
    right = hits - sum(row["hits"] for row in rows if row["wrong"])
    if right + max(possible, advice.gains) < FEW * visits:
        why = f"{wrong:,} of {compared:,} compared answers were wrong" if wrong else _main_obstacle(sums, advice)
        return CANNOT_GAIN, f"This site cannot gain: {why}."
    share = share_of(hits, visits)
    begin = f"{wrong:,} of {compared:,} compared answers were wrong" if wrong else ""
    if advice.lines:
        after = share_of(right + advice.gains, visits)
        rise = f"hits go from {share} to about {after} of {_visits(visits)}"
        return APPLY, f"Apply this and rehearse again: {f'{begin}, and ' if begin else ''}{rise}."
    if wrong:
        return APPLY, f"Fix these views and rehearse again: {begin}."
    if compared < ENOUGH:
        return WAIT, f"Wait: {compared:,} compared answers in {_duration(seconds)} are too few."
    would = f"{share} of {_visits(visits)} would have been hits"
    return SERVE, f"Serve: none of {compared:,} compared answers was wrong, and {would}."


def _main_obstacle(sums: Mapping[str, int], advice: Advice) -> str:
    """Return the obstacle of the most visits."""
    numbers: Counter[Obstacle] = Counter()
    for each in advice.trials:
        if each.stuck is not None:
            numbers[each.stuck] += each.visits
    # The sessions that it begins are the obstacles of later visits.
    begun = [each for each in numbers if each.reason == "set-cookie" and each.where.startswith("session ")]
    if begun:
        what, _, place = max(begun, key=numbers.__getitem__).where.removeprefix("session ").partition(": ")
        return f"every new session gets a {what} at `{place}`{TO_CHANGE}"
    if not numbers:
        return f"none of {_visits(sums['visits'])} was for a page that could be stored"
    obstacle, number = numbers.most_common(1)[0]
    share = f"for {share_of(number, sums['visits'])} of the visits, the page is not stored: "
    words = described(obstacle.reason, obstacle.detail)
    what, _, place = obstacle.where.rpartition(": ")
    return f"{share}{words}" + (f" at `{place}`{TO_CHANGE}" if place else "")


def _visits(number: int) -> str:
    return f"{number:,} visit{'' if number == 1 else 's'}"


def _duration(seconds: float) -> str:
    for unit, size in (("day", 86_400), ("hour", 3600), ("minute", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}s"
    return f"{max(seconds, 1.0):.0f} seconds"


def findings(result: Result, *, shows_texts: bool) -> Iterator[tuple[str, list[str]]]:
    """Iterate over the differences and the reasons, each as a sentence, with lines of details.

    Args:
        shows_texts: whether the reader may see the differing texts and the queries of URLs, and not only the place.
    """
    for row in result["views"]:
        for each in row["differences"]:
            place = f"line {each['line']}" if each["line"] else f"header {each.get('header', '')}"
            texts = [f"stored:  {each['stored']}", f"visitor: {each['visitor']}"] if shows_texts else []
            url = each["url"] if shows_texts else each["url"].partition("?")[0]
            if each["kind"] == "unclear":
                place, texts = each["visitor"], []
            kind = "not safe to store" if each["kind"] == REFUTED else each["kind"]
            yield f"{kind}: {row['view']}, {url}, {'status' if place == 'header status' else place}", texts
    # If the site cannot gain, the sentence has named the main obstacle.
    for row in result["views"] if result["verdict"] != CANNOT_GAIN else ():
        for each in row["not_stored"]:
            where = f", {each['where']}" if each.get("where") else ""
            asked = each["url"] if shows_texts else each["url"].partition("?")[0]
            url = f" at {asked}" if asked else ""
            why = f"{described(each['reason'], each.get('detail', ''))}{where}"
            yield f"not stored: {row['view']}, {each['number']:,} of {row['visits']:,}{url}: {why}", [each["advice"]]
