"""Pages are purged by the tags that their responses have. ``test_purges`` has what holds for all purges."""

import pytest

from tests.pages.site import USUAL, answering

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")


def tagged(tags, **headers):
    return answering({**USUAL, "cache-tag": tags, **headers})


def test_a_page_is_purged_by_each_tag_that_its_response_lists_or_the_application_notes(site):
    tags = {**USUAL, "cache-tag": "city:1,country:de , ,a b, \u00fc"}
    site.respond = answering(tags, notes=lambda notes: notes.tags.add("noted"))
    for tag in ("city:1", "country:de", "a b", "\u00fc", "noted"):
        site.get()
        site.cache.delete_tags("city:2", "city")
        assert site.get().detail.startswith("hit")
        site.cache.delete_tags("other", tag)
        assert site.get().detail.startswith("fwd=miss")


@pytest.mark.parametrize("name", ["Cache-Tag", "CDN-Cache-Control", "SURROGATE-CONTROL"])
def test_headers_for_the_cache_are_never_sent_to_the_client(make_site, name):
    site = make_site(session_cookies=["sessionid"])
    site.respond = answering({**USUAL, name: "a, b"})
    answers = [site.get(), site.get(), site.get(method="HEAD"), site.get(method="HEAD", target="/other")]
    answers += [site.get(method="POST", body=b"x"), site.get_unchecked(method="get"), site.get(host="a,b")]
    site.respond = answering({"cache-control": "private", name: "a, b"})
    answers += [site.get("/private") for _ in range(3)]
    answers += [site.get("/private", {"authorization": "secret"}), site.get("/upgrade", {"expect": "100-continue"})]
    assert [answer.headers.get(name.lower()) for answer in answers] == [None] * len(answers)
    assert {answer.status for answer in answers} == {200}


def test_the_tags_of_pages_count_in_max_bytes(make_site):
    site = make_site(max_bytes=200_000)
    for number in range(50):
        site.respond = tagged(",".join(f"{number}-{each:0100}" for each in range(50)))
        site.get(f"/{number}")
    # Each page has 15,000 bytes of tags and more.
    assert 5 <= len(site.cache.cache) <= 200_000 // 15_000


def test_only_the_variants_with_the_tag_are_purged(site):
    def respond(request):
        return tagged(f"in-{request.headers['accept-language']}, all", vary="Accept-Language")(request)

    site.respond = respond
    languages = [{"accept-language": language} for language in ("de", "en")]
    assert site.found(*languages) == ["fwd", "fwd"]
    site.cache.delete_tags("in-de")
    assert site.found(*languages) == ["fwd", "hit"]


def test_a_page_that_was_validated_keeps_its_tags_unless_the_304_lists_others(site, clock):
    site.respond = tagged("a", etag='"1"')
    site.get()
    for headers, tag in (({}, "a"), ({"cache-tag": "b"}, "b")):
        site.respond = answering({**USUAL, "etag": '"1"', **headers}, b"", 304)
        clock.advance(60)
        assert site.get().detail == "fwd=stale; fwd-status=304; stored"
        assert site.get().detail.startswith("hit")
        site.cache.delete_tags(tag)
        site.respond = tagged("a", etag='"1"')
        assert site.get().detail.startswith("fwd=miss")


NUMBERED = [f"tag{number}" for number in range(65)]


@pytest.mark.parametrize(
    ("listed", "noted", "is_stored"),
    [
        *(([], [wrong], False) for wrong in (7, "")),
        *(([], NUMBERED[:number], number == 64) for number in (64, 65)),
        *((NUMBERED[:number], [], number == 64) for number in (64, 65)),
        (NUMBERED[:40], NUMBERED[30:], False),
        (NUMBERED[:40], NUMBERED[30:64], True),
    ],
)
def test_a_page_with_wrong_tags_or_more_than_64_is_sent_and_not_stored(site, listed, noted, is_stored, caplog):
    headers = {**USUAL, "cache-tag": ",".join(listed)}
    site.respond = answering(headers, notes=lambda notes: notes.tags.update(noted))
    assert site.get().body == b"page"
    assert site.stats().not_stored == ({} if is_stored else {"tags": 1})
    assert ("A page is not stored: the tags of a page must be" in caplog.text) == (not is_stored)
