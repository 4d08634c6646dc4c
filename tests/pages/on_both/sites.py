"""A site of each framework behind an HTTP cache. A test adds its pages: functions of the request of the framework."""

from io import BytesIO
from itertools import count, cycle

import flask
import pytest
from asgiref.sync import iscoroutinefunction
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpResponse
from django.http.response import HttpResponseBase
from django.urls import path
from django.views.decorators.cache import cache_control
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.pages.on_both.traces import traced
from tests.pages.site import AsgiSite, WsgiSite, answer_of, site_on
from wheelcache.flask_backend import HTTPCache
from wheelcache.pages.django_pages import COMPANION, make_cache

MIDDLEWARE = [
    COMPANION,
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
ONE, OTHER = "a" * 32, "b" * 32
"""Secrets of two visitors."""

numbers = count()


class Urls:
    """The URLs of a Django site, which may be added until its first request."""

    def __init__(self):
        self.urlpatterns = [path("login/<name>", login)]


def login(request, name):
    request.session["name"] = name
    return HttpResponse("hello")


class Django:
    """What the sites of Django have in common."""

    session_cookie = "sessionid"

    def add(self, target, view, seconds=60):
        """Add a page of ``view(request)``, a response or text, which is numbered. ``seconds`` are its lifetime."""

        def respond(request, **parts):
            found = view(request, **parts)
            return found if isinstance(found, HttpResponseBase) else numbered(found)

        async def respond_async(request, **parts):
            return numbered(await view(request, **parts))

        responds = respond_async if iscoroutinefunction(view) else respond
        responds = responds if seconds is None else cache_control(max_age=seconds)(responds)
        settings.ROOT_URLCONF.urlpatterns.append(path(target.removeprefix("/"), responds, name=target[1:]))

    def traced(self, *request):
        return traced(self, self.app, *request)


def numbered(text):
    return HttpResponse(f"{text} {next(numbers)}")


class DjangoOnWsgi(Django, WsgiSite):
    def __init__(self, clock, middleware=lambda app: app, **options):
        self.cache = make_cache(site_on(clock, has_companion=True), "pages", options)
        self.app = self.cache.wsgi(middleware(WSGIHandler()))

    def ask(self, *parts):
        # Without wsgiref's validator, which refuses other classes of environ than dict.
        return answer_of(self.app, {**self.environ(*parts), "wsgi.input": BytesIO(parts[-1])})


class DjangoOnAsgi(Django, AsgiSite):
    def __init__(self, clock, middleware=lambda app: app, **options):
        self.cache = make_cache(site_on(clock, has_companion=True), "pages", options)
        self.app = self.cache.asgi(middleware(ASGIHandler()))


class AsyncAroundSync(DjangoOnAsgi):
    """A middleware that is not async makes Django call all of them in a thread."""

    def __init__(self, clock, **options):
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.not_async"]
        super().__init__(clock, **options)


def not_async(get_response):
    return lambda request: get_response(request)


def cache_on(clock, **options):
    """Return a cache of Flask whose time the test moves."""
    cache = HTTPCache(**{"figures_dir": None, **options})
    cache._site = site_on(clock, has_companion=True)
    return cache


class Flask(WsgiSite):
    session_cookie = "session"

    def __init__(self, clock, app_class=flask.Flask, middleware=lambda app: ProxyFix(app, x_host=1), **options):
        self.cache = cache_on(clock, **options)
        self.flask = app_class(__name__)
        self.flask.secret_key = "not secret"
        self.flask.wsgi_app = middleware(self.flask.wsgi_app)
        self.cache.init_app(self.flask)
        self.app = self.flask
        self.flask.get("/login/<name>")(lambda name: flask.session.update(name=name) or "hello")

    def add(self, target, view, seconds=60):
        def respond(**parts):
            found = view(flask.request, **parts)
            return found if isinstance(found, flask.Response) else f"{found} {next(numbers)}"

        async def respond_async(**parts):
            return f"{await view(flask.request, **parts)} {next(numbers)}"

        responds = respond_async if iscoroutinefunction(view) else respond
        responds = responds if seconds is None else self.cache.cached(seconds)(responds)
        self.flask.add_url_rule(target, target[1:], responds)

    def ask(self, *parts):
        return answer_of(self.app, self.environ(*parts))

    def traced(self, *request):
        return traced(self, self.flask.wsgi_app, *request)


DJANGO = {"Django on WSGI": DjangoOnWsgi, "Django on ASGI": DjangoOnAsgi, "Django, not async": AsyncAroundSync}
SITES = {**DJANGO, "Flask": Flask}


def of_each(both=(), django=(), flask=()):
    """Parametrize a test with the items of tables: ``make_site`` and ``item``. Those of Django are spread over its
    three kinds of sites."""
    cases = [("Flask", *each) for each in {**dict(both), **dict(flask)}.items()]
    cases += [(kind, *each) for kind, each in zip(cycle(DJANGO), {**dict(both), **dict(django)}.items())]
    params = [pytest.param(kind, item, id=f"{kind}-{name}") for kind, name, item in cases]
    return pytest.mark.parametrize(("make_site", "item"), params, indirect=["make_site"])


def logged_in(site, name):
    return {"Cookie": site.get(f"/login/{name}")["set-cookie"].partition(";")[0].strip()}


def response_to(request, text, **headers):
    """Return a response of the framework, with these headers: underscores stand for hyphens."""
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return HttpResponse(text, headers=headers) if hasattr(request, "META") else flask.Response(text, headers=headers)


def session_of(request):
    return flask.session if hasattr(request, "endpoint") else request.session


def cookies_of(request):
    return request.COOKIES if hasattr(request, "COOKIES") else request.cookies


def environ_of(request):
    return request.META if hasattr(request, "META") else request.environ
