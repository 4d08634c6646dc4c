"""Prometheus: names, types and labels follow its rules, and the values are those of all workers."""

import json
import re
import shutil
import subprocess
from importlib.metadata import version

import pytest
from prometheus_client import CollectorRegistry, generate_latest, parser

from tests.scripts import ROOT, run_python
from tests.watch.behind import use_store
from wheelcache import RemovalCause
from wheelcache.core import IMPLEMENTATION
from wheelcache.engine.codec import size_of
from wheelcache.engine.stats import LOAD_BOUNDS, MISSES
from wheelcache.pages.figures import Figures
from wheelcache.pages.reasons import refusal
from wheelcache.watch.prometheus import Collector
from wheelcache.watch.publisher import INTERVAL

LABELS = {
    # The names of the metrics, by their type and their labels besides the name of the cache.
    ("counter", "result"): "requests store_requests",
    ("counter", ""): (
        "puts evicted_bytes load_failures load_timeouts stampedes_prevented refreshes refreshes_dropped "
        "workers_killed page_requests_collapsed pages_revalidated pages_sent_bytes pages_stored "
        "page_variants_removed"
    ),
    ("counter", "cause"): "misses removals",
    ("counter", "group"): "group_requests group_misses group_loads group_load_failures",
    ("gauge", "group"): "group_miss_rise_ratio",
    ("histogram", ""): "load_seconds",
    ("gauge", ""): (
        "entries max_entries bytes max_bytes workers fullness_ratio workers_without_thread "
        "wheel_lag_seconds store_breaker_open store_tracking_lost store_tracking_refused"
    ),
    ("gauge", "core version"): "info",
    ("histogram", "operation"): "store_seconds",
    ("counter", "operation"): "store_errors store_refused",
    ("counter", "state"): "page_responses",
    ("counter", "reason"): "pages_not_stored",
    ("counter", "view"): "page_refusals",
}
METRICS = {
    f"wheelcache_{name}{'_total' if kind == 'counter' else ''}": (kind, {"cache", *labels.split()})
    for (kind, labels), names in LABELS.items()
    for name in names.split()
}


def promtool(*arguments, given=b""):
    """Run promtool in ``docs``, and return its exit code and output."""
    program = shutil.which("promtool") or shutil.which(ROOT / ".fetched" / "promtool")
    if program is None:
        raise RuntimeError("these tests need promtool in the PATH or in .fetched: make packages")
    command = [program, *arguments]
    done = subprocess.run(command, input=given, cwd=ROOT / "docs", capture_output=True, timeout=250, check=False)
    return done.returncode, (done.stdout + done.stderr).decode()


class Scrape:
    """A parsed response to a scrape."""

    def __init__(self, text):
        # The parser removes the suffix of the names of counters.
        self.families = {
            f"{each.name}_total" if each.type == "counter" else each.name: each
            for each in parser.text_string_to_metric_families(text)
        }
        samples = [each for family in self.families.values() for each in family.samples]
        self.values = {(each.name, frozenset(each.labels.items())): each.value for each in samples}
        assert len(self.values) == len(samples), "no time series is there twice"

    def __call__(self, name, cache="pages", **labels):
        """Return a value; None if it is missing."""
        return self.values.get((f"wheelcache_{name}", frozenset({"cache": cache, **labels}.items())))


@pytest.fixture
def exposition(caches):
    registry = CollectorRegistry()
    registry.register(Collector(lambda: caches))
    return lambda: generate_latest(registry)


@pytest.fixture
def scrape(exposition):
    return lambda: Scrape(exposition().decode())


def exercise(cache, clock):
    """Give every figure a different value."""

    def slow(seconds, value=None):
        def load():
            clock.advance(seconds)
            if value is None:
                raise LookupError
            return value

        return load

    for seconds in (0.0005, 0.001, 0.3, 20.0):
        cache.get_or_load(seconds, slow(seconds, "loaded"))
    with pytest.raises(LookupError):
        cache.get_or_load("failing", slow(0.002))
    for number in range(12):
        cache.set(number, "value", 3600)
    for number in range(9, 12):
        cache.set(number, "other", 3600)
    for _ in range(7):
        cache.get(5)
    cache.get("missing")
    cache.delete(7)
    use_store(cache, clock)
    pages = cache.engine.observed.figures.by_guest["pages"] = Figures()
    pages.refused(refusal("vary"), "/basket", "shop:basket")


def test_every_metric_has_its_conventional_name_its_type_and_its_labels(make_exported, scrape, clock):
    exercise(make_exported(max_entries=10, max_weight=10**6, weigher=size_of), clock)
    found = {
        name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for name, family in scrape().families.items()
    }
    assert found == METRICS


@pytest.mark.servers
def test_promtool_finds_no_fault_in_the_metrics(make_exported, exposition, clock):
    exercise(make_exported(max_entries=10, max_weight=10**6, weigher=size_of), clock)
    assert promtool("check", "metrics", given=exposition()) == (0, "")


@pytest.mark.servers
def test_promtool_accepts_the_alert_rules_and_their_tests():
    code, said = promtool("check", "rules", "--lint=all", "--lint-fatal", "prometheus-alerts.yml")
    assert (code, "FAILED" in said) == (0, False), said
    assert re.search(r"SUCCESS: [1-9]\d* rules found", said)
    code, said = promtool("test", "rules", "prometheus-alerts.test.yml")
    assert (code, "FAILED" in said) == (0, False), said


def test_the_alerts_of_the_documentation_are_made_of_the_problems_of_the_page():
    done = run_python("-m", "wheelcache.watch.prometheus_alerts", check=True)
    assert done.stdout == (ROOT / "docs/prometheus-alerts.yml").read_text()


