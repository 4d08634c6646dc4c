"""fill_wait in Flask: app contexts, views, memoized functions. What it does with keys is in ``tests/backends``."""

import asyncio
import threading
import time
from collections import Counter

import flask
import flask_caching
import pytest

from tests.engines import engine, noted
from tests.waiting import PATIENCE, THREADS, until, until_waiting, waiting

LONG = 60
"""Seconds of a fill_wait that nobody should come to the end of; what takes less than PATIENCE did not wait for it."""


class Boom(Exception):
    pass


@pytest.fixture
def calls():
    """Who was called how often."""
    return Counter()


@pytest.fixture
def make_waiting_app(make_app):
    """Make an app with fill_wait: ``app, cache, backend = make_waiting_app()``."""

    def make_waiting_app(fill_wait=LONG, **config):
        app, cache = make_app(CACHE_OPTIONS={"fill_wait": fill_wait}, **config)
        return app, cache, app.extensions["cache"][cache]

    return make_waiting_app


def held(backend, *keys):
    """Which of the keys the running thread or task is to fill."""
    return [key for key in keys if engine(backend).is_leased(key)]


def seconds(function, *args):
    start = time.perf_counter()
    function(*args)
    return time.perf_counter() - start


def test_without_fill_wait_nothing_is_done_at_the_end_of_an_app_context(make_app):
    for options in ({}, {"fill_wait": 0}):
        assert make_app(CACHE_OPTIONS=options)[0].teardown_appcontext_funcs == []


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


def test_the_end_of_an_app_context_ends_its_leases(make_waiting_app, in_thread):
    app, cache, backend = make_waiting_app()
    with app.app_context():
        cache.get("key")
        waiters = [in_thread(backend.get, "key") for _ in range(3)]
        until_waiting(3)
    assert until(lambda: any(waiter.done() for waiter in waiters))
    # That one's thread is idle and holds it.
    until_waiting(2)
    backend.set("key", "value")
    assert sorted(str(waiter.result(PATIENCE)) for waiter in waiters) == ["None", "value", "value"]


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


def test_the_test_client_in_a_view_leaves_the_view_its_lease(make_waiting_app):
    app, cache, backend = make_waiting_app()
    other_app, _, _ = make_waiting_app()
    other_app.add_url_rule("/", view_func=lambda: "inner")

    @app.get("/")
    @cache.cached()
    def view():
        text = other_app.test_client().get("/").text
        assert held(backend, "flask_cache_view//")
        return f"outer of {text}"

    assert app.test_client().get("/").text == "outer of inner"
    assert not held(backend, "flask_cache_view//")


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


def test_a_request_is_not_held_up_by_what_its_own_thread_asked_for_in_the_one_before(make_waiting_app):
    app, cache, _ = make_waiting_app()

    @app.get("/<name>")
    def view(name):
        return str(cache.get(name))

    client = app.test_client()
    assert seconds(lambda: [client.get(path) for path in ("/a", "/b", "/b", "/a")]) < PATIENCE


def test_two_apps_in_a_process_do_not_wait_for_each_other(make_waiting_app, in_thread):
    (app, cache, backend), (other_app, other_cache, other_backend) = make_waiting_app(), make_waiting_app()

    def ask():
        with other_app.app_context():
            return other_cache.get("key"), held(other_backend, "flask_cache_key")

    with app.app_context():
        cache.get("key")
        assert in_thread(ask).result(PATIENCE) == (None, ["flask_cache_key"])
        assert in_thread(ask).result(PATIENCE) == (None, ["flask_cache_key"])
        assert held(backend, "flask_cache_key")


def test_two_caches_of_an_app_each_have_their_leases_and_its_contexts_end_both(make_waiting_app):
    app, cache, backend = make_waiting_app()
    other_cache = flask_caching.Cache(app)
    other_backend = noted(app.extensions["cache"][other_cache])
    with app.app_context():
        for each in (cache, other_cache):
            each.get("key")
        assert held(backend, "flask_cache_key") == held(other_backend, "flask_cache_key") == ["flask_cache_key"]
    assert held(backend, "flask_cache_key") == held(other_backend, "flask_cache_key") == []


