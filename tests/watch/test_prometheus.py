"""Prometheus: names, types and labels follow its rules, and the values are those of all workers."""

import gc
import json
import random
import re
import shutil
import subprocess
import textwrap
import threading
from functools import reduce
from importlib.metadata import version
from math import inf
from operator import add
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.openmetrics import parser as openmetrics_parser

import wheelcache
from tests.scripts import run_python
from tests.waiting import start
from tests.watch.behind import use_store
from tests.watch.scrape import Scrape, assert_nothing_went_down
from wheelcache import Cache, RemovalCause
from wheelcache.core import IMPLEMENTATION
from wheelcache.engine.codec import size_of
from wheelcache.engine.stats import LOAD_BOUNDS, MISSES, Meter
from wheelcache.pages.figures import Figures
from wheelcache.pages.reasons import refusal
from wheelcache.watch.prometheus import Collector
from wheelcache.watch.publisher import INTERVAL

ROOT = Path(__file__).parents[2]

METRICS = {
    "wheelcache_requests_total": ("counter", {"cache", "result"}),
    "wheelcache_puts_total": ("counter", {"cache"}),
    "wheelcache_misses_total": ("counter", {"cache", "cause"}),
    "wheelcache_removals_total": ("counter", {"cache", "cause"}),
    "wheelcache_evicted_bytes_total": ("counter", {"cache"}),
    "wheelcache_load_seconds": ("histogram", {"cache"}),
    "wheelcache_load_failures_total": ("counter", {"cache"}),
    "wheelcache_load_timeouts_total": ("counter", {"cache"}),
    "wheelcache_stampedes_prevented_total": ("counter", {"cache"}),
    "wheelcache_refreshes_total": ("counter", {"cache"}),
    "wheelcache_refreshes_dropped_total": ("counter", {"cache"}),
    "wheelcache_entries": ("gauge", {"cache"}),
    "wheelcache_max_entries": ("gauge", {"cache"}),
    "wheelcache_bytes": ("gauge", {"cache"}),
    "wheelcache_max_bytes": ("gauge", {"cache"}),
    "wheelcache_info": ("gauge", {"cache", "core", "version"}),
    "wheelcache_workers": ("gauge", {"cache"}),
    "wheelcache_fullness_ratio": ("gauge", {"cache"}),
    "wheelcache_workers_without_thread": ("gauge", {"cache"}),
    "wheelcache_workers_killed_total": ("counter", {"cache"}),
    "wheelcache_wheel_lag_seconds": ("gauge", {"cache"}),
    "wheelcache_store_seconds": ("histogram", {"cache", "operation"}),
    "wheelcache_store_requests_total": ("counter", {"cache", "result"}),
    "wheelcache_store_errors_total": ("counter", {"cache", "operation"}),
    "wheelcache_store_refused_total": ("counter", {"cache", "operation"}),
    "wheelcache_store_breaker_open": ("gauge", {"cache"}),
    "wheelcache_store_tracking_lost": ("gauge", {"cache"}),
    "wheelcache_store_tracking_refused": ("gauge", {"cache"}),
    "wheelcache_page_responses_total": ("counter", {"cache", "state"}),
    "wheelcache_page_requests_collapsed_total": ("counter", {"cache"}),
    "wheelcache_pages_revalidated_total": ("counter", {"cache"}),
    "wheelcache_pages_sent_bytes_total": ("counter", {"cache"}),
    "wheelcache_pages_stored_total": ("counter", {"cache"}),
    "wheelcache_page_variants_removed_total": ("counter", {"cache"}),
    "wheelcache_pages_not_stored_total": ("counter", {"cache", "reason"}),
    "wheelcache_page_refusals_total": ("counter", {"cache", "view"}),
}


@pytest.fixture
def exposition(caches):
    registry = CollectorRegistry()
    registry.register(Collector(lambda: caches))
    return lambda: generate_latest(registry)


@pytest.fixture
def scrape(exposition):
    return lambda: Scrape(exposition().decode())


@pytest.fixture
def promtool():
    """Run promtool in ``docs``, and return its exit code and output."""
    program = shutil.which("promtool") or shutil.which(ROOT / ".fetched" / "promtool")
    if program is None:
        raise RuntimeError("these tests need promtool in the PATH or in .fetched: make packages")

    def run(*arguments, given=b""):
        command = [program, *arguments]
        done = subprocess.run(command, input=given, cwd=ROOT / "docs", capture_output=True, timeout=250, check=False)
        return done.returncode, (done.stdout + done.stderr).decode()

    return run


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
    scraped = scrape()
    found = {
        name: (family.type, {label for sample in family.samples for label in sample.labels} - {"le"})
        for name, family in scraped.families.items()
    }
    assert found == METRICS


def test_helps_are_sentences_and_labels_are_words(make_exported, scrape, clock):
    exercise(make_exported(max_entries=10, max_weight=10**6, weigher=size_of), clock)
    for family in scrape().families.values():
        assert re.fullmatch(r"[A-Z].*\.", family.documentation)
        assert all(re.fullmatch(r"[a-z]+", label) for sample in family.samples for label in sample.labels)


