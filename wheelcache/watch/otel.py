"""Report the figures of caches to OpenTelemetry. This needs the extra ``otel``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from wheelcache.cache import Cache
from wheelcache.cache import caches as caches_of_process
from wheelcache.watch.metrics import (
    INFO,
    LOAD_TIME,
    METRICS,
    STORE_TIME,
    Kind,
    Metric,
    info_labels,
    read_process,
    store_calls,
)

_UNITS: Final = {"seconds": "s", "bytes": "By", "ratio": "1"}
"""Units in UCUM notation. Counted things are annotations in braces there."""

_TIMED: Final = (
    Metric(
        "loads",
        "load",
        Kind.COUNTER,
        "Loads that ended, including those that raised an exception.",
        lambda reading: {"": sum(reading.stats.load_buckets)},
    ),
    Metric("load_time", "seconds", Kind.COUNTER, LOAD_TIME, lambda reading: {"": reading.stats.load_seconds}),
    Metric(
        "store_calls",
        "call",
        Kind.COUNTER,
        "Calls of the store behind a near cache that ended, including those that failed.",
        lambda reading: {operation: calls.calls for operation, calls in store_calls(reading).items()},
        "operation",
    ),
    Metric(
        "store_time",
        "seconds",
        Kind.COUNTER,
        STORE_TIME,
        lambda reading: {operation: calls.seconds for operation, calls in store_calls(reading).items()},
        "operation",
    ),
)
"""These replace histograms, since an OpenTelemetry callback cannot observe one: each load would have to be recorded."""


def instrument(
    meter_provider: MeterProvider | None = None, caches: Callable[[], Iterable[Cache]] = caches_of_process
) -> None:
    """Let OpenTelemetry observe the caches of this process, through the meter "wheelcache".

    Call this once in every worker where the SDK is set up, after the fork if the server forks. Another call changes
    nothing. As usual with OpenTelemetry, each process reports only its own figures. Its resource, with
    ``service.instance.id``, distinguishes them, and a reader adds them up.

    The instruments are named after the metrics for Prometheus, with a dot after the prefix and without the suffixes for
    kind and unit: ``wheelcache.requests`` for ``wheelcache_requests_total``. Histograms cannot be observed. Instead,
    ``wheelcache.loads`` counts loads and ``wheelcache.load_time`` adds up their seconds; ``wheelcache.store_calls`` and
    ``wheelcache.store_time`` do the same for calls of the store behind a near cache.

    Args:
        meter_provider: the provider; None for the global one, which may be set later.
        caches: returns the caches of this process.
    """
    meter = get_meter("wheelcache", meter_provider=meter_provider)
    for metric in (*METRICS, *_TIMED):
        _create(meter, metric, partial(_observe, metric, caches))
    meter.create_observable_gauge("wheelcache.info", [partial(_observe_info, caches)], unit="1", description=INFO)


def _create(meter: Meter, metric: Metric, callback: Callable[[CallbackOptions], Iterable[Observation]]) -> None:
    create = {
        Kind.COUNTER: meter.create_observable_counter,
        Kind.LEVEL: meter.create_observable_up_down_counter,
        Kind.WORST: meter.create_observable_gauge,
    }[metric.kind]
    unit = _UNITS.get(metric.unit, f"{{{metric.unit}}}")
    create(f"wheelcache.{metric.name}", [callback], unit=unit, description=metric.description)


def _observe(metric: Metric, caches: Callable[[], Iterable[Cache]], _: CallbackOptions) -> Iterator[Observation]:
    for reading in read_process(caches()):
        for label, value in metric.read(reading).items():
            attributes = {"cache": reading.name}
            if metric.label is not None:
                attributes[metric.label] = label
            yield Observation(value, attributes)


def _observe_info(caches: Callable[[], Iterable[Cache]], _: CallbackOptions) -> Iterator[Observation]:
    for reading in read_process(caches()):
        for labels in info_labels(reading):
            yield Observation(1, labels)
