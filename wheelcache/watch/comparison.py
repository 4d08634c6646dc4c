"""Compare the same stretch of time before and after a moment, such as the start of a release.

A change of a miss ratio is listed only if it is beyond chance, by the z-test for two proportions (NIST/SEMATECH
e-Handbook of Statistical Methods, section 7.3.3). The level of the test is divided by the number of compared groups
(Bonferroni), since one of many groups differs by chance.

A document has ``at`` (the moment), ``release`` (its name, or empty), ``seconds`` (the length of each stretch),
``sentence``, ``before`` and ``after``, and ``groups``: the groups of keys whose misses changed most, each with
``name``, ``before`` and ``after`` (the share of its look-ups that missed, or null without look-ups),
``requests_before`` and ``requests_after`` (its look-ups), and ``cause`` (the most frequent cause of the additional
misses, or null). ``before`` and ``after`` have ``hit_ratio``, ``requests`` (look-ups), ``requests_per_second``,
``load_p50_ms`` and ``load_p90_ms`` (milliseconds, or null without loads), ``computing_per_minute`` (seconds), and
``is_cold`` (whether the cache was empty when the stretch began). If the two sides cannot be compared, ``seconds``,
``before`` and ``after`` are null, and the sentence gives the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, sqrt
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from wheelcache.core.contract import MissCause
from wheelcache.engine.stats import GroupStats, Stats
from wheelcache.watch.documents import percentiles_ms
from wheelcache.watch.event_log import CLEARED, MAX_EVENTS
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.key_groups import Groups
from wheelcache.watch.releases import Release
from wheelcache.watch.rows import NO_GROUP, group_of
from wheelcache.watch.spans import Span
from wheelcache.watch.tables import DAY, HOUR, LONG_STEP, STEP

if TYPE_CHECKING:
    from wheelcache.watch.site import Site

LEAST_SECONDS: Final = 60
"""The least length of a stretch."""

LEAST_LOOKUPS: Final = 60
"""The look-ups of a cache, or of a group, on each side before anything is said about the change."""

LEVEL: Final = 0.001
"""The probability of calling one of the changes real although all of them are chance. It is small because look-ups are
not independent: one visitor, or one expired page, causes several misses."""

LEAST_EXPECTED: Final = 5.0
"""The hits and the misses that each side must have on average for the normal approximation."""

SHOWN_GROUPS: Final = 5

LEAST_MISSES: Final = 20
"""The additional misses of a group before the sentence names it, or the change is a problem."""

LEAST_FACTOR: Final = 1.5
LEAST_SHARE: Final = 0.25
"""The share of all additional misses that a group must have before the sentence names it."""

WORSE_POINTS: Final = 0.02
WORSE_FACTOR: Final = 2.0
MUCH_WORSE_POINTS: Final = 0.2
"""A group is worse since a release if its miss ratio has risen by WORSE_POINTS and by WORSE_FACTOR, or by
MUCH_WORSE_POINTS."""

WORSE_BEFORE: Final = 600
WORSE_RECENTLY: Final = 300
"""Seconds of the stretches before and after a release that decide whether a group is worse now."""

COLD: Final = 0.5
"""A cache is cold if it has fewer entries than this share of those that it had before."""

WARM: Final = 0.9
"""A cache that was cold is warm when it has this share again, or after WARM_UP."""

WARM_UP: Final = 600
"""The most seconds after it was emptied for which misses may be due to the empty cache."""

RESTARTED: Final = 120
"""Seconds within which all workers of a release are started."""

AFTER: Final = {
    "expired": "because of expired entries",
    "evicted": "because of evicted entries",
    "not stored": "because values were not stored",
    "deleted": "after deletes",
    "cleared": "after the cache was cleared",
    "tag": "after drops of a tag",
    "another process": "after changes or deletes by another worker",
    "new or long gone": "for first requests",
}
"""The phrases for the causes of misses, by the value of their ``MissCause``."""

OF_EMPTY_CACHE: Final = (MissCause.NEW.value, MissCause.UNKNOWN.value, MissCause.CLEARED.value)
"""The causes of the misses of an empty cache."""


class Side(NamedTuple):
    """The figures of a cache on one side of the moment."""

    span: Span
    stats: Stats
    groups: Groups
    is_cold: bool

    def document(self) -> dict[str, Any]:
        stats, seconds = self.stats, self.span.until - self.span.since
        times = percentiles_ms(stats.load_buckets)
        return {
            "hit_ratio": stats.hit_ratio if stats.requests else None,
            "requests": stats.requests,
            "requests_per_second": stats.requests / seconds,
            **{f"load_{name}_ms": times[name] for name in ("p50", "p90")},
            "computing_per_minute": 60 * stats.load_seconds / seconds,
            "is_cold": self.is_cold,
        }


@dataclass(frozen=True, slots=True)
class Change:
    """The figures of one group of keys on both sides.

    Attributes:
        mark: the moment between them in words, such as "release 7f3c"; empty if the text need not name it.
    """

    name: str
    old: GroupStats
    new: GroupStats
    mark: str = ""

    @property
    def more(self) -> float:
        """The misses that there would not be if as many of the look-ups as before had missed: a busier hour, or an
        idle one, is no change."""
        return self.new.misses - self.old.miss_ratio * self.new.requests

    @property
    def rise(self) -> float:
        """The points by which the miss ratio has risen, from -1.0 to 1.0."""
        return self.new.miss_ratio - self.old.miss_ratio

    @property
    def more_by_cause(self) -> dict[str, float]:
        """The additional misses by cause."""
        times = self.new.requests / self.old.requests if self.old.requests else 0.0
        return {cause: self.new.misses_by_cause[cause] - n * times for cause, n in self.old.misses_by_cause.items()}

    @property
    def cause(self) -> str | None:
        """The most frequent cause of the additional misses; None if there are none."""
        more = self.more_by_cause
        return max(more, key=more.__getitem__) if self.more > 0 else None

    @property
    def is_worse(self) -> bool:
        """Return whether the group misses so much more often that it is a problem."""
        points, before = self.rise, self.old.miss_ratio
        is_multiple = points >= WORSE_POINTS and self.new.miss_ratio >= WORSE_FACTOR * before
        return self.more >= LEAST_MISSES and (is_multiple or points >= MUCH_WORSE_POINTS)

    def row(self) -> dict[str, Any]:
        before, after = (each.miss_ratio if each.requests else None for each in (self.old, self.new))
        requests = {"requests_before": self.old.requests, "requests_after": self.new.requests}
        return {"name": self.name, "before": before, "after": after, **requests, "cause": self.cause}

    def text(self) -> str:
        """Return the part of a sentence that follows the name of the group."""
        before, after = self.old.miss_ratio, self.new.miss_ratio
        if not self.old.requests:
            return f"new, {after:.0%} of look-ups miss{self._reason()}"
        verb = "rose" if after > before else "fell"
        since = f" since {self.mark}" if self.mark else ""
        return f"misses {verb} from {_percent(before)} to {_percent(after)}{since}{self._reason()}"

    def _reason(self) -> str:
        """Return the main reason for the additional misses; empty without one."""
        if self.cause not in AFTER or self.cause is None:
            return ""
        share = self.more_by_cause[self.cause] / self.more
        return "" if share < 0.5 else f", {'all' if share >= 0.995 else 'mostly'} {AFTER[self.cause]}"


def mark_in(releases: list[Release], span: Span) -> Release | None:
    """Return the latest release that began within a span, or an hour before its end; None if there is none."""
    since = min(span.since, span.until - HOUR)
    return next((each for each in reversed(releases) if since <= each.at < span.until), None)


def compare(site: Site, figures: CacheFigures, mark: Release) -> dict[str, Any]:
    """Return the comparison of a cache before and after ``mark``. Neither side contains the start of another release.

    If the sides cannot be compared, the document has only a sentence, with the reason.
    """
    document = {"at": mark.at, "release": mark.name, "seconds": None, "before": None, "after": None, "groups": []}
    spans = _spans(site, figures, mark)
    if isinstance(spans, str):
        return {**document, "sentence": spans}
    before, after = _sides(site, figures, spans)
    if not before.stats.requests:
        return {**document, "sentence": "Nothing to compare: there were no look-ups before."}
    changes = changes_between(before.groups, after.groups)
    return {
        **document,
        "seconds": spans[0].until - spans[0].since,
        "sentence": sentence_of(before, after, changes),
        "before": before.document(),
        "after": after.document(),
        "groups": [each.row() for each in changes[:SHOWN_GROUPS]],
    }


def worse_groups(site: Site, figures: CacheFigures) -> list[Change]:
    """Return the groups that now miss more often than before the latest release, if that began within the last hour,
    those with the most additional misses first.

    Only the recent misses decide. While a cache that the release or an operator has emptied is cold, the misses of an
    empty cache do not count. The group without a name never counts, since its keys may be others than before.
    """
    edge = site.edge
    mark = next((each for each in reversed(site.releases()) if edge - HOUR < each.at <= edge), None)
    spans = "" if mark is None else _spans(site, figures, mark)
    if mark is None or isinstance(spans, str):
        return []
    # Every look at the page and every scrape asks this, so the stretches are short.
    before = spans[0]._replace(since=max(spans[0].since, spans[0].until - WORSE_BEFORE))
    since, is_cold = _recent(site, figures, spans)
    groups = (site.within(figures, each).groups for each in (before, site.span(since)))
    changes = changes_between(*groups)
    worse = _worse(changes)
    if worse and (is_cold or _is_cleared_by_operator(site, figures)):
        others = _worse(map(_without_misses_of_empty_cache, changes))
        worse = [each for each in others if is_beyond_chance(each, len(changes))]
    return [replace(each, mark=mark.phrase) for each in worse]


def _worse(changes: Iterable[Change]) -> list[Change]:
    return [each for each in changes if each.name and each.old.requests and each.is_worse]


def _is_cleared_by_operator(site: Site, figures: CacheFigures) -> bool:
    """Return whether an operator has cleared the cache recently. A release whose code clears it again and again is not
    excused by that."""
    since = site.edge - WARM_UP
    return any(
        each.kind == CLEARED and each.subject and each.cache in (figures.name, None) and each.at >= since
        for each in site.events(MAX_EVENTS)
    )


def _spans(site: Site, figures: CacheFigures, mark: Release) -> tuple[Span, Span] | str:
    """Return the stretches before and after ``mark``, or the reason why there are none in a sentence."""
    releases = [each.at for each in site.releases()]
    edge = site.edge
    kept = edge - DAY
    # The cache may be younger. A start after the mark is that of a clock which was set back.
    starts = *releases, figures.since or 0.0
    first = max([kept, *(each for each in starts if each < mark.at)])
    last = min([edge, *(each for each in releases if each > mark.at)])
    length = LONG_STEP if mark.at - min(last - mark.at, mark.at - first) < edge - HOUR else STEP
    # The step of the mark is on neither side.
    end, begin = floor(mark.at / length) * length, ceil(mark.at / length) * length
    seconds = floor(min(last - begin, end - ceil(first / length) * length) / length) * length
    if seconds >= LEAST_SECONDS:
        return Span(end - seconds, end, seconds), Span(begin, begin + seconds, seconds)
    ago = site.time - mark.at
    if ago < 0:
        return "Nothing to compare: that time is yet to come."
    if last == edge and last - begin < LEAST_SECONDS:
        event = "the release started" if mark.at in releases else "that was"
        return f"Wait {'a minute' if ago < LEAST_SECONDS else 'some seconds'}: {event} only {ago:.0f} s ago."
    return "Nothing to compare: the figures before or after cover less than a minute."


def _sides(site: Site, figures: CacheFigures, spans: tuple[Span, Span]) -> tuple[Side, Side]:
    """Return both sides. The entries before show whether the cache was emptied."""
    full = max(_full(site, figures, each) for each in spans)
    found = []
    for span in spans:
        within = site.within(figures, span)
        found.append(Side(span, within.total(), within.groups, _begins_empty(site, figures, span.since, full)))
    return found[0], found[1]


def _begins_empty(site: Site, figures: CacheFigures, since: int, full: float) -> bool:
    """Return whether the cache was cleared, or its workers were restarted, when a stretch began."""
    steps = _steps(site, figures, since - LONG_STEP, since + RESTARTED)
    if not any(each.started or each.clearings for each in steps):
        return False
    entries = [each.entries for each in steps[-RESTARTED // STEP :]]
    # Processes that share entries are replaced without emptying the cache, but nobody may count them for a moment.
    level: float = (max if figures.is_shared else min)(entries)
    return level < COLD * full


def _full(site: Site, figures: CacheFigures, span: Span) -> float:
    """Return the number of entries at the end of a stretch."""
    return max(
        [each.entries for each in _steps(site, figures, span.until - LEAST_SECONDS, span.until)[-1:]], default=0.0
    )


def _steps(site: Site, figures: CacheFigures, since: int, until: int) -> list[Any]:
    span = site.span(since, until)
    return [*site.within(figures, span).steps(span).values()]


def _recent(site: Site, figures: CacheFigures, spans: tuple[Span, Span]) -> tuple[int, bool]:
    """Return the start of the stretch that shows whether a group is worse now, and whether the cache is cold in it."""
    since, edge = spans[1].since, site.edge
    recent = max(since, edge - WORSE_RECENTLY)
    full = _full(site, figures, spans[0])
    if not _begins_empty(site, figures, since, full):
        return recent, False
    levels = [each.entries for each in _steps(site, figures, since, since + WARM_UP)]
    emptied = levels.index(min(levels[: RESTARTED // STEP])) if levels else 0
    warm_again = (number for number, level in enumerate(levels) if number >= emptied and level >= WARM * full)
    warm = since + STEP * (1 + next(warm_again, WARM_UP // STEP))
    return (max(recent, warm), False) if warm + LEAST_SECONDS <= edge else (recent, True)


def _without_misses_of_empty_cache(change: Change) -> Change:
    """Return a change without the misses that an empty cache causes."""
    old, new = ({**each.misses_by_cause, **dict.fromkeys(OF_EMPTY_CACHE, 0)} for each in (change.old, change.new))
    return Change(
        change.name,
        GroupStats(change.old.hits, change.old.stale_hits, misses_by_cause=old),
        GroupStats(change.new.hits, change.new.stale_hits, misses_by_cause=new),
    )


def changes_between(before: Groups, after: Groups) -> list[Change]:
    """Return the groups whose misses changed beyond chance, and those that are new, in the order of their additional or
    fewer misses."""
    found = [
        Change(name, group_of(before.get(name, NO_GROUP)), group_of(after.get(name, NO_GROUP)))
        for name in {*before, *after}
    ]
    compared = sum(1 for each in found if each.old.requests and each.new.requests)
    real = (each for each in found if is_new(each) or is_beyond_chance(each, compared))
    return sorted(real, key=lambda each: (-abs(each.more), each.name))


def is_new(change: Change) -> bool:
    return not change.old.requests and change.new.requests >= LEAST_LOOKUPS and change.new.misses >= LEAST_MISSES


def is_beyond_chance(change: Change, compared: int) -> bool:
    """Return whether the miss ratios of both sides differ by more than chance, by the z-test for two proportions.

    Args:
        compared: the number of groups that are compared.
    """
    return differ(change.old.misses, change.old.requests, change.new.misses, change.new.requests, compared)


def differ(misses: int, requests: int, later_misses: int, later_requests: int, compared: int = 1) -> bool:
    """Return whether two shares of look-ups differ by more than chance, with enough look-ups on both sides."""
    least = min(requests, later_requests)
    if least < LEAST_LOOKUPS:
        return False
    pooled = (misses + later_misses) / (requests + later_requests)
    if least * min(pooled, 1.0 - pooled) < LEAST_EXPECTED:
        return False
    deviation = sqrt(pooled * (1.0 - pooled) * (1 / requests + 1 / later_requests))
    z = (later_misses / later_requests - misses / requests) / deviation
    return abs(z) > NormalDist().inv_cdf(1.0 - LEVEL / 2 / max(1, compared))


def sentence_of(before: Side, after: Side, changes: Sequence[Change]) -> str:
    return " ".join(_sentences(before, after, changes))


def _sentences(before: Side, after: Side, changes: Sequence[Change]) -> Iterator[str]:
    old, new = before.stats, after.stats
    if min(old.requests, new.requests) < LEAST_LOOKUPS:
        yield f"Too few look-ups to compare: {old.requests:,} before, {new.requests:,} after."
        return
    ratios = f"{old.hit_ratio:.1%} hits before, {new.hit_ratio:.1%} after"
    is_real = differ(old.misses, old.requests, new.misses, new.requests)
    yield f"{ratios}." if is_real else f"{ratios}, which may be chance."
    for side, name in ((before, "before"), (after, "after")):
        if side.is_cold:
            yield f"The cache was cold {name}: it began empty, so first requests missed."
    more = sum(each.more for each in changes)
    # A group that changed against the trend is only in the table.
    least = max(LEAST_MISSES, LEAST_SHARE * abs(more))
    named = (each for each in changes if each.name and each.more * more > 0 and abs(each.more) >= least)
    yield from (f"{each.name}: {each.text()}." for each in list(named)[:1] if _is_notable(each))


def _is_notable(change: Change) -> bool:
    before, after = change.old.miss_ratio, change.new.miss_ratio
    return not before or not after or max(before / after, after / before) >= LEAST_FACTOR


def _percent(share: float) -> str:
    """Return a share in percent, with a decimal if it is small."""
    return f"{share:.0%}" if share >= 0.01 or not share else f"{share:.1%}"
