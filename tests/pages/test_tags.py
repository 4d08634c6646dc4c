"""Pages are purged by the tags that their responses have, for both drivers, and in all processes."""

import re

import pytest

from tests.pages.site import Response
from wheelcache.engine.keys import callers_tags

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

USUAL = {"cache-control": "max-age=60"}


def tagged(tags, **headers):
    return lambda request: Response(b"page", {**USUAL, "cache-tag": tags, **headers})


def test_a_page_is_purged_by_each_tag_that_its_response_lists(site):
    for tag in ("city:1", "country:de", "a b", "\u00fc"):
        site.respond = tagged("city:1,country:de , ,a b, \u00fc")
        site.get()
        assert site.get().detail.startswith("hit")
        runs = site.runs
        site.cache.delete_tags("city:2", "city")
        assert site.get().detail.startswith("hit")
        site.cache.delete_tags("other", tag)
        assert site.get().detail.startswith("fwd=miss")
        assert site.runs == runs + 1


@pytest.mark.parametrize("name", ["Cache-Tag", "cache-tag", "CACHE-TAG"])
def test_the_header_is_never_sent_to_the_client(make_site, name):
    site = make_site(session_cookies=["sessionid"])
    site.respond = lambda request: Response(b"page", {**USUAL, name: "a, b"})
    answers = [site.get(), site.get(), site.get(method="HEAD"), site.get(method="HEAD", target="/other")]
    answers += [site.get(method="POST", body=b"x"), site.get_unchecked(method="get"), site.get(host="a,b")]
    site.respond = lambda request: Response(b"page", {"cache-control": "private", name: "a, b"})
    answers += [site.get("/private") for _ in range(3)]
    answers += [site.get("/private", {"authorization": "secret"}), site.get("/upgrade", {"expect": "100-continue"})]
    assert [answer.headers.get("cache-tag") for answer in answers] == [None] * len(answers)
    assert {answer.status for answer in answers} == {200}


def test_the_tags_of_pages_count_in_max_bytes(make_site):
    site = make_site(max_bytes=200_000)
    for number in range(50):
        site.respond = tagged(",".join(f"{number}-{each:0100}" for each in range(50)))
        site.get(f"/{number}")
    # Each page has 15,000 bytes of tags and more.
    assert 5 <= len(site.cache.cache) <= 200_000 // 15_000


def test_the_application_adds_tags_to_its_notes(site):
    def respond(request):
        request.notes.tags.add("noted")
        return Response(b"page", {**USUAL, "cache-tag": "listed"})

    site.respond = respond
    for tag in ("noted", "listed"):
        site.get()
        site.cache.delete_tags(tag)
        assert site.get().detail.startswith("fwd=miss")


def test_only_the_variants_with_the_tag_are_purged(site):
    def respond(request):
        language = request.headers["accept-language"]
        return Response(language.encode(), {**USUAL, "vary": "Accept-Language", "cache-tag": f"in-{language}, all"})

    site.respond = respond

    def visit():
        return [site.get(headers={"accept-language": language}).detail[:3] for language in ("de", "en")]

    assert visit() == ["fwd", "fwd"]
    site.cache.delete_tags("in-de")
    assert visit() == ["fwd", "hit"]
    site.cache.delete_tags("all")
    assert visit() == ["fwd", "fwd"]


def test_a_run_that_began_before_a_tag_was_dropped_stores_no_page_with_it(site):
    def drop_meanwhile(request):
        site.cache.delete_tags("a")
        return Response(b"old", {**USUAL, "cache-tag": request.path[1:]})

    site.respond = drop_meanwhile
    site.get("/a")
    assert site.stats().not_stored == {"purged": 1}
    site.get("/b")
    assert site.stats().stored == 1


