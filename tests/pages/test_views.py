"""The figures by view: each look-up, run and refusal of an HTTP cache belongs to one view."""

import pytest

from tests.pages.site import Response
from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled

STORED = {"cache-control": "max-age=60"}


def respond(request):
    """Note the view, named by the first part of the path; none for /unknown."""
    name = request.path.split("/")[1]
    if request.notes is not None and name != "unknown":
        request.notes.view = name
    if name == "broken":
        raise ValueError("broken")
    return Response(b"page", {"cache-control": "private"} if name == "private" else STORED)


def check_sums(site):
    stats = site.cache.cache.stats()
    groups = stats.groups.values()
    for name in ("hits", "misses", "puts"):
        assert sum(getattr(each, name) for each in groups) == getattr(stats, name)
    assert sum(each.loads for each in groups) == stats.loads + stats.load_failures
    assert sum(stats.pages.refused_by_view.values()) == sum(stats.pages.not_stored.values())


def test_each_request_is_counted_for_the_view_that_answered(site, clock):
    site.respond = respond
    for path in ("/news/1", "/news/1", "/news/1", "/news/2", "/unknown", "/private", "/private", "/private"):
        site.get(path)
    with pytest.raises(ValueError, match="broken"):
        site.get("/broken")
    refused = site.cache.stats().refused_by_view
    found = {
        name: (each.hits, each.misses, each.puts, each.loads, refused.get(name, 0))
        for name, each in site.cache.cache.stats().groups.items()
        if name
    }
    assert found == {
        "news": (2, 2, 2, 2, 0),
        NO_VIEW: (0, 1, 1, 1, 0),
        # The second and third requests have found a mark: one of them may be stored again.
        "private": (0, 1, 0, 2, 3),
        "broken": (0, 1, 0, 1, 0),
    }
    assert (site.cache.cache.stats().loads, site.cache.cache.stats().load_failures) == (5, 1)
    check_sums(site)


def test_a_renewal_is_a_load_of_the_view_and_no_miss(site, clock):
    site.respond = respond
    site.get("/news")
    clock.advance(61)
    site.get("/news")
    assert site.cache.cache.stats().groups["news"].loads == 2
    check_sums(site)


def test_more_views_than_64_are_refused_in_the_group_without_a_name(site):
    def private(request):
        request.notes.view = request.path
        return Response(b"page", {"cache-control": "private"})

    site.respond = private
    for number in range(70):
        site.get(f"/{number}")
    refused = site.cache.stats().refused_by_view
    assert len(refused) == 65
    assert refused[""] == 6
    check_sums(site)
