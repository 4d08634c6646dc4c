"""TieredCache: its options, and what it makes of the caches that may stand behind it."""

import asyncio
import os
import pickle
import shutil
import socket
import statistics
import subprocess
import sys
import textwrap
import threading
import time
from itertools import count
from typing import ClassVar

import pytest
import redis
from django.core.cache import CacheKeyWarning, caches
from django.core.cache.backends.redis import RedisCache, RedisCacheClient
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from django.utils.module_loading import import_string

import wheelcache
from tests.engines import engine
from tests.redis_server import RedisServer
from tests.scripts import FORKING
from tests.waiting import PATIENCE, THREADS, until, until_waiting
from wheelcache.django_backend import cache as default_cache
from wheelcache.django_backend.tiered import OPTIONS, TieredCache
from wheelcache.near_cache.redis_tracking import client_of

pytestmark = [pytest.mark.servers, pytest.mark.usefixtures("own_boards")]

TIERED = "wheelcache.django_backend.TieredCache"
REDIS = "django.core.cache.backends.redis.RedisCache"
DJANGO_REDIS = "django_redis.cache.RedisCache"
LOCMEM = "django.core.cache.backends.locmem.LocMemCache"
FILES = "django.core.cache.backends.filebased.FileBasedCache"
DATABASE = "django.core.cache.backends.db.DatabaseCache"
DUMMY = "django.core.cache.backends.dummy.DummyCache"
MEMCACHED = "django.core.cache.backends.memcached.PyMemcacheCache"

_names = map("tier {}".format, count())


@pytest.fixture(scope="module")
def server():
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def memcached(tmp_path_factory):
    """The address of a memcached of this module's own."""
    program = shutil.which("memcached")
    assert program is not None, "these tests need memcached in the PATH: make packages"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = ["-u", "root"] if os.geteuid() == 0 else []
    process = subprocess.Popen([program, "-l", "127.0.0.1", "-p", str(port), *user])

    def accepts():
        with socket.socket() as client:
            return client.connect_ex(("127.0.0.1", port)) == 0

    try:
        assert until(accepts)
        yield f"127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait(PATIENCE)


@pytest.fixture
def url(server):
    """Of an empty database."""
    server.client().flushall()
    return f"redis://{server.host}:{server.port}/0"


@pytest.fixture
def behind(monkeypatch):
    """The caches behind that are made, among them that of each tier."""
    made, pools = [], []

    def note(cls, where):
        init = cls.__init__

        def noted(self, *args, **kwargs):
            init(self, *args, **kwargs)
            where.append(self)

        monkeypatch.setattr(cls, "__init__", noted)

    for each in (REDIS, DJANGO_REDIS, MEMCACHED, LOCMEM):
        note(import_string(each), made)
    # Django's cache leaves the connections of threads that have ended open.
    note(redis.ConnectionPool, pools)
    yield made
    for each in (*made, *pools):
        each.close()


@pytest.fixture
def tier(behind, trackings):
    """Make a TieredCache in front of a cache with the given settings: ``tier(BACKEND, LOCATION, L1 OPTIONS, ...)``."""
    overridden = []
    made = []

    def make_tier(backend, location="", options=None, *, behind=None, **params):
        name = next(_names)
        configured = {
            "default": {"BACKEND": LOCMEM, "LOCATION": name},
            "behind": {"BACKEND": backend, "LOCATION": location, **(behind or {})},
            "tiered": {
                "BACKEND": TIERED,
                "LOCATION": name,
                "OPTIONS": {"L2": "behind", "LOG_INTERVAL": None, "JITTER": 0, **(options or {})},
                **params,
            },
        }
        override = override_settings(CACHES=configured)
        override.enable()
        overridden.append(override)
        before = len(trackings())
        cache = caches["tiered"]
        made.append(cache)
        for each in trackings()[before:]:
            each.start()
            assert until(lambda told=each.told: told.trusted)
        return cache

    yield make_tier
    for cache in made:
        cache.close()
    for override in reversed(overridden):
        override.disable()


