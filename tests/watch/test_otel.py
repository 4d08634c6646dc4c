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
    "wheelcache.info": (GAUGE, "1", {"cache", "core", "version"}),
    "wheelcache.loads": (COUNTER, "{load}", {"cache"}),
    "wheelcache.load_time": (COUNTER, "s", {"cache"}),
    "wheelcache.store_calls": (COUNTER, "{call}", {"cache", "operation"}),
    "wheelcache.store_time": (COUNTER, "s", {"cache", "operation"}),
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


class Observed:
    """The figures of one reading."""

    def __init__(self, reader):
        data = reader.get_metrics_data()
        scopes = [each for resource in data.resource_metrics for each in resource.scope_metrics] if data else []
        assert [each.scope.name for each in scopes] == ["wheelcache"] * bool(scopes)
        listed = [metric for scope in scopes for metric in scope.metrics]
        self.metrics = {metric.name: metric for metric in listed}
        assert len(self.metrics) == len(listed), "no metric is there twice"

    def __call__(self, name, cache="pages", **attributes):
        """Return a value; None if it is missing."""
        wanted = {"cache": cache, **attributes}
        metric = self.metrics.get(f"wheelcache.{name}")
        found = [each.value for each in metric.data.data_points if each.attributes == wanted] if metric else []
        assert len(found) <= 1
        return found[0] if found else None


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
    return lambda: Observed(reader)


def test_every_metric_is_an_instrument_of_its_kind_unit_attributes_and_description(make_exported, observe, clock):
    cache = make_exported(max_entries=10, max_weight=10**6, weigher=size_of)
    cache.set("a", 1)
    use_store(cache, clock)
    pages = cache.engine.observed.figures.by_guest["pages"] = Figures()
    pages.refused(refusal("vary"), "/basket", "shop:basket")
    observed = observe().metrics
    found = {
        name: (kind(metric), metric.unit, {each for point in metric.data.data_points for each in point.attributes})
        for name, metric in observed.items()
    }
    expected = {
        f"wheelcache.{each.name}": (
            KINDS[each.kind],
            UNITS.get(each.unit, f"{{{each.unit}}}"),
            {"cache", *filter(None, [each.label])},
        )
        for each in METRICS
    }
    assert found == expected | OTHERS
    assert [observed[f"wheelcache.{each.name}"].description for each in METRICS] == [
        each.description for each in METRICS
    ]


def test_values_are_those_of_the_cache(make_exported, observe, clock):
    cache = make_exported(max_entries=3)
    use_store(cache, clock)
    for key in "abcd":
        cache.get_or_load(key, lambda: clock.advance(0.25) or "loaded")
    with pytest.raises(LookupError):
        cache.get_or_load("failing", lambda: {}[clock.advance(0.5)])
    cache.get("d")
    observed = observe()
    assert (observed("requests", result="hit"), observed("requests", result="miss")) == (1, 5)
    assert observed("removals", cause="evicted") == 1
    assert (observed("loads"), observed("load_failures"), observed("load_time")) == (5, 1, 1.5)
    assert (observed("entries"), observed("max_entries"), observed("wheel_lag")) == (3, 3, 0)
    assert [observed("store_calls", operation=each) for each in ("read", "write")] == [2, 4]
    assert observed("store_time", operation="write") == pytest.approx(4.25, abs=1e-5)
