"""Answers from stored pages: which responses are stored, for how long, and what clients receive. For both drivers."""

import pytest

from tests.pages.site import Response
from tests.waiting import until
from wheelcache.pages.wsgi import renewal_pool

pytestmark = pytest.mark.pairs(full="make_site", of="make_site")


def answering(headers, body=b"page", status=200):
    return lambda request: Response(body, headers, status)


def settle():
    """Wait for renewals in threads."""
    assert until(lambda: not renewal_pool.pending)


def test_a_page_is_made_once_within_its_lifetime(site, clock):
    assert site.get().detail.startswith("fwd=miss")
    clock.advance(59)
    hit = site.get()
    assert (hit.status, hit.body, hit["content-type"], hit["content-length"]) == (200, b"page", "text/plain", "4")
    assert (hit["age"], hit.detail) == ("59", "hit; ttl=1")
    clock.advance(1)
    site.get()
    assert site.runs == 2


def test_the_age_of_a_hit_changes_every_second(site, clock):
    site.get()
    ages = []
    for _ in range(4):
        ages.append(site.get()["age"])
        clock.advance(0.5)
    assert ages == ["0", "0", "1", "1"]


@pytest.mark.parametrize(
    ("headers", "reason"),
    [
        ({}, "no lifetime"),
        ({"last-modified": "Tue, 14 Nov 2023 20:00:00 GMT"}, "no lifetime"),
        ({"cache-control": "max-age=0"}, "no lifetime"),
        ({"expires": "0"}, "no lifetime"),
        ({"cache-control": "max-age=60, no-store"}, "no-store"),
        ({"cache-control": "max-age=60, private"}, "private"),
        ({"cache-control": "max-age=60", "set-cookie": "a=b"}, "set-cookie"),
        ({"cache-control": "max-age=60", "clear-site-data": '"cookies"'}, "clear-site-data"),
        ({"cache-control": "max-age=60", "vary": "*"}, "vary"),
        ({"cache-control": "max-age=60", "access-control-allow-origin": "https://a.example"}, "cors"),
        ({"cache-control": "max-age=60", "content-length": "3000000"}, "max_body"),
    ],
)
def test_a_response_that_must_not_be_stored_is_counted_with_its_reason(site, headers, reason):
    site.respond = answering(headers)
    site.get()
    assert site.stats().not_stored == {reason: 1}
    site.get()
    assert site.runs == 2


@pytest.mark.parametrize(
    "headers",
    [
        {"cache-control": "s-maxage=60, max-age=0"},
        {"expires": "Tue, 14 Nov 2023 22:14:20 GMT", "date": "Tue, 14 Nov 2023 22:13:20 GMT"},
        {"cache-control": "max-age=60", "access-control-allow-origin": "*"},
        {"cache-control": "max-age=60", "access-control-allow-origin": "https://a.example", "vary": "Origin"},
        {"cache-control": 'max-age="60"'},
    ],
)
def test_a_response_with_a_lifetime_is_stored_for_that_time(site, clock, headers):
    site.respond = answering(headers)
    site.get()
    clock.advance(59)
    site.get()
    assert site.runs == 1
    clock.advance(1)
    site.get()
    assert site.runs == 2


def test_the_age_of_a_response_shortens_its_lifetime(site, clock):
    site.respond = answering({"cache-control": "max-age=60", "age": "50"})
    site.get()
    clock.advance(9)
    assert site.get()["age"] == "59"
    clock.advance(1)
    site.get()
    assert site.runs == 2


def test_hop_by_hop_headers_are_not_stored(site):
    headers = {"cache-control": "max-age=60", "x-a": "1", "x-b": "2"}
    site.respond = answering(headers)
    if type(site).__name__ == "AsgiSite":
        # A WSGI application must not send these.
        headers |= {"connection": "x-a", "keep-alive": "timeout=5"}
    else:
        headers |= {"proxy-authenticate": "a"}
    site.get()
    hit = site.get()
    assert hit["x-b"] == "2"
    assert {"connection", "keep-alive", "proxy-authenticate"}.isdisjoint(hit.headers)


def test_a_client_cannot_change_the_headers_of_the_next_hit(site):
    site.get()
    assert site.get().headers == site.get().headers


# Conditional requests, HEAD and ranges.


