"""The figures of pages are those of their responses, and are published."""

from operator import attrgetter

import pytest

from tests.pages.site import Response, settle

pytest.importorskip("wheelcache.watch")

from tests.watch.published import INTERVAL, only
from wheelcache.watch.rows import PAGE_COUNTERS

TAGGED = {"cache-control": "max-age=5, stale-while-revalidate=5", "etag": '"1"'}


def respond(request):
    if "if-none-match" in request.headers:
        return Response(b"", TAGGED, 304)
    return Response(headers={"cache-control": "private"} if request.path == "/private" else TAGGED)


def test_the_figures_are_those_of_the_responses_and_are_published(make_site, clock, tmp_path):
    site = make_site(figures_dir=tmp_path)
    site.respond = respond
    for how in ({}, {}, {"method": "HEAD"}, {"headers": {"range": "bytes=0-1"}}, {"target": "/private"}):
        site.get(**how)
    # A stale page is renewed, and an older one is validated.
    for seconds in (5, 10):
        clock.advance(seconds)
        site.get()
        settle()
    stats = site.stats()
    assert (stats.fresh, stats.stale, stats.revalidated, stats.stored) == (4, 1, 2, 3)
    assert (stats.bytes_sent, stats.not_stored) == (4 + 0 + 2 + 4 + 4, {"private": 1})
    clock.advance(INTERVAL)
    published = only(tmp_path).stats.pages
    assert attrgetter(*PAGE_COUNTERS)(published) == attrgetter(*PAGE_COUNTERS)(stats)
    assert published.not_stored == stats.not_stored
