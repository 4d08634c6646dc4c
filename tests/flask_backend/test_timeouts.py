"""How long counts and memoized values live, with the default options. The rest is in ``tests/backends``."""

import flask
import flask_caching
import pytest

from wheelcache.flask_backend import WheelCache

KEYS = [f"key-{number}" for number in range(300)]
TIMEOUT = 100


@pytest.fixture
def cache(clock):
    return WheelCache()


def test_what_a_memoized_function_returned_lives_no_longer_than_its_timeout(clock):
    app = flask.Flask(__name__)
    app.config.update(CACHE_TYPE="wheelcache.flask_backend.WheelCache", CACHE_THRESHOLD=1000)
    cache = flask_caching.Cache(app)
    calls = []

    @cache.memoize(TIMEOUT)
    def note(number):
        calls.append(number)
        return number

    def call_all():
        calls.clear()
        for number in range(len(KEYS)):
            note(number)
        return len(calls)

    with app.app_context():
        assert call_all() == len(KEYS)
        clock.advance(94.5)
        assert call_all() == 0
        clock.advance(5.5)
        assert call_all() == len(KEYS)


def test_the_version_that_memoized_values_are_kept_under_lives_exactly_as_long_as_it_is_set_for(cache, clock):
    versions = {f"module.function{number}_memver": "version" for number in range(300)}
    assert cache.set_many(versions, TIMEOUT) == [*versions]
    clock.advance(TIMEOUT - 0.125)
    assert all(cache.get_many(*versions))
    clock.advance(0.125)
    assert not any(cache.get_many(*versions))
