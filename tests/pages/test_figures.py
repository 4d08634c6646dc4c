"""The figures of pages equal an independent count, and are published."""

import random
from operator import attrgetter

import pytest

from tests.pages.site import Response
from tests.waiting import until
from tests.watch.published import INTERVAL, only
from wheelcache.pages.wsgi import renewal_pool
from wheelcache.watch.rows import PAGE_COUNTERS

PAGES = {
    "/short": {"cache-control": "max-age=5"},
    "/stale": {"cache-control": "max-age=5, stale-while-revalidate=5"},
    "/tagged": {"cache-control": "max-age=5", "etag": '"1"'},
    "/failing": {"cache-control": "max-age=5, stale-if-error=60"},
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
        self.fresh = self.stale = self.bytes = 0

    def add(self, response):
        replaces_error = response.detail.endswith("detail=error")
        if not (response.detail.startswith("hit") or replaces_error or "fwd-status=304" in response.detail):
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
    published = only(path).stats.pages
    assert attrgetter(*PAGE_COUNTERS)(published) == attrgetter(*PAGE_COUNTERS)(stats)
    assert published.not_stored == stats.not_stored
    assert set(published.not_stored) == {"private", "no lifetime", "error"}


def test_the_renewal_of_a_page_is_no_response(make_site, clock):
    site = make_site(grace=60, fail_safe=60)
    site.get()
    clock.advance(60)
    site.respond = lambda request: Response(b"", {}, 503)
    assert site.get().detail == "hit; ttl=0; detail=stale"
    assert until(lambda: site.runs == 2 and not renewal_pool.pending)
    stats = site.stats()
    assert (stats.stale, stats.bytes_sent) == (1, 4)
