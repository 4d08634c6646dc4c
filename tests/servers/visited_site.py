"""A Django project with the usual middleware, behind HTTP caches with different options, and without one.

The header X-Application chooses one of ``KINDS``, and is removed before the application sees the request. Environment:
``VISITED_SITE``, the directory of the database; ``VISITED_DEBUG``, which is 1 or 0.
"""

import os
import re
from pathlib import Path

import django
from django.conf import settings

from wheelcache.pages import HTTPCache
from wheelcache.pages.django_pages import COMPANION, page_cache

MIDDLEWARE = [
    "django.middleware.gzip.GZipMiddleware",
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
WHOLE_SITE = ["django.middleware.cache.UpdateCacheMiddleware", "django.middleware.cache.FetchFromCacheMiddleware"]

PAGE = """{% load i18n tz %}<html lang="{{ LANGUAGE_CODE }}"><p>{% translate "Yes" %}, {{ part }}</p>
<p>A page is compressed only if it is long enough, so here are some more words, and some more, and some more.</p>
<p>A page is compressed only if it is long enough, so here are some more words, and some more, and some more.</p>"""
USER = PAGE + "<p>{{ user }} {{ perms.auth.view_user }}</p>"
FORM = PAGE + '<form method="post">{% csrf_token %}</form>'
MESSAGES = PAGE + "{% for message in messages %}<p>{{ message }}</p>{% endfor %}"

settings.configure(
    ALLOWED_HOSTS=["example.com", "other.example", "127.0.0.1"],
    CACHES={"default": {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": "visited"}},
    DATABASES={
        "default": {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": Path(os.environ["VISITED_SITE"]) / "database",
            "OPTIONS": {"timeout": 20},
        }
    },
    DEBUG=os.environ["VISITED_DEBUG"] == "1",
    DISALLOWED_USER_AGENTS=[re.compile("bot")],
    INSTALLED_APPS=[
        "django.contrib.admin",
        "django.contrib.auth",
        "django.contrib.contenttypes",
        "django.contrib.messages",
        "django.contrib.sessions",
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
    SECRET_KEY=f"not secret {os.environ['VISITED_SITE']}",
    SECURE_PROXY_SSL_HEADER=("HTTP_X_FORWARDED_PROTO", "https"),
    STATIC_URL="/static/",
    TEMPLATES=[
        {
            "BACKEND": "django.template.backends.django.DjangoTemplates",
            "OPTIONS": {
                "context_processors": [
                    "django.template.context_processors.request",
                    "django.template.context_processors.i18n",
                    "django.contrib.auth.context_processors.auth",
                    "django.contrib.messages.context_processors.messages",
                ],
                "loaders": [
                    (
                        "django.template.loaders.locmem.Loader",
                        {"page": PAGE, "user": USER, "form": FORM, "messages": MESSAGES},
                    ),
                    "django.template.loaders.app_directories.Loader",
                ],
            },
        }
    ],
    USE_TZ=True,
    USE_X_FORWARDED_HOST=True,
)
django.setup()

from django.contrib import admin, messages  # noqa: E402
from django.contrib.auth.models import User  # noqa: E402
from django.core.handlers.asgi import ASGIHandler  # noqa: E402
from django.core.handlers.wsgi import WSGIHandler  # noqa: E402
from django.core.management import call_command  # noqa: E402
from django.http import Http404, JsonResponse, StreamingHttpResponse  # noqa: E402
from django.shortcuts import redirect, render  # noqa: E402
from django.urls import path  # noqa: E402
from django.utils import timezone  # noqa: E402
from django.utils.cache import patch_response_headers  # noqa: E402
from django.views.decorators.cache import cache_control, cache_page, never_cache  # noqa: E402
from django.views.decorators.csrf import csrf_protect  # noqa: E402
from django.views.decorators.vary import vary_on_cookie  # noqa: E402

for_a_minute = cache_control(max_age=60)


def renew(get_response):
    """Let every page that may be stored be renewed after each use."""

    def middleware(request):
        response = get_response(request)
        if response.get("Cache-Control") == "max-age=60":
            response["Cache-Control"] = "max-age=0, stale-while-revalidate=600"
        return response

    return middleware


def choose_zone(get_response):
    def middleware(request):
        with timezone.override(request.COOKIES.get("zone", "UTC")):
            return get_response(request)

    return middleware


def page(request, part=""):
    return render(request, "page", {"part": part})


def showing(name, read):
    """Return a view ``name`` whose page shows ``read(request)``."""

    def view(request):
        return page(request, read(request))

    view.__name__ = name
    return for_a_minute(view)


plain = showing("plain", lambda request: "")
zone = showing("zone", lambda request: timezone.get_current_timezone_name())
theme = showing("theme", lambda request: request.COOKIES.get("theme", "light"))
url = showing("url", lambda request: request.build_absolute_uri("/"))
country = showing("country", lambda request: request.headers.get("X-Country", "none"))
address = showing("address", lambda request: request.META["REMOTE_ADDR"])


@for_a_minute
def user(request):
    return render(request, "user")


@for_a_minute
def form(request):
    if request.method == "POST":
        messages.success(request, "saved")
        return redirect("/messages/")
    return render(request, "form")


@for_a_minute
def said(request):
    return render(request, "messages")


@cache_page(60)
def kept(request):
    return page(request)


@cache_page(60)
@vary_on_cookie
def kept_theme(request):
    return page(request, request.COOKIES.get("theme", "light"))


@cache_page(60)
@vary_on_cookie
def kept_user(request):
    return render(request, "user")


@cache_page(60)
@csrf_protect
def kept_form(request):
    return render(request, "form")


def expires(request):
    response = page(request)
    patch_response_headers(response, 60)
    return response


@never_cache
def fresh(request):
    return page(request)


@for_a_minute
def moved(request):
    return redirect(request.build_absolute_uri("/plain/"))


@for_a_minute
def marked(request):
    response = page(request)
    response.set_cookie("visited", "yes", max_age=60)
    return response


@for_a_minute
def streamed(request):
    def body():
        yield f"{request.user} "
        yield "x" * 1000

    async def async_body():
        yield f"{await request.auser()} "
        yield "x" * 1000

    return StreamingHttpResponse(async_body() if hasattr(request, "scope") else body())


@for_a_minute
def missing(request):
    raise Http404


def broken(request):
    raise ArithmeticError


def quiet(request):
    return JsonResponse({})


VIEWS = [
    *(plain, zone, theme, url, country, address, user, form, kept, kept_theme, kept_user, kept_form, expires, fresh),
    *(moved, marked, streamed, missing, broken),
]
urlpatterns = [path(f"{view.__name__}/", view) for view in VIEWS]
urlpatterns += [path("messages/", said), path("admin/", admin.site.urls), path("pid", quiet)]


def fill_database():
    """Make the database, if this is the first server, with Alice, who may do everything, and Bob."""
    if not Path(settings.DATABASES["default"]["NAME"]).exists():
        call_command("migrate", verbosity=0)
        User.objects.create_superuser("alice", password="of alice")
        User.objects.create_user("bob", password="of bob", is_staff=True)


def behind(middleware, make_cache=None):
    """Return the WSGI and the ASGI application with this middleware, behind a cache if one is made."""
    settings.MIDDLEWARE = middleware
    applications = WSGIHandler(), ASGIHandler()
    if make_cache is None:
        return applications
    cache = make_cache()
    return cache.wsgi(applications[0]), cache.asgi(applications[1])


fill_database()
KINDS = {
    "wrapper": behind([COMPANION, *MIDDLEWARE], page_cache),
    "whole site": behind([COMPANION, WHOLE_SITE[0], *MIDDLEWARE, WHOLE_SITE[1]], page_cache),
    "renewed": behind([COMPANION, f"{__name__}.renew", *MIDDLEWARE], page_cache),
    "bare": behind(MIDDLEWARE, HTTPCache),
    "uncached": behind(MIDDLEWARE),
}


def wsgi(environ, start_response):
    return KINDS[environ.pop("HTTP_X_APPLICATION", "uncached")][0](environ, start_response)


async def asgi(scope, receive, send):
    if scope["type"] != "http":
        return
    headers = [pair for pair in scope["headers"] if pair[0] != b"x-application"]
    kind = dict(scope["headers"]).get(b"x-application", b"uncached").decode()
    await KINDS[kind][1]({**scope, "headers": headers}, receive, send)
