"""take and atake: one load, whoever else asks."""

import asyncio
import gc
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from tests.waiting import auntil_waiting, until_waiting
from wheelcache import Cache, CacheClosed, LoadDeadlock

SOON = 10


@pytest.fixture
def cache(clock):
    return Cache(clock=clock, ttl=10, jitter=0)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as made:
        yield made


class SlowLoader:
    """Loads when told to. ``started`` is set when somebody runs it; it ends with ``finish``."""

    def __init__(self, value=None, error=None):
        self.started = threading.Event()
        self.go = threading.Event()
        self.calls = 0
        self.value, self.error = value, error

    def __call__(self):
        self.calls += 1
        self.started.set()
        assert self.go.wait(SOON)
        if self.error is not None:
            raise self.error
        return self.value


def test_however_many_miss_together_one_loads_and_all_get_its_value(cache, pool):
    loader = SlowLoader(value=[1])
    results = [pool.submit(cache.take, "k", loader) for _ in range(32)]
    until_waiting(31)
    loader.go.set()
    values = [result.result(SOON) for result in results]
    assert loader.calls == 1
    assert all(value is loader.value for value in values)
    stats = cache.stats()
    assert (stats.loads, stats.load_failures, stats.misses, stats.hits) == (1, 0, 32, 0)
    assert cache.get("k") is loader.value


def test_an_exception_reaches_all_who_waited_and_nothing_is_stored(cache, pool):
    loader = SlowLoader(error=LookupError("no"))
    results = [pool.submit(cache.take, "k", loader) for _ in range(8)]
    until_waiting(7)
    loader.go.set()
    assert {result.exception(SOON) for result in results} == {loader.error}
    assert loader.calls == 1
    assert "k" not in cache
    assert cache.stats().load_failures == 1
    assert cache.take("k", lambda: "next time") == "next time"


def test_a_load_that_ends_between_the_miss_of_a_thread_and_its_load_is_not_repeated(cache, together):
    loads = []
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        together(lambda _: [cache.take(key, lambda key=key: loads.append(key)) for key in range(300)])
    finally:
        sys.setswitchinterval(before)
    assert sorted(loads) == list(range(300))


def test_loaders_of_different_keys_never_wait_for_each_other(cache, pool):
    both = threading.Barrier(2)
    loads = [pool.submit(cache.take, key, lambda: both.wait(SOON)) for key in "ab"]
    assert sorted(load.result(SOON) for load in loads) == [0, 1]


def test_a_loader_that_takes_its_own_key_raises_instead_of_hanging(cache):
    with pytest.raises(LoadDeadlock, match="loader of 'k' takes, itself or through other loaders, 'k'"):
        cache.take("k", lambda: cache.take("k", lambda: 1))
    assert cache.take("k", lambda: 1) == 1


def test_a_loader_that_takes_its_own_key_through_another_raises(cache):
    with pytest.raises(LoadDeadlock):
        cache.take("a", lambda: cache.take("b", lambda: cache.take("a", lambda: 1)))


def test_two_loaders_in_two_threads_that_take_each_others_keys_do_not_hang(cache, pool):
    both = threading.Barrier(2)

    def load(other):
        both.wait(SOON)
        return cache.take(other, lambda: "unreached")

    first = pool.submit(cache.take, "a", lambda: load("b"))
    second = pool.submit(cache.take, "b", lambda: load("a"))
    errors = [first.exception(SOON), second.exception(SOON)]
    assert all(isinstance(error, LoadDeadlock) for error in errors)


def test_a_loader_may_take_other_keys_and_fork_out_to_a_task(cache):
    async def main():
        async def own_key_in_a_task():
            return await asyncio.create_task(cache.atake("k", lambda: 1))

        with pytest.raises(LoadDeadlock):
            await cache.atake("k", own_key_in_a_task)
        return await cache.atake("k", lambda: cache.take("other", lambda: 2))

    assert asyncio.run(main()) == 2


def test_what_is_set_while_the_loader_runs_wins(cache, pool):
    loader = SlowLoader(value="loaded")
    result = pool.submit(cache.take, "k", loader)
    assert loader.started.wait(SOON)
    cache.set("k", "set")
    loader.go.set()
    assert result.result(SOON) == "loaded"
    assert cache.get("k") == "set"


@pytest.mark.parametrize(
    "remove",
    [
        lambda cache: cache.delete("k"),
        lambda cache: cache.delete_many(["k"]),
        lambda cache: cache.pop("k", None),
        lambda cache: cache.clear(),
    ],
)
def test_a_value_deleted_while_its_loader_runs_is_not_resurrected(cache, pool, remove):
    loader = SlowLoader(value="old")
    first = pool.submit(cache.take, "k", loader)
    assert loader.started.wait(SOON)
    remove(cache)
    # Whoever comes after the deletion must not get what was computed before it, nor start a second load beside it.
    fresh = SlowLoader(value="new")
    second = pool.submit(cache.take, "k", fresh)
    until_waiting(1)
    assert fresh.calls == 0
    loader.go.set()
    fresh.go.set()
    assert first.result(SOON) == "old"
    assert second.result(SOON) == "new"
    assert cache.get("k") == "new"


