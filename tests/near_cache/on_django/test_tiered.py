"""TieredCache in Django: its settings, keys, async methods and pages. The rest is in ``tests/backends``."""

import asyncio

import pytest
from django.core.cache import caches
from django.core.cache.backends.locmem import LocMemCache
from django.core.cache.backends.redis import RedisCache
from django.core.exceptions import ImproperlyConfigured
from django.http import HttpResponse
from django.test import RequestFactory, override_settings
from django.views.decorators.cache import cache_page

import wheelcache
from tests.near_cache.tiers import LOCMEM, TierOnDjango
from tests.waiting import THREADS, until
from wheelcache.django_backend import TieredCache
from wheelcache.near_cache.django_tiered import OPTIONS
from wheelcache.near_cache.redis_tracking import client_of

TIERED = "wheelcache.django_backend.TieredCache"
REDIS, DJANGO_REDIS, MEMCACHED = (TierOnDjango.kinds[kind] for kind in ("redis", "django-redis", "memcached"))


def params_of(**options):
    return {"OPTIONS": {"L2": "behind", "JITTER": 0, "FIGURES_DIR": None, **options}}


# Settings.


def refused(**options):
    configured = {
        "default": {"BACKEND": LOCMEM},
        "tiered itself": {"BACKEND": TIERED, "OPTIONS": {"L2": "default"}},
        "tiered": {"BACKEND": TIERED, "LOCATION": "refused", "OPTIONS": options},
    }
    with override_settings(CACHES=configured), pytest.raises(ImproperlyConfigured) as error:
        caches["tiered"].get("k")
    assert "refused" not in [each.name for each in wheelcache.caches()]
    return str(error.value)


def test_l2_must_be_the_alias_of_another_cache_and_no_tiered_one():
    assert "Set L2 to the alias of another cache, such as your Redis cache ('default')" in refused()
    for wrong in ("", "none", 1, True, ["default"]):
        assert f"the cache 'tiered': L2 must be one of 'default', not {wrong!r}" in refused(L2=wrong)
    for alias in ("tiered", "tiered itself"):
        assert f"L2 must not be a TieredCache itself, as {alias!r} is" in refused(L2=alias)
    with override_settings(CACHES={"default": {"BACKEND": TIERED}}), pytest.raises(ImproperlyConfigured) as error:
        caches["default"].get("k")
    assert "Set L2 to the alias of another cache, such as your Redis cache." in str(error.value)


def test_an_unknown_option_is_an_error_that_names_the_options_and_one_of_other_caches_names_these():
    assert all(part in refused(L2="default", L1_MAX=3) for part in ("'L1_MAX'", *OPTIONS))
    assert "'CULL_FREQUENCY' of the cache 'tiered'; it belongs to WheelCache" in refused(L2="default", CULL_FREQUENCY=3)


class DerivedRedisCache(RedisCache):
    """As a project may have one."""


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, ("theirs", 3, 30)), ({"KEY_PREFIX": "ours", "VERSION": 7, "TIMEOUT": 70}, ("ours", 7, 70))],
)
def test_prefix_version_and_timeout_are_those_of_the_l2_unless_given(given, expected):
    behind = {"BACKEND": LOCMEM, "LOCATION": "names", "KEY_PREFIX": "theirs", "VERSION": 3, "TIMEOUT": 30}
    with override_settings(CACHES={"default": {"BACKEND": LOCMEM}, "behind": behind}):
        cache = TieredCache(f"names {given}", {**params_of(), **given})
        assert (cache.key_prefix, cache.version, cache.default_timeout) == expected
        cache.set("k", 1)
        assert f"{expected[0]}:{expected[1]}:k" in caches["behind"]._cache


class OwnKeysCache(LocMemCache):
    def make_key(self, key, version=None):
        return super().make_key(key, version).replace(" ", "-")


def test_a_cache_behind_that_makes_its_keys_in_its_own_way_makes_those_of_both_levels():
    behind = {"BACKEND": f"{__name__}.OwnKeysCache", "LOCATION": "own keys", "KEY_PREFIX": "site"}
    with override_settings(CACHES={"default": {"BACKEND": LOCMEM}, "behind": behind}):
        cache = TieredCache("own keys", params_of())
        cache.set("a key", 1)
        assert caches["behind"]._cache.keys() == {"site:1:a-key"}
        assert caches["behind"].get("a key") == cache.get("a key") == 1
        assert (cache.get_many(["a key"]), cache.get("a key", version=2)) == ({"a key": 1}, None)
        cache.delete("a key")
        assert caches["behind"].get("a key") is None


@pytest.mark.servers
def test_names_changed_on_the_fly_are_those_of_both_levels_and_what_is_not_told_is_not_copied(tier, empty_redis):
    tier = tier("redis", empty_redis)
    cache = tier.backend
    cache.key_prefix = "tenant"
    cache.set("k", 1)
    assert [cache.get("k"), cache.get_many(["k"]), cache.has_key("k")] == [1, {"k": 1}, True]
    assert (empty_redis.client().keys(), tier.copies()) == ([b"tenant:1:k"], [])
    cache.key_prefix = ""
    assert cache.get("k") is None
    cache.version = 2
    cache.set("k", 2)
    assert until(lambda: (cache.get("k"), tier.copies()) == (2, [":2:k"]))


