"""One load for any number of callers: their results, concurrent writes, and leaders that leave."""

import asyncio
import threading

import pytest

from tests.engine.loading.harness import Held, assert_counts, outcome, returns, unreached
from tests.waiting import PATIENCE, until_waiting
from wheelcache import CacheClosed, LoadDeadlock
from wheelcache.engine.loading.request import Unstored


@pytest.fixture
def ask(cache, pool):
    """Call ``get_or_load`` in threads, as many at once. Return their futures, when all but the leader wait."""

    def ask(loader, callers=1, waiting=None, **policy):
        asked = [pool.submit(cache.get_or_load, "k", loader, **policy) for _ in range(callers)]
        until_waiting(callers - 1 if waiting is None else waiting)
        return asked

    return ask


def results(callers):
    return [caller.result(PATIENCE) for caller in callers]


def test_one_caller_loads_and_all_get_the_very_value(cache, ask):
    loader = Held([1])
    callers = ask(loader, 32)
    loader.release()
    assert {id(value) for value in results(callers)} == {id(loader.value)}
    assert loader.calls == 1
    assert cache.get("k") is loader.value
    assert_counts(cache, hits=1, misses=32, loads=1, coalesced=31)


def test_a_value_that_is_not_to_be_stored_reaches_every_waiter_and_counts_as_a_load(cache, ask):
    loader = Held(Unstored("for you"))
    callers = ask(loader, 3)
    loader.release()
    assert results(callers) == ["for you"] * 3
    assert_counts(cache, misses=3, loads=1, coalesced=2)
    assert "k" not in cache


def test_load_seconds_add_up_on_the_caches_clock(cache, clock):
    for seconds in (1.5, 0.25):
        cache.get_or_load(f"{seconds}", lambda seconds=seconds: clock.advance(seconds))
    with pytest.raises(ZeroDivisionError):
        cache.get_or_load("b", lambda: clock.advance(1) or 1 / 0)
    stats = cache.stats()
    assert (stats.loads, stats.load_failures, stats.load_seconds) == (2, 1, 2.75)


# Writes meanwhile.

WRITES = {
    "set": lambda cache: cache.set("k", "written"),
    "add": lambda cache: cache.add("k", "written"),
    "set_many": lambda cache: cache.set_many({"k": "written"}),
    "delete": lambda cache: cache.delete("k"),
    "delete_many": lambda cache: cache.delete_many(["k"]),
    "clear": lambda cache: cache.clear(),
}
STORES = ("set", "add", "set_many")


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_while_a_loader_runs_wins_and_later_callers_get_nothing_older(cache, ask, write):
    loader, fresh = Held("old"), Held("new")
    early = ask(loader, 3)
    WRITES[write](cache)
    late = ask(fresh, 3, waiting=2 if write in STORES else 5)
    if write not in STORES:
        # They do not load while the first one does, and then one of them loads.
        assert fresh.calls == 0
        loader.release()
        assert fresh.is_running()
        fresh.release()
    expected = "written" if write in STORES else "new"
    assert results(late) == [expected] * 3
    loader.release()
    assert results(early) == ["old"] * 3
    assert fresh.calls == (write not in STORES)
    assert cache.get("k") == expected


# Tasks, and leaders that leave.


def test_a_cancelled_waiter_takes_none_with_it_and_a_cancelled_leader_hands_over(cache):
    async def main():
        go = asyncio.Event()
        loads = []

        async def load():
            loads.append(asyncio.current_task().get_name())
            await go.wait()
            return "loaded"

        names = ("leader", "waiter", "heir", "last")
        tasks = [asyncio.create_task(cache.aget_or_load("k", load), name=name) for name in names]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        tasks[0].cancel()
        for _ in range(10):
            await asyncio.sleep(0)
        go.set()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        return loads, [type(each) for each in found[:2]], found[2:]

    cancelled = asyncio.CancelledError
    assert asyncio.run(main()) == (["leader", "heir"], [cancelled, cancelled], ["loaded", "loaded"])
    assert_counts(cache, misses=4, loads=1, load_failures=1, coalesced=1)


@pytest.mark.parametrize("policy", [{}, {"timeout": PATIENCE}], ids=["", "timed"])
def test_a_leader_that_exits_hands_over_to_one_waiter(ask, policy):
    loader, heir = Held(SystemExit()), Held("heir")
    (leader,) = ask(loader, waiting=int(bool(policy)), **policy)
    assert loader.is_running()
    heirs = ask(heir, 4, waiting=4 + bool(policy))
    loader.release()
    heir.release()
    assert results(heirs) == ["heir"] * 4
    assert heir.calls == 1
    assert isinstance(leader.exception(PATIENCE), SystemExit)


