"""Flask-Session may keep its sessions in a cache of this package: the log says where that loses them."""

import cachelib
import flask
import flask_caching
import pytest

from tests.flask_backend.conftest import BACKEND
from wheelcache.flask_backend import HostCache, TieredCache, WheelCache

HOST_CACHE = "wheelcache.flask_backend.HostCache"


class Shared(cachelib.FileSystemCache):
    """A second level that all workers have."""


def messages(caplog, backend=BACKEND, **config):
    app = flask.Flask("shop")
    app.config.update(CACHE_TYPE=backend, **config)
    flask_caching.Cache(app)
    return [each.getMessage() for each in caplog.records if "Flask-Session" in each.getMessage()]


@pytest.mark.parametrize(
    "made",
    [
        lambda path: WheelCache(),
        lambda path: TieredCache(cachelib.SimpleCache()),
    ],
    ids=["plain", "over memory"],
)
@pytest.mark.parametrize("backend", [BACKEND, "wheelcache.flask_backend.TieredCache", HOST_CACHE])
def test_sessions_in_a_cache_of_each_process_are_a_warning_at_init_app(caplog, tmp_path, made, backend):
    options = {"l2": "SimpleCache"} if "Tiered" in backend else {}
    given = {"SESSION_TYPE": "cachelib", "SESSION_CACHELIB": made(tmp_path), "CACHE_OPTIONS": options}
    (message,) = messages(caplog, backend, **given)
    assert "the app 'shop'" in message
    assert "a HostCache, if all workers are on this machine, or to a TieredCache over Redis" in message


@pytest.mark.parametrize(
    "made",
    [
        lambda path: {"SESSION_TYPE": "cachelib", "SESSION_CACHELIB": TieredCache(Shared(str(path)))},
        lambda path: {"SESSION_TYPE": "cachelib", "SESSION_CACHELIB": Shared(str(path))},
        lambda path: {"SESSION_TYPE": "cachelib", "SESSION_CACHELIB": HostCache("sessions", location=str(path / "s"))},
        lambda path: {"SESSION_TYPE": "cachelib"},
        lambda path: {"SESSION_TYPE": "redis", "SESSION_CACHELIB": WheelCache()},
        lambda path: {},
    ],
)
def test_sessions_elsewhere_are_none(caplog, tmp_path, made):
    assert messages(caplog, **made(tmp_path)) == []
