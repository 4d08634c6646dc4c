"""Unsafe methods and purges remove pages with all their variants, in one process and in all of a machine.

Two caches of one name stand for two processes; they share purges.
"""

import pytest

from tests.pages.site import STALE, USUAL, Response, answering, settle
from tests.runtime.forks import fork
from wheelcache.pages import shared_purges
from wheelcache.pages.keys import NotPurgeable, check_purgeable

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

VARYING = {**USUAL, "vary": "Accept-Language"}

PURGES = {
    "a URL": lambda site: site.cache.purge("http://example.com/a/b"),
    "a directory": lambda site: site.cache.purge_prefix("https://example.com/a/"),
    "a host": lambda site: site.cache.purge_host("example.com"),
    "all": lambda site: site.cache.purge_all(),
    "a tag": lambda site: site.cache.delete_tags("tag"),
    "an unsafe method": lambda site: site.get("/a/b", method="POST", body=b"x"),
    "the cache": lambda site: site.cache.cache.clear(),
    "a URL by an operator": lambda site: by_operator(site, "https://example.com/a/b"),
    "a directory by an operator": lambda site: by_operator(site, "https://example.com/a/*"),
    "a host by an operator": lambda site: by_operator(site, "EXAMPLE.com"),
}
"""Ways to remove the pages of ``/a/b``."""


def by_operator(site, target):
    site.cache.cache.engine._parts.actions["purge"](target)


@pytest.fixture
def two(make_site, own_runtime_directory):
    return [make_site(shared_purges=True) for _ in range(2)]


def details(sites, target="/", headers=()):
    return [site.get(target, headers).detail[:3] for site in sites]


@pytest.mark.parametrize("how", PURGES)
def test_a_purge_removes_the_pages_of_all_processes_with_their_variants(two, how):
    for site in two:
        site.respond = answering({**VARYING, "cache-tag": "tag"})
    targets = [("/a/b", {"accept-language": language}) for language in ("de", "en")]
    for _ in range(2):
        found = [details(two, *target) for target in targets]
    assert found == [["hit", "hit"]] * 2
    PURGES[how](two[0])
    assert [details(two, *target) for target in targets] == [["fwd", "fwd"]] * 2


@pytest.mark.parametrize("how", PURGES)
@pytest.mark.parametrize("process", [0, 1])
def test_a_run_that_began_before_a_purge_in_any_process_stores_nothing(two, how, process):
    def purge_meanwhile(request):
        if request.method == "GET":
            PURGES[how](two[process])
        return Response(b"old", {**(VARYING if process else USUAL), "cache-tag": "tag"})

    for site in two:
        site.respond = purge_meanwhile
    # Another page with the tag is there already, or not.
    two[0].get("/a/b")
    assert two[0].stats().not_stored == {"purged": 1}
    # No mark keeps the next one out.
    assert two[0].get("/a/b", method="HEAD").detail.endswith("=HEAD")
    two[0].respond = answering(USUAL, b"new")
    assert [two[0].get("/a/b").body for _ in range(2)] == [b"new"] * 2


@pytest.mark.parametrize("how", sorted(PURGES.keys() - {"all", "the cache"}))
def test_a_purge_leaves_other_pages_alone(two, how):
    others = [("/a", "example.com"), ("/a/b", "other.example"), ("/a/b?c", "other.example")]
    for target, host in others:
        for site in two:
            site.get(target, host=host)
    PURGES[how](two[0])
    hits = [site.get(target, host=host).detail[:3] for target, host in others for site in two]
    # The host has the first of them.
    assert hits == ["fwd" if "a host" in how else "hit"] * 2 + ["hit"] * 4


