"""A Django project with pages that are easy to poison, with and without an HTTP cache.

A path begins with the lifetime of its page: see ``LIFETIMES``. Even errors have it. The header X-Application chooses
one of ``KINDS``, and is removed before the application sees the request. Environment: ``SITE_FOLDER``, the directory
of the database; ``SITE_DEBUG``, 1 or 0.
"""

import os
import re
from pathlib import Path

import django
from asgiref.sync import iscoroutinefunction, markcoroutinefunction
from django.conf import settings

from wheelcache.pages.django_pages import COMPANION, page_cache

MIDDLEWARE = [
    f"{__name__}.give_lifetime",
    "django.middleware.gzip.GZipMiddleware",
    f"{__name__}.show_token",
    "django.middleware.http.ConditionalGetMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    f"{__name__}.choose_zone",
]
LIFETIMES = {"long": "max-age=60", "short": "max-age=1", "renewed": "max-age=0, stale-while-revalidate=600"}

# GZipMiddleware compresses only long pages.
PAGE = '{% load i18n tz %}<html lang="{{ LANGUAGE_CODE }}"><p>{% translate "Yes" %}, {{ part }}</p>' + " word" * 50
TEMPLATES = {
    "page": PAGE,
    "user": PAGE + "<p>{{ user }} {{ perms.auth.view_user }}</p>",
    "form": PAGE + '<form method="post">{% csrf_token %}</form>',
}
PROCESSORS = ["template.context_processors.request", "template.context_processors.i18n"]
PROCESSORS += ["contrib.auth.context_processors.auth", "contrib.messages.context_processors.messages"]
LOADERS = [("locmem.Loader", TEMPLATES), ("app_directories.Loader",)]

settings.configure(
    ALLOWED_HOSTS=["example.com", "other.example", "127.0.0.1"],
    CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": "visited"}},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": Path(os.environ["SITE_FOLDER"]) / "database",
            "OPTIONS": {"timeout": 20},
        }
    },
    DEBUG=os.environ["SITE_DEBUG"] == "1",
    DISALLOWED_USER_AGENTS=[re.compile("bot")],
    INSTALLED_APPS=[
        *(f"django.contrib.{name}" for name in ("admin", "auth", "contenttypes", "messages", "sessions")),
        "wheelcache.django_backend",
    ],
    LANGUAGE_CODE="en",
    LANGUAGES=[("en", "English"), ("de", "Deutsch")],
    LOGGING_CONFIG=None,
    MIDDLEWARE=MIDDLEWARE,
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],
    ROOT_URLCONF=__name__,
    # Sites with the same key share the directory of their figures. A process of another test may be stopped while it
    # holds the lock there, and this site would log that.
    SECRET_KEY=f"not secret {os.environ['SITE_FOLDER']}",
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    STATIC_URL="/static/",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": [f"django.{name}" for name in PROCESSORS],
                "loaders": [(f"django.template.loaders.{name}", *how) for name, *how in LOADERS],
            },
        }
    ],
    USE_TZ=True,
    USE_X_FORWARDED_HOST=True,
    USE_X_FORWARDED_PORT=True,
)
django.setup()

from django.contrib import admin  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.http import HttpResponse, JsonResponse, StreamingHttpResponse  # noqa: E402
from django.middleware.csrf import get_token  # noqa: E402
from django.shortcuts import redirect, render  # noqa: E402
from django.urls import include, path, re_path  # noqa: E402
from django.utils import timezone  # noqa: E402
from django.utils.translation.trans_real import parse_accept_lang_header  # noqa: E402
from django.views.decorators.cache import cache_page, never_cache  # noqa: E402
from django.views.decorators.csrf import csrf_protect  # noqa: E402
from django.views.decorators.vary import vary_on_cookie, vary_on_headers  # noqa: E402


def on_the_way_out(change):
    """Return a middleware for both kinds of servers that calls ``change(request, response)``."""

    def middleware(get_response):
        if iscoroutinefunction(get_response):

            async def answer(request):
                return change(request, await get_response(request))

            return markcoroutinefunction(answer) or answer
        return lambda request: change(request, get_response(request))

    middleware.async_capable = middleware.sync_capable = True
    return middleware


@on_the_way_out
def give_lifetime(request, response):
    """Let every response be stored that does not forbid it, errors too."""
    if response.get("Cache-Control", "max-age=60") == "max-age=60":
        response["Cache-Control"] = LIFETIMES.get(request.path_info.split("/")[1], "max-age=60")
    return response


@on_the_way_out
def show_token(request, response):
    """Get a CSRF token outside CsrfViewMiddleware, which then does not add its Vary."""
    if "outer" in request.path_info:
        response.content += f'<input name="csrfmiddlewaretoken" value="{get_token(request)}">'.encode()
        response["Content-Length"] = str(len(response.content))
        del response["ETag"]
    return response


def choose_zone(get_response):
    def middleware(request):
        with timezone.override(request.COOKIES.get("zone", "UTC")):
            return get_response(request)

    return middleware


