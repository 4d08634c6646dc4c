"""A plugin for pytest that has Flask-Caching's own tests use WheelCache, with default options.

``pytest -p tests.conformance.flask_caching_suite`` loads it in the ``tests`` folder of Flask-Caching's source
distribution. The fixture ``app`` names SimpleCache as CACHE_TYPE, which WheelCache replaces; ``clock`` is a fake of
cachelib's time, which WheelCache uses as well. The tests are unchanged. Tests that name a backend get this backend, and
tests that need a Redis are left out.

If the environment has OUR_CACHE, ``flask_caching.Cache`` is ``wheelcache.flask_backend.Cache``. OUR_CACHE is the name
of its backend, which may also be SimpleCache.
"""

from __future__ import annotations

import os
from functools import partial

import flask_caching
import pytest

from wheelcache import Cache, flask_backend
from wheelcache.flask_backend import WheelCache, backend

our_cache = os.environ.get("OUR_CACHE")
if our_cache:
    # Before the tests import it.
    flask_caching.Cache = flask_backend.Cache

used = []
"""The tests in which an app made a WheelCache."""


@pytest.fixture(autouse=True)
def wheelcache_in_simplecaches_place(request, monkeypatch):
    if "clock" in request.fixturenames:
        monkeypatch.setattr(backend, "Cache", partial(Cache, clock=request.getfixturevalue("clock")))
    if "app" in request.fixturenames and our_cache != "SimpleCache":
        app = request.getfixturevalue("app")
        app.config["CACHE_TYPE"] = f"{WheelCache.__module__}.{WheelCache.__qualname__}"
        yield
        if any(isinstance(each, WheelCache) for each in app.extensions.get("cache", {}).values()):
            used.append(request.node.nodeid)
    else:
        yield


def pytest_collection_modifyitems(config, items):
    needs_redis = [item for item in items if "redis_server" in item.fixturenames]
    config.hook.pytest_deselected(items=needs_redis)
    items[:] = [item for item in items if item not in needs_redis]


def pytest_terminal_summary(terminalreporter):
    terminalreporter.write_line(f"{len(used)} tests used WheelCache")
    terminalreporter.write_line(f"{flask_caching.Cache.__module__} was tested")
