"""The figures of pages equal an independent count, and are published."""

import random
from operator import attrgetter

from tests.pages.site import Response, settle
from tests.watch.published import INTERVAL, only
from wheelcache.watch.rows import PAGE_COUNTERS

PAGES = {
    "/short": {"cache-control": "max-age=5"},
    "/stale": {"cache-control": "max-age=5, stale-while-revalidate=5"},
    "/tagged": {"cache-control": "max-age=5", "etag": '"1"'},
    "/failing": {"cache-control": "max-age=5, stale-if-error=60"},
    "/private": {"cache-control": "private"},
    "/forever": {},
}


def test_the_figures_equal_an_independent_count_and_are_published(make_site, clock, tmp_path):
    site, chance, answers = make_site(figures_dir=tmp_path), random.Random(7), []

    def respond(request):
        if request.path == "/failing" and chance.random() < 0.5:
            return Response(b"", {}, 503)
        if "if-none-match" in request.headers:
            return Response(b"", PAGES["/tagged"], 304)
        return Response(request.path.encode() * 10, PAGES[request.path])

    site.respond = respond
    for _ in range(400):
        method, headers = chance.choices([("GET", {}), ("HEAD", {}), ("GET", {"range": "bytes=0-3"})], [8, 1, 1])[0]
        answers.append(site.get(chance.choice([*PAGES]), headers, method=method))
        settle()
        clock.advance(chance.choice([0, 0, 0, 1, 3]))
    # By their Cache-Status.
    stale = [each for each in answers if each.detail.endswith(("detail=error", "detail=stale"))]
    hits = [each for each in answers if each.detail.startswith("hit") or "fwd-status=304" in each.detail]
    fresh = [each for each in hits if each not in stale]
    stats = site.stats()
    assert (stats.fresh, stats.stale) == (len(fresh), len(stale))
    assert stats.bytes_sent == sum(len(each.body) for each in fresh + stale)
    assert stats.revalidated == sum("if-none-match" in request.headers for request in site.requests)
    assert min(stats.fresh, stats.stale, stats.revalidated, stats.stored, *stats.not_stored.values()) > 0
    clock.advance(INTERVAL)
    published = only(tmp_path).stats.pages
    assert attrgetter(*PAGE_COUNTERS)(published) == attrgetter(*PAGE_COUNTERS)(stats)
    assert published.not_stored == stats.not_stored
    assert set(published.not_stored) == {"private", "no lifetime", "error"}


def test_the_renewal_of_a_page_is_no_response(make_site, clock):
    site = make_site(grace=60, fail_safe=60)
    site.get()
    clock.advance(60)
    site.respond = lambda request: Response(b"", {}, 503)
    assert site.get().detail == "hit; ttl=0; detail=stale"
    settle()
    assert site.runs == 2
    stats = site.stats()
    assert (stats.stale, stats.bytes_sent) == (1, 4)
