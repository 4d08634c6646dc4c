"""A rehearsal of a Django site: its views are named, its tokens are blank, and its visitors notice nothing."""

import json
from itertools import count

import pytest
from django.http import HttpResponse
from django.urls import path
from django.views.decorators.cache import cache_control

from tests.django_backend.pages.sites import logged_in
from tests.django_backend.pages.token_site import with_forms
from tests.django_backend.pages_site import login
from tests.http_cache.site import running_loop
from tests.waiting import until

numbers = count()
shown = []


@cache_control(max_age=60)
def flashes(request):
    shown.append(request.session.pop("flash", "none"))
    return HttpResponse(f"<p>{shown[-1]}</p><p>{next(numbers)}</p>")


def says(request):
    request.session["flash"] = "saved"
    return HttpResponse("", headers={"Cache-Control": "no-store"})


for_a_minute = cache_control(max_age=60)


urlpatterns = [
    path("login", login),
    path("flashes", flashes, name="flashes"),
    path("says", says),
    path("parameters", for_a_minute(lambda request: HttpResponse(json.dumps([*request.GET.lists()])))),
    path("unread", for_a_minute(lambda request: HttpResponse("unread"))),
    path("form", with_forms(1), name="form"),
]


@pytest.fixture
def site(make_site, site_settings):
    site_settings.ROOT_URLCONF = __name__
    site_settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    site = make_site(rehearse=1)
    with running_loop() as loop:
        site.loop = loop
        yield site


def numbers_of(site, view):
    return {kind: found.number for (name, kind), found in site.cache.pages.rehearsal.counts().items() if name == view}


def test_pages_with_tokens_are_equal_but_for_noise(site, clock):
    for secret in ("a" * 32, "b" * 32, None):
        site.get("/form", {} if secret is None else {"Cookie": f"csrftoken={secret}"})
    assert until(lambda: (clock.advance(0.1), numbers_of(site, "form").get("noise"))[1] == 2)
    assert numbers_of(site, "form") == {"stored": 1, "hits": 2, "noise": 2}


def test_a_message_is_not_lost_in_a_rerun(site, clock):
    shown.clear()
    visitor = logged_in(site, "ada")
    for _ in range(2):
        assert b"none" in site.get("/flashes", visitor).body
    # Both visits, and the first rerun after each.
    clock.advance(0.2)
    assert until(lambda: len(shown) == 4)
    site.get("/says", visitor)
    assert until(lambda: (clock.advance(0.1), numbers_of(site, "flashes").get("noise"))[1] == 1)
    assert "saved" in shown
    assert b"saved" in site.get("/flashes", visitor).body


@pytest.mark.parametrize("charset", ["utf-8", "latin-1", "ascii"])
def test_parameters_are_decoded_as_by_the_application_alone(site, charset):
    request = "/parameters?a&b=%C3%A4&a=%FF", {"Content-Type": f"text/plain; charset={charset}"}
    found, site.app = site.get(*request), site.app._app
    assert (found.status, found.body) == (200, site.get(*request).body)


@pytest.mark.parametrize(("path", "most", "status"), [("unread", 3, 200), ("parameters", 3, 400), ("parameters", 4, 200)])
def test_too_many_parameters_are_refused_where_the_site_reads_them(site, site_settings, path, most, status):
    site_settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = most
    assert site.get(f"/{path}?a&b&c&d").status == status
