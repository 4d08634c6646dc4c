"""A response that the cache cannot read is sent as the application has made it, and is not stored."""

from copy import copy

import flask
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse

from tests.pages.on_both.sites import ONE, OTHER, DjangoOnAsgi, of_each, response_to


def of_type(content_type):
    return lambda request: response_to(request, b"page", Content_Type=content_type)


def with_attribute(name, value):
    def view(request):
        setattr(flask.g if hasattr(request, "endpoint") else request, name, value)
        return response_to(request, "page")

    return view


STORED = ["fwd=miss; stored", "hit"]
ENCODING = "an encoding in which CSRF tokens are not found"
UNREADABLE = "a response that cannot be read"
TAGS = "more than 64 tags, or an invalid one"
IN_ASCII = [f"text/html; charset={each}" for each in ('"utf-8"', "", "utf-8; charset=bogus")] + ["text", ";;=;", ""]
CHARSETS = [
    *("bogus", "hex", "idna", "punycode", "rot13", "base64", "undefined", "unicode_escape", "utf-7", "utf-16", "cp037"),
    *("mbcs", "8bit", "../utf_8", '"', "a\x00b", "\xe9", "x" * 5000),
]
UNREAD = ["image/png; charset=binary", "multipart/mixed; boundary=x; charset=hex", "a/b;CHARSET=Bogus, a/b;charset=hex"]
OF_ANY_TYPE = {
    each[:60]: (of_type(each), None if each in IN_ASCII else ENCODING, None)
    for each in [*IN_ASCII, *(f"text/html; charset={name}" for name in CHARSETS), *UNREAD]
}
ODD = {
    "tags": (with_attribute("cache_tags", 7), TAGS, TAGS),
    # Django encodes the header.
    "type": (of_type("text/html; charset=\u017c"), None, UNREADABLE),
}
ODD_IN_DJANGO = {
    "charset that is a number": (lambda request: HttpResponse(b"page", content_type="text/plain", charset=7), ENCODING),
    "reason that is a number": (lambda request: HttpResponse("page", reason=7), None),
    "match": (with_attribute("resolver_match", object()), UNREADABLE),
}
ODD_IN_FLASK = {"header": (lambda request: flask.Response("page", headers={"X-Name": "\u017c"}), None, UNREADABLE)}
"""The views, and why their pages are not stored, in Django and in Flask."""


def comparable(answer):
    headers = {name: value for name, value in answer.headers.items() if name not in ("age", "cache-status")}
    return answer.status, headers, answer.body


@of_each({**OF_ANY_TYPE, **ODD}, ODD_IN_DJANGO, ODD_IN_FLASK)
def test_an_odd_response_is_as_without_the_cache(make_site, site_settings, caplog, item):
    view, refused, *of_flask = item
    site = make_site()
    site.add("/odd", view)
    plain = copy(site)
    if hasattr(site, "flask"):
        plain.app = site.flask.wsgi_app._app
        (refused,) = of_flask
    else:
        site_settings.MIDDLEWARE = site_settings.MIDDLEWARE[1:]
        plain.app = ASGIHandler() if isinstance(site, DjangoOnAsgi) else WSGIHandler()
    expected = STORED if refused is None else [f'fwd=miss; detail="{refused}"'] * 2
    for secret, detail in zip((ONE, OTHER), expected, strict=True):
        answer, without = (each.get("/odd", {"Cookie": f"csrftoken={secret}"}) for each in (site, plain))
        assert answer.detail.partition("; ttl")[0] == detail
        assert comparable(answer) == comparable(without)
        assert answer.status == 200
    # Under Flask, it is the driver that cannot read a header.
    is_logged = refused == TAGS or (refused == UNREADABLE and not hasattr(site, "flask"))
    assert ("A page is not stored: " in caplog.text) == is_logged
