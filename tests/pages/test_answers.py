"""Answers from stored pages: which responses are stored, for how long, and what clients receive. For both drivers."""

from contextvars import ContextVar

import pytest

from tests.pages.site import STALE, USUAL, Response, answering, settle
from wheelcache.pages import ttl

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")

language = ContextVar("language", default=None)
BASIC = {"authorization": "Basic YTpi"}
TAGGED = {**USUAL, "etag": '"a"'}
TAGGED_WEAKLY = {**USUAL, "etag": 'W/"a"'}
DATED = {**TAGGED, "last-modified": "Tue, 14 Nov 2023 22:00:00 GMT"}


def test_a_hit_has_the_headers_of_the_page_and_an_age_that_grows_every_second(site, clock):
    assert site.get().detail == "fwd=miss; stored"
    ages = []
    for _ in range(4):
        hit = site.get()
        assert (hit.status, hit.body, hit["content-type"], hit["content-length"]) == (200, b"page", "text/plain", "4")
        ages.append((hit["age"], hit.detail))
        # Nobody can change the headers of the next one.
        hit.headers.clear()
        clock.advance(0.5)
    assert ages == [("0", "hit; ttl=60")] * 2 + [("1", "hit; ttl=59")] * 2


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (USUAL, 60),
        ({"cache-control": "s-maxage=60, max-age=0"}, 60),
        ({"cache-control": 'max-age="60"'}, 60),
        ({**USUAL, "expires": "0"}, 60),
        ({"expires": "Tue, 14 Nov 2023 22:14:20 GMT"}, 60),
        ({"expires": "Tue, 14 Nov 2023 22:14:20 GMT", "date": "Tue, 14 Nov 2023 22:13:40 GMT"}, 40),
        ({**USUAL, "age": "50"}, 10),
        ({**USUAL, "age": "50, 9"}, 10),
    ],
)
def test_a_response_with_a_lifetime_is_stored_for_that_time(site, clock, headers, seconds):
    site.respond = answering(headers)
    site.get()
    clock.advance(seconds - 1)
    assert site.get().detail == "hit; ttl=1"
    clock.advance(1)
    assert not site.get().detail.startswith("hit")


def test_a_lifetime_may_end_between_two_seconds(make_site, clock):
    site = make_site(rules=[("/*", ttl(1.5))])
    details = []
    for seconds in (0, 0, 1.2, 0.25, 0.05):
        clock.advance(seconds)
        details.append(site.get().detail[:3])
    assert details == ["fwd", "hit", "hit", "hit", "fwd"]


@pytest.mark.parametrize(
    ("headers", "status", "reason"),
    [
        ({}, 200, "no lifetime"),
        ({"last-modified": "Tue, 14 Nov 2023 20:00:00 GMT"}, 200, "no lifetime"),
        ({"cache-control": "max-age=0"}, 200, "no lifetime"),
        ({"cache-control": "max-age=x"}, 200, "no lifetime"),
        ({**USUAL, "age": "60"}, 200, "no lifetime"),
        ({"expires": "0"}, 200, "no lifetime"),
        ({"expires": "Tue, 14 Nov 2023 22:14:20 GMT, 0"}, 200, "no lifetime"),
        ({}, 404, "no lifetime"),
        ({}, 302, "status"),
        ({}, 500, "error"),
        ({**USUAL, "content-length": "3000000"}, 200, "max_body"),
        *(({**USUAL, "content-length": length}, 200, "content-length") for length in ("3", "5", "4, 4")),
    ],
)
def test_a_response_that_must_not_be_stored_is_counted_with_its_reason(site, headers, status, reason):
    site.respond = answering(headers, status=status)
    site.get_unchecked()
    assert (site.stats().not_stored, site.stats().stored) == ({reason: 1}, 0)


@pytest.mark.parametrize("status", [204, 205, 301, 404, 410, 500])
def test_a_response_of_another_status_is_stored_with_a_lifetime(site, status):
    site.respond = answering(status=status, body=b"")
    assert [(site.get_unchecked().status, site.runs) for _ in range(2)] == [(status, 1)] * 2
    # A response without a body has no length.
    assert ("content-length" in site.get_unchecked().headers) == (status not in (204, 205))


