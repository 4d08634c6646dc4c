"""The task, thread or context that has a lease, the code that acts for it, and the leases that end with it."""

import asyncio

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, aget_or_lease, get_or_lease
from tests.waiting import PATIENCE, auntil_waiting


def run(main, *args):
    async def in_time():
        async with asyncio.timeout(PATIENCE):
            return await main(*args)

    return asyncio.run(in_time())


# Parents and children.


def test_a_child_task_acts_for_the_tasks_that_started_it(cache, callers):
    async def main():
        for key in "kl":
            await aget_or_lease(cache, key, wait=LONG)
        asked = callers[0].asks("l")
        await auntil_waiting()

        async def child():
            assert is_leased(cache, "k")
            # Another caller may be waiting for its parent.
            assert [await aget_or_lease(cache, key, MISS, wait=LONG) for key in ("k", "theirs")] == [MISS, MISS]
            assert not is_leased(cache, "theirs")
            await asyncio.create_task(grandchild())

        async def grandchild():
            assert await aget_or_lease(cache, "theirs", MISS, wait=LONG) == MISS
            cache.delete("k")
            cache.set("l", "it")

        callers[1].gets("theirs")
        await asyncio.create_task(child())
        assert not is_leased(cache, "k")
        assert await asyncio.wrap_future(asked) == "it"

    run(main)


# Blocking calls in the thread of an event loop, and threads that run code of a task.


def test_a_sync_get_while_an_event_loop_runs_in_its_thread_never_waits(cache, callers):
    callers[0].gets("k")

    async def main():
        assert get_or_lease(cache, "k", MISS, wait=LONG) == MISS
        called = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(lambda: called.set_result(get_or_lease(cache, "k", MISS, wait=LONG)))
        assert await called == MISS

    run(main)


def test_what_a_task_hands_to_a_thread_acts_for_the_task(cache, callers):
    other, another, *_ = callers

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