@pytest.mark.parametrize("policy", [{}, {"timeout": PATIENCE, "fail_safe": 5}], ids=["", "timed"])
def test_closing_a_cache_lets_no_caller_wait_for_ever_and_logs_no_failure(cache, ask, policy, caplog):
    loader = Held("late")
    callers = ask(loader, 2, waiting=1 + bool(policy), **policy)
    cache.close()
    loader.release()
    assert [type(caller.exception(PATIENCE)) for caller in callers] == [CacheClosed] * 2
    assert caplog.messages == []


@pytest.mark.parametrize("timeout", [None, PATIENCE])
@pytest.mark.parametrize("raised", [StopIteration, StopAsyncIteration, GeneratorExit])
def test_exceptions_that_generators_use_for_themselves_reach_a_caller(cache, raised, timeout):
    calls = []
    with pytest.raises(raised):
        cache.get_or_load("k", lambda: calls.append(1) or outcome(raised()), timeout=timeout)
    assert calls == [1]
    assert cache.get_or_load("k", returns(1)) == 1


# Waits that could never end.


def test_a_loader_that_takes_its_own_key_is_refused_and_others_are_not(cache):
    async def in_a_task():
        return await asyncio.create_task(cache.aget_or_load("k", unreached))

    with pytest.raises(LoadDeadlock, match="loader of 'k' needs 'k', itself or through other loaders"):
        cache.get_or_load("k", lambda: cache.get_or_load("k", unreached))
    with pytest.raises(LoadDeadlock, match="loader of 'a' needs 'a', itself or through other loaders"):
        cache.get_or_load("a", lambda: cache.get_or_load("b", lambda: cache.get_or_load("a", unreached)))
    with pytest.raises(LoadDeadlock):
        asyncio.run(cache.aget_or_load("k", in_a_task))
    with pytest.raises(LoadDeadlock):
        cache.get_or_load("k", lambda: cache.get_or_load("k", unreached, timeout=PATIENCE), timeout=PATIENCE)
    assert cache.get_or_load("k", lambda: cache.get_or_load("other", returns(2))) == 2


@pytest.mark.parametrize("caches", [1, 2])
def test_two_loaders_in_two_threads_that_take_each_others_keys_do_not_hang(make, pool, caches):
    first, second = [make() for _ in range(caches)] * (3 - caches)
    both = threading.Barrier(2)

    def load(cache, key):
        both.wait(PATIENCE)
        return cache.get_or_load(key, unreached)

    callers = [
        pool.submit(first.get_or_load, "a", lambda: load(second, "b")),
        pool.submit(second.get_or_load, "b", lambda: load(first, "a")),
    ]
    assert [type(caller.exception(PATIENCE)) for caller in callers] == [LoadDeadlock] * 2


def test_a_blocking_caller_in_the_loop_of_the_leading_task_loads_apart_and_stores_nothing(cache):
    async def main():
        go = asyncio.Event()
        leading = asyncio.create_task(cache.aget_or_load("k", go.wait))
        await asyncio.sleep(0)
        assert cache.get_or_load("k", returns("apart")) == "apart"
        assert cache.get_or_load("k", lambda: cache.set("k", "written") and "apart") == "apart"
        assert cache.get("k") == "written"
        cache.delete("k")
        with pytest.raises(LoadDeadlock):
            cache.get_or_load("k", lambda: cache.get_or_load("k", unreached))
        assert "k" not in cache
        go.set()
        return await leading

    assert asyncio.run(main()) is True


def test_a_caller_that_blocks_the_loop_that_its_turn_begins_to_need_loads_apart_after_a_while(monkeypatch, cache, pool):
    monkeypatch.setattr("wheelcache.engine.turns.BLOCKED_LOOP", 0.5)
    waits_for_the_loop = Held()

    async def main():
        go = asyncio.Event()
        leading = asyncio.create_task(cache.aget_or_load("y", go.wait))
        await asyncio.sleep(0)
        thread = pool.submit(cache.get_or_load, "x", lambda: waits_for_the_loop() or cache.get_or_load("y", unreached))
        assert waits_for_the_loop.is_running()
        pool.submit(lambda: (until_waiting(), waits_for_the_loop.release()))
        assert cache.get_or_load("x", returns("apart")) == "apart"
        go.set()
        return await leading, await asyncio.wrap_future(thread)

    assert asyncio.run(main()) == (True, True)