def test_a_page_that_was_validated_keeps_its_tags_unless_the_304_lists_others(site, clock):
    site.respond = tagged("a", etag='"1"')
    site.get()
    for headers, tag in (({}, "a"), ({"cache-tag": "b"}, "b")):
        site.respond = lambda request, headers=headers: Response(b"", {**USUAL, "etag": '"1"', **headers}, 304)
        clock.advance(60)
        assert site.get().detail == "fwd=stale; fwd-status=304; stored"
        assert site.get().detail.startswith("hit")
        site.cache.delete_tags(tag)
        site.respond = tagged("a", etag='"1"')
        assert site.get().detail.startswith("fwd=miss")


@pytest.mark.parametrize("tag", [7, None, "", b"a"])
def test_a_wrong_tag_is_named(site, tag):
    with pytest.raises((TypeError, ValueError), match=f"tags must be .*, not {re.escape(repr(tag))}"):
        site.cache.delete_tags("a", tag)


@pytest.mark.parametrize("tags", [{7}, {""}, {str(number) for number in range(65)}])
def test_a_page_with_wrong_tags_is_sent_and_not_stored(site, tags, caplog):
    def respond(request):
        if request.notes is not None:
            request.notes.tags |= tags
        return Response()

    site.respond = respond
    assert site.get().body == b"page"
    assert site.stats().not_stored == {"tags": 1}
    assert "A page is not stored: the tags of a page must be" in caplog.text


# Several processes.


@pytest.fixture
def two(make_site):
    """Two sites with the pages of one name, as if they were processes."""
    return [make_site(shared_purges=True) for _ in range(2)]


def details(two, target="/", headers=()):
    return [site.get(target, headers).detail[:3] for site in two]


def test_a_tag_is_dropped_for_all_processes(two):
    for site in two:
        site.respond = lambda request: Response(b"page", {**USUAL, "cache-tag": request.path[1:]})
    for target in ("/a", "/b"):
        assert details(two, target) == ["fwd", "fwd"]
        assert details(two, target) == ["hit", "hit"]
    two[0].cache.delete_tags("a")
    assert details(two, "/a") == ["fwd", "fwd"]
    assert details(two, "/b") == ["hit", "hit"]
    assert details(two, "/a") == ["hit", "hit"]


def test_the_processes_may_give_a_page_different_tags(two):
    for number, site in enumerate(two):
        site.respond = tagged(f"of-{number}, both", vary="Accept-Language")
    for _ in range(2):
        found = [details(two, "/", {"accept-language": language}) for language in ("de", "en")]
    assert found == [["hit", "hit"]] * 2
    two[0].cache.delete_tags("of-1")
    assert details(two, "/", {"accept-language": "de"}) == ["hit", "fwd"]
    two[1].cache.delete_tags("both")
    assert details(two, "/", {"accept-language": "de"}) == ["fwd", "fwd"]


def test_a_run_that_began_before_another_process_dropped_its_tag_stores_nothing(two):
    def drop_meanwhile(request):
        two[1].cache.delete_tags("a")
        return Response(b"old", {**USUAL, "cache-tag": "a"})

    two[0].respond = drop_meanwhile
    two[0].get()
    assert two[0].stats().not_stored == {"purged": 1}
    two[0].respond = tagged("a")
    assert [two[0].get().detail[:3] for _ in range(3)][-1] == "hit"
    # A page with this tag is there now, and the same must hold for a run that renews it.
    two[0].cache.purge_all()
    two[0].respond = drop_meanwhile
    two[0].get()
    assert two[0].stats().not_stored["purged"] >= 2


def test_renewing_a_page_with_tags_leaves_the_pages_of_other_processes_alone(two, clock):
    for site in two:
        site.respond = tagged("a", **{"cache-control": "max-age=60, stale-while-revalidate=60"})
    assert details(two) == ["fwd", "fwd"]
    clock.advance(60)
    two[0].get()
    assert two[1].get().detail == "hit; ttl=0; detail=stale"


def test_operators_see_the_tags_of_the_site_only(site):
    site.respond = tagged("a")
    site.get("/b/c")
    (page,) = site.cache.cache._core.scan().step(9)
    assert len(page.tags) > 1
    assert callers_tags(page.tags) == ("a",)
