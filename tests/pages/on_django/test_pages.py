"""Languages, time zones, messages, Django's own middleware, and the companion."""

import re

import pytest
from django.contrib import messages
from django.core.checks import Tags, run_checks
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone, translation
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_cookie

from tests.pages.on_both.sites import MIDDLEWARE, DjangoOnAsgi, DjangoOnWsgi
from tests.pages.site import answer_of, is_stored
from wheelcache.pages.django_pages import COMPANION, page_cache


def language(request):
    return translation.get_language()


def test_the_language_of_a_cookie_or_of_the_browser_is_a_part_of_the_key(site):
    site.add("/language", language)
    for headers in ({"Cookie": "django_language=de"}, {"Accept-Language": "de"}):
        assert site.get("/language", headers).body.startswith(b"de ")
        assert site.get("/language").body.startswith(b"en ")
        assert is_stored(site, "/language", headers)


def test_browsers_share_a_page_unless_the_site_disallows_some(site, site_settings):
    site.add("/plain", lambda request: "page")
    assert site.get("/plain", {"User-Agent": "a"}).body == site.get("/plain", {"User-Agent": "b"}).body
    site_settings.DISALLOWED_USER_AGENTS = [re.compile("bot")]
    site.cache.purge_all()
    assert site.get("/plain", {"User-Agent": "a"}).status == 200
    assert site.get("/plain", {"User-Agent": "a bot"}).status == 403


def test_a_host_or_a_scheme_that_a_proxy_reports_poisons_no_page(site, site_settings):
    site_settings.USE_X_FORWARDED_HOST = True
    site_settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_SCHEME", "https")
    site.add("/host", lambda request: request.build_absolute_uri("/"))
    for _ in range(2):
        assert site.get("/host", {"X-Forwarded-Host": "evil.test"}).status == 400
        assert site.get("/host", {"X-Scheme": "https"}).body.startswith(b"https://example.com/ ")
        assert site.get("/host").body.startswith(b"http://example.com/ ")


@pytest.mark.parametrize("name", ["SCRIPT_URL", "REDIRECT_URL"])
def test_a_page_whose_script_name_django_derives_from_a_rewritten_url_is_not_stored(site_settings, clock, name):
    site = DjangoOnWsgi(clock)
    site.add("/plain", lambda request: "page")
    environ = site.environ(*site.parts("/plain")) | {name: "/app/plain", "SCRIPT_NAME": "/app"}
    assert answer_of(site.app, environ).detail == 'fwd=miss; detail="script name from a rewritten URL"'


def test_the_state_that_an_application_in_front_keeps_for_the_visitor_reaches_nobody_else(site_settings, clock):
    site = DjangoOnAsgi(clock)
    site.add("/state", lambda request: request.scope["state"]["user"])
    whole = site.scope
    for user in ("ada", "bob"):
        site.scope = lambda *parts, user=user: {**whole(*parts), "state": {"user": user}}
        assert site.get("/state").body.startswith(user.encode())


@pytest.mark.parametrize("make_site", ["Django on WSGI"], indirect=True)
def test_a_language_or_a_time_zone_that_an_earlier_request_left_behind_is_not_stored(make_site, site_settings):
    site_settings.MIDDLEWARE = [name for name in MIDDLEWARE if "Locale" not in name]
    site = make_site()

    def activate(request):
        translation.activate("de")
        timezone.activate("Asia/Tokyo")
        return "activated"

    site.add("/activate", activate)
    site.add("/language", language)
    site.add("/zone", lambda request: timezone.get_current_timezone_name())
    translation.deactivate()
    # Not if the request itself has chosen them.
    assert site.get("/activate").detail.endswith("stored")
    assert site.get("/language").detail == 'fwd=miss; detail="language of an earlier request"'
    translation.deactivate()
    assert site.get("/zone").detail == 'fwd=miss; detail="time zone of an earlier request"'
    timezone.deactivate()
    assert site.get("/language").body.startswith(b"en ")
    assert not site.get("/zone").body.startswith(b"Asia/Tokyo")


def show_messages(request):
    if "add" in request.GET:
        messages.success(request, "saved")
    return HttpResponse(" ".join(map(str, messages.get_messages(request))) if "show" in request.GET else "page")


