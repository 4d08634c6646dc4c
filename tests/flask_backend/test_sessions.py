"""Sessions in a cache that the workers of an app do not share: the log says so."""

import cachelib
import flask
import flask_caching
import pytest

from tests.flask_backend.conftest import BACKEND
from tests.guests import needs
from wheelcache import flask_backend
from wheelcache.flask_backend import WheelCache

HOST_CACHE = "wheelcache.flask_backend.HostCache"
on_tiers, on_hosts = needs("near_cache"), needs("host_cache")


class Shared(cachelib.FileSystemCache):
    """A second level that all workers have."""


def made_app(debug=False, **config):
    app = flask.Flask("shop")
    app.debug = debug
    app.config.update({"CACHE_TYPE": BACKEND, **config})
    cache.init_app(app)
    return app


cache = flask_caching.Cache()


@pytest.mark.parametrize(
    ("kind", "made", "number"),
    [
        ("cachelib", lambda path: WheelCache(), 1),
        pytest.param("cachelib", lambda _: flask_backend.TieredCache(cachelib.SimpleCache()), 1, marks=on_tiers),
        pytest.param("cachelib", lambda path: flask_backend.TieredCache(Shared(path)), 0, marks=on_tiers),
        pytest.param("cachelib", lambda path: flask_backend.HostCache("s", location=path), 0, marks=on_hosts),
        ("cachelib", Shared, 0),
        ("cachelib", lambda path: None, 0),
        ("redis", lambda path: WheelCache(), 0),
    ],
)
def test_sessions_of_flask_session_in_a_cache_of_each_process_are_a_warning_at_init_app(
    caplog, tmp_path, kind, made, number
):
    made_app(SESSION_TYPE=kind, SESSION_CACHELIB=made(str(tmp_path / "sessions")))
    found = [each for each in caplog.messages if "Flask-Session" in each]
    assert len(found) == number
    for each in found:
        assert "the app 'shop'" in each
        assert "a HostCache, if all workers are on this machine, or to a TieredCache over Redis" in each


class OfGlobal(flask.sessions.SecureCookieSessionInterface):
    """Keeps sessions in a global variable of its module, as CTFd does."""

    def save_session(self, app, session, response):
        cache.set("session", dict(session))


class OfAttribute(flask.sessions.SecureCookieSessionInterface):
    def __init__(self):
        self.store = cache


class OfCookies(flask.sessions.SecureCookieSessionInterface):
    def save_session(self, app, session, response):
        super().save_session(app, session, response)


@pytest.mark.parametrize(
    ("interface", "backend", "debug", "number"),
    [
        (OfGlobal, BACKEND, False, 1),
        (OfAttribute, BACKEND, False, 1),
        (OfCookies, BACKEND, False, 0),
        (OfGlobal, BACKEND, True, 0),
        (OfGlobal, "SimpleCache", False, 0),
        pytest.param(OfGlobal, HOST_CACHE, False, 0, marks=on_hosts),
    ],
)
def test_an_interface_with_the_cache_of_the_app_is_a_warning_at_the_first_request(
    caplog, interface, backend, debug, number
):
    app = made_app(debug, CACHE_TYPE=backend)
    app.session_interface = interface()
    for _ in range(3):
        app.test_client().get("/")
    found = [each for each in caplog.messages if "sessions of the app 'shop'" in each]
    assert len(found) == number
    for each in found:
        assert each.startswith(f"{__name__}.{interface.__name__} keeps")
        assert "Set CACHE_TYPE to a HostCache" in each
