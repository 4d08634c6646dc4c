"""CSRF tokens of Django that no page may show, without a site: see ``on_django.test_csrf_tokens``."""

from base64 import b64encode

import pytest
from django.conf import settings
from django.http import HttpResponse

from wheelcache.pages.blanks import Blanked, for_one_visitor
from wheelcache.pages.csrf_tokens import MOST_PLACES, MOST_TOKENS, PIECE, Issued, IssuedTokens

SECRET = "abcdefgh" * 4
TOKEN = ("jklmnoJKLMNOzZ0" * 5)[:64].encode()
"""Each eight characters have a letter in hexadecimal."""


def blanked(body, *, tokens=(TOKEN,), sent=SECRET, status=200, meta=(), asked=None, most=10**6, **headers):
    """Return what becomes of a page for which Django has issued tokens, and whose body or headers show something."""
    issued = IssuedTokens()
    for each in tokens:
        issued.add(Issued(SECRET, each.decode(), False))
    issued.asked = len(tokens) if asked is None else asked
    response = HttpResponse(body, headers=headers, status=status)
    if sent is not None:
        # As Django sends it with its default settings.
        response.set_cookie("csrftoken", sent, max_age=settings.CSRF_COOKIE_AGE, samesite="Lax")
    return issued.blanked(response, {"CSRF_COOKIE": SECRET, **dict(meta)}, most)


def numbered(number):
    return [b"%064d" % each for each in range(number)]


FORMS = {
    "backwards": TOKEN[::-1],
    "in hexadecimal": TOKEN.hex().encode(),
    "in capital hexadecimal": TOKEN.hex().upper().encode(),
    **{f"in base64 after {shift} bytes": b64encode(b"." * shift + TOKEN) for shift in range(3)},
    "a piece of the mask": TOKEN[:PIECE],
    "the last piece": TOKEN[-PIECE:],
}


@pytest.mark.parametrize("how", FORMS)
def test_a_page_with_another_form_of_its_token_is_not_stored(how):
    found = blanked(TOKEN + b" " + FORMS[how])
    assert (found.reason, found.detail) == ("csrf", "a piece or another form of a CSRF token in the body")
    assert blanked(TOKEN, Link=f"</{FORMS[how].decode()}>").detail == "the CSRF secret, or a token, in a header"


@pytest.mark.parametrize(
    ("body", "how", "is_stored"),
    [
        (TOKEN + TOKEN[: PIECE - 1], {}, True),
        (TOKEN * MOST_PLACES, {}, True),
        (TOKEN * (MOST_PLACES + 1), {}, False),
        (b"".join(numbered(MOST_TOKENS)), {"tokens": numbered(MOST_TOKENS)}, True),
        (b"".join(numbered(MOST_TOKENS + 1)), {"tokens": numbered(MOST_TOKENS + 1)}, False),
        (TOKEN, {"most": 64}, True),
        (TOKEN, {"most": 63}, False),
        (TOKEN, {"status": 404}, False),
        (TOKEN, {"meta": {"CSRF_COOKIE_NEEDS_UPDATE": True}}, False),
    ],
)
def test_a_page_with_tokens_has_bounds(body, how, is_stored):
    found = blanked(body, **how)
    assert isinstance(found, Blanked) == is_stored
    assert is_stored or found.leaves_mark


def test_a_stored_page_has_neither_the_cookie_of_the_token_nor_headers_that_describe_the_body():
    others = [(b"set-cookie", b"csrftokens=1"), (b"x", b"csrftoken=1")]
    headers = [(b"set-cookie", b" csrftoken=1"), (b"etag", b'"a"'), (b"accept-ranges", b"bytes"), *others]
    assert [pair for pair in headers if not blanked(TOKEN).is_of_the_visitor(pair)] == others


@pytest.mark.parametrize(
    ("body", "how"),
    [
        (TOKEN, {"sent": None}),
        (TOKEN, {"sent": "b" * 32}),
        (TOKEN, {"meta": {"CSRF_COOKIE": "b" * 32}}),
        (TOKEN, {"asked": 2}),
        (TOKEN + SECRET.encode(), {}),
        (TOKEN, {"Location": f"/{SECRET}"}),
    ],
)
def test_what_one_visitor_causes_keeps_the_page_of_no_other_out(body, how):
    assert blanked(body, **how).leaves_mark is False


@pytest.mark.parametrize(
    ("control", "sent"),
    [
        (b"max-age=60", b"private, max-age=60"),
        (b"public, s-maxage=60, max-age=5, must-revalidate", b"private, max-age=5, must-revalidate"),
        (b"s-maxage=60", b"private, no-cache"),
        # With CDN-Cache-Control, this cache stores it nevertheless.
        (b"No-Cache, max-age=60", b"private, no-cache, max-age=60"),
    ],
)
def test_a_browser_keeps_a_page_with_tokens_as_long_as_its_own_max_age_says(control, sent):
    others = [(b"expires", b"0"), (b"etag", b'"a"'), (b"cdn-cache-control", b"max-age=60"), (b"x", b"1")]
    assert for_one_visitor([(b"cache-control", control), *others]) == [(b"x", b"1"), (b"cache-control", sent)]
