"""Read the figures of a cache: its own counts, and those that guests add."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol

from wheelcache.core.contract import Core, RemovalCause
from wheelcache.engine.stats import (
    COUNTERS,
    MISSES,
    MOST_GROUPS,
    REMOVALS,
    GroupStats,
    Meter,
    PartStats,
    Stats,
    whole_parts,
)

_OF_GROUPS: Final = ("hits", "stale_hits", "puts", "load_seconds", *MISSES.values())
"""The counters that are sums over the groups of keys."""


class Figures(NamedTuple):
    """The figures that a guest adds to those of a cache.

    Attributes:
        stats: its statistics.
        weight: the weight that it adds to that of the entries.
        refused: the number of values that it refused to store, by the name of their group of keys.
    """

    stats: PartStats
    weight: int = 0
    refused: Mapping[str, int] = {}


class Part(Protocol):
    """A guest that adds figures to those of a cache, such as the store behind a near cache, or the pages."""

    def figures(self) -> Figures: ...
    def after_fork_in_child(self) -> None: ...


class StatsReader:
    """Reads the figures of a cache from its core and its loads, and from the guests that add some.

    Attributes:
        by_guest: the guests that add figures, by name.
        own_part: returns the number and the weight of the entries that count among the figures of this process. Only
            some of the entries that processes share do.
        is_shared: whether processes share the entries.
    """

    def __init__(self, core: Core, loads: Meter) -> None:
        self._core = core
        self._loads = loads
        self.by_guest: dict[str, Part] = {}
        self.own_part: Callable[[], tuple[int, int]] = lambda: (len(core), core.weight)
        self.is_shared = False
        # By group, at the last reading.
        self._hits: dict[str, int] = {}

    def __call__(self) -> Stats:
        parts = {name: part.figures() for name, part in self.by_guest.items()}
        groups = self._groups([each.refused for each in parts.values()])
        (loads, seconds, buckets), core = self._loads.read(), self._core.counts()
        values: dict[str, Any] = {**loads, **core._asdict(), "load_seconds": seconds}
        values.update((name, core.removals[RemovalCause(cause)]) for cause, name in REMOVALS.items())
        # The sums over the groups, so that these are always exact. Failed loads are loads of a group.
        rows: list[tuple[float, ...]] = [(0,) * len(_OF_GROUPS)]
        rows += [
            (each.hits, each.stale_hits, each.puts, each.load_seconds, *each.misses_by_cause.values())
            for each in groups.values()
        ]
        sums = dict(zip(_OF_GROUPS, map(sum, zip(*rows, strict=True)), strict=True))
        values |= sums | {"misses": sum(map(sums.__getitem__, MISSES.values()))}
        size, weight = self.own_part()
        return Stats(
            **{name: values[name] for name in COUNTERS},
            size=size,
            weight=weight + sum(each.weight for each in parts.values()),
            load_buckets=buckets,
            groups=groups,
            by_guest={name: each.stats for name, each in parts.items()},
        )

    def activity(self) -> tuple[int, int, int]:
        """Return the numbers of uses, of stored values and of entries."""
        stats = self()
        return stats.uses, stats.puts, stats.size

    def _groups(self, refused: list[Mapping[str, int]]) -> dict[str, GroupStats]:
        refusals: dict[str, int] = {}
        for each in refused:
            for name, number in each.items():
                refusals[name] = refusals.get(name, 0) + number
        # A hit is taken back if its value cannot be decoded, and a reading in between may have shown it.
        groups = [each._replace(hits=max(each.hits, self._hits.get(each.name, 0))) for each in self._core.groups()]
        self._hits = {each.name: each.hits for each in groups}
        found = {
            each.name: GroupStats(
                *(each.hits, each.stale_hits, each.puts, each.loads, whole_parts(each.load_seconds)),
                refused=refusals.pop(each.name, 0),
                misses_by_cause=dict(zip(MISSES, each.misses, strict=True)),
            )
            for each in groups
        }
        for group, number in refusals.items():
            # The core does not distinguish this group, or has counted nothing else for it.
            name = group if len(found) <= MOST_GROUPS else ""
            known = found.get(name, GroupStats())
            found[name] = replace(known, refused=known.refused + number)
        return found

    def after_fork_in_child(self) -> None:
        """Count from zero."""
        self._hits = {}
        for part in self.by_guest.values():
            part.after_fork_in_child()
