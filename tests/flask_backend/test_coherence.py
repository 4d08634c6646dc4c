"""coherence="host": apps of one name, which act like apps in processes of their own."""

import os
from itertools import count

import flask_caching
import pytest

from tests.flask_backend.conftest import OF_FLASK_CACHING_2_5

pytestmark = pytest.mark.usefixtures("own_stamps")

_names = map("coherent app {}".format, count())


@pytest.fixture
def name():
    """The name of an app that no other test or test run uses."""
    return f"{next(_names)} of {os.getpid()}"


def test_caches_of_another_prefix_are_left_alone(make, name):
    one, other = (make(coherence="host", name=name, key_prefix=prefix) for prefix in ("", "p"))
    for each in (one, other):
        each.set("k", "old")
    one.clear()
    assert (one.get("k"), other.get("k")) == (None, "old")


def test_a_miss_of_one_request_is_no_miss_of_the_next(make_app, name):
    """If a thread sets a value in a later request than its miss, other processes are notified."""
    options = {"coherence": "host"}
    (app, cache), (_, other) = (make_app(name=name, CACHE_OPTIONS=options) for _ in range(2))
    with app.app_context():
        assert cache.get("k") is None
    with other.app.app_context():
        assert other.get("k") is None
        other.set("k", "old")
    with app.app_context():
        cache.set("k", "new")
    with other.app.app_context():
        assert other.get("k") is None


def memoized_function(cache, computed):
    @cache.memoize(60)
    def note(number):
        computed.append(number)
        return number

    return note, note


def memoized_method(cache, computed):
    """Flask-Caching gives it two versions: of the method, and of the object, which it tells by its repr."""

    class Notes:
        @cache.memoize(60)
        def note(self, number):
            computed.append(number)
            return number

        def __repr__(self):
            return "Notes"

    return Notes().note, Notes.note


def our_cache():
    from wheelcache.flask_backend import Cache

    return Cache()


@pytest.mark.parametrize("define", [memoized_function, memoized_method])
@pytest.mark.parametrize(
    "make_cache",
    [flask_caching.Cache, pytest.param(our_cache, marks=OF_FLASK_CACHING_2_5)],
    ids=["Flask-Caching", "ours"],
)
def test_a_miss_of_a_memoized_function_leaves_its_values_in_other_processes_and_delete_memoized_does_not(
    make_app, name, define, make_cache
):
    """Apps of one name in one process act like processes of their own."""

    def make_functions():
        app, cache = make_app(make_cache(), name=name, CACHE_OPTIONS={"coherence": "host"})
        computed = []
        note, deleted = define(cache, computed)

        def computed_of(*numbers):
            """Return the numbers for which the function was computed."""
            computed.clear()
            with app.app_context():
                for number in numbers:
                    note(number)
            return computed.copy()

        def forget():
            with app.app_context():
                cache.delete_memoized(deleted)

        return computed_of, forget

    (one, forget), (other, _) = make_functions(), make_functions()
    assert one(1, 2, 3) == [1, 2, 3]
    assert other(1, 2, 3, 4) == [1, 2, 3, 4]
    assert one(1, 2, 3, 4) == [4]
    assert other(1, 2, 3, 4) == []
    forget()
    assert one(1, 2) == other(1, 2) == [1, 2]
    assert one(1, 2) == other(1, 2) == []


@OF_FLASK_CACHING_2_5
def test_the_deletion_of_one_value_of_our_cache_reaches_the_other_processes(make_app, name):
    def make_function():
        app, cache = make_app(our_cache(), name=name, CACHE_OPTIONS={"coherence": "host"})
        computed = []
        note, _ = memoized_function(cache, computed)

        def call(*numbers):
            with app.app_context():
                for number in numbers:
                    note(number)
            return computed

        def forget(number):
            with app.app_context():
                cache.delete_memoized(note, number)

        return call, forget

    (one, forget), (other, _) = make_function(), make_function()
    assert one(1, 2) == other(1, 2) == [1, 2]
    forget(1)
    assert other(1, 2) == [1, 2, 1]
    assert one(1, 2) == [1, 2, 1]
