"""TieredCache: copies in memory of what another cachelib cache has, and what tells that they are old."""

import logging
import pickle
import time
from collections import Counter
from contextlib import suppress
from functools import partial

import cachelib
import flask
import flask_caching
import pytest
from cachelib.serializers import JSONSerializer
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from tests.engines import engine, noted
from tests.redis_server import RedisServer
from tests.tracking import Noted
from tests.waiting import PATIENCE, THREADS, until, until_waiting
from wheelcache.flask_backend import TieredCache, WheelCache
from wheelcache.near_cache.redis_tracking import client_of

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("own_boards")]

BACKEND = "wheelcache.flask_backend.TieredCache"
NAN, INF = float("nan"), float("inf")


class Counting(cachelib.SimpleCache):
    """A second level that counts how often it is asked, and can be down."""

    def __init__(self, **options):
        super().__init__(**options)
        self.asked = Counter()
        self.down = False
        self.timeouts = {}

    def _count(self, what):
        self.asked[what] += 1
        if self.down:
            raise ConnectionError("down")

    def get(self, key):
        self._count("get")
        return super().get(key)

    def get_many(self, *keys):
        self._count("get_many")
        return [cachelib.SimpleCache.get(self, key) for key in keys]

    def has(self, key):
        self._count("has")
        return super().has(key)

    def set(self, key, value, timeout=None):
        self._count("set")
        self.timeouts[key] = timeout
        return super().set(key, value, timeout)

    def delete(self, key):
        self._count("delete")
        return super().delete(key)

    def clear(self):
        self._count("clear")
        return super().clear()


@pytest.fixture
def tracked(trackings):
    """A cache that was just made. What listens to a Redis stops when the test is over."""
    listening = []

    def note(cache):
        listening.append(cache)
        return noted(cache)

    yield note
    for cache in listening:
        with suppress(TypeError):
            client_of(cache.l2).close()


def is_told():
    """Whether the Redis of the cache that was made last tells of writes. The first read starts it."""
    return until(lambda: Noted.made[-1].told.trusted)


@pytest.fixture
def make(tracked):
    """Make a TieredCache without jitter and without a line a minute, unless told otherwise."""

    def make_tiered(l2=None, **options):
        l2 = Counting() if l2 is None else l2
        return tracked(TieredCache(l2, **{"jitter": 0, "log_interval": None, **options}))

    return make_tiered


@pytest.fixture
def make_app(tracked):
    """Make an app on TieredCache: ``app, cache, backend = make_app(l2="SimpleCache", CACHE_...=...)``."""

    def make_app(name="shop", l2="SimpleCache", options=None, **config):
        app = flask.Flask(name)
        app.debug = app.testing = True
        options = {"jitter": 0, "log_interval": None, "l2": l2, **(options or {})}
        app.config.update(CACHE_TYPE=BACKEND, CACHE_OPTIONS=options, **config)
        cache = flask_caching.Cache(app)
        return app, cache, tracked(app.extensions["cache"][cache])

    return make_app


@pytest.fixture(scope="module")
def server():
    with RedisServer() as server:
        yield server


@pytest.fixture
def over_redis(server, make):
    """Make a TieredCache over a Redis that is empty at first, and knows of writes when it is returned."""
    server.client().flushall()

    def over_redis(l2_options=None, **options):
        l2 = cachelib.RedisCache(server.client(socket_timeout=5), **(l2_options or {}))
        cache = make(l2, **options)
        cache.get("a first key")
        assert is_told()
        return cache

    return over_redis


# Reading.


def test_who_changes_what_he_got_does_not_change_the_copy(make):
    cache = make()
    cache.l2.set("key", ["value"])
    for _ in range(3):
        got = cache.get("key")
        assert got == ["value"]
        got.append("more")


def test_get_many_asks_once_for_what_is_not_here(make):
    cache = make()
    cache.l2.set_many({"a": 1, "b": [2], "c": 3})
    assert cache.get("a") == 1
    assert cache.get_many("a", "b", "none", "c", "b") == [1, [2], None, 3, [2]]
    assert cache.get_dict("c", "b") == {"c": 3, "b": [2]}
    assert cache.get_many() == []
    assert cache.l2.asked == {"get": 1, "get_many": 1, "set": 3}


def test_a_none_is_the_second_levels_and_not_kept(make):
    cache = make()
    assert cache.set("key", None)
    assert cache.get("key") is None
    assert cache.has("key")
    assert not cache.has("none")
    cache.l2.set("key", 1)
    assert cache.get("key") == 1


