"""aget_or_lease: a task has the lease, waiters stop no event loop, and tasks and threads wait for each other."""

import asyncio
import contextvars
import gc
import threading
import time
import tracemalloc
from collections import Counter

import pytest

from tests.engine.lease_callers import LONG, MISS, QUIET, SHORT, Caller, in_a_thread, is_free
from tests.waiting import PATIENCE, THREADS, auntil_waiting, until_waiting, waiting
from wheelcache import Cache, CacheClosed
from wheelcache.leases.fill_scope import end_request


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
    made = [Caller(cache) for _ in range(2)]
    yield made
    # Those that still wait go on.
    cache.close()
    for caller in made:
        caller.ends()


async def soon(condition):
    """``until`` for coroutines: the other tasks run meanwhile."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


def ask(cache, key="k", wait=LONG):
    """A task that may wait."""
    return asyncio.create_task(cache.aget_or_lease(key, MISS, wait=wait))


async def hold(cache, key="k", then=None, outcome=None):
    """Start a task that has the lease until the event ``then``, or for ever, and ends with ``outcome``."""
    held = asyncio.Event()

    async def request():
        assert await cache.aget_or_lease(key, MISS, wait=LONG) == MISS
        held.set()
        await (asyncio.Event() if then is None else then).wait()
        if outcome is not None:
            raise outcome

    task = asyncio.create_task(request())
    await held.wait()
    return task


def test_tasks_wait_without_blocking_their_loop_and_get_the_value_that_was_set(cache):
    async def main():
        go = asyncio.Event()

        async def request():
            value = await cache.aget_or_lease("k", MISS, wait=LONG)
            if value == MISS:
                await go.wait()
                cache.set("k", "it")
            return value

        tasks = [asyncio.create_task(request()) for _ in range(10)]
        await auntil_waiting(9)
        go.set()
        return await asyncio.gather(*tasks)

    assert Counter(asyncio.run(main())) == {MISS: 1, "it": 9}
    stats = cache.stats()
    assert (stats.hits, stats.misses, stats.coalesced) == (9, 1, 9)
    assert is_free(cache, "k")


REMOVALS = {
    "evicted": lambda cache, clock: cache.set("j", 0),
    "expired": lambda cache, clock: clock.advance(5),
    "deleted": lambda cache, clock: cache.delete("k"),
    "cleared": lambda cache, clock: cache.clear(),
}


@pytest.mark.parametrize("remove", REMOVALS.values(), ids=REMOVALS)
def test_waiters_get_a_value_that_is_gone_before_they_run(callers, clock, remove):
    cache = Cache(max_entries=1, clock=clock, **QUIET)

    async def main():
        callers[0].gets("k", cache=cache)
        asked = ask(cache)
        await auntil_waiting(1)
        cache.set("k", "it", ttl=1)
        remove(cache, clock)
        assert "k" not in cache
        return await asked

    assert asyncio.run(main()) == "it"


def test_threads_and_tasks_wait_for_each_other(cache, callers):
    thread = callers[0]

    async def main():
        await cache.aget_or_lease("task's", wait=LONG)
        asked = thread.asks("task's")
        await auntil_waiting(1)
        cache.set("task's", 1)
        assert await asyncio.wrap_future(asked) == 1
        await asyncio.wrap_future(thread.asks("thread's"))
        asked = ask(cache, "thread's")
        await auntil_waiting(1)
        thread.does(cache.set, "thread's", 2)
        assert await asked == 2

    asyncio.run(main())


# Which task has a lease.


def test_sibling_tasks_have_leases_of_their_own_though_their_parent_had_one_before(cache):
    async def main():
        await cache.aget_or_lease("parent's", wait=LONG)
        cache.set("parent's", 1)
        done = asyncio.Event()
        holder = await hold(cache, then=done)
        other = ask(cache)
        await auntil_waiting(1)
        assert not cache.is_leased("k")
        done.set()
        assert await other == MISS
        await holder

    asyncio.run(main())


def test_a_child_task_acts_for_the_tasks_that_started_it(cache, callers):
    async def main():
        await cache.aget_or_lease("k", wait=LONG)

        async def child():
            assert cache.is_leased("k")
            assert await cache.aget_or_lease("k", MISS, wait=LONG) == MISS
            # Another caller may be waiting for its parent.
            assert await cache.aget_or_lease("theirs", MISS, wait=LONG) == MISS
            assert not cache.is_leased("theirs")
            await asyncio.create_task(grandchild())

        async def grandchild():
            assert await cache.aget_or_lease("theirs", MISS, wait=LONG) == MISS
            assert cache.delete("k") is False

        callers[0].gets("theirs")
        async with asyncio.timeout(PATIENCE):
            await asyncio.create_task(child())
        assert not cache.is_leased("k")

    asyncio.run(main())


def test_a_task_does_not_act_for_its_child(cache):
    async def main():
        # A miss, and so there is a holder that the child's can have as a parent.
        await cache.aget_or_lease("first", wait=LONG)
        cache.set("first", 1)
        done = asyncio.Event()
        child = await hold(cache, then=done)
        assert not cache.is_leased("k")
        cache.delete("k")
        done.set()
        assert await cache.aget_or_lease("k", MISS, wait=LONG) == MISS
        assert cache.is_leased("k")
        await child

    asyncio.run(main())


def test_a_child_task_may_set_what_its_parent_has_a_lease_on(cache, callers):
    async def main():
        await cache.aget_or_lease("k", wait=LONG)
        asked = callers[0].asks("k")
        await auntil_waiting(1)

        async def child():
            cache.set("k", "it")

        await asyncio.create_task(child())
        return await asyncio.wrap_future(asked)

    assert asyncio.run(main()) == "it"


def test_a_child_task_that_survives_its_parent_is_on_its_own(cache):
    async def main():
        go = asyncio.Event()

        async def parent():
            await cache.aget_or_lease("parent's", wait=LONG)
            return asyncio.create_task(child())

        async def child():
            await go.wait()
            return await cache.aget_or_lease("k", MISS, wait=LONG)

        orphan = await asyncio.create_task(parent())
        await soon(lambda: is_free(cache, "parent's"))
        assert await cache.aget_or_lease("k", MISS, wait=LONG) == MISS
        go.set()
        await auntil_waiting(1)
        cache.set("k", "it")
        assert await orphan == "it"

    asyncio.run(main())


def test_tasks_that_start_one_another_for_ever_keep_nothing_of_those_that_are_over(cache):
    async def main():
        done = asyncio.get_running_loop().create_future()

        async def generation(number, born):
            await cache.aget_or_lease(number % 10, wait=LONG)
            born.set()
            if number == 3000:
                done.set_result(None)
            else:
                child_is_born = asyncio.Event()
                tasks.append(asyncio.create_task(generation(number + 1, child_is_born)))
                await child_is_born.wait()
            tasks.pop(0)

        tasks = [asyncio.create_task(generation(0, asyncio.Event()))]
        await done

    tracemalloc.start()
    try:
        asyncio.run(main())
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # 3,000 that keep each other would take a megabyte.
    assert taken < 300_000
    assert is_free(cache, *range(10))


# The end of a task.


@pytest.mark.parametrize("outcome", [None, LookupError()])
def test_the_end_of_a_task_is_the_end_of_its_leases(cache, outcome):
    async def main():
        go = asyncio.Event()
        holder = await hold(cache, then=go, outcome=outcome)
        other = ask(cache)
        await auntil_waiting(1)
        go.set()
        await asyncio.gather(holder, return_exceptions=True)
        return await other

    assert asyncio.run(main()) == MISS
    assert is_free(cache, "k")


def test_a_holder_task_that_is_cancelled_passes_on_to_exactly_one(cache):
    async def request():
        value = await cache.aget_or_lease("k", MISS, wait=LONG)
        if value == MISS:
            cache.set("k", "it")
        return value

    async def main():
        holder = await hold(cache)
        others = [asyncio.create_task(request()) for _ in range(5)]
        await auntil_waiting(5)
        holder.cancel()
        return await asyncio.gather(*others)

    assert Counter(asyncio.run(main())) == {MISS: 1, "it": 4}


def test_a_task_that_is_cancelled_while_it_waits_leaves(cache):
    async def main():
        go = asyncio.Event()
        holder = await hold(cache, then=go)
        waiters = [ask(cache) for _ in range(3)]
        await auntil_waiting(3)
        waiters[0].cancel()
        await asyncio.gather(waiters[0], return_exceptions=True)
        assert waiters[0].cancelled()
        assert waiting() == 2
        go.set()
        await holder
        # Each gets the lease, and ends.
        assert await asyncio.gather(*waiters[1:]) == [MISS, MISS]

    asyncio.run(main())
    assert is_free(cache, "k")


def test_a_task_that_is_cancelled_just_after_it_was_handed_the_lease_passes_it_on(cache, callers):
    callers[0].gets("k")

    async def main():
        first = ask(cache)
        await auntil_waiting(1)
        second = ask(cache)
        await auntil_waiting(2)
        # The loop is held up here, so the first task has been handed the lease and has not run since.
        callers[0].does(end_request)
        first.cancel()
        assert await second == MISS
        assert first.cancelled()

    asyncio.run(main())
    assert is_free(cache, "k")


def test_a_task_that_is_cancelled_before_it_ran_with_the_value_takes_it_from_no_other(cache, callers):
    callers[0].gets("k")

    async def main():
        tasks = [ask(cache) for _ in range(3)]
        await auntil_waiting(3)
        callers[0].does(cache.set, "k", "it")
        tasks[0].cancel()
        return await asyncio.gather(*tasks, return_exceptions=True)

    cancelled, *others = asyncio.run(main())
    assert isinstance(cancelled, asyncio.CancelledError)
    assert others == ["it", "it"]


def test_a_task_that_is_cancelled_after_the_key_was_set_disturbs_no_later_lease(cache, callers):
    holder, next_holder = callers
    holder.gets("k")

    async def main():
        leaver = ask(cache)
        await auntil_waiting(1)
        holder.does(cache.set, "k", "it")
        cache.delete("k")
        next_holder.gets("k")
        leaver.cancel()
        await asyncio.gather(leaver, return_exceptions=True)
        assert next_holder.does(cache.is_leased, "k")

    asyncio.run(main())


def test_tasks_go_on_after_their_wait_beside_a_hung_holder(cache):
    async def main():
        holder = await hold(cache)
        async with asyncio.timeout(PATIENCE):
            assert await asyncio.gather(*(ask(cache, wait=SHORT) for _ in range(4))) == [MISS] * 4
        holder.cancel()

    asyncio.run(main())


def test_a_loop_that_is_closed_with_a_holder_passes_on(cache, callers):
    loop = asyncio.new_event_loop()
    # Its message about the task that was not ended.
    loop.set_exception_handler(lambda *_: None)
    task = loop.run_until_complete(hold(cache))
    asked = callers[0].asks("k")
    until_waiting(1)
    loop.close()
    del task
    gc.collect()
    assert asked.result(PATIENCE) == MISS


def test_tasks_that_wait_when_the_cache_is_closed_get_an_error(cache, callers):
    callers[0].gets("k")

    async def main():
        tasks = [ask(cache) for _ in range(3)]
        await auntil_waiting(3)
        cache.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(error) for error in asyncio.run(main())] == [CacheClosed] * 3


# Tasks that others may be waiting for do not wait.


@pytest.mark.parametrize("by", ["task", "child"])
def test_two_tasks_that_take_two_keys_in_opposite_order_do_not_wait_for_each_other(cache, by):
    async def request(first, second, both):
        assert await cache.aget_or_lease(first, wait=LONG) is None
        await both.wait()
        if by == "task":
            assert await cache.aget_or_lease(second, wait=LONG) is None
        else:
            child = ask(cache, second)
            in_its_thread = asyncio.to_thread(cache.get_or_lease, second, MISS, wait=LONG)
            assert await asyncio.gather(child, in_its_thread) == [MISS, MISS]
        await both.wait()

    async def main():
        both = asyncio.Barrier(2)
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(request("a", "b", both), request("b", "a", both))

    asyncio.run(main())
    assert is_free(cache, "a", "b")


def test_an_async_loader_never_waits(cache, callers):
    callers[0].gets("k")

    async def main():
        async with asyncio.timeout(PATIENCE):
            return await cache.atake("loaded", lambda: cache.aget_or_lease("k", MISS, wait=LONG))

    assert asyncio.run(main()) == MISS


def test_a_sync_get_while_an_event_loop_runs_in_its_thread_never_waits(cache, callers):
    callers[0].gets("k")

    async def main():
        assert cache.get_or_lease("k", MISS, wait=LONG) == MISS
        called = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: called.set_result(cache.get_or_lease("k", MISS, wait=LONG)))
        assert await called == MISS

    asyncio.run(main())


def test_a_sync_get_in_a_task_takes_the_lease_for_the_task(cache):
    async def main():
        async def request():
            assert cache.get_or_lease("k", MISS, wait=LONG) == MISS
            assert cache.is_leased("k")

        await asyncio.create_task(request())
        await soon(lambda: is_free(cache, "k"))

    asyncio.run(main())


# Threads that run code of a task.


def test_what_a_task_hands_to_a_thread_acts_for_the_task(cache, callers):
    other, another = callers

    async def main():
        await cache.aget_or_lease("k", wait=LONG)
        assert await asyncio.to_thread(cache.is_leased, "k")
        assert await asyncio.to_thread(cache.get_or_lease, "k", MISS, wait=LONG) == MISS
        other.gets("theirs")
        assert await asyncio.to_thread(cache.get_or_lease, "theirs", MISS, wait=LONG) == MISS
        assert await asyncio.to_thread(cache.get_or_lease, "taken there", MISS, wait=LONG) == MISS
        assert cache.is_leased("taken there")
        asked = another.asks("k")
        await auntil_waiting(1)
        await asyncio.to_thread(cache.set, "k", "it")
        return await asyncio.wrap_future(asked)

    assert asyncio.run(main()) == "it"


def test_sync_code_that_a_task_without_leases_hands_to_a_thread_waits(cache, callers):
    callers[0].gets("k")

    async def main():
        asked = asyncio.create_task(asyncio.to_thread(cache.get_or_lease, "k", MISS, wait=LONG))
        await auntil_waiting(1)
        callers[0].does(cache.set, "k", "it")
        return await asked

    assert asyncio.run(main()) == "it"


def test_a_thread_whose_task_was_cancelled_holds_on_its_own(cache, callers):
    cancelled, held, done = threading.Event(), threading.Event(), threading.Event()

    def sync_code():
        assert cancelled.wait(PATIENCE)
        cache.get_or_lease("k", wait=LONG)
        held.set()
        assert done.wait(PATIENCE)

    async def main():
        has_lease = asyncio.Event()

        async def request():
            await cache.aget_or_lease("task's", wait=LONG)
            has_lease.set()
            await asyncio.to_thread(sync_code)

        task = asyncio.create_task(request())
        await has_lease.wait()
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cancelled.set()
        assert await asyncio.to_thread(held.wait, PATIENCE)
        asked = callers[0].asks("k")
        await auntil_waiting(1)
        done.set()
        del task
        # With what the thread ran, its lease goes.
        await soon(lambda: gc.collect() >= 0 and asked.done())
        assert asked.result() == MISS

    asyncio.run(main())


def test_a_thread_that_got_its_context_back_from_a_task_that_is_over_never_waits_for_itself(cache):
    """As after asgiref's async_to_sync, which copies the context variables of the coroutine to its caller."""

    def view():
        for variable, value in asyncio.run(request()).items():
            variable.set(value)
        assert cache.get_or_lease("k", MISS, wait=LONG) == MISS
        assert asyncio.run(cache.aget_or_lease("k", MISS, wait=LONG)) == MISS
        return cache.is_leased("k")

    async def request():
        await cache.aget_or_lease("first", wait=LONG)
        return contextvars.copy_context()

    assert in_a_thread(view)


