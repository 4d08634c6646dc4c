"""Flask-Caching's own signals still fire: it sends them itself, so long as a backend tells a hit from a miss."""

import flask
import flask_caching
import pytest

from tests.guests import needs

signals = pytest.importorskip("flask_caching.signals", reason="Flask-Caching sends signals from version 2.5 on")

SIGNALS = ("cache_view_hit", "cache_view_miss", "cache_memoize_hit", "cache_memoize_miss")


@pytest.fixture
def fired(monkeypatch):
    """Return the names of the signals that were sent."""
    fired = []
    receivers = {name: lambda sender, name=name, **told: fired.append(name) for name in SIGNALS}
    for name, receiver in receivers.items():
        getattr(signals, name).connect(receiver)
    yield fired
    for name, receiver in receivers.items():
        getattr(signals, name).disconnect(receiver)


@pytest.mark.parametrize("is_ours", [True, False], ids=["own Cache", "Flask-Caching's"])
@pytest.mark.parametrize("kind", ["WheelCache", pytest.param("TieredCache", marks=needs("near_cache"))])
def test_views_and_memoized_functions_fire_a_miss_and_then_hits(kind, is_ours, fired):
    from wheelcache import flask_backend

    app = flask.Flask(__name__)
    options = {"l2": "SimpleCache"} if kind == "TieredCache" else {}
    app.config.update(CACHE_TYPE=f"wheelcache.flask_backend.{kind}", CACHE_OPTIONS=options, CACHE_ENABLE_SIGNALS=True)
    cache = (flask_backend if is_ours else flask_caching).Cache(app)
    app.add_url_rule("/page", "page", cache.cached(timeout=60)(lambda: "page"))
    double = cache.memoize(60)(lambda number: 2 * number)
    assert [app.test_client().get("/page").text for _ in range(3)] == ["page"] * 3
    with app.app_context():
        assert [double(number) for number in (1, 2, 1)] == [2, 4, 2]
        cache.delete_memoized(double, 1)
        assert double(1) == 2
    kinds = ["view_miss", "view_hit", "view_hit", "memoize_miss", "memoize_miss", "memoize_hit", "memoize_miss"]
    assert fired == [f"cache_{each}" for each in kinds]
