"""One of the callers that miss a key computes it, and the others wait: threads, tasks, and both.

``test_model`` compares waiting callers, the duration of waits and the passing of leases with a model.
"""

import asyncio
import gc
import sys
import threading
import weakref
from collections import Counter

import pytest

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, SHORT, ThreadCaller, aget_or_lease, get_or_lease, in_a_thread, is_free
from tests.waiting import PATIENCE, until, until_waiting
from wheelcache import CacheClosed
from wheelcache.fill_waits.fill_turns import MAX_UNFILLED
from wheelcache.runtime.request_scope import end_request

# A set.

FILLS = {
    "set": lambda cache: cache.set("k", "it"),
    "set for ever": lambda cache: cache.set("k", "it", None),
    "add": lambda cache: cache.add("k", "it"),
    "set_many": lambda cache: cache.set_many({"j": 0, "k": "it"}),
    "get_or_load": lambda cache: cache.get_or_load("k", lambda: "it"),
    "take with grace": lambda cache: cache.get_or_load("k", lambda: "it", 5, grace=5),
    "in a loader": lambda cache: cache.memoize(key=lambda: 1)(lambda: cache.set("k", "it"))(),
}


@pytest.mark.pairs(full="callers")
@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("by", ["holder", "another caller"])
def test_every_way_to_store_a_value_wakes_all_waiters(cache, callers, fill, by):
    holder, first, second, another, *_ = callers
    assert holder.gets("k") == MISS
    asked = [first.asks("k"), second.asks("k")]
    until_waiting(2)
    (holder if by == "holder" else another).does(fill, cache)
    assert [each.result(PATIENCE) for each in asked] == ["it", "it"]
    assert is_free(cache, "k")


@pytest.mark.pairs(full="callers", of="value")
@pytest.mark.parametrize("value", [None, 0, "", [1]], ids=repr)
def test_waiters_get_the_very_value_even_if_it_is_too_heavy_to_be_stored(make, callers, value):
    cache = make(max_weight=1, weigher=lambda key, value: 2)
    holder, other, *_ = callers
    holder.gets("k", cache=cache)
    asked = other.asks("k", cache=cache)
    until_waiting()
    assert holder.does(cache.set, "k", value) is False
    assert asked.result(PATIENCE) is value
    assert is_free(cache, "k")


@pytest.mark.parametrize("grace", [None, 100])
def test_an_expired_value_is_a_miss_like_any_other(make, clock, callers, grace):
    cache = make(clock=clock)
    holder, other, *_ = callers
    cache.get_or_load("k", lambda: "old", 5, grace=grace)
    clock.advance(6)
    assert holder.gets("k", cache=cache) == MISS
    asked = other.asks("k", cache=cache)
    until_waiting()
    holder.does(cache.set, "k", "new")
    assert asked.result(PATIENCE) == "new"


class Odd:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        return type(other) is Odd


@pytest.mark.pairs(full="callers", of="make_key")
@pytest.mark.parametrize("make_key", [lambda: ("a", 1), Odd, lambda: 1.5, lambda: None])
def test_keys_of_every_kind_can_be_leased(cache, callers, make_key):
    holder, other, *_ = callers
    holder.gets(make_key())
    assert holder.does(is_leased, cache, make_key())
    asked = other.asks(make_key())
    until_waiting()
    holder.does(cache.set, make_key(), "it")
    assert asked.result(PATIENCE) == "it"
    assert is_free(cache, make_key())


def test_a_value_lives_no_longer_than_its_entry_and_the_callers_that_got_it(cache, thread_callers):
    class Value:
        pass

    holder, other, *_ = thread_callers
    holder.gets("k")
    asked = other.asks("k")
    until_waiting()
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

ENDS = {
    "delete": lambda cache, holder: holder.does(cache.delete, "k"),
    "delete_many": lambda cache, holder: holder.does(cache.delete_many, ["k"]),
    "pop": lambda cache, holder: holder.does(cache.pop, "k", None),
    "clear": lambda cache, holder: holder.does(cache.clear),
    "the request ends": lambda cache, holder: holder.does(end_request),
    "the caller ends": lambda cache, holder: holder.ends(),
    "the time is over": lambda cache, holder: None,
}


