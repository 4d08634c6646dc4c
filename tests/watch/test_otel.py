"""OpenTelemetry: the instruments follow its conventions, and report the figures of this process."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

from tests.watch.behind import use_store
from wheelcache.engine.codec import size_of
from wheelcache.pages.figures import Figures
from wheelcache.pages.reasons import refusal
from wheelcache.watch.metrics import METRICS, Kind
from wheelcache.watch.otel import instrument

COUNTER, LEVEL, GAUGE = "counter", "up-down counter", "gauge"

KINDS = {Kind.COUNTER: COUNTER, Kind.LEVEL: LEVEL, Kind.WORST: GAUGE}
UNITS = {"seconds": "s", "bytes": "By", "ratio": "1"}
OTHERS = {
    "info": (GAUGE, "1", {"cache", "core", "version"}),
    "loads": (COUNTER, "{load}", {"cache"}),
    "load_time": (COUNTER, "s", {"cache"}),
    "store_calls": (COUNTER, "{call}", {"cache", "operation"}),
    "store_time": (COUNTER, "s", {"cache", "operation"}),
}


def kind(metric):
    if isinstance(metric.data, Gauge):
        return GAUGE
    assert isinstance(metric.data, Sum)
    return COUNTER if metric.data.is_monotonic else LEVEL


class PatientReader(InMemoryMetricReader):
    """Allow a busy machine more than ten seconds for the caches that all tests of the process have left."""

    def collect(self, timeout_millis=100_000):
        super().collect(timeout_millis)


def observed(reader):
    """Return the instruments of one reading by their names."""
    (resource,) = reader.get_metrics_data().resource_metrics
    (scope,) = resource.scope_metrics
    assert scope.scope.name == "wheelcache"
    found = {metric.name.removeprefix("wheelcache."): metric for metric in scope.metrics}
    assert len(found) == len(scope.metrics), "no metric is there twice"
    return found


@pytest.fixture
def reader():
    return PatientReader()


@pytest.fixture
def provider(reader):
    provider = MeterProvider(metric_readers=[reader])
    yield provider
    provider.shutdown()


@pytest.fixture
def observe(reader, provider, caches):
    instrument(provider, lambda: caches)
    return lambda: observed(reader)


def test_every_metric_is_an_instrument_of_its_kind_unit_attributes_and_description(make_exported, observe, clock):
    cache = make_exported(max_entries=10, max_weight=10**6, weigher=size_of)
    cache.set("a", 1)
    use_store(cache, clock)
    pages = cache.engine.observed.figures.by_guest["pages"] = Figures()
    pages.refused(refusal("vary"), "/basket", "shop:basket")
    metrics = observe()
    found = {
        name: (kind(metric), metric.unit, {each for point in metric.data.data_points for each in point.attributes})
        for name, metric in metrics.items()
    }
    expected = {
        each.name: (
            KINDS[each.kind],
            UNITS.get(each.unit, f"{{{each.unit}}}"),
            {"cache", *filter(None, [each.label])},
        )
        for each in METRICS
    }
    assert found == expected | OTHERS


def test_values_are_those_of_the_cache(make_exported, observe, clock):
    cache = make_exported(max_entries=3)
    use_store(cache, clock)
    for key in "abcd":
        cache.get_or_load(key, lambda: clock.advance(0.25) or "loaded")
    with pytest.raises(LookupError):
        cache.get_or_load("failing", lambda: {}[clock.advance(0.5)])
    cache.get("d")
    points = [(name, point) for name, metric in observe().items() for point in metric.data.data_points]
    found = {(name, *sorted(set(point.attributes.values()) - {"pages"})): point.value for name, point in points}
    assert (found["requests", "hit"], found["requests", "miss"], found["removals", "evicted"]) == (1, 5, 1)
    assert (found["loads",], found["load_failures",], found["load_time",]) == (5, 1, 1.5)
    assert (found["entries",], found["max_entries",], found["wheel_lag",]) == (3, 3, 0)
    assert [found["store_calls", each] for each in ("read", "write")] == [2, 4]
    assert found["store_time", "write"] == pytest.approx(4.25, abs=1e-5)
