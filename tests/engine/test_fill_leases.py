"""get_or_lease in threads: of the callers that miss a key one computes it, and the others wait, never in a circle."""

import asyncio
import contextvars
import gc
import subprocess
import sys
import textwrap
import threading
import time
import tracemalloc
import weakref
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.lease_callers import LONG, MISS, QUIET, SHORT, Caller, in_a_thread, is_free
from tests.engine.test_fork import run as run_script
from tests.waiting import PATIENCE, THREADS, until, until_waiting, waiting
from wheelcache import Cache, CacheClosed, ManualClock
from wheelcache.leases.fill_scope import end_request

LEASES_AT_MOST = 1024
"""That a caller holds at once."""


@pytest.fixture(autouse=True)
def _request():
    """The main thread begins and ends every test without leases."""
    end_request()
    yield
    end_request()


@pytest.fixture
def cache():
    made = Cache(**QUIET)
    yield made
    made.close()


@pytest.fixture
def callers(cache):
    made = [Caller(cache) for _ in range(6)]
    yield made
    # Those that still wait go on.
    cache.close()
    for caller in made:
        caller.ends()


def in_a_context(function, *args, **kwargs):
    return contextvars.copy_context().run(function, *args, **kwargs)


# A set.


def test_waiters_get_the_value_that_was_set(cache, callers):
    holder, *others = callers
    assert holder.gets("k") == MISS
    asked = [other.asks("k") for other in others]
    until_waiting(5)
    value = [1]
    holder.does(cache.set, "k", value)
    assert all(each.result(PATIENCE) is value for each in asked)
    assert is_free(cache, "k")


@pytest.mark.parametrize(
    "fill",
    [
        lambda cache: cache.set("k", "it"),
        lambda cache: cache.set("k", "it", None),
        lambda cache: cache.add("k", "it"),
        lambda cache: cache.set_many({"j": 0, "k": "it"}),
        lambda cache: cache.take("k", lambda: "it"),
        lambda cache: cache.take("k", lambda: "it", 5, grace=5),
        lambda cache: asyncio.run(cache.atake("k", lambda: "it")),
        lambda cache: cache.memoize(key=lambda: 1)(lambda: cache.set("k", "it"))(),
    ],
    ids=["set", "set_for_ever", "add", "set_many", "take", "take_with_grace", "atake", "in_a_loader"],
)
@pytest.mark.parametrize("by", ["holder", "another caller"])
def test_every_way_to_store_a_value_wakes_all_waiters(cache, callers, fill, by):
    holder, first, second, another, *_ = callers
    holder.gets("k")
    asked = [first.asks("k"), second.asks("k")]
    until_waiting(2)
    (holder if by == "holder" else another).does(fill, cache)
    assert [each.result(PATIENCE) for each in asked] == ["it", "it"]
    assert is_free(cache, "k")


def test_a_set_of_one_key_wakes_no_waiter_of_another(cache, callers):
    holder, other, *_ = callers
    holder.gets("a")
    asked = other.asks("a")
    until_waiting(1)
    holder.does(cache.set, "b", 1)
    assert holder.does(cache.is_leased, "a")
    holder.does(cache.set, "a", "it")
    assert asked.result(PATIENCE) == "it"


@pytest.mark.parametrize("grace", [None, 100])
def test_an_expired_value_is_a_miss_like_any_other(callers, grace):
    clock = ManualClock()
    cache = Cache(clock=clock, jitter=0, **QUIET)
    holder, other, *_ = callers
    cache.take("k", lambda: "old", 5, grace=grace)
    clock.advance(6)
    assert holder.gets("k", cache=cache) == MISS
    asked = other.asks("k", cache=cache)
    until_waiting(1)
    holder.does(cache.set, "k", "new")
    assert asked.result(PATIENCE) == "new"


def test_waiters_get_a_value_that_is_too_heavy_to_be_stored(callers):
    light = Cache(max_weight=1, weigher=lambda key, value: value, **QUIET)
    holder, other, *_ = callers
    holder.gets("k", cache=light)
    asked = other.asks("k", cache=light)
    until_waiting(1)
    assert holder.does(light.set, "k", 7) is False
    assert asked.result(PATIENCE) == 7
    assert is_free(light, "k")


