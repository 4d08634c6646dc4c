"""Convert figures to JSON documents, for the dashboard's page and the terminal."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Final

from wheelcache.core.contract import GROUP_SAMPLE
from wheelcache.observability.figures import CacheFigures, Rate, WorkerFigures
from wheelcache.stats import COUNTERS, LOAD_BOUNDS, MISSES, STORE_GAUGES, Buckets, PageStats, Stats, StoreStats

# Evicted weights are reported as ``evicted_bytes``, if weights are bytes, and misses by cause as an object.
SHOWN: Final = tuple(name for name in COUNTERS if name not in ("evicted_weight", *MISSES.values()))


LEAST_REQUESTS: Final = 10 * GROUP_SAMPLE
"""The look-ups of a group from which its hit ratio is shown. With fewer, a chance decides whether its hits are counted:
a group with 60 hits and one miss would often have 0%."""


def totals(stats: Stats, figures: CacheFigures | WorkerFigures) -> dict[str, Any]:
    """Return all counters of ``stats`` by name, the ratios derived from them, and the present size of the cache."""
    loads = stats.loads + stats.load_failures
    weighs_bytes = figures.weighs_bytes
    return {
        **_values(stats, *SHOWN),
        "requests": stats.requests,
        "answered_ratio": stats.answered_ratio,
        "hit_ratio": stats.hit_ratio if stats.requests else None,
        "stale_ratio": stats.stale_ratio if stats.requests else None,
        "load_ms": mean_ms(stats.load_seconds, loads),
        "removals": stats.removals,
        "misses_by_cause": stats.misses_by_cause,
        "evicted_bytes": stats.evicted_weight if weighs_bytes else None,
        "entries": stats.size,
        "max_entries": figures.max_entries,
        "bytes": figures.memory,
        "bytes_are_estimated": not weighs_bytes,
        "max_bytes": figures.max_weight if weighs_bytes else None,
    }


def groups(figures: CacheFigures) -> list[dict[str, Any]]:
    """Return the groups of keys that were used, those that took most time to compute first. The group of all other keys
    has an empty name."""
    found = []
    for name, each in figures.stats.groups.items():
        memory, hour_seconds = figures.group_levels.get(name, (None, 0.0))
        if not (each.requests or each.puts or each.loads or memory):
            continue
        found.append(
            {
                "name": name,
                **_values(each, "requests", "hits", "misses", "puts", "loads", "load_seconds", "misses_by_cause"),
                "hit_ratio": each.hit_ratio if each.requests >= LEAST_REQUESTS else None,
                "hour_seconds": hour_seconds,
                "bytes": memory,
            }
        )
    return sorted(found, key=lambda each: (-each["load_seconds"], -each["misses"], each["name"]))


def last_minute(rate: Rate) -> dict[str, float | None]:
    return _values(rate, "answered_ratio", "hit_ratio", "stale_ratio", "requests_per_second")


def store(stats: StoreStats | None) -> dict[str, Any] | None:
    """Return the figures of the store behind a near cache; None for any other cache."""
    if stats is None:
        return None
    calls = ("calls", "errors", "refused", "seconds")
    return {
        **_values(stats, "hits", "misses", *STORE_GAUGES),
        "reads": _values(stats.reads, *calls),
        "writes": _values(stats.writes, *calls),
    }


def pages(stats: PageStats | None) -> dict[str, Any] | None:
    """Return the figures of the pages of an HTTP cache; None for any other cache."""
    return None if stats is None else asdict(stats)


def buckets(counts: Buckets) -> dict[str, Any]:
    """Return a histogram of the durations of calls: its bounds in seconds, and its counts, one more than the bounds."""
    return {"bounds": LOAD_BOUNDS, "counts": counts}


def worker(figures: WorkerFigures) -> dict[str, Any]:
    """Return the process of a worker, and the state of its wheel thread."""
    return _values(figures, "pid", "started", "published", "thread", "core", "lag")


def mean_ms(seconds: float, count: float) -> float | None:
    """Return the average duration of a call in milliseconds; None if there were no calls."""
    return 1000 * seconds / count if count else None


def _values(figures: object, *names: str) -> dict[str, Any]:
    return {name: getattr(figures, name) for name in names}