def settle(trackings):
    """Wait until this process has been told of all that was written so far, by itself and others."""
    for each in trackings():
        client_of(caches["behind"]).set(key := caches["behind"].make_key("settled", version=0), 1)
        assert until(lambda told=each.told, key=key: key.encode() in told.keys)
        client_of(caches["behind"]).delete(key)


def refused(**options):
    name = next(_names)
    configured = {
        "default": {"BACKEND": LOCMEM},
        "tiered itself": {"BACKEND": TIERED, "OPTIONS": {"L2": "default"}},
        "tiered": {"BACKEND": TIERED, "LOCATION": name, "OPTIONS": {"L2": "default", **options}},
    }
    with override_settings(CACHES=configured), pytest.raises(ImproperlyConfigured) as error:
        caches["tiered"].get("k")
    assert name not in [each.name for each in wheelcache.caches()]
    return str(error.value)


def copies(cache):
    return engine(cache).keys()


# Options.

SECONDS = "a number of seconds > 0"
WRONG = [
    *((name, wrong, SECONDS) for name in ("L1_TIMEOUT", "L2_TIMEOUT", "GRACE") for wrong in (0, -1, "1", None, True)),
    *((name, wrong, SECONDS) for name in ("L1_TIMEOUT", "L2_TIMEOUT", "GRACE") for wrong in (float("inf"), [1], {})),
    *(("FAIL_SAFE", wrong, "True or False") for wrong in (1, 0, None, "yes", [])),
    *(("WRITES_WITHOUT_L2", wrong, "'drop' or 'refuse'") for wrong in ("", "Drop", None, True, ["drop"], {})),
    *(("L2", wrong, "'default'") for wrong in (None, "", "none", 1, True, ["default"], {})),
    ("COHERENCE", "redis", "'host', or None"),
    ("MAX_ENTRIES", 0, "a whole number >= 1"),
]


@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_that_names_it_and_what_it_takes_and_got(option, wrong, takes):
    message = refused(**{option: wrong})
    for part in (option, takes, repr(wrong)):
        assert part in message


def test_l2_must_be_another_alias_and_no_tiered_cache():
    assert "L2 must not be a TieredCache itself, as 'tiered' is" in refused(L2="tiered")
    assert "L2 must not be a TieredCache itself, as 'tiered itself' is" in refused(L2="tiered itself")


def test_culling_is_the_l2_s_business_and_unknown_options_are_errors_that_name_those_there_are():
    assert "CULL_FREQUENCY" not in OPTIONS
    for name in ("CULL_FREQUENCY", "L1_MAX"):
        message = refused(**{name: 3})
        assert all(part in message for part in (repr(name), "L1_TIMEOUT", "FAIL_SAFE", "MAX_ENTRIES"))


@pytest.mark.parametrize("options", [None, "L2", ["L2"], {}])
def test_without_options_the_error_names_l2(options):
    with pytest.raises(ImproperlyConfigured, match="L2 must be one of"):
        TieredCache("none", {"OPTIONS": options} if options is not None else {})


def test_the_names_of_keys_are_the_l2_s_unless_given(tier, behind):
    ours = {"KEY_PREFIX": "ours", "VERSION": 7, "TIMEOUT": 70}
    theirs = {"KEY_PREFIX": "theirs", "VERSION": 3, "TIMEOUT": 30}
    for given, prefix, version, timeout in (({}, "theirs", 3, 30), (ours, "ours", 7, 70)):
        cache = tier(LOCMEM, "names", behind=theirs, **given)
        l2 = behind[-1]
        assert (cache.key_prefix, cache.version, cache.default_timeout) == (prefix, version, timeout)
        assert (l2.key_prefix, l2.version) == (prefix, version)
        assert cache.make_key("k") == l2.make_key("k") == f"{prefix}:{version}:k"


def backwards(key, key_prefix, version):
    return f"{key}-{version}-{key_prefix}"