@pytest.mark.pairs(full="callers", of="end")
@pytest.mark.parametrize("end", ENDS)
def test_when_the_holder_gives_up_exactly_one_waiter_gets_the_lease_and_the_rest_wait_for_it(cache, callers, end):
    holder, *others = callers
    get_or_lease(cache, "theirs", wait=LONG)
    assert holder.gets("k", wait=SHORT if end == "the time is over" else LONG) == MISS
    asked = [other.asks("k") for other in others]
    if end != "the time is over":
        until_waiting(5)
    ENDS[end](cache, holder)
    until_waiting(4)
    assert until(lambda: any(each.done() for each in asked))
    assert [each.result() for each in asked if each.done()] == [MISS]
    heir = others[[each.done() for each in asked].index(True)]
    assert heir.does(is_leased, cache, "k")
    # A holder like any.
    assert heir.gets("theirs") == MISS
    assert not heir.does(is_leased, cache, "theirs")
    heir.does(cache.set, "k", "it")
    assert Counter(each.result(PATIENCE) for each in asked) == {MISS: 1, "it": 4}
    assert is_free(cache, "k")


def test_a_key_whose_leases_ended_twice_without_a_value_is_not_waited_for_until_it_gets_one(cache, callers):
    holder, *others = callers
    holder.gets("flag")
    asked = [other.asks("flag") for other in others]
    until_waiting(5)
    holder.does(end_request)
    until_waiting(4)
    # The thread of the heir waits no longer, but may not have returned yet.
    assert until(lambda: any(each.done() for each in asked))
    (heir,) = (other for other, each in zip(others, asked, strict=True) if each.done())
    heir.does(end_request)
    assert [each.result(PATIENCE) for each in asked] == [MISS] * 5
    for caller in callers:
        caller.does(end_request)
    # All of them compute it.
    assert [caller.gets("flag") for caller in callers] == [MISS] * 6
    holder.does(cache.set, "flag", "it")
    for caller in callers:
        caller.does(end_request)
    in_a_thread(cache.delete, "flag")
    assert holder.gets("flag") == MISS
    asked = [other.asks("flag") for other in others]
    until_waiting(5)
    holder.does(cache.set, "flag", "new")
    assert [each.result(PATIENCE) for each in asked] == ["new"] * 5


def test_keys_that_a_stranger_chooses_do_not_keep_callers_from_waiting_and_are_forgotten(cache, thread_callers):
    holder, other, third, *_ = thread_callers

    def never_set(key):
        for _ in range(2):
            get_or_lease(cache, key, wait=LONG)
            end_request()

    def ask_for_many():
        for number in range(MAX_UNFILLED):
            never_set(number)

    holder.does(never_set, "forgotten")
    third.does(ask_for_many)
    third.does(never_set, "recent")
    for key in ("forgotten", "recent", "page"):
        holder.does(end_request)
        assert holder.gets(key) == MISS
        asked = other.asks(key)
        if key != "recent":
            until_waiting()
            holder.does(cache.set, key, "it")
        assert asked.result(PATIENCE) == (MISS if key == "recent" else "it")


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


def test_a_lease_that_lasts_for_ever_can_be_waited_for(cache, callers):
    holder, other, *_ = callers
    holder.gets("k", wait=1e300)
    asked = other.asks("k", wait=1e300)
    until_waiting()
    holder.does(cache.set, "k", "it")
    assert asked.result(PATIENCE) == "it"


@pytest.mark.parametrize("wait", [0, -1, float("nan"), float("inf"), None, "1", True])
def test_a_wrong_wait_is_named(cache, wait):
    for call in (get_or_lease, lambda *args, **named: asyncio.run(aget_or_lease(*args, **named))):
        with pytest.raises((TypeError, ValueError), match="wait must be a number of seconds > 0, not"):
            call(cache, "k", wait=wait)


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
    "take with a timeout": lambda cache, loader: cache.get_or_load("loaded", loader, timeout=LONG),
    "take in take": lambda cache, loader: cache.get_or_load("loaded", lambda: cache.get_or_load("inner", loader)),
    "memoize": lambda cache, loader: cache.memoize()(loader)(),
    "aget_or_load": lambda cache, loader: asyncio.run(cache.aget_or_load("loaded", loader)),
    "atake of a coroutine": lambda cache, loader: asyncio.run(
        cache.aget_or_load("loaded", lambda: aget_or_lease(cache, "k", MISS, wait=LONG))
    ),
}


@pytest.mark.parametrize("load", LOADERS.values(), ids=LOADERS)
def test_code_inside_a_loader_never_waits(cache, thread_callers, load):
    holder, loading, *_ = thread_callers
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


def test_calls_that_fill_nothing_and_hits_take_no_lease_and_wait_for_none(cache, callers):
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
        assert not is_leased(cache, "k")

    looker.does(look)
    holder.gets("k")
    looker.does(look)
    assert holder.does(is_leased, cache, "k")
    cache.set("hit", 1)
    assert looker.gets("hit") == 1
    assert not looker.does(is_leased, cache, "hit")


