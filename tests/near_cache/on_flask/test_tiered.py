"""TieredCache in Flask: settings, returned values, prefixes, memoized functions. The rest is in ``tests/backends``."""

import logging
import pickle
from functools import partial

import cachelib
import flask
import flask_caching
import pytest
import redis

from tests.engines import noted
from tests.flask_backend.conftest import BEFORE_2_5, JSONSerializer
from tests.near_cache.tiers import NotingSimpleCache, TierOnFlask, made_tiers
from wheelcache.flask_backend import TieredCache
from wheelcache.near_cache.redis_tracking import client_of

pytestmark = pytest.mark.usefixtures("trackings")

BACKEND = "wheelcache.flask_backend.TieredCache"

needs_2_5 = pytest.mark.skipif(
    BEFORE_2_5,
    reason="Before 2.5, no CACHE_SERIALIZER, only Flask-Caching's own caches, and no options for a Redis with a URL",
)


@pytest.fixture
def over(trackings):
    """``over(kind, place, behind={settings}, **options)``"""
    with made_tiers(trackings) as make:
        yield lambda *args, **options: make(TierOnFlask, *args, **options)


@pytest.fixture
def make():
    """Make a TieredCache over any cache."""
    return lambda l2=None, **options: TieredCache(
        cachelib.SimpleCache() if l2 is None else l2, **{"jitter": 0, **options}
    )


@pytest.fixture
def make_app(closed):
    """Make an app on TieredCache: ``app, cache, backend = make_app("SimpleCache", {options}, CACHE_...=...)``."""

    def make_app(l2="SimpleCache", options=None, **config):
        app = flask.Flask("shop")
        app.debug = app.testing = True
        options = {"jitter": 0, "l2": l2, **(options or {})}
        app.config.update(CACHE_TYPE=BACKEND, CACHE_OPTIONS=options, **config)
        cache = flask_caching.Cache(app)
        backend = noted(app.extensions["cache"][cache])
        if isinstance(backend.l2, cachelib.RedisCache):
            closed(client_of(backend.l2))
        return app, cache, backend

    return make_app


# Results, and None.


def test_writes_return_what_the_second_level_does_or_that_they_were_dropped(over):
    tier = over(fail_safe=300)
    cache, l2 = tier.backend, tier.backend.l2
    assert cache.set("key", 1) is l2.has("key") is True
    assert cache.add("key", 2) is False
    assert cache.set_many({"key": 2, "other": 3}) == ["key", "other"]
    assert (cache.inc("key", 5), cache.dec("key")) == (7, 6)
    assert cache.get_many("other", "none", "key", "other") == [3, None, 6, 3]
    assert cache.get_dict("none", "other") == {"none": None, "other": 3}
    assert cache.delete_many("key", "other") == ["key", "other"]
    assert cache.clear() is True
    tier.noted.error = ConnectionError()
    assert (cache.set("key", 1), cache.set_many({"key": 1}), cache.delete_many("key")) == (False, [], [])
    assert (cache.inc("key"), cache.clear()) == (None, False)


def test_a_none_is_not_kept_since_cachelib_does_not_tell_it_from_a_miss(make):
    cache = make()
    assert cache.set("key", None)
    assert (cache.get("key"), cache.has("key"), cache.has("none")) == (None, True, False)
    cache.l2.set("key", 1)
    assert cache.get("key") == 1


def test_what_another_process_sets_after_the_first_look_is_no_none(make):
    class SetInBetween(cachelib.SimpleCache):
        def get(self, key):
            value = super().get(key)
            self.set(key, "value")
            return value

    assert make(SetInBetween()).get_or_load("key", pytest.fail) == "value"


def test_the_default_timeout_is_the_second_levels_unless_given(over):
    for options, seconds in (({}, 7), ({"default_timeout": 9}, 9)):
        tier = over(behind={"default_timeout": 7}, **options)
        assert tier.backend.default_timeout == seconds
        tier.set("key", 1)
        assert tier.noted.timeouts()[-1] == seconds


# A Redis behind it.


@pytest.mark.servers
def test_a_prefix_that_is_called_is_asked_at_each_call(over, empty_redis):
    now = ["one:"]
    tier = over("redis", empty_redis, behind={"CACHE_KEY_PREFIX": lambda: now[0]})
    tier.set("key", 1)
    assert tier.get("key") == 1
    now[0] = "two:"
    assert tier.get("key") is None
    now[0] = "one:"
    assert tier.get("key") == 1


@pytest.mark.servers
def test_the_serializer_is_that_of_both_levels(over, empty_redis):
    tier = over("redis", empty_redis)
    tier.backend.serializer = JSONSerializer()
    tier.client().set("key", b"[1, 2]")
    for _ in range(2):
        assert tier.get("key") == [1, 2]
        tier.get("key").append(3)
    tier.set("key", (3, 4))
    assert tier.client().get("key") == b"[3, 4]"
    assert tier.get("key") == [3, 4]


# Sources of invalidations.


def redis_cache(**attributes):
    cache = cachelib.RedisCache(redis.Redis(port=1))
    vars(cache).update(attributes)
    return cache


SOURCES = [(redis_cache, True), (lambda: redis_cache(_read_client=redis.Redis(port=1)), False), (lambda: None, False)]


