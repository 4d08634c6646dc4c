"""Planted situations: the page, the terminal and the alerts of Prometheus give the same verdict, and the right one.

Caches in one or two workers serve a site for some minutes of a manual clock, and publish what they count. The metrics
are read every minute, and promtool evaluates the alerts of the documentation on them.
"""

import io
import json
import re
from collections import defaultdict
from itertools import count
from random import Random

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.watch.scrape import Scrape
from tests.watch.test_dashboard import dashboard
from tests.watch.test_prometheus import ROOT, promtool
from wheelcache import Cache, ManualClock
from wheelcache.engine.codec import size_of
from wheelcache.watch import publisher, site_commands
from wheelcache.watch.console import show
from wheelcache.watch.event_log import CLEARED, Event, add_events
from wheelcache.watch.prometheus import Collector

__all__ = ["promtool"]

pytestmark = pytest.mark.compiled

MINUTE = 60


class PlantedSite:
    """A site with one or two workers."""

    def __init__(self, folder, monkeypatch):
        self.clock = ManualClock()
        self.workers = []
        self.random = Random(1)
        self.numbers = count()
        self.scrapes = []
        self._folder = folder
        self._monkeypatch = monkeypatch

    def start(self, workers=1, **options):
        for _ in range(workers):
            with self._monkeypatch.context() as patch:
                # Each worker publishes as a process of its own.
                patch.setattr(publisher, "_publishers", {})
                given = {
                    "clock": self.clock,
                    "jitter": 0,
                    "figures_dir": self._folder / "figures",
                }
                self.workers.append(Cache("pages", **given, **options))

    def stop(self):
        while self.workers:
            self.workers.pop().close()

    def deploy(self, **options):
        """Replace all workers by those of another release."""
        number = len(self.workers)
        release = self._time(), f"r{next(self.numbers)}"
        self._write(lambda db: db.execute("INSERT INTO releases VALUES (?, ?)", release))
        self.stop()
        self.start(number, **options)

    def clear(self, operator):
        """Clear the cache in all workers as the dashboard does, at the time of the manual clock."""
        event = Event.of(CLEARED, self._time(), cache="pages", subject=operator)
        self._write(lambda db: add_events(db, [event]))
        for worker in self.workers:
            worker.clear()

    def _time(self):
        return self.workers[0].engine.observed.observer.publication.recorder.time()

    def _write(self, write):
        self.workers[0].engine.observed.observer.publication.publisher.file.write(write)

    def serve(self, minutes, *visits):
        """Let all workers serve the same traffic.

        Args:
            visits: functions of a worker, each called every second.
        """
        for _ in range(minutes):
            for _ in range(MINUTE):
                for worker in self.workers:
                    for visit in visits:
                        visit(worker)
                self.clock.advance(1)
            self.scrape()

    def scrape(self):
        registry = CollectorRegistry()
        registry.register(Collector(lambda: self.workers))
        self.scrapes.append(Scrape(generate_latest(registry).decode()).values)

    # Views.

    def view(self, name, number, *, keys=20, ttl=None, fails=0.0, then=None, tags=()):
        """Return a function that looks up entries of a view: ``number`` of ``keys`` entries, of which a share ``fails``
        to load, and ``then`` is called with the worker and each key."""

        def load():
            if self.random.random() < fails:
                raise ValueError("no product")
            return "value" * 20

        def visit(worker):
            for _ in range(number):
                key = f"{name}:{self.random.randrange(keys)}"
                try:
                    worker.get_or_load(key, load, ttl, tags=tags)
                except ValueError:
                    worker.delete(key)
                if then is not None:
                    then(worker, key)

        return visit

    def now_and_then(self, share, visit):
        """Return a function that calls ``visit`` in a share of the seconds."""
        return lambda worker: visit(worker) if self.random.random() < share else None

    # Verdicts.

    def on_page(self):
        return dashboard(self.workers[0]).figures()["headline"]

    def in_terminal(self):
        out = io.StringIO()
        show(site_commands.figures(self.workers[:1]), out)
        return out.getvalue().splitlines()[0].rstrip()

    def alerts(self, promtool):
        """Return the names and groups of the alerts that fire."""
        series = defaultdict(lambda: ["_"] * len(self.scrapes))
        for place, values in enumerate(self.scrapes):
            for (name, labels), value in values.items():
                described = ",".join(f"{label}={json.dumps(text)}" for label, text in sorted(labels))
                series[f'{name}{{job="site",{described}}}'][place] = repr(float(value))
        at = f"{len(self.scrapes) - 1}m"
        query = {"expr": 'count by (alertname, group) (ALERTS{alertstate="firing"})', "eval_time": at}
        document = {
            "rule_files": [str(ROOT / "docs/prometheus-alerts.yml")],
            "evaluation_interval": "1m",
            "tests": [
                {
                    "interval": "1m",
                    "input_series": [{"series": name, "values": " ".join(values)} for name, values in series.items()],
                    "promql_expr_test": [{**query, "exp_samples": []}],
                }
            ],
        }
        # JSON is YAML.
        rules = self._folder / "rules.test.yml"
        rules.write_text(json.dumps(document))
        _, said = promtool("test", "rules", str(rules))
        assert ("SUCCESS" in said) != ("got:" in said), said
        labels = re.findall(r"\{([^}]*)\}", said.partition("got:")[2])
        found = [dict(re.findall(r'(\w+)="([^"]*)"', each)) for each in labels]
        return sorted((each["alertname"].removeprefix("Wheelcache"), each.get("group")) for each in found)