@pytest.fixture
def tagged(site):
    """A site with a page of ten bytes that has both validators."""
    site.respond = answering(
        {"cache-control": "max-age=60", "etag": '"a"', "last-modified": "Tue, 14 Nov 2023 22:00:00 GMT"}, b"0123456789"
    )
    site.get()
    return site


@pytest.mark.parametrize(
    "condition",
    [
        {"if-none-match": '"a"'},
        {"if-none-match": 'W/"a"'},
        {"if-none-match": '"b", "a"'},
        {"if-none-match": "*"},
        {"if-modified-since": "Tue, 14 Nov 2023 22:00:00 GMT"},
        {"if-modified-since": "Tuesday, 14-Nov-23 22:00:01 GMT"},
    ],
)
def test_a_client_that_has_the_page_gets_a_304(tagged, condition):
    answer = tagged.get(headers=condition)
    assert (answer.status, answer.body, answer["etag"]) == (304, b"", '"a"')
    assert "content-length" not in answer.headers
    assert tagged.runs == 1


@pytest.mark.parametrize(
    "condition",
    [
        {"if-none-match": '"b"'},
        {"if-none-match": '"b"', "if-modified-since": "Tue, 14 Nov 2023 22:00:00 GMT"},
        {"if-modified-since": "Tue, 14 Nov 2023 21:59:59 GMT"},
        {"if-modified-since": "yesterday"},
    ],
)
def test_a_client_that_has_another_page_gets_the_whole_one(tagged, condition):
    answer = tagged.get(headers=condition)
    assert (answer.status, answer.body) == (200, b"0123456789")
    assert tagged.runs == 1


@pytest.mark.parametrize("condition", ['W/"a"', '"a"', '"b", W/"a"'])
def test_a_client_that_has_a_page_with_a_weak_tag_gets_a_304(site, condition):
    """As GZipMiddleware of Django makes them: the comparison of If-None-Match is the weak one."""
    site.respond = answering({"cache-control": "max-age=60", "etag": 'W/"a"'})
    site.get()
    answer = site.get(headers={"if-none-match": condition})
    assert (answer.status, answer["etag"], site.runs) == (304, 'W/"a"', 1)


def test_a_conditional_request_for_an_unknown_page_runs_the_application_without_the_condition(site):
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"'})
    assert site.get(headers={"if-none-match": '"a"'}).status == 304
    assert "if-none-match" not in site.requests[0].headers
    assert site.get().body == b"page"
    assert site.runs == 1


def test_a_condition_changes_no_answer_but_a_200(site):
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"'}, status=404)
    for _ in range(2):
        assert site.get(headers={"if-none-match": '"a"'}).status == 404
    assert site.runs == 1


def test_the_application_gets_the_conditions_of_requests_for_pages_that_cannot_be_stored(site):
    site.respond = answering({"etag": '"a"'})
    site.get()
    site.get(headers={"if-none-match": '"a"'})
    assert site.requests[1].headers["if-none-match"] == '"a"'


@pytest.mark.pairs(full="make_site", of="make_site, status")
@pytest.mark.parametrize(
    ("wanted", "status", "body", "content_range"),
    [
        ("bytes=0-1", 206, b"01", "bytes 0-1/10"),
        ("bytes=8-", 206, b"89", "bytes 8-9/10"),
        ("bytes=-3", 206, b"789", "bytes 7-9/10"),
        ("bytes=8-20", 206, b"89", "bytes 8-9/10"),
        ("bytes=10-", 416, b"", "bytes */10"),
        ("bytes=-0", 416, b"", "bytes */10"),
        ("bytes=0-1,3-4", 200, b"0123456789", None),
        ("bytes=5-4", 200, b"0123456789", None),
        ("lines=0-1", 200, b"0123456789", None),
    ],
)
def test_a_range_of_a_stored_page_is_answered(tagged, wanted, status, body, content_range):
    answer = tagged.get(headers={"range": wanted})
    assert (answer.status, answer.body, answer.headers.get("content-range")) == (status, body, content_range)
    assert answer["content-length"] == str(len(body))
    assert tagged.runs == 1


