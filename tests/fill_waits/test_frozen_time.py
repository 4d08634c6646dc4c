"""Waits for leases while the time is frozen: they use real time."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context

import freezegun
import pytest
import time_machine

from tests.fill_waits.callers import aget_or_lease, get_or_lease
from tests.time_travel import FAR, LIBRARIES, real_seconds_for
from tests.waiting import PATIENCE, until_waiting


@pytest.fixture(params=LIBRARIES.values(), ids=LIBRARIES)
def library(request):
    return request.param


@pytest.mark.alone
def test_a_wait_for_a_lease_ends_and_not_before_its_time(cache, library):
    with ThreadPoolExecutor(1) as holder, library.freeze(FAR):
        assert holder.submit(get_or_lease, cache, "a", wait=0.2).result(PATIENCE) is None
        seconds = real_seconds_for(lambda: Context().run(get_or_lease, cache, "a", wait=0.2))
    assert 0.1 < seconds < PATIENCE


def test_a_wait_for_a_lease_that_a_freeze_overtakes_ends_with_the_value(cache, library):
    with ThreadPoolExecutor(1) as holder, ThreadPoolExecutor(1) as pool:
        assert holder.submit(get_or_lease, cache, "a", wait=PATIENCE).result(PATIENCE) is None
        waiting = pool.submit(get_or_lease, cache, "a", wait=PATIENCE)
        until_waiting()
        with library.freeze(FAR):
            assert not waiting.done()
            cache.set("a", 1, 300)
            assert waiting.result(PATIENCE) == 1


@pytest.mark.alone
@pytest.mark.parametrize(
    "freeze",
    [lambda: freezegun.freeze_time(FAR, real_asyncio=True), lambda: time_machine.travel(FAR, tick=False)],
    ids=LIBRARIES,
)
def test_a_wait_of_a_task_ends_in_real_time(cache, freeze):
    async def waits():
        # This task holds the lease, and the first task that it starts waits for it in vain.
        assert await aget_or_lease(cache, "b", wait=0.2) is None
        other = Context().run(asyncio.ensure_future, aget_or_lease(cache, "b", wait=0.2))
        assert await other is None

    with freeze():
        assert 0.1 < real_seconds_for(lambda: asyncio.run(waits())) < PATIENCE