# Views. Each page depends on one part of the request.


def page(request, part=""):
    return render(request, "page", {"part": part})


def rendering(template):
    return lambda request: render(request, template)


def marked(request):
    response = page(request)
    response.set_cookie("visited", "yes", max_age=60)
    return response


def streamed(request):
    def body():
        yield f"{request.user} " + "x" * 1000

    async def async_body():
        yield f"{await request.auser()} " + "x" * 1000

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


async def scope(request):
    """Show headers and the client's cookies without the request's own attributes."""
    headers = dict(request.scope["headers"]) if hasattr(request, "scope") else {}
    return HttpResponse(repr([headers.get(name) for name in (b"x-country", b"user-agent", b"cookie")]))


READ = {
    "plain": lambda request: "",
    "zone": lambda request: timezone.get_current_timezone_name(),
    "theme": lambda request: request.COOKIES.get("theme", "light"),
    "url": lambda request: [request.build_absolute_uri(), request.scheme, request.get_full_path()],
    "country": lambda request: request.headers.get("X-Country", "none"),
    "address": lambda request: request.META["REMOTE_ADDR"],
    "query": lambda request: sorted(request.GET.lists()),
    "body": lambda request: [request.body, sorted(request.POST.lists())],
    "agent": lambda request: request.META.get("HTTP_USER_AGENT", ""),
    "method": lambda request: request.method,
    "connection": lambda request: [request.META.get(f"HTTP_{name}") for name in ("CONNECTION", "TE")],
    "all_headers": lambda request: sorted(set(request.headers) - {"X-Application"}),
    "all_cookies": lambda request: sorted(request.COOKIES),
    "session": lambda request: request.session.get("_auth_user_id"),
    "token_cookie": lambda request: request.COOKIES.get("csrftoken"),
    "token_meta": lambda request: request.META.get("CSRF_COOKIE"),
    "outer": lambda request: "",
}


def accepted_languages(request):
    return parse_accept_lang_header(request.headers.get("Accept-Language", ""))


def showing(read):
    return lambda request: page(request, read(request))


VIEWS = {
    **{name: showing(read) for name, read in READ.items()},
    "language": vary_on_headers("Accept-Language")(showing(accepted_languages)),
    "first": vary_on_headers("X-Country")(showing(READ["country"])),
    "user": rendering("user"),
    "form": rendering("form"),
    "marked": marked,
    "streamed": streamed,
    "content_type": lambda request: JsonResponse({}) if "json" in request.content_type else page(request),
    "accepts": lambda request: JsonResponse({}) if request.accepts("application/json") else page(request),
    "moved": lambda request: redirect(request.build_absolute_uri(request.GET.get("n", "1")), permanent=True),
    "kept": cache_page(60)(page),
    "kept_user": cache_page(60)(vary_on_cookie(rendering("user"))),
    "kept_form": cache_page(60)(csrf_protect(rendering("form"))),
    "fresh": never_cache(page),
    "scope": scope,
}
views = [path(f"{name}/", view) for name, view in VIEWS.items()]
views += [re_path("^at/", showing(lambda request: request.path_info))]
urlpatterns = [path(f"{lifetime}/", include(views)) for lifetime in LIFETIMES]
urlpatterns += [path("pid", lambda request: JsonResponse({})), path("paths", lambda request: JsonResponse(PATHS))]
urlpatterns += [path("admin/", admin.site.urls)]

LEAKY = ["token_cookie", "token_meta", "outer", "scope"]
# ``cache_page`` answers differently at the second request, also without a cache in front.
OTHERS = [name for name in VIEWS if name not in LEAKY and not name.startswith("kept")]
PATHS = {
    "pages": [*(f"/{{life}}/{name}/" for name in OTHERS), "/{life}/at/some", "/{life}/missing/"],
    "leaky": [f"/{{life}}/{name}/" for name in LEAKY],
}
"""The paths of the pages, which take one of ``LIFETIMES``. Leaky ones show a secret, although no Vary says so."""


if not Path(settings.DATABASES["default"]["NAME"]).exists():
    call_command("migrate", verbosity=0)
    User.objects.create_superuser("alice", password="of alice")
    User.objects.create_user("bob", password="of bob", is_staff=True)


def applications(middleware):
    """Return the WSGI and the ASGI application with this middleware."""
    settings.MIDDLEWARE = middleware
    return WSGIHandler(), ASGIHandler()


uncached, cached = applications(MIDDLEWARE), applications([COMPANION, *MIDDLEWARE])
cache = page_cache(max_bytes=256 << 20)
KINDS = {"cached": (cache.wsgi(cached[0]), cache.asgi(cached[1])), "uncached": uncached}


def wsgi(environ, start_response):
    return KINDS[environ.pop("HTTP_X_APPLICATION", "uncached")][0](environ, start_response)


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = [pair for pair in scope["headers"] if pair[0] != b"x-application"]
    kind = dict(scope["headers"]).get(b"x-application", b"uncached").decode()
    await KINDS[kind][1]({**scope, "headers": headers}, receive, send)