@pytest.mark.parametrize(("second", "tells"), SOURCES, ids=["Redis", "replicas", "memory"])
def test_a_second_level_that_does_not_tell_of_writes_is_logged_once_with_the_age_of_copies(make, caplog, second, tells):
    """Replicas are not trusted to tell: the primary reports a write before they have it."""
    make(second(), name="told", l1_timeout=7)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == (not tells)
    assert all("'told'" in line and "7 s old" in line for line in lines)


# Settings.


@pytest.mark.servers
def test_the_second_level_is_made_by_flask_caching_of_the_settings_of_the_app(make_app, empty_redis):
    url = f"redis://{empty_redis.host}:{empty_redis.port}/1"
    app, cache, backend = make_app("RedisCache", CACHE_REDIS_URL=url, CACHE_KEY_PREFIX="p:")
    assert type(backend.l2) is flask_caching.backends.RedisCache
    assert dict(app.extensions["cache"]) == {cache: backend}
    with app.app_context():
        cache.set("key", ["value"], timeout=100)
        assert cache.get("key") == ["value"]
    direct = empty_redis.client(db=1)
    assert pickle.loads(direct.get("p:key")[1:]) == ["value"]
    assert 90 < direct.ttl("p:key") <= 100


@needs_2_5
def test_no_socket_waits_for_ever(make_app):
    for config in ({"CACHE_REDIS_URL": "redis://127.0.0.1:1"}, {"CACHE_REDIS_HOST": "127.0.0.1"}):
        for options, seconds in [({}, 1), ({"l2_options": {"socket_timeout": 7}}, 7)]:
            _, _, backend = make_app("RedisCache", options, **config)
            pool = client_of(backend.l2).connection_pool
            assert pool.connection_kwargs["socket_timeout"] == seconds
            assert pool.connection_kwargs["socket_connect_timeout"] == 1
            assert pool.make_connection().retry.get_retries() == 0


@needs_2_5
def test_a_second_level_may_be_a_dotted_path_with_options_or_a_cache(make_app, tmp_path):
    _, _, backend = make_app("flask_caching.backends.FileSystemCache", CACHE_DIR=str(tmp_path / "files"))
    assert type(backend.l2) is flask_caching.backends.FileSystemCache
    options = {"l2_options": {"cache_dir": str(tmp_path / "others"), "threshold": 7}}
    _, _, backend = make_app("cachelib.FileSystemCache", options)
    assert (type(backend.l2), backend.l2._threshold) == (cachelib.FileSystemCache, 7)
    l2 = NotingSimpleCache()
    assert make_app(l2)[2].l2 is l2


@needs_2_5
def test_threshold_timeout_and_serializer_are_those_of_the_settings(make_app):
    serializer = JSONSerializer()
    _, _, backend = make_app(
        options={"threshold": 5}, CACHE_THRESHOLD=7, CACHE_DEFAULT_TIMEOUT=60, CACHE_SERIALIZER=serializer
    )
    for number in range(7):
        backend.set(str(number), [number])
        backend.get(str(number))
    assert (len(backend.engine), backend.l2._threshold) == (5, 7)
    assert backend.default_timeout == backend.l2.default_timeout == 60
    assert backend.serializer is backend.l2.serializer is serializer


WRONG = [
    *(("l2", wrong, "the name or dotted path of a backend") for wrong in (7, {}, "Redis", "no.such.Backend")),
    *(("l2_options", wrong, "a dict") for wrong in (7, "socket_timeout", [1])),
    *(("threshold", wrong, "a whole number >= 0") for wrong in (-1, 1.5, "10", None)),
    ("fail_safe", True, "a number of seconds >= 0"),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r:.20}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_at_init_app_that_names_it_and_what_it_takes(make_app, option, wrong, takes):
    with pytest.raises((TypeError, ValueError), match="Wrong setting of the cache 'shop': ") as refused:
        make_app(options={option: wrong})
    for part in (option, takes, repr(wrong)):
        assert part in str(refused.value)


@pytest.mark.parametrize("option", ["key_prefix", "shards", "L2", "grace"])
def test_an_unknown_option_is_an_error_that_names_it_and_those_there_are(make_app, make, option):
    for refuses in (partial(make_app, options={option: None}), partial(make, **{option: None})):
        hint = "it takes l2, |did you mean l2|it belongs to WheelCache"
        with pytest.raises(TypeError, match=f"unknown option '{option}' of the cache '.*'; ({hint})"):
            refuses()


def test_a_tiered_cache_is_no_second_level_and_a_made_one_takes_no_options(make_app, make):
    with pytest.raises(TypeError, match="l2 must not be a TieredCache itself"):
        make(make())
    with pytest.raises(TypeError, match="l2_options must be left out"):
        make_app(cachelib.SimpleCache(), {"l2_options": {}})
    with pytest.raises(TypeError, match="l2_options must be left out if l2 is a cache object, not 7"):
        make(l2_options=7)
    with pytest.raises(TypeError, match="CACHE_ARGS must be empty"):
        make_app(CACHE_ARGS=[500])
    with pytest.raises(TypeError, match="Wrong setting of the cache 'shop': "):
        make_app(options={"l2_options": {"shards": 4}})
