"""The protocol of a flight: claim, watch, look again; store, land, close the watch."""

import asyncio
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.loading.harness import Closed, Held, Site, coherent_sites, returns, unreached
from tests.waiting import PATIENCE, until
from wheelcache.core.contract import RemovalCause
from wheelcache.errors import LoadDeadlock
from wheelcache.loading.steps import run
from wheelcache.loading.unstored import Unstored

WRITES = {
    "set": lambda site: site.set("k", "written"),
    "delete": lambda site: site.delete("k"),
    "clear": lambda site: site.clear(),
}


@pytest.fixture(params=WRITES)
def write(request):
    return WRITES[request.param]


def test_one_caller_loads_and_all_get_the_value(site, pool, waiters):
    loader = Held("loaded")
    callers = [pool.submit(site.take, "k", loader) for _ in range(8)]
    waiters(7)
    loader.release()
    assert {caller.result(PATIENCE) for caller in callers} == {"loaded"}
    assert loader.calls == 1
    assert site.get("k") == "loaded"
    assert site.counts() == {"hits": 1, "misses": 8, "loads": 1, "coalesced": 7}


def test_what_the_loader_raises_reaches_all_and_is_not_stored(site, pool, waiters):
    loader = Held(LookupError("no"))
    callers = [pool.submit(site.take, "k", loader) for _ in range(3)]
    waiters(2)
    loader.release()
    assert {caller.exception(PATIENCE) for caller in callers} == {loader.value}
    assert site.counts() == {"misses": 3, "load_failures": 1}
    assert site.take("k", returns("next")) == "next"


def test_what_the_weigher_raises_reaches_all(site, pool, waiters):
    loader = Held("heavy")

    def weigh(key, value):
        raise ValueError("the weigher")

    site.weigh = weigh
    callers = [pool.submit(site.take, "k", loader) for _ in range(2)]
    waiters(1)
    loader.release()
    for caller in callers:
        assert isinstance(caller.exception(PATIENCE), ValueError)
    assert site.loads.is_idle


def test_a_value_written_during_the_load_wins_and_the_leader_gets_its_own(site, pool, write):
    loader = Held("old")
    leader = pool.submit(site.take, "k", loader)
    assert loader.is_running()
    write(site)
    expected = site.get("k")
    loader.release()
    assert leader.result(PATIENCE) == "old"
    assert site.get("k") == expected


def test_a_caller_that_comes_after_a_write_waits_for_the_load_and_then_looks_again(site, pool, waiters):
    loader, fresh = Held("old"), Held("new")
    leader = pool.submit(site.take, "k", loader)
    assert loader.is_running()
    early = pool.submit(site.take, "k", unreached)
    waiters(1)
    site.delete("k")
    late = [pool.submit(site.take, "k", fresh) for _ in range(3)]
    waiters(4)
    assert fresh.calls == 0
    loader.release()
    assert fresh.is_running()
    fresh.release()
    assert [leader.result(PATIENCE), early.result(PATIENCE)] == ["old", "old"]
    assert [each.result(PATIENCE) for each in late] == ["new"] * 3
    assert fresh.calls == 1
    assert site.get("k") == "new"


def test_a_caller_that_comes_after_a_set_finds_it_although_the_load_goes_on(site, pool):
    loader = Held("old")
    leader = pool.submit(site.take, "k", loader)
    assert loader.is_running()
    missed = site.request("k", unreached)
    site.set("k", "written")
    assert run(site.loads.load(missed)) == "written"
    assert missed.is_hit
    loader.release()
    leader.result(PATIENCE)
    assert site.counts() == {"hits": 1, "misses": 1, "loads": 1}


def test_a_value_that_was_set_between_the_miss_and_the_claim_is_not_loaded(site):
    site.before_watch = lambda: site.set("k", "there by now")
    assert site.take("k", unreached) == "there by now"
    assert site.counts() == {"hits": 1}
    assert site.loads.is_idle


def test_a_leader_that_finds_the_value_has_its_waiters_look_again(site, pool, waiters):
    claimed, go = threading.Event(), threading.Event()

    def before_watch():
        claimed.set()
        assert go.wait(PATIENCE)

    site.before_watch = before_watch
    leader = pool.submit(site.take, "k", unreached)
    assert claimed.wait(PATIENCE)
    waiting = [pool.submit(site.take, "k", unreached) for _ in range(3)]
    waiters(3)
    site.set("k", "there by now")
    go.set()
    assert [each.result(PATIENCE) for each in (leader, *waiting)] == ["there by now"] * 4
    assert site.counts() == {"hits": 4}


