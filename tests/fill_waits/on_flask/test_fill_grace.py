"""fill_grace in Flask: while one request computes an expired value, the others get the old one.

``tests/backends`` tests the calls of the backend.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

import flask_caching
import pytest
from werkzeug.exceptions import NotFound

from tests.engines import engine
from tests.flask_backend.slow import Slow, in_app
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache.flask_backend import Cache, TieredCache

pytestmark = pytest.mark.pairs(full="any_cache, make_site")

LONG = 1000
TTL, GRACE = 60, 30

CACHES = {"our Cache": Cache, "Flask-Caching's": flask_caching.Cache}


@pytest.fixture
def make_site(make_app, clock):
    """Make an app with a cache of this class: ``app, cache``."""

    def make(cls):
        return make_app(cls(), CACHE_OPTIONS={"fill_wait": LONG, "grace": GRACE})

    return make


@pytest.fixture(params=CACHES.values(), ids=CACHES)
def any_cache(request, make_site):
    """An app with a cache of either class: ``app, cache``."""
    app, cache = make_site(request.param)
    with app.app_context():
        yield app, cache


@pytest.fixture
def site(make_site):
    app, cache = make_site(Cache)
    with app.app_context():
        yield app, cache


def a_view(app, cache, slow):
    app.add_url_rule("/", "page", cache.cached(TTL)(lambda: slow()))
    return lambda: app.test_client().get("/").text


def a_function(app, cache, slow):
    return in_app(app, cache.memoize(TTL)(lambda: slow()))


class Shop:
    def __repr__(self):
        return "<Shop>"

    def price(self, number):
        return self.slow()


def a_method(app, cache, slow):
    shop = Shop()
    shop.slow = slow
    return in_app(app, cache.memoize(TTL)(Shop.price), shop, 7)


@pytest.mark.parametrize("what", [a_view, a_function, a_method])
def test_100_visitors_of_an_expired_value_get_the_old_one_while_one_computes(any_cache, clock, what):
    app, cache = any_cache
    slow = Slow()
    slow.may_return.set()
    ask = what(app, cache, slow)
    # The second time, a TieredCache copies the value.
    assert [ask(), ask()] == ["value 1"] * 2
    for old, new in (("value 1", "value 2"), ("value 2", "value 3")):
        clock.advance(TTL)
        slow.may_return.clear()
        start = threading.Barrier(100)
        with ThreadPoolExecutor(100) as pool:
            visits = [pool.submit(lambda start=start: (start.wait(PATIENCE), ask())[1]) for _ in range(100)]
            # The function does not return until all others have their answers.
            assert until(lambda visits=visits: sum(each.done() for each in visits) == 99)
            slow.may_return.set()
        assert sorted(each.result(PATIENCE) for each in visits) == [*[old] * 99, new]
        assert ask() == new
    assert slow.count == 3
    if not isinstance(cache.cache, TieredCache):
        # Reads of its store are shared.
        assert engine(cache.cache).stats().coalesced == 0


def test_if_the_function_fails_the_next_caller_computes_and_the_others_keep_the_old_value(site, clock, in_thread):
    app, cache = site
    slow = Slow(lambda number: ValueError("failed") if number == 2 else f"value {number}")
    slow.may_return.set()
    load = in_app(app, cache.memoize(TTL)(lambda: slow()))
    assert [load(), load()] == ["value 1"] * 2
    clock.advance(TTL)
    with pytest.raises(ValueError, match="failed"):
        load()
    slow.may_return.clear()
    computing = in_thread(load)
    assert until(lambda: slow.count == 3)
    assert [load(), load()] == ["value 1"] * 2
    slow.may_return.set()
    assert computing.result(PATIENCE) == load() == "value 3"


DELETES = {
    "delete_memoized": lambda cache, load: cache.delete_memoized(load),
    "delete_memoized of one value": lambda cache, load: cache.delete_memoized(load, 1),
    "clear": lambda cache, load: cache.clear(),
}


@pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)
def test_a_deleted_value_is_not_returned_while_another_caller_computes(any_cache, clock, in_thread, delete):
    app, cache = any_cache
    slow = Slow()
    slow.may_return.set()
    load = cache.memoize(TTL)(lambda number: slow())
    assert [load(1), load(1)] == ["value 1"] * 2
    clock.advance(TTL)
    slow.may_return.clear()
    computing = in_thread(in_app(app, load, 1))
    assert until(lambda: slow.count == 2)
    delete(cache, load)
    waiting = in_thread(in_app(app, load, 1))
    slow.may_return.set()
    assert computing.result(PATIENCE) == "value 2"
    assert waiting.result(PATIENCE) != "value 1"


def test_an_old_http_exception_is_raised(site, clock, in_thread):
    app, cache = site
    slow = Slow(lambda number: NotFound(f"gone {number}"))
    slow.may_return.set()
    app.add_url_rule("/", "page", cache.cached(TTL)(lambda: slow()))
    read = lambda: app.test_client().get("/")  # noqa: E731
    assert [read().status_code, read().status_code] == [404, 404]
    clock.advance(TTL)
    slow.may_return.clear()
    computing = in_thread(read)
    assert until(lambda: slow.count == 2)
    assert (read().status_code, "gone 1" in read().text) == (404, True)
    slow.may_return.set()
    assert "gone 2" in computing.result(PATIENCE).text


def test_after_the_grace_all_callers_wait(site, clock, in_thread):
    app, cache = site
    slow = Slow()
    slow.may_return.set()
    load = in_app(app, cache.memoize(TTL)(lambda: slow()))
    load()
    clock.advance(TTL + GRACE)
    slow.may_return.clear()
    callers = [in_thread(load) for _ in range(4)]
    until_waiting(3)
    slow.may_return.set()
    assert [each.result(PATIENCE) for each in callers] == ["value 2"] * 4
    clock.advance(TTL + GRACE + 1)
    assert engine(cache.cache).keys() == []
    assert len(engine(cache.cache)) == 0