# Views and functions.


def visit_together(together, app, path):
    return together(lambda number: app.test_client().get(path).text)


def test_however_many_ask_for_a_view_it_runs_once(make_waiting_app, together, calls):
    app, cache, backend = make_waiting_app()

    @app.get("/<name>")
    @cache.cached(timeout=60)
    def view(name):
        calls[name] += 1
        until_waiting(THREADS - 1)
        return f"{name} {calls[name]}"

    assert visit_together(together, app, "/a") == ["a 1"] * THREADS
    engine(backend).touch("flask_cache_view//a", 0.001)
    time.sleep(0.01)
    assert visit_together(together, app, "/a") == ["a 2"] * THREADS
    assert engine(backend).stats().coalesced == 2 * (THREADS - 1)


def test_however_many_ask_for_an_async_view_it_runs_once(make_waiting_app, together, calls):
    app, cache, _ = make_waiting_app()

    @app.get("/")
    @cache.cached(timeout=60)
    async def view():
        calls["view"] += 1
        until_waiting(THREADS - 1)
        return f"page {calls['view']}"

    assert visit_together(together, app, "/") == ["page 1"] * THREADS


@pytest.mark.parametrize("asks", [False, True])
def test_the_end_of_the_request_of_an_async_view_that_raises_ends_its_leases(make_waiting_app, asks):
    app, cache, backend = make_waiting_app()
    app.debug = app.testing = False

    @app.get("/")
    @cache.cached()
    async def view():
        if asks:
            # As the task that it is.
            cache.get("other")
        raise Boom

    for _ in range(3):
        assert app.test_client().get("/").status_code == 500
        assert held(backend, "flask_cache_view//", "flask_cache_other") == []


def test_what_an_async_view_has_done_in_threads_does_not_wait_for_its_own_request(make_waiting_app):
    app, cache, _ = make_waiting_app(5)

    @app.get("/<name>")
    @cache.cached()
    async def view(name):
        # As the task that it is, which from here on has no lease of its own.
        cache.get("other")
        cache.set("other", 1)
        return str(await asyncio.to_thread(cache.get, f"view//{name}"))

    client = app.test_client()
    for name in "ab":
        assert seconds(lambda name=name: client.get(f"/{name}")) < 4
        assert client.get(f"/{name}").text == "None"
        cache.delete("other")


@pytest.mark.parametrize("prefix", ["flask_cache_", "", "shop:"])
def test_however_many_call_a_memoized_function_it_runs_once_an_argument(make_waiting_app, together, calls, prefix):
    app, cache, backend = make_waiting_app(CACHE_KEY_PREFIX=prefix)

    @cache.memoize(timeout=60)
    def double(number):
        calls[number] += 1
        time.sleep(0.05)
        return 2 * number

    def call(number):
        with app.app_context():
            return double(number % 4)

    for rounds in (1, 2):
        assert together(call) == [2 * (number % 4) for number in range(THREADS)]
        assert calls == dict.fromkeys(range(4), rounds)
        for key in engine(backend).keys():
            engine(backend).touch(key, 0.001)
        time.sleep(0.01)


def test_the_version_of_a_memoized_function_is_made_once_and_is_everybodys(make_waiting_app, together, monkeypatch):
    app, cache, _ = make_waiting_app()
    versions, keys = [], set()
    double = cache.memoize(timeout=60)(lambda number: 2 * number)

    def make_version():
        until_waiting(THREADS - 1)
        versions.append("version")
        return f"version {len(versions)}"

    def call(number):
        with app.app_context():
            keys.add(double.make_cache_key(double.uncached, 1))

    monkeypatch.setattr(cache, "_memoize_make_version_hash", make_version)
    together(call)
    assert len(versions) == len(keys) == 1


