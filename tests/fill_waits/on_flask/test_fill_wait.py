"""fill_wait in Flask: app contexts, views, memoized functions. Its effects on keys are tested in ``tests/backends``."""

import asyncio
import threading

import flask
import flask_caching
import pytest

from tests.caches import is_leased
from tests.engines import engine, noted
from tests.waiting import PATIENCE, THREADS, until, until_waiting, waiting
from wheelcache.flask_backend.app_contexts import end_leases

LONG = 1000
"""Seconds of a fill_wait that ends after any test: a result within PATIENCE did not wait for it."""


class Boom(Exception):
    pass


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


@pytest.fixture
def texts(in_thread):
    """Request the paths one after the other in one thread. Fail if one of them waits for a lease."""
    return lambda client, *paths: in_thread(lambda: [client.get(path).text for path in paths]).result(PATIENCE)


def test_without_fill_wait_no_lease_is_looked_for_at_the_end_of_an_app_context(make_app):
    assert end_leases not in make_app(CACHE_OPTIONS={"fill_wait": 0})[0].teardown_appcontext_funcs
    assert end_leases in make_app(CACHE_OPTIONS={"fill_wait": 5})[0].teardown_appcontext_funcs


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


def test_a_value_that_cannot_be_pickled_leaves_the_lease_to_the_end_of_the_request(make_waiting_app, in_thread):
    app, cache, backend = make_waiting_app()
    with app.app_context():
        cache.get("key")
        waiter = in_thread(backend.get, "key")
        until_waiting()
        with pytest.raises(TypeError, match="pickle"):
            cache.set("key", threading.Lock())
        assert waiting() == 1
    assert waiter.result(PATIENCE) is None


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


def test_what_a_streamed_response_asks_for_it_holds_until_its_end(make_waiting_app):
    app, cache, backend = make_waiting_app()

    @app.get("/")
    def view():
        @flask.stream_with_context
        def parts():
            for name in "ab":
                cache.get(name)
                yield " ".join(held(backend, "flask_cache_a", "flask_cache_b"))

        return parts()

    assert app.test_client().get("/").text == "flask_cache_aflask_cache_a flask_cache_b"
    assert held(backend, "flask_cache_a", "flask_cache_b") == []


HOW = {
    "raises": {},
    "aborts": {"response_filter": lambda response: not isinstance(response, flask.Response)},
    "filtered": {"response_filter": lambda response: False},
    "bypassed": {"unless": lambda: True},
    "over": {"timeout": -1},
    "unpicklable": {},
}


@pytest.mark.parametrize("how", HOW)
def test_when_a_request_ends_without_a_value_its_leases_end(make_waiting_app, how):
    app, cache, backend = make_waiting_app()
    app.debug = app.testing = False

    @app.get("/")
    @cache.cached(**HOW[how])
    def view():
        if how == "raises":
            raise Boom
        if how == "aborts":
            flask.abort(404)
        if how == "unpicklable":
            response = flask.make_response("page")
            response.lock = threading.Lock()
            return response
        return "page"

    for _ in range(2):
        status = app.test_client().get("/").status_code
        assert status == {"raises": 500, "aborts": 404}.get(how, 200)
        assert not held(backend, "flask_cache_view//")


def test_a_request_is_not_held_up_by_what_its_own_thread_asked_for_in_the_one_before(make_waiting_app, texts):
    app, cache, _ = make_waiting_app()
    app.add_url_rule("/<name>", view_func=lambda name: str(cache.get(name)))
    assert texts(app.test_client(), "/a", "/b", "/b", "/a") == ["None"] * 4


def test_the_caches_of_two_apps_and_of_one_each_have_their_leases_and_the_end_of_a_context_ends_its_own(
    make_waiting_app, in_thread
):
    (app, cache, backend), (other_app, other_cache, other_backend) = make_waiting_app(), make_waiting_app()
    second_cache = flask_caching.Cache(app)
    second_backend = noted(app.extensions["cache"][second_cache])

    def ask():
        with other_app.app_context():
            return other_cache.get("key"), held(other_backend, "flask_cache_key")

    with app.app_context():
        for each in (cache, second_cache):
            each.get("key")
        for _ in range(2):
            assert in_thread(ask).result(PATIENCE) == (None, ["flask_cache_key"])
        assert held(backend, "flask_cache_key") == held(second_backend, "flask_cache_key") == ["flask_cache_key"]
    assert held(backend, "flask_cache_key") == held(second_backend, "flask_cache_key") == []


# Views and functions.


def in_context(app, function):
    def call(*args):
        with app.app_context():
            return function()

    return call


