"""Expired values of functions that ``wheelcache.flask_backend.Cache`` memoizes: old ones, ``previous`` and KEEP."""

import asyncio

import flask
import pytest
from flask_caching.backends import NullCache, SimpleCache

from wheelcache import KEEP
from wheelcache.flask_backend import Cache

TTL, GRACE = 60, 30


@pytest.fixture
def site(make_app, clock):
    """An app with our cache: ``app, cache``."""
    app, cache = make_app(Cache(), CACHE_OPTIONS={"fill_wait": 1000, "grace": GRACE})
    with app.app_context():
        yield app, cache


@pytest.fixture
def cache(site):
    return site[1]


@pytest.mark.parametrize("is_async", [False, True], ids=["function", "async function"])
def test_a_function_receives_a_copy_of_the_previous_value_and_may_keep_it(cache, clock, is_async):
    received = []

    def load(key, *, previous):
        received.append(previous)
        if previous is None:
            return [key, "new"]
        previous.append("changed")
        return KEEP

    async def aload(key, *, previous):
        return load(key, previous=previous)

    memoized = cache.memoize(TTL)(aload if is_async else load)

    async def in_task(key):
        return await memoized(key)

    ask = (lambda key: asyncio.run(in_task(key))) if is_async else memoized
    assert ask("a") == ["a", "new"]
    clock.advance(TTL)
    assert ask("a") == ["a", "new"]
    clock.advance(TTL - 1)
    assert ask("a") == ["a", "new"]
    assert received == [None, ["a", "new", "changed"]]
    clock.advance(1 + GRACE)
    assert ask("a") == ["a", "new"]
    assert received[2:] == [None]


def test_a_forced_update_receives_the_present_value_and_a_call_that_bypasses_the_cache_none(cache):
    load = cache.memoize(TTL, forced_update=lambda *args: True)(lambda key, *, previous=None: [key, previous])
    assert load("a") == ["a", None]
    assert load("a") == ["a", ["a", None]]
    cache.delete_memoized(load, "a")
    assert load("a") == ["a", None]
    load = cache.memoize(TTL, unless=lambda *args: True)(lambda key, *, previous: [key, previous])
    assert load("a") == ["a", None]


def test_callers_do_not_pass_the_previous_value_and_other_parameters_of_that_name_are_arguments(cache):
    load = cache.memoize(TTL)(lambda key, previous=1: [key, previous])
    assert load("a") == load("a", previous=1) == ["a", 1]
    assert load("a", 2) == ["a", 2]


@pytest.mark.parametrize("backend", [SimpleCache, NullCache])
def test_without_a_backend_of_this_package_there_is_no_previous_value(backend):
    app = flask.Flask(__name__)
    cache = Cache(app, config={"CACHE_TYPE": backend.__name__, "CACHE_NO_NULL_WARNING": True})
    load = cache.memoize(TTL)(lambda key, *, previous: [key, previous])
    with app.app_context():
        assert load("a") == load("a") == ["a", None]
