"""The figures of a cache as rows of numbers, which the processes of a site add up.

A row has all counts, those of the parts that guests add included, in the order of ``COUNTS``. The gauges are apart.
The counts of a group of keys have rows of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from operator import add, attrgetter, sub
from typing import Any, Final, NamedTuple

from wheelcache.engine.stats import COUNTERS, MISSES, NO_BUCKETS, GroupStats, PartStats, Row, Stats
from wheelcache.near_cache import store_stats
from wheelcache.near_cache.store_stats import STORE_GAUGES, StoreStats
from wheelcache.pages import page_stats
from wheelcache.pages.page_stats import PageStats

GAUGES: Final = ("size", "weight", *STORE_GAUGES)
"""The names of the numbers that go up and down."""

_BUCKETS: Final = tuple(f"load_{place}" for place in range(len(NO_BUCKETS)))

COUNTS: Final = (*COUNTERS, *_BUCKETS, *store_stats.COUNTS, *page_stats.COUNTS)
"""The names of the numbers in a row: all counts."""

NOTHING: Final[Row] = (0,) * len(COUNTS)

GROUP_COUNTS: Final = ("hits", "stale_hits", "puts", "loads", "load_seconds", "refused")
"""The counts of a group of keys, before its misses by cause. ``loads`` includes those that failed."""

NO_GROUP: Final[Row] = (0,) * (len(GROUP_COUNTS) + len(MISSES))

_counters: Final = attrgetter(*COUNTERS)
_group_counts: Final = attrgetter(*GROUP_COUNTS)

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
    of_pages = NOTHING[_OF_PAGES] if pages is None else pages.counts()
    store_gauges = (0,) * len(STORE_GAUGES) if store is None else store.gauges()
    return Reading(
        (*_counters(stats), *stats.load_buckets, *of_store, *of_pages),
        (stats.size, stats.weight, *store_gauges),
        {name: (*_group_counts(each), *each.misses_by_cause.values()) for name, each in stats.groups.items()},
    )


def stats_of(
    counts: Sequence[Any], gauges: Sequence[Any] = (0,) * len(GAUGES), parts: Collection[str] = ("store", "pages")
) -> Stats:
    """Return the statistics that have these counts and gauges, without the groups of keys.

    Args:
        parts: the names of the parts that the cache has.
    """
    found: dict[str, PartStats] = {
        "store": StoreStats.of(counts[_OF_STORE], gauges[_STORE_GAUGES]),
        "pages": PageStats.of(counts[_OF_PAGES]),
    }
    return Stats(
        **dict(zip(COUNTERS, counts, strict=False)),
        size=gauges[0],
        weight=gauges[1],
        load_buckets=tuple(counts[_OF_BUCKETS]),
        by_guest={name: part for name, part in found.items() if name in parts},
    )


def group_of(row: Row) -> GroupStats:
    """Return the statistics of a group that has these counts."""
    first: Any = dict(zip(GROUP_COUNTS, row, strict=False))
    # In a database, the sum of no seconds is an int.
    first["load_seconds"] = float(first["load_seconds"])
    return GroupStats(**first, misses_by_cause=dict(zip(MISSES, map(int, row[len(GROUP_COUNTS) :]), strict=True)))


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
