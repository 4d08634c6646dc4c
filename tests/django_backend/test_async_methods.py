"""Every async method of the installed Django's BaseCache has one of ours, which does its work where it is awaited."""

import asyncio
import inspect
import threading
from itertools import count
from typing import ClassVar

import pytest
from django.core.cache import caches
from django.core.cache.backends.base import BaseCache
from django.core.cache.backends.locmem import LocMemCache
from django.test import override_settings

from wheelcache.django_backend import WheelCache
from wheelcache.django_backend.tiered import TieredCache

METHODS = sorted(name for name, method in inspect.getmembers(BaseCache, inspect.iscoroutinefunction))
PAGES = "views.decorators.cache."
HEADERS = f"{PAGES}cache_header.prefix.{'a' * 32}.en-us.UTC"
PATIENCE = 10

_names = map("async methods {}".format, count())


class NotedLocMemCache(LocMemCache):
    """Remembers how it was closed, and in which threads it was written to and closed."""

    writers: ClassVar[list[int]] = []

    def set(self, *args, **kwargs):
        self.writers.append(threading.get_ident())
        super().set(*args, **kwargs)

    def __init__(self, *args):
        super().__init__(*args)
        self.closed = []

    def close(self, **kwargs):
        self.closed.append(("close", threading.get_ident()))

    async def aclose(self, **kwargs):
        self.closed.append(("aclose", threading.get_ident()))


@pytest.fixture
def tiered():
    configured = {
        "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache", "LOCATION": next(_names)},
        "behind": {"BACKEND": f"{__name__}.NotedLocMemCache", "LOCATION": next(_names)},
        "tiered": {
            "BACKEND": "wheelcache.django_backend.TieredCache",
            "LOCATION": next(_names),
            "OPTIONS": {"L2": "behind", "LOG_INTERVAL": None, "FILL_WAIT": 60},
        },
    }
    with override_settings(CACHES=configured):
        yield caches["tiered"]


@pytest.fixture(autouse=True)
def _no_writers():
    NotedLocMemCache.writers.clear()


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


def test_basecache_has_async_methods():
    assert {"aget", "aset", "aclose"} < set(METHODS)


@pytest.mark.parametrize("backend", [WheelCache, TieredCache])
@pytest.mark.parametrize("method", METHODS)
def test_every_async_method_of_basecache_is_overridden(backend, method):
    """In each of the two itself: what is right for memory would hold up the loop where another cache is behind."""
    assert method in vars(backend)
    assert inspect.iscoroutinefunction(vars(backend)[method])


@pytest.mark.parametrize("method", METHODS)
def test_overrides_take_what_basecache_takes(method):
    expected = inspect.signature(getattr(BaseCache, method)).parameters
    for backend in (WheelCache, TieredCache):
        given = inspect.signature(getattr(backend, method)).parameters
        assert list(given)[: len(expected)] == list(expected)
        assert all(given[name].default == expected[name].default for name in expected)


def test_aclose_gives_what_the_task_was_to_fill_to_the_next(make):
    cache = make({"FILL_WAIT": 60})
    missed, filled = asyncio.Event(), asyncio.Event()

    async def miss_and_close():
        assert await cache.aget("key") is None
        missed.set()
        # Until the other task waits for this one's set.
        for _ in range(5):
            await asyncio.sleep(0)
        await cache.aclose()
        # The end of the task would give it up as well.
        await filled.wait()

    async def wait_for_it():
        await missed.wait()
        value = await cache.aget("key", "mine to fill")
        filled.set()
        return value

    async def both():
        return await asyncio.gather(miss_and_close(), wait_for_it())

    assert run(both()) == [None, "mine to fill"]


def test_aclose_of_a_tiered_cache_closes_the_other_cache_by_its_own_aclose(tiered):
    async def close():
        await tiered.aclose()
        return threading.get_ident()

    thread = run(close())
    assert tiered._l2.closed == [("aclose", thread)]


def test_aclose_of_a_tiered_cache_stores_what_was_held_back_without_holding_up_the_loop(tiered):
    """The list of headers of a page whose page never came."""

    async def use():
        assert tiered.get(HEADERS) is None
        tiered.set(HEADERS, ["Accept"], 60)
        await tiered.aclose()
        assert await caches["behind"].aget(HEADERS) == ["Accept"]
        return threading.get_ident()

    thread = run(use())
    assert NotedLocMemCache.writers
    assert thread not in NotedLocMemCache.writers


def test_versions_and_decr_reach_the_cache_behind(tiered):
    async def use():
        await tiered.aset("count", 5)
        assert await tiered.adecr("count", 2) == 3
        assert await tiered.aincr_version("count") == 2
        assert await caches["behind"].aget("count", version=2) == 3
        assert await tiered.adecr_version("count", version=2) == 1
        return await caches["behind"].aget("count")

    assert run(use()) == 3
