"""``@memoize`` of ``wheelcache.flask_backend.Cache``, async functions, and other backends: its behavior beyond
Flask-Caching's own. ``tests/backends`` tests the behavior of ``@memoize`` that Django's shares.

Flask-Caching's own tests run on it in ``tests/conformance``.
"""

import asyncio
import math
import threading

import flask
import pytest
from flask_caching.backends import NullCache, SimpleCache
from werkzeug.exceptions import NotFound

from tests.engines import engine
from tests.flask_backend.slow import Slow, in_app, together
from tests.waiting import PATIENCE, until_waiting
from wheelcache import KEEP
from wheelcache.flask_backend import Cache

# Memoized functions.


def test_arguments_that_are_equal_and_look_different_are_different(site):
    _, cache, _ = site

    @cache.memoize(60)
    def text(value):
        return repr(value)

    assert [text(value) for value in (1, True, 1.0, "1", None)] == ["1", "True", "1.0", "'1'", "None"]
    assert text(True) == "True"


def test_arguments_may_be_ignored_by_position_and_by_name(site):
    _, cache, _ = site
    computed = []

    @cache.memoize(60, args_to_ignore=["b", "trace"])
    def note(a, b=2, **names):
        computed.append(a)
        return len(computed)

    assert [note(1), note(1, 5), note(1, b=6), note(1, trace="x"), note(1, trace="y")] == [1, 1, 1, 1, 1]
    assert note(1, other="x") == 2


def test_a_value_that_is_not_cached_is_not_shared(any_site, in_thread):
    """The value may belong to one visitor."""
    app, cache, backend = any_site
    slow = Slow()

    @cache.memoize(60, response_filter=lambda value: False)
    def load():
        return slow()

    outcomes = [each.result(PATIENCE) for each in together(in_thread, app, load, slow)]
    assert sorted(outcomes) == [f"value {number}" for number in range(1, 9)]
    assert backend.get(load.make_cache_key(load.uncached)) is None


def test_a_none_is_computed_again_unless_it_may_be_cached(any_site):
    _, cache, _ = any_site
    computed = []
    forgets, keeps = (cache.memoize(60, cache_none=keep)(lambda kind: computed.append(kind)) for keep in (False, True))
    for _ in range(3):
        assert forgets("forgets") is keeps("keeps") is None
    assert computed == ["forgets", "keeps", "forgets", "forgets"]


def test_the_version_of_a_function_expires_with_its_last_value(make_app, clock):
    app, cache = make_app(Cache())
    computed = []

    @cache.memoize(60)
    def note(value):
        computed.append(value)
        return value

    with app.app_context():
        for seconds, value in ((0, "a"), (59, "b"), (59, "b"), (1, "b")):
            clock.advance(seconds)
            note(value)
        assert computed == ["a", "b", "b"]
        clock.advance(60)
        assert list(engine(cache.cache).keys()) == []


def test_the_key_of_a_view_may_be_the_callers_choice(site):
    app, cache, _ = site
    own = cache.cached(60, make_cache_key=lambda name: f"own {name}")(lambda name: f"own {name}")
    fixed = cache.cached(60, key_prefix="fixed")(lambda: "fixed")
    queried = cache.cached(60, query_string=True)(lambda: flask.request.query_string.decode())
    with app.test_request_context("/?b=1&a=2"):
        assert [own("a"), fixed(), queried()] == ["own a", "fixed", "b=1&a=2"]
        assert [cache.get("own a"), cache.get("fixed")] == ["own a", "fixed"]
    with app.test_request_context("/?a=2&b=1"):
        assert queried() == "b=1&a=2"


def test_the_name_and_the_source_of_a_function_may_be_part_of_its_keys(site):
    _, cache, _ = site
    one = cache.memoize(60, make_name=lambda name: "shared")(lambda key: ["one", key])
    other = cache.memoize(60, make_name=lambda name: f"{name}2")(lambda key: ["other", key])
    functions = [
        cache.memoize(60, source_check=True)(function) for function in (lambda key: ["three"], lambda key: ["four"])
    ]
    for _ in range(2):
        assert [one("a"), other("a")] == [["one", "a"], ["other", "a"]]
        assert [function("a") for function in functions] == [["three"], ["four"]]


def test_a_generator_is_kept_as_its_text_and_an_http_exception_of_a_function_is_raised_each_time(any_site):
    _, cache, _ = any_site
    runs = []

    @cache.memoize(60)
    def parts():
        runs.append("parts")
        yield from ("a", "b")

    @cache.memoize(60)
    def gone():
        runs.append("gone")
        raise NotFound

    assert [parts(), parts()] == ["ab", "ab"]
    for _ in range(2):
        with pytest.raises(NotFound):
            gone()
    assert runs == ["parts", "gone", "gone"]