def test_a_leader_that_is_torn_down_hands_over_to_one_waiter(cache, pool):
    loader = SlowLoader(error=SystemExit())
    leader = pool.submit(cache.take, "k", loader)
    assert loader.started.wait(SOON)
    heir = SlowLoader(value="heir")
    heirs = [pool.submit(cache.take, "k", heir) for _ in range(4)]
    until_waiting(4)
    loader.go.set()
    heir.go.set()
    assert [each.result(SOON) for each in heirs] == ["heir"] * 4
    assert heir.calls == 1
    assert isinstance(leader.exception(SOON), SystemExit)


def test_a_wrong_ttl_is_an_error_before_anything_is_loaded(cache):
    loader = SlowLoader(value=1)
    with pytest.raises(ValueError, match="ttl must be"):
        cache.take("k", loader, -1)
    assert loader.calls == 0
    assert cache.take("k", lambda: 2) == 2


def test_what_goes_wrong_after_the_load_reaches_the_caller_and_the_waiters(clock, pool):
    cache = Cache(clock=clock, max_weight=5, weigher=lambda key, value: -1)
    loader = SlowLoader(value=1)
    leader = pool.submit(cache.take, "k", loader)
    assert loader.started.wait(SOON)
    waiter = pool.submit(cache.take, "k", loader)
    until_waiting(1)
    loader.go.set()
    for result in (leader, waiter):
        with pytest.raises(ValueError, match="what the weigher returns"):
            result.result(SOON)


def test_closing_a_cache_lets_nobody_wait_for_ever(cache, pool):
    loader = SlowLoader(value=1)
    leader = pool.submit(cache.take, "k", loader)
    assert loader.started.wait(SOON)
    waiter = pool.submit(cache.take, "k", loader)
    until_waiting(1)
    cache.close()
    loader.go.set()
    for result in (leader, waiter):
        with pytest.raises(CacheClosed):
            result.result(SOON)


def test_who_waited_before_a_deletion_gets_the_value_and_who_came_after_a_new_one(cache, pool):
    loader, fresh = SlowLoader(value="old"), SlowLoader(value="new")
    results = [pool.submit(cache.take, "k", loader) for _ in range(8)]
    until_waiting(7)
    cache.delete("k")
    late = pool.submit(cache.take, "k", fresh)
    until_waiting(8)
    loader.go.set()
    fresh.go.set()
    assert [result.result(SOON) for result in results] == ["old"] * 8
    assert late.result(SOON) == "new"
    assert (loader.calls, fresh.calls) == (1, 1)


def test_two_caches_whose_loaders_take_from_each_other_do_not_hang(clock, pool):
    first, second = Cache(clock=clock), Cache(clock=clock)
    for round_ in range(200):
        both = threading.Barrier(2)

        def load(other, key=round_, both=both):
            both.wait(SOON)
            return other.take(key, lambda: None)

        results = [
            pool.submit(first.take, round_, lambda load=load: load(second)),
            pool.submit(second.take, round_, lambda load=load: load(first)),
        ]
        assert any(isinstance(result.exception(SOON), LoadDeadlock) for result in results)


def test_a_blocking_take_in_a_loop_that_its_flight_waits_for_in_a_roundabout_way_does_not_hang(cache, pool):
    async def main():
        go = asyncio.Event()
        in_thread = threading.Event()

        async def load_a():
            await go.wait()
            return "a"

        leading = asyncio.create_task(cache.atake("a", load_a))
        await asyncio.sleep(0)

        def load_b():
            in_thread.set()
            return cache.take("a", lambda: "unreached")

        thread = asyncio.get_running_loop().run_in_executor(pool, cache.take, "b", load_b)
        assert await asyncio.to_thread(in_thread.wait, SOON)
        await auntil_waiting()
        value = cache.take("b", lambda: "apart")
        go.set()
        return value, await leading, await thread

    assert asyncio.run(main()) == ("apart", "a", "a")


def test_a_load_apart_stores_nothing_and_may_not_take_its_own_key_either(cache):
    async def main():
        go = asyncio.Event()
        leading = asyncio.create_task(cache.atake("k", go.wait))
        await asyncio.sleep(0)

        def load_apart():
            cache.set("k", "written meanwhile")
            return "stale"

        assert cache.take("k", load_apart) == "stale"
        assert cache.get("k") == "written meanwhile"
        cache.delete("k")
        with pytest.raises(LoadDeadlock):
            cache.take("k", lambda: cache.take("k", lambda: 1))
        go.set()
        assert await leading is True

    asyncio.run(main())


def test_a_coroutine_that_is_closed_inside_another_load_leaves_that_load_its_protection(cache):
    async def forever():
        await asyncio.Future()

    def loader():
        other = cache.atake("other", forever)
        other.send(None)
        other.close()
        return cache.take("k", lambda: 1)

    async def main():
        with pytest.raises(LoadDeadlock):
            cache.take("k", loader)

    asyncio.run(main())