@pytest.mark.parametrize("where", ["behind", "in front"])
def test_a_key_function_works_and_writes_are_told(tier, url, trackings, server, where):
    function = {"KEY_FUNCTION": backwards, "KEY_PREFIX": "p"}
    cache = tier(REDIS, url, behind=function if where == "behind" else {}, **(function if where != "behind" else {}))
    cache.set("k", 1)
    settle(trackings)
    assert cache.get("k") == 1
    assert copies(cache) == ["k-1-p"]
    server.client().delete("k-1-p")
    assert until(lambda: copies(cache) == [])


def test_names_changed_on_the_fly_are_both_levels_and_what_is_not_told_is_not_copied(tier, url, trackings, server):
    cache = tier(REDIS, url)
    cache.key_prefix = "tenant"
    cache.set("k", 1)
    assert [cache.get("k"), cache.get_many(["k"]), cache.has_key("k")] == [1, {"k": 1}, True]
    assert (server.client().keys(), copies(cache)) == ([b"tenant:1:k"], [])
    cache.key_prefix = ""
    assert cache.get("k") is None
    cache.version = 2
    cache.set("k", 2)
    settle(trackings)
    assert (cache.get("k"), copies(cache)) == (2, [":2:k"])


class DerivedRedisCache(RedisCache):
    """As a project may have one."""


@pytest.mark.parametrize(
    ("backend", "location", "names"),
    [
        (REDIS, "redis://127.0.0.1:1", ("socket_timeout", "socket_connect_timeout")),
        (DJANGO_REDIS, "redis://127.0.0.1:1", ("socket_timeout", "socket_connect_timeout")),
        (MEMCACHED, "127.0.0.1:1", ("timeout", "connect_timeout")),
        (f"{__name__}.DerivedRedisCache", "redis://127.0.0.1:1", ("socket_timeout", "socket_connect_timeout")),
    ],
)
@pytest.mark.parametrize("given", [None, 0.25])
def test_every_socket_has_a_timeout_and_one_given_to_the_l2_wins(behind, backend, location, names, given):
    spelled = [name.upper() if backend == DJANGO_REDIS else name for name in names]
    configured = {"BACKEND": backend, "LOCATION": location, "OPTIONS": dict.fromkeys(spelled, given) if given else {}}
    options = {"L2": "behind", "L2_TIMEOUT": 0.5, "COHERENCE": "host"}
    with override_settings(CACHES={"default": {"BACKEND": LOCMEM}, "behind": configured}):
        TieredCache(next(_names), {"OPTIONS": options})
        if backend == MEMCACHED:
            made = behind[-1]._cache.default_kwargs
        else:
            made = client_of(behind[-1]).connection_pool.connection_kwargs
    assert [made[name] for name in names] == [given or 0.5] * 2


def test_the_pool_of_django_redis_is_not_that_of_an_alias_whose_sockets_wait_for_ever(tier, url, behind):
    with override_settings(CACHES={"default": {"BACKEND": DJANGO_REDIS, "LOCATION": url}}):
        client = client_of(caches["default"])
    for location in (url, [url]):
        tier(DJANGO_REDIS, location, {"L2_TIMEOUT": 0.5})
        pool = client_of(behind[-1]).connection_pool
        assert pool is not client.connection_pool
        assert pool.connection_kwargs["socket_timeout"] == pool.connection_kwargs["socket_connect_timeout"] == 0.5
    tier(DJANGO_REDIS, f"{url}?socket_timeout=0.25", {"L2_TIMEOUT": 0.5})
    pool = client_of(behind[-1]).connection_pool
    assert (pool.connection_kwargs["socket_timeout"], pool.connection_kwargs["socket_connect_timeout"]) == (0.25, 0.5)


def test_redis_py_does_not_try_again_by_itself_which_would_hold_requests_for_longer(tier, url, behind):
    for backend in (REDIS, DJANGO_REDIS):
        tier(backend, url)
        connection = client_of(behind[-1]).connection_pool.make_connection()
        assert connection.retry.get_retries() == 0


def test_a_store_belongs_to_what_its_alias_means_now(tier, url):
    first = tier(LOCMEM, "first meaning")
    with override_settings(CACHES={"behind": {"BACKEND": REDIS, "LOCATION": url}, "default": {"BACKEND": LOCMEM}}):
        other_meaning = TieredCache(first.location, {"OPTIONS": {"L2": "behind", "LOG_INTERVAL": None, "JITTER": 0}})
    assert first.store is not other_meaning.store


