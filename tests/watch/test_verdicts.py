"""Planted situations: the page and the terminal give the same verdict, and the right one.

Caches in one or two workers serve a site for some minutes of a manual clock, and publish what they count. The limits of
the rules are in ``test_problems`` and ``test_comparison``, and those of the alerts in ``prometheus-alerts.test.yml``.
"""

import io
import re
from itertools import count
from random import Random

import pytest

from wheelcache import Cache, ManualClock
from wheelcache.watch import publisher, site_commands
from wheelcache.watch.console import show
from wheelcache.watch.dashboard.dashboard import Dashboard

pytestmark = pytest.mark.compiled

MINUTE = 60


class PlantedSite:
    """A site with one or two workers.

    Attributes:
        minutes: the minutes that a situation lasts.
    """

    minutes = 4

    def __init__(self, folder, monkeypatch):
        self.clock = ManualClock()
        self.workers = []
        self.random = Random(1)
        self.numbers = count()
        self._folder = folder
        self._monkeypatch = monkeypatch

    def start(self, workers=1, **options):
        given = {"clock": self.clock, "jitter": 0, "figures_dir": self._folder / "figures", **options}
        for _ in range(workers):
            with self._monkeypatch.context() as patch:
                # Each worker publishes as a process of its own.
                patch.setattr(publisher, "_publishers", {})
                self.workers.append(Cache("pages", **given))

    def stop(self):
        while self.workers:
            self.workers.pop().close()

    def deploy(self):
        """Replace all workers by those of another release."""
        number, publication = len(self.workers), self.workers[0].engine.observed.observer.publication
        release = publication.recorder.time(), f"r{next(self.numbers)}"
        publication.publisher.file.write(lambda db: db.execute("INSERT INTO releases VALUES (?, ?)", release))
        self.stop()
        self.start(number)

    def serve(self, minutes, *visits):
        """Let all workers serve the same traffic: ``visits`` are functions of a worker, each called every second."""
        for _ in range(minutes):
            for _ in range(MINUTE):
                for worker in self.workers:
                    for visit in visits:
                        visit(worker)
                self.clock.advance(1)

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

    def verdicts(self):
        """Return the first line of the page and that of the terminal."""
        out = io.StringIO()
        show(site_commands.figures(self.workers[:1]), out)
        page = Dashboard("a site", lambda: self.workers[:1], lambda name: []).figures()
        return page["headline"], out.getvalue().splitlines()[0].rstrip()


@pytest.fixture
def site(tmp_path, monkeypatch):
    planted = PlantedSite(tmp_path, monkeypatch)
    yield planted
    planted.stop()


def others(site):
    """Return the views of a site that do well, and load a lot: their entries expire, and their misses are the same."""
    return [site.view("about", 5, ttl=3), site.view("news", 5, ttl=10)]


# Each situation returns the beginning of the verdict, or None.


def all_loads_of_a_rare_view_fail(site):
    site.start()
    site.serve(site.minutes, *others(site), site.now_and_then(0.2, site.view("product", 1, fails=1.0)))
    return "Cache 'pages', product: 100% of loads have failed for "


def a_view_fails_in_one_of_two_workers(site):
    site.start(2)
    failing, good = site.view("product", 2, ttl=2, fails=1.0), site.view("product", 2, ttl=2)
    site.serve(site.minutes, *others(site), lambda worker: (failing if worker is site.workers[1] else good)(worker))
    return "Cache 'pages', product: "


def before_and_after(site, before, after, *, workers=1):
    site.start(workers)
    site.serve(site.minutes, *others(site), before)
    site.deploy()
    site.serve(site.minutes, *others(site), after)


def a_release_shortens_the_lifetime(site):
    before_and_after(site, site.view("product", 5, ttl=400), site.view("product", 5, ttl=30))
    return "Cache 'pages', product: misses rose from "


def a_release_drops_a_tag_in_both_workers(site):
    drop = site.now_and_then(0.05, lambda worker: worker.delete_tags("shop"))
    after = site.view("product", 5, tags=("shop",))
    before_and_after(site, site.view("product", 5, ttl=300), lambda worker: (drop(worker), after(worker)), workers=2)
    return "Cache 'pages', product: misses rose from "


def entries_of_two_workers_do_not_fit(site):
    site.start(2, max_entries=50)
    site.serve(site.minutes + 6, site.view("product", 2, keys=100))
    return "Cache 'pages' is too small: "


def a_restart_empties_the_cache(site):
    before = site.view("product", 10, keys=1000)
    before_and_after(site, before, before)


def no_look_up_after_a_busy_day(site):
    site.start(max_entries=60)
    site.serve(6, *others(site), site.view("product", 5, keys=100, fails=0.2))
    site.serve(site.minutes + 2)


def a_failure_now_and_then(site):
    site.start()
    site.serve(site.minutes, site.now_and_then(0.01, site.view("product", 1, fails=0.5, keys=10_000)))


SITUATIONS = [
    all_loads_of_a_rare_view_fail,
    a_view_fails_in_one_of_two_workers,
    a_release_shortens_the_lifetime,
    a_release_drops_a_tag_in_both_workers,
    entries_of_two_workers_do_not_fit,
    a_restart_empties_the_cache,
    no_look_up_after_a_busy_day,
    a_failure_now_and_then,
]


@pytest.mark.parametrize("situation", SITUATIONS, ids=lambda each: each.__name__)
def test_the_verdict_on_a_situation_is_right_on_the_page_and_in_the_terminal(site, situation):
    begins = situation(site)
    site.clock.advance(5)
    for verdict in site.verdicts():
        assert verdict.startswith(begins or "No problem in the last minute")
    if situation is a_release_shortens_the_lifetime:
        assert re.fullmatch(r".* to \d+% since release r0, (all|mostly) because of expired entries", site.verdicts()[0])
