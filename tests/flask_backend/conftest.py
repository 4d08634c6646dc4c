"""Backends and Flask apps on WheelCache, if need be on a clock that the test moves."""

from functools import partial
from importlib.metadata import version

import flask
import flask_caching
import pytest
from cachelib.serializers import BaseSerializer

from tests.django_backend.serializers import Json
from tests.engines import noted
from wheelcache import Cache, ManualClock, flask_backend
from wheelcache.engine.guests import module_of
from wheelcache.flask_backend import WheelCache, backend
from wheelcache.runtime.request_scope import end_request

__all__ = ["_end_of_the_request", "any_site", "clock", "make", "make_app", "site"]

BACKEND = "wheelcache.flask_backend.WheelCache"

TIERED = module_of("near_cache", "flask_tiered")

BEFORE_2_5 = tuple(map(int, version("Flask-Caching").split(".")[:2])) < (2, 5)
OF_FLASK_CACHING_2_5 = pytest.mark.skipif(
    BEFORE_2_5,
    reason="Flask-Caching has this setting, or passes it on, from version 2.5 on",
)
# ``wheelcache.flask_backend.Cache``, which these tests import, needs Flask-Caching 2.5.
OF_OUR_CACHE = [
    *("test_cached_views.py", "test_caching.py", "test_page_views.py"),
]
collect_ignore = OF_OUR_CACHE if BEFORE_2_5 else []


class JSONSerializer(Json, BaseSerializer):
    """Old versions of cachelib have none for JSON."""


@pytest.fixture
def clock(monkeypatch):
    """The time of every backend that is made in this test. Nothing expires until the test says so."""
    manual = ManualClock(1_000_000.0)
    for module in filter(None, (backend, TIERED)):
        monkeypatch.setattr(module, "Cache", partial(Cache, clock=manual))
    return manual


@pytest.fixture(autouse=True)
def _end_of_the_request():
    yield
    end_request()


@pytest.fixture
def make():
    """Make a backend without jitter and without a line a minute, unless given."""

    def make_backend(*args, cls=WheelCache, **options):
        return noted(cls(*args, **{"jitter": 0, **options}))

    return make_backend


@pytest.fixture
def make_app():
    """Make an app with a cache of its own: ``app, cache = make_app(CACHE_THRESHOLD=..., ...)``."""

    def make_app(cache=None, name=__name__, **config):
        app = flask.Flask(name)
        # So that what Flask-Caching would catch and log fails the test.
        app.debug = app.testing = True
        options = {"jitter": 0, **config.pop("CACHE_OPTIONS", {})}
        app.config.update({"CACHE_TYPE": BACKEND, **config}, CACHE_OPTIONS=options)
        cache = cache or flask_caching.Cache()
        cache.init_app(app)
        noted(app.extensions["cache"][cache])
        return app, cache

    return make_app


@pytest.fixture
def site(make_app):
    """An app with our Cache: ``app, cache, backend``."""
    app, cache = make_app(flask_backend.Cache())
    with app.app_context():
        yield app, cache, cache.cache


@pytest.fixture(params=["memory", *(["tiered"] if TIERED else [])])
def any_site(request, make_app):
    """The same, on either backend of the package."""
    tiered = {"CACHE_TYPE": f"{BACKEND.rpartition('.')[0]}.TieredCache", "CACHE_OPTIONS": {"l2": "SimpleCache"}}
    app, cache = make_app(flask_backend.Cache(), **(tiered if request.param == "tiered" else {}))
    with app.app_context():
        yield app, cache, cache.cache
