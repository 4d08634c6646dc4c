"""Unsafe methods and purges remove pages with all their variants, for both drivers."""

import pytest

from tests.pages.site import Response
from tests.waiting import until
from wheelcache.pages.wsgi import renewal_pool
from wheelcache.watch.inquiries import CLEAR, PURGE
from wheelcache.watch.publisher import INTERVAL
from wheelcache.watch.site import Site

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")


def answering(headers, body=b"page", status=200):
    return lambda request: Response(body, headers, status)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
def test_a_successful_unsafe_method_removes_the_page_of_its_url(site, method):
    site.get("/a?b=1")
    site.get("/a?b=1", method=method, body=b"x")
    site.get("/a?b=1")
    assert [each.method for each in site.requests] == ["GET", method, "GET"]


def test_a_failed_unsafe_method_removes_nothing(site):
    site.get()
    site.respond = answering({}, status=403)
    site.get(method="POST", body=b"x")
    assert site.get().body == b"page"
    assert site.runs == 2


def test_an_unsafe_method_removes_the_pages_that_its_response_names_on_the_same_host(site):
    for target, host in [("/new?a=%20b", "example.com"), ("/other", "example.com"), ("/other", "victim.example")]:
        site.get(target, host=host)
    site.respond = answering({"location": "/new?a=%20b", "content-location": "http://victim.example/other"}, status=201)
    site.get("/form", method="POST", body=b"x")
    site.respond = answering({"cache-control": "max-age=60"})
    runs = site.runs
    site.get("/other")
    site.get("/other", host="victim.example")
    assert site.runs == runs
    site.get("/new?a=%20b")
    assert site.runs == runs + 1


@pytest.mark.parametrize("target", ["/", "/a%20b", "/ü", "/a%2Fb?c=%2F", "/a?b&c", "/%C3%BC", "/a;b", "/" + "a/" * 999])
def test_a_url_can_be_purged_with_all_its_variants(site, target):
    site.respond = answering({"cache-control": "max-age=60", "vary": "Accept-Language"})
    if target == "/ü":
        target = "/%C3%BC?x"
    for language in ("de", "en"):
        site.get(target, {"accept-language": language})
    assert site.cache.purge(f"https://EXAMPLE.com:443{target}") == 2
    for language in ("de", "en"):
        site.get(target, {"accept-language": language})
    assert site.runs == 4


def test_after_a_purge_a_page_depends_on_the_headers_of_its_new_response_alone(site):
    site.respond = answering({"cache-control": "max-age=60", "vary": "X-Before"})
    site.get(headers={"x-before": "1"})
    site.cache.purge("https://example.com/")
    site.respond = answering({"cache-control": "max-age=60", "vary": "X-After"})
    for before in ("1", "2"):
        site.get(headers={"x-before": before, "x-after": "1"})
    assert site.runs == 2


def test_only_an_absolute_url_can_be_purged(site):
    with pytest.raises(ValueError, match="absolute URL"):
        site.cache.purge("/news/")


def test_a_malformed_location_purges_nothing(site):
    site.respond = answering({"location": "http://[", "content-location": "//"}, status=201)
    assert site.get(method="POST", body=b"x").status == 201


def test_a_host_can_be_purged_and_so_can_everything(site):
    site.respond = answering({"cache-control": "max-age=60", "vary": "Accept-Language"})
    for host in ("a.example", "b.example"):
        site.get(host=host)
        site.get("/2", host=host)
    assert site.cache.purge_host("A.example") == 2
    site.get(host="b.example")
    assert site.runs == 4
    site.get(host="a.example")
    assert site.runs == 5
    site.cache.purge_all()
    site.get(host="b.example")
    assert site.runs == 6
    assert len(site.cache.cache) == 2


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize(
    ("sent", "purged"),
    [
        ("/?q=caf%C3%A9", "/?q=café"),
        ("/caf%C3%A9/", "/café/"),
        ("/?q=%2f", "/?q=/"),
        ("/?a=%41", "/?a=A"),
        ("/?q=a+b", "/?q=a%20b"),
    ],
)
@pytest.mark.parametrize(
    ("host", "purged_host"),
    [
        ("a.example", "A.EXAMPLE"),
        ("a.example:80", "a.example"),
        ("a.example.", "a.example"),
        ("a.example.:443", "a.example"),
    ],
)
def test_every_spelling_of_a_url_purges_its_page(site, sent, purged, host, purged_host):
    site.get(sent, host=host)
    assert site.cache.purge(f"http://{purged_host}/other") == 0
    assert site.cache.purge(f"http://user@{purged_host}{purged}") == 1
    site.get(sent, host=host)
    assert site.runs == 2