def test_a_function_receives_the_previous_value_and_may_keep_it_if_there_is_one(site):
    _, cache, _ = site
    received = []

    @cache.memoize(60, forced_update=lambda: True)
    def load(*, previous):
        received.append(previous)
        return KEEP if len(received) > 1 else ["value"]

    assert [load(), load()] == [["value"]] * 2
    assert received == [None, ["value"]]
    cache.delete_memoized(load)
    with pytest.raises(ValueError, match="returned KEEP, and there is no previous value"):
        load()


def test_forced_updates_are_not_shared_and_set_the_value(site):
    _, cache, _ = site
    computed, is_forced = [], True

    @cache.memoize(60, forced_update=lambda: is_forced)
    def note():
        computed.append(1)
        return len(computed)

    assert [note(), note()] == [1, 2]
    is_forced = False
    assert [note(), note()] == [2, 2]


def test_a_none_that_replaces_a_value_takes_it_away(any_site):
    _, cache, _ = any_site
    values, is_forced = iter(["a", None, "b"]), iter([False, True, False])
    load = cache.memoize(60, forced_update=lambda: next(is_forced))(lambda: next(values))
    assert [load() for _ in range(3)] == ["a", None, "b"]


def test_a_stale_value_is_computed_once_for_all_callers_that_find_it(any_site, in_thread):
    app, cache, _ = any_site
    slow = Slow()
    slow.may_return.set()
    load = cache.memoize(60, is_stale=lambda value: value == "value 1")(lambda: slow())
    assert load() == "value 1"
    slow.may_return.clear()
    callers = [in_thread(in_app(app, load)) for _ in range(8)]
    until_waiting(7)
    slow.may_return.set()
    assert [each.result(PATIENCE) for each in callers] == ["value 2"] * 8
    assert load() == "value 2"


def test_a_value_that_cannot_be_pickled_is_returned_and_logged_or_raised_in_debug_mode(any_site, caplog):
    app, cache, _ = any_site
    load = cache.memoize(60)(lambda: threading.Lock())
    with pytest.raises(TypeError, match="pickle"):
        load()
    app.debug = False
    assert load() is not load()
    assert "Exception possibly due to cache backend" in caplog.text


def test_a_negative_timeout_keeps_nothing_and_still_shares(site, in_thread):
    app, cache, _ = site
    slow = Slow()
    load = cache.memoize(-1)(lambda: slow())
    outcomes = [each.result(PATIENCE) for each in together(in_thread, app, load, slow)]
    assert outcomes == ["value 1"] * 8
    assert load() == "value 2"


def test_a_value_that_is_not_kept_leaves_the_other_values_of_its_function(any_site):
    _, cache, _ = any_site
    computed = []
    read = cache.memoize(lambda value: math.inf if value else 0.0)(lambda value: computed.append(value) or value)
    assert [read(1), read(0), read(1)] == [1, 0, 1]
    assert computed == [1, 0]


def test_the_values_of_one_instance_are_deleted(site):
    _, cache, _ = site
    computed = []

    class Shop(str):
        @cache.memoize(60)
        def price(self, number):
            computed.append((self, number))
            return number

    one, other = Shop("one"), Shop("other")
    for shop in (one, other):
        assert [shop.price(1), shop.price(1)] == [1, 1]
    cache.delete_memoized(one.price)
    assert [one.price(1), other.price(1)] == [1, 1]
    assert computed == [("one", 1), ("other", 1), ("one", 1)]


def test_the_attributes_of_a_decorated_function_are_those_of_flask_caching(site, clock):
    _, cache, backend = site
    load = cache.memoize(60)(lambda: ["value"])
    assert load.uncached() == load() == ["value"]
    assert backend.get(load.make_cache_key(load.uncached)) == ["value"]
    load.delete_memoized()
    assert backend.get(load.make_cache_key(load.uncached)) is None
    load.cache_timeout = 1
    load()
    assert engine(backend).expires_in(f"flask_cache_{load.make_cache_key(load.uncached)}") <= 1


# Async functions.


def test_an_async_function_is_cached_in_views_and_called_like_any_other_outside_of_a_task(site):
    app, cache, _ = site
    runs = []

    @cache.memoize(60)
    async def part(name):
        runs.append(name)
        return name

    @app.get("/<name>")
    @cache.cached(60)
    async def page(name):
        runs.append("page")
        if name == "gone":
            flask.abort(404)
        return f"{await part(name)} {await part(name)}"

    assert part("a") == part("a") == "a"
    assert [app.test_client().get("/a").text for _ in range(2)] == ["a a", "a a"]
    assert [app.test_client().get("/gone").status_code for _ in range(2)] == [404, 404]
    assert runs == ["a", "page", "page"]


def test_an_async_view_that_a_task_awaits_is_cached_with_its_exception_unless_it_is_called_without_the_cache(site):
    app, cache, _ = site
    runs, is_bypassed = [], iter([False, False, True])

    @cache.cached(60, unless=lambda: next(is_bypassed))
    async def page():
        runs.append(1)
        flask.abort(404)

    async def visit():
        with pytest.raises(NotFound):
            await page()

    with app.test_request_context("/"):
        for _ in range(3):
            asyncio.run(visit())
    assert len(runs) == 2