@pytest.mark.servers
def test_promtool_finds_no_fault_in_the_metrics(make_exported, exposition, promtool, clock):
    exercise(make_exported(max_entries=10, max_weight=10**6, weigher=size_of), clock)
    assert promtool("check", "metrics", given=exposition()) == (0, "")
    badly_named = exposition().replace(b"wheelcache_puts_total", b"wheelcache_puts")
    code, said = promtool("check", "metrics", given=badly_named)
    assert (code, "wheelcache_puts" in said) == (3, True), "this version lints"


@pytest.mark.servers
def test_promtool_accepts_the_alert_rules_and_their_tests(promtool):
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
    labels = {label for _, labels in METRICS.values() for label in labels}
    used = {each for by in re.findall(r"\bby \(([^)]*)\)", text) for each in by.split(", ")}
    assert used <= {*labels, "le", "job", "instance", "alertname"}


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
    for operation, bounds, seconds in (("read", [0.25, 0.25], 0.325), ("write", [1.0] * 3 + [2.5], 4.25)):
        buckets = [
            scraped("store_seconds_bucket", operation=operation, le=str(bound)) for bound in (*LOAD_BOUNDS, "+Inf")
        ]
        assert buckets == [sum(each <= bound for each in bounds) for bound in (*LOAD_BOUNDS, inf)]
        assert scraped("store_seconds_count", operation=operation) == len(bounds)
        assert scraped("store_seconds_sum", operation=operation) == pytest.approx(seconds, abs=1e-5)
    assert [scraped("store_errors_total", operation=each) for each in ("read", "write")] == [0, 3]
    assert [scraped("store_refused_total", operation=each) for each in ("read", "write")] == [1, 2]
    assert [scraped(f"store_{each}") for each in ("breaker_open", "tracking_lost", "tracking_refused")] == [1, 1, 0]
    assert not [
        name for name, labels in scraped.values if name.startswith("wheelcache_store") and ("cache", "plain") in labels
    ]


def test_what_has_no_bound_and_is_not_weighed_in_bytes_has_no_figure_for_it(make_exported, scrape):
    make_exported("plain")
    make_exported("weighed", max_weight=100, weigher=lambda key, value: 1).set("a", 1)
    scraped = scrape()
    for cache in ("plain", "weighed"):
        assert scraped("entries", cache) is not None
        for absent in ("max_entries", "bytes", "max_bytes", "evicted_bytes_total"):
            assert scraped(absent, cache) is None


def test_a_scrape_without_caches_is_one(scrape):
    assert {name for name, family in scrape().families.items() if family.samples} == set()


def test_openmetrics_reads_the_same(make_exported, caches, clock):
    exercise(make_exported(max_entries=10, max_weight=10**6, weigher=size_of), clock)
    registry = CollectorRegistry()
    registry.register(Collector(lambda: caches))
    families = {
        each.name: each
        for each in openmetrics_parser.text_string_to_metric_families(openmetrics.generate_latest(registry).decode())
    }
    assert {(name.removesuffix("_total"), kind) for name, (kind, _) in METRICS.items()} == {
        (name, family.type) for name, family in families.items()
    }
    units = {name: family.unit for name, family in families.items() if family.unit}
    assert units == {
        "wheelcache_bytes": "bytes",
        "wheelcache_evicted_bytes": "bytes",
        "wheelcache_load_seconds": "seconds",
        "wheelcache_max_bytes": "bytes",
        "wheelcache_pages_sent_bytes": "bytes",
        "wheelcache_store_seconds": "seconds",
        "wheelcache_wheel_lag_seconds": "seconds",
    }


HOSTILE = [
    '"',
    "\\",
    "\n",
    "a\nwheelcache_entries 7",
    '{le="1"} 5',
    "\\n",
    "ключ ☃ 🎡",
    " ",
    "",
    "\r\n",
    "\0",
    "\u2028",
]


def test_hostile_names_of_caches_come_through_as_they_are(make_exported, scrape):
    for name in HOSTILE:
        make_exported(name).set("a", 1)
    scraped = scrape()
    for name in HOSTILE:
        assert scraped("entries", name) == 1
    assert set(scraped.families) == set(METRICS)


def test_half_a_surrogate_pair_which_cannot_be_sent_is_spelled_out(make_exported, scrape):
    make_exported("\udc80").set("a", 1)
    make_exported("\\udc80").set("a", 1)
    assert scrape()("entries", "\\udc80") == 2


def test_caches_of_one_name_are_one(make_exported, scrape, clock, tmp_path):
    make_exported(max_entries=10).set("a", 1)
    for most in (5, 7):
        cache = make_exported(max_entries=most, figures_dir=tmp_path / "figures")
        cache.set("a", 1)
        cache.get("b")
    clock.advance(INTERVAL)
    scraped = scrape()
    assert scraped("entries") == 3
    assert scraped("max_entries") == 22
    assert scraped("requests_total", result="miss") == 2
    assert scraped("workers") == 1


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