# Writing.

WRITES = {
    "set": (lambda cache: cache.set("key", 2), True, 2),
    "add": (lambda cache: cache.add("key", 2), False, 1),
    "set_many": (lambda cache: cache.set_many({"key": 2}), ["key"], 2),
    "delete": (lambda cache: cache.delete("key"), True, None),
    "delete_many": (lambda cache: cache.delete_many("key"), ["key"], None),
    "inc": (lambda cache: cache.inc("key", 5), 6, 6),
    "dec": (lambda cache: cache.dec("key"), 0, 0),
    "clear": (lambda cache: cache.clear(), True, None),
}


@pytest.mark.parametrize(("write", "result", "value"), WRITES.values(), ids=WRITES)
def test_a_write_is_done_in_the_second_level_and_drops_the_copy(make, write, result, value):
    cache = make()
    cache.l2.set("key", 1)
    assert cache.get("key") == 1
    assert write(cache) == result
    assert cache.l2.get("key") == value
    assert cache.get("key") == value


def test_timeouts_are_the_second_levels(make):
    cache = make(Counting(default_timeout=7))
    assert cache.default_timeout == 7
    cache.set("default", 1)
    cache.set("given", 1, 100)
    cache.set("never", 1, 0)
    assert cache.l2.timeouts == {"default": 7, "given": 100, "never": 0}
    cache = make(default_timeout=9)
    cache.set("default", 1)
    assert cache.l2.timeouts == {"default": 9}


def test_a_cache_is_bounded_by_its_own_threshold(make):
    cache = make(Counting(threshold=1000), threshold=10)
    for number in range(100):
        cache.set(str(number), number)
        cache.get(str(number))
    assert len(engine(cache)) == 10
    assert cache.get("0") == 0


# Loading.


def test_get_or_load_computes_what_neither_level_has(make):
    cache = make()
    calls = []
    cache.l2.set("there", "value")
    for _ in range(3):
        assert cache.get_or_load("key", lambda: calls.append(1) or ["loaded"]) == ["loaded"]
        assert cache.get_or_load("there", lambda: calls.append(1)) == "value"
    assert calls == [1]
    assert cache.l2.get("key") == ["loaded"]


def test_get_or_load_knows_a_none_from_a_miss(make):
    cache = make()
    calls = []
    for _ in range(3):
        assert cache.get_or_load("key", lambda: calls.append(1)) is None
    assert calls == [1]


def test_however_many_threads_miss_a_key_together_one_loads_a_none(make, together):
    cache = make()
    calls = []

    def load():
        calls.append(1)
        until_waiting(THREADS - 1)

    assert together(lambda _: cache.get_or_load("key", load)) == [None] * THREADS
    assert calls == [1]


def test_get_or_load_returns_what_somebody_else_was_first_with(make):
    cache = make()

    def load():
        cache.l2.set("key", "first")
        return "second"

    assert cache.get_or_load("key", load) == "first"


# fill_wait.


def test_a_waiter_gets_what_is_set(make, in_thread):
    cache = make(fill_wait=PATIENCE)
    assert cache.get("key") is None
    waiter = in_thread(cache.get, "key")
    until_waiting()
    cache.set("key", ["value"])
    assert waiter.result(PATIENCE) == ["value"]


def test_a_none_that_was_set_holds_no_reader_up(make, in_thread):
    cache = make(fill_wait=PATIENCE)
    cache.set("key", None)
    assert cache.get("key") is None
    assert in_thread(cache.get, "key").result(PATIENCE / 2) is None


# A Redis behind it.


def test_copies_have_the_keys_that_redis_has(over_redis, server):
    cache = over_redis({"key_prefix": "shop:"})
    cache.set("key", ["value"])
    assert server.client().keys() == [b"shop:key"]
    # Not at once, perhaps: what is told of this set drops what is read before.
    assert until(lambda: cache.get("key") == ["value"] and engine(cache).keys() == ["shop:key"])


@pytest.mark.parametrize(
    "prefix", [None, "", "shop:", "größe ", lambda: "called:"], ids=["None", "empty", "shop", "utf8", "called"]
)
def test_what_others_write_to_redis_is_seen(over_redis, server, prefix):
    cache = over_redis({"key_prefix": prefix})
    other = cachelib.RedisCache(server.client(), key_prefix=prefix)
    other.set("schlüssel", "old")
    assert until(lambda: cache.get("schlüssel") == "old" and cache.has("schlüssel") and len(engine(cache)))
    for write, value in [
        (lambda: other.set("schlüssel", "new"), "new"),
        (lambda: other.delete("schlüssel"), None),
        (lambda: other.inc("schlüssel"), 1),
        (other.clear, None),
    ]:
        write()
        assert until(lambda value=value: cache.get("schlüssel") == value, 2)