# URLs.


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize(
    ("sent", "purged"),
    [
        ("/", ""),
        ("/?q=caf%C3%A9", "/?q=café"),
        ("/caf%C3%A9/", "/café/"),
        ("/?q=%2f", "/?q=/"),
        ("/?a=%41", "/?a=A"),
        ("/?q=a+b", "/?q=a%20b"),
        ("/a%2Fb?c", "/a/b?c"),
        ("/a;b", "/a;b"),
        ("/" + "a/" * 999, "/" + "a/" * 999),
    ],
)
@pytest.mark.parametrize(
    ("host", "authority", "number"),
    [
        ("a.example", "http://A.EXAMPLE", 1),
        ("A.example:80", "https://a.example", 1),
        ("a.example.", "http://user@a.example:443", 1),
        ("a.example.:443", "http://a.example.", 1),
        ("a.example", "http://a.example:444", 0),
        ("a.example", "http://www.a.example", 0),
    ],
)
def test_every_spelling_of_a_url_purges_its_page_and_no_other(site, sent, purged, host, authority, number):
    site.get(sent, host=host)
    assert site.cache.purge(f"{authority}/other") == 0
    assert site.cache.purge(f"{authority}{purged}") == number
    site.get(sent, host=host)
    assert site.runs == 1 + number


def test_a_directory_is_purged_with_those_below_it(site):
    targets = ["/news/", "/news/2024/a?page=2", "/news/b", "/newsletter", "/", "/%6Eews/c", "/1/2/3/4/5/6/7/8/9"]
    for target in targets:
        site.get(target)
    assert site.cache.purge_prefix("https://example.com/news/") == 4
    # At most eight slashes.
    assert site.cache.purge_prefix("https://example.com/1/2/3/4/5/6/7/") == 1
    for target in targets:
        site.get(target)
    assert site.cache.purge_prefix("https://example.com/") == len(targets)


@pytest.mark.parametrize(
    ("target", "is_purgeable"),
    [
        *((each, True) for each in ("example.com", "localhost:8000", "https://a/", "https://a/b?c", "https://a/b/*")),
        *((f"https://a/{'b/' * 7}*", True), (f"https://a/{'b/' * 8}*", False), (f"https://a/{'b' * 498}/*", True)),
        *((each, False) for each in ("/news/", "a b", "https:///b", f"https://a/{'b' * 499}/*", "https://a/b?c/*")),
        *((f"https://a/{'b' * (4096 - 10)}", True), (f"https://a/{'b' * (4097 - 10)}", False)),
    ],
)
def test_an_operator_purges_an_absolute_url_a_directory_or_a_host(target, is_purgeable):
    if is_purgeable:
        check_purgeable(target)
    else:
        with pytest.raises(NotPurgeable, match="purge takes an absolute URL"):
            check_purgeable(target)


@pytest.mark.parametrize(
    ("purge", "targets"),
    [
        ("purge", ["/news/", "news"]),
        ("purge_prefix", ["/news/", "https://a/news", "https://a/" + "a/" * 8, "https://a/?b/", "https://a/#/"]),
        ("purge_host", ["https://a", ""]),
        ("delete_tags", [7, None, "", b"a"]),
    ],
)
def test_a_wrong_target_of_a_purge_is_named(site, purge, targets):
    for target in targets:
        with pytest.raises((TypeError, ValueError), match=" must be "):
            getattr(site.cache, purge)(target)


# Unsafe methods.


@pytest.mark.parametrize(
    ("method", "status", "removes"),
    [
        *((method, 200, True) for method in ("POST", "PUT", "DELETE", "PATCH")),
        *(("POST", status, status < 400) for status in (303, 399, 400, 403, 500)),
        ("OPTIONS", 200, False),
    ],
)
def test_a_successful_unsafe_method_removes_the_page_of_its_url(site, method, status, removes):
    site.get("/a?b=1")
    site.respond = answering({}, status=status)
    site.get("/a?b=1", method=method, body=b"x")
    assert site.get("/a?b=1").detail.startswith("fwd" if removes else "hit")


@pytest.mark.parametrize("name", ["location", "content-location"])
@pytest.mark.parametrize(
    ("target", "purged"),
    [
        ("/new?a=%20b", True),
        ("new?a=%20b", True),
        ("https://EXAMPLE.com/new?a=%20b", True),
        ("http://victim.example/new?a=%20b", False),
        ("http://[", False),
        ("//", False),
    ],
)
def test_an_unsafe_method_removes_the_page_that_its_response_names_on_the_same_host(site, name, target, purged):
    hosts = ("example.com", "victim.example")
    for host in hosts:
        site.get("/new?a=%20b", host=host)
    site.respond = answering({name: target}, status=201)
    assert site.get("/form", method="POST", body=b"x").status == 201
    found = [site.get("/new?a=%20b", host=host).detail[:3] for host in hosts]
    assert found == ["fwd" if purged else "hit", "hit"]


