"""Sites of both frameworks, which cache the results of a function as pages, fragments and values of functions."""

from contextlib import contextmanager

import flask
import flask_caching
from django.core.cache import caches
from django.http import HttpResponse
from django.template import Context, Template
from django.test import Client, override_settings
from django.urls import path
from django.views.decorators.cache import cache_page

from tests.backends.adapter import QUIET, names
from tests.engines import engine, noted
from tests.guests import needs
from wheelcache.django_backend import memoize

TTL = 60
KINDS = {
    "WheelCache": (),
    "HostCache": [needs("host_cache")],
    "TieredCache": [needs("near_cache")],
}
"""The backends, and the marks of the tests that use them."""


class Site:
    def makers(self, kind):
        return self.page_makers if kind == "page" else 1


class DjangoSite(Site):
    """
    Attributes:
        compute: the function. A test sets it.
        page_makers: how often a page may be computed for callers that wait for each other. A page of Django has two
            entries, and a caller may look between the ends of the two.
        waited_for: keys of a page and of a fragment.
    """

    kinds = ("page", "fragment", "function")
    page_makers = 2
    waited_for = ("views.decorators.cache.cache_header..en-us.UTC", "template.cache.name.1")

    @contextmanager
    def running(self, kind="WheelCache", **options):
        spelled = {name.upper(): value for name, value in {**QUIET, **options}.items()}
        if kind == "TieredCache":
            spelled["L2"] = "behind"
        default = {"BACKEND": f"wheelcache.django_backend.{kind}", "LOCATION": next(names), "OPTIONS": spelled}
        behind = {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": next(names)}
        with override_settings(CACHES={"default": default, "behind": behind}, ROOT_URLCONF=self._urls()):
            self.backend = caches["default"]
            self.engine = engine(self.backend)
            yield self

    def _urls(self):
        template = Template("{% load cache %}{% cache 60 name %}{{ compute }}{% endcache %}")
        function = memoize(TTL)(lambda: self.compute())
        return (
            path("page", cache_page(TTL)(lambda request: HttpResponse(self.compute()))),
            path("fragment", lambda request: HttpResponse(template.render(Context({"compute": self.compute})))),
            path("function", lambda request: HttpResponse(function())),
        )

    def ask(self, kind):
        """Return the status and the text of the answer to a request."""
        response = Client(raise_request_exception=False).get(f"/{kind}")
        return response.status_code, response.content.decode()

    @staticmethod
    def key(key):
        return f":1:{key}"


class FlaskSite(Site):
    kinds = ("page", "apage", "fragment", "function", "method")
    page_makers = 1
    waited_for = ("view//a", "_template_fragment_cache_name")
    cache_class = flask_caching.Cache

    @contextmanager
    def running(self, kind="WheelCache", **options):
        app, cache = flask.Flask("site"), self.cache_class()
        given = {**QUIET, "name": next(names), **options}
        if kind == "HostCache":
            given["location"] = given["name"]
        elif kind == "TieredCache":
            given["l2"] = "SimpleCache"
        config = {"CACHE_TYPE": f"wheelcache.flask_backend.{kind}", "CACHE_OPTIONS": given, "CACHE_KEY_PREFIX": ""}
        cache.init_app(app, config=config)
        self.backend = noted(app.extensions["cache"][cache])
        self.engine = engine(self.backend)
        self._client = app.test_client
        self._add_urls(app, cache)
        yield self

    def _add_urls(self, app, cache):
        shop = Shop()
        shop.compute = lambda: self.compute()
        function, price = cache.memoize(TTL)(lambda: self.compute()), cache.memoize(TTL)(Shop.price)
        text = "{% cache 60, 'name' %}{{ compute() }}{% endcache %}"

        async def apage():
            return self.compute()

        app.add_url_rule("/page", "page", cache.cached(TTL)(lambda: self.compute()))
        app.add_url_rule("/apage", "apage", cache.cached(TTL)(apage))
        app.add_url_rule("/fragment", "f", lambda: flask.render_template_string(text, compute=self.compute))
        app.add_url_rule("/function", "function", lambda: function())
        app.add_url_rule("/method", "method", lambda: price(shop, 7))

    def ask(self, kind):
        response = self._client().get(f"/{kind}")
        return response.status_code, response.text

    @staticmethod
    def key(key):
        return key


class Shop:
    def __repr__(self):
        return "<Shop>"

    def price(self, number):
        return self.compute()


class OurFlaskSite(FlaskSite):
    """With the package's own subclass of Flask-Caching's ``Cache``, which an old Flask-Caching does not support."""

    kinds = ("page", "function", "method")

    @property
    def cache_class(self):
        from wheelcache.flask_backend import Cache

        return Cache