def test_a_delete_before_the_value_is_stored_keeps_it_out(site):
    site.before_set = lambda: site.delete("k")
    assert site.take("k", returns("old")) == "old"
    assert site.get("k") is None


def test_a_caller_that_joins_after_a_delete_between_store_and_landing_does_not_get_the_old_value(site, pool, waiters):
    """The watch stays open after the leader's own set, until no caller can join."""
    stored, go = threading.Event(), threading.Event()

    def after_set():
        site.after_set = lambda: None
        stored.set()
        assert go.wait(PATIENCE)

    site.after_set = after_set
    leader = pool.submit(site.take, "k", returns("old"))
    assert stored.wait(PATIENCE)
    site.delete("k")
    late = pool.submit(site.take, "k", returns("new"))
    waiters(1)
    go.set()
    assert leader.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert site.get("k") == "new"


def test_a_write_in_another_process_keeps_the_value_out_and_late_callers_from_getting_it(pool, waiters):
    here, elsewhere = coherent_sites()
    loader = Held("old")
    leader = pool.submit(here.take, "k", loader)
    assert loader.is_running()
    elsewhere.set("k", "written elsewhere")
    late = pool.submit(here.take, "k", returns("new"))
    waiters(1)
    loader.release()
    assert leader.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert here.get("k") == "new"


def test_a_load_is_no_news_to_other_processes():
    here, elsewhere = coherent_sites()
    elsewhere.take("k", returns(1))
    here.take("k", returns(1))
    assert elsewhere.get("k") == here.get("k") == 1


def test_what_is_not_to_be_stored_reaches_every_waiter_and_counts_as_a_load(site, pool, waiters):
    loader = Held(Unstored("for you"))
    callers = [pool.submit(site.take, "k", loader) for _ in range(3)]
    waiters(2)
    loader.release()
    assert [caller.result(PATIENCE) for caller in callers] == ["for you"] * 3
    assert site.get("k") is None
    assert site.counts() == {"misses": 4, "loads": 1, "coalesced": 2}


def test_a_listener_may_look_up_the_key_that_was_loaded(site):
    seen = []
    site.on_removal = lambda key, value, cause: seen.append((value, cause, site.take("k", unreached)))
    site.set("k", "old", ttl=1)
    site.now = 1.0
    assert site.take("k", returns("new")) == "new"
    assert seen == [("old", RemovalCause.EXPIRED, "new")]


def test_a_leader_that_exits_hands_over_to_one_waiter(site, pool, waiters):
    loader, heir = Held(SystemExit()), Held("heir")
    leader = pool.submit(site.take, "k", loader)
    assert loader.is_running()
    heirs = [pool.submit(site.take, "k", heir) for _ in range(4)]
    waiters(4)
    loader.release()
    assert heir.is_running()
    heir.release()
    assert [each.result(PATIENCE) for each in heirs] == ["heir"] * 4
    assert heir.calls == 1
    assert isinstance(leader.exception(PATIENCE), SystemExit)


def test_closing_lets_no_caller_wait_for_ever(site, pool, waiters):
    loader = Held("late")
    callers = [pool.submit(site.take, "k", loader) for _ in range(2)]
    waiters(1)
    site.close()
    loader.release()
    for caller in callers:
        assert isinstance(caller.exception(PATIENCE), Closed)


def test_a_child_of_fork_leads_flights_of_its_own(site, pool):
    loader = Held("of the parent")
    leader = pool.submit(site.take, "k", loader)
    assert loader.is_running()
    site.core.before_fork()
    site.core.after_fork(in_child=True)
    site.loads.after_fork_in_child()
    assert site.take("k", returns("of the child")) == "of the child"
    assert site.counts() == {"misses": 1, "loads": 1}
    loader.release()
    leader.result(PATIENCE)
    assert site.get("k") == "of the child"


# Tasks.


def test_tasks_and_threads_share_a_flight(site, pool, waiters):
    async def main():
        go = asyncio.Event()

        async def load():
            await go.wait()
            return "loaded"

        tasks = [asyncio.create_task(site.atake("k", load)) for _ in range(3)]
        await asyncio.sleep(0)
        thread = pool.submit(site.take, "k", unreached)
        await asyncio.to_thread(waiters, 3)
        go.set()
        return await asyncio.gather(*tasks, asyncio.wrap_future(thread))

    assert asyncio.run(main()) == ["loaded"] * 4


