"""Loads with a timeout: the caller waits so long, and the load goes on. In threads and in tasks."""

import asyncio

import pytest

from tests.engine.loading.harness import Held, HeldInTasks, assert_counts, returns, unreached
from tests.runtime.background import full
from tests.waiting import PATIENCE, auntil_waiting, until, until_waiting
from wheelcache import LoadTimeout
from wheelcache.runtime.worker_pool import TIMED_LOADS, timed_load_pool

SHORT = 0.02
"""Seconds that a caller waits for a loader that is held."""


def test_a_caller_that_waited_for_its_timeout_gets_an_error_and_the_value_is_cached_later(cache, twin):
    loader = twin.held("late")
    with pytest.raises(LoadTimeout, match=r"the loader of 'k' takes longer than 0\.02 s") as caught:
        twin.get_or_load("k", loader, timeout=SHORT)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.key, caught.value.timeout) == ("k", SHORT)
    assert loader.is_running()
    with pytest.raises(LoadTimeout):
        twin.get_or_load("k", loader, timeout=SHORT)
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert twin.get_or_load("k", unreached, timeout=SHORT) == "late"
    assert_counts(cache, hits=1, misses=2, loads=1, load_timeouts=2)


def test_a_caller_gets_the_value_or_the_error_in_time(cache, twin):
    assert twin.get_or_load("k", returns(1), timeout=PATIENCE) == 1
    # Longer than any clock counts.
    assert twin.get_or_load("long", returns(2), timeout=1e300) == 2
    with pytest.raises(LookupError):
        twin.get_or_load("other", returns(LookupError()), timeout=PATIENCE)
    assert_counts(cache, misses=3, loads=2, load_failures=1)


def test_with_a_timeout_the_fresh_value_is_preferred_and_the_stale_one_comes_after_it(cache, clock, twin):
    twin.get_or_load("k", returns("old"), grace=50)
    clock.advance(10)
    assert twin.get_or_load("k", returns("fresh"), grace=50, timeout=PATIENCE) == "fresh"
    clock.advance(10)
    loader = twin.held("late")
    assert twin.get_or_load("k", loader, grace=50, timeout=SHORT) == "fresh"
    loader.release()
    twin.settle()
    assert cache.get("k") == "late"
    assert_counts(cache, hits=1, misses=2, stale_hits=1, loads=3, load_timeouts=1, expirations=2)


def test_fail_safe_serves_the_stale_value_if_the_load_fails_in_time(cache, clock, twin, caplog, steady):
    twin.get_or_load("k", returns("old"), grace=50, fail_safe=50)
    clock.advance(10)
    for _ in range(3):
        assert twin.get_or_load("k", returns(LookupError()), grace=50, fail_safe=50, timeout=PATIENCE) == "old"
    twin.settle()
    # The pool's thread wakes the waiters first.
    assert until(lambda: caplog.text.count("failed; the next refresh waits for 1.0 s.") == 1)
    assert_counts(cache, misses=1, stale_hits=3, loads=1, load_failures=1)


@pytest.mark.parametrize("late", [LookupError("late"), "late"], ids=["error", "deleted"])
def test_an_error_that_no_caller_waits_for_is_logged_and_a_value_deleted_meanwhile_stays_out(cache, twin, caplog, late):
    loader = twin.held(late)
    with pytest.raises(LoadTimeout):
        twin.get_or_load("k", loader, timeout=SHORT)
    assert loader.is_running()
    cache.delete("k")
    loader.release()
    twin.settle()
    assert until(lambda: ("LookupError: late" in caplog.text) is (late != "late"))
    assert "k" not in cache


def test_a_timeout_is_the_callers_own(cache, pool):
    for first, second in ((None, SHORT), (SHORT, None)):
        loader = Held("late")
        callers = [pool.submit(cache.get_or_load, "k", loader, timeout=first)]
        assert loader.is_running()
        callers.append(pool.submit(cache.get_or_load, "k", unreached, timeout=second))
        patient, hasty = callers if first is None else reversed(callers)
        assert isinstance(hasty.exception(PATIENCE), LoadTimeout)
        until_waiting(1 if first else 0)
        loader.release()
        assert patient.result(PATIENCE) == "late"
        cache.clear()
    assert_counts(cache, misses=4, loads=2, load_timeouts=2, coalesced=1)


# The pool.


def test_a_timed_load_that_finds_no_room_in_time_gets_the_stale_value(cache, clock):
    cache.get_or_load("k", returns("old"), grace=50)
    clock.advance(10)
    with full(timed_load_pool):
        assert cache.get_or_load("k", unreached, grace=50, timeout=SHORT) == "old"
    assert_counts(cache, misses=1, stale_hits=1, loads=1, load_timeouts=1, refreshes_dropped=1)


def test_at_the_exit_of_the_process_timed_loads_run_in_their_callers(cache, twin, monkeypatch):
    monkeypatch.setattr(timed_load_pool, "is_stopped", True)
    assert twin.get_or_load("k", returns(1), timeout=PATIENCE) == cache.get("k") == 1
    assert_counts(cache, hits=1, misses=1, loads=1)


def test_timed_loads_that_take_timed_loads_never_starve_each_other(cache):
    def nested(depth):
        return depth if depth == 0 else cache.get_or_load(depth, lambda: nested(depth - 1), timeout=PATIENCE)

    assert nested(TIMED_LOADS + 2) == 0


# Tasks that end early.


def test_waiters_for_a_task_in_the_background_go_on_when_its_loop_ends(cache, pool):
    async def main():
        with pytest.raises(LoadTimeout):
            await cache.aget_or_load("k", asyncio.Future, timeout=SHORT)
        in_a_thread = pool.submit(cache.get_or_load, "k", returns("its own"))
        in_a_loop = pool.submit(asyncio.run, cache.aget_or_load("k", returns("its own")))
        await auntil_waiting(2)
        return in_a_thread, in_a_loop

    assert [each.result(PATIENCE) for each in asyncio.run(main())] == ["its own"] * 2
    assert cache.stats().loads == 1


def test_the_load_of_a_caller_that_is_cancelled_goes_on(cache):
    async def main():
        loader = HeldInTasks("loaded")
        caller = asyncio.create_task(cache.aget_or_load("k", loader, timeout=PATIENCE))
        await loader.began.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        waiting = asyncio.create_task(cache.aget_or_load("k", unreached))
        await asyncio.sleep(0)
        loader.release()
        return await waiting

    assert asyncio.run(main()) == "loaded"
