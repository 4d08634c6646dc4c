"""One of the callers that miss a key computes it, and the others wait: threads, tasks, and both.

``test_model`` compares waiting callers, the duration of waits and the passing of leases with a model.
"""

import asyncio
from contextvars import Context

import pytest

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, SHORT, aget_or_lease, get_or_lease, is_free, line_up
from tests.waiting import PATIENCE, auntil_waiting, until, until_waiting
from wheelcache import CacheClosed
from wheelcache.fill_waits.fill_turns import MAX_UNFILLED
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import end_request

# A set.


OVERTAKING = {
    "delete": lambda cache: cache.delete("k"),
    "a dropped tag": lambda cache: cache.delete_tags("t"),
}


@pytest.mark.parametrize("overtake", OVERTAKING.values(), ids=OVERTAKING)
def test_a_value_that_was_read_elsewhere_before_a_write_reaches_no_waiter(cache, callers, overtake):
    holder, waiter, another, _ = callers
    (asked,) = line_up("k", holder, waiter)
    fill = holder.does(LeasedReads(cache.engine).fill, "k")
    another.does(overtake, cache)
    another.does(fill, "outdated", ["t"])
    assert not asked.done()
    # The caller that has the lease gives it up.
    holder.does(fill, "outdated", ["t"])
    assert asked.result(PATIENCE) == MISS


# A lease that ends without a set.


def test_a_delete_by_the_holder_gives_up_its_lease(cache):
    get_or_lease(cache, "k", wait=LONG)
    Context().run(cache.delete, "k")
    assert is_leased(cache, "k")
    cache.delete("k")
    assert not is_leased(cache, "k")


def test_a_key_whose_leases_ended_twice_without_a_value_is_not_waited_for_until_it_gets_one(cache, callers):
    holder, *others = callers
    line_up("flag", holder)
    holder.does(end_request)
    # Once is no habit yet.
    asked = line_up("flag", holder, *others)
    holder.does(end_request)
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 3
    for caller in others:
        caller.does(end_request)
    # All of them compute it.
    assert [caller.gets("flag") for caller in callers] == [MISS] * 4
    holder.does(cache.set, "flag", "it")
    for caller in callers:
        caller.does(end_request)
    Context().run(cache.delete, "flag")
    asked = line_up("flag", holder, *others)
    holder.does(cache.set, "flag", "new")
    assert [each.result(PATIENCE) for each in asked] == ["new"] * 3


def test_keys_that_a_stranger_chooses_do_not_keep_callers_from_waiting_and_are_forgotten(cache, callers):
    holder, other, stranger, _ = callers

    def never_set(*keys):
        for key in keys:
            for _ in range(2):
                get_or_lease(cache, key, wait=LONG)
                end_request()

    holder.does(never_set, "forgotten", "remembered")
    stranger.does(never_set, *range(MAX_UNFILLED - 1))
    for key, is_waited_for in (("forgotten", True), ("remembered", False), ("page", True)):
        holder.does(end_request)
        assert holder.gets(key) == MISS
        asked = other.asks(key)
        if is_waited_for:
            until_waiting()
            holder.does(cache.set, key, "it")
        assert asked.result(PATIENCE) == ("it" if is_waited_for else MISS)


def test_a_clear_gives_up_the_leases_that_its_caller_has_in_that_cache(make, cache, callers):
    holder, other, third, *_ = callers
    elsewhere = make()
    holder.gets("k")
    holder.gets("k", cache=elsewhere)
    third.gets("of the third")
    holder.does(cache.clear)
    assert not holder.does(is_leased, cache, "k")
    assert holder.does(is_leased, elsewhere, "k")
    assert third.does(is_leased, cache, "of the third")
    assert other.gets("k") == MISS


# Callers that others may be waiting for do not wait.


def test_a_holder_never_waits_for_another_key_or_in_another_cache(make, cache, callers):
    first, second, *_ = callers
    elsewhere = make()
    first.gets("a")
    second.gets("b")
    assert second.gets("a") == first.gets("b") == second.gets("b") == MISS
    get_or_lease(elsewhere, "k", wait=LONG)
    assert first.gets("k", cache=elsewhere) == MISS
    assert not first.does(is_leased, elsewhere, "k")


LOADERS = {
    "get_or_load": lambda cache, loader: cache.get_or_load("loaded", loader),
    "with a timeout": lambda cache, loader: cache.get_or_load("loaded", loader, timeout=LONG),
    "in another one": lambda cache, loader: cache.get_or_load("loaded", lambda: cache.get_or_load("inner", loader)),
    "aget_or_load": lambda cache, loader: asyncio.run(cache.aget_or_load("loaded", loader)),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_code_inside_a_loader_never_waits(cache, callers, load):
    holder, loading, *_ = callers
    holder.gets("k")
    assert loading.does(load, cache, lambda: get_or_lease(cache, "k", MISS, wait=LONG)) == MISS
    # After it, the thread waits again.
    asked = loading.asks("k")
    until_waiting()
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_a_refresh_in_the_background_acts_for_no_caller(make, clock):
    cache = make(clock=clock)
    held = []
    cache.get_or_load("stale", lambda: "old", 1, grace=LONG)
    clock.advance(2)
    get_or_lease(cache, "k", wait=LONG)
    assert cache.get_or_load("stale", lambda: held.append(is_leased(cache, "k")), 1, grace=LONG) == "old"
    assert until(lambda: held == [False])
    assert is_leased(cache, "k")


# Reads that take no lease, and counts.


def test_hits_misses_and_coalesced_are_exact(cache, callers):
    def counted():
        stats = cache.stats()
        return stats.hits, stats.misses, stats.coalesced

    holder, other, third, fourth, *_ = callers
    asked = line_up("k", holder, other, third)
    holder.gets("k")
    assert counted() == (0, 2, 0)
    holder.does(cache.set, "k", 1)
    assert [each.result(PATIENCE) for each in asked] == [1, 1]
    assert fourth.gets("k") == 1
    assert counted() == (3, 2, 2)
    (asked,) = line_up("j", holder, other)
    assert third.gets("j", wait=SHORT) == MISS
    holder.does(end_request)
    assert asked.result(PATIENCE) == MISS
    assert counted() == (3, 5, 2)


# The end of the cache, and waiters that run later.


def test_waiters_of_a_cache_that_is_closed_get_an_error(cache, callers):
    asked = line_up("k", *callers)
    cache.close()
    assert [type(each.exception(PATIENCE)) for each in asked] == [CacheClosed] * 3


@pytest.mark.parametrize(("outcome", "expected"), [("lease", MISS), ("value", "it"), ("next lease", "it")])
def test_a_task_that_is_cancelled_before_it_ran_with_what_it_waited_for(cache, callers, outcome, expected):
    """A lease it passes on, a value it takes from no other, a later lease it does not disturb."""
    holder, heir, *_ = callers
    assert holder.gets("k") == MISS

    async def main():
        tasks = [asyncio.create_task(aget_or_lease(cache, "k", MISS, wait=LONG)) for _ in range(2)]
        await auntil_waiting(2)
        # The loop does not run meanwhile.
        if outcome == "lease":
            holder.does(end_request)
        else:
            holder.does(cache.set, "k", "it")
        if outcome == "next lease":
            cache.delete("k")
            assert heir.gets("k") == MISS
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, found = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert found == expected
    assert heir.does(is_leased, cache, "k") is (outcome == "next lease")
    heir.does(end_request)
    assert is_free(cache, "k")