def test_a_page_from_another_cache_has_aged_while_the_application_fetched_it(site, clock):
    """The age may be that of the moment at which the application asked: RFC 9111, section 4.2.3."""

    def fetch(request):
        clock.advance(3)
        return Response(b"page", {**USUAL, "age": "50"})

    site.respond = fetch
    site.get()
    assert site.get().detail == "hit; ttl=7"


def test_hop_by_hop_headers_are_not_stored(site):
    # A WSGI application must not send those of the first line.
    own = {"connection": "x-a", "keep-alive": "timeout=5"} if hasattr(site, "scope") else {"proxy-authenticate": "a"}
    site.respond = answering({**USUAL, "x-a": "1", "x-b": "2", **own})
    site.get()
    hit = site.get()
    assert hit["x-b"] == "2"
    assert own.keys().isdisjoint(hit.headers)
    assert ("x-a" in hit.headers) == ("connection" not in own)


# Conditional requests, HEAD and ranges.


SINCE = "Tue, 14 Nov 2023 22:00:00 GMT"


@pytest.mark.parametrize(
    ("headers", "condition", "status"),
    [
        *((DATED, {"if-none-match": tag}, 304) for tag in ('"a"', 'W/"a"', '"b", "a"', "*")),
        *((TAGGED_WEAKLY, {"if-none-match": tag}, 304) for tag in ('"a"', '"b", W/"a"')),
        *((DATED, {"if-modified-since": date}, 304) for date in (SINCE, "Tuesday, 14-Nov-23 22:00:01 GMT")),
        (DATED, {"if-none-match": '"b"'}, 200),
        (DATED, {"if-none-match": '"b"', "if-modified-since": SINCE}, 200),
        *((DATED, {"if-modified-since": date}, 200) for date in ("Tue, 14 Nov 2023 21:59:59 GMT", "yesterday")),
        (USUAL, {"if-none-match": '"a"'}, 200),
    ],
)
def test_a_client_that_has_the_page_gets_a_304(site, clock, headers, condition, status):
    site.respond = answering(headers)
    site.get()
    clock.advance(1)
    answer = site.get(headers=condition)
    assert (answer.status, answer.body) == (status, b"page" if status == 200 else b"")
    assert (answer.headers.get("etag"), answer["age"]) == (headers.get("etag"), "1")
    assert ("content-length" in answer.headers) == (status == 200)
    assert site.runs == 1


def test_a_304_has_the_headers_that_update_the_page_of_the_client_and_no_others(site):
    kept = dict.fromkeys(("content-location", "date", "expires", "last-modified"), "a")
    kept |= {**TAGGED, "vary": "Origin"}
    site.respond = answering({**kept, "content-language": "de"})
    for runs in (1, 1):
        answer = site.get(headers={"if-none-match": '"a"'})
        assert (answer.status, answer.headers.keys() - {"age", "cache-status"}, site.runs) == (304, kept.keys(), runs)


def test_a_conditional_request_for_an_unknown_page_runs_the_application_without_the_condition(site):
    site.respond = answering(TAGGED)
    assert site.get(headers={"if-none-match": '"a"'}).status == 304
    assert "if-none-match" not in site.requests[0].headers
    assert (site.get().body, site.runs) == (b"page", 1)


def test_a_condition_and_a_range_change_no_answer_but_a_200(site):
    site.respond = answering(TAGGED, status=404)
    for headers in ({}, {"if-none-match": '"a"'}, {"range": "bytes=0-1"}):
        assert (site.get(headers=headers).status, site.runs) == (404, 1)


def test_for_two_minutes_the_application_gets_the_conditions_for_a_page_that_could_not_be_stored(site, clock):
    site.respond = answering({"etag": '"a"'})
    site.get()
    for seconds, gets_it in ((0, True), (119, True), (1, False)):
        clock.advance(seconds)
        site.get(headers={"if-none-match": '"a"'})
        assert ("if-none-match" in site.requests[-1].headers) == gets_it