# Other backends, subclasses, several apps.


@pytest.mark.parametrize(("backend", "runs"), [(SimpleCache, 1), (NullCache, 3)])
def test_with_a_backend_of_another_package_flask_cachings_own_decorators_are_in_charge(backend, runs):
    app = flask.Flask(__name__)
    cache, calls = Cache(), []
    load = cache.memoize(60)(lambda key: [key, calls.append(key)])
    # Functions may be decorated before there is an app.
    cache.init_app(app, {"CACHE_TYPE": backend.__name__, "CACHE_NO_NULL_WARNING": True})
    app.add_url_rule("/", "page", cache.cached(60)(lambda: str(calls.append("page"))))
    for _ in range(3):
        assert app.test_client().get("/").text == "None"
        with app.app_context():
            assert type(cache.cache) is backend
            assert load("a") == ["a", None]
    assert sorted(calls) == ["a"] * runs + ["page"] * runs
    with app.app_context():
        cache.delete_memoized(load, "a")
        load("a")
    assert calls[-1] == "a"
    assert len(calls) == 2 * runs + 1


def test_one_object_serves_several_apps_each_with_its_own_backend(make_app):
    cache, computed = Cache(), []
    apps = [make_app(cache, name=name)[0] for name in ("one", "other")]
    apps.append(flask.Flask("simple"))
    cache.init_app(apps[-1], {"CACHE_TYPE": "SimpleCache"})

    @cache.memoize(60)
    def load():
        computed.append(flask.current_app.name)
        return flask.current_app.name

    for _ in range(2):
        for app in apps:
            with app.app_context():
                assert load() == app.name
    assert computed == ["one", "other", "simple"]
    with apps[0].app_context():
        cache.delete_memoized(load)
    for app in apps:
        with app.app_context():
            load()
    assert computed[3:] == ["one"]
    # Outside of an app context, the newest app counts, as in Flask-Caching.
    assert (load(), type(cache.cache)) == ("simple", SimpleCache)


class Traced(Cache):
    """Wraps a method that the decorators call."""

    seen = 0

    def get(self, *args, **kwargs):
        self.seen += 1
        return super().get(*args, **kwargs)


@pytest.mark.parametrize(("kind", "seen"), [(Traced, 2), (type("Renamed", (Cache,), {"seen": 0}), 0)])
def test_a_subclass_that_wraps_a_method_which_the_decorators_call_is_called(make_app, kind, seen):
    app, cache = make_app(kind())
    load = cache.memoize(60)(lambda: "value")
    with app.app_context():
        assert [load(), load(), cache.seen] == ["value", "value", seen]


# Tags.


def test_a_view_leaves_with_the_tags_of_its_arguments(any_site):
    app, cache, _ = any_site
    texts = iter("abcdef")

    @app.route("/<int:user>")
    @cache.cached(60, tags=lambda user: (f"user:{user}",))
    def page(user):
        return next(texts)

    client = app.test_client()
    assert [client.get(f"/{user}").text for user in (1, 2, 1, 2)] == ["a", "b", "a", "b"]
    with app.app_context():
        cache.delete_tags("user:2")
    assert [client.get(f"/{user}").text for user in (1, 2, 1, 2)] == ["a", "c", "a", "c"]


@pytest.mark.parametrize(
    "given", [{"forced_update": lambda: True}, {"is_stale": lambda value: True}], ids=lambda given: "".join(given)
)
def test_a_value_that_is_updated_while_its_tag_is_dropped_is_not_kept(any_site, given, in_thread):
    app, cache, _ = any_site

    def drop():
        with app.app_context():
            cache.delete_tags("a")

    def compute():
        if drops:
            in_thread(drop).result(PATIENCE)
        return "old" if drops else "new"

    note = cache.memoize(60, tags=("a",), **given)(compute)
    drops = False
    assert note() == "new"
    drops = True
    assert note() == "old"
    assert cache.get(note.make_cache_key(note.uncached)) is None


@pytest.mark.parametrize("decorator", ["cached", "memoize"])
def test_tags_that_could_not_be_dropped_are_an_error(decorator):
    app = flask.Flask(__name__)
    cache = Cache(app, config={"CACHE_TYPE": "SimpleCache"})
    without = Cache(app, config={"CACHE_TYPE": "NullCache", "CACHE_NO_NULL_WARNING": True})
    with app.test_request_context("/"):
        for call in (getattr(cache, decorator)(60, tags=("a",))(lambda: "value"), lambda: cache.delete_tags("a")):
            with pytest.raises(TypeError, match="must be used with"):
                call()
        # What keeps nothing accepts them.
        assert getattr(without, decorator)(60, tags=("a",))(lambda: "value")() == "value"
        without.delete_tags("a")


def test_a_subclass_whose_decorators_are_flask_cachings_refuses_tags():
    with pytest.raises(TypeError, match="Traced overrides a method"):
        Traced().memoize(60, tags=("a",))
