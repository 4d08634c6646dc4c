"""The rules and the parsing of headers, without any I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.site import EPOCH
from wheelcache.pages import fail_safe, grace, rules, ttl
from wheelcache.pages.headers import FOREVER, delta_seconds, dictionary, directives, http_date, members
from wheelcache.pages.page_rules import NO_RULE, PageRules
from wheelcache.pages.rules import Use
from wheelcache.pages.variants import Normalization, accepted_encodings, accepted_languages, cookies

YEAR = 365 * 86400


@pytest.mark.parametrize(
    ("date", "seconds"),
    [
        (b"Tue, 14 Nov 2023 22:13:20 GMT", 0),
        (b"tue, 14 nov 2023 22:13:20 gmt", 0),
        (b"Tuesday, 14-Nov-23 22:13:20 GMT", 0),
        (b"Tue Nov 14 22:13:20 2023", 0),
        (b"Wed Nov  1 22:13:20 2023", -13 * 86400),
        # A leap second.
        (b"Tue, 14 Nov 2023 22:13:60 GMT", 40),
        *((b"Tue, %b Nov 2023 22:13:20 GMT" % day, None) for day in (b"32", b"00", b"1", "\u0662".encode() + b"4")),
        *((b"Tue, 14 Nov 2023 %b GMT" % time, None) for time in (b"24:13:20", b"22:60:20", b"22:13:61")),
        *((b"Tue, 14 Nov 2023 22:13:20" + zone, None) for zone in (b"", b" CET")),
        *((b"Tue, 14 %b 22:13:20 GMT" % month, None) for month in (b"Non 2023", b"Nov 23", b"Nov 0000")),
        *((odd, None) for odd in (None, b"", b"0", b" Tue, 14 Nov 2023 22:13:20 GMT")),
    ],
)
def test_a_date_has_one_of_three_forms(date, seconds):
    assert http_date(date, EPOCH) == (None if seconds is None else EPOCH + seconds)


def test_a_year_of_two_digits_is_at_most_fifty_years_later():
    assert http_date(b"Tuesday, 14-Nov-73 22:13:20 GMT", EPOCH) == EPOCH + 50 * YEAR + 13 * 86400
    assert http_date(b"Tuesday, 14-Nov-73 22:13:21 GMT", EPOCH) == EPOCH - 50 * YEAR - 12 * 86400 + 1


def test_directives_may_have_quoted_arguments_and_the_first_of_duplicates_counts():
    assert directives([b'max-age=5, A="b, max-age=7",no-cache', b'S-Maxage = "3", max-age=9, =x, ext="a\\"b"']) == {
        b"max-age": b"5",
        b"a": b"b, max-age=7",
        b"no-cache": None,
        b"s-maxage": b"3",
        b"": b"x",
        b"ext": b'a\\"b',
    }


@pytest.mark.parametrize(
    ("argument", "seconds"),
    [
        *((b"0", 0), (b"007", 7), (b"99999999999999999999", FOREVER), (b"2147483649", FOREVER)),
        *((odd, None) for odd in (b"-1", b"1.5", b"1a", b"", None, "\u00b2".encode("latin-1"))),
    ],
)
def test_delta_seconds_are_digits(argument, seconds):
    assert delta_seconds(argument) == seconds


@given(st.lists(st.binary(max_size=60), max_size=3))
def test_parsing_never_fails(lines):
    directives(lines)
    dictionary(lines)
    members(lines)
    for line in lines:
        http_date(line, EPOCH)
        delta_seconds(line)
        accepted_encodings(line)
        cookies(line)
        rules.is_not_modified([(b"etag", line), (b"last-modified", line)], line, line, EPOCH)
        for field in (b"accept-language", b"accept-encoding", b"cookie a", b"x"):
            Normalization().values([field], {field.partition(b" ")[0]: line})
        try:
            span = rules.byte_range([], 10, line, None)
        except rules.Unsatisfiable:
            continue
        assert span is None or 0 <= span[0] <= span[1] < 10


@pytest.mark.parametrize(
    ("header", "found"),
    [
        (b"a=1;b = 2 ; ;c=", {b"a": b"1", b"b": b"2", b"c": b""}),
        (b'a=1; a=2; q="x\\\\y"', {b"a": b"1;2", b"q": b'"x\\\\y"'}),
        *((odd, None) for odd in (b"=1", b"a b=1", b'a="', b'a="x\\""', b"a=" + b"1" * 4095)),
        (b"a=" + b"1" * 4094, {b"a": b"1" * 4094}),
    ],
)
def test_the_cookies_of_a_header_are_those_that_every_framework_finds(header, found):
    assert cookies(header) == found


@pytest.mark.parametrize("length", [199, 200, 201])
def test_an_accept_encoding_of_more_than_200_bytes_is_no_plain_list(length):
    assert accepted_encodings(b"gzip".ljust(length)) == ([b"gzip"] if length <= 200 else None)


@pytest.mark.parametrize("length", [499, 500, 501])
def test_an_accept_language_of_more_than_500_bytes_is_not_normalized(length):
    value = b"DE," * 166 + b"e" * (length - 498)
    assert accepted_languages(value) == (value.lower() if length <= 500 else value)


# Freshness.


def freshness(control, option=0, on_failure=0, status=200, rule=NO_RULE, **headers):
    fields = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    fields += [(b"cache-control", control)] * (control is not None)
    response = rules.Response(status, fields)
    return rules.freshness(response, wall=EPOCH, seconds=0, rule=rule, grace=option, fail_safe=on_failure)


def test_a_page_is_fresh_then_stale_then_must_be_validated():
    page = freshness(b"max-age=10, stale-while-revalidate=5, stale-if-error=7")
    assert [page.use(age) for age in (0, 9.9, 10, 14.9, 15)] == [
        *(Use.FRESH, Use.FRESH, Use.WHILE_REVALIDATING, Use.WHILE_REVALIDATING, Use.VALIDATED)
    ]
    assert [page.may_replace_an_error(age) for age in (0, 16.9, 17)] == [True, True, False]
    always = freshness(b"max-age=10, no-cache, stale-if-error=7")
    assert (always.use(0), always.may_replace_an_error(0)) == (Use.VALIDATED, False)


LIFETIMES = [
    # CDN-Cache-Control, Surrogate-Control, Cache-Control, lifetime, grace
    (b"max-age=600", b"max-age=500", b"max-age=400", 600, 5),
    (None, b"max-age=500", b"no-store", 500, 5),
    (None, b"max-age=500+7", b"max-age=400, stale-while-revalidate=9", 500, 7),
    (None, b'Max-Age="500", content="ESI/1.0", stale-while-revalidate=8', b"max-age=400", 500, 8),
    (None, b"max-age=500;other-cache", b"max-age=400", 400, 5),
    (None, b'content="ESI/1.0"', b"max-age=400", 400, 5),
    (b"max-age=600, stale-while-revalidate=9", None, b"no-store, private", 600, 9),
    (b"max-age=600, must-revalidate", None, b"max-age=400, stale-while-revalidate=9", 600, 0),
    (b"s-maxage=500, max-age=600", None, None, 500, 0),
    (b"max-age=600,", None, b"max-age=400", 400, 5),
    (b'max-age="600"', None, b"max-age=400", 0, 5),
    (b"public", None, b"max-age=400", None, 5),
    (b"", b"", b"max-age=400", 400, 5),
]


@pytest.mark.parametrize(("cdn", "surrogate", "control", "lifetime", "graced"), LIFETIMES)
def test_headers_for_caches_such_as_this_one_take_precedence(cdn, surrogate, control, lifetime, graced):
    given = {"cdn_cache_control": cdn, "surrogate_control": surrogate, "expires": b"Tue, 14 Nov 2023 22:13:30 GMT"}
    headers = {name: value for name, value in given.items() if value is not None}
    page = freshness(control, 5, **headers)
    assert (page.lifetime, page.grace) == (lifetime, graced)


BOTH = PageRules([("/*", grace(30)), ("/*", fail_safe(30))]).of("h", "/")


@pytest.mark.parametrize(
    ("rule", "control", "graced", "failing"),
    [
        (NO_RULE, b"max-age=60, stale-while-revalidate=30", 30, 6),
        (NO_RULE, b"max-age=60, stale-while-revalidate=x", 5, 6),
        # s-maxage allows only the stale pages that the response or a rule specifies (RFC 9111, 5.2.2.10).
        (NO_RULE, b"s-maxage=60", 0, 0),
        (NO_RULE, b"s-maxage=60, stale-while-revalidate=30", 30, 0),
        (NO_RULE, b"s-maxage=60, stale-if-error=30", 0, 30),
        (fail_safe(30), b"s-maxage=60", 0, 30),
        (BOTH, b"s-maxage=60", 30, 30),
        # Each rule leaves the option of the other one.
        (grace(30), b"max-age=60", 30, 6),
        (fail_safe(30), b"max-age=60", 5, 30),
        (BOTH, b"max-age=60, stale-while-revalidate=7, stale-if-error=0", 7, 0),
        (BOTH, b"max-age=60, must-revalidate", 0, 0),
        (BOTH, b"s-maxage=60, proxy-revalidate, stale-while-revalidate=7, stale-if-error=7", 0, 0),
    ],
)
def test_a_page_may_be_stale_as_its_response_a_rule_or_an_option_specifies(rule, control, graced, failing):
    page = freshness(control, 5, 6, rule=rule)
    assert (page.grace, page.fail_safe) == (graced, failing)


@pytest.mark.parametrize("control", [b"", b"max-age=60", b"s-maxage=7", b"max-age=0, must-revalidate"])
def test_the_ttl_of_a_rule_is_the_lifetime_of_a_page_whatever_its_headers_say(control):
    for status in (200, 203, 204, 300, 301, 308, 404, 410):
        assert freshness(control, status=status, rule=ttl(3600)).lifetime == 3600
    for status in (201, 302, 403, 405, 500, 503):
        assert freshness(control, status=status, rule=ttl(3600)) == freshness(control, status=status)
    assert not freshness(b"no-cache", rule=ttl(60)).is_useful


# Why a response is not stored.


def refused(headers, status=200, authorized=False):
    """Return the reason of the first refusal, and the detail if it is another text; None if there is no refusal."""
    fields = [(name.encode(), value) for name, value in headers]
    found = next(rules.refusals(rules.Response(status, fields), authorized=authorized), None)
    return found and (found.reason if found.reason == found.detail else f"{found.reason}, {found.detail}")


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"cache-control": b"max-age=9, no-store"}, "no-store"),
        ({"cache-control": b"no-store, must-understand"}, None),
        ({"cache-control": b"private"}, "private"),
        ({"set-cookie": b"theme=dark; Path=/"}, "set-cookie, sets cookie theme"),
        ({"vary": b"Accept, *"}, "vary, Vary: *"),
        *(
            ({"vary": name.title().encode()}, f"vary, Vary: {name}")
            for name in ("range", "if-range", "if-none-match", "if-modified-since")
        ),
        ({"clear-site-data": b'"cache"'}, "clear-site-data"),
        ({"clear-site-data": b"cache"}, None),
        ({"access-control-allow-origin": b"https://a"}, "cors, Access-Control-Allow-Origin without Vary: Origin"),
        ({"access-control-allow-origin": b"https://a", "vary": b"Origin, Accept"}, None),
        ({"access-control-allow-origin": b"*"}, None),
        *(({"content-length": length}, "content-length") for length in (b"4, 4", b"+4", b"-1", b"a", b"", b"9" * 19)),
        ({"content-length": b"9" * 18}, None),
    ],
)
def test_a_refusal_has_a_reason_and_a_detail(headers, why):
    assert refused(headers.items()) == why


@pytest.mark.parametrize(
    ("status", "control", "is_refused"),
    [
        *((status, b"", False) for status in (200, 203, 299, 302, 404, 500)),
        *((status, b"", True) for status in (101, 199, 206, 304, 416)),
        *((status, b"must-understand", status == 418) for status in (200, 418)),
    ],
)
def test_a_partial_response_and_one_that_must_be_understood_are_refused(status, control, is_refused):
    assert refused([("cache-control", control)], status) == (f"status, status {status}" if is_refused else None)


def test_a_response_with_two_lengths_is_refused():
    assert refused([("content-length", b"4")] * 2) == "content-length"


@pytest.mark.parametrize(("name", "forbids"), [("cdn-cache-control", b"private"), ("surrogate-control", b"no-store")])
def test_headers_for_caches_such_as_this_one_decide_whether_a_page_is_stored(name, forbids):
    def found(value, control, authorized=False):
        return refused([(name, value), ("cache-control", control)], authorized=authorized)

    assert found(forbids, b"public, max-age=60") == forbids.decode()
    assert found(b"max-age=60", b"private, no-store") is None
    assert found(b"max-age=60", b"public, max-age=60", authorized=True) == "authorization"
    assert found(b"max-age=60, public", b"max-age=60", authorized=True) is None


@pytest.mark.parametrize(
    ("field", "parsed"),
    [
        (b"", None),
        (b"max-age=600, no-store;x=1;y, a=(1 2;z)", {b"max-age": b"600", b"no-store": None, b"a": b"(1 2;z)"}),
        (b"a=1.5,\tb=tok/en, c=:YQ==:, d=@-1", {b"a": b"1.5", b"b": b"tok/en", b"c": b":YQ==:", b"d": b"@-1"}),
        (b"private=?0, no-store=?1, a=1, a=2", {b"no-store": None, b"a": b"2"}),
        *((each, None) for each in [b"max-age=600,", b"max-age= 600", b"Max-Age=600", b"a=1 b=2", b"a, &&", b"a=(1"]),
        *((each, None) for each in [b'a="\xff"', b'a="x', b"a=1234567890123456", b"a=?2", b"max-age=600;", b"a=(1)x"]),
    ],
)
def test_a_dictionary_is_valid_as_a_whole_or_ignored(field, parsed):
    assert dictionary([field]) == parsed


# Validation.


def test_a_304_updates_all_headers_that_do_not_describe_the_body():
    stored = [(b"etag", b'"a"'), (b"content-length", b"4"), (b"x", b"1"), (b"y", b"1")]
    received = [(b"etag", b'"b"'), (b"content-length", b"0"), (b"x", b"2"), (b"connection", b"z"), (b"z", b"1")]
    received += [(name, b"b") for name in (b"content-encoding", b"content-range", b"content-md5")]
    assert rules.updated_headers(stored, received) == [*stored[:2], stored[3], (b"x", b"2")]


def test_a_304_takes_no_name_from_vary():
    # A 304 of Django lacks those of middleware that changes the body, such as GZipMiddleware.
    stored = [(b"vary", b"Accept-Language, Accept-Encoding")]
    updated = rules.updated_headers(stored, [(b"vary", b"Accept-Language, Cookie")])
    assert rules.vary_fields(updated) == {b"accept-language", b"accept-encoding", b"cookie"}
    assert len(updated) == 1
    assert rules.updated_headers(stored, []) == stored


def test_headers_for_caches_such_as_this_one_outlive_a_304_that_lacks_them():
    stored = [(b"cdn-cache-control", b"max-age=600")]
    assert rules.targeted_headers([(b"cache-control", b"no-store"), *stored]) == stored
    assert rules.storable_headers(stored, ()) == []
    assert rules.updated_targeted(stored, [(b"cache-control", b"max-age=1")]) == stored
    assert rules.updated_targeted(stored, [(b"cdn-cache-control", b"a")]) == [(b"cdn-cache-control", b"a")]