# Any cache may stand behind.


def a_place(backend, request):
    """A LOCATION, and OPTIONS of the tier, for a backend."""
    if backend in (REDIS, DJANGO_REDIS):
        return request.getfixturevalue("url"), {}
    if backend == MEMCACHED:
        return request.getfixturevalue("memcached"), {"COHERENCE": "host"}
    if backend == FILES:
        return str(request.getfixturevalue("tmp_path") / "files"), {"COHERENCE": "host"}
    return next(_names), {}


@pytest.fixture(params=[REDIS, DJANGO_REDIS, MEMCACHED, FILES, LOCMEM], ids=lambda name: name.split(".")[-1])
def any_tier(request, tier):
    location, options = a_place(request.param, request)
    cache = tier(request.param, location, options)
    cache.clear()
    return cache


def test_what_is_read_is_kept_and_what_is_written_is_behind(any_tier, trackings):
    cache, theirs = any_tier, caches["behind"]
    cache.set("k", [1])
    assert theirs.get("k") == [1]
    assert copies(cache) == []
    settle(trackings)
    assert [cache.get("k") for _ in range(3)] == [[1]] * 3
    assert copies(cache) == [":1:k"]
    assert engine(cache).stats().hits == 2
    assert cache.get("none", "default") == "default"


def test_every_write_is_done_behind_and_leaves_no_copy(any_tier):
    cache, theirs = any_tier, caches["behind"]
    writes = {
        "set": (lambda: cache.set("k", 2), 2),
        "set_many": (lambda: cache.set_many({"k": 3}), 3),
        "incr": (lambda: cache.incr("k"), 2),
        "decr": (lambda: cache.decr("k"), 0),
        "touch": (lambda: cache.touch("k", 100), 1),
        "add": (lambda: cache.add("k", 5), 1),
        "delete": (lambda: cache.delete("k"), None),
        "delete_many": (lambda: cache.delete_many(["k"]), None),
        "clear": (lambda: cache.clear(), None),
        "set with a timeout of 0": (lambda: cache.set("k", 2, 0), None),
    }
    for name, (write, expected) in writes.items():
        cache.set("k", 1)
        assert cache.get("k") == 1, name
        write()
        assert (cache.get("k"), theirs.get("k")) == (expected, expected), name


def test_many_are_read_together(any_tier, trackings):
    cache = any_tier
    cache.set_many({"a": 1, "b": [2], "c": None})
    settle(trackings)
    assert cache.get("a") == 1
    for _ in range(2):
        assert cache.get_many(["a", "b", "c", "none"]) == {"a": 1, "b": [2], "c": None}
    assert sorted(copies(cache)) == [":1:a", ":1:b", ":1:c"]


def test_over_memcached_the_default_cache_gives_no_thread_what_another_has_asked_for(memcached, together):
    """A client of pymemcache is of one thread: two that share it read each other's answers."""
    configured = {
        "default": {"BACKEND": TIERED, "LOCATION": next(_names), "OPTIONS": {"L2": "behind", "L1_TIMEOUT": 0.001}},
        "behind": {"BACKEND": MEMCACHED, "LOCATION": memcached},
    }

    def use_own_keys(number):
        try:
            for step in range(100):
                default_cache.set(f"{number}-{step % 5}", [number, step])
                assert default_cache.get(f"{number}-{step % 5}") == [number, step]
        finally:
            default_cache.close()

    with override_settings(CACHES=configured):
        assert together(use_own_keys) == [None] * THREADS


def test_what_somebody_changes_in_what_he_got_is_not_changed_in_the_cache(any_tier):
    any_tier.set("k", {"list": [1]})
    for _ in range(3):
        got = any_tier.get("k")
        assert got == {"list": [1]}
        got["list"].append(2)
        any_tier.get_many(["k"])["k"].clear()


