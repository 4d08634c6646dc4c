"""A plugin for pytest that has Flask-Caching's own tests use WheelCache or HostCache, with default options.

``pytest -p tests.conformance.flask_caching_suite`` loads it in the ``tests`` folder of Flask-Caching's source
distribution. The fixture ``app`` names SimpleCache as CACHE_TYPE, which OUR_BACKEND of the environment replaces;
``clock`` is a fake of cachelib's time, which our backend uses as well. The tests are unchanged. Tests that name a
backend get this backend, and tests that need a Redis are left out.

If the environment has OUR_CACHE, ``flask_caching.Cache`` is ``wheelcache.flask_backend.Cache``. If OUR_CACHE is
"SimpleCache", that is its backend.
"""

from __future__ import annotations

import os

import flask_caching
import pytest

from tests.backends.adapters import use_clock
from wheelcache import flask_backend

our_cache = os.environ.get("OUR_CACHE")
OurBackend = getattr(flask_backend, os.environ.get("OUR_BACKEND", "WheelCache"))
if our_cache:
    # Before the tests import it.
    flask_caching.Cache = flask_backend.Cache

used = []
"""The tests in which an app made our backend."""


@pytest.fixture(autouse=True)
def wheelcache_in_simplecaches_place(request, monkeypatch):
    if "clock" in request.fixturenames:
        use_clock(monkeypatch, request.getfixturevalue("clock"))
    if "app" in request.fixturenames and our_cache != "SimpleCache":
        app = request.getfixturevalue("app")
        app.config["CACHE_TYPE"] = f"{OurBackend.__module__}.{OurBackend.__qualname__}"
        yield
        if any(isinstance(each, OurBackend) for each in app.extensions.get("cache", {}).values()):
            used.append(request.node.nodeid)
    else:
        yield


def pytest_collection_modifyitems(config, items):
    needs_redis = [item for item in items if "redis_server" in item.fixturenames]
    config.hook.pytest_deselected(items=needs_redis)
    items[:] = [item for item in items if item not in needs_redis]


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{len(used)} tests used {OurBackend.__name__}")
    terminalreporter.write_line(f"{flask_caching.Cache.__module__} was tested")
