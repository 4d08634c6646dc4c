"""A rehearsal of a Django site: its views are named, its tokens are blank, and its visitors notice nothing."""

import copy
import json
import pickle
from itertools import count

import pytest
from django.http import HttpResponse, QueryDict
from django.urls import path
from django.views.decorators.cache import cache_control

from tests.pages.on_django.pages_site import login
from tests.pages.on_django.sites import logged_in
from tests.pages.on_django.token_site import FORM, rendered, with_forms
from tests.pages.site import running_loop
from tests.waiting import until

numbers = count()
for_a_minute = cache_control(max_age=60)
shown, gone = [], []


@for_a_minute
def flashes(request):
    shown.append(request.session.pop("flash", "none"))
    return HttpResponse(f"<p>{shown[-1]}</p><p>{next(numbers)}</p>")


@for_a_minute
def found(request):
    """Find a page until it is gone, and then show a form for a search."""
    response = rendered(request, FORM) if gone or request.path == "/found/form" else HttpResponse("<p>found</p>")
    response.status_code = 404 if gone else 200
    return response


def says(request):
    request.session["flash"] = "saved"
    return HttpResponse("", headers={"Cache-Control": "no-store"})


@for_a_minute
def parameters(request):
    pickled = pickle.loads(pickle.dumps(request.GET))
    assert type(pickled) is QueryDict
    copies = (copy.copy(request.GET), copy.deepcopy(request.GET), pickled)
    return HttpResponse(json.dumps([[*each.lists()] for each in (request.GET, *copies)]))


urlpatterns = [
    path("login", login),
    path("flashes", flashes, name="flashes"),
    path("says", says),
    path("found/form", found, name="found"),
    path("found/text", found, name="found"),
    path("parameters", parameters),
    path("unread", for_a_minute(lambda request: HttpResponse("unread"))),
    path("form", with_forms(1), name="form"),
]


@pytest.fixture
def rehearsed(make_site, site_settings):
    site_settings.ROOT_URLCONF = __name__
    site_settings.SESSION_ENGINE = "django.contrib.sessions.backends.cache"
    with running_loop() as loop:

        def make(**options):
            site = make_site(rehearse=1, **options)
            site.loop = loop
            return site

        yield make


@pytest.fixture
def site(rehearsed):
    return rehearsed()


def numbers_of(site, view):
    counts = site.cache.pages.rehearsal.counts().items()
    return {kind: found.number for (name, kind), found in counts if name == view and not kind.endswith("]")}


def test_pages_with_tokens_are_equal_but_for_noise(site, clock):
    for secret in ("a" * 32, "b" * 32, None):
        site.get("/form", {} if secret is None else {"Cookie": f"csrftoken={secret}"})
    assert until(lambda: (clock.advance(0.1), numbers_of(site, "form").get("noise"))[1] == 2)
    assert numbers_of(site, "form") == {"stored": 1, "hits": 2, "noise": 2}


def outcome_of(site, clock, view):
    """Return the outcome of the only comparison with a page of a view."""
    assert until(lambda: (clock.advance(0.1), numbers_of(site, view).keys() - {"stored", "hits"})[1])
    return numbers_of(site, view)


@pytest.mark.parametrize("csrf_tokens", [True, False])
@pytest.mark.parametrize("page", ["form", "text"])
def test_a_page_that_became_a_404_with_a_form_is_outdated(rehearsed, clock, page, csrf_tokens):
    site = rehearsed(csrf_tokens=csrf_tokens)
    site.get(f"/found/{page}")
    gone.append(True)
    try:
        assert site.get(f"/found/{page}", {"Cookie": f"csrftoken={'a' * 32}"}).status == 404
        expected = {"stored": 1, "hits": 1, "outdated": 1} if csrf_tokens or page == "text" else {"not stored: csrf": 2}
        assert outcome_of(site, clock, "found") == expected
    finally:
        gone.clear()


@pytest.mark.parametrize("cookie", ["odd", "a" * 31, "a" * 65, ""])
def test_a_page_with_tokens_is_right_for_a_visitor_with_an_odd_token(site, clock, cookie):
    site.get("/form")
    site.get("/form", {"Cookie": f"csrftoken={cookie}"})
    assert outcome_of(site, clock, "form") == {"stored": 1, "hits": 1, "noise": 1}


@pytest.mark.parametrize("cookie", ["odd", "ä", '"a"'])
def test_a_page_without_tokens_is_right_for_a_visitor_with_an_odd_token(site, clock, cookie):
    site.get("/found/text")
    assert "csrftoken" in site.get("/found/text", {"Cookie": f"csrftoken={cookie}"})["set-cookie"]
    assert outcome_of(site, clock, "found") == {"stored": 1, "hits": 1, "equal": 1}


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


@pytest.mark.parametrize(
    ("path", "most", "status"), [("unread", 3, 200), ("parameters", 3, 400), ("parameters", 4, 200)]
)
def test_too_many_parameters_are_refused_where_the_site_reads_them(site, site_settings, path, most, status):
    site_settings.DATA_UPLOAD_MAX_NUMBER_FIELDS = most
    assert site.get(f"/{path}?a&b&c&d").status == status
