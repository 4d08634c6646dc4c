"""Headers of strangers: different values never share a page unless they mean the same, and no value is slow to parse.

Every answer is compared with that of the application itself.
"""

from time import thread_time

import pytest
from django.utils.translation.trans_real import parse_accept_lang_header

from tests.pages.site import USUAL, Response, answering
from wheelcache.pages import rules


def raw(name):
    """Show the header as it was sent, as a page does that has a text for each value."""
    return lambda request: request.headers.get(name)


def language(request):
    """Choose a language as Django does."""
    wishes = parse_accept_lang_header(request.headers.get("accept-language", ""))
    return next((name[:2] for name, _ in wishes if name[:2] in ("de", "en")), "en")


COUNTRY = ("x-country", raw("x-country"))
LANGUAGE = ("accept-language", language)
COOKIE = ("cookie", raw("cookie"))
LONG = ", ".join(["xx"] * 130)
PAIRS = [
    *((COUNTRY, "DE", other) for other in ("DE,", ",DE", "DE ,", "de", "DE,,", '"DE"', "D\xa0E", "DE\xa0")),
    *((COUNTRY, "DE, AT", other) for other in ("DE,AT", "DE ,AT", "DE,  AT", "DE, AT,")),
    *((LANGUAGE, "de", other) for other in (",de", "d e", "de,?", "de;q=x", "de;q", "de\xa0", "de,\xe9", "de;q=0")),
    # Uvicorn and uWSGI pass on the spaces at the end of a line.
    *((LANGUAGE, "de", other) for other in ("de ", "de\t", " de")),
    (LANGUAGE, "de, en;q=0.5", "de, en;q=0.5 "),
    *((LANGUAGE, "de", other) for other in ("?,de", "x y,de", f"{LONG}, de", f"de, {LONG}", "de-\xe9")),
    (LANGUAGE, "en, de;q=0.5", "en, de;q=0.5, ;"),
    *((COOKIE, "a=1; b=2", other) for other in ("a=1;b=2", "a=1; b=2;", "b=2; a=1", "a=1, b=2")),
]


# Each order of a pair on the first driver, and each pair on the other.
@pytest.mark.pairs(full="make_site", of="pair")
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("pair", PAIRS, ids=[f"{page[0]} {two[:20]!r}" for page, _, two in PAIRS])
def test_a_value_never_gets_the_page_of_a_different_one(make_site, pair, is_first):
    (name, shown), one, other = pair
    site = make_site()
    site.respond = lambda request: Response(str(shown(request)).encode("latin-1"), {**USUAL, "vary": name})
    expected = {}
    for value in (one, other) if is_first else (other, one):
        # A page that nobody has asked for shows the application's own answer.
        expected[value] = site.get_unchecked(f"/{len(expected)}", {name: value}).body
        assert site.get_unchecked("/", {name: value}).body == expected[value]
    for value in (one, other):
        assert site.get_unchecked("/", {name: value}).body == expected[value]


def test_a_header_with_a_control_character_selects_no_stored_page(make_site):
    """Frameworks differ in where such a header ends, also in the cookies after the character."""
    site = make_site(cookies=["theme"])
    site.respond = answering({**USUAL, "vary": "Cookie"})
    assert site.found(*({"cookie": f"theme=dark; other={value}"} for value in "12\x01")) == ["fwd", "hit", "fwd"]


@pytest.mark.parametrize("length", [4096, 4097])
def test_an_oversized_request_header_is_not_parsed(length):
    headers = [(b"etag", b'"a"'), (b"last-modified", b"Tue, 14 Nov 2023 22:13:20 GMT")]
    is_parsed = length == 4096
    assert bool(rules.request_directives(b"only-if-cached".ljust(length))) == is_parsed
    assert rules.is_not_modified(headers, b'"a"'.ljust(length, b","), headers[1][1], 2_000_000_000) == is_parsed
    assert rules.byte_range(headers, 10, b"bytes=0-1".ljust(length), None) == ((0, 1) if is_parsed else None)


# Time. A quadratic parser needs minutes for the fields of 64 kB, and the linear ones half a second for all of them.

FILLERS = [
    *('\\"', '"', ",", '="', " ", ", ", "0", 'a="\\",', ";a", "a;b=", "( ", "a=(a b);c,", "1.", ":", "?0", "\xff"),
    *("Tue, ", "Tue, 14 Nov 2023 ", "\xc2\xa0"),
]
SIZE = 2**16


NAMES = [
    *("cache-control", "accept-language", "accept-encoding", "accept", "cookie", "x-country", "if-none-match", "range"),
    *("if-modified-since", "if-range", "authorization", "content-type", "x-forwarded-host", "forwarded", "user-agent"),
    *("pragma", "connection", "te", "referer", "origin"),
]
LONGEST = 0.05
"""Seconds of processor time, which another visitor of an event loop waits."""


@pytest.mark.alone
@pytest.mark.pairs(full="make_site", of="make_site")
@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_header_is_slow(make_site, name):
    site = make_site(cookies=["a"], session_cookies=["s"])
    site.respond = answering({**USUAL, "vary": name})

    def seconds_of(value):
        began = thread_time()
        site.get_unchecked("/", {name: value})
        return thread_time() - began

    for size in (2**12, SIZE):
        for filler in FILLERS:
            value = ('"' + filler * size)[:size]
            site.get_unchecked()
            # One of ten, since other work on the machine and the garbage collector add to it.
            assert any(seconds_of(value) < LONGEST for _ in range(10)), (size, filler)