def test_a_range_of_another_version_is_not_combined_with_the_page(tagged):
    assert tagged.get(headers={"range": "bytes=0-1", "if-range": '"a"'}).status == 206
    assert tagged.get(headers={"range": "bytes=0-1", "if-range": '"b"'}).status == 200
    assert tagged.get(headers={"range": "bytes=0-1", "if-range": 'W/"a"'}).status == 200


@pytest.mark.parametrize("condition", ['W/"a"', '"a"'])
def test_a_weak_etag_never_lets_a_client_combine_a_range_with_its_part(site, condition):
    site.respond = answering({"cache-control": "max-age=60", "etag": 'W/"a"'}, b"0123456789")
    site.get()
    answer = site.get(headers={"range": "bytes=0-1", "if-range": condition})
    assert (answer.status, answer.body, site.runs) == (200, b"0123456789", 1)


def test_a_range_of_an_unknown_page_is_left_to_the_application(site):
    site.respond = answering({"cache-control": "max-age=60", "content-range": "bytes 0-1/4"}, b"pa", 206)
    assert site.get(headers={"range": "bytes=0-1"}).status == 206
    assert site.requests[0].headers["range"] == "bytes=0-1"
    assert site.stats().stored == 0


def test_a_head_is_answered_from_the_page_and_stores_none(site):
    site.get("/", method="HEAD")
    assert (site.runs, site.stats().stored) == (1, 0)
    site.get()
    head = site.get(method="HEAD")
    assert (head.body, head["content-length"], site.runs) == (b"", "4", 2)


def test_only_if_cached_never_runs_the_application(site):
    assert site.get(headers={"cache-control": "only-if-cached"}).status == 504
    site.respond = lambda request: Response()
    site.get()
    assert site.get(headers={"cache-control": "only-if-cached"}).status == 200
    assert site.runs == 1


def test_a_reload_does_not_run_the_application(site):
    site.get()
    site.get(headers={"cache-control": "no-cache"})
    assert site.runs == 1


# Stale pages.


def test_a_stale_page_is_validated_by_the_application(site, clock):
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"', "x-version": "1"})
    site.get()
    clock.advance(60)
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"', "x-version": "2"}, b"", 304)
    answer = site.get()
    assert site.requests[1].headers["if-none-match"] == '"a"'
    assert (answer.status, answer.body, answer["x-version"], answer["age"]) == (200, b"page", "2", "0")
    clock.advance(59)
    assert site.get()["x-version"] == "2"
    assert (site.runs, site.stats().revalidated) == (2, 1)


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
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"'})
    site.get()
    clock.advance(60)
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"', **headers}, b"", 304)
    # As Django's sessions set their cookie with any response.
    first = site.get()
    assert (first.status, first.body, headers.items() <= first.headers.items()) == (200, b"page", True)
    site.respond = answering({"cache-control": "max-age=60"}, b"new")
    for _ in range(2):
        assert site.get().body == b"new"


def test_a_page_that_a_304_has_validated_is_as_old_as_the_304(site, clock):
    """Another cache behind this one may have stored it for a while."""
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"'})
    site.get()
    clock.advance(60)
    site.respond = answering({"cache-control": "max-age=60", "etag": '"a"', "age": "50"}, b"", 304)
    site.get()
    assert (site.get().detail, site.runs) == ("hit; ttl=10", 2)
    clock.advance(10)
    site.get()
    assert site.runs == 3


def test_a_page_from_another_cache_has_aged_while_the_application_fetched_it(site, clock):
    """The age may be that of the moment at which the application asked: RFC 9111, section 4.2.3."""

    def fetch(request):
        clock.advance(3)
        return Response(b"page", {"cache-control": "max-age=60", "age": "50"})

    site.respond = fetch
    site.get()
    assert site.get().detail == "hit; ttl=7"


def test_a_page_with_no_cache_is_validated_before_every_use(site):
    site.respond = answering({"cache-control": "no-cache", "etag": '"a"'})
    site.get()
    site.respond = answering({"cache-control": "no-cache", "etag": '"a"'}, b"", 304)
    assert [site.get().body, site.get().body] == [b"page", b"page"]
    assert site.runs == 3


