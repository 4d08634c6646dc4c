"""What is told of caches to systems that collect metrics: which figures, and where they are read.

A counter must never go down: such a system takes that for a restart, and adds all that had been counted once more. So

- a request that found nothing fresh is a miss here and stays one, where ``Stats`` makes a hit of it as soon as a stale
  value is served, perhaps after a timeout. Those are counted by themselves;
- of figures that other processes see, none is told before they see it too, for the next to be asked may be another;
- seconds are those of ``whole_parts``: sums of other floats may be less by a bit once a worker is counted among exited
  workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from wheelcache.errors import CacheClosed
from wheelcache.observability.collect import collect
from wheelcache.observability.observed import ObservedCache
from wheelcache.observability.worker_stats import CacheStats
from wheelcache.stats import CallStats, Stats, StoreStats, whole_parts


class Kind(Enum):
    """How the values of several caches, or of several processes, are one.

    COUNTER: they are added, and each only grows. LEVEL: they are added, and go up and down. WORST: the greatest counts.
    """

    COUNTER = "counter"
    LEVEL = "level"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one cache.

    Attributes:
        cache: its name, in characters that can be sent.
        counted: by processes that live and by exited workers. ``size`` and ``weight`` are of those that live.
        figures: of the processes that live.
    """

    cache: str
    counted: Stats
    figures: CacheStats

    @classmethod
    def of(cls, figures: CacheStats) -> Reading:
        parts = (figures.exited_workers, *(each.stats for each in figures.workers))
        # Those of a store are exact: its CallMeter sees to that.
        exact = (replace(each, load_seconds=whole_parts(each.load_seconds)) for each in parts)
        return cls(figures.name, Stats.total(exact), figures)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, with a value for each cache, or several.

    Attributes:
        name: without the prefix that all have, and without what a system adds for the kind and the unit.
        unit: "seconds", "bytes", or what is counted, in the singular.
        label: what tells the values of one cache apart; None if there is but one.
        read: the values by what they have under ``label``, or under "". None at all where they mean nothing.
    """

    name: str
    unit: str
    kind: Kind
    description: str
    read: Callable[[Reading], Mapping[str, float]]
    label: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the unit is one of measure."""
        return self.unit in ("seconds", "bytes")


def _count(name: str) -> Callable[[Reading], Mapping[str, float]]:
    return lambda reading: {"": getattr(reading.counted, name)}


def _if_any(value: float | None) -> Mapping[str, float]:
    return {} if value is None else {"": value}


def _of_store(read: Callable[[StoreStats], float | None]) -> Callable[[Reading], Mapping[str, float]]:
    return lambda reading: {} if reading.counted.store is None else _if_any(read(reading.counted.store))


def _of_store_calls(name: str) -> Callable[[Reading], Mapping[str, float]]:
    return lambda reading: {operation: getattr(calls, name) for operation, calls in store_calls(reading).items()}


def store_calls(reading: Reading) -> Mapping[str, CallStats]:
    """The calls of the store behind, by their operation; none if there is no such store."""
    store = reading.counted.store
    return {} if store is None else {"read": store.reads, "write": store.writes}