def test_a_prefix_that_is_called_is_asked_at_each_call(over_redis, server):
    now = ["one:"]
    cache = over_redis({"key_prefix": lambda: now[0]})
    cache.set("key", 1)
    assert cache.get("key") == 1
    now[0] = "two:"
    assert cache.get("key") is None
    now[0] = "one:"
    assert cache.get("key") == 1


def test_two_caches_see_each_others_writes(over_redis):
    one, other = over_redis({"key_prefix": "p:"}), over_redis({"key_prefix": "p:"})
    one.set("key", 1)
    assert one.get("key") == other.get("key") == 1
    other.set("key", 2)
    assert other.get("key") == 2
    assert until(lambda: one.get("key") == 2, 2)


def test_the_serializer_is_that_of_both_levels(over_redis, server):
    cache = over_redis()
    cache.serializer = JSONSerializer()
    client_of(cache.l2).set("key", b"[1, 2]")
    assert cache.get("key") == [1, 2]
    cache.get("key").append(3)
    assert cache.get("key") == [1, 2]
    cache.set("key", (3, 4))
    assert server.client().get("key") == b"[3, 4]"
    assert cache.get("key") == [3, 4]


def test_without_redis_old_copies_are_returned_and_writes_dropped_if_it_is_to_be_fail_safe(make):
    with RedisServer() as server:
        cache = make(cachelib.RedisCache(server.client(socket_timeout=1, retry=None)), fail_safe=True)
        cache.get("a first key")
        assert is_told()
        told = Noted.made[-1].told
        cache.set("key", ["old"])
        # Redis tells of this write as well, and a copy that was made before that is dropped.
        assert until(lambda: b"key" in told.keys)
        assert until(lambda: cache.get("key") == ["old"] and len(engine(cache)))
        server.kill()
        assert until(lambda: not told.trusted)
        for _ in range(5):
            assert cache.get("key") == ["old"]
        assert cache.get("none") is None
        assert cache.get_many("key", "none") == [["old"], None]
        assert cache.has("key")
        assert not cache.has("none")
        assert cache.add("other", 1) is False
        assert cache.inc("other") is None
        assert cache.delete("other") is False
        assert cache.set_many({"other": 1}) == []
        assert cache.delete_many("other") == []
        assert cache.get_or_load("loaded", lambda: "loaded") == "loaded"
        assert cache.set("key", "new") is False
        assert cache.get("key") is None
        assert cache.clear() is False
        server.start()
        assert until(lambda: cache.set("key", "newest"))
        assert cache.get("key") == "newest"


def test_without_redis_errors_reach_the_caller_unless_it_is_to_be_fail_safe(make):
    with RedisServer() as server:
        refusing = make(
            cachelib.RedisCache(server.client(socket_timeout=1, retry=None)), fail_safe=True, writes_without_l2="refuse"
        )
        plain = make(cachelib.RedisCache(server.client(socket_timeout=1, retry=None)))
        for each in (refusing, plain):
            each.get("a first key")
        assert until(lambda: all(each.told.trusted for each in Noted.made))
        server.kill()
        assert until(lambda: not any(each.told.trusted for each in Noted.made))
        assert refusing.get("key") is None
        with pytest.raises(RedisConnectionError):
            refusing.set("key", 1)
        for call in (plain.get, plain.has, plain.delete, plain.inc, plain.get_many):
            with pytest.raises(RedisConnectionError):
                call("key")
        with pytest.raises(RedisConnectionError):
            plain.set("key", 1)


# Who tells.


def test_that_nothing_tells_is_logged(make, caplog):
    make(name="told of nothing", l1_timeout=7)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "'told of nothing'" in record.getMessage()
    assert "7 s old" in record.getMessage()


def test_a_redis_that_is_read_from_replicas_is_not_trusted_to_tell(make, caplog, server):
    class ReadsFromReplicas(cachelib.RedisCache):
        def __init__(self, client):
            super().__init__(client)
            self._read_client = server.client()

    make(ReadsFromReplicas(server.client()))
    assert "what other processes write" in caplog.text


def test_what_tells_is_not_logged(make, caplog, server):
    make(cachelib.RedisCache(server.client()))
    make(coherence="host")
    assert caplog.records == []