def test_a_directory_can_be_purged(site):
    targets = ["/news/", "/news/2024/a?page=2", "/news/b", "/newsletter", "/", "/%6Eews/c"]
    for target in targets:
        site.get(target)
    assert site.cache.purge_prefix("https://example.com/news/") == 4
    for target in targets:
        site.get(target)
    assert site.runs == len(targets) + 4
    assert site.cache.purge_prefix("https://example.com/") == len(targets)


@pytest.mark.parametrize(
    "url", ["/news/", "https://example.com/news", "https://example.com/" + "a/" * 8, "https://a/?b/"]
)
def test_only_a_directory_can_be_purged_as_a_prefix(site, url):
    with pytest.raises(ValueError, match="must be an absolute URL"):
        site.cache.purge_prefix(url)


@pytest.mark.parametrize(
    ("purge", "argument"),
    [("purge", "https://example.com/a/b"), ("purge_prefix", "https://example.com/a/"), ("purge_host", "example.com")],
)
def test_a_soft_purge_makes_pages_stale_and_nobody_waits(make_site, clock, own_runtime_directory, purge, argument):
    one, other = (make_site(shared_purges=True) for _ in range(2))
    for site in (one, other):
        site.get("/a/b")
        site.get("/c", host="other.example")
    assert getattr(one.cache, purge)(argument, soft=True) == 1
    clock.advance(1)
    for site in (one, other):
        site.respond = answering({"cache-control": "max-age=60"}, b"new")
        assert site.get("/c", host="other.example").detail == "hit; ttl=59"
        outdated = site.get("/a/b")
        assert (outdated.body, outdated.detail) == (b"page", "hit; ttl=59; detail=stale")
        # A visitor who comes just when the renewal ends may begin another one.
        assert until(lambda: not renewal_pool.pending)
        assert site.get("/a/b").body == b"new"
        assert site.runs == 3


def test_a_soft_purge_takes_effect_immediately_in_its_process(site):
    site.get()
    assert site.get().detail == "hit; ttl=60"
    site.cache.purge("https://example.com/", soft=True)
    assert site.get().detail == "hit; ttl=60; detail=stale"


def test_a_run_that_began_before_a_purge_stores_nothing(site):
    def purge_meanwhile(request):
        site.cache.purge("http://example.com/")
        return Response(b"old")

    site.respond = purge_meanwhile
    site.get()
    assert site.stats().not_stored == {"purged": 1}
    site.respond = answering({"cache-control": "max-age=60"}, b"new")
    assert site.get().body == b"new"


# By operators.


@pytest.fixture
def workers(make_site, tmp_path):
    """Two sites, as if they were workers."""
    return [make_site(figures_dir=tmp_path / "figures") for _ in range(2)]


@pytest.fixture
def ask(workers, clock):
    """Ask the workers for an action, and wait until they have run it."""

    def ask(action, **arguments):
        clock.advance(INTERVAL)
        Site([workers[0].cache.cache]).ask(action, "pages", **arguments)
        clock.advance(INTERVAL)

    return ask


def test_clearing_the_cache_purges_all_pages_of_all_workers(workers, ask):
    for site in workers:
        site.get("/a")
        site.get("/b", host="other.example")
    ask(CLEAR)
    for site in workers:
        site.get("/a")
        site.get("/b", host="other.example")
        assert site.runs == 4


@pytest.mark.pairs(full="make_site")
@pytest.mark.parametrize("target", [None, "http://example.com/", "example.com"])
@pytest.mark.parametrize("was_idle", [False, True])
def test_a_run_that_began_before_an_operator_purged_its_page_stores_nothing(workers, ask, clock, target, was_idle):
    site = workers[0]
    site.get("/other")
    if was_idle:
        site.cache.purge_all()
        clock.advance(100)

    def purge_meanwhile(request):
        clock.advance(100 * was_idle)
        ask(CLEAR) if target is None else ask(PURGE, target=target)
        return Response(b"old", headers={"cache-control": "max-age=1000"})

    site.respond = purge_meanwhile
    site.get()
    assert site.stats().not_stored == {"purged": 1}
    runs = site.runs
    site.respond = answering({"cache-control": "max-age=60"}, b"new")
    assert [site.get().body for _ in range(2)] == [b"new"] * 2
    assert site.runs == runs + 1


def test_a_page_or_a_host_is_purged_in_all_workers(workers, ask):
    def visit():
        for site in workers:
            for host, target in (("example.com", "/a?x=1"), ("example.com", "/b"), ("other.example", "/a")):
                site.get(target, host=host)
        return [site.runs for site in workers]

    assert visit() == [3, 3]
    ask(PURGE, target="https://example.com/a?x=1")
    assert visit() == [4, 4]
    ask(PURGE, target="EXAMPLE.com")
    assert visit() == [6, 6]


def test_clearing_the_cache_in_code_purges_all_pages(site):
    def clear_meanwhile(request):
        site.cache.cache.clear()
        return Response(b"old")

    site.respond = clear_meanwhile
    site.get()
    assert site.stats().not_stored == {"purged": 1}