def test_get_or_set_calls_once_and_writes_behind(any_tier, together):
    calls = []

    def run(_):
        # pymemcache's client is of one thread.
        mine = caches["tiered"]
        try:
            return mine.get_or_set("k", lambda: calls.append(1) or "value")
        finally:
            mine.close()

    assert set(together(run)) == {"value"}
    assert calls == [1]
    assert caches["behind"].get("k") == "value"
    assert any_tier.get_or_set("k", "other") == "value"
    assert any_tier.get_or_set("plain", 5) == 5


def test_async_methods_do_the_same(any_tier):
    cache = any_tier

    async def main():
        assert await cache.aadd("k", 1)
        assert not await cache.aadd("k", 2)
        assert [await cache.aget("k") for _ in range(2)] == [1, 1]
        await cache.aset("k", 2)
        assert await cache.aget("k") == 2
        assert await cache.aincr("k") == 3
        assert await cache.adecr("k", 2) == 1
        assert await cache.aget("k") == 1
        assert await cache.atouch("k", 100)
        assert await cache.ahas_key("k")
        await cache.aset_many({"a": 1, "b": 2})
        assert await cache.aget_many(["a", "b", "none"]) == {"a": 1, "b": 2}
        await cache.adelete_many(["a", "b"])
        assert await cache.aget_many(["a", "b"]) == {}
        assert await cache.adelete("k")
        assert await cache.aget("k", "default") == "default"

        async def default():
            return "value"

        assert await asyncio.gather(*(cache.aget_or_set("k", default) for _ in range(5))) == ["value"] * 5
        await cache.aset("v", 1)
        assert await cache.aincr_version("v") == 2
        assert await cache.aget("v", version=2) == 1
        await cache.aclear()
        assert await cache.aget("k") is None

    asyncio.run(main())


class Watched(import_string(LOCMEM)):
    """Notes which of its methods are looked up."""

    asked: ClassVar = set()

    def __getattribute__(self, name):
        Watched.asked.add(name)
        return super().__getattribute__(name)


def test_async_methods_use_the_async_methods_of_the_l2(tier):
    cache = tier(f"{__name__}.Watched", next(_names))

    async def main():
        await cache.aget("k")
        await cache.aset("k", 1)
        await cache.aadd("k", 1)
        await cache.aincr("k")
        await cache.aget_many(["k"])
        await cache.aset_many({"l": 1})
        await cache.atouch("k")
        await cache.ahas_key("l")
        await cache.adelete("k")
        await cache.aclear()

    Watched.asked.clear()
    asyncio.run(main())
    names = {"aget", "aset", "aadd", "aincr", "aget_many", "aset_many", "atouch", "ahas_key", "adelete", "aclear"}
    assert names <= Watched.asked


def test_behind_a_dummy_nothing_is_ever_kept(tier):
    cache = tier(DUMMY)
    cache.set("k", 1)
    assert cache.get("k") is None
    assert cache.get_or_set("k", 1) == 1
    assert cache.get_or_set("k", 2) == 2
    assert cache.get_many(["k"]) == {}
    assert cache.get("k") is None
    assert len(copies(cache)) == 0


def test_a_bad_key_warns_at_every_call_as_django_does_and_is_never_copied(tier, url):
    cache = tier(REDIS, url)
    calls = [
        lambda key: cache.get(key),
        lambda key: cache.set(key, 1),
        lambda key: cache.get_many([key, "good"]),
        lambda key: cache.has_key(key),
        lambda key: cache.incr(key),
        lambda key: asyncio.run(cache.aget(key)),
        lambda key: asyncio.run(cache.aget_many([key])),
        lambda key: cache.get_or_set(key, 1),
        lambda key: cache.delete(key),
    ]
    for key in ("a b", "x" * 300):
        for call in calls:
            with pytest.warns(CacheKeyWarning):
                call(key)
    assert copies(cache) == []


def test_a_bad_key_that_another_writes_is_read_anew(tier, url):
    cache = tier(REDIS, url)
    for value in (1, 2):
        with pytest.warns(CacheKeyWarning):
            caches["behind"].set("a b", value)
        with pytest.warns(CacheKeyWarning):
            assert cache.get_many(["a b"]) == {"a b": value}