# Soft purges.


@pytest.mark.parametrize(
    ("purge", "argument"),
    [("purge", "https://example.com/a/b"), ("purge_prefix", "https://example.com/a/"), ("purge_host", "example.com")],
)
def test_a_soft_purge_makes_pages_stale_and_nobody_waits(two, clock, purge, argument):
    for site in two:
        for _ in range(2):
            site.get("/a/b")
            site.get("/c", host="other.example")
    assert getattr(two[0].cache, purge)(argument, soft=True) == 1
    for site in two:
        assert site.get("/c", host="other.example").detail == "hit; ttl=60"
        # The first renewal fails.
        for response in (answering({}, status=500), answering(USUAL, b"new")):
            site.respond = response
            outdated = site.get("/a/b")
            assert (outdated.body, outdated.detail) == (b"page", "hit; ttl=60; detail=stale")
            # A visitor who comes just when the renewal ends may begin another one.
            settle()
        assert (site.get("/a/b").body, site.runs) == (b"new", 4)


def test_a_run_that_began_before_a_soft_purge_stores_a_stale_page(site):
    def purge_meanwhile(request):
        site.cache.purge("http://example.com/", soft=True)
        return Response(b"old")

    site.respond = purge_meanwhile
    site.get()
    assert site.get().detail == "hit; ttl=60; detail=stale"


# Several processes.


def test_making_and_renewing_a_page_leaves_the_pages_of_other_processes_alone(two, clock):
    for site in two:
        site.respond = answering({**STALE, "cache-tag": "a"})
    assert details(two) == ["fwd", "fwd"]
    clock.advance(60)
    two[0].get()
    assert two[1].get().detail == "hit; ttl=0; detail=stale"


def test_a_process_that_has_not_read_the_end_of_a_full_file_removes_all_pages(two, monkeypatch):
    monkeypatch.setattr(shared_purges, "MOST_BYTES", 300)
    details(two, "/kept")
    for number in range(10):
        two[0].cache.purge(f"http://example.com/{number}")
    assert two[1].get("/kept").detail.startswith("fwd")
    two[0].cache.purge("http://example.com/kept")
    assert two[1].get("/kept").detail.startswith("fwd")


def test_after_the_file_was_removed_the_processes_meet_in_a_new_one_and_begin_empty(two, tmp_path, monkeypatch):
    monkeypatch.setattr(shared_purges, "CHECK_INTERVAL", 0.0)
    details(two, "/a")
    for path in tmp_path.glob("*.purges"):
        path.unlink()
    two[0].cache.purge("http://example.com/other")
    # A page that is stored shows that the file was replaced.
    two[1].get("/b")
    assert details(two, "/a") == ["fwd", "fwd"]
    two[0].cache.purge("http://example.com/a")
    assert two[1].get("/a").detail.startswith("fwd")


def test_a_process_that_finds_the_file_removed_makes_another_one(two, tmp_path, monkeypatch):
    monkeypatch.setattr(shared_purges, "CHECK_INTERVAL", 0.0)
    details(two, "/a")
    for path in tmp_path.glob("*.purges"):
        path.unlink()
    two[1].get("/b")
    assert len([*tmp_path.glob("*.purges")]) == 1
    assert two[1].get("/a").detail.startswith("fwd")


def test_a_child_of_a_fork_carries_out_the_purges_of_its_parent(two):
    one, _ = two
    one.get()

    def child():
        assert one.get().detail.startswith("fwd")
        one.cache.purge("http://example.com/")

    one.cache.purge("http://example.com/")
    assert fork(child)
    assert [one.get().detail[:3] for _ in range(2)] == ["fwd", "hit"]
