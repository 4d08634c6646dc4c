"""Requests of an app whose settings only name a cache: pages and fragments are waited for by default."""

from collections import Counter

import flask
import flask_caching
import pytest

from tests.caches import is_leased
from tests.engines import engine
from tests.guests import needs
from tests.waiting import PATIENCE, until_waiting

BACKENDS = [
    "WheelCache",
    pytest.param("HostCache", marks=needs("host_cache")),
    pytest.param("TieredCache", marks=needs("near_cache")),
]


@pytest.fixture(params=BACKENDS)
def site(request, make_app, tmp_path):
    """An app, its cache, and how often it has computed a page and a fragment."""
    options = {
        "WheelCache": {},
        "HostCache": {"location": str(tmp_path / "host")},
        "TieredCache": {"l2": "SimpleCache"},
    }[request.param]
    cache, runs = flask_caching.Cache(), Counter()
    settings = {"CACHE_TYPE": f"wheelcache.flask_backend.{request.param}", "CACHE_KEY_PREFIX": ""}
    app, _ = make_app(cache, **settings, CACHE_OPTIONS=options)

    def compute(name):
        runs[name] += 1
        if runs[name] == 1:
            until_waiting()
        return name

    @app.get("/page")
    @cache.cached(60)
    def page():
        return compute("page")

    @app.get("/fragment")
    def fragment():
        return flask.render_template_string(
            "{% cache 60, 'name' %}{{ compute('fragment') }}{% endcache %}", compute=compute
        )

    return app, app.extensions["cache"][cache], runs


@pytest.mark.parametrize("name", ["page", "fragment"])
def test_of_two_visitors_one_waits_for_a_page_or_a_fragment(site, in_thread, name):
    app, _, runs = site
    visits = [in_thread(lambda: app.test_client().get(f"/{name}").text) for _ in range(2)]
    assert [visit.result(PATIENCE) for visit in visits] == [name] * 2
    assert runs == {name: 1}


def test_no_caller_waits_for_another_key(site):
    app, backend, _ = site
    with app.app_context():
        for key, waits in (("view//a", True), ("_template_fragment_cache_name", True), ("maintenance", False)):
            assert backend.get(key) is None
            assert is_leased(engine(backend), key) is waits
