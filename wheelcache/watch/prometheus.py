"""Report the figures of a site's caches to Prometheus. This needs the extra ``prometheus``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from wheelcache.cache import Cache
from wheelcache.cache import caches as caches_of_process
from wheelcache.engine.stats import LOAD_BOUNDS
from wheelcache.watch.figures import CacheFigures
from wheelcache.watch.metrics import (
    INFO,
    LOAD_TIME,
    METRICS,
    STORE_TIME,
    Kind,
    Metric,
    info_labels,
    read_site,
    store_calls,
)

_BOUNDS: Final = tuple(map(floatToGoString, (*LOAD_BOUNDS, float("inf"))))


class Collector:
    """Provides ``prometheus_client`` with the figures of all caches in all workers of the site.

    Register it once in every worker: ``REGISTRY.register(Collector())``. Every worker reports the same figures, so it
    does not matter which one is scraped. Counters include workers that have exited, so they never decrease; gauges
    cover living workers. The figures of other workers are up to 3 seconds old. This needs caches that publish their
    figures, which is the default in Django and Flask. For any other cache, the worker reports only its own figures.

    In multiprocess mode, where ``PROMETHEUS_MULTIPROC_DIR`` is set, register it in the registry that is scraped::

        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        registry.register(Collector())

    It writes nothing to that directory, so nothing is counted twice.

    Args:
        caches: returns the caches of this process, through which the caches of the other processes are found. If it
            raises an exception, the scrape fails with that exception.
    """

    def __init__(self, caches: Callable[[], Iterable[Cache]] = caches_of_process) -> None:
        self._caches = caches

    def describe(self) -> Iterator[Family]:
        """Return the metrics without values, as a registry needs them."""
        return _families([])

    def collect(self) -> Iterator[Family]:
        """Return the metrics with their present values."""
        return _families(read_site(self._caches()))


def _families(readings: list[CacheFigures]) -> Iterator[Family]:
    for metric in METRICS:
        yield _family(metric, readings)
    workers = GaugeMetricFamily("wheelcache_workers", "Processes that have the cache.", labels=("cache",))
    info = GaugeMetricFamily("wheelcache_info", INFO, labels=("cache", "core", "version"))
    loads = HistogramMetricFamily("wheelcache_load", LOAD_TIME, labels=("cache",), unit="seconds")
    store = HistogramMetricFamily("wheelcache_store", STORE_TIME, labels=("cache", "operation"), unit="seconds")
    for reading in readings:
        workers.add_metric((reading.name,), reading.workers)
        loads.add_metric((reading.name,), _buckets(reading.stats.load_buckets), reading.stats.load_seconds)
        for operation, calls in store_calls(reading).items():
            store.add_metric((reading.name, operation), _buckets(calls.buckets), calls.seconds)
        for labels in info_labels(reading):
            info.add_metric(tuple(labels.values()), 1)
    yield workers
    yield info
    yield loads
    yield store


def _family(metric: Metric, readings: list[CacheFigures]) -> Family:
    of_kind = CounterMetricFamily if metric.kind is Kind.COUNTER else GaugeMetricFamily
    labels = ("cache",) if metric.label is None else ("cache", metric.label)
    unit = metric.unit if metric.is_measured else ""
    family = of_kind(f"wheelcache_{metric.name}", metric.description, labels=labels, unit=unit)
    for reading in readings:
        for label, value in metric.read(reading).items():
            family.add_metric((reading.name, label)[: len(labels)], value)
    return family


def _buckets(counts: Iterable[int]) -> list[tuple[str, float]]:
    """Return the cumulative counts by upper bound."""
    return list(zip(_BOUNDS, accumulate(counts), strict=True))
