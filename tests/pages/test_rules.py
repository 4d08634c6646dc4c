"""The rules and the parsing of headers, without any I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.pages.site import EPOCH
from wheelcache.pages import rules
from wheelcache.pages.headers import FOREVER, delta_seconds, dictionary, directives, http_date, members
from wheelcache.pages.rules import Use
from wheelcache.pages.variants import Normalization, accepted_encodings, cookies, is_safe


@pytest.mark.parametrize(
    "date",
    [
        b"Tue, 14 Nov 2023 22:13:20 GMT",
        b"tue, 14 nov 2023 22:13:20 gmt",
        b"Tuesday, 14-Nov-23 22:13:20 GMT",
        b"Tue Nov 14 22:13:20 2023",
    ],
)
def test_a_date_may_have_three_forms(date):
    assert http_date(date, EPOCH) == EPOCH


@pytest.mark.parametrize(
    "date",
    [
        None,
        b"",
        b"0",
        b"Tue, 14 Nov 2023 22:13:20",
        b"Tue, 14 Nov 2023 22:13:20 CET",
        b"Tue, 14 Nov 2023 24:13:20 GMT",
        b"Tue, 32 Nov 2023 22:13:20 GMT",
        b"Tue, 14 Non 2023 22:13:20 GMT",
        b"Tue, 14 Nov 23 22:13:20 GMT",
        b"Tue, 14 Nov 0000 22:13:20 GMT",
        b" Tue, 14 Nov 2023 22:13:20 GMT",
        "Tue, ٢4 Nov 2023 22:13:20 GMT".encode(),
    ],
)
def test_anything_else_is_no_date(date):
    assert http_date(date, EPOCH) is None


def test_a_year_of_two_digits_is_at_most_fifty_years_later():
    assert http_date(b"Monday, 14-Nov-73 22:13:19 GMT", EPOCH) > EPOCH
    assert http_date(b"Wednesday, 15-Nov-73 22:13:20 GMT", EPOCH) < EPOCH


def test_directives_may_have_quoted_arguments_and_the_first_of_duplicates_counts():
    parsed = directives([b'max-age=5, A="b, max-age=7",no-cache', b'S-Maxage = "3", max-age=9, =x, ext="a\\"b"'])
    assert parsed[b"max-age"] == b"5"
    assert parsed[b"a"] == b"b, max-age=7"
    assert (parsed[b"no-cache"], parsed[b"s-maxage"]) == (None, b"3")


@pytest.mark.parametrize(
    ("argument", "seconds"),
    [
        (b"0", 0),
        (b"007", 7),
        (b"99999999999999999999", FOREVER),
        (b"-1", None),
        (b"1.5", None),
        (b"1a", None),
        (b"", None),
        (None, None),
        ("²".encode("latin-1"), None),
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


@given(st.lists(st.sampled_from([b"gzip", b"br", b"identity", b"zstd", b"dcb"])))
def test_normalizing_a_normalized_value_changes_nothing(accepted):

    def normalized(value):
        return Normalization().values([b"accept-encoding"], {b"accept-encoding": value})

    once = normalized(b", ".join(accepted))
    assert once == [b",".join(sorted({*accepted} - {b"identity", b"dcb"}))]
    assert normalized(*once) == once


@pytest.mark.parametrize("value", [b"a\x00", b"\r\n", b"\x7f", b"x" * 4097])
def test_a_value_with_control_characters_or_of_great_length_is_not_safe(value):
    assert not is_safe(value)


@pytest.mark.parametrize("value", [b"", b"a\tb", "ü".encode("latin-1"), b"x" * 4096])
def test_usual_values_are_safe(value):
    assert is_safe(value)


def freshness(control, grace=0, fail_safe=0, **headers):
    fields = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    fields += [(b"cache-control", control)] * (control is not None)
    response = rules.Response(200, fields)
    return rules.freshness(response, wall=EPOCH, seconds=0, grace=grace, fail_safe=fail_safe)


def test_a_page_is_fresh_then_stale_then_must_be_validated():
    page = freshness(b"max-age=10, stale-while-revalidate=5")
    assert [page.use(age) for age in (0, 9.9, 10, 14.9, 15)] == [
        *(Use.FRESH, Use.FRESH, Use.WHILE_REVALIDATING, Use.WHILE_REVALIDATING, Use.VALIDATED)
    ]


def test_a_304_updates_all_headers_that_do_not_describe_the_body():
    stored = [(b"etag", b'"a"'), (b"content-length", b"4"), (b"x", b"1"), (b"y", b"1")]
    received = [(b"etag", b'"b"'), (b"content-length", b"0"), (b"x", b"2"), (b"connection", b"z"), (b"z", b"1")]
    assert rules.updated_headers(stored, received) == [
        (b"etag", b'"a"'),
        (b"content-length", b"4"),
        (b"y", b"1"),
        (b"x", b"2"),
    ]


def test_a_304_takes_no_name_from_vary():
    # A 304 of Django lacks those of middleware that changes the body, such as GZipMiddleware.
    stored = [(b"vary", b"Accept-Language, Accept-Encoding")]
    updated = rules.updated_headers(stored, [(b"vary", b"Accept-Language, Cookie")])
    assert rules.vary_fields(updated) == {b"accept-language", b"accept-encoding", b"cookie"}
    assert len(updated) == 1
    assert rules.updated_headers(stored, []) == stored


# Why a response is not stored.


@pytest.mark.parametrize(
    ("headers", "reason", "detail"),
    [
        ({"cache-control": b"max-age=9, no-store"}, "no-store", "no-store"),
        ({"cache-control": b"private"}, "private", "private"),
        ({"set-cookie": b"theme=dark; Path=/"}, "set-cookie", "sets cookie theme"),
        ({"vary": b"Accept, *"}, "vary", "Vary: *"),
        ({"vary": b"Range"}, "vary", "Vary: range"),
        ({"clear-site-data": b'"cache"'}, "clear-site-data", "clear-site-data"),
        (
            {"access-control-allow-origin": b"https://a.example"},
            "cors",
            "Access-Control-Allow-Origin without Vary: Origin",
        ),
        ({"content-length": b"4, 4"}, "content-length", "content-length"),
        ({"content-length": b"+4"}, "content-length", "content-length"),
        ({"content-length": b"9" * 5000}, "content-length", "content-length"),
    ],
)
def test_a_refusal_has_a_reason_and_a_detail(headers, reason, detail):
    fields = [(name.encode(), value) for name, value in headers.items()]
    refused = next(rules.refusals(rules.Response(200, fields), authorized=False), None)
    assert (refused.reason, refused.detail) == (reason, detail)


def test_a_response_with_two_lengths_is_not_stored():
    fields = [(b"cache-control", b"max-age=60"), (b"content-length", b"4")]
    assert next(rules.refusals(rules.Response(200, fields), authorized=False), None) is None
    fields += fields[1:]
    assert next(rules.refusals(rules.Response(200, fields), authorized=False), None).reason == "content-length"


# Headers for this cache only.


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


@pytest.mark.parametrize(("cdn", "surrogate", "control", "lifetime", "grace"), LIFETIMES)
def test_headers_for_caches_such_as_this_one_take_precedence(cdn, surrogate, control, lifetime, grace):
    given = {"cdn_cache_control": cdn, "surrogate_control": surrogate, "expires": b"Tue, 14 Nov 2023 22:13:30 GMT"}
    headers = {name: value for name, value in given.items() if value is not None}
    page = freshness(control, 5, **headers)
    assert (page.lifetime, page.grace) == (lifetime, grace)


@pytest.mark.parametrize(("name", "forbids"), [(b"cdn-cache-control", b"private"), (b"surrogate-control", b"no-store")])
def test_headers_for_caches_such_as_this_one_decide_whether_a_page_is_stored(name, forbids):
    def refused(value, control, authorized=False):
        fields = [(name, value), (b"cache-control", control)]
        return next(rules.refusals(rules.Response(200, fields), authorized=authorized), None)

    assert refused(forbids, b"public, max-age=60").reason == forbids.decode()
    assert refused(b"max-age=60", b"private, no-store") is None
    assert refused(b"max-age=60", b"public, max-age=60", authorized=True).reason == "authorization"
    assert refused(b"max-age=60, public", b"max-age=60", authorized=True) is None


def test_headers_for_caches_such_as_this_one_outlive_a_304_that_lacks_them():
    stored = [(b"cdn-cache-control", b"max-age=600")]
    assert rules.targeted_headers([(b"cache-control", b"no-store"), *stored]) == stored
    assert rules.storable_headers(stored, ()) == []
    assert rules.updated_targeted(stored, [(b"cache-control", b"max-age=1")]) == stored
    assert rules.updated_targeted(stored, [(b"cdn-cache-control", b"a")]) == [(b"cdn-cache-control", b"a")]


@pytest.mark.parametrize(
    ("control", "grace", "fail_safe"),
    [
        (b"s-maxage=60", 0, 0),
        (b"s-maxage=60, stale-while-revalidate=30", 30, 0),
        (b"s-maxage=60, stale-if-error=30", 0, 30),
        (b"max-age=60, stale-while-revalidate=30", 30, 6),
        (b"s-maxage=60, stale-while-revalidate=30, must-revalidate", 0, 0),
        (b"s-maxage=60, stale-if-error=30, proxy-revalidate", 0, 0),
    ],
)
def test_s_maxage_allows_only_the_stale_pages_that_the_response_specifies(control, grace, fail_safe):
    page = freshness(control, 5, 6)
    assert (page.grace, page.fail_safe) == (grace, fail_safe)
