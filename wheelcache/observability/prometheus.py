"""The figures of a site's caches for Prometheus. Needs ``prometheus_client``: the extra ``prometheus``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.utils import floatToGoString

from wheelcache.observability.figures import CacheFigures
from wheelcache.observability.metrics import (
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
from wheelcache.observability.observed import ObservedCache, observed_caches
from wheelcache.stats import LOAD_BOUNDS

_BOUNDS: Final = tuple(map(floatToGoString, (*LOAD_BOUNDS, float("inf"))))


class Collector:
    """Tells ``prometheus_client`` the figures of all caches, in all workers of the site, whichever of them is scraped.

    ``REGISTRY.register(Collector())``, once in every worker. Counters have what workers that are gone had counted as
    well, so that they never go down; gauges are of the workers that live. What others counted is up to 3 seconds old.
    That needs caches that publish their figures, as those of Django and Flask do unless told otherwise; of a cache that
    does not, this worker's figures are told, and those of no other.

    In multiprocess mode, where ``PROMETHEUS_MULTIPROC_DIR`` is set, what is scraped is a registry made for it. This is
    registered there, beside the other::

        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        registry.register(Collector())

    Nothing of it is in the files of that directory, so nothing is counted twice.

    Args:
        caches: tells the caches of this process, which are the way to those of the others. A scrape fails with what it
            raises.
    """

    def __init__(self, caches: Callable[[], Iterable[ObservedCache]] = observed_caches) -> None:
        self._caches = caches

    def describe(self) -> Iterator[Family]:
        """The metrics, without values: what a registry needs to know."""
        return _families([])

    def collect(self) -> Iterator[Family]:
        """The metrics, with the values of now."""
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
        loads.add_metric((reading.name,), _buckets(reading.counted.load_buckets), reading.counted.load_seconds)
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
    """Of each bound, how many took up to it."""
    return list(zip(_BOUNDS, accumulate(counts), strict=True))