@pytest.mark.parametrize("ends", ["value", "version"])
def test_a_memoized_function_runs_once_if_only_its_value_or_only_its_version_has_expired(
    make_waiting_app, together, calls, ends
):
    app, cache, backend = make_waiting_app()

    @cache.memoize(timeout=60)
    def compute():
        calls["compute"] += 1
        time.sleep(0.05)
        return "value"

    def call(number):
        with app.app_context():
            return compute()

    call(0)
    for key in engine(backend).keys():
        if key.endswith("_memver") == (ends == "version"):
            engine(backend).touch(key, 0.001)
    time.sleep(0.01)
    assert together(call) == ["value"] * THREADS
    assert calls["compute"] == 2


class Shop:
    def __init__(self, name, calls):
        self.name = name
        self.calls = calls

    def __repr__(self):
        return f"<Shop {self.name}>"

    def price(self, number):
        self.calls[self.name, number] += 1
        time.sleep(0.05)
        return f"{self.name} {number}"


def test_however_many_call_a_memoized_method_it_runs_once_an_instance(make_waiting_app, together, calls):
    app, cache, _ = make_waiting_app()
    price = cache.memoize(timeout=60)(Shop.price)
    shops = [Shop("a", calls), Shop("b", calls)]

    def call(number):
        with app.app_context():
            return price(shops[number % 2], 7)

    assert together(call) == ["a 7", "b 7"] * (THREADS // 2)
    assert calls == {("a", 7): 1, ("b", 7): 1}


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

    def in_context(function, *args):
        with app.app_context():
            return function(*args)

    before = [in_thread(in_context, compute) for _ in range(3)]
    assert until(lambda: len(runs) == 1)
    until_waiting(2)
    in_context(cache.delete_memoized, compute)
    after = [in_thread(in_context, compute) for _ in range(3)]
    assert until(lambda: len(runs) == 2)
    until_waiting(4)
    go_on[1].set()
    assert [each.result(PATIENCE) for each in after] == [2] * 3
    go_on[0].set()
    assert [each.result(PATIENCE) for each in before] == [1] * 3
    assert in_context(compute) == 2


def test_forgetting_a_memoized_function_does_not_wait_for_who_computes_it(make_waiting_app, in_thread):
    app, cache, _ = make_waiting_app()
    running, go_on = threading.Event(), threading.Event()

    @cache.memoize(timeout=60)
    def compute(number):
        running.set()
        assert go_on.wait(PATIENCE)
        return number

    def in_context(function, *args):
        with app.app_context():
            return function(*args)

    first = in_thread(in_context, compute, 1)
    assert running.wait(PATIENCE)
    for forget in (cache.delete_memoized, cache.delete_memoized_verhash):
        in_thread(in_context, forget, compute).result(PATIENCE)
    in_thread(in_context, cache.delete_memoized, compute, 1).result(PATIENCE)
    go_on.set()
    assert first.result(PATIENCE) == 1


def test_a_memoized_function_that_calls_itself_does_not_wait_for_itself(make_waiting_app, calls):
    app, cache, _ = make_waiting_app()

    @cache.memoize(timeout=60)
    def factorial(number):
        calls[number] += 1
        return number * factorial(number - 1) if number else 1

    with app.app_context():
        assert factorial(10) == 3628800
    assert set(calls.values()) == {1}


def test_a_memoized_none_is_computed_once_if_nones_are_cached(make_waiting_app, together, calls):
    app, cache, _ = make_waiting_app()

    @cache.memoize(timeout=60, cache_none=True)
    def compute():
        calls["compute"] += 1
        time.sleep(0.05)

    def call(number):
        with app.app_context():
            return compute()

    assert together(call) == [None] * THREADS
    assert calls["compute"] == 1


def test_however_many_render_a_cached_fragment_it_is_rendered_once(make_waiting_app, together, calls):
    app, _, _ = make_waiting_app()

    def compute():
        calls["fragment"] += 1
        until_waiting(THREADS - 1)
        return "computed"

    def render(number):
        with app.app_context():
            return flask.render_template_string("{% cache 60, 'name' %}{{ compute() }}{% endcache %}", compute=compute)

    assert together(render) == ["computed"] * THREADS
    assert calls["fragment"] == 1
