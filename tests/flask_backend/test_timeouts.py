"""How long a value lives, with the default options: beside ``tests/backends``, what Flask-Caching and tiers add."""

from functools import partial

import cachelib
import flask
import flask_caching
import pytest

from wheelcache import Cache
from wheelcache.flask_backend import TieredCache, WheelCache, tiered

KEYS = [f"key-{number}" for number in range(300)]
TIMEOUT = 100


def by_set(cache, *timeout):
    for key in KEYS:
        assert cache.set(key, 1, *timeout)


def by_set_many(cache, *timeout):
    assert cache.set_many(dict.fromkeys(KEYS, 1), *timeout) == KEYS


def by_get_or_load(cache, *timeout):
    for key in KEYS:
        cache.get_or_load(key, lambda: 1, *timeout)


def by_add(cache, *timeout):
    for key in KEYS:
        assert cache.add(key, 1, *timeout)


FILLS = [by_set, by_set_many, by_get_or_load]


@pytest.fixture
def cache(clock):
    return WheelCache()


def left(cache):
    return sum(value is not None for value in cache.get_many(*KEYS))


def test_a_count_that_inc_begins_and_goes_on_with_lives_exactly_for_the_default_timeout(cache, clock):
    for key in KEYS:
        assert cache.inc(key) == 1
    clock.advance(200)
    for key in KEYS:
        assert cache.inc(key) == 2
    clock.advance(99.875)
    assert left(cache) == len(KEYS)
    clock.advance(0.125)
    assert left(cache) == 0


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


class Recorder(cachelib.SimpleCache):
    """SimpleCache that notes what timeouts it is given, and what it is asked."""

    def __init__(self):
        super().__init__(threshold=10_000)
        self.noted = []
        self.asked = 0

    def get(self, key):
        self.asked += 1
        return super().get(key)

    def set(self, key, value, timeout=None):
        self.noted.append(timeout)
        return super().set(key, value, timeout)

    def add(self, key, value, timeout=None):
        self.noted.append(timeout)
        return super().add(key, value, timeout)


@pytest.fixture
def behind():
    return Recorder()


@pytest.mark.parametrize("write", [*FILLS, by_add])
def test_the_cache_behind_gets_every_timeout_exactly(behind, write):
    write(TieredCache(behind), 1000)
    assert behind.noted == [1000] * len(KEYS)


@pytest.mark.parametrize("l1_timeout", [60, 24 * 3600], ids=["a minute", "a day"])
@pytest.mark.parametrize("many", [False, True], ids=["get", "get_many"])
def test_a_copy_is_kept_for_l1_timeout_and_at_most_a_minute_shorter(monkeypatch, clock, behind, l1_timeout, many):
    monkeypatch.setattr(tiered, "Cache", partial(Cache, clock=clock))
    cache = TieredCache(behind, l1_timeout=l1_timeout)
    spread = min(l1_timeout / 20, 60)

    def asked():
        before = behind.asked
        values = cache.get_many(*KEYS) if many else [cache.get(key) for key in KEYS]
        assert values == [1] * len(KEYS)
        return behind.asked - before

    behind.set_many(dict.fromkeys(KEYS, 1), 0)
    assert asked() == len(KEYS)
    clock.advance(l1_timeout - spread - 0.125)
    assert asked() == 0
    clock.advance(spread / 2)
    asked_half_way = asked()
    assert 0 < asked_half_way < len(KEYS)
    clock.advance(spread / 2 + 0.125)
    assert asked() == len(KEYS) - asked_half_way
