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

from tests.pages.site import AsgiSite, WsgiSite, answer_of, site_on
from tests.scripts import ROOT
from wheelcache.flask_backend import HTTPCache
from wheelcache.pages import NOTES_KEY
from wheelcache.pages.django_pages import COMPANION, make_cache
from wheelcache.pages.reads import Reads

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


def numbering(view, response_class):
    """Return a view of the framework whose texts are numbered: those of ``view(request)``, which may be a response."""

    def numbered(found):
        is_response = isinstance(found, (HttpResponseBase, flask.Response))
        return found if is_response else response_class(f"{found} {next(numbers)}")

    # Flask passes no request.
    async def respond_async(*request, **parts):
        return numbered(await view(*request or [flask.request], **parts))

    def respond(*request, **parts):
        return numbered(view(*request or [flask.request], **parts))

    return respond_async if iscoroutinefunction(view) else respond


class Django:
    """A site of Django. ``interface`` is that of its ``handler``."""

    session_cookie = "sessionid"

    def __init__(self, clock, middleware=lambda app: app, **options):
        self.cache = make_cache(site_on(clock, has_companion=True), "pages", options)
        self.app = getattr(self.cache, self.interface)(middleware(self.handler()))

    def add(self, target, view, seconds=60):
        """Add a page of ``view(request)``, a response or text, which is numbered. ``seconds`` are its lifetime."""
        responds = numbering(view, HttpResponse)
        responds = responds if seconds is None else cache_control(max_age=seconds)(responds)
        settings.ROOT_URLCONF.urlpatterns.append(path(target.removeprefix("/"), responds, name=target[1:]))


class DjangoOnWsgi(Django, WsgiSite):
    interface, handler = "wsgi", WSGIHandler

    def ask(self, *parts):
        # Without wsgiref's validator, which refuses other classes of environ than dict.
        return answer_of(self.app, {**self.environ(*parts), "wsgi.input": BytesIO(parts[-1])})


class DjangoOnAsgi(Django, AsgiSite):
    interface, handler = "asgi", ASGIHandler


class AsyncAroundSync(DjangoOnAsgi):
    """A middleware that is not async makes Django call all of them in a thread."""

    def __init__(self, clock, **options):
        settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.not_async"]
        super().__init__(clock, **options)


def not_async(get_response):
    return lambda request: get_response(request)


class Flask(WsgiSite):
    session_cookie = "session"

    def __init__(self, clock, middleware=lambda app: ProxyFix(app, x_host=1), **options):
        self.cache = HTTPCache(**{"figures_dir": None, **options})
        self.cache._site = site_on(clock, has_companion=True)
        self.app = self.flask = flask.Flask(__name__)
        self.flask.secret_key = "not secret"
        self.flask.wsgi_app = middleware(self.flask.wsgi_app)
        self.cache.init_app(self.flask)
        self.flask.get("/login/<name>")(lambda name: flask.session.update(name=name) or "hello")

    def add(self, target, view, seconds=60):
        responds = numbering(view, flask.Response)
        responds = responds if seconds is None else self.cache.cached(seconds)(responds)
        self.flask.add_url_rule(target, target[1:], responds)


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


def query_of(request):
    return request.GET if hasattr(request, "GET") else request.args


# Where a page reads what it depends on.


def line_of(path, text):
    """Return the number of the first line of a file that contains ``text``."""
    lines = (ROOT / path).read_text().splitlines()
    return next(number for number, line in enumerate(lines, 1) if text in line)


def traced(site, *request):
    """Make a request whose reads are recorded. Return them."""
    traces = Reads()
    behind_cache = site.flask.wsgi_app if hasattr(site, "flask") else site.app
    application = behind_cache._app

    def with_traces(environ, *args):
        environ[NOTES_KEY].traces = traces
        return application(environ, *args)

    behind_cache._app = with_traces
    assert site.get(*request).status == 200
    return traces