def test_memcached_refuses_bad_keys_and_the_error_is_the_callers(tier, memcached):
    cache = tier(MEMCACHED, memcached, {"COHERENCE": "host", "FAIL_SAFE": True})
    for call in (cache.get, cache.has_key, cache.delete, cache.incr, lambda key: cache.get_many([key])):
        with pytest.raises(Exception, match="will cause errors if used with memcached"):
            call("a b")


def test_a_value_that_cannot_be_pickled_is_the_callers_error_and_no_outage(tier, url):
    cache = tier(REDIS, url, {"FAIL_SAFE": True})
    for _ in range(5):
        with pytest.raises((pickle.PicklingError, AttributeError, TypeError)):
            cache.set("k", lambda: None)
    cache.set("k", 1)
    assert cache.get("k") == 1


def test_a_counter_that_is_not_there_is_djangos_error(any_tier):
    with pytest.raises(ValueError, match="not found"):
        any_tier.incr("none")


# A database.


def test_a_table_of_a_database_may_stand_behind(tmp_path):
    outcome = run_django(
        {"behind": {"BACKEND": DATABASE, "LOCATION": "cache_table"}},
        {"L2": "behind", "COHERENCE": "host"},
        """
        from django.core.management import call_command
        call_command("createcachetable", verbosity=0)
        cache.set("k", [1])
        assert caches["behind"].get("k") == [1]
        assert [cache.get("k"), cache.get("k"), cache.get_many(["k", "l"])] == [[1], [1], {"k": [1]}]
        assert engine.stats().hits == 2
        assert cache.incr("n") if cache.add("n", 1) else None == 2
        assert cache.get_or_set("o", lambda: 3) == 3
        with connection.execute_wrapper(lambda *args: 1 / 0):
            assert cache.get("k") == [1]
        cache.clear()
        assert cache.get("k") is None
        print("done")
        """,
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(tmp_path / "db.sqlite3")}},
        location="table",
    )
    assert outcome == "done\n"


PRELUDE = """
import os, statistics, sys, time, threading
import django
from django.conf import settings
settings.configure(**{settings!r})
django.setup()
from django.core.cache import caches
from django.db import connection
from tests.engines import engine
from tests.waiting import until
cache = caches["tiered"]
engine = engine(cache)

def is_told():
    # Copies are kept only while writes are told.
    if caches["behind"].get("probe") is None:
        caches["behind"].set("probe", 1)
    hits = engine.stats().hits
    return cache.get("probe") == cache.get("probe") == 1 and engine.stats().hits > hits
"""