@pytest.mark.parametrize(("write", "result", "value"), WRITES.values(), ids=WRITES)
def test_with_coherence_two_processes_worth_of_copies_agree(make, tmp_path, write, result, value):
    one, other = (
        make(cachelib.FileSystemCache(str(tmp_path / "files")), coherence="host", name="shop") for _ in range(2)
    )
    one.set("key", 1)
    assert one.get("key") == other.get("key") == 1
    write(one)
    assert one.l2.get("key") == value
    assert other.get("key") == one.get("key") == value


# Settings.


def test_the_second_level_is_made_by_flask_caching_of_the_apps_settings(make_app, server):
    server.client().flushall()
    app, cache, backend = make_app(
        l2="RedisCache", CACHE_REDIS_URL=f"redis://{server.host}:{server.port}/1", CACHE_KEY_PREFIX="p:"
    )
    assert type(backend.l2) is flask_caching.backends.RedisCache
    assert dict(app.extensions["cache"]) == {cache: backend}
    with app.app_context():
        cache.set("key", ["value"], timeout=100)
        assert cache.get("key") == ["value"]
    direct = server.client(db=1)
    assert pickle.loads(direct.get("p:key")[1:]) == ["value"]
    assert 90 < direct.ttl("p:key") <= 100
    direct.close()


@pytest.mark.parametrize("where", ["CACHE_REDIS_URL", "CACHE_REDIS_HOST"])
def test_no_socket_waits_for_ever(make_app, server, where):
    config = {
        "CACHE_REDIS_URL": {"CACHE_REDIS_URL": f"redis://{server.host}:{server.port}"},
        "CACHE_REDIS_HOST": {"CACHE_REDIS_HOST": server.host, "CACHE_REDIS_PORT": server.port},
    }[where]
    for options, seconds in [({}, 1), ({"l2_timeout": 0.5}, 0.5), ({"l2_options": {"socket_timeout": 7}}, 7)]:
        _, _, backend = make_app(l2="RedisCache", options=options, **config)
        kwargs = client_of(backend.l2).connection_pool.connection_kwargs
        assert kwargs["socket_timeout"] == seconds
        assert kwargs["socket_connect_timeout"] == (0.5 if "l2_timeout" in options else 1)


@pytest.mark.parametrize("by", ["CACHE_REDIS_URL", "CACHE_REDIS_HOST"])
def test_a_redis_that_does_not_answer_is_waited_for_once(make_app, by):
    with RedisServer() as server:
        config = {
            "CACHE_REDIS_URL": {"CACHE_REDIS_URL": f"redis://{server.host}:{server.port}"},
            "CACHE_REDIS_HOST": {"CACHE_REDIS_HOST": server.host, "CACHE_REDIS_PORT": server.port},
        }[by]
        _, _, backend = make_app(l2="RedisCache", options={"l2_timeout": 0.3}, **config)
        backend.set("key", 1)
        server.pause()
        began = time.monotonic()
        with pytest.raises(RedisTimeoutError):
            backend.get("key")
        assert time.monotonic() - began < 0.9
        server.resume()


def test_a_sentinel_is_asked_with_the_same_patience(make_app):
    _, _, backend = make_app(l2="RedisSentinelCache")
    for client in (backend.l2._write_client, backend.l2._read_client):
        pool = client.connection_pool
        assert pool.connection_kwargs["socket_timeout"] == 1
        for sentinel in pool.sentinel_manager.sentinels:
            assert sentinel.connection_pool.connection_kwargs["socket_timeout"] == 1


def test_a_second_level_by_dotted_path_with_options(make_app, tmp_path):
    _, _, backend = make_app(l2="flask_caching.backends.FileSystemCache", CACHE_DIR=str(tmp_path / "files"))
    assert type(backend.l2) is flask_caching.backends.FileSystemCache
    options = {"l2_options": {"cache_dir": str(tmp_path / "others"), "threshold": 7}}
    _, _, backend = make_app(l2="cachelib.FileSystemCache", options=options)
    assert type(backend.l2) is cachelib.FileSystemCache
    assert backend.l2._threshold == 7


def test_a_second_level_that_is_made_already(make_app):
    l2 = Counting()
    _, _, backend = make_app(l2=l2)
    assert backend.l2 is l2


