"""One backend object for all threads and tasks: ``cache = caches["default"]`` in a module."""

import asyncio
import threading

import pytest
from asgiref.sync import sync_to_async
from django.core.signals import request_finished

from tests.engines import engine
from tests.guests import needs
from tests.waiting import PATIENCE, THREADS

LONG = 1000
"""Seconds of a FILL_WAIT that no caller should come to the end of."""


def finish_request():
    """As Django does at the end of a request in this thread."""
    request_finished.send(sender=None)


@pytest.mark.parametrize(
    "options",
    [{}, pytest.param({"FILL_WAIT": 5}, marks=needs("fill_waits")), {"MAX_ENTRIES": 40}],
    ids=["plain", "leases", "small"],
)
def test_all_threads_and_tasks_may_use_it_at_once_while_requests_end(make, together, options):
    cache = make(options)
    steps = 10

    def mine(number, step):
        return f"{number}-{step % 7}", [number, step]

    def by_thread(number):
        for step in range(steps):
            key, value = mine(number, step)
            cache.set(key, value, 60)
            assert cache.get(key, value) == value
            cache.get_or_set("shared", lambda: [0], None)
            cache.get(f"missing-{number}")
            cache.close()
            finish_request()
        return "done"

    async def by_task(number):
        for step in range(steps):
            key, value = mine(number, step)
            await cache.aset(key, value, 60)
            await asyncio.sleep(0)
            assert await cache.aget(key, value) == value
            await cache.aget_or_set("shared", lambda: [0], None)
            await cache.aget_many([key, "shared"])
            await sync_to_async(cache.delete_many)([f"missing-{number}"])
        return "done"

    async def by_tasks(number):
        return await asyncio.gather(*(by_task(f"{number}-{each}") for each in range(4)))

    def run(number):
        return [by_thread(number)] * 4 if number % 2 else asyncio.run(by_tasks(number))

    assert together(run) == [["done"] * 4] * THREADS
    assert engine(cache).stats().size == len(engine(cache)) <= options.get("MAX_ENTRIES", 10_000)


@needs("fill_waits")
def test_the_end_of_a_request_ends_the_leases_of_its_thread_though_no_backend_of_that_thread_is_closed(make, in_thread):
    """Django closes those that the thread itself got from ``caches``, and an object in a module is none of them."""
    cache = make({"FILL_WAIT": LONG})
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