def test_what_a_loader_left_running_may_take_its_key_when_the_load_is_over_and_keeps_no_value_alive(cache):
    class Value:
        pass

    async def main():
        go = asyncio.Event()
        tasks = []

        async def later():
            await go.wait()
            return await cache.atake("k", Value)

        async def load():
            tasks.append(asyncio.create_task(later()))
            return Value()

        value = weakref.ref(await cache.atake("k", load))
        cache.clear()
        assert value() is None
        go.set()
        assert isinstance(await tasks[0], Value)

    asyncio.run(main())


def test_a_failed_load_that_nobody_else_waited_for_leaves_no_cycle(cache):
    class Local:
        pass

    left = []

    def loader():
        local = Local()
        left.append(weakref.ref(local))
        raise LookupError

    gc.disable()
    try:
        with suppress(LookupError):
            cache.take("k", loader)
        assert left[0]() is None
    finally:
        gc.enable()


def test_tasks_and_threads_share_a_flight(cache, pool):
    async def main():
        calls = []
        go = asyncio.Event()

        async def load():
            calls.append(1)
            await go.wait()
            return "async"

        tasks = [asyncio.create_task(cache.atake("k", load)) for _ in range(50)]
        await asyncio.sleep(0)
        thread = asyncio.get_running_loop().run_in_executor(pool, cache.take, "k", lambda: "sync")
        # The other 49 tasks, and the thread.
        await auntil_waiting(50)
        go.set()
        values = await asyncio.gather(*tasks, thread)
        return values, calls

    values, calls = asyncio.run(main())
    assert values == ["async"] * 51
    assert calls == [1]


def test_a_cancelled_waiter_takes_nobody_with_it_and_a_cancelled_leader_hands_over(cache):
    async def main():
        go = asyncio.Event()
        loads = []

        async def load():
            loads.append(asyncio.current_task().get_name())
            await go.wait()
            return "loaded"

        leader = asyncio.create_task(cache.atake("k", load), name="leader")
        await asyncio.sleep(0)
        waiters = [asyncio.create_task(cache.atake("k", load), name=f"waiter {i}") for i in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        await asyncio.sleep(0)
        leader.cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        go.set()
        results = await asyncio.gather(leader, *waiters, return_exceptions=True)
        return loads, results

    loads, results = asyncio.run(main())
    assert loads == ["leader", "waiter 1"]
    assert isinstance(results[0], asyncio.CancelledError)
    assert isinstance(results[1], asyncio.CancelledError)
    assert results[2:] == ["loaded", "loaded"]


def test_a_blocking_take_in_the_loop_of_the_leading_task_does_not_hang(cache):
    async def main():
        go = asyncio.Event()

        async def load():
            await go.wait()
            return "async"

        leading = asyncio.create_task(cache.atake("k", load))
        await asyncio.sleep(0)
        value = cache.take("k", lambda: "sync")
        go.set()
        return value, await leading

    assert asyncio.run(main()) == ("sync", "async")


def test_a_loader_that_needs_the_loop_its_own_waiter_blocks_raises_instead_of_hanging(cache, pool):
    async def main():
        go, started = asyncio.Event(), threading.Event()
        proceed = threading.Event()

        def load_x():
            started.set()
            assert proceed.wait(SOON)
            return cache.take("y", lambda: "unreached")

        leading = asyncio.create_task(cache.atake("y", go.wait))
        await asyncio.sleep(0)
        thread = asyncio.get_running_loop().run_in_executor(pool, cache.take, "x", load_x)
        assert await asyncio.to_thread(started.wait, SOON)

        def let_go_when_blocked():
            until_waiting(1)
            proceed.set()

        watching = pool.submit(let_go_when_blocked)
        with pytest.raises(LoadDeadlock):
            cache.take("x", lambda: "unreached")
        watching.result(SOON)
        go.set()
        assert isinstance((await asyncio.gather(thread, return_exceptions=True))[0], LoadDeadlock)
        return await leading

    assert asyncio.run(main()) is True


def test_load_seconds_add_up_on_the_caches_clock(cache, clock):
    def loader():
        clock.advance(1.5)
        return 1

    cache.take("a", loader)
    with pytest.raises(ZeroDivisionError):
        cache.take("b", lambda: loader() / 0)
    stats = cache.stats()
    assert (stats.loads, stats.load_failures, stats.load_seconds) == (1, 1, 3.0)


def test_a_stop_iteration_of_a_thread_reaches_the_tasks_that_wait(cache, pool):
    """asyncio futures refuse to raise it, and left the task waiting for ever."""
    loader = SlowLoader(error=StopIteration())

    async def main():
        leading = asyncio.get_running_loop().run_in_executor(pool, lambda: pool.submit(cache.take, "k", loader))
        assert await asyncio.to_thread(loader.started.wait, SOON)
        waiting = asyncio.create_task(cache.atake("k", lambda: 1))
        await asyncio.sleep(0)
        loader.go.set()
        with pytest.raises(RuntimeError, match="coroutine raised StopIteration"):
            await asyncio.wait_for(waiting, SOON)
        assert isinstance((await leading).exception(SOON), StopIteration)

    asyncio.run(main())