def test_threshold_timeout_and_serializer_are_those_of_the_settings(make_app):
    serializer = JSONSerializer()
    _, _, backend = make_app(
        options={"threshold": 5}, CACHE_THRESHOLD=7, CACHE_DEFAULT_TIMEOUT=60, CACHE_SERIALIZER=serializer
    )
    for number in range(7):
        backend.set(str(number), [number])
        backend.get(str(number))
    assert len(engine(backend)) == 5
    assert backend.l2._threshold == 7
    assert backend.default_timeout == backend.l2.default_timeout == 60
    assert backend.serializer is backend.l2.serializer is serializer


SECONDS = "a number of seconds > 0"
WRONG = [
    *(("l2", wrong, "the name or dotted path of a backend") for wrong in (None, 7, {}, "Redis", "no.such.Backend")),
    *(("l2_options", wrong, "a dict") for wrong in (7, "socket_timeout", [1])),
    *(("l2_timeout", wrong, SECONDS) for wrong in (0, -1, "1", None, NAN, INF)),
    *(("l1_timeout", wrong, SECONDS) for wrong in (0, -1, "60", None, True, NAN, INF)),
    *(("grace", wrong, SECONDS) for wrong in (0, -1, "60", None, NAN)),
    *(("fail_safe", wrong, "True or False") for wrong in (1, None, "yes")),
    *(("writes_without_l2", wrong, "'drop' or 'refuse'") for wrong in (None, "keep", 1)),
    *(("threshold", wrong, "a whole number >= 0") for wrong in (-1, 1.5, "10", None)),
    *(("coherence", wrong, "'host', or None") for wrong in ("redis", True)),
    *(("max_bytes", wrong, "a whole number >= 1") for wrong in (0, "1MB")),
    *(("jitter", wrong, "a fraction") for wrong in (-0.1, 1, None)),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r:.20}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_at_init_app_that_names_it_and_what_it_takes_and_got(make_app, option, wrong, takes):
    with pytest.raises((TypeError, ValueError)) as refused:
        make_app(options={option: wrong})
    for part in (option, takes, repr(wrong)):
        assert part in str(refused.value)


@pytest.mark.parametrize("option", ["key_prefix", "shards", "L2", "stamps"])
def test_an_unknown_option_is_an_error_that_names_it_and_those_there_are(make_app, make, option):
    for refuses in (partial(make_app, options={option: None}), partial(make, **{option: None})):
        with pytest.raises(
            TypeError, match=f"unknown option '{option}' of the cache '.*'; (it takes l2, l2_options, |did you mean l2)"
        ):
            refuses()


def test_a_tiered_cache_is_no_second_level_and_a_made_one_takes_no_options(make_app, make):
    with pytest.raises(TypeError, match="l2 must not be a TieredCache itself"):
        make(make())
    with pytest.raises(TypeError, match="l2_options must be left out"):
        make_app(l2=Counting(), options={"l2_options": {}})
    for option in ("l2_options", "l2_timeout"):
        with pytest.raises(
            TypeError, match=f"{option} must be left out where l2 is a cache that is made already, not 7"
        ):
            make(**{option: 7})
    with pytest.raises(TypeError, match="CACHE_ARGS must be empty"):
        make_app(CACHE_ARGS=[500])


# Flask-Caching over it.


def test_cached_and_memoized_functions(make_app, server):
    server.client().flushall()
    app, cache, _ = make_app(
        l2="RedisCache",
        options={"fill_wait": 5},
        CACHE_REDIS_HOST=server.host,
        CACHE_REDIS_PORT=server.port,
    )
    calls = Counter()

    @cache.memoize(60)
    def square(number):
        calls[number] += 1
        return number * number

    @cache.memoize(60, cache_none=True)
    def nothing():
        calls["nothing"] += 1

    @app.get("/page")
    @cache.cached(60)
    def page():
        calls["page"] += 1
        return "the page"

    with app.app_context():
        cache.get("a first key")
        assert is_told()
        assert [square(3), square(3), square(4)] == [9, 9, 16]
        assert [nothing(), nothing()] == [None, None]
        cache.delete_memoized(square, 3)
        assert [square(3), square(4)] == [9, 16]
        cache.delete_memoized(square)
        assert square(4) == 16
    client = app.test_client()
    assert [client.get("/page").text for _ in range(3)] == ["the page"] * 3
    assert calls == {3: 2, 4: 2, "page": 1, "nothing": 1}


def test_it_has_every_method_of_a_wheel_cache(make):
    methods = [name for name in dir(WheelCache) if not name.startswith("_")]
    assert [name for name in methods if not hasattr(make(), name)] == []