def test_registering_twice_is_the_usual_error_and_registering_reads_no_cache():
    def unread():
        raise AssertionError

    registry = CollectorRegistry(auto_describe=True)
    registry.register(Collector(unread))
    with pytest.raises(ValueError, match="Duplicated timeseries"):
        registry.register(Collector(unread))


def test_all_caches_of_the_process_are_told_unless_told_otherwise(make_exported):
    make_exported("of the process").set("a", 1)
    registry = CollectorRegistry()
    registry.register(Collector())
    assert Scrape(generate_latest(registry).decode())("entries", "of the process") == 1


NAMES = ("stays", "comes and goes")


def test_caches_may_be_closed_and_collected_while_they_are_read(tmp_path):
    """Some of the caches publish, and share a name with a cache that stays."""
    stays = Cache("stays", figures_dir=tmp_path / "figures")
    stays.get("a")
    stays.engine.observed.observer.publication.run_now()
    registry = CollectorRegistry()
    # Ignore the objects that earlier tests have left.
    registry.register(Collector(lambda: [each for each in wheelcache.caches() if each.name in NAMES]))
    ended = threading.Event()
    turns = threading.Semaphore()

    def come_and_go():
        while turns.acquire(timeout=60) and not ended.is_set():
            for options in ({}, {"figures_dir": tmp_path / "figures"}):
                cache = Cache("comes and goes", **options)
                cache.set("a", 1)
                if random.random() < 0.5:
                    cache.close()
                del cache
            # Collect only the youngest generation: after thousands of tests, a full collection takes a second.
            gc.collect(1)

    thread = start(come_and_go)
    try:
        for _ in range(40):
            turns.release(5)
            assert Scrape(generate_latest(registry).decode())("requests_total", "stays", result="miss") == 1
    finally:
        ended.set()
        turns.release()
        thread.join()
        stays.close()


def test_a_closed_cache_is_passed_over_even_if_it_was_listed_before(make_exported, scrape, tmp_path):
    make_exported("closed").close()
    make_exported("published", figures_dir=tmp_path / "figures").close()
    assert scrape()("entries", "closed") is None


def test_counters_of_what_was_published_stay_when_the_cache_is_closed(make_exported, scrape, caches, clock, tmp_path):
    for _ in range(2):
        make_exported(figures_dir=tmp_path / "figures").set("a", 1)
    caches[0].get("b")
    clock.advance(INTERVAL)
    before = scrape()
    caches.pop(0).close()
    after = scrape()
    assert_nothing_went_down(before, after)
    assert after("requests_total", result="miss") == 1
    assert after("entries") == 1


def test_a_miss_stays_one_when_a_stale_value_is_served_after_all(make_exported, scrape, clock):
    """A scrape may come before ``Stats`` corrects a count. To Prometheus, a counter that decreases has restarted."""
    cache = make_exported()
    scrapes = []

    def fail():
        scrapes.append(scrape())
        raise LookupError

    cache.get_or_load("a", lambda: "value", 10, grace=100, fail_safe=100)
    clock.advance(11)
    before = scrape()
    assert cache.get_or_load("a", fail, 10, grace=100, fail_safe=100, timeout=5) == "value"
    scrapes.append(scrape())
    for after in scrapes:
        assert_nothing_went_down(before, after)
        before = after
    found = tuple(before("requests_total", result=each) for each in ("hit", "stale", "miss"))
    assert found == (0, 1, 1)
    assert sum(found) == cache.stats().requests


def test_seconds_never_go_down_by_a_bit_when_they_are_added_in_another_order():
    choose = random.Random(1)
    for _ in range(500):
        loads = [Meter() for _ in range(6)]
        for each in loads:
            each.ended(choose.uniform(0, 10 ** choose.randrange(6)))
        seconds = [each.read()[1] for each in loads]
        assert reduce(add, seconds) == reduce(add, reversed(seconds))


def test_a_cache_whose_figures_cannot_be_published_is_told_by_its_own_worker(
    make_exported, scrape, clock, tmp_path, caplog
):
    cache = make_exported(figures_dir=tmp_path / "figures")
    cache.set("a", 1)
    (tmp_path / "figures").chmod(0o755)
    clock.advance(INTERVAL)
    assert scrape()("entries") == 1
    assert "cannot be published" in caplog.text
    (tmp_path / "figures").chmod(0o700)
    clock.advance(INTERVAL)
    assert scrape()("entries") == 1


def test_in_multiprocess_mode_nothing_is_told_twice(tmp_path):
    code = """
        from prometheus_client import CollectorRegistry, Counter, generate_latest
        from prometheus_client.multiprocess import MultiProcessCollector
        from wheelcache import Cache
        from wheelcache.watch.prometheus import Collector

        Counter("theirs", "Of the site.").inc()
        cache = Cache("pages")
        cache.get("a")
        registry = CollectorRegistry()
        MultiProcessCollector(registry)
        registry.register(Collector())
        print(generate_latest(registry).decode())
    """
    run = run_python("-c", textwrap.dedent(code), env={"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}, check=True)
    scraped = Scrape(run.stdout)
    assert set(scraped.families) == {*METRICS, "theirs_total"}
    assert scraped("requests_total", result="miss") == 1
