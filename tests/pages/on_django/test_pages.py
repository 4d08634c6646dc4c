"""Lifetimes and tags of pages, Django's own middleware, and the companion."""

from io import StringIO

import pytest
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.core.handlers.wsgi import WSGIHandler
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.pages.on_django.sites import MIDDLEWARE, DjangoOnWsgi
from tests.pages.page_tags import PageTags
from tests.pages.site import answer_of, is_stored
from wheelcache.pages.django_pages import COMPANION, page_cache


class TestPageTags(PageTags):
    pass


@pytest.mark.pairs(full="make_site", of="target")
@pytest.mark.parametrize("target", ["/plain", "/expires", "/by-cache-page", "/plain?a=1"])
def test_a_page_with_a_lifetime_is_made_once(site, target):
    assert is_stored(site, target)


def test_a_page_is_made_again_when_its_time_is_over(site, clock):
    first = site.get("/plain")
    clock.advance(59)
    assert site.get("/plain").body == first.body
    clock.advance(1)
    assert site.get("/plain").body != first.body


def test_the_time_that_cache_page_kept_a_page_counts(make_site, clock):
    site = make_site()
    stored = site.get("/by-cache-page")
    assert stored["cache-control"] == "max-age=600"
    # Another worker, or this one after a restart, gets the page from Django's cache.
    other = make_site()
    assert other.get("/by-cache-page").body == stored.body
    assert int(other.get("/by-cache-page")["age"]) >= 0


@pytest.mark.parametrize(
    "middleware", ["django.middleware.gzip.GZipMiddleware", "django.middleware.http.ConditionalGetMiddleware"]
)
def test_django_s_middleware_for_pages_works_behind_the_cache(make_site, site_settings, middleware):
    site_settings.MIDDLEWARE = [COMPANION, middleware, *MIDDLEWARE[1:]]
    site = make_site()
    assert is_stored(site, "/plain")
    assert is_stored(site, "/plain", {"Accept-Encoding": "gzip"})
    head = site.get("/plain", method="HEAD")
    assert (head.status, head.body) == (200, b"")
    tag = site.get("/plain").headers.get("etag")
    if tag is not None:
        assert site.get("/plain", {"If-None-Match": tag}).status == 304


def test_a_slash_is_appended(site):
    assert site.get("/slash")["location"] == "/slash/"
    assert is_stored(site, "/slash/")


def test_items_that_a_middleware_puts_into_meta_reach_the_server(site_settings, clock):
    site_settings.MIDDLEWARE = [COMPANION, f"{__name__}.put_number", *MIDDLEWARE[1:]]
    environ = {}
    site = DjangoOnWsgi(clock)
    application = site.cache.wsgi(lambda given, start: environ.update(wsgi=given) or WSGIHandler()(given, start))
    answer_of(application, site.environ(*site.parts("/plain")))
    assert environ["wsgi"]["app.number"] == 7
    assert site.stats().stored == 1


def put_number(get_response):
    def middleware(request):
        request.META["app.number"] = 7
        assert request.META["app.number"] == 7
        return get_response(request)

    return middleware


@pytest.mark.parametrize("middleware", [MIDDLEWARE[1:], [*MIDDLEWARE[1:], COMPANION], []])
def test_the_cache_insists_on_its_companion(settings, middleware):
    settings.MIDDLEWARE = middleware
    first = middleware[0] if middleware else None
    with pytest.raises(ImproperlyConfigured, match=f"MIDDLEWARE must begin with {COMPANION!r}, not with {first!r}"):
        page_cache()


@pytest.mark.parametrize("sessions", [[], ["jwt"]])
def test_the_cookie_of_the_session_must_be_known(site_settings, sessions):
    site_settings.SESSION_COOKIE_NAME = "shop"
    with pytest.raises(ImproperlyConfigured, match="session_cookies must contain 'shop'"):
        page_cache(session_cookies=sessions, cookies=["theme"])
    page_cache(session_cookies=[*sessions, "shop"]).cache.close()


@pytest.mark.parametrize(
    ("middleware", "complaint"),
    [
        ([COMPANION], r"No worker of this site publishes figures\. Looked in .+"),
        ([], "None of CACHES is a cache of wheelcache.django_backend, and no pages are cached"),
    ],
)
def test_the_command_finds_the_pages_of_a_site_without_another_cache(settings, tmp_path, middleware, complaint):
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.MIDDLEWARE = middleware
    settings.BASE_DIR = tmp_path
    for action in (["--json"], ["purge", "example.com"]):
        with pytest.raises(CommandError, match=complaint):
            call_command("wheelcache", *action, stdout=StringIO())


def check_ids():
    """Return our errors and warnings. The checks of other apps stay registered when a test has removed the apps."""
    found = run_checks(tags=[Tags.caches])
    return [each.id for each in found if each.id.startswith("wheelcache") and "I" not in each.id]


def test_checks_report_a_companion_that_is_not_first(settings):
    settings.MIDDLEWARE = [MIDDLEWARE[1], COMPANION]
    assert check_ids() == ["wheelcache.E003"]
    settings.MIDDLEWARE = MIDDLEWARE
    assert check_ids() == []


@pytest.mark.parametrize(
    "given",
    [
        {"SESSION_SAVE_EVERY_REQUEST": True},
        {"MIDDLEWARE": [*MIDDLEWARE, "django.contrib.auth.middleware.LoginRequiredMiddleware"]},
    ],
)
def test_checks_report_a_session_that_every_page_reads(settings, given):
    settings.MIDDLEWARE = MIDDLEWARE
    for name, value in given.items():
        setattr(settings, name, value)
    assert check_ids() == ["wheelcache.W006"]
