"""Refreshes that are too many, that raise, that hang, and whose loops or caches end."""

import asyncio
import logging
from contextlib import contextmanager
from contextvars import ContextVar, copy_context

import pytest

from tests.engine.loading.harness import HeldInTasks, InTasks, InThreads, assert_counts, outcome, returns, unreached
from tests.runtime.background import full, is_idle, refuse_threads
from tests.waiting import PATIENCE, until
from wheelcache.runtime.worker_pool import refresh_pool


@pytest.fixture
def stale(cache, clock):
    """The value of "k" is stale, and has a grace of 50 seconds."""
    cache.get_or_load("k", returns("old"), grace=50)
    clock.advance(10)


@contextmanager
def no_threads():
    with pytest.MonkeyPatch.context() as patch:
        refuse_threads(patch)
        yield


@contextmanager
def no_more_tasks():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(refresh_pool, "_queue_size", 0)
        yield


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize(
    ("kind", "hindered"),
    [(InThreads, lambda: full(refresh_pool)), (InThreads, no_threads), (InTasks, no_more_tasks)],
    ids=["full queue", "no threads", "too many tasks"],
)
def test_refreshes_that_cannot_start_are_dropped_and_counted_and_tried_again(cache, closed, kind, hindered):
    twin = closed(kind(cache))
    with hindered():
        assert twin.get_or_load("k", unreached, grace=50) == "old"
    assert_counts(cache, misses=1, stale_hits=1, loads=1, refreshes_dropped=1)
    assert twin.get_or_load("k", returns("new"), grace=50) == "old"
    twin.settle()
    assert cache.get("k") == "new"


colour = ContextVar("colour", default="none")


def test_loads_in_the_background_run_in_a_copy_of_their_callers_context(cache, clock, twin):
    def loader():
        found = colour.get()
        colour.set("the loader's")
        return found

    def ask():
        colour.set("red")
        assert twin.get_or_load("k", loader, grace=5, timeout=PATIENCE) == "red"
        clock.advance(10)
        colour.set("blue")
        assert twin.get_or_load("k", loader, grace=5) == "red"
        twin.settle()
        return cache.get("k"), colour.get()

    assert copy_context().run(ask) == ("blue", "blue")
    assert colour.get() == "none"


def test_a_refresh_that_a_loader_starts_is_no_part_of_that_load(cache, clock, stale):
    """The function may load the same key: no load waits for it."""

    def refresh():
        return cache.get_or_load("outer", unreached)

    assert cache.get_or_load("outer", lambda: cache.get_or_load("k", refresh, grace=50)) == "old"
    assert until(lambda: cache.get("k") == "old")


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("write", ["set", "delete"])
def test_a_refresh_that_finds_its_entry_written_when_it_begins_loads_nothing(cache, write):
    with full(refresh_pool, places=1):
        assert cache.get_or_load("k", unreached, grace=50) == "old"
        assert cache.set("k", "newer") if write == "set" else not cache.delete("k")
    assert until(is_idle)
    assert (cache.stats().refreshes, cache.stats().loads, cache.stats().load_failures) == (1, 1, 0)
    assert cache.get("k") == ("newer" if write == "set" else None)


def raise_exit(*args):
    raise SystemExit


class Broken(logging.Handler):
    def emit(self, record):
        raise OSError("the disk is full")


@pytest.mark.parametrize("broken", ["loader", "listener", "log handler"])
def test_an_exception_in_the_background_keeps_no_caller_waiting(make, clock, pool, monkeypatch, broken):
    cache = make(on_removal=raise_exit if broken == "listener" else None)
    if broken == "log handler":
        monkeypatch.setattr(logging.getLogger("wheelcache"), "handlers", [Broken()])
    cache.get_or_load("k", returns("old"), grace=50)
    clock.advance(10)
    loader = raise_exit if broken == "loader" else lambda: outcome(LookupError())
    assert cache.get_or_load("k", loader, grace=50) == "old"
    assert until(is_idle)
    assert cache.stats().load_failures == 1
    assert pool.submit(cache.get_or_load, "k", returns("new"), grace=50).result(PATIENCE) == "new"
    clock.advance(10)
    assert cache.get_or_load("k", returns("newer"), grace=50) == "new"
    assert until(lambda: cache.get("k") == "newer")


def cancel_all(loop):
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))


@pytest.mark.usefixtures("stale")
@pytest.mark.parametrize("policy", [{}, {"grace": 50}], ids=["loads", "refreshes"])
@pytest.mark.parametrize("loop_is", ["left", "cancelled", "closed"])
def test_a_refresh_whose_loop_runs_no_more_keeps_no_caller_waiting(cache, pool, loop_is, policy):
    """A loop that was left, when ``run_until_complete`` returned, might be run again."""
    loader = HeldInTasks()
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(cache.aget_or_load("k", loader, grace=50)) == "old"
    loop.run_until_complete(loader.began.wait())
    if loop_is == "cancelled":
        cancel_all(loop)
    elif loop_is == "closed":
        loop.close()
    asked = pool.submit(cache.get_or_load, "k", returns("new"), **policy)
    assert asked.result(PATIENCE) == ("old" if policy else "new")
    assert until(lambda: cache.get("k") == "new")
    if loop_is != "closed":
        cancel_all(loop)
        loop.close()
    assert cache.get("k") == "new"


@pytest.mark.usefixtures("stale")
def test_after_a_refresh_that_was_cancelled_before_its_first_step_the_next_one_starts(cache):
    async def refreshed():
        before = asyncio.all_tasks()
        for loader in (unreached, returns("new")):
            assert await cache.aget_or_load("k", loader, grace=50) == "old"
            (task,) = asyncio.all_tasks() - before
            if loader is unreached:
                task.cancel()
            await asyncio.wait([task])

    asyncio.run(refreshed())
    assert cache.get("k") == "new"
