"""Sites with a dashboard, in both frameworks, and requests to them."""

import json
from io import StringIO
from types import SimpleNamespace

import flask
import flask_caching
from django.core.cache import caches
from django.core.management import CommandError, call_command
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.watch.on_both.dashboard_page import FIGURES, PAGE, SENT, config_in
from wheelcache.watch import flask_dashboard
from wheelcache.watch.django_command import Command
from wheelcache.watch.flask_commands import wheelcache

urlpatterns = [path("wheelcache/", include("wheelcache.watch.urls")), path("", lambda _: HttpResponse())]


OPERATE = frozenset({"operate"})

GRANTED = []
"""The permissions of the user of a ``DjangoSite``."""


class LoggedIn:
    """Log every visitor in as the same user."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        request.user = SimpleNamespace(
            is_authenticated=True,
            has_perm=lambda permission: permission.removeprefix("wheelcache.") in GRANTED,
            get_username=lambda: "ann",
        )
        return self.get_response(request)


class DjangoSite:
    user = "ann"
    alias = "default"
    middleware = (f"{__name__}.LoggedIn",)

    def __init__(self, stack, figures_dir, name="atlas", grant=OPERATE, **settings):
        self.stack = stack
        GRANTED[:] = grant or ()
        options = {"FIGURES_DIR": figures_dir}
        cache = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": name, "OPTIONS": options}
        given = {"CACHES": {"default": cache}, "ROOT_URLCONF": __name__, "INSTALLED_APPS": ()}
        stack.enter_context(override_settings(**given, MIDDLEWARE=self.middleware, **settings))
        self.cache = caches["default"]

    def browser(self):
        return Client(enforce_csrf_checks=True)

    def ask(self, browser, method, url, data=None, headers=None, environ=None):
        """Return the status, the headers and the text."""
        response = getattr(browser, method)(url, data or {}, headers=headers or {}, **environ or {})
        return response.status_code, response.headers, response.content.decode()

    def command(self, *arguments):
        """Run the command. Return its output, and the reason of its failure."""
        out = StringIO()
        try:
            call_command(Command(), *arguments, stdout=out)
        except CommandError as error:
            return out.getvalue(), str(error)
        return out.getvalue(), None

    def trust_proxy(self):
        self.stack.enter_context(override_settings(USE_X_FORWARDED_HOST=True))


class CsrfDjangoSite(DjangoSite):
    middleware = ("django.middleware.csrf.CsrfViewMiddleware", *DjangoSite.middleware)


class GuardedDjangoSite(DjangoSite):
    """A site without users: a function of its own lets requests in."""

    user = "the dashboard, from 127.0.0.1"
    middleware = ()

    def __init__(self, stack, figures_dir, name="atlas", grant=OPERATE):
        super().__init__(stack, figures_dir, name, WHEELCACHE_DASHBOARD_GUARD=lambda request: grant)


class FlaskSite:
    user = "the dashboard, from 127.0.0.1"
    alias = "atlas"

    def __init__(self, stack, figures_dir, name="atlas", grant=OPERATE):
        self.app = flask.Flask(name)
        self.app.config.update(
            CACHE_TYPE="wheelcache.flask_backend.WheelCache",
            CACHE_OPTIONS={"figures_dir": figures_dir},
            SECRET_KEY="not secret",
        )
        cache = flask_caching.Cache(self.app)
        self.app.register_blueprint(flask_dashboard.dashboard(lambda: grant))
        self.cache = self.app.extensions["cache"][cache]

    def browser(self):
        return self.app.test_client()

    def ask(self, browser, method, url, data=None, headers=None, environ=None):
        response = getattr(browser, method)(url, data=data, headers=headers, environ_overrides=environ)
        return response.status_code, response.headers, response.text

    def command(self, *arguments):
        done = self.app.test_cli_runner().invoke(wheelcache, arguments)
        return ("", done.output) if done.exit_code else (done.output, None)

    def trust_proxy(self):
        self.app.wsgi_app = ProxyFix(self.app.wsgi_app, x_host=1)


GUARDED = {"django with a guard": GuardedDjangoSite, "flask": FlaskSite}
SITES = {"django": DjangoSite, "django with the CSRF middleware": CsrfDjangoSite, **GUARDED}


def config_of(site, browser):
    return config_in(site.ask(browser, "get", PAGE)[2])


def press(site, url, data=None, **headers):
    status, _, text = site.ask(site.browser(), "post", url, data, {**SENT, **headers})
    return status, json.loads(text)


def events(site):
    """Return the kind, the cache and the text of each recent event, except the starts of workers."""
    found = [(each["kind"], each["cache"], each["text"]) for each in figures(site)["events"]]
    return [each for each in found if each[0] != "started"]


def figures(site, query=""):
    return json.loads(site.ask(site.browser(), "get", FIGURES + query)[2])