@pytest.fixture
def site(tmp_path, monkeypatch):
    made = PlantedSite(tmp_path, monkeypatch)
    yield made
    made.stop()


def others(site):
    """Return the views of a site that do well, and load a lot: their entries expire, and their misses are the same."""
    return [site.view("about", 5, ttl=3), site.view("news", 5, ttl=10)]


# Each situation returns the beginning of the verdict, or None.


def half_of_the_loads_of_a_view_fail(site):
    site.start()
    site.serve(14, *others(site), site.view("product", 2, ttl=2, fails=0.49))
    return "Cache 'pages', product: "


def a_tenth_of_the_loads_of_a_view_fails(site):
    site.start()
    site.serve(14, *others(site), site.view("product", 5, ttl=1, fails=0.1))
    return "Cache 'pages', product: "


def all_loads_of_a_rare_view_fail(site):
    site.start()
    site.serve(14, *others(site), site.now_and_then(0.2, site.view("product", 1, fails=1.0)))
    return "Cache 'pages', product: 100% of loads have failed for "


def a_view_fails_in_one_of_two_workers(site):
    site.start(2)
    failing, good = site.view("product", 2, ttl=2, fails=1.0), site.view("product", 2, ttl=2)
    site.serve(14, *others(site), lambda worker: (failing if worker is site.workers[1] else good)(worker))
    return "Cache 'pages', product: "


def before_and_after(site, before, after, *, minutes=12, workers=1):
    site.start(workers)
    site.serve(12, *others(site), before)
    site.deploy()
    site.serve(minutes, *others(site), after)


def a_release_deletes_what_it_has_stored(site):
    def delete(worker, key):
        if site.random.random() < 0.4:
            worker.delete(key)

    def rarely_delete(worker, key):
        if site.random.random() < 0.03:
            worker.delete(key)

    before = site.view("product", 5, then=rarely_delete)
    before_and_after(site, before, site.view("product", 5, then=delete))
    return "Cache 'pages', product: misses rose from "


def a_release_shortens_the_lifetime(site):
    before_and_after(site, site.view("product", 5, ttl=400), site.view("product", 5, ttl=30))
    return "Cache 'pages', product: misses rose from "


def a_release_makes_keys_that_are_never_read_again(site):
    def visit(worker):
        site.view(f"product:{next(site.numbers)}", 3)(worker)

    before_and_after(site, site.view("product", 3, ttl=120), visit, minutes=20)
    return "Cache 'pages', product: misses rose from "


def a_release_drops_a_tag_in_both_workers(site):
    drop = site.now_and_then(0.05, lambda worker: worker.delete_tags("shop"))
    after = site.view("product", 5, tags=("shop",))
    before_and_after(site, site.view("product", 5, ttl=300), lambda worker: (drop(worker), after(worker)), workers=2)
    return "Cache 'pages', product: misses rose from "


def three_fifths_of_the_entries_fit(site):
    site.start(max_entries=60)
    site.serve(18, site.view("product", 5, keys=100))
    return "Cache 'pages' is too small: "


def a_third_of_the_entries_fits(site):
    site.start(max_entries=60)
    site.serve(18, site.view("product", 4, keys=200))
    return "Cache 'pages' is too small: "


def half_of_the_bytes_fit(site):
    site.start(max_weight=10_000, weigher=size_of)
    site.serve(18, site.view("product", 5, keys=80))
    return "Cache 'pages' is too small: "


