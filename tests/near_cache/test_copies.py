"""Copies in front of a store that answers: which are kept, and which are returned."""

import asyncio
from functools import partial

import pytest

from tests.near_cache.stores import MISSING, Down, Stored, held, near_cache, sought
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache.runtime.steps import drive, drive_async, run

pytestmark = pytest.mark.pairs

# Reading.


def test_the_second_read_of_a_key_is_a_copy_until_its_timeout(near, store, clock):
    store.values["k"] = 1
    assert [near.get("k") for _ in range(3)] == [1, 1, 1]
    store.values["k"] = 2
    clock.advance(59.9)
    assert near.get("k") == 1
    assert store.asked == ["k"]
    clock.advance(0.1)
    assert near.get("k") == 2


def test_that_there_is_nothing_is_not_kept_and_none_is_a_value(near, store):
    assert near.get("k") is MISSING
    store.values["k"] = None
    assert [near.get("k"), near.get("k")] == [None, None]
    assert store.asked == ["k", "k"]


@pytest.mark.parametrize("value", [1, MISSING])
def test_callers_that_miss_a_key_together_read_once(near, store, pool, value):
    if value is not MISSING:
        store.values["k"] = value
    first = held(store, pool, near.get, "k")
    others = [pool.submit(near.get, "k") for _ in range(7)]
    until_waiting(7)
    store.released.set()
    assert [each.result(PATIENCE) for each in (first, *others)] == [value] * 8
    assert store.asked == ["k"]


def test_many_are_asked_for_once_without_those_that_are_here(near, store):
    store.values = {"a": 1, "b": 2, "c": 3}
    near.get("a")
    assert near.get_many(iter(["a", "b", "c", "none", "b"])) == {"a": 1, "b": 2, "c": 3}
    assert near.get_many(["a", "b", "c"]) == {"a": 1, "b": 2, "c": 3}
    assert near.get_many([]) == {}
    assert store.asked == ["a", ["b", "c", "none"]]


@pytest.mark.parametrize("value", [1, MISSING])
@pytest.mark.parametrize("is_lost", [False, True])
def test_a_waiter_for_one_of_many_gets_what_they_bring(make, store, pool, value, is_lost):
    near = make(tracked=True)
    store.values = {} if value is MISSING else {"k": value}
    many = held(store, pool, near.get_many, ["k", "l"])
    one = pool.submit(near.get, "k")
    until_waiting(1)
    if is_lost:
        near.near.trust(False)
    store.released.set()
    assert many.result(PATIENCE) == store.values
    assert one.result(PATIENCE) is value


def test_has_looks_at_the_copies_first_and_keeps_none(near, store):
    assert not near.has("k")
    store.values["k"] = 1
    assert near.has("k")
    near.get("k")
    assert near.has("k")
    assert store.asked == [("has", "k"), ("has", "k"), "k"]


# Values of loaders.


def test_a_caller_that_missed_before_another_one_stored_the_value_finds_it_in_the_store(near, store, pool):
    loaded = []

    def load():
        loaded.append(1)
        return "computed"

    def add(value, computation):
        yield from near.near.write(["k"], partial(store.set, "k", value), values=Stored(fill=computation))
        return True

    def read_before_another():
        found = store.read("k")
        if not loaded:
            other = near.near.get_or_add(sought("k", partial(store.read, "k"), load, add), is_missing=True)
            assert pool.submit(run, other).result(PATIENCE) == "computed"
        return found

    assert run(near.near.get_or_add(sought("k", read_before_another, load, add))) == "computed"
    assert loaded == [1]


def test_what_is_loaded_without_trust_is_not_there_when_the_store_has_no_such_key(make):
    near = make(tracked=True, trusted=False)
    assert [near.load("k", lambda: "old"), near.load("k", lambda: "new")] == ["old", "new"]
    assert near.get("k") is MISSING
    assert near.copies.get("k", MISSING) is MISSING


# Writing.


class Interruption(BaseException):
    pass


@pytest.mark.parametrize("error", [Down("gone"), Interruption()])
@pytest.mark.parametrize("how", ["set", "clear"])
def test_a_write_that_fails_leaves_no_copy_since_it_may_have_been_done(near, store, error, how):
    store.values["k"] = 1
    near.get("k")
    store.error = error
    with pytest.raises(type(error)):
        near.set("k", 2, result_if_dropped=None) if how == "set" else near.clear()
    assert near.copies.get("k") is None