@pytest.mark.parametrize(
    "name", ["docs/prometheus-alerts.yml", "docs/prometheus-alerts.test.yml", "docs/grafana-dashboard.json"]
)
def test_what_is_made_for_these_metrics_names_no_others(name):
    text = (ROOT / name).read_text()
    if name.endswith(".json"):
        targets = [each for panel in json.loads(text)["panels"] for each in panel["targets"]]
        text = "\n".join(each["expr"] for each in targets)
        assert set(METRICS) == {re.sub("_(bucket|sum)$", "", each) for each in re.findall(r"wheelcache_\w+", text)}
    named = set(re.findall(r"\bwheelcache_\w+", text))
    assert named
    assert {re.sub("_(bucket|count|sum)$", "", each) for each in named} <= set(METRICS)


def test_values_are_those_of_the_cache(make_exported, scrape, clock):
    cache = make_exported(max_entries=10, max_weight=10**6, weigher=size_of)
    exercise(cache, clock)
    scraped, stats = scrape(), cache.stats()
    assert (scraped("requests_total", result="hit"), scraped("requests_total", result="miss")) == (7, 6)
    removals = {cause.value: scraped("removals_total", cause=cause.value) for cause in RemovalCause}
    assert removals == stats.removals
    assert {cause: scraped("misses_total", cause=cause) for cause in MISSES} == stats.misses_by_cause
    assert sum(stats.misses_by_cause.values()) == 6
    assert scraped("puts_total") == stats.puts == 4 + 15
    assert scraped("evicted_bytes_total") == stats.evicted_weight > 0
    assert min(removals["evicted"], removals["replaced"], removals["deleted"]) > 0
    assert scraped("load_failures_total") == 1
    assert scraped("entries") == len(cache) > 0
    assert scraped("max_entries") == 10
    assert scraped("bytes") == stats.weight > 0
    assert scraped("max_bytes") == 10**6
    assert scraped("workers") == 1
    assert scraped("info", core=IMPLEMENTATION, version=version("wheelcache")) == 1
    assert scraped("wheel_lag_seconds") == 0


@pytest.mark.parametrize("limit", [{"max_entries": 2}, {"max_weight": 2, "weigher": lambda key, value: 1}])
def test_weights_are_no_bytes_unless_entries_are_weighed_in_bytes(make_exported, scrape, limit):
    cache = make_exported(**limit)
    cache.set_many(dict.fromkeys("abcd", 1))
    scraped = scrape()
    assert scraped("removals_total", cause="evicted") == 2
    assert [scraped(each) for each in ("evicted_bytes_total", "bytes", "max_bytes")] == [None] * 3
    assert (scraped("fullness_ratio"), scraped("max_entries")) == (1.0, limit.get("max_entries"))


def test_the_histogram_counts_loads_up_to_each_bound_and_all_of_them(make_exported, scrape, clock):
    cache = make_exported()
    exercise(cache, clock)
    scraped = scrape()
    buckets = [scraped("load_seconds_bucket", le=str(bound)) for bound in (*LOAD_BOUNDS, "+Inf")]
    assert buckets == sorted(buckets)
    assert buckets == [0] * 5 + [1, 2] + [3] * 7 + [4] * 5 + [5]
    assert scraped("load_seconds_count") == buckets[-1] == cache.stats().loads + cache.stats().load_failures
    assert scraped("load_seconds_sum") == pytest.approx(20.3035, abs=1e-5)


def test_the_store_behind_a_near_cache_is_told_and_of_other_caches_nothing_of_the_kind(make_exported, scrape, clock):
    make_exported("plain").set("a", 1)
    exercise(make_exported(), clock)
    scraped = scrape()
    for operation, within_a_second, number, seconds in (("read", 2, 2, 0.325), ("write", 3, 4, 4.25)):
        assert scraped("store_seconds_bucket", operation=operation, le="1.0") == within_a_second
        assert scraped("store_seconds_count", operation=operation) == number
        assert scraped("store_seconds_sum", operation=operation) == pytest.approx(seconds, abs=1e-5)
    assert [scraped("store_errors_total", operation=each) for each in ("read", "write")] == [0, 3]
    assert [scraped("store_refused_total", operation=each) for each in ("read", "write")] == [1, 2]
    assert [scraped(f"store_{each}") for each in ("breaker_open", "tracking_lost", "tracking_refused")] == [1, 1, 0]
    assert not [
        name for name, labels in scraped.values if name.startswith("wheelcache_store") and ("cache", "plain") in labels
    ]


HOSTILE = ['"', "a\nwheelcache_entries 7", '{le="1"} 5', "ключ ☃ 🎡", "", "\0", "\u2028"]


def test_hostile_names_of_caches_come_through_as_they_are(make_exported, scrape):
    for name in (*HOSTILE, "\udc80", "\\udc80"):
        make_exported(name).set("a", 1)
    scraped = scrape()
    assert [scraped("entries", name) for name in HOSTILE] == [1] * len(HOSTILE)
    # Half a surrogate pair cannot be sent.
    assert scraped("entries", "\\udc80") == 2
    assert set(scraped.families) == set(METRICS)


def test_what_is_not_published_yet_is_not_told_either_as_the_next_worker_could_not_tell_it(
    make_exported, scrape, clock, tmp_path
):
    cache = make_exported(figures_dir=tmp_path / "figures")
    cache.set("a", 1)
    assert scrape()("entries") is None
    clock.advance(INTERVAL)
    assert scrape()("entries") == 1
    cache.set("b", 1)
    assert scrape()("entries") == 1