def entries_of_two_workers_do_not_fit(site):
    site.start(2, max_entries=50)
    site.serve(18, site.view("product", 2, keys=100))
    return "Cache 'pages' is too small: "


def the_first_start(site):
    site.start()
    site.serve(3, *others(site), site.view("product", 10, keys=2000))


def a_restart_empties_the_cache(site):
    before = site.view("product", 10, keys=1000)
    before_and_after(site, before, before, minutes=3)


def a_restart_empties_both_workers(site):
    before = site.view("product", 5, keys=500)
    before_and_after(site, before, before, minutes=14, workers=2)


def an_operator_clears_the_cache(site):
    view = site.view("product", 10, keys=1000)
    site.start()
    site.serve(12, *others(site), view)
    site.workers[0].clear()
    site.serve(2, *others(site), view)


def an_operator_clears_the_cache_after_a_release(site):
    view = site.view("product", 10, keys=1000)
    before_and_after(site, view, view, minutes=12)
    site.clear("maria")
    site.serve(2, *others(site), view)


def a_look_up_now_and_then(site):
    site.start(max_entries=60)
    site.serve(20, site.now_and_then(0.01, site.view("product", 1, keys=10_000)))


def no_look_up_after_a_busy_day(site):
    site.start(max_entries=60)
    site.serve(6, *others(site), site.view("product", 5, keys=100, fails=0.2))
    site.serve(16)


def a_failure_now_and_then(site):
    site.start()
    site.serve(20, site.now_and_then(0.01, site.view("product", 1, fails=0.5, keys=10_000)))


def few_look_ups_after_a_release(site):
    night = site.now_and_then(0.02, site.view("product", 1, keys=500))
    before_and_after(site, site.view("product", 5), night, minutes=16)


SITUATIONS = [
    (half_of_the_loads_of_a_view_fail, ("LoadsFail", "product")),
    (a_tenth_of_the_loads_of_a_view_fails, ("LoadsFail", "product")),
    (all_loads_of_a_rare_view_fail, ("LoadsFail", "product")),
    (a_view_fails_in_one_of_two_workers, ("LoadsFail", "product")),
    (a_release_deletes_what_it_has_stored, ("MissesRose", "product")),
    (a_release_shortens_the_lifetime, ("MissesRose", "product")),
    (a_release_makes_keys_that_are_never_read_again, ("MissesRose", "product")),
    (a_release_drops_a_tag_in_both_workers, ("MissesRose", "product")),
    (three_fifths_of_the_entries_fit, ("TooSmall", None)),
    (a_third_of_the_entries_fits, ("TooSmall", None)),
    (half_of_the_bytes_fit, ("TooSmall", None)),
    (entries_of_two_workers_do_not_fit, ("TooSmall", None)),
    (the_first_start, None),
    (a_restart_empties_the_cache, None),
    (a_restart_empties_both_workers, None),
    (an_operator_clears_the_cache, None),
    (an_operator_clears_the_cache_after_a_release, None),
    (a_look_up_now_and_then, None),
    (no_look_up_after_a_busy_day, None),
    (a_failure_now_and_then, None),
    (few_look_ups_after_a_release, None),
]


SEPARATE = [a_release_drops_a_tag_in_both_workers, entries_of_two_workers_do_not_fit]
"""Situations in which a worker keeps missing what another has computed, which comes second: see ``separate_entries``."""


@pytest.mark.parametrize(("situation", "alert"), SITUATIONS, ids=[each.__name__ for each, _ in SITUATIONS])
def test_the_verdict_on_a_situation_is_right_on_the_page_in_the_terminal_and_in_the_alerts(
    site, promtool, situation, alert
):
    expected = situation(site)
    site.clock.advance(5)
    if expected is None:
        assert (site.on_page(), site.in_terminal()) == ("No problem in the last minute",) * 2
        assert site.alerts(promtool) == []
    else:
        assert site.on_page().startswith(expected)
        assert site.in_terminal().startswith(expected)
        assert (", and 1 more problem" in site.on_page()) == (situation in SEPARATE)
        assert " more problems" not in site.on_page()
        assert alert in site.alerts(promtool)


def test_the_verdict_on_a_bad_release_names_the_release_and_the_cause(site):
    a_release_shortens_the_lifetime(site)
    verdict = (
        r"Cache 'pages', product: misses rose from [\d.]+% to \d+% since release r0, all because of expired entries"
    )
    assert re.fullmatch(verdict, site.on_page())
    assert re.fullmatch(verdict, site.in_terminal())