def test_a_cancelled_waiter_takes_none_with_it_and_a_cancelled_leader_hands_over(site):
    async def main():
        go = asyncio.Event()
        loads = []

        async def load():
            loads.append(asyncio.current_task().get_name())
            await go.wait()
            return "loaded"

        tasks = [asyncio.create_task(site.atake("k", load), name=name) for name in ("leader", "waiter", "heir")]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        tasks[0].cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        return loads, [type(each) for each in results[:2]], results[2]

    cancelled = asyncio.CancelledError
    assert asyncio.run(main()) == (["leader", "heir"], [cancelled, cancelled], "loaded")
    assert site.counts() == {"misses": 3, "loads": 1, "load_failures": 1}


def test_a_flight_whose_loop_was_closed_is_replaced(site):
    loop = asyncio.new_event_loop()
    leader = loop.create_task(site.atake("k", asyncio.Event().wait))
    loop.run_until_complete(asyncio.sleep(0))
    assert not site.loads.is_idle
    assert site.take("k", returns("new")) == "new"
    leader.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    assert site.get("k") == "new"


@pytest.mark.parametrize("raised", [StopIteration, StopAsyncIteration, GeneratorExit])
def test_what_generators_use_for_themselves_reaches_a_caller(site, raised):
    with pytest.raises(raised):
        site.take("k", returns(raised()))
    assert site.loads.is_idle


# Waits that could never end.


def test_a_loader_that_takes_its_own_key_is_refused(site):
    with pytest.raises(LoadDeadlock, match="loader of 'a' takes, itself or through other loaders, 'a'"):
        site.take("a", lambda: site.take("b", lambda: site.take("a", unreached)))
    assert site.take("a", returns(1)) == 1


def test_loaders_of_two_caches_that_wait_for_each_other_are_refused(pool):
    first, second = Site(), Site()
    both = threading.Barrier(2)

    def load(other):
        both.wait(PATIENCE)
        return other.take("k", unreached)

    callers = [
        pool.submit(first.take, "k", lambda: load(second)),
        pool.submit(second.take, "k", lambda: load(first)),
    ]
    assert any(isinstance(caller.exception(PATIENCE), LoadDeadlock) for caller in callers)


def test_a_loader_of_many_that_takes_one_of_them_is_refused(site):
    with pytest.raises(LoadDeadlock):
        site.load_many(["a", "b"], lambda keys: {"a": site.take("b", unreached)})


def test_a_blocking_caller_in_the_loop_of_the_leading_task_loads_apart_and_stores_nothing(site):
    async def main():
        go = asyncio.Event()
        leading = asyncio.create_task(site.atake("k", go.wait))
        await asyncio.sleep(0)
        assert site.take("k", returns("apart")) == "apart"
        assert site.get("k") is None
        go.set()
        return await leading

    assert asyncio.run(main()) is True
    assert site.get("k") is True


def test_a_finalizer_that_takes_the_key_whose_value_is_being_stored_does_not_wait(site):
    """It runs in the leader's own thread, when the loader is over."""
    found = []

    class Value:
        def __del__(self):
            found.append(site.take("k", returns("apart")))

    left = [Value()]
    site.before_set = left.clear
    with ThreadPoolExecutor(1) as one:
        assert one.submit(site.take, "k", returns("new")).result(PATIENCE) == "new"
    assert found == ["apart"]
    assert site.get("k") == "new"


# What stays behind.


def test_a_failed_load_without_waiters_leaves_no_cycle(site):
    class Local:
        pass

    left = []

    def loader():
        local = Local()
        left.append(weakref.ref(local))
        raise LookupError

    gc.disable()
    try:
        for policy in ({}, {"timeout": PATIENCE}):
            with pytest.raises(LookupError):
                site.take("k", loader, **policy)
        del policy
        assert until(lambda: [each() for each in left] == [None, None])
    finally:
        gc.enable()


def test_a_coroutine_that_is_closed_leaves_no_flight(site):
    coroutine = site.atake("k", asyncio.Event().wait)

    async def begin():
        coroutine.send(None)
        coroutine.close()
        return site.loads.is_idle

    assert asyncio.run(begin())