def test_a_page_with_messages_is_not_stored_and_one_that_found_none_is(site, site_settings):
    site.add("/messages", show_messages)
    assert [site.get("/messages?add&show").detail for _ in range(2)] == ['fwd=miss; detail="adds messages"'] * 2
    cookie = {"Cookie": site.get("/messages?add")["set-cookie"].partition(";")[0].strip()}
    found = site.get("/messages?show", cookie)
    assert (found.body, found.detail) == (b"saved", 'fwd=miss; detail="shows messages"')
    site_settings.MESSAGE_STORAGE = "django.contrib.messages.storage.fallback.FallbackStorage"
    assert site.get("/messages?show").detail.endswith("stored")


def test_a_streamed_page_of_a_site_with_sessions_is_not_stored(site):
    async def async_body():
        yield "page"

    def streamed(request):
        return StreamingHttpResponse(async_body() if hasattr(request, "scope") else iter(["page"]))

    site.add("/streamed", streamed)
    detail = 'fwd=miss; detail="streamed, and may use the session"'
    assert [site.get("/streamed").detail for _ in range(2)] == [detail] * 2


def test_a_page_of_cache_page_that_depends_on_cookies_is_for_the_worker_that_made_it(make_site):
    """A worker that gets it from Django's cache cannot know which cookies the view has read."""
    maker, other = make_site(), make_site()
    themed = cache_page(600)(vary_on_cookie(lambda request: HttpResponse(request.COOKIES.get("theme"))))
    maker.add("/themed", themed, None)
    maker.add("/aged", vary_on_cookie(lambda request: HttpResponse("page", headers={"Age": "1"})))
    maker.add("/marked", vary_on_cookie(lambda request: HttpResponse(setattr(request, "_cache_update_cache", False))))
    for site in (maker, other):
        for theme in ("dark", "light"):
            assert site.get("/themed", {"Cookie": f"theme={theme}"}).body.startswith(theme.encode())
    assert (maker.stats().stored, other.stats().stored) == (2, 0)
    # Not from Django's cache.
    assert [maker.get("/aged").detail[:3] for _ in range(2)] == ["fwd", "hit"]
    assert [maker.get("/marked").detail[:3] for _ in range(2)] == ["fwd", "hit"]


# A rehearsal.


@pytest.mark.parametrize(
    ("path", "most", "status"), [("unread", 3, 200), ("parameters", 3, 400), ("parameters", 4, 200)]
)
def test_too_many_parameters_are_refused_where_the_site_reads_them(make_site, site_settings, path, most, status):
    site_settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = most
    site = make_site(rehearse=1)
    site.add("/parameters", lambda request: str([*request.GET.lists()]))
    site.add("/unread", lambda request: "unread")
    assert site.get(f"/{path}?a&b&c&d").status == status


# The settings.


@pytest.mark.parametrize("middleware", [MIDDLEWARE[1:], [*MIDDLEWARE[1:], COMPANION], []])
def test_the_cache_insists_on_its_companion(settings, middleware):
    settings.MIDDLEWARE = middleware
    first = middleware[0] if middleware else None
    with pytest.raises(ImproperlyConfigured, match=f"MIDDLEWARE must begin with {COMPANION!r}, not with {first!r}"):
        page_cache()


LOGIN_REQUIRED = "django.contrib.auth.middleware.LoginRequiredMiddleware"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ({}, []),
        ({"MIDDLEWARE": [MIDDLEWARE[1], COMPANION]}, ["wheelcache.E003"]),
        ({"SESSION_SAVE_EVERY_REQUEST": True}, ["wheelcache.W006"]),
        ({"MIDDLEWARE": [*MIDDLEWARE, LOGIN_REQUIRED]}, ["wheelcache.W006"]),
        ({"MIDDLEWARE": [LOGIN_REQUIRED], "SESSION_SAVE_EVERY_REQUEST": True}, []),
    ],
)
def test_checks_report_a_companion_that_is_not_first_and_a_session_that_every_page_reads(settings, names, expected):
    settings.MIDDLEWARE = MIDDLEWARE
    for name, value in names.items():
        setattr(settings, name, value)
    # The checks of other apps stay registered when a test has removed the apps.
    found = [each.id for each in run_checks(tags=[Tags.caches])]
    assert [each for each in found if each.startswith("wheelcache") and "I" not in each] == expected
