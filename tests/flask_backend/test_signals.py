"""Flask-Caching's own signals still fire: it sends them itself, so long as a backend tells a hit from a miss."""

import flask
import flask_caching
import pytest

from tests.guests import needs
from tests.waiting import PATIENCE, until_waiting

signals = pytest.importorskip("flask_caching.signals", reason="Flask-Caching sends signals from version 2.5 on")

SIGNALS = ("cache_view_hit", "cache_view_miss", "cache_memoize_hit", "cache_memoize_miss")

BACKENDS = {
    "WheelCache": {"CACHE_TYPE": "wheelcache.flask_backend.WheelCache"},
    "TieredCache": {
        "CACHE_TYPE": "wheelcache.flask_backend.TieredCache",
        "CACHE_OPTIONS": {"l2": "SimpleCache", "name": "signals"},
    },
    "SimpleCache": {"CACHE_TYPE": "SimpleCache"},
}


@pytest.fixture
def fired():
    """Return the names of the signals that were sent, with their arguments."""
    fired = []
    receivers = {}
    for name in SIGNALS:

        def receiver(sender, name=name, **told):
            fired.append((name, told))

        receivers[name] = receiver
        getattr(signals, name).connect(receiver)
    yield fired
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


@pytest.fixture(params=["WheelCache", pytest.param("TieredCache", marks=needs("near_cache")), "SimpleCache"])
def app_and_cache(request):
    app = flask.Flask(__name__)
    app.debug = app.testing = True
    app.config.update(BACKENDS[request.param], CACHE_ENABLE_SIGNALS=True)
    cache = flask_caching.Cache()
    cache.init_app(app)
    return app, cache


def test_a_cached_view_fires_a_miss_and_then_hits(app_and_cache, fired):
    app, cache = app_and_cache

    @app.get("/page")
    @cache.cached(timeout=60)
    def page():
        return "page"

    client = app.test_client()
    assert [client.get("/page").text for _ in range(3)] == ["page"] * 3
    assert [name for name, _ in fired] == ["cache_view_miss", "cache_view_hit", "cache_view_hit"]
    assert {told["cache_key"] for _, told in fired} == {"view//page"}


def test_a_memoized_function_fires_a_miss_for_each_argument_and_then_hits(app_and_cache, fired):
    app, cache = app_and_cache

    @cache.memoize(60)
    def double(number):
        return 2 * number

    with app.app_context():
        assert [double(number) for number in (1, 2, 1)] == [2, 4, 2]
        cache.delete_memoized(double, 1)
        assert double(1) == 2
    expected = ["cache_memoize_miss", "cache_memoize_miss", "cache_memoize_hit", "cache_memoize_miss"]
    assert [name for name, _ in fired] == expected


@needs("fill_waits")
def test_a_page_that_another_request_was_waited_for_is_a_hit(make_app, fired, in_thread):
    """With ``fill_wait`` the request that computes fires the miss, and the one that waits for it a hit."""
    app, cache = make_app(CACHE_OPTIONS={"fill_wait": 10}, CACHE_ENABLE_SIGNALS=True)

    @app.get("/slow")
    @cache.cached(timeout=60)
    def slow():
        waiting.append(in_thread(visit))
        until_waiting()
        return "slow"

    def visit():
        return app.test_client().get("/slow").text

    waiting = []
    assert visit() == waiting[0].result(PATIENCE) == "slow"
    assert sorted(name for name, _ in fired) == ["cache_view_hit", "cache_view_miss"]
