"""FILL_WAIT in Django: keys, coroutines, and requests of ASGI. ``on_both`` tests what both frameworks do."""

import asyncio
from contextvars import copy_context

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.core.signals import request_finished

from tests.caches import is_leased
from tests.engines import engine
from tests.waiting import PATIENCE

LONG = 1000
"""Seconds of a FILL_WAIT that ends after any test: a result within PATIENCE did not wait for it."""


@pytest.fixture
def cache(make):
    return make({"FILL_WAIT": LONG})


def test_a_prefix_is_of_the_key_as_the_caller_writes_it_and_versions_are_apart(make):
    cache = make({"FILL_WAIT": {"page:": LONG, "7": LONG, ":1:": LONG}}, KEY_PREFIX="site", VERSION=3)
    for key, waits in (("page:1", True), (71, True), ("site:3:page:1", False)):
        cache.get(key)
        assert is_leased(engine(cache), f"site:3:{key}") is waits
    cache.get("page:2", version=2)
    assert is_leased(engine(cache), "site:2:page:2")
    assert not is_leased(engine(cache), "site:3:page:2")


# Coroutines, and requests of ASGI


def run(coroutine):
    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await coroutine

    return asyncio.run(in_time())


def in_a_request(function):
    """Run ``function()`` in a thread, as Django's ASGI handler runs a sync view, and end the request."""

    async def request():
        async with ThreadSensitiveContext():
            # A task, whose context the rest of the request does not see: neither does Django's handler.
            await asyncio.create_task(sync_to_async(function)())
            await sync_to_async(request_finished.send)(sender=None)

    asyncio.run(request())


def test_what_a_thread_holds_for_a_request_of_asgi_ends_with_the_request(cache, in_thread):
    contexts = []

    def view():
        cache.get("key")
        # As a traceback or a timer of the server does.
        contexts.append(copy_context())
        assert is_leased(engine(cache), ":1:key")

    in_thread(in_a_request, view).result(PATIENCE)
    assert in_thread(cache.get, "key", "missed").result(PATIENCE) == "missed"


def test_a_view_and_its_middleware_act_for_one_request_whichever_asks_first(cache, in_thread):
    async def request_of_the_view():
        async with ThreadSensitiveContext():
            return await cache.aget("other", "by view"), await sync_to_async(cache.get)("other", "by middleware")

    async def request():
        async with ThreadSensitiveContext():
            missed = await sync_to_async(cache.get)("key", "by middleware")
            again = await cache.aget("key", "by view")
            others = await asyncio.gather(
                cache.aget("key", "by task"),
                asyncio.to_thread(cache.get, "key", "by thread"),
                sync_to_async(cache.get)("key", "by sync_to_async"),
            )
            return missed, again, *others

    found = in_thread(run, request()).result(PATIENCE)
    assert found == ("by middleware", "by view", "by task", "by thread", "by sync_to_async")
    assert in_thread(run, request_of_the_view()).result(PATIENCE) == ("by view", "by middleware")


def test_no_caller_waits_in_a_thread_that_all_of_a_loop_share(cache):
    """``sync_to_async`` outside of a request of an ASGI server: the holder needs the same thread to set."""

    async def fill():
        if await sync_to_async(cache.get)("k") is None:
            await asyncio.sleep(0)
            await sync_to_async(cache.set)("k", "it")
        return await sync_to_async(cache.get)("k")

    async def main():
        return await asyncio.gather(fill(), fill(), fill())

    assert run(main()) == ["it"] * 3
