"""fill_wait in Flask: app contexts, views, memoized functions. ``on_both`` tests what both frameworks do."""

import threading

import flask
import pytest

from tests.caches import is_leased
from tests.engines import engine
from tests.waiting import PATIENCE, until_waiting

LONG = 1000
"""Seconds of a fill_wait that ends after any test: a result within PATIENCE did not wait for it."""


@pytest.fixture
def make_waiting_app(make_app):
    """Make an app with fill_wait: ``app, cache, backend = make_waiting_app()``."""

    def make_waiting_app(fill_wait=LONG, **config):
        app, cache = make_app(CACHE_OPTIONS={"fill_wait": fill_wait}, **config)
        return app, cache, app.extensions["cache"][cache]

    return make_waiting_app


def held(backend, *keys):
    """Return the keys that the running thread or task must fill."""
    return [key for key in keys if is_leased(engine(backend), key)]


def test_prefixes_are_of_the_key_that_is_asked_for_and_not_of_the_one_that_is_stored(make_waiting_app, in_thread):
    app, cache, backend = make_waiting_app({"view/": LONG}, CACHE_KEY_PREFIX="shop:")
    with app.app_context():
        cache.get("view/a")
        cache.get("shop:view/a")
        assert held(backend, "shop:view/a", "shop:shop:view/a") == ["shop:view/a"]
        waiter = in_thread(backend.get, "view/a")
        until_waiting()
        cache.set("view/a", "value")
        assert waiter.result(PATIENCE) == "value"


def test_a_counter_fills_with_its_first_value(make, in_thread):
    cache = make(fill_wait=LONG)
    cache.get("key")
    waiter = in_thread(cache.get, "key")
    until_waiting()
    cache.inc("key", 7)
    assert waiter.result(PATIENCE) == 7


def test_the_versions_of_memoized_functions_are_leased_by_get_many_and_what_is_asked_for_with_them(make):
    cache = make(fill_wait=LONG)
    versions = ("module.f_memver", "module.f.self_memver")
    assert cache.get_many(*versions) == [None, None]
    assert held(cache, *versions) == [*versions]
    cache.set_many(dict.fromkeys(versions, "a"))
    assert held(cache, *versions) == []
    assert cache.get_dict("module.f_memver", "other_memver") == {"module.f_memver": "a", "other_memver": None}
    assert held(cache, "module.f_memver", "other_memver") == ["other_memver"]


# Requests and app contexts.


@pytest.mark.parametrize("same_app", [True, False])
def test_an_app_context_within_another_ends_its_own_leases_only(make_waiting_app, same_app):
    app, cache, backend = make_waiting_app()
    inner_app, inner_cache, inner_backend = (app, cache, backend) if same_app else make_waiting_app()
    keys = ("flask_cache_outer", "flask_cache_inner", "flask_cache_later")
    with app.app_context():
        cache.get("outer")
        with inner_app.app_context():
            inner_cache.get("inner")
            assert (held(backend, keys[0]), held(inner_backend, keys[1])) == ([keys[0]], [keys[1]])
        with inner_app.app_context():
            pass
        assert (held(backend, *keys), held(inner_backend, keys[1])) == ([keys[0]], [])
        cache.get("later")
        assert held(backend, *keys) == [keys[0], keys[2]]
    assert held(backend, *keys) == []


HOW = {
    "raises": {},
    "aborts": {"response_filter": lambda response: not isinstance(response, flask.Response)},
    "filtered": {"response_filter": lambda response: False},
    "bypassed": {"unless": lambda: True},
    "over": {"timeout": -1},
    "unpicklable": {},
}


@pytest.mark.parametrize("is_async", [False, True], ids=["view", "async view"])
@pytest.mark.parametrize("how", HOW)
def test_when_a_request_ends_without_a_value_its_leases_end(make_waiting_app, how, is_async):
    app, cache, backend = make_waiting_app()
    app.debug = app.testing = False

    def view():
        # As the task that it may be.
        cache.get("other")
        if how == "raises":
            raise LookupError
        if how == "aborts":
            flask.abort(404)
        response = flask.make_response("page")
        if how == "unpicklable":
            response.lock = threading.Lock()
        return response

    async def async_view():
        return view()

    app.add_url_rule("/", "view", cache.cached(**HOW[how])(async_view if is_async else view))
    for _ in range(2):
        status = app.test_client().get("/").status_code
        assert status == {"raises": 500, "aborts": 404}.get(how, 200)
        assert held(backend, "flask_cache_view//", "flask_cache_other") == []


# Memoized functions.