@pytest.mark.parametrize("value", [None, 0, "", False])
def test_waiters_get_a_falsy_value_as_it_was_set(cache, callers, value):
    holder, other, *_ = callers
    holder.gets("k")
    asked = other.asks("k")
    until_waiting(1)
    holder.does(cache.set, "k", value)
    assert asked.result(PATIENCE) is value


def test_keys_of_every_kind_can_be_leased(cache, callers):
    class Odd:
        def __hash__(self):
            return 1

        def __eq__(self, other):
            return type(other) is Odd

    holder, other, *_ = callers
    for key, same in ((("a", 1), ("a", 1)), (Odd(), Odd()), (1.5, 1.5), (None, None)):
        holder.gets(key)
        assert holder.does(cache.is_leased, same)
        asked = other.asks(same)
        until_waiting(1)
        holder.does(cache.set, same, "it")
        assert asked.result(PATIENCE) == "it"
        assert is_free(cache, key)


def test_a_value_lives_no_longer_than_its_entry_and_the_callers_that_got_it(cache, callers):
    class Value:
        pass

    holder, other, *_ = callers
    holder.gets("k")
    asked = other.asks("k")
    until_waiting(1)
    value = Value()
    gone = weakref.ref(value)
    holder.does(cache.set, "k", value)
    assert asked.result(PATIENCE) is value
    del value, asked
    holder.does(cache.delete, "k")
    for caller in (holder, other):
        caller.does(gc.collect)
    assert until(lambda: gone() is None)


# A lease that ends without a set.


@pytest.mark.parametrize("remove", ["delete", "delete_many", "pop", "clear"])
def test_after_the_holders_delete_exactly_one_waiter_gets_the_lease(cache, callers, remove):
    holder, *others = callers
    holder.gets("k")
    asked = [other.asks("k") for other in others]
    until_waiting(5)
    remove_it = {
        "delete": lambda: cache.delete("k"),
        "delete_many": lambda: cache.delete_many(["k"]),
        "pop": lambda: cache.pop("k", None),
        "clear": cache.clear,
    }
    holder.does(remove_it[remove])
    until_waiting(4)
    assert until(lambda: any(each.done() for each in asked))
    assert [each.result() for each in asked if each.done()] == [MISS]
    next_holder = others[[each.done() for each in asked].index(True)]
    assert next_holder.does(cache.is_leased, "k")
    next_holder.does(cache.set, "k", "it")
    assert Counter(each.result(PATIENCE) for each in asked) == {MISS: 1, "it": 4}


def test_another_callers_delete_changes_nothing(cache, callers):
    holder, other, another, *_ = callers
    holder.gets("k")
    asked = other.asks("k")
    until_waiting(1)
    another.does(cache.delete, "k")
    another.does(cache.delete_many, ["k"])
    another.does(cache.clear)
    cache.delete("k")
    assert waiting() == 1
    assert holder.does(cache.is_leased, "k")
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_a_clear_gives_up_the_leases_that_its_caller_has_in_that_cache(cache, callers):
    holder, other, third, *_ = callers
    elsewhere = Cache(**QUIET)
    holder.gets("k")
    holder.gets("k", cache=elsewhere)
    third.gets("of the third")
    holder.does(cache.clear)
    assert not holder.does(cache.is_leased, "k")
    assert holder.does(elsewhere.is_leased, "k")
    assert third.does(cache.is_leased, "of the third")
    assert other.gets("k") == MISS


def test_the_end_of_a_request_passes_on_all_its_leases(cache, callers):
    holder, *others = callers
    keys = list(range(5))
    for key in keys:
        holder.gets(key)
    asked = [other.asks(key) for other, key in zip(others, keys, strict=True)]
    until_waiting(5)
    holder.does(end_request)
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5
    assert [other.does(cache.is_leased, key) for other, key in zip(others, keys, strict=True)] == [True] * 5


def test_the_end_of_a_request_without_leases_changes_nothing(cache, callers):
    holder, other, *_ = callers
    holder.gets("k")
    other.does(end_request)
    end_request()
    assert holder.does(cache.is_leased, "k")


