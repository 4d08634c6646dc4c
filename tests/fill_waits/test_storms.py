"""Many concurrent callers, many leases, and finalizers: no lease or waiter is left behind, and memory is bounded."""

import asyncio
import contextvars
import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from math import inf

import pytest

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, aget_or_lease, get_or_lease, in_a_thread, is_free
from tests.waiting import PATIENCE, THREADS, waiting
from wheelcache import Cache
from wheelcache.fill_waits.fill_turns import Lease
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import current_scope, end_request

LEASES_AT_MOST = 1024
"""The number of leases that a caller holds at the same time."""


def test_of_the_threads_and_tasks_that_miss_at_once_one_computes_and_every_call_counts_once(cache, together):
    computed = []

    def check(key, value):
        if value is None:
            computed.append(key)
            cache.set(key, key * 2)
        assert value in (None, key * 2)

    async def arequest(key):
        check(key, await aget_or_lease(cache, key, wait=LONG))

    async def main():
        for key in range(30):
            await asyncio.gather(*[arequest(key) for _ in range(5)])

    def request(number):
        if number % 2:
            asyncio.run(main())
        else:
            for key in range(30):
                check(key, get_or_lease(cache, key, wait=LONG))
            end_request()

    assert together(request) == [None] * THREADS
    assert sorted(computed) == list(range(30))
    stats = cache.stats()
    assert (stats.misses, stats.hits) == (30, 30 * THREADS // 2 * 6 - 30)
    assert stats.coalesced <= stats.hits
    assert is_free(cache, *range(30))


def test_no_lease_is_left_and_no_waiter_lost_after_a_storm_of_everything(cache, together):
    def request(number):
        for step in range(100):
            key = (number * 7 + step * 3) % 6
            outcome = (number + step * 5) % 11
            if get_or_lease(cache, key, wait=LONG) is None and outcome < 4:
                cache.set(key, step)
            if outcome == 5:
                cache.delete(key)
            elif outcome == 6:
                cache.set_many({key: 1, key + 1: 2})
            elif outcome == 7:
                cache.get_or_load(key, lambda: 3)
            elif outcome == 8:
                contextvars.copy_context().run(get_or_lease, cache, key, wait=LONG)
            elif outcome == 9:
                gc.collect(0)
            end_request()

    async def arequest(number, step):
        key = (number + step) % 3
        if await aget_or_lease(cache, key, wait=LONG) is None:
            await asyncio.sleep(0)
            if step % 3 == 0:
                cache.set(key, 1)
        if step % 4 == 0:
            cache.delete(key)

    async def cancel_some(number):
        for step in range(40):
            tasks = [asyncio.create_task(arequest(number, step + i)) for i in range(4)]
            for turn, task in enumerate(tasks):
                for _ in range((number + step + turn) % 5):
                    await asyncio.sleep(0)
                if (step + turn) % 2:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    work = (request, lambda number: asyncio.run(cancel_some(number)))
    assert together(lambda number: work[number % 2](number)) == [None] * THREADS
    assert is_free(cache, *range(8))


def test_a_finalizer_that_runs_amid_a_write_never_waits(make, clock, thread_callers):
    """The garbage collector runs it, perhaps under the cache's lock: then no set could end the wait."""
    cache = make(clock=clock)
    holder, writer, *_ = thread_callers
    for key in range(LEASES_AT_MOST):
        holder.gets(("leased", key), cache=cache)
    found = []
    writing = None

    class Garbage:
        def __init__(self):
            self.me = self

        def __del__(self):
            if threading.get_ident() == writing and len(found) < LEASES_AT_MOST:
                found.append(get_or_lease(cache, ("leased", len(found)), MISS, wait=PATIENCE))
                # For the next collection, wherever that begins.
                Garbage()

    def write():
        nonlocal writing
        gc.set_threshold(1)
        writing = threading.get_ident()
        Garbage()
        for number in range(200):
            cache.set(number, number, ttl=LONG)
        writing = None

    before = gc.get_threshold()
    work = writer.submit(write)
    try:
        while not work.done():
            if waiting():
                # Outside of the cache's steps it may wait, since other threads can set the key.
                in_a_thread(cache.set, ("leased", len(found)), "it")
        work.result()
    finally:
        gc.set_threshold(*before)
        cache.close()
    assert found
    assert set(found) <= {MISS, "it"}


# Bounds.


def test_a_caller_has_a_bounded_number_of_leases_and_gets_others_when_they_have_timed_out(make, clock, callers):
    cache = make(clock=clock)
    greedy, other, *_ = callers
    keys = range(3 * LEASES_AT_MOST)

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


class Key:
    """Each that is in memory is in ``keys``."""

    def __init__(self, keys):
        keys.add(self)


def test_leases_that_timed_out_take_no_memory_though_their_keys_are_never_asked_for_again(make, clock):
    """Ten callers miss a thousand keys a second and set none; some 500 leases of 0.5 seconds are in force."""
    cache = make(clock=clock)
    contexts = [contextvars.Context() for _ in range(10)]
    keys = weakref.WeakSet()
    for number in range(4_000):
        clock.advance(0.001)
        contexts[number % 10].run(get_or_lease, cache, Key(keys), wait=0.5)
    assert 490 < len(keys) < 510


def test_leases_whose_time_is_over_are_found_in_one_pass(cache):
    """A dict visits the places of removed items first, so to begin again for each lease took 5 s for 100,000."""

    class Counted(dict):
        passes = 0

        def values(self):
            self.passes += 1
            return super().values()

    leases, scope = LeasedReads(cache.engine)._leases, current_scope()
    leases.open = Counted()
    for key in range(1000):
        leases.begin(Lease(leases, key, weakref.ref(scope), inf))
    leases.end_overdue(inf)
    assert not leases.open
    assert leases.open.passes <= 2


def test_requests_that_never_end_leave_no_lease_and_keep_no_closed_cache(cache):
    for key in range(LEASES_AT_MOST):
        contextvars.Context().run(get_or_lease, cache, key, wait=LONG)
    assert is_free(cache, *range(LEASES_AT_MOST))
    closed = Cache()
    get_or_lease(closed, "k", wait=LONG)
    closed.close()
    gone = weakref.ref(closed)
    del closed
    gc.collect()
    assert gone() is None


@pytest.mark.deep
def test_two_threads_that_act_for_one_holder_at_its_bound_use_two_caches_at_once(make, cache):
    elsewhere = make()
    stop = threading.Event()

    def miss():
        key = LEASES_AT_MOST
        while not stop.is_set():
            key += 1
            get_or_lease(cache, key, wait=LONG)

    def come_and_go():
        for _ in range(20):
            for key in range(LEASES_AT_MOST // 2):
                elsewhere.delete(key)
                get_or_lease(elsewhere, key, wait=LONG)
        stop.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for key in range(LEASES_AT_MOST):
            get_or_lease((cache, elsewhere)[key % 2], key // 2, wait=LONG)
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(contextvars.copy_context().run, each) for each in (come_and_go, miss)]
            try:
                for each in work:
                    each.result(PATIENCE)
            finally:
                stop.set()
    finally:
        sys.setswitchinterval(interval)
