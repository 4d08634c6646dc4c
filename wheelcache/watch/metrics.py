"""The metrics for Prometheus and OpenTelemetry.

A counter must never decrease, because the collecting system would assume a restart and add the whole count again.
Therefore:

- A process does not report a figure before other processes can see it, since the next scrape may ask another process.
- Seconds are rounded by ``whole_parts``. The sum of other floats could decrease slightly if their order changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from wheelcache.cache import Cache
from wheelcache.near_cache.store_stats import CallStats, StoreStats
from wheelcache.pages.page_stats import PageStats
from wheelcache.pages.reasons import REASONS
from wheelcache.watch.comparison import worse_groups
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.site import Own, Site, own_figures

OTHERS: Final = "other"
"""The name of the group of all other keys, as a label."""


class Kind(Enum):
    """The way in which the values of several processes are combined.

    COUNTER: they are added and only grow. LEVEL: they are added and go up and down. WORST: the greatest is reported.
    """

    COUNTER = "counter"
    LEVEL = "level"
    WORST = "worst"


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric, with one or several values for each cache.

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
    read: Callable[[CacheFigures], Mapping[str, float]]
    label: str | None = None

    @property
    def is_measured(self) -> bool:
        """Whether the unit is a unit of measure, not a counted thing."""
        return self.unit in ("seconds", "bytes")


def _count(name: str) -> Callable[[CacheFigures], Mapping[str, float]]:
    return lambda reading: {"": getattr(reading.stats, name)}


def _if_any(value: float | None) -> Mapping[str, float]:
    return {} if value is None else {"": value}


def _of_store(read: Callable[[StoreStats], Mapping[str, float]]) -> Callable[[CacheFigures], Mapping[str, float]]:
    return lambda reading: {} if reading.stats.store is None else read(reading.stats.store)


def _of_store_calls(name: str) -> Callable[[CacheFigures], Mapping[str, float]]:
    return lambda reading: {operation: getattr(calls, name) for operation, calls in store_calls(reading).items()}


def _of_pages(read: Callable[[PageStats], Mapping[str, float]]) -> Callable[[CacheFigures], Mapping[str, float]]:
    return lambda reading: {} if reading.stats.pages is None else read(reading.stats.pages)


def _by_view(pages: PageStats) -> Mapping[str, float]:
    found: Counter[str] = Counter()
    for name, number in pages.refused_by_view.items():
        found[name or OTHERS] += number
    return found


def _of_groups(name: str) -> Callable[[CacheFigures], Mapping[str, float]]:
    """Return a reader of a count of the groups of keys, at most 65 of them."""

    def read(reading: CacheFigures) -> Mapping[str, float]:
        found: Counter[str] = Counter()
        for group, stats in reading.stats.groups.items():
            found[group or OTHERS] += getattr(stats, name)
        return found

    return read


def _page_count(name: str) -> Callable[[PageStats], Mapping[str, float]]:
    return lambda pages: {"": getattr(pages, name)}


def store_calls(reading: CacheFigures) -> Mapping[str, CallStats]:
    """Return the calls of the store behind a near cache by operation; empty if there is no such store."""
    store = reading.stats.store
    return {} if store is None else {"read": store.reads, "write": store.writes}


METRICS: Final = (
    Metric(
        "requests",
        "request",
        Kind.COUNTER,
        "Look-ups of a key, by result: a value within its TTL, a stale value within its grace, or none.",
        lambda reading: {
            "hit": reading.stats.hits,
            "stale": reading.stats.stale_hits,
            "miss": reading.stats.misses,
        },
        "result",
    ),
    *(
        Metric(name, unit, Kind.COUNTER, description, _count(count))
        for count, name, unit, description in (
            ("puts", "puts", "entry", "Values that were stored, also by loads."),
            (
                *("load_failures", "load_failures", "load"),
                "Loads that raised an exception, except failed reads of the store behind.",
            ),
            ("load_timeouts", "load_timeouts", "request", "Callers that did not wait for the end of a load."),
            (
                *("coalesced", "stampedes_prevented", "request"),
                "Callers that received a value which another caller was computing.",
            ),
            ("refreshes", "refreshes", "load", "Loads that were started in the background."),
            (
                *("refreshes_dropped", "refreshes_dropped", "load"),
                "Loads in the background that were not started, because too many were under way.",
            ),
        )
    ),
    Metric(
        "misses",
        "request",
        Kind.COUNTER,
        "Look-ups that found no value, by cause. Causes of keys that left long ago are estimates.",
        lambda reading: reading.stats.misses_by_cause,
        "cause",
    ),
    *(
        Metric(f"group_{name}", unit, Kind.COUNTER, description, _of_groups(count), "group")
        for name, count, unit, description in (
            ("requests", "requests", "request", "Look-ups, by the group of their keys."),
            ("misses", "misses", "request", "Look-ups that found no value, by the group of their keys."),
            ("loads", "loads", "load", "Loads, including those that raised an exception, by the group of their keys."),
            ("load_failures", "load_failures", "load", "Loads that raised an exception, by the group of their keys."),
        )
    ),
    Metric(
        "group_miss_rise_ratio",
        "ratio",
        Kind.WORST,
        "Points by which the miss ratio of a group of keys has risen since a release of the last hour; 0 unless that "
        "is a problem.",
        lambda reading: {group or OTHERS: reading.rises.get(group, 0.0) for group in reading.stats.groups},
        "group",
    ),
    Metric(
        "page_responses",
        "response",
        Kind.COUNTER,
        "Responses from the stored pages of an HTTP cache, by the state of the page: fresh or stale.",
        _of_pages(lambda pages: {"fresh": pages.fresh, "stale": pages.stale}),
        "state",
    ),
    *(
        Metric(name, unit, Kind.COUNTER, description, _of_pages(_page_count(count)))
        for count, name, unit, description in (
            ("revalidated", "pages_revalidated", "page", "Pages that the application confirmed with a 304."),
            (
                *("collapsed", "page_requests_collapsed", "request"),
                "Requests that waited for the run of another request and got its page.",
            ),
            ("bytes_sent", "pages_sent", "bytes", "Bytes of the bodies that were sent from stored pages."),
            ("stored", "pages_stored", "page", "Pages that were stored."),
            (
                *("variants_removed", "page_variants_removed", "variant"),
                "Variants that were removed because their page had too many.",
            ),
        )
    ),
    Metric(
        "pages_not_stored",
        "response",
        Kind.COUNTER,
        "Responses that an HTTP cache did not store, by reason.",
        _of_pages(lambda pages: {reason: pages.not_stored.get(reason, 0) for reason in REASONS}),
        "reason",
    ),
    Metric(
        "page_refusals",
        "response",
        Kind.COUNTER,
        "Responses that an HTTP cache did not store, by the view that made them.",
        _of_pages(_by_view),
        "view",
    ),
    Metric(
        "removals",
        "entry",
        Kind.COUNTER,
        "Entries that were removed, by cause.",
        lambda reading: reading.stats.removals,
        "cause",
    ),
    Metric(
        "evicted_bytes",
        "bytes",
        Kind.COUNTER,
        "Bytes of the evicted entries; absent unless entries are weighed in bytes.",
        lambda reading: _if_any(reading.stats.evicted_weight if reading.weighs_bytes else None),
    ),
    Metric("entries", "entry", Kind.LEVEL, "Entries in memory.", _count("size")),
    Metric(
        "max_entries",
        "entry",
        Kind.LEVEL,
        "The limit on the number of entries; absent without a limit.",
        lambda reading: _if_any(reading.max_entries if reading.workers else None),
    ),
    Metric(
        "bytes",
        "bytes",
        Kind.LEVEL,
        "Bytes of the entries in memory; absent unless entries are weighed in bytes.",
        lambda reading: _if_any(reading.memory if reading.workers else None),
    ),
    Metric(
        "max_bytes",
        "bytes",
        Kind.LEVEL,
        "The limit on the bytes of the entries; absent without a limit.",
        lambda reading: _if_any(reading.max_weight if reading.workers and reading.weighs_bytes else None),
    ),
    Metric(
        "fullness_ratio",
        "ratio",
        Kind.WORST,
        "Share of the limit on entries or on weight in use, the greater one; absent without a limit.",
        lambda reading: _if_any(reading.fullness),
    ),
    Metric(
        "workers_without_thread",
        "process",
        Kind.LEVEL,
        "Processes with the cache to which the system refused a wheel thread.",
        lambda reading: {"": reading.refused},
    ),
    Metric(
        "workers_killed",
        "process",
        Kind.COUNTER,
        "Processes with the cache that ended abruptly: killed, crashed, or left by os._exit.",
        lambda reading: {"": reading.killed},
    ),
    Metric(
        "wheel_lag",
        "seconds",
        Kind.WORST,
        "Lag of the slowest timing wheel, in seconds.",
        lambda reading: _if_any(reading.lag),
    ),
    Metric(
        "store_requests",
        "request",
        Kind.COUNTER,
        "Look-ups that a near cache passed to the store behind it, by result: a value, or none.",
        _of_store(lambda store: {"hit": store.hits, "miss": store.misses}),
        "result",
    ),
    Metric(
        "store_errors",
        "call",
        Kind.COUNTER,
        "Calls of the store behind a near cache that failed because of the store.",
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
        _of_store(lambda store: _if_any(store.open_breakers if store.breakers else None)),
    ),
    Metric(
        "store_tracking_lost",
        "process",
        Kind.LEVEL,
        "Processes that the store behind does not notify of writes at present, although it does not refuse to; absent "
        "if it never notifies any.",
        _of_store(lambda store: _if_any(store.lost_trackers if store.trackers else None)),
    ),
    Metric(
        "store_tracking_refused",
        "process",
        Kind.LEVEL,
        "Processes that the store behind refuses to notify of writes; absent if it never notifies any.",
        _of_store(lambda store: _if_any(store.refused_trackers if store.trackers else None)),
    ),
)
"""The metrics of every cache. The times of loads are separate, since not all systems accept a histogram."""

LOAD_TIME: Final = "Seconds that loads took, including those that raised an exception."

STORE_TIME: Final = "Seconds that calls of the store behind a near cache took, including those that failed."


INFO: Final = (
    "Always 1: the version of wheelcache and the core in use, compiled or python. WHEELCACHE_CORE in the environment "
    "selects the core; the compiled core exists if there was a C compiler when wheelcache was installed."
)


def info_labels(reading: CacheFigures) -> list[dict[str, str]]:
    """Return the labels of the metric ``info`` for a cache, once for each core that its processes run."""
    return [{"cache": reading.name, "core": core, "version": _version()} for core in reading.cores]


@lru_cache(1)
def _version() -> str:
    try:
        return version("wheelcache")
    except PackageNotFoundError:
        # The package was copied into the site's own folder without its metadata.
        return "unknown"


def read_site(caches: Iterable[Cache]) -> list[CacheFigures]:
    """Return the figures of caches in all processes of the site, sorted by name, as last published.

    If a cache does not or cannot publish, the result has its figures in this process.

    Args:
        caches: the caches of this process.
    """
    site = Site(caches, Own.UNPUBLISHED)
    found = site.figures_by_name(_to_be_sent)
    for each in found:
        each.rises = {change.name: change.rise for change in worse_groups(site, each)}
    return found


def read_process(caches: Iterable[Cache]) -> list[CacheFigures]:
    """Return the figures of ``caches`` in this process, sorted by name."""
    return own_figures(caches, _to_be_sent)


def _to_be_sent(name: str) -> str:
    # A name may contain lone surrogates, which cannot be encoded.
    return name.encode("utf-8", "backslashreplace").decode()
