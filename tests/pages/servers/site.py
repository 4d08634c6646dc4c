"""A Django project with pages that are easy to poison, with and without an HTTP cache.

A path begins with the lifetime of its page: see ``LIFETIMES``. Even errors have it. The header X-Application chooses
one of ``KINDS``, and is removed before the application sees the request.
"""

import re
import secrets

import django
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse, JsonResponse
from django.middleware.csrf import get_token
from django.shortcuts import redirect
from django.urls import include, path, re_path
from django.utils import timezone
from django.utils.translation import get_language, gettext
from django.views.decorators.cache import never_cache
from django.views.decorators.vary import vary_on_headers

from wheelcache.pages.django_pages import COMPANION, page_cache

MIDDLEWARE = [
    f"{__name__}.give_lifetime",
    "django.middleware.gzip.GZipMiddleware",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    f"{__name__}.choose_zone",
]
LIFETIMES = {"long": "max-age=60", "short": "max-age=1", "renewed": "max-age=0, stale-while-revalidate=600"}

settings.configure(
    ALLOWED_HOSTS=["example.com", "other.example", "127.0.0.1"],
    CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": "visited"}},
    DISALLOWED_USER_AGENTS=[re.compile("bot")],
    INSTALLED_APPS=["wheelcache.django_backend"],
    LANGUAGE_CODE="en",
    LANGUAGES=[("en", "English"), ("de", "Deutsch")],
    LOGGING_CONFIG=None,
    MIDDLEWARE=MIDDLEWARE,
    ROOT_URLCONF=__name__,
    # Sites with the same key share the directory of their figures. A process of another test may be stopped while it
    # holds the lock there, and this site would log that.
    SECRET_KEY=secrets.token_hex(),
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    SESSION_ENGINE="django.contrib.sessions.backends.signed_cookies",
    USE_TZ=True,
    USE_X_FORWARDED_HOST=True,
    USE_X_FORWARDED_PORT=True,
)
django.setup()


def give_lifetime(get_response):
    """Let every response be stored that does not forbid it, errors too."""

    def middleware(request):
        response = get_response(request)
        if response.get("Cache-Control", "max-age=60") == "max-age=60":
            response["Cache-Control"] = LIFETIMES.get(request.path_info.split("/")[1], "max-age=60")
        return response

    return middleware


def choose_zone(get_response):
    def middleware(request):
        with timezone.override(request.COOKIES.get("zone", "UTC")):
            return get_response(request)

    return middleware


# Views. Each page depends on one part of the request.


def page(request, part="", more=""):
    # GZipMiddleware compresses only long pages.
    return HttpResponse(f'<html lang="{get_language()}"><p>{gettext("Yes")}, {part}</p>{" word" * 50}{more}')


def form(request):
    return page(request, more=f'<input name="csrfmiddlewaretoken" value="{get_token(request)}">')


def user(request):
    return page(request, request.session.get("name"))


def showing(read):
    return lambda request: page(request, read(request))


def login(request, name):
    request.session["name"] = name
    return HttpResponse()


READ = {
    "plain": lambda request: "",
    "zone": lambda request: timezone.get_current_timezone_name(),
    "theme": lambda request: request.COOKIES.get("theme", "light"),
    "url": lambda request: [request.build_absolute_uri(), request.scheme, request.get_full_path()],
    "country": lambda request: request.headers.get("X-Country", "none"),
    "address": lambda request: request.META["REMOTE_ADDR"],
    "query": lambda request: sorted(request.GET.lists()),
    "body": lambda request: [request.body, sorted(request.POST.lists())],
    "method": lambda request: request.method,
    "connection": lambda request: [request.META.get(f"HTTP_{name}") for name in ("CONNECTION", "TE")],
    "all_headers": lambda request: sorted(set(request.headers) - {"X-Application"}),
    "session": lambda request: request.session.get("name"),
}
VIEWS = {
    **{name: showing(read) for name, read in READ.items()},
    "first": vary_on_headers("X-Country")(showing(READ["country"])),
    "user": user,
    "form": form,
    "content_type": lambda request: JsonResponse({}) if "json" in request.content_type else page(request),
    "accepts": lambda request: JsonResponse({}) if request.accepts("application/json") else page(request),
    "moved": lambda request: redirect(request.build_absolute_uri(request.GET.get("n", "1")), permanent=True),
    "fresh": never_cache(page),
}
PATHS = [f"/{{life}}/{name}/" for name in [*VIEWS, "missing"]] + ["/{life}/at/some"]
"""The paths of the pages, which take one of ``LIFETIMES``."""

views = [path(f"{name}/", view) for name, view in VIEWS.items()]
views += [re_path("^at/", showing(lambda request: request.path_info))]
urlpatterns = [path(f"{lifetime}/", include(views)) for lifetime in LIFETIMES]
urlpatterns += [path("pid", lambda request: JsonResponse({})), path("login/<name>", login)]
urlpatterns += [path("paths", lambda request: JsonResponse(PATHS, safe=False))]


def applications(middleware):
    """Return the WSGI and the ASGI application with this middleware."""
    settings.MIDDLEWARE = middleware
    return WSGIHandler(), ASGIHandler()


uncached, cached = applications(MIDDLEWARE), applications([COMPANION, *MIDDLEWARE])
cache = page_cache(max_bytes=256 << 20)
KINDS = {"cached": (cache.wsgi(cached[0]), cache.asgi(cached[1])), "uncached": uncached}


def wsgi(environ, start_response):
    return KINDS[environ.pop("HTTP_X_APPLICATION", "cached")][0](environ, start_response)


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = [pair for pair in scope["headers"] if pair[0] != b"x-application"]
    kind = dict(scope["headers"]).get(b"x-application", b"cached").decode()
    await KINDS[kind][1]({**scope, "headers": headers}, receive, send)
