"""Django's features on its caches: views, whole sites, fragments and sessions, each until it expires; and a site's own
tests, with overridden settings, and loads that see the rows of the test.

Their other behavior is tested by Django's own suite, which runs on the backend (``tests/conformance``).
"""

from itertools import count

import pytest
from asgiref.sync import async_to_sync
from django.contrib.sessions.models import Session
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from django.utils import timezone
from django.views.decorators.cache import cache_page

from tests.django_backend.conftest import wheel
from tests.waiting import PATIENCE
from wheelcache import loads_in_callers_thread

runs = count()


def plain(request):
    return HttpResponse(f"run {next(runs)}")


@cache_page(60)
def for_a_minute(request):
    return plain(request)


def visits(request):
    seen = request.session.get("visits", [])
    request.session["visits"] = [*seen, len(seen)]
    return HttpResponse(str(request.session["visits"]))


async def async_visits(request):
    seen = await request.session.aget("visits", [])
    await request.session.aset("visits", [*seen, len(seen)])
    return HttpResponse(str([*seen, len(seen)]))


urlpatterns = [
    *(path("plain", plain), path("minute", for_a_minute)),
    *(path("visits", visits), path("async-visits", async_visits)),
]


@pytest.fixture
def frozen(clock, settings):
    """Django's default caches on a clock of the test: new stores, since those of before have a clock already."""
    settings.CACHES = {"default": wheel()}
    settings.MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    return clock


@pytest.mark.parametrize("url", ["/minute", "/plain"])
def test_a_cached_view_and_a_whole_site_answer_from_the_cache_until_their_time_is_up(frozen, settings, client, url):
    if url == "/plain":
        names = ("UpdateCacheMiddleware", "FetchFromCacheMiddleware")
        settings.MIDDLEWARE = [f"django.middleware.cache.{name}" for name in names]
        settings.CACHE_MIDDLEWARE_SECONDS = 60
    response = client.get(url)
    first = response.content
    # Changes to a response that was served do not change the cached response.
    response["X-Changed"], response.content = "yes", b"changed"
    frozen.advance(59)
    again = client.get(url)
    assert (again.content, "X-Changed" in again) == (first, False)
    frozen.advance(1)
    assert client.get(url).content != first


@pytest.mark.parametrize("url", ["/visits", "/async-visits"])
def test_a_session_in_the_cache_is_its_visitors_own_and_ends_with_its_age(frozen, settings, client, url):
    settings.SESSION_COOKIE_AGE = 100
    assert [client.get(url).content for _ in range(2)] == [b"[0]", b"[0, 1]"]
    assert Client().get(url).content == b"[0]"
    frozen.advance(99)
    assert client.get(url).content == b"[0, 1, 2]"
    frozen.advance(100)
    assert client.get(url).content == b"[0]"


# In a site's own tests.


@pytest.mark.django_db
@pytest.mark.parametrize("asynchronous", [False, True], ids=["threads", "tasks"])
def test_with_the_switch_a_load_sees_the_rows_that_the_test_has_not_committed(make, clock, asynchronous):
    """Another thread would find an empty or a locked database."""
    cache = make()
    Session.objects.create(session_key="a", session_data="", expire_date=timezone.now())
    rows = Session.objects.acount if asynchronous else Session.objects.count
    ask = async_to_sync(cache.aget_or_set) if asynchronous else cache.get_or_set
    with loads_in_callers_thread():
        assert ask("timed", rows, load_timeout=PATIENCE) == 1
        assert ask("refreshed", lambda: 0, 10, grace=20) == 0
        clock.advance(15)
        assert ask("refreshed", rows, 10, grace=20) == 0
        assert cache.get("refreshed") == 1