def test_a_caller_whose_request_ended_waits_like_any(cache, callers):
    holder, other, *_ = callers
    holder.gets("k")
    holder.does(end_request)
    other.gets("k")
    asked = holder.asks("k")
    until_waiting(1)
    other.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_a_thread_that_ends_without_the_end_of_its_request_passes_on(cache, callers):
    holder, other, *_ = callers
    holder.gets("k")
    asked = other.asks("k")
    until_waiting(1)
    holder.ends()
    assert asked.result(PATIENCE) == MISS
    assert other.does(cache.is_leased, "k")


def test_threads_that_end_while_other_threads_write_pass_on(cache, callers):
    """The end of a thread finds the cache's lock taken now and then, and must not wait for it."""
    waiter, writer, *_ = callers
    stop = threading.Event()

    def write():
        while not stop.is_set():
            cache.set_many(dict.fromkeys(range(50), 0))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writing = writer.pool.submit(write)
    try:
        for number in range(100):
            key = f"k{number}"
            holder = Caller(cache)
            holder.gets(key)
            asked = waiter.asks(key)
            until_waiting(1)
            holder.ends()
            assert asked.result(PATIENCE) == MISS
            waiter.does(end_request)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
    writing.result(PATIENCE)


def test_a_context_in_a_circle_of_garbage_passes_on_when_it_is_collected(cache, callers):
    gc.collect()

    class Circle:
        def __init__(self):
            self.me = self
            self.context = contextvars.Context()

    circle = Circle()
    circle.context.run(cache.get_or_lease, "k", wait=LONG)
    asked = callers[0].asks("k")
    until_waiting(1)
    del circle
    gc.collect()
    assert asked.result(PATIENCE) == MISS


# Time.


def test_after_a_hung_holders_time_one_waiter_gets_the_lease_and_the_rest_wait_for_it(cache, callers):
    holder, *others = callers
    assert holder.gets("k", wait=SHORT) == MISS
    asked = [other.asks("k", wait=LONG) for other in others]
    assert until(lambda: any(each.done() for each in asked))
    until_waiting(4)
    assert [each.result() for each in asked if each.done()] == [MISS]
    next_holder = others[[each.done() for each in asked].index(True)]
    assert next_holder.does(cache.is_leased, "k")
    assert not holder.does(cache.is_leased, "k")
    next_holder.does(cache.set, "k", "it")
    assert Counter(each.result(PATIENCE) for each in asked) == {MISS: 1, "it": 4}


def test_no_caller_waits_for_longer_than_its_own_wait(cache, callers):
    holder, *others = callers
    holder.gets("k", wait=LONG)
    asked = [other.asks("k", wait=SHORT) for other in others]
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5
    assert holder.does(cache.is_leased, "k")
    assert not any(other.does(cache.is_leased, "k") for other in others)


def test_waiters_whose_waits_end_with_a_hung_holders_lease_go_on(cache, callers):
    holder, *others = callers
    holder.gets("k", wait=SHORT)
    asked = [other.asks("k", wait=SHORT) for other in others]
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5


def test_a_late_set_by_a_holder_whose_lease_timed_out_wakes_the_waiters_of_the_next(cache, callers):
    late, other, third, *_ = callers
    late.gets("k", wait=SHORT)
    assert other.asks("k").result(PATIENCE) == MISS
    asked = third.asks("k")
    until_waiting(1)
    late.does(cache.delete, "k")
    assert waiting() == 1
    late.does(cache.set, "k", "late")
    assert asked.result(PATIENCE) == "late"


def test_a_lease_lasts_as_long_as_a_manual_clock_says(callers):
    clock = ManualClock()
    cache = Cache(clock=clock, **QUIET)
    holder, other, third, *_ = callers
    holder.gets("k", cache=cache, wait=SHORT)
    asked = other.asks("k", cache=cache, wait=SHORT)
    until_waiting(1)
    time.sleep(3 * SHORT)  # by any other clock the lease is over
    assert not asked.done()
    clock.advance(SHORT)
    assert asked.result(PATIENCE) == MISS
    assert not holder.does(cache.is_leased, "k")
    clock.advance(SHORT)
    assert third.gets("k", cache=cache) == MISS


def test_a_lease_that_lasts_for_ever_can_be_waited_for(cache, callers):
    holder, other, *_ = callers
    holder.gets("k", wait=1e300)
    asked = other.asks("k", wait=1e300)
    until_waiting(1)
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


