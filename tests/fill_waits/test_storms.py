"""Many concurrent callers, many leases, and finalizers: no lease or waiter is left behind, and memory is bounded."""

import asyncio
import contextvars
import gc
import weakref
from contextlib import suppress

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, aget_or_lease, get_or_lease, is_free
from tests.waiting import THREADS
from wheelcache.runtime.request_scope import end_request

LEASES_AT_MOST = 1024
"""The number of leases that a caller holds at the same time."""


async def ask_for_a_moment(cache, key):
    with suppress(TimeoutError):
        async with asyncio.timeout(0.001):
            await aget_or_lease(cache, key, wait=LONG)


def test_no_lease_is_left_and_no_waiter_lost_after_a_storm_of_everything(cache, together):
    others = [
        lambda key: cache.delete(key),
        lambda key: cache.set_many({key: 1, key + 1: 2}),
        lambda key: cache.get_or_load(key, lambda: 3),
        lambda key: contextvars.copy_context().run(get_or_lease, cache, key, wait=LONG),
        lambda key: asyncio.run(ask_for_a_moment(cache, key)),
        lambda key: gc.collect(0),
    ]

    def request(number):
        for step in range(100):
            key = (number * 7 + step * 3) % 6
            outcome = (number + step * 5) % 12
            if get_or_lease(cache, key, wait=LONG) is None and outcome < 4:
                cache.set(key, step)
            if outcome > 5:
                others[outcome - 6](key)
            end_request()

    assert together(request) == [None] * THREADS
    assert is_free(cache, *range(8))


# Bounds.


def test_a_caller_has_a_bounded_number_of_leases_and_gets_others_when_they_have_timed_out(make, clock, callers):
    cache = make(clock=clock)
    greedy, other, *_ = callers
    keys = range(2 * LEASES_AT_MOST)

    def probe():
        for key in keys:
            get_or_lease(cache, key, wait=10, may_wait=False)
        return [key for key in keys if is_leased(cache, key)]

    assert greedy.does(probe) == list(range(LEASES_AT_MOST))
    assert other.gets("one more", cache=cache) == MISS
    clock.advance(10)
    assert greedy.gets("another", cache=cache) == MISS
    assert greedy.does(is_leased, cache, "another")
    greedy.does(end_request)
    assert is_free(cache, *range(LEASES_AT_MOST))


def test_leases_that_timed_out_take_no_memory_though_their_keys_are_never_asked_for_again(make, clock):
    """Ten callers miss a thousand keys a second and set none; some 500 leases of 0.5 seconds are in force."""

    class Key:
        pass

    cache = make(clock=clock)
    contexts = [contextvars.Context() for _ in range(10)]
    keys = weakref.WeakSet()
    for number in range(4_000):
        clock.advance(0.001)
        keys.add(key := Key())
        contexts[number % 10].run(get_or_lease, cache, key, wait=0.5)
    assert 490 < len(keys) < 510