def test_of_the_responses_of_a_page_that_could_not_be_stored_one_a_second_may_be(site, clock):
    site.respond = answering({"cache-control": "private"})
    # The second one looks whether this has changed.
    for _ in range(2):
        site.get()
    assert site.get(method="HEAD").detail == "fwd=miss; detail=private"
    site.respond = answering()
    details = []
    for seconds in (0.9, 0.1, 0):
        clock.advance(seconds)
        details.append(site.get().detail)
    assert details == ["fwd=miss; detail=private", "fwd=miss; stored", "hit; ttl=60"]


@pytest.mark.pairs(full="make_site", of="make_site, status")
@pytest.mark.parametrize(
    ("wanted", "more", "status", "body", "content_range"),
    [
        ("bytes=0-1", {}, 206, b"01", "bytes 0-1/10"),
        ("bytes=8-", {}, 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", {}, 206, b"789", "bytes 7-9/10"),
        ("bytes=-30", {}, 206, b"0123456789", "bytes 0-9/10"),
        ("bytes=8-20", {}, 206, b"89", "bytes 8-9/10"),
        ("bytes=5-5", {}, 206, b"5", "bytes 5-5/10"),
        ("bytes=0-1", {"if-range": '"a"'}, 206, b"01", "bytes 0-1/10"),
        ("bytes=0-1", {"if-range": SINCE}, 206, b"01", "bytes 0-1/10"),
        ("bytes=10-", {}, 416, b"", "bytes */10"),
        ("bytes=-0", {}, 416, b"", "bytes */10"),
        *(
            ("bytes=0-1", {"if-range": other}, 200, b"0123456789", None)
            for other in ('"b"', 'W/"a"', "Tue, 14 Nov 2023 22:00:01 GMT")
        ),
        *((odd, {}, 200, b"0123456789", None) for odd in ("bytes=0-1,3-4", "bytes=5-4", "bytes=-", "lines=0-1")),
    ],
)
def test_a_range_of_a_stored_page_is_answered(site, wanted, more, status, body, content_range):
    site.respond = answering(DATED, b"0123456789")
    site.get()
    answer = site.get(headers={"range": wanted, **more})
    assert (answer.status, answer.body, answer.headers.get("content-range")) == (status, body, content_range)
    assert answer["content-length"] == str(len(body))
    assert site.runs == 1


def test_a_range_of_an_unknown_page_is_left_to_the_application(site):
    site.respond = answering({**USUAL, "content-range": "bytes 0-1/4"}, b"pa", 206)
    assert site.get(headers={"range": "bytes=0-1"}).status == 206
    assert site.requests[0].headers["range"] == "bytes=0-1"
    assert site.stats().stored == 0


def test_a_head_is_answered_from_the_page_and_stores_none(site):
    site.get("/", method="HEAD")
    assert (site.runs, site.stats().stored) == (1, 0)
    site.get()
    head = site.get(method="HEAD", headers={"range": "bytes=0-1"})
    assert (head.status, head.body, head["content-length"], site.runs) == (200, b"", "4", 2)


def test_only_if_cached_never_runs_the_application_and_no_reload_does(site, clock):
    site.respond = answering(TAGGED)
    refused = site.get(headers={"cache-control": "only-if-cached"})
    assert (refused.status, refused.body, refused["content-length"], site.runs) == (504, b"", "0", 0)
    site.get()
    for directive in ("only-if-cached", "no-cache", "max-age=0"):
        assert site.get(headers={"cache-control": directive}).status == 200
    # A stale page that must be validated is none, either.
    clock.advance(60)
    assert (site.get(headers={"cache-control": "only-if-cached"}).status, site.runs) == (504, 1)


# Stale pages.


def test_a_stale_page_is_validated_by_the_application(site, clock):
    site.respond = answering({**TAGGED, "x-version": "1"})
    site.get()
    clock.advance(60)
    site.respond = answering({**TAGGED, "x-version": "2", "age": "10"}, b"", 304)
    answer = site.get()
    assert site.requests[1].headers["if-none-match"] == '"a"'
    assert (answer.status, answer.body, answer["x-version"], answer["age"]) == (200, b"page", "2", "10")
    clock.advance(49)
    assert site.get()["x-version"] == "2"
    stats = site.stats()
    assert (site.runs, stats.revalidated, stats.fresh, stats.stored) == (2, 1, 2, 2)


def test_a_stale_page_can_be_validated_for_an_hour(site, clock):
    for seconds, validates in ((60 + 3599, True), (60 + 3600, False)):
        site.respond = answering(TAGGED)
        site.cache.purge_all()
        site.get()
        clock.advance(seconds)
        site.get()
        assert ("if-none-match" in site.requests[-1].headers) == validates


@pytest.mark.parametrize(
    "headers",
    [
        {"set-cookie": "sessionid=ada"},
        {"clear-site-data": '"cookies"'},
        {"cache-control": "private"},
        {"cache-control": "no-store"},
        {"vary": "*"},
        {"access-control-allow-origin": "https://ada.example"},
    ],
)
def test_the_headers_of_a_304_that_are_for_one_visitor_reach_no_other(site, clock, headers):
    site.respond = answering(TAGGED)
    site.get()
    clock.advance(60)
    site.respond = answering({**TAGGED, **headers}, b"", 304)
    # As Django's sessions set their cookie with any response.
    first = site.get()
    assert (first.status, first.body, headers.items() <= first.headers.items()) == (200, b"page", True)
    site.respond = answering(USUAL, b"new")
    assert [site.get().body for _ in range(2)] == [b"new"] * 2


def test_a_page_with_no_cache_is_validated_before_every_use(site):
    for status, body in ((200, b"page"), (304, b""), (304, b"")):
        site.respond = answering({"cache-control": "no-cache", "etag": '"a"'}, body, status)
        assert site.get().body == b"page"
    assert site.runs == 3


def test_a_stale_page_is_renewed_in_the_background(site, clock):
    site.respond = answering({"cache-control": "max-age=60, stale-while-revalidate=30"}, b"old")
    site.get()
    clock.advance(89)
    site.respond = answering({"cache-control": "max-age=60, stale-while-revalidate=30"}, b"new")
    stale = site.get()
    assert (stale.body, stale.detail) == (b"old", "hit; ttl=-29; detail=stale")
    settle()
    assert (site.get().body, site.runs, site.stats().stale) == (b"new", 2, 1)
    clock.advance(90)
    # Never after that time.
    site.respond = answering(body=b"newer")
    assert site.get().body == b"newer"


def test_a_renewal_sends_nothing_that_the_key_does_not_name(site, clock):
    lasting = {"cache-control": "public, max-age=60, stale-while-revalidate=30", "vary": "Accept-Language"}
    languages = []

    def note(notes):
        notes.vary_on(cookies=["theme"])
        languages.append(language.get())

    site.respond = answering(lasting, notes=note)
    sent = {"cookie": "session=bob; theme=dark", "accept-language": "de", "user-agent": "secret", **BASIC}
    for _ in range(2):
        reset = language.set("de")
        site.get(headers=sent)
        language.reset(reset)
        clock.advance(60)
    settle()
    # As frameworks keep the language of a request.
    assert languages == ["de", None]
    assert site.requests[1].headers == {"host": "example.com", "accept-language": "de", "cookie": "theme=dark"}


def test_the_renewal_of_a_page_that_depends_on_whether_there_are_cookies_has_one(site, clock):
    site.respond = answering(STALE, notes=lambda notes: notes.vary_on_presence_of_cookies())
    for headers in [{"cookie": "session=bob"}, {}] * 2:
        site.get(headers=headers)
        clock.advance(30)
    settle()
    assert [request.headers.get("cookie") for request in site.requests] == ["session=bob", None, "some=cookie", None]


@pytest.mark.parametrize("failure", ["exception", 500, 502, 503, 504])
def test_a_stale_page_replaces_an_error_for_the_time_that_it_allows(site, clock, failure):
    def fail(request):
        if failure == "exception":
            raise OSError("the database is down")
        return Response(b"error", {}, failure)

    site.respond = answering({"cache-control": "max-age=60, stale-if-error=600"})
    site.get()
    site.respond = fail
    clock.advance(659)
    answer = site.get()
    shown = "" if failure == "exception" else f"fwd-status={failure}; "
    assert (answer.status, answer.body, answer.detail) == (200, b"page", f"fwd=stale; {shown}detail=error")
    assert site.stats().stale == 1
    clock.advance(1)
    if failure == "exception":
        with pytest.raises(OSError, match="the database is down"):
            site.get()
    else:
        assert site.get().status == failure


def test_an_exception_in_a_renewal_is_logged_and_the_page_stays(site, clock, caplog):
    def fail(request):
        raise OSError("the database is down")

    site.respond = answering(STALE)
    site.get()
    clock.advance(60)
    site.respond = fail
    for runs in (2, 3):
        assert site.get().detail == "hit; ttl=0; detail=stale"
        settle()
        assert (site.runs, caplog.text.count("OSError: the database is down")) == (runs, runs - 1)


@pytest.mark.parametrize("directive", ["must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"])
def test_a_page_that_forbids_it_is_never_used_stale(make_site, clock, directive):
    site = make_site(grace=10, fail_safe=20)
    site.respond = answering({**TAGGED, "cache-control": f"max-age=60, {directive}"})
    site.get()
    clock.advance(60)
    site.respond = answering({}, b"error", 500)
    assert site.get().status == 500


# Authorization and errors.


def test_a_response_to_a_request_with_authorization_is_stored_only_if_it_allows_it(site):
    site.get("/private", BASIC)
    assert site.stats().not_stored == {"authorization": 1}
    for directive in ("public", "s-maxage=60", "must-revalidate"):
        site.respond = answering({"cache-control": f"max-age=60, {directive}"})
        details = [site.get(f"/{directive}", headers).detail[:3] for headers in (BASIC, {}, BASIC)]
        assert details == ["fwd", "hit", "hit"]


def test_a_request_with_authorization_gets_no_page_that_does_not_allow_it(site):
    site.get()
    assert site.get(headers=BASIC).detail == "fwd=request; detail=authorization"
    assert site.requests[1].headers["authorization"] == "Basic YTpi"


@pytest.mark.parametrize(("headers", "status"), [({}, 500), ({"cache-control": "no-store"}, 200)])
def test_a_page_that_is_gone_is_not_used_after_an_error_unless_only_one_request_stores_nothing(
    make_site, clock, headers, status
):
    site = make_site(fail_safe=600)
    site.get()
    clock.advance(60)
    site.respond = answering(USUAL if headers else {}, status=200 if headers else 404)
    # A stale page replaces no other error than those of a server.
    assert site.get(headers=headers).status == (200 if headers else 404)
    site.respond = answering({}, b"error", 500)
    assert [site.get().status for _ in range(2)] == [status] * 2


# Bounds and figures.


def test_a_page_that_does_not_fit_into_max_bytes_is_not_stored(make_site):
    site = make_site(max_bytes=5000)
    site.respond = answering(body=b"x" * 5000)
    site.get()
    assert site.stats().not_stored == {"max_bytes": 1}


@pytest.mark.parametrize("declares", [True, False])
def test_a_body_above_max_body_is_not_stored(make_site, declares):
    site = make_site(max_body=10)

    def respond(request):
        length = request.path[1:]
        return Response(b"x" * int(length), {**USUAL, "content-length": length} if declares else USUAL)

    site.respond = respond
    assert [site.get(f"/{length}").body for length in (10, 11)] == [b"x" * 10, b"x" * 11]
    assert (site.stats().not_stored, site.stats().stored) == ({"max_body": 1}, 1)
    # No later response of a page that was too long is recorded, until the mark is forgotten.
    assert [site.get("/11").detail for _ in range(2)] == ['fwd=miss; detail="longer than max_body"'] * 2


def test_a_variant_that_is_too_long_keeps_shorter_ones_out_only_until_the_next_look(make_site, clock):
    site = make_site(max_body=10)
    headers = {**USUAL, "vary": "Accept-Encoding"}
    site.respond = lambda request: Response(b"x" * (5 if "accept-encoding" in request.headers else 50), headers)
    site.get()
    clock.advance(1)
    assert site.found(*[{"accept-encoding": "gzip"}] * 2) == ["fwd", "hit"]