def a_view(app, cache, compute):
    app.add_url_rule("/", view_func=cache.cached(timeout=60)(compute))
    return lambda number: app.test_client().get("/").text


def an_async_view(app, cache, compute):
    @app.get("/")
    @cache.cached(timeout=60)
    async def view():
        return compute()

    return lambda number: app.test_client().get("/").text


def a_function(app, cache, compute):
    return in_context(app, cache.memoize(timeout=60)(lambda: compute()))


class Shop:
    def __repr__(self):
        return "<Shop>"

    def price(self, number):
        return self.compute()


def a_method(app, cache, compute):
    price, shop = cache.memoize(timeout=60)(Shop.price), Shop()
    shop.compute = compute
    return in_context(app, lambda: price(shop, 7))


def a_fragment(app, cache, compute):
    text = "{% cache 60, 'name' %}{{ compute() }}{% endcache %}"
    return in_context(app, lambda: flask.render_template_string(text, compute=compute))


@pytest.mark.pairs(full="what", of="what")
@pytest.mark.parametrize("prefix", ["flask_cache_", "", "shop:"])
@pytest.mark.parametrize("what", [a_view, an_async_view, a_function, a_method, a_fragment])
def test_however_many_ask_it_is_computed_once(make_waiting_app, together, clock, what, prefix):
    app, cache, backend = make_waiting_app(CACHE_KEY_PREFIX=prefix)
    computed = []

    def compute():
        until_waiting(THREADS - 1)
        computed.append(1)
        return f"value {len(computed)}"

    ask = what(app, cache, compute)
    for rounds in (1, 2):
        assert together(ask) == [f"value {rounds}"] * THREADS
        clock.advance(61)
    assert engine(backend).stats().coalesced >= 2 * (THREADS - 1)


@pytest.mark.parametrize("ends", ["value", "version"])
def test_a_memoized_none_is_computed_once_if_only_it_or_only_its_version_is_gone(make_waiting_app, together, ends):
    app, cache, backend = make_waiting_app()
    computed = []

    @cache.memoize(timeout=60, cache_none=True)
    def compute():
        if computed:
            until_waiting(THREADS - 1)
        computed.append(1)

    call = in_context(app, compute)
    call()
    for key in engine(backend).keys():
        if key.endswith("_memver") == (ends == "version"):
            engine(backend).delete(key)
    assert together(call) == [None] * THREADS
    assert len(computed) == 2


def test_the_end_of_the_request_of_an_async_view_that_raises_ends_its_leases(make_waiting_app):
    app, cache, backend = make_waiting_app()
    app.debug = app.testing = False

    @app.get("/")
    @cache.cached()
    async def view():
        # As the task that it is.
        cache.get("other")
        raise Boom

    for _ in range(2):
        assert app.test_client().get("/").status_code == 500
        assert held(backend, "flask_cache_view//", "flask_cache_other") == []


def test_what_an_async_view_has_done_in_threads_does_not_wait_for_its_own_request(make_waiting_app, texts):
    app, cache, _ = make_waiting_app()

    @app.get("/<name>")
    @cache.cached()
    async def view(name):
        # As the task that it is, which from here on has no lease of its own.
        cache.get("other")
        cache.set("other", 1)
        return str(await asyncio.to_thread(cache.get, f"view//{name}"))

    for name in "ab":
        assert texts(app.test_client(), f"/{name}", f"/{name}") == ["None", "None"]
        cache.delete("other")


def test_a_memoized_function_that_is_forgotten_while_it_runs_runs_once_more_and_that_is_what_is_kept(
    make_waiting_app, in_thread
):
    app, cache, _ = make_waiting_app()
    runs, go_on = [], [threading.Event(), threading.Event()]

    @cache.memoize(timeout=60)
    def compute():
        runs.append(1)
        run = len(runs)
        assert go_on[run - 1].wait(PATIENCE)
        return run

    call = in_context(app, compute)
    before = [in_thread(call) for _ in range(3)]
    assert until(lambda: len(runs) == 1)
    until_waiting(2)
    # That does not wait for the caller that computes.
    in_thread(in_context(app, lambda: cache.delete_memoized(compute))).result(PATIENCE)
    after = [in_thread(call) for _ in range(3)]
    assert until(lambda: len(runs) == 2)
    until_waiting(4)
    go_on[1].set()
    assert [each.result(PATIENCE) for each in after] == [2] * 3
    go_on[0].set()
    assert [each.result(PATIENCE) for each in before] == [1] * 3
    assert call() == 2
