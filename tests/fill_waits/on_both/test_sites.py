"""Requests that miss a page, a fragment or the value of a function together: one computes it."""

from contextlib import contextmanager

import flask
import flask_caching
import pytest
from django.http import HttpResponse
from django.template import Context, Template
from django.test import Client, override_settings
from django.urls import path
from django.views.decorators.cache import cache_page

from tests.backends.adapter import QUIET, names
from tests.flask_backend.conftest import BEFORE_2_5
from tests.waiting import THREADS, until_waiting
from wheelcache import flask_backend
from wheelcache.django_backend import memoize

TTL = 60
OPTIONS = {**QUIET, "fill_wait": 1000}
DJANGO = ["django-page", "django-fragment", "django-function"]
FLASK = ["flask-page", "flask-async page", "flask-fragment", "flask-function"]
# An old Flask-Caching does not support our subclass of its ``Cache``.
OURS = [] if BEFORE_2_5 else ["our flask-page", "our flask-function"]


@contextmanager
def on_django(compute):
    """A site which caches the results of ``compute``. Yields a function that returns the answer to a request."""
    template = Template("{% load cache %}{% cache 60 name %}{{ compute }}{% endcache %}")
    function = memoize(TTL)(lambda: compute())
    urls = (
        path("page", cache_page(TTL)(lambda request: HttpResponse(compute()))),
        path("fragment", lambda request: HttpResponse(template.render(Context({"compute": compute})))),
        path("function", lambda request: HttpResponse(function())),
    )
    options = {name.upper(): value for name, value in OPTIONS.items()}
    cache = {"BACKEND": "wheelcache.django_backend.WheelCache", "LOCATION": next(names), "OPTIONS": options}
    with override_settings(CACHES={"default": cache}, ROOT_URLCONF=urls):
        yield lambda kind: Client().get(f"/{kind}").content


@contextmanager
def on_flask(compute, is_ours=False):
    app, cache = flask.Flask("site"), flask_backend.Cache() if is_ours else flask_caching.Cache()
    cache.init_app(app, config={"CACHE_TYPE": "wheelcache.flask_backend.WheelCache", "CACHE_OPTIONS": OPTIONS})
    function = cache.memoize(TTL)(lambda: compute())
    text = "{% cache 60, 'name' %}{{ compute() }}{% endcache %}"

    async def apage():
        return compute()

    app.add_url_rule("/page", "page", cache.cached(TTL)(lambda: compute()))
    app.add_url_rule("/async page", "async page", cache.cached(TTL)(apage))
    app.add_url_rule("/fragment", "fragment", lambda: flask.render_template_string(text, compute=compute))
    app.add_url_rule("/function", "function", lambda: function())
    yield lambda kind: app.test_client().get(f"/{kind}").text


@pytest.mark.parametrize("asked", [*DJANGO, *FLASK, *OURS])
def test_a_missing_or_expired_value_is_computed_once_for_all_visitors(clock, together, asked):
    runs = []
    framework, kind = asked.split("-")

    def compute():
        runs.append(kind)
        if len(runs) == 1:
            until_waiting(THREADS - 1)
        return f"value {len(runs)}"

    with on_django(compute) if framework == "django" else on_flask(compute, "our" in framework) as ask:
        for _ in range(2):
            runs.clear()
            assert len({*together(lambda number: ask(kind))}) == len(runs)
            # A page of Django has two entries, and a caller may look between the ends of the two.
            assert len(runs) <= (2 if asked == "django-page" else 1)
            clock.advance(TTL)
