"""The figures by view of a Django site behind an HTTP cache."""

import pytest

from wheelcache.engine.keys import NO_VIEW

pytestmark = pytest.mark.compiled


def test_requests_are_counted_for_the_view_of_their_page(site):
    for target in ("/tagged/a", "/tagged/a", "/tagged/b", "/not-stored", "/not-stored", "/unknown"):
        site.get(target)
    stats = site.cache.cache.stats()
    groups = {name: each for name, each in stats.groups.items() if name}
    found = {name: (each.hits, each.misses, each.puts, each.loads) for name, each in groups.items()}
    tagged, not_stored = "tests.pages.on_django.pages_site.tagged", "tests.pages.on_django.pages_site.not_stored"
    # The page depends on a header, so its list of variants is an entry, too.
    assert {name: row[1:] for name, row in found.items()} == {
        tagged: (2, 4, 2),
        not_stored: (1, 0, 2),
        NO_VIEW: (1, 0, 1),
    }
    assert stats.pages.refused_by_view == {not_stored: 2, NO_VIEW: 1}
    assert sum(each.hits for each in stats.groups.values()) == stats.hits >= 1
    assert sum(each.misses for each in stats.groups.values()) == stats.misses
    assert sum(each.loads for each in stats.groups.values()) == stats.loads
    assert sum(stats.pages.refused_by_view.values()) == sum(stats.pages.not_stored.values())
