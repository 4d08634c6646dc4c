"""Headers of strangers: different values never share a page unless they mean the same, and no value is slow to parse.

Every answer is compared with that of the application itself.
"""

from time import thread_time

import pytest
from django.utils.translation.trans_real import parse_accept_lang_header

from tests.pages.site import Response

LASTING = {"cache-control": "max-age=60"}


def raw(request):
    """Show the header as it was sent."""
    return request.headers.get("x-country")


def language(request):
    """Choose a language as Django does."""
    wishes = parse_accept_lang_header(request.headers.get("accept-language", ""))
    return next((name[:2] for name, _ in wishes if name[:2] in ("de", "en")), "en")


def text(request):
    """Show the header of a page that has a text for each value."""
    return request.headers.get("accept-language")


def theme(request):
    return request.headers.get("cookie")


COUNTRY = ("x-country", raw, {})
LANGUAGE = ("accept-language", language, {})
COOKIE = ("cookie", theme, {})
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
    (name, shown, options), one, other = pair
    site = make_site(**options)
    site.respond = lambda request: Response(
        str(shown(request)).encode("latin-1"), {"cache-control": "max-age=60", "vary": name}
    )
    expected = {}
    for value in (one, other) if is_first else (other, one):
        # A page that nobody has asked for shows the application's own answer.
        expected[value] = site.get_unchecked(f"/{len(expected)}", {name: value}).body
        assert site.get_unchecked("/", {name: value}).body == expected[value]
    for value in (one, other):
        assert site.get_unchecked("/", {name: value}).body == expected[value]


@pytest.mark.parametrize("name", ["x-country", "accept-language", "cookie", "x-forwarded-host"])
def test_two_lines_of_a_header_are_not_the_page_of_one_line(make_site, name):
    """Some applications read only the first line, and others the last one."""
    site = make_site()
    separator = "; " if name == "cookie" else ", "

    def respond(request):
        return Response(request.headers[name].replace(" ", "").encode(), {**LASTING, "vary": name})

    site.respond = respond
    for number, headers in enumerate([[(name, "evil"), (name, "good")], [(name, f"evil{separator}good")]] * 2):
        expected = site.get_unchecked(f"/{number}", headers).body
        assert site.get_unchecked("/", headers).body == expected


def test_a_header_with_a_control_character_selects_no_stored_page(make_site):
    """Frameworks differ in where such a header ends, also in the cookies after the character."""
    site = make_site(cookies=["theme"])
    site.respond = lambda request: Response(b"page", {**LASTING, "vary": "Cookie"})
    for _ in range(2):
        site.get(headers={"cookie": "theme=dark; other=1"})
    assert site.runs == 1
    site.get_unchecked("/", {"cookie": "theme=dark; other=\x01"})
    assert site.runs == 2


# Time.

NAMES = [
    *("cache-control", "accept-language", "accept-encoding", "accept", "cookie", "x-country", "if-none-match", "range"),
    *("if-modified-since", "if-range", "authorization", "content-type", "x-forwarded-host", "forwarded", "user-agent"),
    *("pragma", "connection", "te", "referer", "origin"),
]
FILLERS = [
    '"\\',
    '"',
    '\\"',
    ",",
    ", ",
    ";",
    "; ",
    " ",
    "a=",
    '="',
    "a,",
    "de;q=0,",
    'W/"x",',
    "\xc2\xa0",
    "=",
    "bytes=0-",
]
SIZES = [2**12, 2**16]
LONGEST = 0.05
"""Seconds of processor time, which another visitor of an event loop waits. A quadratic parser needs seconds."""


@pytest.mark.alone
@pytest.mark.pairs(full="make_site", of="make_site")
@pytest.mark.parametrize("name", NAMES)
def test_no_value_of_a_header_is_slow(make_site, name):
    site = make_site(cookies=["a"], session_cookies=["s"])
    site.respond = lambda request: Response(b"page", {**LASTING, "vary": name})
    for size in SIZES:
        for filler in FILLERS:
            value = ('"' + filler * size)[:size]
            site.get_unchecked()
            # One of ten, since other work on the machine and the garbage collector add to it.
            assert any(seconds_of(site, {name: value}) < LONGEST for _ in range(10)), (size, filler)


def seconds_of(site, headers):
    began = thread_time()
    site.get_unchecked("/", headers)
    return thread_time() - began