def start_django(behind, options, script, *, location="tiered", **settings):
    tiered = {"BACKEND": TIERED, "LOCATION": location, "OPTIONS": {"LOG_INTERVAL": None, **options}}
    settings["CACHES"] = {"default": {"BACKEND": LOCMEM}, **behind, "tiered": tiered}
    settings["LOGGING_CONFIG"] = None
    return subprocess.Popen(
        [sys.executable, "-W", "error", *FORKING, "-c", PRELUDE.format(settings=settings) + textwrap.dedent(script)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_django(*args, **kwargs):
    with start_django(*args, **kwargs) as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, ""), out + error
    return out


# Writes by others.


@pytest.mark.parametrize("backend", [REDIS, DJANGO_REDIS])
def test_a_write_by_any_client_an_expiration_and_a_flush_drop_the_copy(tier, url, server, backend):
    cache = tier(backend, url)
    client = server.client()
    others = {
        "another cache": lambda: caches["behind"].set("k", 2),
        "redis-cli": lambda: client.delete(":1:k"),
        "expiry": lambda: client.pexpire(":1:k", 1),
        "flush": client.flushall,
    }
    for name, write in others.items():
        cache.set("k", 1)
        assert until(lambda: cache.get("k") == 1 and copies(cache) == [":1:k"]), name
        write()
        assert until(lambda: copies(cache) == []), name
        # An expiry is told twice: that there is one, and that its time has come.
        assert until(lambda: cache.get("k") == (2 if name == "another cache" else None)), name  # noqa: B023


def test_versions_of_all_numbers_are_told(tier, url, server):
    cache = tier(REDIS, url, behind={"KEY_PREFIX": "site"})
    for version in (1, 2, 30):
        cache.set("k", 1, version=version)
        assert until(lambda v=version: cache.get("k", version=v) == 1 and len(copies(cache)) == 1)
        server.client().delete(f"site:{version}:k")
        assert until(lambda: copies(cache) == [])


def test_a_fill_that_is_held_back_while_another_client_writes_is_dropped(tier, url, trackings, monkeypatch):
    cache = tier(REDIS, url)
    told = trackings()[-1].told.keys
    caches["behind"].set("k", "old")
    assert until(lambda: b":1:k" in told)
    told.clear()
    read, go_on = threading.Event(), threading.Event()
    get = RedisCacheClient.get

    def held_back(self, *args):
        value = get(self, *args)
        read.set()
        assert go_on.wait(PATIENCE)
        return value

    monkeypatch.setattr(RedisCacheClient, "get", held_back)
    got = []
    reader = threading.Thread(target=lambda: got.append(cache.get("k")))
    reader.start()
    assert read.wait(PATIENCE)
    caches["behind"].set("k", "new")
    assert until(lambda: b":1:k" in told)
    go_on.set()
    reader.join(PATIENCE)
    assert got == ["old"]
    assert copies(cache) == []
    assert cache.get("k") == "new"


READER = """
assert until(is_told)
print("ready", flush=True)
for line in sys.stdin:
    key, value = line.split()
    deadline = time.monotonic() + 10
    while str(cache.get(key)) != value and time.monotonic() < deadline:
        time.sleep(0.0002)
    print(time.monotonic(), flush=True)
    assert cache.get(key) is not None
"""


@pytest.mark.parametrize("kind", ["Redis", "Memcached with shared stamps"])
def test_two_processes_see_each_others_writes_within_100_ms_in_the_median(request, kind, capsys):
    if kind == "Redis":
        behind = {"BACKEND": REDIS, "LOCATION": request.getfixturevalue("url")}
        options = {"L2": "behind"}
    else:
        behind = {"BACKEND": MEMCACHED, "LOCATION": request.getfixturevalue("memcached")}
        options = {"L2": "behind", "COHERENCE": "host"}
    location = f"two processes, {kind}"
    writer = """
    print("ready", flush=True)
    for line in sys.stdin:
        key, value = line.split()
        cache.set(key, value)
        print(time.monotonic(), flush=True)
    """
    options = {**options, "L1_TIMEOUT": 1000}
    with (
        start_django({"behind": behind}, options, writer, location=location) as one,
        start_django({"behind": behind}, options, READER, location=location) as two,
    ):
        try:
            assert [process.stdout.readline() for process in (one, two)] == ["ready\n"] * 2
            delays = [ask(two, one, f"k {number}") for number in range(100)]
        finally:
            for process in (one, two):
                process.kill()
    median, longest = statistics.median(delays), max(delays)
    with capsys.disabled():
        print(f"\n{kind}: a write is seen by another process after {median * 1e3:.2f} ms, at most {longest * 1e3:.1f}")
    assert median < 0.1


def ask(reader, writer, line):
    """Seconds from the end of the write in one process until the other reads it."""
    for process in (reader, writer):
        process.stdin.write(line + "\n")
        process.stdin.flush()
    written, seen = (float(process.stdout.readline()) for process in (writer, reader))
    return seen - written


def test_a_child_of_fork_asks_until_it_is_told_by_a_connection_of_its_own(url):
    outcome = run_django(
        {"behind": {"BACKEND": REDIS, "LOCATION": url}},
        {"L2": "behind", "L1_TIMEOUT": 1000},
        """
        import signal
        assert until(is_told)
        cache.set("k", 1)
        assert until(lambda: cache.get("k") == 1 and ":1:k" in engine.keys())
        pid = os.fork()
        if pid == 0:
            signal.alarm(30)
            try:
                caches["behind"].set("k", 2)
                assert cache.get("k") == 2
                assert until(is_told)
                assert until(lambda: cache.get("k") == 2 and ":1:k" in engine.keys())
                caches["behind"].set("k", 3)
                assert until(lambda: cache.get("k") == 3)
                print("child", flush=True)
            except BaseException as error:
                print(repr(error), flush=True)
            os._exit(0)
        os.waitpid(pid, 0)
        assert is_told()
        assert until(lambda: cache.get("k") == 3)
        caches["behind"].set("k", 4)
        assert until(lambda: cache.get("k") == 4)
        print("parent", flush=True)
        """,
    )
    assert outcome == "child\nparent\n"


def test_with_replicas_there_is_no_tracking_since_the_primary_tells_too_early(tier, url, trackings):
    for backend in (REDIS, DJANGO_REDIS):
        cache = tier(backend, [url, url])
        assert trackings() == ()
        cache.set("k", 1)
        assert (cache.get("k"), copies(cache)) == (1, [":1:k"])


def test_threads_of_a_process_share_the_copies_and_one_tracking_connection(tier, url, server, together):
    cache = tier(REDIS, url)
    cache.set("k", 1)

    def read(_):
        mine = caches["tiered"]
        assert mine.get("k") == 1
        return mine.store

    assert set(together(read)) == {cache.store}
    assert len(server.client().client_list(_type="pubsub")) == 1


def test_a_password_that_is_wrong_means_no_copies_and_the_error_reaches_the_caller(trackings, caplog):
    with RedisServer("--requirepass", "secret") as locked:
        options = {"L2": "behind"}
        behind = {"BACKEND": REDIS, "LOCATION": f"redis://:wrong@{locked.host}:{locked.port}/0"}
        with override_settings(CACHES={"default": {"BACKEND": LOCMEM}, "behind": behind}):
            cache = TieredCache(next(_names), {"OPTIONS": options})
            with pytest.raises(redis.AuthenticationError):
                cache.get("k")
            assert until(lambda: "are not told" in caplog.text)


def test_aliases_that_differ_in_their_version_see_at_once_what_they_write(tier, url):
    cache = tier(REDIS, url)
    newer = TieredCache(cache.location, {"OPTIONS": {"L2": "behind", "LOG_INTERVAL": None, "JITTER": 0}, "VERSION": 2})
    assert newer.store is cache.store
    for number in range(200):
        newer.set("k", number)
        assert cache.get("k", version=2) == number


def test_a_memcached_that_is_down_is_known_to_be_down(tier):
    options = {"COHERENCE": "host", "FAIL_SAFE": True, "WRITES_WITHOUT_L2": "refuse", "L2_TIMEOUT": 0.2}
    cache = tier(MEMCACHED, "127.0.0.1:1", options)
    for _ in range(5):
        with pytest.raises(Exception, match=r"refused|servers seem to be down|is left alone"):
            cache.set("k", 1)
    assert cache.get("k", "default") == "default"


# Whole pages, and who waits for whom.


def test_who_misses_what_another_fills_waits_for_his_value(tier, url):
    cache = tier(REDIS, url, {"FILL_WAIT": 10})
    assert cache.get("k") is None
    waited = []
    waiting = threading.Thread(target=lambda: (waited.append(caches["tiered"].get("k")), caches["tiered"].close()))
    waiting.start()
    until_waiting()
    assert not until(lambda: waited, seconds=0.1)
    cache.set("k", "value")
    waiting.join(PATIENCE)
    assert waited == ["value"]
    assert caches["behind"].get("k") == "value"


def test_a_page_is_made_once_for_all_who_ask_for_it_together(tier, url, together):
    from django.http import HttpResponse
    from django.test import RequestFactory
    from django.views.decorators.cache import cache_page

    tier(REDIS, url, {"FILL_WAIT": 10})
    made = []

    @cache_page(60, cache="tiered")
    def view(request):
        made.append(1)
        time.sleep(0.05)  # a page takes its time
        return HttpResponse("page")

    def ask(_):
        try:
            return view(RequestFactory().get("/")).content
        finally:
            caches["tiered"].close()

    assert set(together(ask)) == {b"page"}
    assert len(made) == 1
    assert ask(0) == b"page"
