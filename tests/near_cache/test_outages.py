"""The store fails. With FAIL_SAFE, copies past their end are served, but none older than a value read since."""

import pytest

from tests.near_cache.stores import CALLS, FAIL_SAFE, MISSING, Calls, Down, Store, held
from tests.runtime.forks import fork
from tests.waiting import PATIENCE
from wheelcache.errors import StoreUnavailable
from wheelcache.near_cache.store_state import FAILURES, FIRST_PAUSE
from wheelcache.near_cache.written_timeouts import NewTimeout
from wheelcache.runtime.steps import drive

pytestmark = pytest.mark.pairs(full="make", of="make")


@pytest.fixture
def near(make):
    """A near cache with FAIL_SAFE whose copies are tracked and trusted."""
    return make(tracked=True, **FAIL_SAFE)


READS = {"get": lambda near: near.get("k"), "get_many": lambda near: near.get_many(["k"]).get("k", MISSING)}


@pytest.fixture(params=READS.values(), ids=READS)
def read(request):
    return request.param


def in_an_outage(near):
    """Return the result of a read of "k" when the store has just failed."""
    before, near.store.error = near.store.error, Down("gone")
    found = drive(near.near.get("k", lambda: near.store.read("k")))
    near.store.error = before
    drive(near.near.read(lambda: None))
    return found


# Copies that are served.


def test_a_value_that_the_store_returns_past_its_timeout_leaves_no_old_copy(make, store, clock):
    near = make(**FAIL_SAFE)
    near.set("k", 1, new_timeout=NewTimeout(10))
    assert near.get("k") == 1
    clock.advance(10)
    assert near.get("k") == 1
    store.error = Down("gone")
    assert near.get("k") is MISSING


@pytest.mark.parametrize("tracked", [False, True])
def test_a_copy_past_its_time_is_served_within_its_grace_and_counts_as_a_stale_hit(make, store, clock, tracked):
    near = make(tracked=tracked, **FAIL_SAFE)
    store.values = {"k": 1, "l": 2}
    near.get_many(["k", "l"])
    clock.advance(60)
    store.error = Down("gone")
    assert near.get("k") == 1
    assert near.get_many(["k", "l", "m"]) == {"k": 1, "l": 2}
    assert (near.has("k"), near.has("m"), near.get("m")) == (True, False, MISSING)
    stats = near.copies.stats()
    assert (stats.hits, stats.misses, stats.stale_hits) == (0, 4, 4)
    clock.advance(99)
    assert near.get("k") == 1
    clock.advance(1)
    assert near.get("k") is MISSING
    assert near.get_many(["k", "l"]) == {}


def test_a_copy_past_its_time_is_not_served_after_the_store_had_no_value(make, store, clock, read):
    near = make(**FAIL_SAFE)
    store.values["k"] = 1
    near.get("k")
    clock.advance(60)
    store.values.clear()
    assert read(near) is MISSING
    store.error = Down("gone")
    assert read(near) is MISSING


# Tracking is lost, too.


@pytest.mark.pairs
@pytest.mark.parametrize("regained", [False, True])
def test_copies_of_before_tracking_was_lost_are_served_until_the_store_answers(near, store, read, regained):
    store.values["k"] = "v1"
    read(near)
    near.near.trust(False)
    if regained:
        near.near.trust(True)
    assert near.copies.get("k") is None
    # Asking for it does not remove it.
    assert [in_an_outage(near), in_an_outage(near)] == ["v1", "v1"]
    store.values["k"] = "v2"
    assert read(near) == "v2"
    assert in_an_outage(near) == "v2"


SEES_THAT_IT_IS_GONE = {**READS, "has": lambda near: near.has("k"), "read": lambda near: near.read("k")}


def test_a_read_without_the_copies_drops_an_older_one(near, store):
    store.values["k"] = "v1"
    near.get("k")
    near.near.trust(False)
    store.values["k"] = "v2"
    assert near.read("k") == "v2"
    assert in_an_outage(near) is MISSING


@pytest.mark.parametrize("see", SEES_THAT_IT_IS_GONE.values(), ids=SEES_THAT_IT_IS_GONE)
def test_a_key_that_was_found_to_be_gone_while_tracking_is_lost_is_not_served(near, store, see):
    store.values["k"] = "v1"
    near.get("k")
    near.near.trust(False)
    store.values.clear()
    assert see(near) in (MISSING, False)
    assert in_an_outage(near) is MISSING


