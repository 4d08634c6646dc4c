"""Sites with a dashboard, in both frameworks, and requests to them."""

import json

import flask
import flask_caching
from django.core.cache import caches
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import include, path
from werkzeug.middleware.proxy_fix import ProxyFix

from tests.watch.on_both.dashboard_page import FIGURES, PAGE, SENT, config_in
from wheelcache.watch import flask_dashboard

urlpatterns = [path("wheelcache/", include("wheelcache.watch.urls")), path("", lambda _: HttpResponse())]


class LoggedIn:
    """Log every visitor in as the same user."""

    def __init__(self, get_response):
        self.get_response = get_response

    def __call__(self, request):
        from django.contrib.auth.models import User

        request.user = User(username="ann")
        return self.get_response(request)


OPERATE = frozenset({"operate"})

GRANTED = []
"""The permissions of the user of a ``DjangoSite``. Django gives no test a place in its authentication backends."""


class Granted:
    """An authentication backend with one user, as far as ``has_perm`` is concerned."""

    def has_perm(self, user, permission, obj=None):
        return permission.removeprefix("wheelcache.") in GRANTED


class DjangoSite:
    user = "ann"

    def __init__(self, stack, figures_dir, name="atlas", *middleware, inspect=False, grant=OPERATE, **settings):
        self.stack = stack
        stack.callback(GRANTED.clear)
        GRANTED[:] = grant or ()
        options = {"FIGURES_DIR": figures_dir, "INSPECT": inspect}
        cache = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": name, "OPTIONS": options}
        stack.enter_context(
            override_settings(
                CACHES={"default": cache},
                ROOT_URLCONF=__name__,
                **{
                    "INSTALLED_APPS": ["django.contrib.auth", "django.contrib.contenttypes"],
                    "AUTHENTICATION_BACKENDS": [f"{__name__}.Granted"],
                    "MIDDLEWARE": [*middleware, f"{__name__}.LoggedIn"],
                    **settings,
                },
            )
        )
        self.cache = caches["default"]

    def browser(self):
        return Client(enforce_csrf_checks=True)

    def ask(self, browser, method, url, data=None, headers=None, environ=None):
        """Return the status, the headers and the text."""
        response = getattr(browser, method)(url, data or {}, headers=headers or {}, **environ or {})
        return response.status_code, response.headers, response.content.decode()

    def trust_proxy(self):
        self.stack.enter_context(override_settings(USE_X_FORWARDED_HOST=True))


class GuardedDjangoSite(DjangoSite):
    """A site without users: a function of its own lets requests in."""

    user = "the dashboard, from 127.0.0.1"

    def __init__(self, stack, figures_dir, name="atlas", inspect=False, grant=OPERATE):
        empty = dict.fromkeys(("INSTALLED_APPS", "AUTHENTICATION_BACKENDS", "MIDDLEWARE"), ())
        settings = {**empty, "WHEELCACHE_DASHBOARD_GUARD": lambda request: grant}
        super().__init__(stack, figures_dir, name, inspect=inspect, **settings)


class FlaskSite:
    user = "the dashboard, from 127.0.0.1"

    def __init__(self, stack, figures_dir, name="atlas", inspect=False, grant=OPERATE):
        self.app = flask.Flask(name)
        self.app.config.update(
            CACHE_TYPE="wheelcache.flask_backend.WheelCache",
            CACHE_OPTIONS={
                "figures_dir": figures_dir,
                "inspect": inspect,
            },
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

    def trust_proxy(self):
        self.app.wsgi_app = ProxyFix(self.app.wsgi_app, x_host=1)


class CsrfDjangoSite(DjangoSite):
    def __init__(self, stack, figures_dir, name="atlas", **given):
        super().__init__(stack, figures_dir, name, "django.middleware.csrf.CsrfViewMiddleware", **given)


GUARDED = {"django with a guard": GuardedDjangoSite, "flask": FlaskSite}
SITES = {"django": DjangoSite, "django with the CSRF middleware": CsrfDjangoSite, **GUARDED}


def config_of(site, browser):
    return config_in(site.ask(browser, "get", PAGE)[2])


def press(site, url, data=None, **headers):
    status, _, text = site.ask(site.browser(), "post", url, data, {**SENT, **headers})
    return status, json.loads(text)


def figures(site, query=""):
    return json.loads(site.ask(site.browser(), "get", FIGURES + query)[2])