METRICS: Final = (
    Metric(
        "requests",
        "request",
        Kind.COUNTER,
        "Look-ups of a key, by whether they found a value within its TTL.",
        lambda reading: {
            "hit": reading.counted.hits - reading.counted.stale_hits,
            "miss": reading.counted.misses + reading.counted.stale_hits,
        },
        "result",
    ),
    Metric(
        "stale_hits",
        "request",
        Kind.COUNTER,
        "Of the requests that were misses, those that got a stale value, past its TTL and within its grace.",
        _count("stale_hits"),
    ),
    Metric("puts", "entry", Kind.COUNTER, "Values that were stored, also by loads.", _count("puts")),
    Metric(
        "removals",
        "entry",
        Kind.COUNTER,
        "Entries that left, by cause.",
        lambda reading: reading.counted.removals,
        "cause",
    ),
    Metric(
        "evicted_bytes",
        "bytes",
        Kind.COUNTER,
        "Bytes that the evicted entries took; absent where they are not weighed.",
        lambda reading: _if_any(reading.counted.evicted_weight if reading.figures.weighs_bytes else None),
    ),
    Metric("load_failures", "load", Kind.COUNTER, "Loads that raised an exception.", _count("load_failures")),
    Metric(
        "load_timeouts",
        "request",
        Kind.COUNTER,
        "Callers that did not wait for the end of a load.",
        _count("load_timeouts"),
    ),
    Metric(
        "stampedes_prevented",
        "request",
        Kind.COUNTER,
        "Callers that got a value which another caller computed meanwhile.",
        _count("coalesced"),
    ),
    Metric("refreshes", "load", Kind.COUNTER, "Loads that were started in the background.", _count("refreshes")),
    Metric(
        "refreshes_dropped",
        "load",
        Kind.COUNTER,
        "Loads in the background that were not started, because too many were under way.",
        _count("refreshes_dropped"),
    ),
    Metric("entries", "entry", Kind.LEVEL, "Entries in memory.", _count("size")),
    Metric(
        "max_entries",
        "entry",
        Kind.LEVEL,
        "Entries that may be in memory; absent without a bound.",
        lambda reading: _if_any(reading.figures.max_entries if reading.figures.workers else None),
    ),
    Metric(
        "bytes",
        "bytes",
        Kind.LEVEL,
        "Bytes that the entries take: estimated from samples without a bound, absent where they are not known.",
        lambda reading: _if_any(reading.figures.memory if reading.figures.workers else None),
    ),
    Metric(
        "max_bytes",
        "bytes",
        Kind.LEVEL,
        "Bytes that the entries may take; absent without a bound.",
        lambda reading: _if_any(reading.figures.max_weight if reading.figures.weighs_bytes else None),
    ),
    Metric(
        "wheel_lag",
        "seconds",
        Kind.WORST,
        "Seconds by which the timing wheel that is the latest of all is late.",
        lambda reading: _if_any(max((each.lag for each in reading.figures.workers), default=None)),
    ),
    Metric(
        "store_errors",
        "call",
        Kind.COUNTER,
        "Calls of the store behind a near cache that found it failing.",
        _of_store_calls("errors"),
        "operation",
    ),
    Metric(
        "store_refused",
        "call",
        Kind.COUNTER,
        "Calls of the store behind a near cache that were not made, because it had failed lately.",
        _of_store_calls("refused"),
        "operation",
    ),
    Metric(
        "store_breaker_open",
        "process",
        Kind.LEVEL,
        "Processes that leave the store behind alone, because it fails; absent without a circuit breaker.",
        _of_store(lambda store: store.open_breakers if store.breakers else None),
    ),
    Metric(
        "store_tracking_lost",
        "process",
        Kind.LEVEL,
        "Processes that the store behind does not tell of writes now; absent where it never does.",
        _of_store(lambda store: store.trackers - store.trusted if store.trackers else None),
    ),
)
"""What is told of every cache. How long loads take is told apart, for not all systems take a histogram."""

LOAD_TIME: Final = "Seconds that loads took, also those that raised an exception."

STORE_TIME: Final = "Seconds that calls of the store behind a near cache took, also those that failed."


INFO: Final = (
    "Always 1: the version of wheelcache and the core in use, compiled or python. WHEELCACHE_CORE in the environment "
    "selects the core; the compiled one is there if there was a C compiler when wheelcache was installed."
)


def info_labels(reading: Reading) -> list[dict[str, str]]:
    """What the version and the core of a cache are told by: one for each core that its processes run."""
    cores = sorted({each.core for each in reading.figures.workers})
    return [{"cache": reading.cache, "core": core, "version": _version()} for core in cores]


@lru_cache(1)
def _version() -> str:
    try:
        return version("wheelcache")
    except PackageNotFoundError:
        # A copy of the package in the site's own folder.
        return "unknown"


def read_site(caches: Iterable[ObservedCache]) -> list[Reading]:
    """The figures of caches in all processes of the site, by name, as they were last published.

    A cache that does not publish, or cannot, is told by its own process.

    Args:
        caches: of this process.
    """
    own = list(caches)
    unpublished = []
    for cache in own:
        with suppress(CacheClosed):
            if cache.publisher is None or cache.publisher.cannot_publish():
                unpublished.append(_alone(cache))
    return _readings([*collect(own, with_own=False), *unpublished])


def read_process(caches: Iterable[ObservedCache]) -> list[Reading]:
    """The figures of ``caches``, which are of this process, by name."""
    found = []
    for cache in caches:
        # Closed since they were listed.
        with suppress(CacheClosed):
            found.append(_alone(cache))
    return _readings(found)


def _alone(cache: ObservedCache) -> CacheStats:
    figures = cache.figures()
    return CacheStats(figures.name, (figures,))


def _readings(found: Iterable[CacheStats]) -> list[Reading]:
    by_name: dict[str, CacheStats] = {}
    for each in found:
        # A name may have halves of surrogate pairs, which no encoding takes.
        name = each.name.encode("utf-8", "backslashreplace").decode()
        before = by_name.get(name, CacheStats(name, ()))
        by_name[name] = CacheStats(name, (*before.workers, *each.workers), before.exited_workers + each.exited_workers)
    return [Reading.of(by_name[name]) for name in sorted(by_name)]
