"""Flask-Session may keep its sessions in a cache of this package: the log says where that loses them."""

import cachelib
import flask
import flask_caching
import pytest

from tests.flask_backend.conftest import BACKEND
from tests.guests import needs
from wheelcache.flask_backend import WheelCache

HOST_CACHE, TIERED_CACHE = "wheelcache.flask_backend.HostCache", "wheelcache.flask_backend.TieredCache"


class Shared(cachelib.FileSystemCache):
    """A second level that all workers have."""


def tiered(l2):
    from wheelcache.flask_backend import TieredCache

    return TieredCache(l2)


def hosted(folder):
    from wheelcache.flask_backend import HostCache

    return HostCache("sessions", location=folder)


def messages(caplog, backend=BACKEND, **config):
    app = flask.Flask("shop")
    app.config.update(CACHE_TYPE=backend, **config)
    flask_caching.Cache(app)
    return [each.getMessage() for each in caplog.records if "Flask-Session" in each.getMessage()]


on_tiers, on_hosts = needs("near_cache"), needs("host_cache")


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(WheelCache, id="plain"),
        pytest.param(lambda: tiered(cachelib.SimpleCache()), id="over memory", marks=on_tiers),
    ],
)
@pytest.mark.parametrize(
    "backend", [BACKEND, pytest.param(TIERED_CACHE, marks=on_tiers), pytest.param(HOST_CACHE, marks=on_hosts)]
)
def test_sessions_in_a_cache_of_each_process_are_a_warning_at_init_app(caplog, made, backend):
    options = {"l2": "SimpleCache"} if "Tiered" in backend else {}
    given = {"SESSION_TYPE": "cachelib", "SESSION_CACHELIB": made(), "CACHE_OPTIONS": options}
    (message,) = messages(caplog, backend, **given)
    assert "the app 'shop'" in message
    assert "a HostCache, if all workers are on this machine, or to a TieredCache over Redis" in message


@pytest.mark.parametrize(
    ("kind", "made"),
    [
        pytest.param("cachelib", lambda path: tiered(Shared(path)), marks=on_tiers),
        ("cachelib", Shared),
        pytest.param("cachelib", lambda path: hosted(f"{path}/s"), marks=on_hosts),
        ("redis", lambda path: WheelCache()),
    ],
)
def test_sessions_elsewhere_are_none(caplog, tmp_path, kind, made):
    assert messages(caplog, SESSION_TYPE=kind, SESSION_CACHELIB=made(str(tmp_path))) == []


@pytest.mark.parametrize("config", [{}, {"SESSION_TYPE": "cachelib"}])
def test_sessions_of_no_cache_are_none(caplog, config):
    assert messages(caplog, **config) == []


cache = flask_caching.Cache()


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
    app = flask.Flask("shop")
    app.debug = debug
    app.config["CACHE_TYPE"] = backend
    cache.init_app(app)
    app.session_interface = interface()
    for _ in range(3):
        app.test_client().get("/")
    found = [each.getMessage() for each in caplog.records if "sessions of the app 'shop'" in each.getMessage()]
    assert len(found) == number
    for each in found:
        assert each.startswith(f"{__name__}.{interface.__name__} keeps")
        assert "Set CACHE_TYPE to a HostCache" in each
