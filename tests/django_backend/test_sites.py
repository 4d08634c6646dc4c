"""Django's features on its caches: views, whole sites, fragments and sessions, each until it expires.

Their other behavior is tested by Django's own suite, which runs on the backend (``tests/conformance``).
"""

from itertools import count

import pytest
from django.http import HttpResponse
from django.template import Context, Template
from django.test import Client
from django.urls import path
from django.views.decorators.cache import cache_page

from tests.django_backend.conftest import BACKEND

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
    path("plain", plain),
    path("minute", for_a_minute),
    path("visits", visits),
    path("async-visits", async_visits),
]


@pytest.fixture
def frozen(clock, settings):
    """Django's default caches on a clock of the test: new stores, since those of before have a clock already."""
    settings.CACHES = {
        alias: {"BACKEND": BACKEND, "LOCATION": f"{alias} at {next(runs)}", "OPTIONS": {"JITTER": 0}}
        for alias in ("default", "other")
    }
    settings.MIDDLEWARE = ["django.contrib.sessions.middleware.SessionMiddleware"]
    settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    return clock


def body(response):
    return response.content.decode()


@pytest.mark.parametrize("url", ["/minute", "/plain"])
def test_a_cached_view_and_a_whole_site_answer_from_the_cache_until_their_time_is_up(frozen, settings, client, url):
    if url == "/plain":
        names = ("UpdateCacheMiddleware", "FetchFromCacheMiddleware")
        settings.MIDDLEWARE = [f"django.middleware.cache.{name}" for name in names]
        settings.CACHE_MIDDLEWARE_SECONDS = 60
    response = client.get(url)
    first = body(response)
    # Changes to a response that was served do not change the cached response.
    response["X-Changed"], response.content = "yes", b"changed"
    frozen.advance(59)
    again = client.get(url)
    assert (body(again), "X-Changed" in again) == (first, False)
    frozen.advance(1)
    assert body(client.get(url)) != first


FRAGMENT = Template("{% load cache %}{% cache 50 side user %}{{ user }} {{ run }}{% endcache %}")


def fragment(user, run):
    return FRAGMENT.render(Context({"user": user, "run": run}))


def test_a_template_fragment_is_kept_for_each_of_its_arguments_until_its_time_is_up(frozen):
    assert (fragment("ann", 1), fragment("bob", 2)) == ("ann 1", "bob 2")
    frozen.advance(49)
    assert (fragment("ann", 3), fragment("bob", 4)) == ("ann 1", "bob 2")
    frozen.advance(1)
    assert fragment("ann", 5) == "ann 5"


@pytest.mark.parametrize("url", ["/visits", "/async-visits"])
def test_a_session_in_the_cache_is_its_visitors_own_and_ends_with_its_age(frozen, settings, client, url):
    settings.SESSION_COOKIE_AGE = 100
    assert [body(client.get(url)) for _ in range(2)] == ["[0]", "[0, 1]"]
    assert body(Client().get(url)) == "[0]"
    frozen.advance(99)
    assert body(client.get(url)) == "[0, 1, 2]"
    frozen.advance(100)
    assert body(client.get(url)) == "[0]"
