"""A site, with Django Debug Toolbar if WITH_TOOLBAR is set: ``python -m tests.django_backend.toolbar_site <path> <n>``.

It visits itself n times and prints as JSON the result of each visit, and its data in the cache panel.
"""

import json
import os
import sys
import time

import django
from django.conf import settings
from django.http import HttpResponse

WITH_TOOLBAR = bool(os.environ.get("WITH_TOOLBAR"))
OPTIONS = {"JITTER": 0, "FIGURES_DIR": None}

runs = []

settings.configure(
    ALLOWED_HOSTS=["testserver"],
    CACHES={
        "default": {
            "BACKEND": "wheelcache.django_backend.WheelCache",
            # The toolbar keeps its data in the default cache if a setting says so, otherwise in memory.
            "OPTIONS": {**OPTIONS, "FILL_WAIT": {"views.decorators.cache.": 1}},
        },
        "origin": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "OPTIONS": {**OPTIONS, "L2": "origin"},
        },
    },
    DEBUG=True,
    DEBUG_TOOLBAR_CONFIG={"SHOW_TOOLBAR_CALLBACK": lambda request: True, "IS_RUNNING_TESTS": False},
    INSTALLED_APPS=["django.contrib.staticfiles", "wheelcache.django_backend", *["debug_toolbar"] * WITH_TOOLBAR],
    LOGGING_CONFIG=None,
    MIDDLEWARE=["debug_toolbar.middleware.DebugToolbarMiddleware"] * WITH_TOOLBAR,
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
    STATIC_URL="static/",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    USE_TZ=True,
)
django.setup()

# These imports read the settings.
from django.core.cache import caches  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import include, path  # noqa: E402
from django.views.decorators.cache import cache_page  # noqa: E402


def calls(request, alias):
    cache = caches[alias]
    found = [cache.get("first", "none")]
    cache.set("first", {"a": [1]})
    found.append(cache.get("first"))
    found.append(cache.get_many(["first", "second", "third"]))
    found.append(cache.get_or_set("computed", lambda: runs.append(1) or len(runs)))
    found.append(cache.get("computed"))
    found.append(cache.incr("computed") > 1)
    found.append(cache.has_key("first"))
    found.append(cache.delete("first"))
    found.append(cache.get("first"))
    return answer(repr(found))


def grace(request, alias):
    cache = caches[alias]

    def load():
        runs.append(1)
        return len(runs)

    found = cache.get_or_set("graced", load, 0.05, grace=60, refresh_ahead=0.9)
    time.sleep(0.1)
    return answer(str(found))


def page(request):
    runs.append(1)
    return answer(str(len(runs)))


def answer(text):
    """The toolbar puts itself into pages only."""
    return HttpResponse(f"<html><body><main>{text}</main></body></html>")


urlpatterns = [
    path("calls/<str:alias>/", calls),
    path("grace/<str:alias>/", grace),
    path("page/default/", cache_page(60, cache="default")(page)),
    path("page/tiered/", cache_page(60, cache="tiered")(page)),
]


def visited(client, url, alias):
    response = client.get(url)
    assert response.status_code == 200, response.content
    body = response.content.decode()
    figures = caches[alias].store.cache.stats()
    return {
        "answer": body.partition("<main>")[2].partition("</main>")[0],
        "stats": {name: getattr(figures, name) for name in ("hits", "misses", "size", "stale_hits")},
        "panel": panel(body) if WITH_TOOLBAR else None,
    }


def panel(body):
    toolbar = toolbars.pop()
    found = toolbar.get_panel_by_id("CachePanel")
    stats = found.get_stats()
    return {
        "calls": [{name: str(call[name]) for name in ("name", "kwargs", "backend")} for call in stats["calls"]],
        "hits": stats["hits"],
        "misses": stats["misses"],
        # True if the panel shows the calls.
        "shown": all(str(call["name"]) in found.content for call in stats["calls"]) and 'id="djDebug"' in body,
    }


if __name__ == "__main__":
    toolbars = []
    if WITH_TOOLBAR:
        from debug_toolbar.toolbar import DebugToolbar

        urlpatterns.append(path("__debug__/", include("debug_toolbar.urls")))
        DebugToolbar._created.connect(lambda toolbar, **kwargs: toolbars.append(toolbar), weak=False)
    visitor = Client()
    url, times = sys.argv[1:]
    which = url.strip("/").rpartition("/")[2]
    print(json.dumps([visited(visitor, url, which) for _ in range(int(times))]))
