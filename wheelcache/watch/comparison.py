"""Compare the same stretch of time before and after a moment, such as the start of a release.

A document has ``at`` (the moment), ``release`` (its name, or empty), ``seconds`` (the length of each stretch),
``sentence``, ``before`` and ``after``, and ``groups``: the groups of keys whose misses changed most, each with
``name``, ``before`` and ``after`` (the share of its look-ups that missed, or null without look-ups), and ``cause`` (the
most frequent cause of the additional misses, or null). ``before`` and ``after`` have ``hit_ratio``,
``requests_per_second``, ``load_p50_ms`` and ``load_p90_ms`` (milliseconds, or null without loads), and
``computing_per_minute`` (seconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import Any, Final, NamedTuple

from wheelcache.engine.stats import GroupStats, Stats
from wheelcache.watch.documents import percentiles_ms
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.key_groups import Groups
from wheelcache.watch.releases import Release
from wheelcache.watch.rows import NO_GROUP, group_of
from wheelcache.watch.site import Site
from wheelcache.watch.spans import Span
from wheelcache.watch.tables import DAY, HOUR, LONG_STEP, STEP

LEAST_SECONDS: Final = 60
"""The least length of a stretch."""

SHOWN_GROUPS: Final = 5

LEAST_MISSES: Final = 20
"""The additional misses of a group before the sentence names it."""

LEAST_FACTOR: Final = 1.5
LEAST_SHARE: Final = 0.25
"""The share of all additional misses that a group must have before the sentence names it."""

BECAUSE: Final = {
    "expired": "because its entries had expired",
    "evicted": "because its entries were evicted",
    "not stored": "because its values were not stored",
    "deleted": "because its entries were deleted",
    "cleared": "because the cache was cleared",
    "tag": "because a tag of its entries was dropped",
    "another process": "because another process may have written its entries",
    "new or long gone": "for keys that were never stored, or long ago",
}
"""The phrases for the causes of misses, by the value of their ``MissCause``."""


def mark_in(releases: list[Release], span: Span) -> Release | None:
    """Return the latest release that began within a span, or an hour before its end; None if there is none."""
    since = min(span.since, span.until - HOUR)
    return next((each for each in reversed(releases) if since <= each.at < span.until), None)


def compare(site: Site, figures: CacheFigures, mark: Release) -> dict[str, Any] | None:
    """Return the comparison of a cache before and after ``mark``; None if one side is shorter than a minute, or there
    were no look-ups before.

    Neither side contains the start of another release.
    """
    releases = [each.at for each in site.releases()]
    edge = site.edge
    kept = edge - DAY
    first = max([kept, *(each for each in releases if each < mark.at)])
    last = min([edge, *(each for each in releases if each > mark.at)])
    length = LONG_STEP if mark.at - min(last - mark.at, mark.at - first) < edge - HOUR else STEP
    # The step of the mark is on neither side.
    end, begin = floor(mark.at / length) * length, ceil(mark.at / length) * length
    seconds = floor(min(last - begin, end - ceil(first / length) * length) / length) * length
    if seconds < LEAST_SECONDS:
        return None
    spans = (Span(end - seconds, end, seconds), Span(begin, begin + seconds, seconds))
    sides = [site.within(figures, each) for each in spans]
    before, after = (each.total() for each in sides)
    if not before.requests:
        return None
    changes = changes_between(*(each.groups for each in sides))
    return {
        "at": mark.at,
        "release": mark.name,
        "seconds": seconds,
        "sentence": sentence_of(mark, before, after, changes),
        "before": _side(before, seconds),
        "after": _side(after, seconds),
        "groups": [each.row() for each in changes[:SHOWN_GROUPS]],
    }


def _side(stats: Stats, seconds: int) -> dict[str, float | None]:
    times = percentiles_ms(stats.load_buckets)
    return {
        "hit_ratio": stats.hit_ratio if stats.requests else None,
        "requests_per_second": stats.requests / seconds,
        **{f"load_{name}_ms": times[name] for name in ("p50", "p90")},
        "computing_per_minute": 60 * stats.load_seconds / seconds,
    }


class Change(NamedTuple):
    """The figures of one group of keys on both sides."""

    name: str
    old: GroupStats
    new: GroupStats

    @property
    def more(self) -> float:
        """The misses that there would not be if as many of the look-ups as before had missed: a busier hour, or an
        idle one, is no change."""
        return self.new.misses - self.old.miss_ratio * self.new.requests

    @property
    def cause(self) -> str | None:
        """The most frequent cause of the additional misses; None if there are none."""
        times = self.new.requests / self.old.requests if self.old.requests else 0.0
        more = {cause: self.new.misses_by_cause[cause] - n * times for cause, n in self.old.misses_by_cause.items()}
        return max(more, key=more.__getitem__) if self.more > 0 else None

    def row(self) -> dict[str, Any]:
        before, after = (each.miss_ratio if each.requests else None for each in (self.old, self.new))
        return {"name": self.name, "before": before, "after": after, "cause": self.cause}


def changes_between(before: Groups, after: Groups) -> list[Change]:
    """Return the groups whose misses changed, those that changed most first."""
    found = [
        Change(name, *(group_of(groups.get(name, NO_GROUP)) for groups in (before, after)))
        for name in {*before, *after}
    ]
    return sorted((each for each in found if each.more), key=lambda each: (-abs(each.more), each.name))


def sentence_of(mark: Release, before: Stats, after: Stats, changes: Sequence[Change]) -> str:
    ratios = [f"{each.hit_ratio:.1%}" for each in (before, after)]
    sentence = f"{ratios[0]} hits before, {ratios[1] if after.requests else 'no look-ups'} after."
    more = sum(each.more for each in changes)
    # A group that changed against the trend is only in the table.
    least = max(LEAST_MISSES, LEAST_SHARE * abs(more))
    named = (each for each in changes if each.name and each.more * more > 0 and abs(each.more) >= least)
    return sentence + next(map(_of_group, named), "") if after.requests else sentence


def _of_group(change: Change) -> str:
    name, before, after = f"`{change.name}`", change.old.miss_ratio, change.new.miss_ratio
    if not change.old.requests:
        return f" {name} is new, and misses {after:.0%} of its look-ups{_reason(change)}."
    if not after:
        return f" {name} missed {before:.1%} of its look-ups before, and no longer misses."
    if not before:
        return f" {name} did not miss before, and misses {after:.0%} of its look-ups{_reason(change)}."
    factor = max(before / after, after / before)
    if factor < LEAST_FACTOR:
        return ""
    words = f"{factor:,.0f}" if factor >= 10 else f"{factor:.2g}"
    often = f"{words} times as often" if after > before else f"{after / before:.0%} as often as before"
    return f" {name} misses {often}{_reason(change)}."


def _reason(change: Change) -> str:
    """Return the main reason for the misses of a group that misses more often; empty without one."""
    if change.cause not in BECAUSE or change.cause is None:
        return ""
    share = change.new.misses_by_cause[change.cause] / change.new.misses
    tenths = round(10 * share)
    often = "all" if share == 1.0 else "nearly all" if tenths == 10 else f"{tenths} of 10"
    return f", {often} {BECAUSE[change.cause]}" if tenths >= 5 else ""
