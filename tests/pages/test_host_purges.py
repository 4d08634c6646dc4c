"""Purges across the processes of a machine. Two caches of one name stand for two processes; they share purges."""

import pytest

from tests.pages.site import Response
from tests.runtime.forks import fork
from wheelcache.pages import shared_purges


@pytest.fixture
def two(make_site, own_runtime_directory):
    return [make_site(shared_purges=True) for _ in range(2)]


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


def test_a_process_that_has_not_read_the_end_of_a_full_file_removes_all_pages(two, monkeypatch):
    monkeypatch.setattr(shared_purges, "MOST_BYTES", 300)
    one, other = two
    get_both(two, "/kept")
    for number in range(10):
        one.cache.purge(f"http://example.com/{number}")
    assert other.get("/kept").detail.startswith("fwd")
    one.cache.purge("http://example.com/kept")
    assert other.get("/kept").detail.startswith("fwd")


def test_after_the_file_was_removed_the_processes_meet_in_a_new_one_and_begin_empty(two, tmp_path, monkeypatch):
    monkeypatch.setattr(shared_purges, "CHECK_INTERVAL", 0.0)
    one, other = two
    get_both(two, "/a")
    for path in tmp_path.glob("*.purges"):
        path.unlink()
    one.cache.purge("http://example.com/other")
    # A page that is stored shows that the file was replaced.
    other.get("/b")
    assert [site.get("/a").detail[:3] for site in two] == ["fwd", "fwd"]
    one.cache.purge("http://example.com/a")
    assert other.get("/a").detail.startswith("fwd")


def test_a_child_of_a_fork_carries_out_the_purges_of_its_parent(two):
    one, _ = two
    one.get()

    def child():
        assert one.get().detail.startswith("fwd")
        one.cache.purge("http://example.com/")

    one.cache.purge("http://example.com/")
    assert fork(child)
    one.get()
    assert one.get().detail.startswith("hit")
