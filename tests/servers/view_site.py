"""A Django site that counts the look-ups of its pages by URL in a file, independently of the cache.

Environment: VIEW_SITE_DIRECTORY, with the figures and the file ``lookups``: a line for each look-up, with the process,
the view that its URL belongs to, and whether there was a value.
"""

import os
from contextvars import ContextVar
from pathlib import Path

import django
from django.conf import settings

from wheelcache.django_backend import WheelCache
from wheelcache.engine.keys import NO_VIEW

DIRECTORY = Path(os.environ["VIEW_SITE_DIRECTORY"])
VIEWS = {"product": "shop:product", "about": "about", "basket": "shop:basket", "fails": "fails"}
"""The names of the views by the first part of the path."""

lookups = os.open(DIRECTORY / "lookups", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
view = ContextVar("view")


class Counting(WheelCache):
    def get(self, key, default=None, version=None):
        found = super().get(key, default, version)
        # A single system call, so that other processes cannot interleave.
        os.write(lookups, f"{os.getpid()} {view.get()} {'hit' if found is not default else 'miss'}\n".encode())
        return found


if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"],
        CACHES={
            "default": {
                "BACKEND": f"{__name__}.Counting",
                "LOCATION": "pages",
                "TIMEOUT": 5,
                "OPTIONS": {"FIGURES_DIR": str(DIRECTORY / "figures")},
            }
        },
        MIDDLEWARE=[
            "django.middleware.cache.UpdateCacheMiddleware",
            "django.middleware.cache.FetchFromCacheMiddleware",
        ],
        ROOT_URLCONF=__name__,
        SECRET_KEY="not secret",
        CACHE_MIDDLEWARE_SECONDS=5,
    )
    django.setup()

from django.core.wsgi import get_wsgi_application  # noqa: E402
from django.http import JsonResponse  # noqa: E402
from django.urls import include, path  # noqa: E402
from django.views.decorators.cache import cache_control  # noqa: E402


def product(request, number):
    return JsonResponse({"product": number})


@cache_control(private=True)
def basket(request):
    return JsonResponse({"basket": []})


def about(request):
    return JsonResponse({"about": "us"})


def fails(request):
    raise ValueError("on purpose")


shop = [path("product/<int:number>", product, name="product"), path("basket", basket, name="basket")]
urlpatterns = [
    path("", include((shop, "shop"))),
    path("about", about, name="about"),
    path("fails", fails, name="fails"),
]

site = get_wsgi_application()


def application(environ, start_response):
    view.set(VIEWS.get(environ["PATH_INFO"].split("/")[1], NO_VIEW))
    return site(environ, start_response)
