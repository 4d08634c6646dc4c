"""The figures of a cache as rows of numbers, which the processes of a site add up.

A row has all counts, those of the parts that guests add included, in the order of ``COUNTS``. The gauges are apart.
The counts of a group of keys have rows of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields
from operator import add, attrgetter, sub
from typing import Any, Final, NamedTuple

from wheelcache.engine.stats import COUNTERS, LOAD_BOUNDS, MISSES, MOST_GROUPS, GroupStats, Stats
from wheelcache.near_cache import store_stats
from wheelcache.near_cache.store_stats import STORE_GAUGES, StoreStats
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.reasons import REASONS

Row = tuple[float, ...]
"""Numbers, in an order that their names have elsewhere."""

GAUGES: Final = ("size", "weight", *STORE_GAUGES)
"""The names of the numbers that go up and down."""

_BUCKETS: Final = tuple(f"load_{place}" for place in range(len(LOAD_BOUNDS) + 1))

PAGE_COUNTERS: Final = tuple(each.name for each in fields(PageStats) if each.default == 0)
"""The fields of ``PageStats`` that are single numbers."""

_PAGES: Final = (
    *(f"pages_{name}" for name in PAGE_COUNTERS),
    *(f"not_stored_{reason}".replace(" ", "_").replace("-", "_") for reason in REASONS),
)

COUNTS: Final = (*COUNTERS, *_BUCKETS, *store_stats.COUNTS, *_PAGES)
"""The names of the numbers in a row: all counts."""

NOTHING: Final[Row] = (0,) * len(COUNTS)

GROUP_COUNTS: Final = ("hits", "stale_hits", "puts", "loads", "load_failures", "load_seconds", "refused")
"""The counts of a group of keys, before its misses by cause. ``loads`` includes those that failed. ``refused`` counts
the responses of the view of this name that an HTTP cache did not store."""

_REFUSED: Final = GROUP_COUNTS.index("refused")
_SECONDS: Final = GROUP_COUNTS.index("load_seconds")

NO_GROUP: Final[Row] = (0,) * (len(GROUP_COUNTS) + len(MISSES))

_counters: Final = attrgetter(*COUNTERS)
_page_counters: Final = attrgetter(*PAGE_COUNTERS)
_group_counts: Final = attrgetter(*GROUP_COUNTS[:_REFUSED])

_OF_BUCKETS: Final = slice(len(COUNTERS), len(COUNTERS) + len(_BUCKETS))
_OF_STORE: Final = slice(_OF_BUCKETS.stop, _OF_BUCKETS.stop + len(store_stats.COUNTS))
_OF_PAGES: Final = slice(_OF_STORE.stop, None)
_STORE_GAUGES: Final = slice(-len(STORE_GAUGES), None)


class Reading(NamedTuple):
    """The figures of a cache: its counts, its gauges, and the counts of its groups of keys by name."""

    counts: Row
    gauges: Row
    groups: dict[str, Row]


def reading_of(stats: Stats) -> Reading:
    """Return the figures of a cache as rows."""
    store, pages = stats.store, stats.pages
    of_store = NOTHING[_OF_STORE] if store is None else store.counts()
    store_gauges = (0,) * len(STORE_GAUGES) if store is None else store.gauges()
    groups = {name: (*_group_counts(each), 0, *each.misses_by_cause.values()) for name, each in stats.groups.items()}
    of_pages = NOTHING[_OF_PAGES]
    if pages is not None:
        of_pages = _page_counts(pages)
        _add_refused(groups, pages)
    return Reading(
        (*_counters(stats), *stats.load_buckets, *of_store, *of_pages),
        (stats.size, stats.weight, *store_gauges),
        groups,
    )


def _page_counts(pages: PageStats) -> Row:
    by_reason = dict.fromkeys(REASONS, 0)
    for reason, number in pages.not_stored.items():
        # Applications make up others.
        by_reason[reason if reason in by_reason else "other"] += number
    return (*_page_counters(pages), *by_reason.values())


def _add_refused(groups: dict[str, Row], pages: PageStats) -> None:
    """Add the responses that were not stored to the groups of their views."""
    for view, number in pages.refused_by_view.items():
        # The core may not distinguish this group, or has counted nothing else for it.
        name = view if view in groups or len(groups) <= MOST_GROUPS else ""
        row = groups.get(name, NO_GROUP)
        groups[name] = (*row[:_REFUSED], row[_REFUSED] + number, *row[_REFUSED + 1 :])


def stats_of(
    counts: Sequence[Any],
    gauges: Sequence[Any] = (0,) * len(GAUGES),
    parts: Collection[str] = ("store", "pages"),
    groups: Mapping[str, Row] = {},
) -> Stats:
    """Return the statistics that have these counts and gauges.

    Args:
        parts: the names of the parts that the cache has.
        groups: the counts of its groups of keys, by name.
    """
    of_pages = counts[_OF_PAGES]
    by_reason = zip(REASONS, of_pages[len(PAGE_COUNTERS) :], strict=True)
    found: dict[str, Any] = {
        "store": StoreStats.of(counts[_OF_STORE], gauges[_STORE_GAUGES]),
        "pages": PageStats(
            **dict(zip(PAGE_COUNTERS, of_pages, strict=False)),
            not_stored={reason: number for reason, number in by_reason if number},
            refused_by_view={name: int(row[_REFUSED]) for name, row in groups.items() if row[_REFUSED]},
        ),
    }
    return Stats(
        **dict(zip(COUNTERS, counts, strict=False)),
        size=gauges[0],
        weight=gauges[1],
        load_buckets=tuple(counts[_OF_BUCKETS]),
        groups={name: group_of(row) for name, row in groups.items()},
        by_guest={name: part for name, part in found.items() if name in parts},
    )


def group_of(row: Row) -> GroupStats:
    """Return the statistics of a group that has these counts."""
    hits, stale_hits, puts, loads, failures, _, _, *misses = map(int, row)
    causes = dict(zip(MISSES, misses, strict=True))
    return GroupStats(hits, stale_hits, puts, loads, failures, float(row[_SECONDS]), causes)


def added(one: Row, other: Row) -> Row:
    """Return the sums of two rows."""
    return tuple(map(add, one, other))


def subtracted(later: Row, earlier: Row) -> Row:
    """Return the differences of two rows."""
    return tuple(map(sub, later, earlier))


_OF_GROUPS: Final = {
    COUNTS.index(name): place
    for place, name in enumerate((*GROUP_COUNTS, *MISSES.values()))
    if name in COUNTS and name != "loads"
}
"""The positions of the counts that are sums over the groups of keys, and their positions in the row of a group. Failed
loads are loads of a group."""

_MISSES: Final = COUNTS.index("misses")


def with_groups(counts: Row, groups: Iterable[Row]) -> Row:
    """Return ``counts`` with the sums over the groups of keys, so that the sums of the groups are always exact."""
    sums = tuple(map(sum, zip(NO_GROUP, *groups, strict=True)))
    found = list(counts)
    for place, of_group in _OF_GROUPS.items():
        found[place] = sums[of_group]
    found[_MISSES] = sum(sums[len(GROUP_COUNTS) :])
    return tuple(found)
