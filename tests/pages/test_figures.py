"""The figures of pages equal an independent count, and reach the dashboard, the terminal and the metrics."""

import random
from collections import Counter
from operator import attrgetter

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from tests.pages.site import Response
from tests.waiting import until
from tests.watch.published import INTERVAL, only
from tests.watch.scrape import Scrape
from wheelcache.pages.reasons import REASONS
from wheelcache.pages.wsgi import renewal_pool
from wheelcache.watch.dashboard.dashboard import Dashboard
from wheelcache.watch.prometheus import Collector
from wheelcache.watch.rows import PAGE_COUNTERS
from wheelcache.watch.site_commands import figures, pages_in_words

PAGES = {
    "/short": {"cache-control": "max-age=5"},
    "/stale": {"cache-control": "max-age=5, stale-while-revalidate=5"},
    "/tagged": {"cache-control": "max-age=5", "etag": '"1"'},
    "/failing": {"cache-control": "max-age=5, stale-if-error=60"},
    "/cookie": {"cache-control": "max-age=5", "set-cookie": "a=1"},
    "/private": {"cache-control": "private"},
    "/forever": {},
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "figures"


def respond_to(chance):
    def respond(request):
        if request.path == "/failing" and chance.random() < 0.5:
            return Response(b"", {}, 503)
        if "if-none-match" in request.headers:
            return Response(b"", PAGES["/tagged"], 304)
        return Response(request.path.encode() * 10, PAGES[request.path])

    return respond


class Tally:
    """Counts responses by their Cache-Status."""

    def __init__(self):
        self.fresh = self.stale = self.bytes = self.runs = 0

    def add(self, response):
        replaces_error = response.detail.endswith("detail=error")
        if not (response.detail.startswith("hit") or replaces_error or "fwd-status=304" in response.detail):
            self.runs += 1
            return
        is_stale = replaces_error or response.detail.endswith("detail=stale")
        self.stale += is_stale
        self.fresh += not is_stale
        self.bytes += len(response.body)


def browse(site, clock, tally):
    """Make 400 requests in a random order."""
    chance = random.Random(7)
    site.respond = respond_to(chance)
    for _ in range(400):
        method, headers = chance.choices([("GET", {}), ("HEAD", {}), ("GET", {"range": "bytes=0-3"})], [8, 1, 1])[0]
        tally.add(site.get(chance.choice([*PAGES]), headers, method=method))
        assert until(lambda: not renewal_pool.pending)
        clock.advance(chance.choice([0, 0, 0, 1, 3]))


def test_the_figures_equal_an_independent_count_and_are_published(make_site, clock, path):
    site, tally = make_site(figures_dir=path), Tally()
    browse(site, clock, tally)
    stats = site.stats()
    assert (stats.fresh, stats.stale, stats.bytes_sent) == (tally.fresh, tally.stale, tally.bytes)
    confirmed = sum("if-none-match" in request.headers for request in site.requests)
    assert stats.revalidated == confirmed
    assert min(stats.fresh, stats.stale, stats.revalidated, stats.stored, *stats.not_stored.values()) > 0
    clock.advance(INTERVAL)
    published = only(path).counted.pages
    assert attrgetter(*PAGE_COUNTERS)(published) == attrgetter(*PAGE_COUNTERS)(stats)
    assert published.not_stored == stats.not_stored
    assert set(published.not_stored) == {"private", "set-cookie", "no lifetime", "error"}


def test_every_run_whose_response_could_be_stored_is_counted_once(site):
    for target, headers in PAGES.items():
        site.respond = lambda request, headers=headers: Response(headers=headers)
        for _ in range(4):
            site.get(target)
    stats = site.stats()
    assert stats.stored + sum(stats.not_stored.values()) == site.runs


def test_the_renewal_of_a_page_is_no_response(make_site, clock):
    site = make_site(grace=60, fail_safe=60)
    site.get()
    clock.advance(60)
    site.respond = lambda request: Response(b"", {}, 503)
    assert site.get().detail == "hit; ttl=0; detail=stale"
    assert until(lambda: site.runs == 2 and not renewal_pool.pending)
    stats = site.stats()
    assert (stats.stale, stats.bytes_sent) == (1, 4)


def test_requests_that_share_a_run_are_counted(make_site):
    site = make_site()
    site.respond = lambda request: Response(b"x" * 10)
    answers = site.get_together([("/", {})] * 8)
    stats = site.stats()
    assert stats.fresh == 8 - site.runs
    assert stats.bytes_sent == 10 * stats.fresh
    assert stats.collapsed <= stats.fresh
    assert {answer.body for answer in answers} == {b"x" * 10}


def test_a_cache_that_stores_nothing_shows_why(make_site, clock, path):
    site = make_site(figures_dir=path)
    site.respond = lambda request: Response(headers=PAGES["/cookie"])
    for _ in range(3):
        site.get()
    clock.advance(INTERVAL)
    assert only(path).counted.pages.not_stored == {"set-cookie": 3}
    for _ in range(200):
        clock.advance(0.5)
        site.get()
    clock.advance(INTERVAL)
    assert only(path).counted.pages.not_stored == {"set-cookie": 203}


def test_applications_add_no_reasons_to_the_figures_of_a_site(make_site, clock, path):
    def respond(request):
        if request.notes is not None:
            request.notes.refuse(f"reason {request.path}")
        return Response()

    site = make_site(figures_dir=path)
    site.respond = respond
    for number in range(50):
        site.get(f"/{number}")
    assert len(site.stats().not_stored) == 50
    clock.advance(INTERVAL)
    assert only(path).counted.pages.not_stored == {"other": 50}


def test_the_figures_reach_the_dashboard_the_terminal_and_the_metrics(make_site, clock, path):
    site = make_site(figures_dir=path, max_bytes=10**6)
    browse(site, clock, Tally())
    clock.advance(INTERVAL)
    cache = site.cache.cache
    stats = site.stats()
    (card,) = Dashboard("a site", lambda: [cache], lambda name: []).figures()["caches"]
    (terminal,) = figures([cache]).document["caches"]
    for shown in (card["pages"], terminal["total"]["pages"], terminal["workers"][0]["pages"]):
        assert Counter(shown.pop("not_stored")) == Counter(stats.not_stored)
        del shown["not_stored_paths"], shown["full_variants"]
        assert all(getattr(stats, name) == value for name, value in shown.items())
    assert (card["total"]["bytes"], card["total"]["max_bytes"]) == (cache.stats().weight, 10**6)
    line = pages_in_words("pages", stats)
    assert line.startswith(f"The pages of pages: {stats.fresh} fresh and {stats.stale} stale responses; ")
    assert f"{stats.not_stored['private']} private" in line
    registry = CollectorRegistry()
    registry.register(Collector(lambda: [cache]))
    scraped = Scrape(generate_latest(registry).decode())
    assert scraped("page_responses_total", state="fresh") == stats.fresh
    assert scraped("page_responses_total", state="stale") == stats.stale
    assert scraped("pages_sent_bytes_total") == stats.bytes_sent
    assert scraped("pages_revalidated_total") == stats.revalidated
    assert scraped("pages_stored_total") == stats.stored
    by_reason = {reason: scraped("pages_not_stored_total", reason=reason) for reason in REASONS}
    assert by_reason == {reason: stats.not_stored.get(reason, 0) for reason in REASONS}
