"""Flask-Caching's decorators, its Jinja tag and its proxies on real Flask apps: timeouts, threads, several apps.

The decorators are tested by Flask-Caching's own suite, which runs on the backend (``tests/conformance``).
"""

import gc
import weakref
from collections import Counter
from datetime import timedelta

import flask
import flask_caching
import pytest
from flask_caching import CachedResponse

from tests.engines import engine
from tests.flask_backend.conftest import BACKEND, OF_FLASK_CACHING_2_5
from tests.scripts import run_python
from tests.waiting import THREADS, until


@pytest.fixture
def calls():
    """Count the calls of each function."""
    return Counter()


# Views.


def test_a_cached_view_runs_once_a_path_until_its_timeout(make_app, clock, calls):
    app, cache = make_app()

    @app.route("/<name>")
    @cache.cached(timeout=10)
    def view(name):
        calls[name] += 1
        return f"{name} {calls[name]}"

    client = app.test_client()
    assert [client.get(path).text for path in ("/a", "/b", "/a", "/a?x=1")] == ["a 1", "b 1", "a 1", "a 1"]
    clock.advance(9)
    assert client.get("/a").text == "a 1"
    clock.advance(1)
    assert client.get("/a").text == "a 2"


@pytest.mark.parametrize(
    ("timeout", "seconds"),
    [
        *((None, 300), (0, None), (7, 7), (timedelta(minutes=1), 60)),
        pytest.param("50", 50, marks=OF_FLASK_CACHING_2_5),
    ],
)
def test_the_timeout_of_a_view_is_that_of_its_response_or_the_decorator_or_the_default(
    make_app, clock, timeout, seconds
):
    app, cache = make_app(CACHE_KEY_PREFIX="")
    app.add_url_rule("/", "view", cache.cached(timeout=timeout)(lambda: "page"))
    own = cache.cached(timeout=timeout)(lambda: CachedResponse(flask.make_response("page"), timeout=20))
    app.add_url_rule("/own", "own", own)
    assert [app.test_client().get(url).text for url in ("/", "/own")] == ["page", "page"]
    engine_ = engine(app.extensions["cache"][cache])
    assert (engine_.expires_in("view//"), engine_.expires_in("view//own")) == (seconds, 20)


def test_headers_cookies_and_status_of_a_response_are_cached_and_not_shared(make_app, calls):
    app, cache = make_app()

    @app.after_request
    def stamp(response):
        response.headers["X-Count"] = str(int(response.headers["X-Count"]) + 1)
        return response

    @app.route("/")
    @cache.cached()
    def view():
        calls["view"] += 1
        response = flask.make_response("teapot", 418, {"X-Count": "1"})
        response.set_cookie("seen", "yes")
        return response

    for _ in range(3):
        response = app.test_client().get("/")
        # 2 each time: what after_request did to the one that was sent is not in the one that is cached.
        assert (response.status_code, response.text, response.headers["X-Count"]) == (418, "teapot", "2")
        assert "seen=yes" in response.headers["Set-Cookie"]
    assert calls["view"] == 1


def test_many_clients_at_once_get_the_right_page_while_pages_are_evicted_expire_and_are_deleted(
    make_app, together, ticks
):
    ticks(0.001)
    app, cache = make_app(CACHE_THRESHOLD=5)

    @app.route("/<int:number>")
    @cache.cached(timeout=0.001)
    def view(number):
        return {"number": number}

    def visit(number):
        client = app.test_client()
        right = []
        for step in range(8):
            each = (number + step) % 12
            right.append(client.get(f"/{each}").json == {"number": each})
            if step == number:
                with app.app_context():
                    cache.clear()
            elif step % 5 == 0:
                with app.app_context():
                    cache.delete_cached(view, f"/{each}")
        return all(right)

    assert all(together(visit))
    assert len(engine(app.extensions["cache"][cache])) <= 5


# Memoized functions.


@pytest.mark.parametrize("threshold", [1, 2, 3])
def test_a_memoized_function_is_right_even_if_hardly_anything_fits_and_its_results_are_changed(make_app, threshold):
    app, cache = make_app(CACHE_THRESHOLD=threshold)
    doubled = cache.memoize()(lambda number: [2 * number])
    with app.app_context():
        for number in [0, 1, 0, 0, 2, 1, 1, 0]:
            result = doubled(number)
            assert result == [2 * number]
            result.append("changed")


def test_after_delete_memoized_no_thread_gets_what_was_computed_before(make_app, together):
    app, cache = make_app()
    version = [0]

    @cache.memoize()
    def read(name):
        return [name, version[0]]

    def use(number):
        with app.app_context():
            return [read(name) for name in "abc"]

    for round_ in range(3):
        version[0] = round_
        with app.app_context():
            cache.delete_memoized(read)
        assert together(use) == [[[name, round_] for name in "abc"]] * THREADS