@pytest.mark.parametrize("wait", [0, -1, float("nan"), float("inf"), None, "1", True])
def test_a_wrong_wait_is_named(cache, wait):
    with pytest.raises((TypeError, ValueError), match="wait must be a number of seconds > 0, not"):
        cache.get_or_lease("k", wait=wait)
    with pytest.raises((TypeError, ValueError), match="wait must be a number of seconds > 0, not"):
        asyncio.run(cache.aget_or_lease("k", wait=wait))


# Callers that others may be waiting for do not wait.


def test_a_holder_never_waits_for_another_key_or_in_another_cache(cache, callers):
    first, second, *_ = callers
    elsewhere = Cache(**QUIET)
    first.gets("a")
    second.gets("b")
    assert second.gets("a") == MISS
    assert second.gets("b") == MISS
    elsewhere.get_or_lease("k", wait=LONG)
    assert first.gets("k", cache=elsewhere) == MISS
    assert not first.does(elsewhere.is_leased, "k")


def test_a_caller_that_may_not_wait_goes_on_with_a_lease_only_if_there_is_none(cache, callers):
    holder, other, *_ = callers
    assert holder.does(cache.get_or_lease, "k", MISS, wait=LONG, may_wait=False) == MISS
    assert holder.does(cache.is_leased, "k")
    assert other.does(cache.get_or_lease, "k", MISS, wait=LONG, may_wait=False) == MISS
    assert not other.does(cache.is_leased, "k")


@pytest.mark.parametrize("caches", ["one cache", "two caches"])
def test_two_threads_that_take_two_keys_in_opposite_order_do_not_wait_for_each_other(cache, caches):
    elsewhere = Cache(**QUIET) if caches == "two caches" else cache
    both = threading.Barrier(2)

    def request(*keys):
        for of, key in keys:
            assert of.get_or_lease(key, wait=LONG) is None
            both.wait(PATIENCE)
        for of, key in keys:
            of.set(key, threading.get_ident())
        end_request()

    one, other = (cache, "a"), (elsewhere, "b")
    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(request, one, other), pool.submit(request, other, one)]:
            each.result(PATIENCE)
    assert is_free(cache, "a", "b")


def test_a_ring_of_threads_each_with_a_key_that_the_next_one_wants_does_not_stand_still(cache, together):
    all_hold = threading.Barrier(THREADS)

    def request(number):
        cache.get_or_lease(number, wait=LONG)
        all_hold.wait(PATIENCE)
        for step in range(1, THREADS):
            cache.get_or_lease((number + step) % THREADS, wait=LONG)
        cache.set(number, number)
        end_request()

    assert together(request) == [None] * THREADS
    assert is_free(cache, *range(THREADS))


def test_a_waiter_that_got_the_lease_is_a_holder_like_any(cache, callers):
    first, second, third, *_ = callers
    first.gets("a")
    third.gets("b")
    asked = second.asks("a")
    until_waiting(1)
    first.does(cache.delete, "a")
    assert asked.result(PATIENCE) == MISS
    assert second.gets("b") == MISS