NAMES_OF_TIMEOUTS = {
    REDIS: ("socket_timeout", "socket_connect_timeout"),
    DJANGO_REDIS: ("SOCKET_TIMEOUT", "SOCKET_CONNECT_TIMEOUT"),
    MEMCACHED: ("timeout", "connect_timeout"),
    f"{__name__}.DerivedRedisCache": ("socket_timeout", "socket_connect_timeout"),
}


def sockets_of(backend, location, **options):
    """Return the pool of a TieredCache over this backend, if it has one, and the options of its sockets."""
    behind = {"BACKEND": backend, "LOCATION": location, "OPTIONS": options}
    with override_settings(CACHES={"default": {"BACKEND": LOCMEM}, "behind": behind}):
        l2 = TieredCache(repr(behind), params_of())._l2
    if backend == MEMCACHED:
        return None, l2._cache.default_kwargs
    pool = client_of(l2).connection_pool
    return pool, pool.connection_kwargs


@pytest.mark.parametrize(("backend", "names"), NAMES_OF_TIMEOUTS.items())
@pytest.mark.parametrize("given", [None, 0.25])
def test_each_socket_has_a_timeout_and_one_given_to_the_l2_wins(backend, names, given):
    location = "127.0.0.1:1" if backend == MEMCACHED else "redis://127.0.0.1:1"
    pool, options = sockets_of(backend, location, **(dict.fromkeys(names, given) if given else {}))
    assert [options[name.lower()] for name in names] == [given or 1] * 2
    # redis-py would hold up a request for longer.
    assert pool is None or pool.make_connection().retry.get_retries() == 0


def test_django_redis_has_another_pool_than_an_alias_whose_sockets_wait_for_ever():
    url = "redis://127.0.0.1:1/0"
    with override_settings(CACHES={"default": {"BACKEND": DJANGO_REDIS, "LOCATION": url}}):
        waits = client_of(caches["default"]).connection_pool
    for location, seconds in ((url, 1), ([url], 1), (f"{url}?socket_timeout=0.25", 0.25)):
        pool, options = sockets_of(DJANGO_REDIS, location)
        assert pool is not waits
        assert (options["socket_timeout"], options["socket_connect_timeout"]) == (seconds, 1)


def test_a_store_belongs_to_what_its_alias_means_now():
    stores = []
    for location in ("one", "another"):
        behind = {"BACKEND": LOCMEM, "LOCATION": location}
        with override_settings(CACHES={"default": {"BACKEND": LOCMEM}, "behind": behind}):
            stores.append(TieredCache("alias", params_of()).store)
    assert stores[0] is not stores[1]


# Async methods.


def test_async_methods_use_those_of_the_cache_behind(tier):
    tier = tier()
    cache = tier.backend

    async def use():
        await cache.aset("k", 1)
        await cache.aget("k")
        assert await cache.adecr("k", 2) == -1
        await cache.aget_many(["k", "l"])
        assert await cache.aincr_version("k") == 2
        assert await cache.adecr_version("k", version=2) == 1
        await cache.adelete_many(["l"])
        await cache.aclear()

    asyncio.run(use())
    assert all(name.startswith("a") and name != "add" for name, _ in tier.noted.calls)


def test_the_cache_behind_is_closed_as_well(tier, call, monkeypatch):
    closed = []

    async def aclose(self):
        closed.append(self)

    monkeypatch.setattr(LocMemCache, "close", lambda self: closed.append(self))
    monkeypatch.setattr(LocMemCache, "aclose", aclose)
    cache = tier().backend
    call(cache, "close")
    assert closed == [cache._l2]


class ExpiringCache(LocMemCache):
    """Its values expire when their timeout is asked for."""

    incr_version = None

    def pttl(self, key):
        return 0

    async def apttl(self, key):
        return 0


def test_a_value_that_expires_while_its_version_is_changed_is_missing(tier, call):
    cache = tier(behind={"BACKEND": f"{__name__}.ExpiringCache"}).backend
    cache.set("k", 1)
    with pytest.raises(ValueError, match="'k' not found"):
        call(cache, "incr_version", "k")
    assert cache.get("k") == 1


# Servers.


def test_each_thread_has_a_memcached_client_of_its_own(tier, together):
    """Two threads that share a client of pymemcache read each other's answers."""
    tier("memcached", "127.0.0.1:1")
    backends = together(lambda _: caches["tiered"])
    assert len({id(backend._l2._cache) for backend in backends}) == THREADS


def test_a_memcached_that_is_down_is_known_to_be_down(tier):
    """pymemcache would report misses for a while."""
    tier = tier("memcached", "127.0.0.1:1")
    for _ in range(5):
        with pytest.raises(Exception, match=r"refused|servers seem to be down"):
            tier.get("k")


@pytest.mark.servers
def test_threads_of_a_process_share_the_copies_and_one_tracking_connection(tier, empty_redis, together):
    cache = tier("redis", empty_redis).backend
    cache.set("k", 1)
    assert set(together(lambda _: caches["tiered"].get("k") and caches["tiered"].store)) == {cache.store}
    assert len(empty_redis.client().client_list(_type="pubsub")) == 1


def test_a_page_counts_as_one_look_up_of_the_cache_behind(tier):
    """Django looks up the list of its headers first."""
    tier = tier()
    view = cache_page(60, cache="tiered")(lambda request: HttpResponse("page"))
    for _ in range(3):
        assert view(RequestFactory().get("/")).content == b"page"
        tier.engine.clear()
    stats = tier.engine.stats()
    assert (stats.hits, stats.misses, stats.store.hits, stats.store.misses) == (0, 3, 2, 1)