def test_delete_memoized_while_many_threads_compute_breaks_nothing(make_app, together):
    app, cache = make_app(CACHE_THRESHOLD=20)
    squared = cache.memoize()(lambda number: {number: number**2})

    def use(number):
        right = []
        with app.app_context():
            for step in range(10):
                each = (number + step) % 30
                right.append(squared(each) == {each: each**2})
                if step == number % 10:
                    cache.delete_memoized(squared)
                elif step % 5 == 0:
                    cache.delete_memoized(squared, each)
        return all(right)

    assert all(together(use))


# Templates.


def test_a_fragment_is_rendered_once_for_what_it_varies_on(make_app, clock, calls):
    app, cache = make_app()
    source = "{% cache 10, 'fragment', name %}<b>{{ count(name) }}</b>{% endcache %}"

    @app.route("/<name>")
    def view(name):
        def count(name):
            calls[name] += 1
            return f"{name} {calls[name]}"

        return flask.render_template_string(source, name=name, count=count)

    client = app.test_client()
    assert [client.get(path).text for path in ("/a", "/a", "/b")] == ["<b>a 1</b>", "<b>a 1</b>", "<b>b 1</b>"]
    with app.app_context():
        cache.delete(flask_caching.make_template_fragment_key("fragment", ["a"]))
    assert [client.get(path).text for path in ("/a", "/b")] == ["<b>a 2</b>", "<b>b 1</b>"]
    clock.advance(10)
    assert client.get("/b").text == "<b>b 2</b>"


# Figures.


@pytest.mark.compiled
def test_views_fragments_and_other_keys_are_in_groups(make_app):
    app, cache = make_app(CACHE_KEY_PREFIX="shop:")
    app.add_url_rule("/", "view", cache.cached()(lambda: "page"))
    source = "{% cache 10, 'side', 'a:b' %}{% endcache %}"
    app.add_url_rule("/fragment", "fragment", lambda: flask.render_template_string(source))
    for path in ("/", "/fragment"):
        app.test_client().get(path)
    with app.app_context():
        for key in ("user:7", "plain"):
            cache.get(key)
    found = engine(cache.cache).stats().groups
    assert {name for name, group in found.items() if group.misses} == {"view", "fragments", "user", ""}


# Apps.


def shared_blueprint():
    """Return the parts of a reusable package: a cache made without an app, and a blueprint with views that use it."""
    cache = flask_caching.Cache()
    blueprint = flask.Blueprint("pages", __name__)

    @blueprint.route("/page")
    @cache.cached()
    def page():
        return f"{flask.current_app.name} {total(1)}"

    @blueprint.route("/set/<value>")
    def set_value(value):
        return {"set": cache.set("key", value)}

    @blueprint.route("/get")
    def get_value():
        return {"value": cache.get("key")}

    @cache.memoize()
    def total(number):
        return f"{flask.current_app.name} {number}"

    return cache, blueprint


def created(name, cache, blueprint, **config):
    """The app factory pattern."""
    app = flask.Flask(name)
    app.debug = True
    app.config.update(CACHE_TYPE=BACKEND, **config)
    cache.init_app(app)
    app.register_blueprint(blueprint)
    return app


def test_two_apps_from_one_factory_with_one_cache_have_their_own_settings_and_share_nothing(clock):
    cache, blueprint = shared_blueprint()
    first = created("first", cache, blueprint, CACHE_DEFAULT_TIMEOUT=10, CACHE_OPTIONS={"jitter": 0})
    second = created("second", cache, blueprint, CACHE_DEFAULT_TIMEOUT=100, CACHE_OPTIONS={"jitter": 0})
    one, other = first.test_client(), second.test_client()
    for _ in range(2):
        assert one.get("/page").text == "first first 1"
        assert other.get("/page").text == "second second 1"
    one.get("/set/one")
    assert [client.get("/get").json for client in (one, other)] == [{"value": "one"}, {"value": None}]
    other.get("/set/two")
    clock.advance(10)
    assert [client.get("/get").json for client in (one, other)] == [{"value": None}, {"value": "two"}]
    one.get("/set/one")
    with second.app_context():
        assert cache.clear() is True
    assert [client.get("/get").json for client in (one, other)] == [{"value": "one"}, {"value": None}]


def test_two_caches_of_one_app_are_where_flask_caching_has_them_and_share_nothing(make_app):
    app, first = make_app()
    second = flask_caching.Cache()
    second.init_app(app, config={"CACHE_THRESHOLD": 7})
    assert list(app.extensions["cache"]) == [first, second]
    with app.app_context():
        assert first.cache is app.extensions["cache"][first]
        first.set("key", 1)
        assert second.get("key") is None


def test_an_app_without_references_leaves_with_its_store(make_app):
    app, cache = make_app()
    store = weakref.ref(engine(app.extensions["cache"][cache]))
    del app, cache
    assert until(lambda: gc.collect() >= 0 and store() is None)


def test_with_an_older_flask_caching_our_cache_is_an_import_error_that_names_the_version():
    script = "import flask_caching as it; vars(it).pop('cache_view_hit', 0); from wheelcache.flask_backend import Cache"
    done = run_python("-c", script)
    assert done.stderr.endswith("ImportError: wheelcache.flask_backend.Cache needs Flask-Caching 2.5 or newer\n")
