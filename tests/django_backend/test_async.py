"""The async methods of both backends for Django: all are there, and do their work where they are awaited."""

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

from tests.waiting import PATIENCE, auntil_waiting
from wheelcache.django_backend import WheelCache
from wheelcache.django_backend.tiered import TieredCache

TASKS = 100


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


@pytest.fixture
def cache(make):
    return make()


def test_every_async_method_does_what_the_sync_one_does(cache):
    async def use():
        assert await cache.aadd("a", 1)
        assert not await cache.aadd("a", 2)
        assert await cache.aget("a") == 1
        assert await cache.aget("missing", "default") == "default"
        await cache.aset("b", [2], timeout=60)
        assert await cache.aget("b") == [2]
        assert await cache.atouch("b", 10)
        assert not await cache.atouch("missing")
        assert await cache.aget_many(["a", "b", "c"]) == {"a": 1, "b": [2]}
        assert await cache.aset_many({"c": 3, "d": 4}) == []
        assert await cache.ahas_key("d")
        assert await cache.adelete("d")
        assert not await cache.adelete("d")
        assert await cache.aincr("a", 5) == 6
        assert await cache.adecr("a", 2) == 4
        assert await cache.aincr_version("a") == 2
        assert await cache.aget("a", version=2) == 4
        assert await cache.adecr_version("a", version=2) == 1
        await cache.adelete_many(["a", "b"])
        assert await cache.aget_many(["a", "b", "c"]) == {"c": 3}
        assert await cache.aget_or_set("e", lambda: 5) == 5
        assert await cache.aget_or_set("e", 6) == 5
        with pytest.raises(ValueError, match="Key 'missing' not found"):
            await cache.aincr("missing")
        with pytest.raises(ValueError, match="Key 'missing' not found"):
            await cache.aincr_version("missing")
        await cache.aclose()
        assert await cache.aget("e") == 5
        await cache.aclear()
        assert await cache.aget("e") is None

    run(use())


def test_no_async_method_of_basecache_is_left_to_hop_to_a_thread(make, monkeypatch):
    def hopped(*args, **kwargs):
        pytest.fail("hopped to a thread")

    monkeypatch.setattr("django.core.cache.backends.base.sync_to_async", hopped)
    monkeypatch.setattr(asyncio, "to_thread", hopped)
    monkeypatch.setattr(asyncio.BaseEventLoop, "run_in_executor", hopped)
    methods = {name for name, method in vars(BaseCache).items() if inspect.iscoroutinefunction(method)}
    arguments = {
        "aadd": ("new", 1),
        "aset": ("key", 1),
        "aget_or_set": ("new", dict),
        "aget_many": (["key"],),
        "aset_many": ({"key": 1},),
        "adelete_many": (["new"],),
        "aclear": (),
        "aclose": (),
    }

    async def use(name):
        cache = make()
        cache.set("key", 1, version=1)
        cache.set("key", 1, version=2)
        if name == "adecr_version":
            cache.version = 2
        await getattr(cache, name)(*arguments.get(name, ("key",)))

    assert len(methods) >= 16
    for name in sorted(methods):
        run(use(name))


def test_no_async_method_lets_another_task_in_between(cache):
    # What never waits cannot be interleaved: each of these is one step of its coroutine.
    for coroutine in (
        cache.aset("key", 1),
        cache.aget("key"),
        cache.aincr("key"),
        cache.aget_many(["key"]),
        cache.aget_or_set("key", 1),
        cache.aget_or_set("other", lambda: 1),
        cache.aincr_version("key"),
    ):
        with pytest.raises(StopIteration):
            coroutine.send(None)


@pytest.mark.parametrize("kind", ["coroutine function", "function that returns a coroutine", "object to await"])
@pytest.mark.parametrize("value", ["value", "error", "unpicklable"])
def test_a_hundred_tasks_that_miss_together_run_an_async_default_once(cache, kind, value):
    calls = []

    async def compute():
        calls.append(1)
        await auntil_waiting(TASKS - 1)
        if value == "error":
            raise LookupError
        return ["value"] if value == "value" else threading.Lock()

    default = {
        "coroutine function": compute,
        "function that returns a coroutine": lambda: compute(),
        "object to await": lambda: asyncio.ensure_future(compute()),
    }[kind]

    async def use():
        asking = (cache.aget_or_set("key", default) for _ in range(TASKS))
        return await asyncio.gather(*asking, return_exceptions=True)

    values = run(use())
    assert len(calls) == 1
    if value == "value":
        assert values == [["value"]] * TASKS
        # No task can change what another one got.
        assert len(set(map(id, values))) == TASKS
        assert cache.get("key") == ["value"]
    else:
        assert {type(each) for each in values} == {LookupError if value == "error" else TypeError}
        assert "key" not in cache
        assert run(cache.aget_or_set("key", 1)) == 1


def test_a_plain_value_and_none_are_defaults_too(cache):
    async def use():
        assert await cache.aget_or_set("value", [1]) == [1]
        assert await cache.aget_or_set("none", None) is None
        assert await cache.aget_or_set("none", 5) is None
        assert await cache.aget_or_set("type", dict) == {}

    run(use())
    assert "none" in cache


def test_every_async_context_has_a_backend_of_its_own_on_the_same_entries(make):
    async def one_task(number):
        await caches["default"].aset(f"key{number}", number)
        await asyncio.sleep(0)
        return caches["default"], await caches["default"].aget_many([f"key{each}" for each in range(10)])

    async def use():
        return await asyncio.gather(*(one_task(number) for number in range(10)))

    outcomes = run(use())
    assert all(isinstance(backend, WheelCache) for backend, _ in outcomes)
    assert all(found == {f"key{each}": each for each in range(10)} for _, found in outcomes)
    assert len({id(backend.store) for backend, _ in outcomes}) == 1


# What Django's BaseCache has, and the cache behind a TieredCache.

METHODS = sorted(name for name, method in inspect.getmembers(BaseCache, inspect.iscoroutinefunction))
PAGES = "views.decorators.cache."
HEADERS = f"{PAGES}cache_header.prefix.{'a' * 32}.en-us.UTC"
_names = map("async methods {}".format, count())


class NotedLocMemCache(LocMemCache):
    """Remembers how it was closed, and in which threads it was written to and closed."""

    writers: ClassVar[list[int]] = []
    closed: ClassVar[list[tuple[str, int]]] = []

    def set(self, *args, **kwargs):
        self.writers.append(threading.get_ident())
        super().set(*args, **kwargs)

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
    NotedLocMemCache.closed.clear()


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
        await auntil_waiting()
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
    assert NotedLocMemCache.closed == [("aclose", thread)]


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
