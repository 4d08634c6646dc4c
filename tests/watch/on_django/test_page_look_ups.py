"""A page of ``cache_page`` is one look-up in all figures, although Django looks up a list of headers before it."""

from collections import Counter
from itertools import count

import pytest
from django.core.cache import caches
from django.http import HttpResponse
from django.test import Client
from django.urls import path
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers

from tests.engines import engine
from wheelcache.watch.dashboard.dashboard import Dashboard

runs, numbers = count(), count()

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
KINDS = {
    "WheelCache": {},
    "TieredCache": {"L2": "behind"},
}


@cache_page(60)
@vary_on_headers("X-Country")
def page(request):
    return HttpResponse(f"run {next(runs)}")


urlpatterns = [path("page/<int:number>", lambda request, number: page(request))]


@pytest.fixture(params=KINDS)
def pages(request, settings, tmp_path):
    """The cache of a site whose pages are cached."""
    settings.CACHES = {
        "default": {
            "BACKEND": f"wheelcache.django_backend.{request.param}",
            "LOCATION": f"page look-ups {next(numbers)}",
            "OPTIONS": {"FIGURES_DIR": tmp_path / "figures", **KINDS[request.param]},
        },
        "behind": {"BACKEND": LOCMEM, "LOCATION": str(tmp_path)},
    }
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    settings.CACHE_MIDDLEWARE_ALIAS = "default"
    return caches["default"]


def visit(number, country="at"):
    """Visit a page, and return whether its view ran."""
    answer = Client().get(f"/page/{number}", headers={"X-Country": country})
    assert answer.status_code == 200
    return answer.content


def some_visits():
    """Visit pages: some for the first time, some from another country, for which the list of headers is found. Return
    the numbers of visits and of hits."""
    found = Counter(
        visit(number, country)
        for number, country in [(1, "at")] * 5 + [(1, "de")] * 3 + [(1, "at"), (2, "at"), (3, "fr"), (3, "at")]
    )
    return found.total(), found.total() - len(found)


def test_the_hit_ratio_of_pages_is_the_share_of_visits_that_were_answered(pages):
    visits, hits = some_visits()
    assert (visits, hits) == (12, 7)
    stats = engine(pages).stats()
    answered = stats.hits if stats.answered is None else stats.answered
    assert (stats.requests, answered, stats.stale_hits) == (visits, hits, 0)
    engine(pages).engine.observed.observer.publication.run_now()
    (card,) = Dashboard("a site", lambda: [engine(pages)], lambda name: []).figures()["caches"]
    ratio = "hit_ratio" if stats.answered is None else "answered_ratio"
    assert (card["total"]["requests"], card["total"][ratio]) == (visits, hits / visits)


@pytest.mark.parametrize("pages", ["TieredCache"], indirect=True)
def test_a_page_that_only_the_store_has_is_one_look_up_that_the_store_answers(pages):
    some_visits()
    before = engine(pages).stats()
    # As in a worker that has just started.
    engine(pages).clear()
    assert visit(1) == visit(1)
    stats = engine(pages).stats()
    assert (stats.requests - before.requests, stats.hits - before.hits) == (2, 1)
    assert (stats.store.hits - before.store.hits, stats.store.misses - before.store.misses) == (1, 0)
