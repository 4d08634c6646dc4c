"""Read the figures of a cache: its own counts, and those that guests add."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from wheelcache.core.contract import Core, RemovalCause
from wheelcache.engine.stats import COUNTERS, MISSES, REMOVALS, GroupStats, Meter, PartStats, Stats, whole_parts

_SUMS: Final = ("hits", "stale_hits", "puts", "load_failures", "load_seconds")
"""The counters that are sums over the groups of keys, as the misses are. Failed loads are loads of a group."""


class Part(Protocol):
    """A guest that adds figures to those of a cache, such as the store behind a near cache, or the pages."""

    @property
    def weight(self) -> int:
        """The weight that it adds to that of the entries."""

    def figures(self) -> PartStats: ...
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
        by_guest = {name: part.figures() for name, part in self.by_guest.items()}
        groups = self._groups()
        (loads, seconds, buckets), core = self._loads.read(), self._core.counts()
        values: dict[str, Any] = {**loads, **core._asdict(), "load_seconds": seconds}
        values.update((name, core.removals[RemovalCause(cause)]) for cause, name in REMOVALS.items())
        # So that the sums of the groups are always exact.
        values.update((name, sum([getattr(each, name) for each in groups.values()])) for name in _SUMS)
        causes = [0] * len(MISSES), *[each.misses_by_cause.values() for each in groups.values()]
        values.update(zip(MISSES.values(), map(sum, zip(*causes, strict=True)), strict=True))
        values["misses"] = sum([values[name] for name in MISSES.values()])
        size, weight = self.own_part()
        return Stats(
            **{name: values[name] for name in COUNTERS},
            size=size,
            weight=weight + sum(part.weight for part in self.by_guest.values()),
            load_buckets=buckets,
            groups=groups,
            by_guest=by_guest,
        )

    def activity(self) -> tuple[int, int, int]:
        """Return the numbers of uses, of stored values and of entries."""
        stats = self()
        return stats.uses, stats.puts, stats.size

    def _groups(self) -> dict[str, GroupStats]:
        before, found = self._hits, {}
        for name, hits, stale_hits, puts, loads, failures, seconds, misses in self._core.groups():
            # A hit is taken back if its value cannot be decoded, and a reading in between may have shown it.
            hits = max(hits, before.get(name, 0))
            causes = dict(zip(MISSES, misses, strict=True))
            found[name] = GroupStats(hits, stale_hits, puts, loads, failures, whole_parts(seconds), causes)
        self._hits = {name: each.hits for name, each in found.items()}
        return found

    def after_fork_in_child(self) -> None:
        """Count from zero."""
        self._hits = {}
        for part in self.by_guest.values():
            part.after_fork_in_child()
