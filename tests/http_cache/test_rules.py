"""The rules and the parsing of headers, without any I/O."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.http_cache.site import EPOCH
from wheelcache.http_cache import rules
from wheelcache.http_cache.headers import FOREVER, delta_seconds, directives, http_date, members
from wheelcache.http_cache.rules import Policy, Use
from wheelcache.http_cache.variants import Normalization, accepted_encodings, cookies, is_safe


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
    members(lines)
    for line in lines:
        http_date(line, EPOCH)
        delta_seconds(line)
        accepted_encodings(line)
        cookies(line)
        rules.is_not_modified([(b"etag", line), (b"last-modified", line)], line, line, EPOCH)
        for field in (b"accept-language", b"accept-encoding", b"cookie a", b"x"):
            Normalization(languages=frozenset([b"en"])).value(field, line)
        try:
            span = rules.byte_range([], 10, line, None)
        except rules.Unsatisfiable:
            continue
        assert span is None or 0 <= span[0] <= span[1] < 10


@given(st.lists(st.sampled_from([b"gzip", b"br", b"identity", b"*", b"gzip;q=0", b"br;q=0.5", b"*;q=0", b"zstd"])))
def test_normalizing_a_normalized_value_changes_nothing(accepted):
    normalization = Normalization()
    once = normalization.value(b"accept-encoding", b", ".join(accepted))
    assert normalization.value(b"accept-encoding", once) == once


@pytest.mark.parametrize("value", [b"a\x00", b"\r\n", b"\x7f", b"x" * 4097])
def test_a_value_with_control_characters_or_of_great_length_is_not_safe(value):
    assert not is_safe(value)


@pytest.mark.parametrize("value", [b"", b"a\tb", "ü".encode("latin-1"), b"x" * 4096])
def test_usual_values_are_safe(value):
    assert is_safe(value)


def freshness(control, policy=None, **headers):
    fields = [(name.replace("_", "-").encode(), value) for name, value in headers.items()]
    return rules.freshness(200, fields, directives([control]), policy or Policy(), wall=EPOCH, seconds=0)


def test_a_page_is_fresh_then_stale_then_must_be_validated():
    page = freshness(b"max-age=10, stale-while-revalidate=5")
    assert [page.use(age) for age in (0, 9.9, 10, 14.9, 15)] == [
        *(Use.FRESH, Use.FRESH, Use.WHILE_REVALIDATING, Use.WHILE_REVALIDATING, Use.VALIDATED)
    ]


@pytest.mark.parametrize(
    ("request_control", "age", "use"),
    [
        (b"no-cache", 0, Use.VALIDATED),
        (b"max-age=5", 5, Use.FRESH),
        (b"max-age=5", 6, Use.VALIDATED),
        (b"min-fresh=5", 5, Use.FRESH),
        (b"min-fresh=5", 6, Use.VALIDATED),
        (b"max-stale=5", 14, Use.FRESH),
        (b"max-stale=5", 15, Use.VALIDATED),
        (b"max-stale", 1000, Use.FRESH),
        (b"max-stale=x", 11, Use.VALIDATED),
    ],
)
def test_a_request_may_demand_fresher_or_accept_staler_pages(request_control, age, use):
    assert freshness(b"max-age=10").use(age, directives([request_control])) is use


def test_a_request_gets_no_stale_page_that_must_be_validated():
    assert freshness(b"max-age=10, must-revalidate").use(11, directives([b"max-stale"])) is Use.VALIDATED


def test_a_page_without_lifetime_is_fresh_for_a_tenth_of_its_age_if_the_policy_says_so():
    modified = b"Tue, 14 Nov 2023 22:11:40 GMT"
    assert freshness(b"", last_modified=modified).lifetime is None
    assert freshness(b"", Policy(heuristic_freshness=True), last_modified=modified).lifetime == 10


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
