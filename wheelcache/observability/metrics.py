"""The metrics for Prometheus and OpenTelemetry: which figures there are, and where they are read.

A counter must never decrease: the collecting system would assume a restart and add the whole count again. So

- a request that found no fresh value is a miss here and stays one. In ``Stats`` it becomes a hit when a stale value is
  served, perhaps after a timeout; here, stale hits have a counter of their own;
- figures that processes share are not reported before all processes can see them, since another process may answer the
  next request;
- seconds are those of ``whole_parts``: sums of other floats may become smaller by a bit when a worker exits and its
  figures are added to those of exited workers.
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
    """How the values of several caches or processes are combined.

    COUNTER: they are added and only grow. LEVEL: they are added and go up and down. WORST: the greatest is reported.
    """

    COUNTER = "counter"
    LEVEL = "level"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Reading:
    """The figures of one cache.

    Attributes:
        cache: the name of the cache, in characters that can be encoded.
        counted: the counts of live and exited workers. ``size`` and ``weight`` are those of live workers.
        figures: the figures of live workers.
    """

    cache: str
    counted: Stats
    figures: CacheStats

    @classmethod
    def of(cls, figures: CacheStats) -> Reading:
        parts = (figures.exited_workers, *(each.stats for each in figures.workers))
        # The seconds of a store are exact already, in its CallMeter.
        exact = (replace(each, load_seconds=whole_parts(each.load_seconds)) for each in parts)
        return cls(figures.name, Stats.total(exact), figures)


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric, with a value for each cache, or several.

    Attributes:
        name: the name without the common prefix, and without the suffixes that a system adds for kind and unit.
        unit: "seconds", "bytes", or the name of the counted thing, in the singular.
        label: the label that distinguishes the values of one cache; None if there is only one value.
        read: returns the values by their label, or one value under "". Empty if the metric does not apply.
    """

    name: str
    unit: str
    kind: Kind
    description: str
    read: Callable[[Reading], Mapping[str, float]]
    label: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the unit is a unit of measure."""
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
    """Return the calls of the backing store by operation; empty if there is no such store."""
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
        "Callers that received a value which another caller was computing.",
        _count("coalesced"),
    ),
    Metric("refreshes", "load", Kind.COUNTER, "Loads that were started in the background.", _count("refreshes")),
    Metric(
        "refreshes_dropped",
        "load",
        Kind.COUNTER,
        "Loads in the background that were not started because too many were running.",
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
        "Lag of the slowest timing wheel, in seconds.",
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
        "Calls of the store behind a near cache that were not made because it had failed recently.",
        _of_store_calls("refused"),
        "operation",
    ),
    Metric(
        "store_breaker_open",
        "process",
        Kind.LEVEL,
        "Processes that do not call the store behind because it fails; absent without a circuit breaker.",
        _of_store(lambda store: store.open_breakers if store.breakers else None),
    ),
    Metric(
        "store_tracking_lost",
        "process",
        Kind.LEVEL,
        "Processes that the store behind does not notify of writes at present; absent if it never does.",
        _of_store(lambda store: store.trackers - store.trusted if store.trackers else None),
    ),
)
"""The metrics of every cache. The times of loads are separate, since not all systems accept a histogram."""

LOAD_TIME: Final = "Seconds that loads took, including those that raised an exception."

STORE_TIME: Final = "Seconds that calls of the store behind a near cache took, including those that failed."


INFO: Final = (
    "Always 1: the version of wheelcache and the core in use, compiled or python. WHEELCACHE_CORE in the environment "
    "selects the core; the compiled one is there if there was a C compiler when wheelcache was installed."
)


def info_labels(reading: Reading) -> list[dict[str, str]]:
    """Return the labels of ``INFO`` for a cache: one set for each core that its processes run."""
    cores = sorted({each.core for each in reading.figures.workers})
    return [{"cache": reading.cache, "core": core, "version": _version()} for core in cores]


@lru_cache(1)
def _version() -> str:
    try:
        return version("wheelcache")
    except PackageNotFoundError:
        # The package was copied into the site's own folder, without its metadata.
        return "unknown"


def read_site(caches: Iterable[ObservedCache]) -> list[Reading]:
    """Return the figures of caches in all processes of the site, by name, as they were last published.

    A cache that does not or cannot publish is read in this process.

    Args:
        caches: the caches of this process.
    """
    own = list(caches)
    unpublished = []
    for cache in own:
        with suppress(CacheClosed):
            if cache.publisher is None or cache.publisher.cannot_publish():
                unpublished.append(_alone(cache))
    return _readings([*collect(own, with_own=False), *unpublished])


def read_process(caches: Iterable[ObservedCache]) -> list[Reading]:
    """Return the figures of ``caches``, which belong to this process, by name."""
    found = []
    for cache in caches:
        # A cache may have been closed since it was listed.
        with suppress(CacheClosed):
            found.append(_alone(cache))
    return _readings(found)


def _alone(cache: ObservedCache) -> CacheStats:
    figures = cache.figures()
    return CacheStats(figures.name, (figures,))


def _readings(found: Iterable[CacheStats]) -> list[Reading]:
    by_name: dict[str, CacheStats] = {}
    for each in found:
        # A name may have lone surrogates, which cannot be encoded.
        name = each.name.encode("utf-8", "backslashreplace").decode()
        before = by_name.get(name, CacheStats(name, ()))
        by_name[name] = CacheStats(name, (*before.workers, *each.workers), before.exited_workers + each.exited_workers)
    return [Reading.of(by_name[name]) for name in sorted(by_name)]
