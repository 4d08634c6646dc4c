"""Purges across the processes of a machine. Two caches of one name stand for two processes; they share stamps."""

import pytest

from tests.http_cache.site import Response


@pytest.fixture
def two(make_site, own_stamps):
    return [make_site(coherence="host") for _ in range(2)]


def get_both(sites, *target):
    return [site.get(*target).body for site in sites]


def test_a_purge_is_for_all_processes(two):
    one, other = two
    for target in ("/a", "/b"):
        get_both(two, target)
    one.cache.purge("http://example.com/a")
    for target in ("/a", "/b"):
        get_both(two, target)
    assert (one.runs, other.runs) == (3, 3)


@pytest.mark.parametrize("purge", ["purge_host", "purge_all"])
def test_a_purge_of_many_pages_is_for_all_processes(two, purge):
    get_both(two)
    arguments = ["example.com"] if purge == "purge_host" else []
    getattr(two[0].cache, purge)(*arguments)
    get_both(two)
    assert [site.runs for site in two] == [2, 2]


def test_an_unsafe_method_removes_the_pages_of_all_processes_with_their_variants(two):
    for site in two:
        site.respond = lambda request: Response(headers={"cache-control": "max-age=60", "vary": "Accept-Language"})
    for language in ("de", "en"):
        get_both(two, "/", {"accept-language": language})
    two[0].get("/", method="POST", body=b"x")
    for language in ("de", "en"):
        get_both(two, "/", {"accept-language": language})
    assert [site.runs for site in two] == [5, 4]


def test_a_run_that_began_before_another_process_purged_its_page_stores_nothing(two):
    def purge_meanwhile(request):
        two[1].cache.purge("http://example.com/")
        return Response(b"old")

    two[0].respond = purge_meanwhile
    two[0].get()
    assert two[0].stats().not_stored == {"purged": 1}


def test_making_and_renewing_a_page_leaves_the_pages_of_other_processes_alone(two, clock):
    one, other = two
    for site in two:
        site.respond = lambda request: Response(headers={"cache-control": "max-age=60, stale-while-revalidate=60"})
    get_both(two)
    clock.advance(60)
    one.get()
    assert other.get().detail == "hit; ttl=0; detail=stale"
    one.cache.purge("http://example.com/other")
    assert one.get().detail.startswith("hit")
