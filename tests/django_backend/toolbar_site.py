"""A site with Django Debug Toolbar, which visits itself, and prints results and data of the cache panel as JSON:
``python -m tests.django_backend.toolbar_site``."""

import json

import django
from django.conf import settings
from django.http import HttpResponse

OPTIONS = {"JITTER": 0, "FIGURES_DIR": None}

settings.configure(
    ALLOWED_HOSTS=["testserver"],
    CACHES={
        "default": {"BACKEND": "wheelcache.django_backend.WheelCache", "OPTIONS": OPTIONS},
        "tiered": {"BACKEND": "wheelcache.django_backend.TieredCache", "OPTIONS": {**OPTIONS, "L2": "origin"}},
        "origin": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    },
    DEBUG=True,
    DEBUG_TOOLBAR_CONFIG={"SHOW_TOOLBAR_CALLBACK": lambda request: True, "IS_RUNNING_TESTS": False},
    INSTALLED_APPS=["django.contrib.staticfiles", "wheelcache.django_backend", "debug_toolbar"],
    LOGGING_CONFIG=None,
    MIDDLEWARE=["debug_toolbar.middleware.DebugToolbarMiddleware"],
    ROOT_URLCONF=__name__,
    SECRET_KEY="not secret",
    STATIC_URL="static/",
    TEMPLATES=[{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}],
    USE_TZ=True,
)
django.setup()

# These imports read the settings.
from debug_toolbar.toolbar import DebugToolbar  # noqa: E402
from django.core.cache import caches  # noqa: E402
from django.test import Client  # noqa: E402
from django.urls import include, path  # noqa: E402


def calls(request, alias):
    cache = caches[alias]
    found = [cache.get("first", "none")]
    cache.set("first", {"a": [1]})
    found.append(cache.get("first"))
    found.append(cache.get_many(["first", "second", "third"]))
    found.append(cache.get_or_set("computed", lambda: 7, tags=()))
    found += [cache.get("computed"), cache.incr("computed")]
    found += [cache.has_key("first"), cache.delete("first"), cache.get("first")]
    # The toolbar puts itself into pages only.
    return HttpResponse(f"<html><body><main>{json.dumps(found)}</main></body></html>")


urlpatterns = [path("<str:alias>/", calls), path("__debug__/", include("debug_toolbar.urls"))]


def visited(alias):
    response = visitor.get(f"/{alias}/")
    assert response.status_code == 200, response.content
    body = response.content.decode()
    panel = toolbars.pop().get_panel_by_id("CachePanel")
    stats = panel.get_stats()
    return {
        "answer": json.loads(body.partition("<main>")[2].partition("</main>")[0]),
        "calls": [{name: str(call[name]) for name in ("name", "kwargs", "backend")} for call in stats["calls"]],
        "hits": stats["hits"],
        "misses": stats["misses"],
        "is_shown": all(call["name"] in panel.content for call in stats["calls"]) and 'id="djDebug"' in body,
    }


if __name__ == "__main__":
    toolbars = []
    DebugToolbar._created.connect(lambda toolbar, **kwargs: toolbars.append(toolbar), weak=False)
    visitor = Client()
    print(json.dumps({alias: visited(alias) for alias in ("default", "tiered")}))
