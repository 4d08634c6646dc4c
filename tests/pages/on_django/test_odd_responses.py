"""A response that the cache cannot read is sent as the application has made it, and is not stored."""

import gzip
from copy import copy
from datetime import timedelta, tzinfo

import pytest
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.urls import path
from django.utils import timezone
from django.utils.functional import lazystr

from tests.pages.odd_responses import CONTENT_TYPES, comparable
from tests.pages.on_django.sites import MIDDLEWARE, ONE, OTHER, DjangoOnWsgi
from tests.pages.on_django.token_site import FORM, LONG, rendered


class TimeLimitExceeded(Exception):
    """As a signal handler raises it anywhere."""


class WithoutCharset(HttpResponse):
    @property
    def charset(self):
        raise RuntimeError("Is it text?")


class Late(HttpResponse):
    @property
    def charset(self):
        raise TimeLimitExceeded


class Nameless(tzinfo):
    def utcoffset(self, moment):
        return timedelta(hours=1)

    def dst(self, moment):
        return None


def of_type(request, number, form):
    page = rendered(request, FORM if form == "form" else "page")
    return HttpResponse(page.content, content_type=CONTENT_TYPES[number])


def in_nameless_zone(request):
    """Activate the time zone once, so that the next page of the thread has that of an earlier request."""
    if not isinstance(timezone.get_current_timezone(), Nameless):
        timezone.activate(Nameless())
    return HttpResponse("page")


def with_attribute(name, value, text="page"):
    def view(request):
        response = rendered(request, text)
        setattr(request, name, value)
        return response

    return view


ODD = {
    "charset-that-fails": lambda request: WithoutCharset(b"page", content_type="text/plain"),
    "charset-that-is-a-number": lambda request: HttpResponse(b"page", content_type="text/plain", charset=7),
    "reason-that-is-a-number": lambda request: HttpResponse("page", reason=7),
    "lazy-reason": lambda request: HttpResponse(rendered(request, FORM).content, reason=lazystr("Fine")),
    "tags-of-the-request": with_attribute("cache_tags", 7),
    "match": with_attribute("resolver_match", object()),
}


def with_lifetime(view):
    def with_header(request, **parts):
        response = view(request, **parts)
        response["Cache-Control"] = "max-age=60"
        return response

    return with_header


urlpatterns = [
    path("type/<int:number>/<form>", with_lifetime(of_type)),
    *(path(name, with_lifetime(view)) for name, view in ODD.items()),
    path("long", with_lifetime(with_attribute("resolver_match", object(), FORM + LONG))),
    path("late", lambda request: Late(b"page", content_type="text/plain")),
]


@pytest.fixture(autouse=True)
def urls(site_settings):
    site_settings.ROOT_URLCONF = __name__


@pytest.fixture
def both(site, site_settings):
    """A site, and the same one without the cache."""
    site_settings.MIDDLEWARE = [each for each in site_settings.MIDDLEWARE if each != MIDDLEWARE[0]]
    plain = copy(site)
    plain.app = WSGIHandler() if isinstance(site, DjangoOnWsgi) else ASGIHandler()
    return site, plain


def details(both, target):
    """Return the details of the answers to two visitors, after comparing them with those of the site without the
    cache."""
    found = []
    for secret in (ONE, OTHER):
        answer, expected = (each.get(target, {"Cookie": f"csrftoken={secret}"}) for each in both)
        found.append(answer.detail.partition("; ttl")[0])
        if b"token" in answer.body and found[-1] in ("fwd=miss; stored", "hit"):
            expected.headers["cache-control"] = "private, max-age=60"
        assert comparable(answer) == comparable(expected)
        assert answer.status == 200
    return found


def not_stored(detail):
    return [f'fwd=miss; detail="{detail}"'] * 2


ENCODING = not_stored("an encoding in which CSRF tokens are not found")
STORED = ["fwd=miss; stored", "hit"]
IN_ASCII = [
    *(
        'text/html; charset="utf-8"',
        "text/html; charset=",
        "text/html; charset=utf-8; charset=bogus",
        "text",
        ";;=;",
        "",
    ),
    # Django encodes the header.
    "text/html; charset=\u017c",
]
OUTCOMES = {
    "charset-that-fails": not_stored("a response that cannot be read"),
    "match": not_stored("a response that cannot be read"),
    "charset-that-is-a-number": ENCODING,
    "tags-of-the-request": not_stored("more than 64 tags, or an invalid one"),
    "tags-of-the-response": not_stored("more than 64 tags, or an invalid one"),
}
"""By name; the other pages are stored."""


@pytest.mark.parametrize("number", range(len(CONTENT_TYPES)), ids=lambda number: repr(CONTENT_TYPES[number][:60]))
def test_a_page_of_any_type_is_as_without_the_cache(both, number):
    expected = STORED if CONTENT_TYPES[number] in IN_ASCII else ENCODING
    for form in ("form", "none"):
        assert details(both, f"/type/{number}/{form}") == expected


@pytest.mark.parametrize("name", ODD)
def test_a_response_that_the_middleware_cannot_read_is_as_without_the_cache(both, name, caplog):
    found = details(both, f"/{name}")
    assert found == OUTCOMES.get(name, STORED)
    assert ("A page is not stored: " in caplog.text) == (found not in (STORED, ENCODING))


def test_a_time_limit_that_interrupts_the_middleware_ends_the_request(site, caplog):
    assert site.get("/late").status == 500
    assert TimeLimitExceeded.__name__ in caplog.text


def test_a_page_that_the_middleware_cannot_read_is_compressed_all_the_same(make_site, site_settings):
    site_settings.MIDDLEWARE = [MIDDLEWARE[0], "django.middleware.gzip.GZipMiddleware", *MIDDLEWARE[1:]]
    answer = make_site().get("/long", {"Accept-Encoding": "gzip"})
    assert LONG.encode() in gzip.decompress(answer.body)
    assert answer.detail == not_stored("a response that cannot be read")[0]