# Many at once.


def test_loops_in_many_threads_share_a_cache_and_one_task_of_all_computes(cache, together):
    computed = []

    async def request(key):
        value = await cache.aget_or_lease(key, wait=LONG)
        if value is None:
            computed.append(key)
            await asyncio.sleep(0)
            cache.set(key, key + 1)
            value = key + 1
        assert value == key + 1

    async def main():
        for key in range(20):
            await asyncio.gather(*[request(key) for _ in range(5)])

    assert together(lambda number: asyncio.run(main())) == [None] * THREADS
    assert sorted(computed) == list(range(20))
    assert is_free(cache, *range(20))


def test_no_lease_is_left_and_no_waiter_lost_after_tasks_were_cancelled_at_any_moment(cache, together):
    async def request(number, step):
        key = (number + step) % 3
        if await cache.aget_or_lease(key, wait=LONG) is None:
            await asyncio.sleep(0)
            if step % 3 == 0:
                cache.set(key, 1)
        if step % 4 == 0:
            cache.delete(key)

    async def main(number):
        for step in range(60):
            tasks = [asyncio.create_task(request(number, step + i)) for i in range(4)]
            for turn, task in enumerate(tasks):
                for _ in range((number + step + turn) % 5):
                    await asyncio.sleep(0)
                if (step + turn) % 2:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    began = time.monotonic()
    assert together(lambda number: asyncio.run(main(number))) == [None] * THREADS
    assert time.monotonic() - began < LONG, "a task waited in vain"
    assert is_free(cache, *range(3))
