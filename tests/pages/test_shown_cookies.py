"""A page that shows a cookie on which it does not depend is not stored."""

import gzip
import zlib

import pytest

from tests.pages.site import USUAL, Response, answering

NAME = "ada-lovelace"
VISITOR = {"Cookie": f"a=1; name={NAME}"}
REFUSED = 'fwd=miss; detail="shows the value of the cookie name, on which it does not depend"'

SHOWN = {
    "eight characters": ("lovelace", Response(b"lovelace")),
    "text": (NAME, Response(f"Hello, {NAME}.".encode())),
    "UTF-16": (NAME, Response(f"Hello, {NAME}.".encode("utf-16"))),
    "gzip": (NAME, Response(gzip.compress(NAME.encode()), USUAL | {"content-encoding": "gzip"})),
    "deflate": (NAME, Response(zlib.compress(NAME.encode()), USUAL | {"content-encoding": "deflate"})),
    "a header": (NAME, Response(headers=USUAL | {"link": f"</{NAME}>; rel=next"})),
    "a decoded value": ("ada%20lovelace", Response(b"ada lovelace")),
    "a quoted value": (r'"ada\054 \"l\""', Response(b'ada, "l"')),
}


@pytest.mark.parametrize("how", SHOWN)
def test_a_page_that_shows_a_cookie_on_which_it_does_not_depend_is_not_stored(site, how):
    value, response = SHOWN[how]
    site.respond = answering(response.headers, response.body)
    visitor = {"Cookie": f"a=1; name={value}"}
    # The first response has begun before its body is known. Afterwards, a mark shows the reason until the next look.
    details = [site.get("/", visitor).detail for _ in range(3)]
    assert details[-1] == REFUSED
    assert site.stats().not_stored == {"cookie": 3}
    site.respond = answering()
    assert site.get("/").detail == "fwd=miss; stored"
    assert site.get("/", visitor).detail.startswith("hit")


STORED = {
    "a value of seven characters": ({"Cookie": "name=lovelac"}, Response(b"lovelac")),
    "a page that varies on it": (VISITOR, Response(NAME.encode(), USUAL | {"vary": "Cookie"})),
    "a page that depends on another one with the value": (
        {"Cookie": f"seen={NAME}; name={NAME}"},
        Response(NAME.encode(), USUAL | {"x-depends-on": "seen"}),
    ),
    "a value in the URL": ({"Cookie": "name=/people/ada?a=b"}, Response(b"/people/ada?a=b")),
    "the address of the site": ({"Cookie": "landing=https%3A%2F%2Fexample.com%2F"}, Response(b"https://example.com/")),
    "an empty cookie": ({"Cookie": ""}, Response(NAME.encode())),
    "a body that only looks compressed": (VISITOR, Response(b"\x1f\x8b no gzip")),
}


@pytest.mark.parametrize("how", STORED)
def test_a_page_that_may_show_the_text_is_stored(site, how):
    headers, response = STORED[how]

    depends_on = [response["x-depends-on"]] if "x-depends-on" in response.headers else []
    site.respond = answering(response.headers, response.body, notes=lambda notes: notes.vary_on(cookies=depends_on))
    site.get("/people/ada?a=b", headers)
    assert site.stats().stored == 1


def test_a_request_with_very_many_cookies_stores_no_page_and_takes_little_time(site):
    """Looking for each of them could take long, and leaving some out would let a stranger hide one."""
    site.respond = answering(body=b"page" * 1000)
    # Each has two forms.
    header = "; ".join(f"c{number}=value%20{number:04}" for number in range(65))
    site.get("/", {"Cookie": header})
    assert site.stats().not_stored == {"cookie": 1}
    site.get("/", {"Cookie": header.partition("; ")[2]})
    assert site.stats().stored == 1