def test_a_cancelled_write_leaves_no_copy_neither_at_once_nor_when_it_is_done(clock):
    near = near_cache(clock)
    stored = {"k": "old"}

    async def main():
        go = asyncio.Event()

        async def write():
            await go.wait()
            stored["k"] = "new"

        drive(near.get("k", lambda: stored["k"]))
        writing = asyncio.create_task(drive_async(near.write(["k"], write, result_if_dropped=None)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        writing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await writing
        assert near.cache.get("k") is None
        assert drive(near.get("k", lambda: stored["k"])) == "old"
        go.set()
        for _ in range(5):
            await asyncio.sleep(0)
        assert drive(near.get("k", lambda: stored["k"])) == "new"

    asyncio.run(main())


TELLS = {
    "written here": lambda near: drive(near.write(["k"], lambda: None)),
    "invalidated": lambda near: near.invalidated([b"k"]),
    "flushed": lambda near: near.flushed(),
    "cleared here": lambda near: drive(near.clear(lambda: None)),
}


@pytest.mark.pairs(full="near, make")
@pytest.mark.parametrize("tell", TELLS.values(), ids=TELLS)
@pytest.mark.parametrize("many", [False, True])
def test_an_invalidation_between_the_read_and_the_fill_wins(near, store, pool, tell, many):
    store.values["k"] = "old"
    reader = held(store, pool, *((near.get_many, ["k"]) if many else (near.get, "k")))
    store.values["k"] = "new"
    tell(near.near)
    store.released.set()
    assert reader.result(PATIENCE) in ("old", {"k": "old"})
    assert near.copies.get("k") is None
    assert near.get("k") == "new"


def test_a_read_that_begins_after_an_invalidation_does_not_return_what_was_read_before_it(make, store, pool):
    near = make(tracked=True)
    store.values["k"] = "old"
    early = held(store, pool, near.get, "k")
    store.values["k"] = "new"
    near.near.invalidated([b"k"])
    late = pool.submit(near.get, "k")
    # It reads again, now or when the early read is over.
    assert until(lambda: store.held == 2 or waiting() == 1)
    store.released.set()
    assert (early.result(PATIENCE), late.result(PATIENCE)) == ("old", "new")


def test_what_is_told_concerns_its_key_only_which_may_be_any_bytes(make, store):
    near = make(tracked=True)
    store.values["other"] = 1
    near.get("other")
    near.near.invalidated([b"\xff\r\n", "k\u00e4".encode(), b"", b"k"])
    assert near.copies.get("other") == 1


# Trust.


def test_copies_are_not_used_before_tracking_is_on_and_reads_are_misses(make, store):
    near = make(tracked=True, trusted=False)
    starts = []
    near.near.start_tracking = lambda: starts.append(1)
    store.values["k"] = 1
    assert [near.get("k"), near.get("k"), near.get_many(["k"]), near.has("k")] == [1, 1, {"k": 1}, True]
    assert near.get_many([]) == {}
    assert store.asked == ["k", "k", ["k"], ("has", "k")]
    assert (len(starts), len(near.copies)) == (3, 0)
    assert (near.copies.stats().hits, near.copies.stats().misses) == (0, 3)
    near.near.trust(True)
    assert [near.get("k"), near.get("k")] == [1, 1]
    assert len(store.asked) == 5


def test_while_tracking_is_lost_the_store_is_asked_and_copies_of_before_are_dropped(make, store):
    near = make(tracked=True)
    store.values["k"] = "old"
    near.get("k")
    near.near.trust(False)
    store.values["k"] = "new"
    assert [near.get("k"), near.has("k"), near.get_many(["k"])] == ["new", True, {"k": "new"}]
    assert len(store.asked) == 4
    near.near.trust(True)
    assert len(near.copies) == 0
    assert near.get("k") == "new"


@pytest.mark.parametrize(
    ("before", "said"), [(True, [False]), (True, [True]), (True, [False, True]), (True, [True, False]), (False, [True])]
)
@pytest.mark.parametrize("many", [False, True])
def test_what_was_read_around_a_loss_of_tracking_is_not_kept(make, store, pool, before, said, many):
    near = make(tracked=True, trusted=before)
    store.values["k"] = "old"
    reader = held(store, pool, *((near.get_many, ["k"]) if many else (near.get, "k")))
    for trusted in said:
        near.near.trust(trusted)
    store.released.set()
    assert reader.result(PATIENCE) in ("old", {"k": "old"})
    near.near.trust(True) if not said[-1] else None
    assert near.copies.get("k") is None


def test_without_tracking_no_caller_waits_for_the_read_of_another(make, store, pool):
    """It may have been read before a write that the second caller knows of."""
    near = make(tracked=True, trusted=False)
    store.values["k"] = "v1"
    slow = held(store, pool, near.get, "k")
    assert drive(near.near.get("k", lambda: "v2")) == "v2"
    store.released.set()
    assert slow.result(PATIENCE) == "v1"
