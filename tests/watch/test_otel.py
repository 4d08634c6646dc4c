"""OpenTelemetry: the instruments follow its conventions, and report the figures of this process."""

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import Gauge, InMemoryMetricReader, Sum

from tests.watch.behind import use_store
from tests.watch.published import only
from wheelcache import Cache, RemovalCause
from wheelcache.engine.codec import size_of
from wheelcache.pages.figures import Figures
from wheelcache.pages.reasons import refusal
from wheelcache.watch.metrics import METRICS
from wheelcache.watch.otel import instrument

COUNTER, LEVEL, GAUGE = "counter", "up-down counter", "gauge"

INSTRUMENTS = {
    "wheelcache.requests": (COUNTER, "{request}", {"cache", "result"}),
    "wheelcache.puts": (COUNTER, "{entry}", {"cache"}),
    "wheelcache.misses": (COUNTER, "{request}", {"cache", "cause"}),
    "wheelcache.removals": (COUNTER, "{entry}", {"cache", "cause"}),
    "wheelcache.evicted_bytes": (COUNTER, "By", {"cache"}),
    "wheelcache.loads": (COUNTER, "{load}", {"cache"}),
    "wheelcache.load_time": (COUNTER, "s", {"cache"}),
    "wheelcache.load_failures": (COUNTER, "{load}", {"cache"}),
    "wheelcache.load_timeouts": (COUNTER, "{request}", {"cache"}),
    "wheelcache.stampedes_prevented": (COUNTER, "{request}", {"cache"}),
    "wheelcache.refreshes": (COUNTER, "{load}", {"cache"}),
    "wheelcache.refreshes_dropped": (COUNTER, "{load}", {"cache"}),
    "wheelcache.entries": (LEVEL, "{entry}", {"cache"}),
    "wheelcache.max_entries": (LEVEL, "{entry}", {"cache"}),
    "wheelcache.bytes": (LEVEL, "By", {"cache"}),
    "wheelcache.max_bytes": (LEVEL, "By", {"cache"}),
    "wheelcache.info": (GAUGE, "1", {"cache", "core", "version"}),
    "wheelcache.fullness_ratio": (GAUGE, "1", {"cache"}),
    "wheelcache.workers_without_thread": (LEVEL, "{process}", {"cache"}),
    "wheelcache.workers_killed": (COUNTER, "{process}", {"cache"}),
    "wheelcache.wheel_lag": (GAUGE, "s", {"cache"}),
    "wheelcache.store_calls": (COUNTER, "{call}", {"cache", "operation"}),
    "wheelcache.store_time": (COUNTER, "s", {"cache", "operation"}),
    "wheelcache.store_requests": (COUNTER, "{request}", {"cache", "result"}),
    "wheelcache.store_errors": (COUNTER, "{call}", {"cache", "operation"}),
    "wheelcache.store_refused": (COUNTER, "{call}", {"cache", "operation"}),
    "wheelcache.store_breaker_open": (LEVEL, "{process}", {"cache"}),
    "wheelcache.store_tracking_lost": (LEVEL, "{process}", {"cache"}),
    "wheelcache.store_tracking_refused": (LEVEL, "{process}", {"cache"}),
    "wheelcache.page_responses": (COUNTER, "{response}", {"cache", "state"}),
    "wheelcache.page_requests_collapsed": (COUNTER, "{request}", {"cache"}),
    "wheelcache.pages_revalidated": (COUNTER, "{page}", {"cache"}),
    "wheelcache.pages_sent": (COUNTER, "By", {"cache"}),
    "wheelcache.pages_stored": (COUNTER, "{page}", {"cache"}),
    "wheelcache.page_variants_removed": (COUNTER, "{variant}", {"cache"}),
    "wheelcache.pages_not_stored": (COUNTER, "{response}", {"cache", "reason"}),
    "wheelcache.page_refusals": (COUNTER, "{response}", {"cache", "view"}),
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


def test_every_instrument_has_its_name_its_kind_its_unit_and_its_attributes(make_exported, observe, clock):
    cache = make_exported(max_entries=10, max_weight=10**6, weigher=size_of)
    cache.set("a", 1)
    use_store(cache, clock)
    pages = cache.engine.observed.figures.by_guest["pages"] = Figures()
    pages.refused(refusal("vary"), "/basket", "shop:basket")
    found = {
        name: (kind(metric), metric.unit, {each for point in metric.data.data_points for each in point.attributes})
        for name, metric in observe().metrics.items()
    }
    assert found == INSTRUMENTS


def test_all_that_prometheus_gets_of_every_cache_is_observed_and_described_in_the_same_words(
    make_exported, observe, clock
):
    cache = make_exported(max_entries=10, max_weight=10**6, weigher=size_of)
    cache.set("a", 1)
    use_store(cache, clock)
    pages = cache.engine.observed.figures.by_guest["pages"] = Figures()
    pages.refused(refusal("vary"), "/basket", "shop:basket")
    observed = observe().metrics
    for metric in METRICS:
        assert observed[f"wheelcache.{metric.name}"].description == metric.description


def test_values_are_those_of_the_cache(make_exported, observe, clock):
    cache = make_exported(max_entries=3, max_weight=10**6, weigher=size_of)
    use_store(cache, clock)

    def load():
        clock.advance(0.25)
        return "loaded"

    def fail():
        clock.advance(0.5)
        raise LookupError

    for key in "abcd":
        cache.get_or_load(key, load)
    with pytest.raises(LookupError):
        cache.get_or_load("failing", fail)
    for _ in range(7):
        cache.get("d")
    cache.delete("c")
    observed, stats = observe(), cache.stats()
    assert (observed("requests", result="hit"), observed("requests", result="miss")) == (7, 5)
    assert {cause.value: observed("removals", cause=cause.value) for cause in RemovalCause} == stats.removals
    assert stats.removals["evicted"] == stats.removals["deleted"] == 1
    assert (observed("loads"), observed("load_failures"), observed("load_time")) == (5, 1, 1.5)
    assert (observed("entries"), observed("max_entries")) == (2, 3)
    assert (observed("bytes"), observed("max_bytes")) == (stats.weight, 10**6)
    assert observed("wheel_lag") == 0
    assert [observed("store_calls", operation=each) for each in ("read", "write")] == [2, 4]
    assert [observed("store_time", operation=each) for each in ("read", "write")] == pytest.approx(
        [0.325, 4.25], abs=1e-5
    )
    assert [observed("store_errors", operation=each) for each in ("read", "write")] == [0, 3]
    assert [observed("store_refused", operation=each) for each in ("read", "write")] == [1, 2]
    assert [observed(f"store_{each}") for each in ("breaker_open", "tracking_lost", "tracking_refused")] == [1, 1, 0]


def test_figures_of_other_processes_are_theirs_to_tell(make_exported, observe, tmp_path):
    cache = make_exported(figures_dir=tmp_path / "figures")
    cache.get("a")
    elsewhere = Cache("pages", figures_dir=tmp_path / "figures")
    elsewhere.get("b")
    elsewhere.engine.observed.observer.publication.run_now()
    assert observe()("requests", result="miss") == 1
    assert only(tmp_path / "figures").workers == 1, "and nothing was published for it"
    elsewhere.close()


def test_caches_of_one_name_are_one_and_hostile_names_come_through(make_exported, observe):
    for name in ("pages", "pages", '"\n\\', "ключ ☃", "\udc80"):
        make_exported(name).set("a", 1)
    observed = observe()
    assert observed("entries") == 2
    assert observed("entries", '"\n\\') == observed("entries", "ключ ☃") == observed("entries", "\\udc80") == 1


def test_without_caches_nothing_is_observed(observe):
    assert all(not metric.data.data_points for metric in observe().metrics.values())


def test_instrumenting_twice_changes_nothing(make_exported, observe, provider):
    instrument(provider, lambda: pytest.fail("the first one stays"))
    make_exported().get("a")
    assert observe()("requests", result="miss") == 1


def test_all_caches_of_the_process_are_observed_unless_told_otherwise(make_exported, reader, provider):
    instrument(provider)
    make_exported("of the process").set("a", 1)
    assert Observed(reader)("entries", "of the process") == 1


def test_a_closed_cache_is_passed_over_even_if_it_was_listed_before(make_exported, observe, caplog):
    make_exported("closed").close()
    make_exported("open").set("a", 1)
    assert (observe()("entries", "closed"), observe()("entries", "open")) == (None, 1)
    assert caplog.text == ""