def test_a_stale_page_is_renewed_in_the_background(site, clock):
    site.respond = answering({"cache-control": "max-age=60, stale-while-revalidate=30"}, b"old")
    site.get()
    clock.advance(60)
    site.respond = answering({"cache-control": "max-age=60, stale-while-revalidate=30"}, b"new")
    stale = site.get()
    assert (stale.body, stale.detail) == (b"old", "hit; ttl=0; detail=stale")
    settle()
    assert site.get().body == b"new"
    assert (site.runs, site.stats().stale) == (2, 1)


def test_a_page_is_never_used_after_its_time_to_revalidate(site, clock):
    site.respond = answering({"cache-control": "max-age=60, stale-while-revalidate=30"}, b"old")
    site.get()
    clock.advance(90)
    site.respond = answering({"cache-control": "max-age=60"}, b"new")
    assert site.get().body == b"new"


def test_a_renewal_sends_nothing_that_the_key_does_not_name(site, clock):
    lasting = {"cache-control": "public, max-age=60, stale-while-revalidate=30", "vary": "Accept-Language"}
    site.respond = answering(lasting)
    sent = {
        "cookie": "session=bob",
        "accept-language": "de",
        "user-agent": "secret",
        "authorization": "Basic Ym9iOmJvYg==",
    }
    site.get(headers=sent)
    clock.advance(60)
    site.get(headers=sent)
    settle()
    assert site.runs == 2
    assert site.requests[1].headers == {"host": "example.com", "accept-language": "de"}


def test_a_renewal_keeps_the_single_cookies_that_the_key_names(site, clock):
    def respond(request):
        request.notes.vary_on(cookies=["theme"])
        return Response(b"page", {"cache-control": "max-age=60, stale-while-revalidate=30"})

    site.respond = respond
    site.get(headers={"cookie": "session=bob; theme=dark"})
    clock.advance(60)
    site.get(headers={"cookie": "session=bob; theme=dark"})
    settle()
    assert site.requests[1].headers == {"host": "example.com", "cookie": "theme=dark"}


@pytest.mark.parametrize(("failure", "shown"), [("exception", ""), ("status", "fwd-status=503; ")])
def test_a_stale_page_replaces_an_error_for_the_time_that_it_allows(site, clock, failure, shown):
    def fail(request):
        if failure == "exception":
            raise OSError("the database is down")
        return Response(b"error", {}, 503)

    site.respond = answering({"cache-control": "max-age=60, stale-if-error=600"})
    site.get()
    site.respond = fail
    clock.advance(659)
    answer = site.get()
    assert (answer.status, answer.body, answer.detail) == (200, b"page", f"fwd=stale; {shown}detail=error")
    clock.advance(1)
    if failure == "exception":
        with pytest.raises(OSError, match="the database is down"):
            site.get()
    else:
        assert site.get().status == 503


def test_options_let_pages_be_stale_that_do_not_specify_it(make_site, clock):
    site = make_site(grace=10, fail_safe=20)
    site.get()
    clock.advance(69)
    site.respond = answering({}, b"error", 500)
    assert site.get().body == b"page"
    settle()
    clock.advance(10)
    assert site.get().body == b"page"
    clock.advance(1)
    assert site.get().status == 500


@pytest.mark.parametrize("directive", ["must-revalidate", "proxy-revalidate", "s-maxage=60", "no-cache"])
def test_a_page_that_forbids_it_is_never_used_stale(make_site, clock, directive):
    site = make_site(grace=10, fail_safe=20)
    site.respond = answering({"cache-control": f"max-age=60, {directive}", "etag": '"a"'})
    site.get()
    clock.advance(60)
    site.respond = answering({}, b"error", 500)
    assert site.get().status == 500


# Authorization and errors.


def test_a_response_to_a_request_with_authorization_is_stored_only_if_it_allows_it(site):
    site.get("/private", {"authorization": "Basic YTpi"})
    assert site.stats().not_stored == {"authorization": 1}
    site.respond = answering({"cache-control": "public, max-age=60"})
    site.get("/public", {"authorization": "Basic YTpi"})
    site.get("/public")
    site.get("/public", {"authorization": "Basic YTpi"})
    assert site.runs == 2


def test_a_request_with_authorization_gets_no_page_that_does_not_allow_it(site):
    site.get()
    site.get(headers={"authorization": "Basic YTpi"})
    assert site.runs == 2
    assert site.requests[1].headers["authorization"] == "Basic YTpi"