LOADERS = {
    "take": lambda cache, loader: cache.take("loaded", loader),
    "take with a timeout": lambda cache, loader: cache.take("loaded", loader, timeout=LONG),
    "take in take": lambda cache, loader: cache.take("loaded", lambda: cache.take("inner", loader)),
    "memoize": lambda cache, loader: cache.memoize()(loader)(),
    "atake": lambda cache, loader: asyncio.run(cache.atake("loaded", loader)),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_code_inside_a_loader_never_waits(cache, callers, load):
    holder, loading, *_ = callers
    holder.gets("k")
    assert loading.does(load, cache, lambda: cache.get_or_lease("k", MISS, wait=LONG)) == MISS
    # After it, the thread waits again.
    asked = loading.asks("k")
    until_waiting(1)
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


def test_a_refresh_in_the_background_acts_for_no_caller(cache):
    held = []
    cache.take("stale", lambda: "old", SHORT, grace=LONG)
    cache.get_or_lease("k", wait=LONG)
    assert until(lambda: cache.get("stale") is None)
    assert cache.take("stale", lambda: held.append(cache.is_leased("k")), LONG, grace=LONG) == "old"
    assert until(lambda: held == [False])
    assert cache.is_leased("k")


def test_a_finalizer_that_runs_amid_a_write_never_waits(callers):
    """The garbage collector runs it, perhaps under the cache's lock: then no set could end the wait."""
    cache = Cache(clock=ManualClock(), **QUIET)
    holder, writer, *_ = callers
    for key in range(LEASES_AT_MOST):
        holder.gets(("leased", key), cache=cache)
    found = []
    writing = None

    class Garbage:
        def __init__(self):
            self.me = self

        def __del__(self):
            if threading.get_ident() == writing and len(found) < LEASES_AT_MOST:
                found.append(cache.get_or_lease(("leased", len(found)), MISS, wait=2 * PATIENCE))
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
    work = writer.pool.submit(write)
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


# Reads that take no lease.


def test_calls_that_fill_nothing_take_no_lease_and_wait_for_none(cache, callers):
    looker, holder, *_ = callers

    def look():
        assert "k" not in cache
        assert cache.get("k", MISS) == MISS
        assert cache.get_many(["k", "j"]) == {}
        assert cache.touch("k") is False
        assert cache.pop("k", MISS) == MISS
        for method in (cache.expires_in, cache.incr):
            with pytest.raises(KeyError):
                method("k")
        assert not cache.is_leased("k")

    looker.does(look)
    holder.gets("k")
    looker.does(look)
    assert holder.does(cache.is_leased, "k")


def test_a_hit_takes_no_lease(cache):
    cache.set("k", 1)
    assert cache.get_or_lease("k", wait=LONG) == 1
    assert not cache.is_leased("k")


# Counts and bounds.


def test_hits_misses_and_coalesced_are_exact(cache, callers):
    holder, other, third, fourth, *_ = callers
    holder.gets("k")
    asked = [other.asks("k"), third.asks("k")]
    until_waiting(2)
    holder.gets("k")
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (0, 2, 0)
    holder.does(cache.set, "k", 1)
    assert [each.result(PATIENCE) for each in asked] == [1, 1]
    assert fourth.gets("k") == 1
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (3, 2, 2)
    holder.gets("j")
    asked = [other.asks("j"), third.asks("j", wait=SHORT)]
    assert asked[1].result(PATIENCE) == MISS
    holder.does(end_request)
    assert asked[0].result(PATIENCE) == MISS
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (3, 5, 2)


def test_of_the_threads_that_miss_at_once_one_computes_and_every_call_counts_once(cache, together):
    computed = []

    def request(number):
        for key in range(50):
            value = cache.get_or_lease(key, wait=LONG)
            if value is None:
                computed.append(key)
                cache.set(key, key * 2)
                value = key * 2
            assert value == key * 2
        end_request()

    assert together(request) == [None] * THREADS
    assert sorted(computed) == list(range(50))
    stats = cache.stats()
    assert (stats.misses, stats.hits) == (50, 50 * THREADS - 50)
    assert stats.coalesced <= stats.hits
    assert is_free(cache, *range(50))


def test_no_lease_is_left_and_no_waiter_lost_after_a_storm_of_everything(cache, together):
    def request(number):
        for step in range(150):
            key = (number * 7 + step * 3) % 6
            outcome = (number + step * 5) % 11
            if cache.get_or_lease(key, wait=LONG) is None and outcome < 4:
                cache.set(key, step)
            if outcome == 5:
                cache.delete(key)
            elif outcome == 6:
                cache.set_many({key: 1, key + 1: 2})
            elif outcome == 7:
                cache.take(key, lambda: 3)
            elif outcome == 8:
                in_a_context(cache.get_or_lease, key, wait=LONG)
            elif outcome == 9:
                gc.collect(0)
            end_request()
        cache.delete_many(range(8))

    began = time.monotonic()
    assert together(request) == [None] * THREADS
    assert time.monotonic() - began < LONG, "a caller waited in vain"
    assert is_free(cache, *range(8))


def test_a_caller_has_a_bounded_number_of_leases_and_gets_others_when_they_have_timed_out(callers):
    clock = ManualClock()
    cache = Cache(clock=clock, **QUIET)
    greedy, other, *_ = callers
    keys = range(100_000)

    def probe():
        for key in keys:
            cache.get_or_lease(key, wait=10)
        return [key for key in keys if cache.is_leased(key)]

    assert greedy.does(probe) == list(range(LEASES_AT_MOST))
    assert other.gets("one more", cache=cache) == MISS
    clock.advance(10)
    assert greedy.gets("another", cache=cache) == MISS
    assert greedy.does(cache.is_leased, "another")
    greedy.does(end_request)
    assert is_free(cache, *range(LEASES_AT_MOST))


def test_leases_that_timed_out_take_no_memory_though_their_keys_are_never_asked_for_again():
    """Ten callers miss a thousand keys a second and set none; some 500 leases of 0.5 seconds are in force."""
    clock = ManualClock()
    cache = Cache(clock=clock, **QUIET)
    contexts = [contextvars.Context() for _ in range(10)]
    tracemalloc.start()
    try:
        for key in range(20_000):
            clock.advance(0.001)
            contexts[key % 10].run(cache.get_or_lease, key, wait=0.5)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # A lease takes about 900 bytes, and ten callers could hold 10,240.
    assert taken < 2_000_000
    clock.advance(0.5)
    assert is_free(cache, *range(19_500, 20_000))


def test_requests_that_never_end_leave_no_lease(cache):
    for key in range(LEASES_AT_MOST):
        contextvars.Context().run(cache.get_or_lease, key, wait=LONG)
    assert is_free(cache, *range(LEASES_AT_MOST))


@pytest.mark.deep
def test_two_threads_that_act_for_one_holder_at_its_bound_use_two_caches_at_once(cache):
    elsewhere = Cache(**QUIET)
    stop = threading.Event()

    def miss():
        key = LEASES_AT_MOST
        while not stop.is_set():
            key += 1
            cache.get_or_lease(key, wait=LONG)

    def come_and_go():
        for _ in range(100):
            for key in range(LEASES_AT_MOST // 2):
                elsewhere.delete(key)
                elsewhere.get_or_lease(key, wait=LONG)
        stop.set()

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for key in range(LEASES_AT_MOST):
            (cache, elsewhere)[key % 2].get_or_lease(key // 2, wait=LONG)
        with ThreadPoolExecutor(2) as pool:
            work = [pool.submit(contextvars.copy_context().run, each) for each in (come_and_go, miss)]
            try:
                for each in work:
                    each.result(6 * PATIENCE)
            finally:
                stop.set()
    finally:
        sys.setswitchinterval(interval)


# The end of the cache or the process.


def test_waiters_of_a_cache_that_is_closed_get_an_error(cache, callers):
    holder, *others = callers
    holder.gets("k")
    asked = [other.asks("k") for other in others]
    until_waiting(5)
    cache.close()
    assert all(isinstance(each.exception(PATIENCE), CacheClosed) for each in asked)
    holder.does(end_request)
    holder.ends()


def test_a_closed_cache_is_kept_alive_by_no_holder():
    cache = Cache(**QUIET)
    cache.get_or_lease("k", wait=LONG)
    cache.close()
    gone = weakref.ref(cache)
    del cache
    gc.collect()
    assert gone() is None


def test_a_waiter_that_is_interrupted_by_a_signal_leaves_and_is_handed_no_lease():
    assert run_script("""
        from tests.waiting import until_waiting
        from wheelcache.leases.fill_scope import end_request

        cache = Cache()
        held, go, done = threading.Event(), threading.Event(), threading.Event()

        def hold():
            cache.get_or_lease("k", wait=50)
            held.set()
            go.wait()
            end_request()
            done.set()

        threading.Thread(target=hold, daemon=True).start()
        held.wait()

        class Interrupted(BaseException):
            pass

        def interrupt(*_):
            raise Interrupted

        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        try:
            cache.get_or_lease("k", wait=50)
        except Interrupted:
            # A daemon, as the process must end if it waits in vain.
            other = threading.Thread(target=lambda: print(cache.get_or_lease("k", wait=50)), daemon=True)
            other.start()
            until_waiting(1)
            go.set()
            done.wait()
            other.join(10)
            print(cache.is_leased("k"))
        """) == ["None", "False"]


def test_a_child_of_a_fork_has_no_lease_and_no_waiter_of_its_parent():
    assert run_script("""
        from tests.waiting import until_waiting

        cache = Cache()
        ready, go = threading.Event(), threading.Event()

        def hold():
            cache.get_or_lease("theirs", wait=50)
            ready.set()
            go.wait()

        threading.Thread(target=hold, daemon=True).start()
        ready.wait()
        threading.Thread(target=cache.get_or_lease, args=["theirs"], kwargs={"wait": 50}, daemon=True).start()
        until_waiting(1)
        cache.get_or_lease("mine", wait=50)

        def child():
            assert not cache.is_leased("mine")
            began = time.monotonic()
            assert cache.get_or_lease("theirs", wait=50) is None
            assert cache.is_leased("theirs")
            got = []
            waiter = threading.Thread(target=lambda: got.append(cache.get_or_lease("theirs", wait=50)))
            waiter.start()
            until_waiting(1)
            cache.set("theirs", 1)
            waiter.join()
            assert got == [1]
            assert time.monotonic() - began < 40

        print(in_child(child))
        assert cache.is_leased("mine")
        until_waiting(1)
        """) == ["0"]


def test_children_forked_while_leases_come_and_go_find_the_cache_usable():
    assert run_script("""
        from wheelcache.leases.fill_scope import end_request
        cache = Cache()
        stop = threading.Event()

        def work(number):
            while not stop.is_set():
                for key in range(20):
                    if cache.get_or_lease(key, wait=5) is None:
                        cache.set(key, 1)
                    cache.delete((key * 7 + number) % 20)
                end_request()

        threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
        for thread in threads:
            thread.start()

        def child():
            began = time.monotonic()
            for turn in range(2):
                for key in range(20):
                    if cache.get_or_lease(key, wait=50) is None:
                        assert cache.is_leased(key)
                        cache.set(key, 1)
                    cache.delete(key)
                end_request()
            assert time.monotonic() - began < 25

        print(sum(in_child(child) for _ in range(30)))
        stop.set()
        for thread in threads:
            thread.join()
        """) == ["0"]


def test_an_interpreter_exits_without_a_word_while_leases_are_held_and_waited_for():
    script = """
        import asyncio, threading
        from tests.waiting import until_waiting
        from wheelcache import Cache
        cache = Cache()
        cache.get_or_lease("main", wait=50)
        held = threading.Event()
        def hold():
            cache.get_or_lease("k", wait=50)
            held.set()
            threading.Event().wait()
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        threading.Thread(target=cache.get_or_lease, args=["k"], kwargs={"wait": 50}, daemon=True).start()
        until_waiting(1)
        loop = asyncio.new_event_loop()
        task = loop.create_task(cache.aget_or_lease("loop", wait=50))
        loop.run_until_complete(task)
        """
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert (outcome.returncode, outcome.stderr) == (0, "")


def test_greenlets_are_callers_of_their_own_and_wait_without_stopping_the_others():
    pytest.importorskip("gevent")
    script = """
        from gevent import monkey
        monkey.patch_all()
        import gevent
        from wheelcache import Cache

        cache = Cache(log_interval=None, sample_interval=None)
        cache.get_or_lease("before", wait=50)
        computed = []

        def request():
            if cache.get_or_lease("k", wait=50) is None:
                computed.append(1)
                gevent.idle()
                cache.set("k", "it")

        with gevent.Timeout(20):
            gevent.joinall([gevent.spawn(request) for _ in range(10)], raise_error=True)

            dead = gevent.spawn(cache.get_or_lease, "j", wait=50)
            dead.join()
            del dead
            # Its lease is over with it, and so the next greenlet doesn't wait.
            gevent.spawn(cache.get_or_lease, "j", wait=50).get()

            def ask(name):
                # A greenlet runs on until it waits.
                asked.append(name)
                return cache.get_or_lease("i", wait=50)

            asked = []
            holder = gevent.spawn(lambda: (ask("holder"), gevent.sleep(50)))
            waiters = [gevent.spawn(ask, "first"), gevent.spawn(ask, "second")]
            while len(asked) < 3:
                gevent.idle()
            waiters[0].kill()
            holder.kill()
            del holder
            print(waiters[1].get())
        print(len(computed))
        """
    outcome = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=60
    )
    assert (outcome.stdout, outcome.stderr, outcome.returncode) == ("None\n1\n", "", 0)