def test_hits_misses_and_coalesced_are_exact(cache, callers):
    def counted():
        stats = cache.stats()
        return stats.hits, stats.misses, stats.coalesced

    holder, other, third, fourth, *_ = callers
    holder.gets("k")
    asked = [other.asks("k"), third.asks("k")]
    until_waiting(2)
    holder.gets("k")
    assert counted() == (0, 2, 0)
    holder.does(cache.set, "k", 1)
    assert [each.result(PATIENCE) for each in asked] == [1, 1]
    assert fourth.gets("k") == 1
    assert counted() == (3, 2, 2)
    holder.gets("j")
    asked = [other.asks("j"), third.asks("j", wait=SHORT)]
    assert asked[1].result(PATIENCE) == MISS
    holder.does(end_request)
    assert asked[0].result(PATIENCE) == MISS
    assert counted() == (3, 5, 2)


# The end of the cache, and of callers that do not give up their lease.


def test_waiters_of_a_cache_that_is_closed_get_an_error(cache, callers):
    holder, *others = callers
    holder.gets("k")
    asked = [other.asks("k") for other in others]
    until_waiting(5)
    cache.close()
    assert [type(each.exception(PATIENCE)) for each in asked] == [CacheClosed] * 5
    holder.does(end_request)
    holder.ends()


def test_threads_that_end_while_other_threads_write_pass_on(cache, thread_callers):
    """The end of a thread finds the cache's lock taken now and then, and must not wait for it."""
    waiter, writer, *_ = thread_callers
    stop = threading.Event()

    def write():
        while not stop.is_set():
            cache.set_many(dict.fromkeys(range(50), 0))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    writing = writer.submit(write)
    try:
        for number in range(25):
            holder = ThreadCaller(cache)
            holder.gets(number + 100)
            asked = waiter.asks(number + 100)
            until_waiting()
            holder.ends()
            assert asked.result(PATIENCE) == MISS
            waiter.does(end_request)
    finally:
        stop.set()
        sys.setswitchinterval(interval)
    writing.result(PATIENCE)


# Leases that end before the waiters run, and tasks that are cancelled then.


@pytest.fixture
def stop_the_loop(running_loop):
    """Call to stop the loop of the tasks, until the returned function is called."""

    def stop():
        stopped, go = threading.Event(), threading.Event()

        def wait():
            stopped.set()
            assert go.wait(PATIENCE)

        running_loop.call_soon_threadsafe(wait)
        assert stopped.wait(PATIENCE)
        return go.set

    return stop


REMOVALS = {
    "evicted": lambda cache, clock: cache.engine.evict_to(0),
    "expired": lambda cache, clock: clock.advance(5),
    "deleted": lambda cache, clock: cache.delete("k"),
    "cleared": lambda cache, clock: cache.clear(),
}


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_waiters_get_a_value_that_is_gone_before_they_run(make, clock, task_callers, stop_the_loop, remove):
    cache = make(clock=clock)
    assert get_or_lease(cache, "k", wait=LONG) is None
    asked = task_callers[0].asks("k", cache=cache)
    until_waiting()
    go_on = stop_the_loop()
    cache.set("k", "it", ttl=1)
    remove(cache, clock)
    assert "k" not in cache
    go_on()
    assert asked.result(PATIENCE) == "it"


@pytest.mark.parametrize(("outcome", "expected"), [("lease", MISS), ("value", "it"), ("next lease", "it")])
def test_a_task_that_is_cancelled_before_it_ran_with_what_it_waited_for(
    cache, task_callers, thread_callers, stop_the_loop, outcome, expected
):
    """A lease it passes on, a value it takes from no other, a later lease it does not disturb."""
    holder, heir, *_ = thread_callers
    holder.gets("k")
    asked = []
    for caller in task_callers[:2]:
        asked.append(caller.asks("k"))
        until_waiting(len(asked))
    go_on = stop_the_loop()
    if outcome == "lease":
        holder.does(end_request)
    else:
        holder.does(cache.set, "k", "it")
    if outcome == "next lease":
        cache.delete("k")
        assert heir.gets("k") == MISS
    task_callers[0].cancel()
    go_on()
    assert isinstance(asked[0].exception(PATIENCE), asyncio.CancelledError)
    assert asked[1].result(PATIENCE) == expected
    assert heir.does(is_leased, cache, "k") is (outcome == "next lease")
    for caller in (task_callers[1], heir):
        caller.does(end_request)
    assert is_free(cache, "k")
