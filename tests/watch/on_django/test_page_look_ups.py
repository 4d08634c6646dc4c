"""A page of ``cache_page`` is one look-up in all figures, although Django looks up a list of headers before it."""

import logging
from collections import Counter
from itertools import count

import pytest
from django.core.cache import caches
from django.http import HttpResponse
from django.test import Client
from django.urls import include, path
from django.views.decorators.cache import cache_page
from django.views.decorators.vary import vary_on_headers

from tests.engines import engine
from wheelcache import ManualClock
from wheelcache.engine.stats_log import StatsLog

runs, numbers = count(), count()

LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
KINDS = {
    "WheelCache": {},
    "WheelCache with FILL_WAIT": {"FILL_WAIT": 5},
    "TieredCache": {"L2": "behind"},
}


@cache_page(60)
@vary_on_headers("X-Country")
def page(request):
    return HttpResponse(f"run {next(runs)}")


urlpatterns = [
    path("page/<int:number>", lambda request, number: page(request)),
    path("wheelcache/", include("wheelcache.watch.urls")),
]


@pytest.fixture(params=KINDS)
def pages(request, settings, tmp_path):
    """The cache of a site whose pages are cached."""
    backend, options = request.param.partition(" ")[0], {"FIGURES_DIR": tmp_path / "figures"}
    settings.CACHES = {
        "default": {
            "BACKEND": f"wheelcache.django_backend.{backend}",
            "LOCATION": f"page look-ups {next(numbers)}",
            "OPTIONS": {**options, **KINDS[request.param]},
        },
        "behind": {"BACKEND": LOCMEM, "LOCATION": str(tmp_path)},
    }
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = ["tests.watch.on_django.test_dashboard.Users"]
    settings.INSTALLED_APPS = [
        *("django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions", "wheelcache.django_backend")
    ]
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


def answered(stats):
    """Return the number of look-ups that the cache or the store behind it answered."""
    return stats.hits if stats.answered is None else stats.answered


def test_the_hit_ratio_of_pages_is_the_share_of_visits_that_were_answered(pages, caplog):
    clock = ManualClock()
    log = StatsLog("default", clock, engine(pages).stats)
    log.begin()
    visits, hits = some_visits()
    assert (visits, hits) == (12, 7)
    stats = engine(pages).stats()
    assert (stats.requests, answered(stats), stats.stale_hits) == (visits, hits, 0)
    clock.advance(60)
    with caplog.at_level(logging.INFO):
        log.run()
    assert "qpm: 12, " in caplog.text
    assert ("hit_ratio: 58.3%, " if stats.answered is None else "both_tiers: 58.3%, ") in caplog.text
    (total,) = (each["total"] for each in figures_of(pages))
    ratio = "hit_ratio" if stats.answered is None else "answered_ratio"
    assert (total["requests"], total[ratio]) == (visits, hits / visits)


def figures_of(pages):
    """Return the caches in the figures document of the dashboard."""
    engine(pages).engine.observed.observer.publication.publisher.publish()
    return Client(headers={"X-User": "super"}).get("/wheelcache/figures.json").json()["caches"]


@pytest.mark.parametrize("pages", [kind for kind in KINDS if kind.startswith("Tiered")], indirect=True)
def test_a_page_that_only_the_store_has_is_one_look_up_that_the_store_answers(pages):
    some_visits()
    before = engine(pages).stats()
    # As in a worker that has just started.
    engine(pages).clear()
    assert visit(1) == visit(1)
    stats = engine(pages).stats()
    assert (stats.requests - before.requests, stats.hits - before.hits) == (2, 1)
    assert (stats.store.hits - before.store.hits, stats.store.misses - before.store.misses) == (1, 0)
