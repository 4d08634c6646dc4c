"""The task, thread or context that has a lease, the code that acts for it, and the leases that end with it."""

import asyncio
import contextvars
import gc
import threading

import pytest

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, aget_or_lease, get_or_lease, in_a_thread, is_free
from tests.waiting import PATIENCE, auntil_waiting, until_waiting
from wheelcache.runtime.request_scope import RequestScope


async def soon(condition):
    """Wait as ``until`` does, in a coroutine, while other tasks run."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


def ask(cache, key="k", wait=LONG):
    """A task that may wait."""
    return asyncio.create_task(aget_or_lease(cache, key, MISS, wait=wait))


async def hold(cache, key="k", then=None, outcome=None):
    """Start a task that has the lease until the event ``then``, or forever, and ends with ``outcome``."""
    held = asyncio.Event()

    async def request():
        assert await aget_or_lease(cache, key, MISS, wait=LONG) == MISS
        held.set()
        await (asyncio.Event() if then is None else then).wait()
        if outcome is not None:
            raise outcome

    task = asyncio.create_task(request())
    await held.wait()
    return task


def run(main, *args):
    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await main(*args)

    return asyncio.run(in_time())


# Parents and children.


def test_sibling_tasks_have_leases_of_their_own_though_their_parent_had_one_before(cache):
    async def main():
        await aget_or_lease(cache, "parent's", wait=LONG)
        cache.set("parent's", 1)
        done = asyncio.Event()
        holder = await hold(cache, then=done)
        other = ask(cache)
        await auntil_waiting()
        assert not is_leased(cache, "k")
        done.set()
        assert await other == MISS
        await holder

    run(main)


def test_a_child_task_acts_for_the_tasks_that_started_it(cache, thread_callers):
    async def main():
        await aget_or_lease(cache, "k", wait=LONG)
        await aget_or_lease(cache, "l", wait=LONG)
        asked = thread_callers[0].asks("l")
        await auntil_waiting()

        async def child():
            assert is_leased(cache, "k")
            assert await aget_or_lease(cache, "k", MISS, wait=LONG) == MISS
            # Another caller may be waiting for its parent.
            assert await aget_or_lease(cache, "theirs", MISS, wait=LONG) == MISS
            assert not is_leased(cache, "theirs")
            await asyncio.create_task(grandchild())

        async def grandchild():
            assert await aget_or_lease(cache, "theirs", MISS, wait=LONG) == MISS
            assert cache.delete("k") is False
            cache.set("l", "it")

        thread_callers[1].gets("theirs")
        await asyncio.create_task(child())
        assert not is_leased(cache, "k")
        assert await asyncio.wrap_future(asked) == "it"

    run(main)


def test_a_task_does_not_act_for_its_child(cache):
    async def main():
        # A miss, and so there is a scope that the child's can have as a parent.
        await aget_or_lease(cache, "first", wait=LONG)
        cache.set("first", 1)
        done = asyncio.Event()
        child = await hold(cache, then=done)
        assert not is_leased(cache, "k")
        cache.delete("k")
        done.set()
        assert await aget_or_lease(cache, "k", MISS, wait=LONG) == MISS
        assert is_leased(cache, "k")
        await child

    run(main)


def test_a_child_task_that_survives_its_parent_is_on_its_own(cache):
    async def main():
        go = asyncio.Event()

        async def parent():
            await aget_or_lease(cache, "parent's", wait=LONG)
            return asyncio.create_task(child())

        async def child():
            await go.wait()
            return await aget_or_lease(cache, "k", MISS, wait=LONG)

        orphan = await asyncio.create_task(parent())
        await soon(lambda: is_free(cache, "parent's"))
        assert await aget_or_lease(cache, "k", MISS, wait=LONG) == MISS
        go.set()
        await auntil_waiting()
        cache.set("k", "it")
        assert await orphan == "it"

    run(main)


def test_tasks_that_start_one_another_for_ever_keep_nothing_of_those_that_are_over(cache):
    async def main():
        done = asyncio.get_running_loop().create_future()

        async def generation(number, born):
            await aget_or_lease(cache, number % 10, wait=LONG)
            born.set()
            if number == 300:
                gc.collect()
                done.set_result(sum(type(each) is RequestScope for each in gc.get_objects()))
            else:
                child_is_born = asyncio.Event()
                tasks.append(asyncio.create_task(generation(number + 1, child_is_born)))
                await child_is_born.wait()
            tasks.pop(0)

        gc.collect()
        before = sum(type(each) is RequestScope for each in gc.get_objects())
        tasks = [asyncio.create_task(generation(0, asyncio.Event()))]
        return await done - before

    assert run(main) < 10
    assert is_free(cache, *range(10))


# The end of a task, a loop, a context.


@pytest.mark.parametrize("how", [None, LookupError(), "cancelled"])
def test_the_end_of_a_task_is_the_end_of_its_leases(cache, how):
    async def main():
        go = asyncio.Event()
        holder = await hold(cache, then=go, outcome=how if how != "cancelled" else None)
        other = ask(cache)
        await auntil_waiting()
        go.set() if how != "cancelled" else holder.cancel()
        await asyncio.gather(holder, return_exceptions=True)
        return await other

    assert run(main) == MISS
    assert is_free(cache, "k")


def test_a_loop_that_is_closed_with_a_holder_passes_on(cache, thread_callers):
    loop = asyncio.new_event_loop()
    # Its message about the task that was not ended.
    loop.set_exception_handler(lambda *_: None)
    task = loop.run_until_complete(hold(cache))
    asked = thread_callers[0].asks("k")
    until_waiting()
    loop.close()
    del task
    gc.collect()
    assert asked.result(PATIENCE) == MISS


def test_a_context_in_a_circle_of_garbage_passes_on_when_it_is_collected(cache, thread_callers):
    gc.collect()

    class Circle:
        def __init__(self):
            self.me = self
            self.context = contextvars.Context()

    circle = Circle()
    circle.context.run(get_or_lease, cache, "k", wait=LONG)
    asked = thread_callers[0].asks("k")
    until_waiting()
    del circle
    gc.collect()
    assert asked.result(PATIENCE) == MISS


# Blocking calls in the thread of an event loop, and threads that run code of a task.


def test_a_sync_get_while_an_event_loop_runs_in_its_thread_never_waits(cache, thread_callers):
    thread_callers[0].gets("k")

    async def main():
        assert get_or_lease(cache, "k", MISS, wait=LONG) == MISS
        called = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: called.set_result(get_or_lease(cache, "k", MISS, wait=LONG)))
        assert await called == MISS

    run(main)


def test_a_sync_get_in_a_task_takes_the_lease_for_the_task(cache):
    async def main():
        async def request():
            assert get_or_lease(cache, "k", MISS, wait=LONG) == MISS
            assert is_leased(cache, "k")

        await asyncio.create_task(request())
        await soon(lambda: is_free(cache, "k"))

    run(main)


def test_what_a_task_hands_to_a_thread_acts_for_the_task(cache, thread_callers):
    other, another, *_ = thread_callers

    async def main():
        await aget_or_lease(cache, "k", wait=LONG)
        assert await asyncio.to_thread(is_leased, cache, "k")
        other.gets("theirs")
        for key in ("k", "theirs", "taken there"):
            assert await asyncio.to_thread(get_or_lease, cache, key, MISS, wait=LONG) == MISS
        assert is_leased(cache, "taken there")
        asked = another.asks("k")
        await auntil_waiting()
        await asyncio.to_thread(cache.set, "k", "it")
        return await asyncio.wrap_future(asked)

    assert run(main) == "it"


def test_a_thread_whose_task_was_cancelled_holds_on_its_own(cache, thread_callers):
    began, cancelled, held, done = (threading.Event() for _ in range(4))

    def sync_code():
        began.set()
        assert cancelled.wait(PATIENCE)
        get_or_lease(cache, "k", wait=LONG)
        held.set()
        assert done.wait(PATIENCE)

    async def main():
        async def request():
            await aget_or_lease(cache, "task's", wait=LONG)
            await asyncio.to_thread(sync_code)

        task = asyncio.create_task(request())
        # A call that is cancelled before its thread has begun it is not made.
        await soon(began.is_set)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        cancelled.set()
        assert await asyncio.to_thread(held.wait, PATIENCE)
        asked = thread_callers[0].asks("k")
        await auntil_waiting()
        done.set()
        del task
        # The lease ends with the function that the thread ran.
        await soon(lambda: gc.collect() >= 0 and asked.done())
        assert asked.result() == MISS

    run(main)


def test_a_thread_that_got_its_context_back_from_a_task_that_is_over_never_waits_for_itself(cache):
    """As after asgiref's async_to_sync, which copies the context variables of the coroutine to its caller."""

    def view():
        for variable, value in run(request).items():
            variable.set(value)
        assert get_or_lease(cache, "k", MISS, wait=LONG) == MISS
        assert asyncio.run(aget_or_lease(cache, "k", MISS, wait=LONG)) == MISS
        return is_leased(cache, "k")

    async def request():
        await aget_or_lease(cache, "first", wait=LONG)
        return contextvars.copy_context()

    assert in_a_thread(view)


def test_a_thread_that_gets_its_context_back_from_many_tasks_keeps_no_scopes(cache):
    """As the thread of a WSGI server whose views use async_to_sync. Each scope would make the next calls slower."""

    def thread():
        for number in range(100):
            get_or_lease(cache, number % 10, wait=LONG)
            for variable, value in run(request).items():
                variable.set(value)
            if number == 10:
                before = scopes()
        return scopes() - before

    async def request():
        await aget_or_lease(cache, "of a task", wait=LONG)
        return contextvars.copy_context()

    def scopes():
        gc.collect()
        return sum(type(each) is RequestScope for each in gc.get_objects())

    assert in_a_thread(thread) <= 1