def test_a_value_that_is_read_without_tracking_is_served_in_an_outage_until_its_grace_ends(near, store, clock, read):
    near.near.trust(False)
    for value in ("v1", "v2"):
        store.values["k"] = value
        assert read(near) == value
    near.near.trust(True)
    assert near.copies.get("k") is None
    near.near.trust(False)
    clock.advance(159.9)
    assert in_an_outage(near) == "v2"
    clock.advance(0.1)
    assert in_an_outage(near) is MISSING


@pytest.mark.pairs(full="make")
@pytest.mark.parametrize("is_lost", [False, True])
@pytest.mark.parametrize("write", ["invalidated", "own"])
def test_what_was_written_is_never_served_also_around_a_loss_of_tracking(near, store, read, write, is_lost):
    store.values["k"] = "v1"
    read(near)
    if is_lost:
        near.near.trust(False)
    if write == "invalidated":
        near.near.trust(True)
        near.near.invalidated([b"k"])
    else:
        near.set("k", "v2")
    assert in_an_outage(near) is MISSING


# Slow reads.


FASTER = {**READS, "set": lambda near: near.set("k", "v2")}


@pytest.mark.pairs
@pytest.mark.parametrize("faster", FASTER.values(), ids=FASTER)
def test_a_slow_read_does_not_bring_back_what_was_replaced_meanwhile(near, store, pool, read, faster):
    near.near.trust(False)
    store.values["k"] = "v1"
    reading = held(store, pool, read, near)
    faster(Calls(near.near, Store({"k": "v2"}), near.by_tasks))
    store.released.set()
    assert reading.result(PATIENCE) == "v1"
    assert in_an_outage(near) is MISSING


@pytest.mark.pairs
@pytest.mark.parametrize("regained", [False, True])
def test_what_was_read_when_tracking_was_lost_meanwhile_is_a_copy_for_outages_only(near, store, pool, read, regained):
    store.values["k"] = "v1"
    reading = held(store, pool, read, near)
    near.near.trust(False)
    if regained:
        near.near.trust(True)
    store.released.set()
    assert reading.result(PATIENCE) == "v1"
    assert near.copies.get("k") is None
    assert in_an_outage(near) == "v1"


def test_a_child_of_a_fork_has_no_trust_in_the_copies_that_it_inherits(near, store):
    store.values = {"k": "old", "j": "j"}
    near.get("k")

    def child():
        store.values["k"] = "new"
        assert (near.get("j"), near.copies.get("k")) == ("j", None)
        assert (in_an_outage(near), near.get("k")) == ("old", "new")

    assert fork(child)
    assert near.copies.get("k") == "old"


# The store is left alone.


def test_writes_are_dropped_with_fail_safe_and_never_where_there_is_no_answer(make, store):
    drops, refuses = make(**FAIL_SAFE), make()
    store.error = Down("gone")
    assert drops.set("k", 1, result_if_dropped="dropped") == "dropped"
    with pytest.raises(Down):
        refuses.set("k", 1, result_if_dropped="dropped")
    with pytest.raises(Down):
        drops.set("k", 1)


def test_after_some_failures_the_store_is_left_alone_and_tried_now_and_then(make, store, clock, lines):
    near = make(**FAIL_SAFE)
    store.values["k"] = 1
    store.error = Down("gone")
    for _ in range(10):
        assert near.get("k") is MISSING
    assert len(store.asked) == FAILURES
    with pytest.raises(StoreUnavailable, match="'c' failed recently and is not called"):
        near.set("k", 1)
    clock.advance(FIRST_PAUSE)
    for _ in range(10):
        assert near.get("k") is MISSING
    assert len(store.asked) == FAILURES + 1
    store.error = None
    clock.advance(10)
    assert near.get("k") == 1
    failed, back = lines()
    assert "'c' fails (Down('gone')); calling it rarely until it answers." in failed
    assert "'c' answers again" in back


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_of_all_kinds_count_for_the_same_circuit(make, store, call):
    near = make(**FAIL_SAFE)
    store.error = Down("gone")
    assert call(near) in (MISSING, {}, False, None)
    for _ in range(FAILURES):
        near.read("k")
    assert len(store.asked) == FAILURES


@pytest.mark.parametrize("error", [ValueError("v"), type("TimeLimit", (Exception,), {})()], ids=repr)
def test_an_error_about_the_value_or_a_time_limit_is_no_outage_and_reaches_the_caller(make, store, error, lines):
    near = make(**FAIL_SAFE)
    store.error = error
    for call in [*CALLS.values()] * 2:
        with pytest.raises(type(error)) as raised:
            call(near)
        assert raised.value is error
    assert len(store.asked) == 10
    assert lines() == []
    stats = near.copies.stats().store
    assert (stats.reads.errors, stats.writes.errors, stats.open_breakers) == (0, 0, 0)
