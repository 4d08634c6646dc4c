"""The figures of one cache on the dashboard, in a span of time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import floor, isfinite
from operator import attrgetter
from typing import Any, Final, NamedTuple

from wheelcache.engine.stats import MISSES, REMOVALS, Stats
from wheelcache.watch import documents
from wheelcache.watch.comparison import compare, mark_in
from wheelcache.watch.dashboard.refusals import Refused
from wheelcache.watch.event_log import CLEARED, KILLED, Event
from wheelcache.watch.figures import CacheFigures, WorkerFigures
from wheelcache.watch.problems import NO_PROBLEM, Problem, in_words
from wheelcache.watch.rehearsal_results import COUNTED, findings, result_of
from wheelcache.watch.releases import TOGETHER, Release
from wheelcache.watch.site import Site
from wheelcache.watch.spans import Span
from wheelcache.watch.tables import DAY, HOUR, STEP

MOST_VIEWS: Final = 100
MOST_FINDINGS: Final = 100
"""Of a rehearsal, beginning with the views that have wrong pages. The command shows all."""

CHARTED_GROUPS: Final = 6
"""The groups with a line of their own in the chart of the computing time."""

MARKED: Final = {CLEARED: "Cleared", KILLED: "Ended abruptly:"}
"""The kinds of events that are marked in the charts, and their first words."""

NOTHING_COMPARED: Final = "none"

SPANS: Final = {float(HOUR): "Last hour", float(DAY): "Last day"}
"""The names of spans in a sentence."""


class Wanted(NamedTuple):
    """The span and the comparison that a reader wants.

    Attributes:
        seconds: the length of a span that ends now; None for a fixed one.
        since, until: the fixed span, in seconds since 1970.
        compared: the moment to compare; None for the latest release in the span, and NOTHING_COMPARED for none.
    """

    seconds: float | None = float(HOUR)
    since: float = 0.0
    until: float = 0.0
    compared: float | str | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Sequence[str]]) -> Wanted:
        """Return the span and the comparison that the fields of a query select.

        Raises:
            Refused: if one of them is invalid.
        """
        compared: float | str | None = None
        if fields.get("compare"):
            compared = NOTHING_COMPARED if fields["compare"][0] == NOTHING_COMPARED else _number(fields, "compare")
        if "from" not in fields and "until" not in fields:
            seconds = _number(fields, "span") if "span" in fields else float(HOUR)
            if not 0 < seconds <= DAY:
                raise Refused(f"span must be a number of seconds above 0 and at most {DAY}, not {seconds:g}", 400)
            return cls(seconds, compared=compared)
        since, until = _number(fields, "from"), _number(fields, "until")
        if since >= until:
            raise Refused(f"from must be before until, not {since:.10g} and {until:.10g}", 400)
        return cls(None, since, until, compared)

    def span(self, site: Site) -> Span:
        """Return the complete steps of the span."""
        return site.span(self.since, self.until) if self.seconds is None else site.span(site.edge - self.seconds)

    def words(self, figures: CacheFigures, site: Site) -> str:
        """Return the name of the span of a cache, at the beginning of a sentence."""
        if self.seconds is None:
            return "In this span"
        age = site.time - (figures.since or 0.0)
        if age < self.seconds:
            return f"Since the start {in_words(max(0.0, age))} ago"
        return SPANS.get(self.seconds, f"Last {in_words(self.seconds)}")

    def whole(self, site: Site, span: Span) -> Span:
        """Return the span for sums: if it ends now, with the counts of the step that is not over."""
        return span if self.seconds is None else span._replace(until=floor(site.time) + STEP)

    def mark(self, releases: list[Release], span: Span, since: float) -> Release | None:
        """Return the moment to compare; None if there is none.

        Args:
            since: the time of the first figures of the cache. Nothing is known from before the first release.
        """
        if self.compared is None:
            return mark_in([each for each in releases if each.at > since + TOGETHER], span)
        if isinstance(self.compared, str):
            return None
        # The page has the time of a release as a decimal number.
        at = self.compared
        return next((each for each in releases if abs(each.at - at) < 0.01), Release(at, ""))


def _number(fields: Mapping[str, Sequence[str]], name: str) -> float:
    given = fields[name][0] if fields.get(name) else ""
    try:
        found = float(given)
    except ValueError:
        found = float("nan")
    if not isfinite(found):
        raise Refused(f"{name} must be a number of seconds, not {given[:100]!r}", 400)
    return found


def details(
    figures: CacheFigures,
    site: Site,
    span: Span,
    wanted: Wanted,
    problems: Iterable[Problem],
    events: Iterable[Event],
) -> dict[str, Any]:
    """Return the document of the page of one cache.

    Args:
        span: the complete steps of the wanted span.
        problems, events: those of the site.
    """
    name = figures.name
    within = site.within(figures, span, wanted.whole(site, span).until, CHARTED_GROUPS)
    total = within.total()
    steps, releases = within.steps(span), site.releases()
    mark = wanted.mark(releases, span, figures.since or 0.0)
    return {
        "sentence": _sentence(figures, total, problems, wanted.words(figures, site)),
        "comparison": None if mark is None else compare(site, figures, mark),
        "marks": sorted(_marks(name, span, steps, releases, events), key=lambda each: each["at"]),
        "history": _history(span, steps, within.computing),
        "total": documents.totals(total, figures),
        "times": {"loads": documents.percentiles_ms(total.load_buckets), **_store_times(total)},
        "groups": documents.groups(total),
        "store": documents.store(total.store),
        "pages": _pages(figures, total),
        "workers": [_worker(each) for each in site.workers(name)],
    }


def _sentence(figures: CacheFigures, total: Stats, problems: Iterable[Problem], span: str) -> dict[str, Any]:
    for each in problems:
        if each.cache == figures.name:
            return {"state": "bad", "text": f"{each.alone}.", "place": each.place, "group": each.group}
    text = f"{NO_PROBLEM}. {span}: {hits_in_words(total)}."
    return {"state": "good", "text": text, "place": None, "group": None}


def hits_in_words(total: Stats) -> str:
    """Return the share of look-ups that hit."""
    if total.requests == 1:
        return f"1 look-up, {'a hit' if total.hits else 'a stale hit' if total.stale_hits else 'a miss'}"
    return f"{total.hit_ratio:.1%} hits" if total.requests else "no look-ups"


def _marks(
    name: str, span: Span, steps: Mapping[int, Any], releases: Iterable[Release], events: Iterable[Event]
) -> Iterator[dict[str, Any]]:
    for each in releases:
        if span.has(each.at):
            yield {"at": each.at, "kind": "release", "text": str(each).capitalize()}
    for start, step in steps.items():
        if step.started:
            workers = "worker" if step.started == 1 else "workers"
            yield {"at": span.end_of(start), "kind": "started", "text": f"{step.started} {workers} started"}
    for event in events:
        if event.kind in MARKED and event.cache in (None, name) and span.has(event.at):
            yield {"at": event.at, "kind": event.kind, "text": f"{MARKED[event.kind]} {event.sentence()}"}


def _history(span: Span, steps: Mapping[int, Any], computing: Mapping[str, Mapping[int, float]]) -> dict[str, Any]:
    seconds = {start: span.end_of(start) - start for start in steps}
    return {
        "step": span.step,
        "at": [span.end_of(start) for start in steps],
        **{
            line: [_rounded(read(step, seconds[start])) for start, step in steps.items()]
            for line, read in HISTORY.items()
        },
        "misses": _per_second(MISSES, steps, seconds),
        "removals": _per_second(REMOVALS, steps, seconds),
        "computing": _computing(steps, seconds, computing),
    }


def _rounded(value: float | None) -> float | None:
    """Return a value as precisely as a chart shows it, which halves the document."""
    return value if value is None else round(value, 4)


def _per_second(
    names: Mapping[str, str], steps: Mapping[int, Any], seconds: Mapping[int, int]
) -> dict[str, list[float | None]]:
    """Return the counts of each cause that occurred in each step, per second, the most frequent cause first."""
    found = {
        cause: [_rounded(getattr(step, name) / seconds[start]) for start, step in steps.items()]
        for cause, name in names.items()
    }
    return {
        cause: found[cause]
        for cause in sorted(found, key=lambda each: -sum(filter(None, found[each])))
        if any(found[cause])
    }


def _computing(
    steps: Mapping[int, Any], seconds: Mapping[int, int], computing: Mapping[str, Mapping[int, float]]
) -> list[dict[str, Any]]:
    """Return the seconds of computing per minute, for the groups that took most of it, and for all others together."""
    most = sorted(computing, key=lambda group: -sum(computing[group].values()))[:CHARTED_GROUPS]
    lines: list[tuple[str | None, dict[int, float]]] = [(group, dict(computing[group])) for group in most]
    rest = {start: step.load_seconds - sum(line.get(start, 0.0) for _, line in lines) for start, step in steps.items()}
    if any(rest.values()):
        lines.append((None, rest))
    return [
        {"group": group, "seconds": [_rounded(60 * line.get(start, 0.0) / seconds[start]) for start in steps]}
        for group, line in lines
    ]


def _mean_of_store(kind: str) -> Callable[[Any, int], float | None]:
    names = [f"{kind}_{place}" for place in range(len(Stats().load_buckets))]
    calls = attrgetter(*names)
    seconds = attrgetter(f"{kind}_seconds")
    return lambda step, _: documents.mean_ms(seconds(step), sum(calls(step)))


HISTORY: Final[dict[str, Callable[[Any, int], float | None]]] = {
    "hit_ratio": lambda step, _: _share(step.hits, step),
    "store_ratio": lambda step, _: _share(step.store_hits, step),
    "stale_ratio": lambda step, _: _share(step.stale_hits, step),
    "requests_per_second": lambda step, seconds: (step.hits + step.stale_hits + step.misses) / seconds,
    "entries": lambda step, _: step.entries,
    "bytes": lambda step, _: step.memory or (None if step.entries else 0.0),
    "load_ms": lambda step, _: documents.mean_ms(step.load_seconds, step.loads + step.load_failures),
    "store_read_ms": _mean_of_store("read"),
    "store_write_ms": _mean_of_store("write"),
    "store_errors_per_second": lambda step, seconds: (step.read_errors + step.write_errors) / seconds,
    "store_refused_per_second": lambda step, seconds: (step.read_refused + step.write_refused) / seconds,
}
"""The lines of the charts: functions of a step and its length in seconds. None leaves a gap."""


def _share(count: float, step: Any) -> float | None:
    requests = step.hits + step.stale_hits + step.misses
    return count / requests if requests else None


def _store_times(total: Stats) -> dict[str, Any]:
    return {} if total.store is None else {"store_reads": documents.percentiles_ms(total.store.reads.buckets)}


def _pages(figures: CacheFigures, total: Stats) -> dict[str, Any] | None:
    """Return the pages of the span, with the paths since the start of the first worker."""
    if figures.stats.pages is None:
        return None
    since_start = documents.pages(figures.stats.pages) or {}
    paths = {name: since_start[name] for name in ("not_stored_paths", "full_variants")}
    return {**(documents.pages(total.pages) or {}), **paths}


def _worker(figures: WorkerFigures) -> dict[str, Any]:
    stats = figures.stats
    return {
        **documents.worker(figures),
        "is_this": figures.pid == os.getpid(),
        "now": documents.last_minute(figures.minute),
        "total": documents.totals(stats, figures),
        "breaker_open": stats.store is not None and stats.store.open_breakers > 0,
    }


def rehearsal(name: str, site: Site, *, shows_texts: bool) -> dict[str, Any] | None:
    """Return the results of a rehearsal of the pages of a cache; None without one."""
    outcomes, mode = site.rehearsed().get(name), site.modes().get(name)
    if outcomes is None:
        return None
    result = result_of(name, outcomes, mode)
    found = [{"sentence": each, "details": details} for each, details in findings(result, shows_texts=shows_texts)]
    views = [{kind: row[kind] for kind in ("view", *COUNTED)} for row in result["views"][:MOST_VIEWS]]
    summary = {name: result[name] for name in ("sentence", "block", "mode")}
    return {**summary, "views": views, "findings": found[:MOST_FINDINGS]}
