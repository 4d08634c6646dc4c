"""The applications that ``page_rows`` serves, each for WSGI and ASGI: a page of 24 kB of Django, and constants.

Environment: ``PAGE_CACHE`` is ``ours`` (the HTTP cache), ``constant``, or a key of ``BACKENDS``, over which the site
has ``cache_page``, and ``PAGE_FOLDER`` is a folder for the entries of HostCache.
"""

import os
from typing import Any

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, HttpResponse
from django.urls import path
from django.views.decorators.cache import cache_control, cache_page

from benchmarks import DEFAULT_MIDDLEWARE
from wheelcache.pages import HTTPCache
from wheelcache.pages.page import as_text

KIND = os.environ["PAGE_CACHE"]
BODY = b"<p>A paragraph of the page.</p>\n" * 750
LIFETIME = 3600
BACKENDS = {
    "locmem": "django.core.cache.backends.locmem.LocMemCache",
    "wheel": "wheelcache.django_backend.WheelCache",
    "host": "wheelcache.django_backend.HostCache",
}

HEADERS = [
    (b"content-type", b"text/html; charset=utf-8"),
    (b"cache-control", b"max-age=3600"),
    (b"x-frame-options", b"DENY"),
    (b"vary", b"Cookie"),
    (b"content-length", b"%d" % len(BODY)),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"age", b"0"),
    (b"cache-status", b"wheelcache; hit; ttl=3600"),
]
"""The headers of a hit of wheelcache."""

WSGI_HEADERS = as_text(HEADERS)


def view(request: HttpRequest) -> HttpResponse:
    return HttpResponse(BODY)


if KIND != "constant":
    settings.configure(
        ALLOWED_HOSTS=["*"],
        ROOT_URLCONF=__name__,
        SECRET_KEY="benchmark",
        CACHES={"default": {"BACKEND": BACKENDS.get(KIND, BACKENDS["locmem"]), "LOCATION": os.environ["PAGE_FOLDER"]}},
        INSTALLED_APPS=[
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.sessions",
            "wheelcache.django_backend",
        ],
        MIDDLEWARE=DEFAULT_MIDDLEWARE,
    )
    django.setup()
    cached = cache_page(LIFETIME) if KIND in BACKENDS else cache_control(max_age=LIFETIME)
    urlpatterns = [path("", cached(view))]


def constant_wsgi(environ: Any, start_response: Any) -> list[bytes]:
    start_response("200 OK", WSGI_HEADERS.copy())
    return [BODY]


async def constant_asgi(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] == "http":
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS.copy()})
        await send({"type": "http.response.body", "body": BODY})


wsgi: Any = constant_wsgi if KIND == "constant" else WSGIHandler()
asgi: Any = constant_asgi if KIND == "constant" else ASGIHandler()
if KIND == "ours":
    pages = HTTPCache()
    wsgi, asgi = pages.wsgi(wsgi), pages.asgi(asgi)
