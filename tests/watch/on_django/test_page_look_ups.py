"""A page of ``cache_page`` is one look-up in all figures, although Django looks up a list of headers before it."""

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

runs = count()


@cache_page(60)
@vary_on_headers("X-Country")
def page(request):
    return HttpResponse(f"run {next(runs)}")


urlpatterns = [path("page/<int:number>", lambda request, number: page(request))]

VISITS = [(1, "at")] * 5 + [(1, "de")] * 3 + [(1, "at"), (2, "at"), (3, "fr"), (3, "at")]
"""Pages and countries. For a page from another country, the list of headers is found."""


@pytest.mark.parametrize(("backend", "options"), [("WheelCache", {}), ("TieredCache", {"L2": "behind"})])
def test_the_hit_ratio_of_pages_is_the_share_of_visits_that_were_answered(settings, tmp_path, backend, options):
    settings.CACHES = {
        "default": {
            "BACKEND": f"wheelcache.django_backend.{backend}",
            "LOCATION": f"page look-ups {backend}",
            "OPTIONS": {"FIGURES_DIR": tmp_path / "figures", **options},
        },
        "behind": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": str(tmp_path)},
    }
    settings.ROOT_URLCONF = __name__
    settings.MIDDLEWARE = []
    settings.CACHE_MIDDLEWARE_ALIAS = "default"
    answers = [Client().get(f"/page/{number}", headers={"X-Country": country}).content for number, country in VISITS]
    hits = len(VISITS) - len(set(answers))
    assert hits == 7
    cache = engine(caches["default"])
    answered = cache.stats().answered if options else cache.stats().hits
    assert (cache.stats().requests, answered, cache.stats().stale_hits) == (len(VISITS), hits, 0)
    cache.engine.observed.observer.publication.run_now()
    (card,) = Dashboard("a site", lambda: [cache], lambda name: []).figures()["caches"]
    ratio = card["total"]["answered_ratio" if options else "hit_ratio"]
    assert (card["total"]["requests"], ratio) == (len(VISITS), hits / len(VISITS))
