"""Copies in front of a store that can be held back, fail, and be written to by others."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine.near_caches import MISSING, Behind, Down, awaitable, down, held_back, level_of
from tests.engine.test_fork import run
from tests.waiting import PATIENCE, THREADS, until, until_waiting, waiting
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.circuit_breaker import FAILURES, FIRST_PAUSE


@pytest.fixture
def behind():
    behind = Behind()
    yield behind
    behind.let_go.set()


@pytest.fixture
def make(clock):
    """Make a level; tracked, it is trusted from the start."""

    def make_level(*, tracked=False, **options):
        level = level_of(clock, tracked=tracked, **options)
        if tracked:
            level.trust(True)
        return level

    return make_level


@pytest.fixture(params=[False, True], ids=["untold", "tracked"])
def level(make, request):
    return make(tracked=request.param)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(THREADS) as pool:
        yield pool


def lines(caplog):
    return [record.getMessage() for record in caplog.records if record.name == "wheelcache"]


# Reading.


def test_the_second_read_of_a_key_is_a_copy(level, behind):
    behind.values["k"] = 1
    assert [level.get("k", behind.read("k")) for _ in range(3)] == [1, 1, 1]
    assert behind.asked == ["k"]


def test_a_copy_is_kept_no_longer_than_the_timeout(level, behind, clock):
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    behind.values["k"] = 2
    clock.advance(59.9)
    assert level.get("k", behind.read("k")) == 1
    clock.advance(0.1)
    assert level.get("k", behind.read("k")) == 2


def test_that_there_is_nothing_is_not_kept(level, behind):
    assert level.get("k", behind.read("k")) is MISSING
    behind.values["k"] = None
    assert level.get("k", behind.read("k")) is None
    assert level.get("k", behind.read("k")) is None
    assert behind.asked == ["k", "k"]


def test_however_many_miss_a_key_together_one_read_is_made(level, behind, pool):
    behind.values["k"] = 1
    first = held_back(behind, pool, level.get, "k", behind.read("k"))
    others = [pool.submit(level.get, "k", behind.read("k")) for _ in range(THREADS - 1)]
    until_waiting(THREADS - 1)
    behind.let_go.set()
    assert [each.result(PATIENCE) for each in (first, *others)] == [1] * THREADS
    assert behind.asked == ["k"]


def test_however_many_look_together_for_what_is_not_there_all_get_nothing(level, behind, together):
    assert together(lambda _: level.get("k", behind.read("k"))) == [MISSING] * THREADS


def test_many_are_asked_for_once_without_those_that_are_here(level, behind):
    behind.values = {"a": 1, "b": 2, "c": 3}
    level.get("a", behind.read("a"))
    assert level.get_many(["a", "b", "c", "none", "b"], behind.read_many) == {"a": 1, "b": 2, "c": 3}
    assert level.get_many(["a", "b", "c"], behind.read_many) == {"a": 1, "b": 2, "c": 3}
    assert behind.asked == ["a", ["b", "c", "none"]]


def test_none_of_many_asks_for_nothing(level, make, behind):
    untrusted = make(tracked=True)
    untrusted.trust(False)
    for each in (level, untrusted):
        assert each.get_many([], behind.read_many) == {}
        assert asyncio.run(each.aget_many([], None)) == {}
    assert behind.asked == []


def test_keys_may_come_from_an_iterator(level, behind):
    behind.values = {"a": 1, "b": 2}
    assert level.get_many(iter("ab"), behind.read_many) == {"a": 1, "b": 2}
    assert level.write(iter("ab"), lambda: "done") == "done"


def test_a_waiter_for_one_of_many_gets_its_value(level, behind, pool):
    behind.values["k"] = 1
    many = held_back(behind, pool, level.get_many, ["k", "l"], behind.read_many)
    one = pool.submit(level.get, "k", behind.read("k"))
    until_waiting(1)
    behind.let_go.set()
    assert (many.result(PATIENCE), one.result(PATIENCE)) == ({"k": 1}, 1)


def test_a_waiter_for_one_of_many_that_is_not_there_gets_nothing_and_no_error(level, behind, pool):
    many = held_back(behind, pool, level.get_many, ["k", "l"], behind.read_many)
    one = pool.submit(level.get, "k", behind.read("k"))
    until_waiting(1)
    behind.let_go.set()
    assert many.result(PATIENCE) == {}
    assert one.result(PATIENCE) is MISSING


def test_a_waiter_for_one_of_many_gets_its_value_while_tracking_is_lost(make, behind, pool):
    level = make(tracked=True)
    behind.values = {"k": 1, "l": 2}
    many = held_back(behind, pool, level.get_many, ["k", "l"], behind.read_many)
    one = pool.submit(level.get, "k", behind.read("k"))
    until_waiting(1)
    level.trust(False)
    behind.let_go.set()
    assert many.result(PATIENCE) == {"k": 1, "l": 2}
    assert one.result(PATIENCE) == 1


def test_has_looks_at_the_copies_first_and_keeps_none(level, behind):
    assert not level.has("k", behind.has("k"))
    behind.values["k"] = 1
    assert level.has("k", behind.has("k"))
    level.get("k", behind.read("k"))
    assert level.has("k", behind.has("k"))
    assert behind.asked == [("has", "k"), ("has", "k"), "k"]


# What a loader makes.


def test_callers_that_load_together_share_one_loader_and_no_copy_is_kept(level, pool):
    calls = []
    go_on = threading.Event()

    def load():
        calls.append(1)
        assert go_on.wait(PATIENCE)
        return "value"

    futures = [pool.submit(level.load, "k", load) for _ in range(4)]
    until_waiting(3)
    go_on.set()
    assert {each.result(PATIENCE) for each in futures} == {"value"}
    assert len(level.cache) == 0


def test_what_is_loaded_without_trust_is_not_there_when_the_store_has_no_such_key(make, behind):
    level = make(tracked=True)
    level.trust(False)
    assert level.load("k", lambda: "old") == "old"
    assert level.load("k", lambda: "new") == "new"
    assert level.get("k", behind.read("k")) is MISSING
    assert level.cache.get("k", MISSING) is MISSING


def test_a_loader_may_look_for_its_own_key(level, behind):
    assert level.load("k", lambda: level.get("k", behind.read("k"))) is MISSING


def test_a_get_of_a_key_that_others_load_waits_for_the_store_only_and_gets_none_of_their_errors(level, behind, pool):
    loading, go_on = threading.Event(), threading.Event()

    def load():
        loading.set()
        assert go_on.wait(PATIENCE)
        raise ZeroDivisionError

    loads = pool.submit(level.load, "k", load)
    assert loading.wait(PATIENCE)
    assert level.get("k", behind.read("k")) is MISSING
    go_on.set()
    with pytest.raises(ZeroDivisionError):
        loads.result(PATIENCE)


# Writing.


def test_a_write_goes_to_the_store_and_then_there_is_no_copy(level, behind):
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    assert level.write(["k"], lambda: level.cache.get("k")) == 1
    assert level.cache.get("k") is None


def test_what_was_read_before_a_write_and_comes_after_it_is_not_kept(level, behind, pool):
    behind.values["k"] = "old"
    reader = held_back(behind, pool, level.get, "k", behind.read("k"))
    level.write(["k"], lambda: behind.values.update(k="new"))
    behind.let_go.set()
    assert reader.result(PATIENCE) == "old"
    assert level.get("k", behind.read("k")) == "new"


@pytest.mark.parametrize("tell", ["invalidated", "flushed", "cleared here"])
@pytest.mark.parametrize("many", [False, True])
def test_an_invalidation_between_the_read_and_the_fill_wins(make, behind, pool, tell, many):
    level = make(tracked=True)
    behind.values["k"] = "old"
    call = (level.get_many, ["k"], behind.read_many) if many else (level.get, "k", behind.read("k"))
    reader = held_back(behind, pool, *call)
    behind.values["k"] = "new"
    {
        "invalidated": lambda: level.invalidated([b"k"]),
        "flushed": level.flushed,
        "cleared here": lambda: level.clear(lambda: None),
    }[tell]()
    behind.let_go.set()
    assert reader.result(PATIENCE) in ("old", {"k": "old"})
    assert level.cache.get("k") is None
    assert level.get("k", behind.read("k")) == "new"


def test_a_read_that_begins_after_an_invalidation_does_not_return_what_was_read_before_it(make, behind, pool):
    level = make(tracked=True)
    behind.values["k"] = "old"
    early = held_back(behind, pool, level.get, "k", behind.read("k"))
    behind.values["k"] = "new"
    level.invalidated([b"k"])
    late = pool.submit(level.get, "k", behind.read("k"))
    # It reads again, now or when the early read is over.
    assert until(lambda: behind.held == 2 or waiting() == 1)
    behind.let_go.set()
    assert (early.result(PATIENCE), late.result(PATIENCE)) == ("old", "new")


def test_a_write_that_fails_leaves_no_copy_since_it_may_have_been_done(level, behind):
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    down(behind)
    with pytest.raises(Down):
        level.write(["k"], behind.set("k", 2), dropped=None)
    assert level.cache.get("k") is None


def test_a_write_that_is_interrupted_leaves_no_copy(level, behind):
    behind.values["k"] = 1
    level.get("k", behind.read("k"))

    def interrupted():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        level.write(["k"], interrupted)
    assert level.cache.get("k") is None


def test_clearing_clears_both_and_the_copies_if_the_store_fails(level, behind):
    behind.values = {"a": 1}
    level.get("a", behind.read("a"))
    level.clear(behind.values.clear)
    assert (behind.values, len(level.cache)) == ({}, 0)
    behind.values = {"a": 1}
    level.get("a", behind.read("a"))
    down(behind)
    with pytest.raises(Down):
        level.clear(behind.set("a", 1))
    assert len(level.cache) == 0


def test_keys_that_are_told_may_be_any_bytes(make):
    level = make(tracked=True)
    level.invalidated([b"\xff\r\n", "k\u00e4".encode(), b""])


def test_a_write_of_one_key_leaves_the_copies_of_the_others(level, behind):
    behind.values = {"a": 1, "b": 2}
    level.get_many(["a", "b"], behind.read_many)
    level.write(["a"], behind.set("a", 3))
    level.invalidated([b"a"])
    assert level.cache.get("b") == 2


# Trust.


def test_copies_are_not_trusted_before_tracking_is_on(clock, behind):
    level = level_of(clock, tracked=True)
    starts = []
    level.start_tracking = lambda: starts.append(1)
    behind.values["k"] = 1
    assert [level.get("k", behind.read("k")) for _ in range(2)] == [1, 1]
    assert level.get_many(["k"], behind.read_many) == {"k": 1}
    assert (behind.asked, len(starts), len(level.cache)) == (["k", "k", ["k"]], 3, 0)
    level.trust(True)
    assert [level.get("k", behind.read("k")) for _ in range(2)] == [1, 1]
    assert len(behind.asked) == 4


def test_lost_touch_means_that_the_store_is_asked_until_it_is_back_and_copies_were_dropped(make, behind):
    level = make(tracked=True)
    behind.values["k"] = "old"
    level.get("k", behind.read("k"))
    level.trust(False)
    behind.values["k"] = "new"
    assert level.get("k", behind.read("k")) == "new"
    assert level.has("k", behind.has("k"))
    assert level.get_many(["k"], behind.read_many) == {"k": "new"}
    assert behind.asked == ["k", "k", ("has", "k"), ["k"]]
    level.trust(True)
    assert len(level.cache) == 0
    assert level.get("k", behind.read("k")) == "new"


@pytest.mark.parametrize("said", [[False], [False, True], [True], [False, True, False], [True, False, True]])
@pytest.mark.parametrize("many", [False, True])
def test_what_was_read_before_touch_was_lost_is_not_kept_whatever_is_said_meanwhile(make, behind, pool, said, many):
    level = make(tracked=True)
    behind.values["k"] = "old"
    call = (level.get_many, ["k"], behind.read_many) if many else (level.get, "k", behind.read("k"))
    reader = held_back(behind, pool, *call)
    for trusted in said:
        level.trust(trusted)
    behind.let_go.set()
    assert reader.result(PATIENCE) in ("old", {"k": "old"})
    level.trust(True) if not said[-1] else None
    assert level.cache.get("k") is None


def test_what_was_read_without_touch_is_not_kept_when_it_is_back(make, behind, pool):
    level = make(tracked=True)
    level.trust(False)
    behind.values["k"] = "old"
    reader = held_back(behind, pool, level.get, "k", behind.read("k"))
    level.trust(True)
    behind.let_go.set()
    assert reader.result(PATIENCE) == "old"
    assert level.cache.get("k") is None


def test_many_readers_never_see_a_copy_older_than_what_was_told(make, together):
    """Readers, a writer that tells what it wrote, and a thread that loses tracking, all at once."""
    level = make(tracked=True)
    truth = {"k": 0}
    told = [0]

    def run(number):
        if number == 0:
            for version in range(1, 2000):
                truth["k"] = version
                level.invalidated([b"k"])
                told[0] = version
        elif number == 1:
            for _ in range(200):
                level.trust(False)
                level.trust(True)
        else:
            for _ in range(300):
                expected = told[0]
                assert level.get("k", lambda: truth["k"]) >= expected
                expected = told[0]
                assert level.get_many(["k"], lambda keys: {"k": truth["k"]})["k"] >= expected

    assert together(run) == [None] * THREADS


# The store is down.


def test_without_fail_safe_its_error_reaches_the_caller_every_time(level, behind):
    down(behind)
    for _ in range(10):
        with pytest.raises(Down):
            level.get("k", behind.read("k"))
        with pytest.raises(Down):
            level.get_many(["k"], behind.read_many)
        with pytest.raises(Down):
            level.has("k", behind.has("k"))
        with pytest.raises(Down):
            level.read(behind.read("k"))
        with pytest.raises(Down):
            level.write(["k"], behind.set("k", 1), dropped=None)
    assert len(behind.asked) == 50


def test_with_fail_safe_a_copy_past_its_time_is_served_within_its_grace(make, behind, clock):
    level = make(fail_safe=True, grace=100.0)
    behind.values = {"k": 1, "l": 2}
    level.get_many(["k", "l"], behind.read_many)
    clock.advance(60)
    down(behind)
    assert level.get("k", behind.read("k")) == 1
    assert level.get_many(["k", "l", "m"], behind.read_many) == {"k": 1, "l": 2}
    assert level.has("k", behind.has("k"))
    assert not level.has("m", behind.has("m"))
    assert level.get("m", behind.read("m")) is MISSING
    clock.advance(99)
    assert level.get("k", behind.read("k")) == 1
    clock.advance(1)
    assert level.get("k", behind.read("k")) is MISSING
    assert level.get_many(["k", "l"], behind.read_many) == {}


def test_a_copy_past_its_time_is_not_served_while_the_store_answers(make, behind, clock):
    level = make(fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    clock.advance(60)
    del behind.values["k"]
    assert level.get("k", behind.read("k")) is MISSING
    assert level.get_many(["k"], behind.read_many) == {}
    assert not level.has("k", behind.has("k"))


def test_with_fail_safe_and_lost_touch_suspect_copies_are_served_until_the_store_answers(make, behind, clock):
    level = make(tracked=True, fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    level.trust(False)
    down(behind)
    assert level.get("k", behind.read("k")) == 1
    assert level.get_many(["k"], behind.read_many) == {"k": 1}
    level.trust(True)
    assert level.get("k", behind.read("k")) == 1
    behind.error = None
    behind.values["k"] = 2
    clock.advance(FIRST_PAUSE)
    assert level.get("k", behind.read("k")) == 2


def test_what_was_told_to_be_written_is_never_served(make, behind):
    level = make(tracked=True, fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    level.invalidated([b"k"])
    down(behind)
    assert level.get("k", behind.read("k")) is MISSING


def test_writes_are_dropped_or_refused_as_configured_and_never_where_there_is_no_answer(make, behind):
    drops, refuses = make(fail_safe=True, grace=1.0), make(fail_safe=True, grace=1.0, drop_writes=False)
    down(behind)
    assert drops.write(["k"], behind.set("k", 1), dropped="dropped") == "dropped"
    with pytest.raises(Down):
        refuses.write(["k"], behind.set("k", 1), dropped="dropped")
    with pytest.raises(Down):
        drops.write(["k"], behind.set("k", 1))


def test_after_some_failures_the_store_is_left_alone_and_tried_now_and_then(make, behind, clock, caplog):
    level = make(fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    down(behind)
    for _ in range(100):
        assert level.get("k", behind.read("k")) is MISSING
    assert len(behind.asked) == FAILURES
    with pytest.raises(StoreUnavailable, match="'c' failed lately and is left alone"):
        level.write(["k"], behind.set("k", 1))
    clock.advance(FIRST_PAUSE)
    for _ in range(100):
        assert level.get("k", behind.read("k")) is MISSING
    assert len(behind.asked) == FAILURES + 1
    behind.error = None
    clock.advance(10)
    assert level.get("k", behind.read("k")) == 1
    assert len(lines(caplog)) == 2
    assert "'c' fails, and is left alone: Down('gone')" in lines(caplog)[0]
    assert "'c' answers again" in lines(caplog)[1]


def test_reads_and_writes_of_all_kinds_count_for_the_same_circuit(make, behind):
    level = make(fail_safe=True, grace=1.0)
    down(behind)
    level.get_many(["k"], behind.read_many)
    level.has("k", behind.has("k"))
    level.write(["k"], behind.set("k", 1), dropped=None)
    level.get("k", behind.read("k"))
    assert level.read(behind.read("k")) is MISSING
    assert len(behind.asked) == FAILURES


@pytest.mark.parametrize("error", [TypeError("t"), ValueError("v"), KeyError("k"), AttributeError("a")])
def test_an_error_about_the_value_is_no_outage_and_reaches_the_caller(make, behind, error, caplog):
    level = make(fail_safe=True, grace=100.0)
    down(behind, error)
    calls = [
        lambda: level.get("k", behind.read("k")),
        lambda: level.get_many(["k"], behind.read_many),
        lambda: level.has("k", behind.has("k")),
        lambda: level.read(behind.read("k")),
        lambda: level.write(["k"], behind.set("k", 1), dropped=None),
    ]
    for call in calls * 2:
        with pytest.raises(type(error)) as raised:
            call()
        assert raised.value is error
    assert len(behind.asked) == 10
    assert lines(caplog) == []


def test_with_fail_safe_no_read_is_an_error_for_its_waiters_either(make, behind, pool, clock):
    level = make(fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    clock.advance(60)
    go_on = threading.Event()

    def fails():
        assert go_on.wait(PATIENCE)
        raise Down

    futures = [pool.submit(level.get, "k", fails) for _ in range(8)]
    until_waiting(7)
    go_on.set()
    assert [each.result(PATIENCE) for each in futures] == [1] * 8


# Coroutines.


def test_coroutines_read_once_together_and_keep_copies(level, behind):
    behind.values = {"a": 1, "b": 2}

    async def main():
        ones = await asyncio.gather(*(level.aget("a", awaitable(behind.read("a"))) for _ in range(5)))
        none = await asyncio.gather(*(level.aget("none", awaitable(behind.read("none"))) for _ in range(5)))
        many = await level.aget_many(["a", "b", "none"], awaitable(behind.read_many))
        again = await level.aget_many(["a", "b"], awaitable(behind.read_many))
        has = await level.ahas("a", None), await level.ahas("none", awaitable(behind.has("none")))
        return ones, none, many, again, has

    assert asyncio.run(main()) == ([1] * 5, [MISSING] * 5, {"a": 1, "b": 2}, {"a": 1, "b": 2}, (True, False))
    assert behind.asked == ["a", "none", ["b", "none"], ("has", "none")]


def test_coroutines_write_to_the_store_and_then_there_is_no_copy(level, behind):
    async def main():
        behind.values["k"] = 1
        await level.aget("k", awaitable(behind.read("k")))
        await level.awrite(["k"], awaitable(behind.set("k", 2)))
        assert level.cache.get("k") is None
        await level.aget("k", awaitable(behind.read("k")))
        await level.aclear(awaitable(behind.values.clear))
        return await level.aget("k", awaitable(behind.read("k")))

    assert asyncio.run(main()) is MISSING


def test_coroutines_that_load_together_share_one_loader(level):
    calls = []

    async def load():
        calls.append(1)
        await asyncio.sleep(0)
        return "value"

    async def main():
        return await asyncio.gather(*(level.aload("k", load) for _ in range(5)))

    assert (asyncio.run(main()), calls, len(level.cache)) == (["value"] * 5, [1], 0)


def test_a_coroutine_that_is_cancelled_in_a_write_leaves_no_copy(level, behind):
    behind.values["k"] = 1
    level.get("k", behind.read("k"))

    async def main():
        writing = asyncio.create_task(level.awrite(["k"], lambda: asyncio.sleep(PATIENCE)))
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing

    asyncio.run(main())
    assert level.cache.get("k") is None


def test_coroutines_are_as_safe_as_threads_when_the_store_is_down(make, behind, clock):
    level = make(fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    level.get("k", behind.read("k"))
    clock.advance(60)
    down(behind)

    async def main():
        return [
            await level.aget("k", awaitable(behind.read("k"))),
            await level.aget_many(["k", "l"], awaitable(behind.read_many)),
            await level.ahas("k", awaitable(behind.has("k"))),
            await level.aread(awaitable(behind.read("k"))),
            await level.awrite(["l"], awaitable(behind.set("l", 1)), dropped="dropped"),
        ]

    assert asyncio.run(main()) == [1, {"k": 1}, True, MISSING, "dropped"]
    assert len(behind.asked) == 1 + FAILURES


def test_without_trust_coroutines_ask_the_store(make, behind):
    level = make(tracked=True)
    level.trust(False)
    behind.values["k"] = 1

    async def main():
        one = await level.aget("k", awaitable(behind.read("k")))
        many = await level.aget_many(["k"], awaitable(behind.read_many))
        return one, many, await level.ahas("k", awaitable(behind.has("k")))

    assert asyncio.run(main()) == (1, {"k": 1}, True)
    assert len(behind.asked) == 3
    assert len(level.cache) == 0


@pytest.mark.parametrize("many", [False, True])
def test_coroutines_do_not_keep_what_was_read_before_touch_was_lost(make, behind, many):
    level = make(tracked=True)

    async def read(*_):
        level.trust(False)
        level.trust(True)
        return {"k": 1} if many else 1

    asyncio.run(level.aget_many(["k"], read) if many else level.aget("k", read))
    assert level.cache.get("k") is None


# Figures.


def test_copies_are_hits_and_everything_else_is_a_miss(level, behind):
    behind.values = {"a": 1, "b": 2}
    for _ in range(3):
        level.get("a", behind.read("a"))
    level.get_many(["a", "b", "none"], behind.read_many)
    stats = level.cache.stats()
    assert (stats.hits, stats.misses) == (3, 3)


def test_reads_without_trust_are_misses(make, behind):
    level = make(tracked=True)
    level.trust(False)
    level.get("a", behind.read("a"))
    level.get_many(["a", "b"], behind.read_many)
    stats = level.cache.stats()
    assert (stats.hits, stats.misses) == (0, 3)


def test_what_is_served_while_the_store_is_down_counts_as_stale_hits(make, behind, clock):
    level = make(fail_safe=True, grace=100.0)
    behind.values = {"k": 1}
    level.get("k", behind.read("k"))
    clock.advance(60)
    down(behind)
    level.get("k", behind.read("k"))
    level.get_many(["k", "l"], behind.read_many)
    stats = level.cache.stats()
    assert (stats.hits, stats.misses, stats.stale_hits) == (2, 2, 2)


def test_a_key_that_is_nowhere_is_no_failed_load(level, behind):
    level.get("none", behind.read("none"))
    level.get_many(["none"], behind.read_many)
    assert level.cache.stats().load_failures == 0


def test_what_the_store_said_is_gone_does_not_come_back_when_it_fails(make, behind, clock):
    level = make(fail_safe=True, grace=100.0)
    behind.values = {"k": 1, "l": 2}
    level.get_many(["k", "l"], behind.read_many)
    clock.advance(60)
    behind.values.clear()
    assert level.get("k", behind.read("k")) is MISSING
    assert level.get_many(["l"], behind.read_many) == {}
    down(behind)
    assert level.get("k", behind.read("k")) is MISSING
    assert level.get_many(["k", "l"], behind.read_many) == {}


@pytest.mark.parametrize(
    "error", [ModuleNotFoundError("moved"), EOFError("torn"), type("ResponseError", (Exception,), {})()]
)
def test_what_is_about_one_value_opens_the_circuit_for_no_other(make, behind, error):
    level = make(fail_safe=True, grace=100.0)
    behind.values["k"] = 1
    down(behind, error)
    for _ in range(10):
        with pytest.raises(type(error)):
            level.get("broken", behind.read("broken"))
    behind.error = None
    assert level.get("k", behind.read("k")) == 1


def test_a_write_that_goes_on_after_its_caller_was_cancelled_leaves_no_copy(make):
    level = make()
    stored = {"k": "old"}

    async def main():
        go = asyncio.Event()

        async def write():
            await go.wait()
            stored["k"] = "new"

        writing = asyncio.create_task(level.awrite(["k"], write, dropped=None))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert level.get("k", lambda: stored["k"]) == "old"
        go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert level.get("k", lambda: stored["k"]) == "new"

    asyncio.run(main())


def test_a_child_of_a_fork_has_no_trust_in_the_copies_that_it_inherits():
    assert run(
        """
        from tests.engine.near_caches import level_of
        from wheelcache.runtime.clock import SystemClock

        level = level_of(SystemClock.monotonic, tracked=True, fail_safe=True, grace=100.0)
        level.trust(True)
        level.get("k", lambda: "old")

        def fails():
            raise ConnectionError

        def child():
            assert level.get("j", lambda: "j") == "j"
            assert level.cache.get("k") is None
            # A copy for outages.
            assert level.get("k", fails) == "old"
            assert level.get("k", lambda: "new") == "new"

        print(in_child(child), level.cache.get("k"))
        """
    ) == ["0", "old"]
