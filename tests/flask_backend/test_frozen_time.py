"""Time that tests move: the same script on SimpleCache and on WheelCache has the same answers."""

from datetime import timedelta

import pytest
from cachelib import SimpleCache

from tests.time_travel import FAR, LIBRARIES, LONG_AGO, in_real_time


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param


@pytest.fixture
def both(make):
    """A SimpleCache and a WheelCache. Every call goes to both, and must have the same answer."""
    simple, wheel = SimpleCache(), make()

    class Both:
        def __getattr__(self, name):
            def call(*args):
                expected, answer = getattr(simple, name)(*args), getattr(wheel, name)(*args)
                assert answer == expected, (name, args)
                return answer

            return call

    return Both()


def set_before(both, library):
    both.set("a", 1, 300)
    both.set("b", 1, 310)
    both.set("always", 1, 0)
    with library.freeze(in_real_time(302)):
        assert both.get_dict("a", "b", "always") == {"a": None, "b": 1, "always": 1}
    assert both.get_dict("b", "always") == {"b": 1, "always": 1}


def set_before_a_freeze_in_the_past(both, library):
    both.set("a", 1, 300)
    with library.freeze(LONG_AGO) as time_:
        assert both.get("a") == 1
        time_.shift(86_400 * 365)
        assert both.get("a") == 1
    assert both.get("a") == 1


def set_in_it(both, library):
    with library.freeze(FAR) as time_:
        both.set("a", 1, 300)
        both.set("b", 1, 300)
        time_.shift(299)
        assert both.get("a") == 1
        time_.shift(1)
        assert both.get("a") is None
        assert both.has("a") is False
    assert both.get("b") == 1
    with library.freeze(FAR + timedelta(seconds=300)):
        assert both.get("b") is None


def set_in_the_past(both, library):
    with library.freeze(LONG_AGO) as time_:
        both.set("a", 1, 300)
        both.set("b", 1, 86_400 * 365 * 60)
        time_.shift(299)
        assert both.get("a") == 1
    assert both.get("a") is None
    assert both.get("b") == 1


def moved_to_and_fro(both, library):
    with library.freeze(FAR) as time_:
        both.set("a", 1, 300)
        time_.move_to(LONG_AGO)
        assert both.get("a") == 1
        both.set("a", 2, 10)
        time_.shift(9)
        assert both.get("a") == 2
        time_.move_to(FAR)
        assert both.get("a") is None


def nested(both, library):
    with library.freeze(FAR):
        both.set("a", 1, 300)
        with library.freeze(FAR + timedelta(seconds=299)):
            both.set("b", 1, 300)
            assert both.get("a") == both.get("b") == 1
        assert both.get("a") == both.get("b") == 1
        with library.freeze(FAR + timedelta(seconds=300)):
            assert both.get("a") is None
            assert both.get("b") == 1


def ticking(both, library):
    with library.freeze(FAR, tick=True) as time_:
        both.set("a", 1, 300)
        time_.shift(290)
        assert both.get("a") == 1
        time_.shift(11)
        assert both.get("a") is None


def every_method(both, library):
    with library.freeze(FAR) as time_:
        assert both.add("a", 1, 10)
        time_.shift(9)
        assert both.add("a", 2, 10) is False
        assert both.get_many("a") == [1]
        time_.shift(2)
        assert both.has("a") is False
        assert both.get_many("a") == [None]
        assert both.add("a", 3, 10)
        both.set_many({"c": 1, "d": 2}, 10)
        time_.shift(11)
        assert both.get_dict("c", "d") == {"c": None, "d": None}
        both.set("never", 1, 0)
        time_.shift(1e9)
        assert both.get("never") == 1


SCRIPTS = (
    set_before,
    set_before_a_freeze_in_the_past,
    set_in_it,
    set_in_the_past,
    moved_to_and_fro,
    nested,
    ticking,
    every_method,
)


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_has_the_answers_of_simplecache(script, library, both):
    script(both, library)


def test_a_cached_view_and_a_memoized_function_expire(make_app, library):
    app, cache = make_app()
    calls = []

    @app.route("/page")
    @cache.cached(timeout=300)
    def page():
        calls.append("page")
        return str(len(calls))

    @cache.memoize(timeout=300)
    def function(number):
        calls.append(number)
        return number

    client = app.test_client()
    with library.freeze(FAR) as time_, app.app_context():
        assert client.get("/page").data == client.get("/page").data == b"1"
        assert function(7) == function(7) == 7
        time_.shift(299)
        client.get("/page")
        function(7)
        assert calls == ["page", 7]
        time_.shift(1)
        client.get("/page")
        function(7)
        assert calls == ["page", 7, "page", 7]
