"""The async methods of the backends: all are there, and do their work where they are awaited.

Their effects are tested in ``tests/backends``, with its adapter ``OnDjangoAsync``.
"""

import asyncio
import inspect
import threading

import pytest
from django.core.cache.backends.base import BaseCache

from tests.django_backend.conftest import finish_request
from tests.guests import needs
from tests.waiting import PATIENCE, auntil_waiting
from wheelcache import django_backend

METHODS = sorted(name for name, method in inspect.getmembers(BaseCache, inspect.iscoroutinefunction))


def run(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, PATIENCE))


@pytest.fixture
def cache(make):
    return make()


@pytest.mark.parametrize("name", ["WheelCache", pytest.param("TieredCache", marks=needs("near_cache"))])
def test_each_async_method_of_basecache_is_overridden_and_takes_the_same(name):
    backend = getattr(django_backend, name)
    assert {"aget", "aset", "aclose"} < set(METHODS)
    for method in METHODS:
        assert inspect.iscoroutinefunction(getattr(backend, method)), method
        # Those of Django call only others that are overridden.
        is_djangos = getattr(backend, method) is getattr(BaseCache, method)
        assert not is_djangos or method in {"adecr", "aincr_version", "adecr_version"}, method
        expected = inspect.signature(getattr(BaseCache, method)).parameters
        given = inspect.signature(getattr(backend, method)).parameters
        assert list(given)[: len(expected)] == list(expected), method
        assert all(given[name].default == expected[name].default for name in expected), method


ARGUMENTS = {
    "aadd": ("new", 1),
    "aset": ("key", 1),
    "aget_or_set": ("new", dict),
    "aget_many": (["key"],),
    "aset_many": ({"key": 1},),
    "adelete_many": (["new"],),
    "aclear": (),
    "aclose": (),
}


@pytest.mark.parametrize("method", METHODS)
def test_no_async_method_hops_to_a_thread_or_lets_another_task_in_between(cache, method):
    cache.set("key", 1, version=1)
    cache.set("key", 1, version=2)
    cache.version = 2 if method == "adecr_version" else 1
    # A call that never waits is one step of its coroutine.
    with pytest.raises(StopIteration):
        getattr(cache, method)(*ARGUMENTS.get(method, ("key",))).send(None)


async def compute():
    return ["value"]


@pytest.mark.parametrize("default", [compute, lambda: compute(), lambda: asyncio.ensure_future(compute())])
def test_the_result_of_a_default_is_awaited(cache, default):
    assert run(cache.aget_or_set("key", default)) == cache.get("key") == ["value"]


# The end of a request.


@needs("fill_waits")
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


@needs("fill_waits")
def test_the_end_of_a_request_ends_the_leases_of_its_thread_though_no_backend_of_that_thread_is_closed(make, in_thread):
    """Django closes those that the thread itself got from ``caches``, and an object in a module is none of them."""
    cache = make({"FILL_WAIT": 1000})
    missed, go_on = threading.Event(), threading.Event()

    def request():
        cache.get("key")
        missed.set()
        assert go_on.wait(PATIENCE)
        finish_request()

    requested = in_thread(request)
    assert missed.wait(PATIENCE)
    waiting = in_thread(cache.get, "key", "none")
    go_on.set()
    requested.result(PATIENCE)
    assert waiting.result(PATIENCE) == "none"