def test_a_client_with_authorization_that_has_a_newer_page_does_not_remove_the_stale_one(site, clock):
    site.respond = answering({"cache-control": "public, max-age=60, stale-if-error=60", "etag": '"old"'})
    site.get()
    clock.advance(61)
    site.respond = lambda request: Response(b"", {}, 304 if request.headers.get("if-none-match") == '"new"' else 500)
    site.get(headers={"authorization": "Basic YTpi", "if-none-match": '"new"'})
    assert site.get().body == b"page"


def test_errors_are_stored_only_with_a_lifetime(site):
    for status in (404, 500):
        site.respond = answering({"cache-control": "max-age=60"}, status=status)
        site.get(f"/{status}")
        site.get(f"/{status}")
    assert site.runs == 2
    site.respond = answering({}, status=404)
    site.get("/none")
    site.get("/none")
    assert site.runs == 4


def test_a_deleted_page_is_not_used_after_an_error(make_site, clock):
    site = make_site(fail_safe=600)
    site.get()
    clock.advance(60)
    site.respond = answering({}, b"gone", 404)
    site.get()
    site.respond = answering({}, b"error", 500)
    assert site.get().status == 500


def test_a_request_that_must_not_be_stored_leaves_the_page_of_others_for_errors(make_site, clock):
    site = make_site(fail_safe=600)
    site.get()
    clock.advance(60)
    assert site.get(headers={"cache-control": "no-store"}).status == 200
    site.respond = answering({}, b"error", 500)
    assert (site.get().status, site.get().body) == (200, b"page")


# Bounds and figures.


def test_a_transient_failure_does_not_keep_a_page_from_being_stored_afterwards(site):
    site.respond = answering({"cache-control": "max-age=60", "content-length": "5"})
    site.get()
    site.respond = answering({"cache-control": "max-age=60"})
    site.get()
    site.get()
    assert (site.runs, site.stats().not_stored) == (2, {"content-length": 1})


def test_the_pages_take_at_most_max_bytes(make_site):
    site = make_site(max_bytes=100_000)
    site.respond = answering({"cache-control": "max-age=60"}, b"x" * 10_000)
    for number in range(50):
        site.get(f"/{number}")
        assert site.cache.cache.stats().weight <= 100_000
    site.get("/49")
    site.get("/0")
    assert site.runs == 51


def test_a_body_above_max_body_is_not_stored(make_site):
    site = make_site(max_body=10)
    site.respond = answering({"cache-control": "max-age=60"}, b"x" * 11)
    assert site.get().body == b"x" * 11
    assert site.stats().not_stored == {"max_body": 1}


@pytest.mark.parametrize("length", [{}, {"content-length": "30"}])
def test_a_variant_that_is_too_long_keeps_no_other_one_from_being_stored(make_site, length):
    site = make_site(max_body=20)

    def respond(request):
        headers = {"cache-control": "max-age=60", "vary": "Accept-Encoding"}
        if "accept-encoding" in request.headers:
            return Response(b"zip", {**headers, "content-encoding": "gzip"})
        return Response(b"x" * 30, {**headers, **length})

    site.respond = respond
    site.get()
    assert [site.get(headers={"accept-encoding": "gzip"}).detail[:3] for _ in range(3)] == ["fwd", "hit", "hit"]


def test_the_figures_count_every_answer_once(site, clock):
    site.respond = answering({"cache-control": "max-age=60, stale-while-revalidate=60"})
    for _ in range(5):
        site.get()
    site.get(method="HEAD")
    clock.advance(60)
    site.get()
    settle()
    site.get("/none", headers={"cache-control": "only-if-cached"})
    stats = site.stats()
    assert (stats.fresh, stats.stale, stats.stored, stats.bytes_sent) == (5, 1, 2, 20)


def test_the_cache_counts_hits_and_misses(site):
    for target in ("/a", "/a", "/b", "/a"):
        site.get(target)
    stats = site.cache.cache.stats()
    assert (stats.hits, stats.misses, stats.puts) == (2, 2, 2)


def test_no_cache_status_is_sent_if_the_site_does_not_want_it(make_site):
    site = make_site(cache_status=False)
    assert "cache-status" not in site.get().headers
    assert "cache-status" not in site.get().headers
