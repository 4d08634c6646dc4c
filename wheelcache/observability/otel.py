"""The figures of caches for OpenTelemetry. Needs its API: the extra ``otel``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Final

from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation, get_meter

from wheelcache.observability.metrics import (
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
from wheelcache.observability.observed import ObservedCache, observed_caches

_UNITS: Final = {"seconds": "s", "bytes": "By"}
"""By UCUM. What is counted is no unit there, and written in braces."""

_TIMED: Final = (
    Metric(
        "loads",
        "load",
        Kind.COUNTER,
        "Loads that ended, also those that raised an exception.",
        lambda reading: {"": sum(reading.counted.load_buckets)},
    ),
    Metric(
        "load_time",
        "seconds",
        Kind.COUNTER,
        LOAD_TIME,
        lambda reading: {"": reading.counted.load_seconds},
    ),
    Metric(
        "store_calls",
        "call",
        Kind.COUNTER,
        "Calls of the store behind a near cache that ended, also those that failed.",
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
"""In place of histograms, which OpenTelemetry can't observe: each single load would have to be recorded."""


def instrument(
    meter_provider: MeterProvider | None = None, caches: Callable[[], Iterable[ObservedCache]] = observed_caches
) -> None:
    """Have OpenTelemetry observe the caches of this process, by the meter "wheelcache".

    Each process tells its own figures only, as is the custom there: its resource, with
    ``service.instance.id``, tells them apart, and a reader adds them up. So it is called once in every
    worker, after the fork if the server forks, where the SDK is set up. Called again, it changes nothing.

    The instruments have the names of the metrics for Prometheus, with a dot behind the prefix and without endings for
    kind and unit: ``wheelcache.requests`` for ``wheelcache_requests_total``. Of loads there are the number,
    ``wheelcache.loads``, and the seconds, ``wheelcache.load_time``, and of calls of the store behind a near cache
    ``wheelcache.store_calls`` and ``wheelcache.store_time``: a histogram cannot be observed.

    Args:
        meter_provider: None for the global one, which may be set later.
        caches: tells the caches of this process.
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


def _observe(
    metric: Metric, caches: Callable[[], Iterable[ObservedCache]], _: CallbackOptions
) -> Iterator[Observation]:
    for reading in read_process(caches()):
        for label, value in metric.read(reading).items():
            attributes = {"cache": reading.name}
            if metric.label is not None:
                attributes[metric.label] = label
            yield Observation(value, attributes)


def _observe_info(caches: Callable[[], Iterable[ObservedCache]], _: CallbackOptions) -> Iterator[Observation]:
    for reading in read_process(caches()):
        for labels in info_labels(reading):
            yield Observation(1, labels)
