"""The store fails. With FAIL_SAFE, copies past their time are served, but none older than what was read since."""

import asyncio
import itertools

import pytest

from tests.near_cache.stores import FAIL_SAFE, MISSING, Down, Store, held, near_cache
from tests.runtime.forks import fork
from tests.waiting import PATIENCE, THREADS, until_waiting
from wheelcache.errors import StoreUnavailable
from wheelcache.loading.steps import drive, drive_async
from wheelcache.near_cache.circuit_breaker import FAILURES, FIRST_PAUSE
from wheelcache.stats import LOAD_BOUNDS


@pytest.fixture
def near(make):
    """With FAIL_SAFE, tracked and trusted."""
    return make(tracked=True, **FAIL_SAFE)


READS = {"get": lambda near: near.get("k"), "get_many": lambda near: near.get_many(["k"]).get("k", MISSING)}


@pytest.fixture(params=READS.values(), ids=READS)
def read(request):
    return request.param


def in_an_outage(near):
    """What a read of "k" brings when the store has just failed."""
    before, near.store.error = near.store.error, Down("gone")
    found = drive(near.near.get("k", lambda: near.store.read("k")))
    near.store.error = before
    drive(near.near.read(lambda: None))
    return found


CALLS = {
    "get": lambda near: near.get("k"),
    "get_many": lambda near: near.get_many(["k"]),
    "has": lambda near: near.has("k"),
    "read": lambda near: near.read("k"),
    "set": lambda near: near.set("k", 1, dropped=None),
}


@pytest.mark.parametrize("tracked", [False, True])
def test_without_fail_safe_the_error_of_the_store_reaches_the_caller_every_time(make, store, tracked):
    near = make(tracked=tracked)
    store.error = Down("gone")
    for call in [*CALLS.values()] * 3:
        with pytest.raises(Down):
            call(near)
    assert len(store.asked) == 15


# Which copies are served.


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
    assert (stats.hits, stats.misses, stats.stale_hits) == (4, 4, 4)
    clock.advance(99)
    assert near.get("k") == 1
    clock.advance(1)
    assert near.get("k") is MISSING
    assert near.get_many(["k", "l"]) == {}


def test_a_copy_past_its_time_is_not_served_while_the_store_answers_nor_after_it_said_there_is_none(
    make, store, clock, read
):
    near = make(**FAIL_SAFE)
    store.values["k"] = 1
    near.get("k")
    clock.advance(60)
    store.values.clear()
    assert read(near) is MISSING
    assert not near.has("k")
    store.error = Down("gone")
    assert read(near) is MISSING


def test_waiters_of_a_read_that_fails_get_the_copy_too(make, store, clock, pool):
    near = make(**FAIL_SAFE)
    store.values["k"] = 1
    near.get("k")
    clock.advance(60)

    class Fails(Store):
        def read(self, key):
            super().read(key)
            raise Down("gone")

    failing = Fails()
    first = held(failing, pool, near.beside(failing).get, "k")
    others = [pool.submit(near.get, "k") for _ in range(7)]
    until_waiting(7)
    failing.released.set()
    assert [each.result(PATIENCE) for each in (first, *others)] == [1] * 8


def test_what_was_told_to_be_written_is_never_served(near, store):
    store.values["k"] = 1
    near.get("k")
    near.near.invalidated([b"k"])
    assert in_an_outage(near) is MISSING


# Tracking is lost, too.


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


@pytest.mark.parametrize("see", SEES_THAT_IT_IS_GONE.values(), ids=SEES_THAT_IT_IS_GONE)
def test_a_key_that_was_found_to_be_gone_while_tracking_is_lost_is_not_served(near, store, see):
    store.values["k"] = "v1"
    near.get("k")
    near.near.trust(False)
    store.values.clear()
    assert see(near) in (MISSING, False)
    assert in_an_outage(near) is MISSING


def test_a_read_beside_the_copies_drops_an_older_one(near, store):
    store.values["k"] = "v1"
    near.get("k")
    near.near.trust(False)
    store.values["k"] = "v2"
    assert near.read("k") == "v2"
    assert in_an_outage(near) is MISSING


def test_what_is_read_while_tracking_is_lost_is_served_in_an_outage_only_within_its_timeout_and_grace(
    near, store, clock, read
):
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


def test_copies_outlive_repeated_losses_of_tracking(near, store):
    store.values = {f"k{number}": number for number in range(30)}
    for number in range(0, 30, 2):
        near.get(f"k{number}")
    for loss in range(7):
        near.near.trust(False)
        near.get(f"k{2 * loss + 1}")
        near.near.trust(True)
    near.near.trust(False)
    store.error = Down("gone")
    assert near.get_many(list(store.values)) == {f"k{number}": number for number in (*range(15), *range(16, 30, 2))}


@pytest.mark.parametrize("write", ["told", "own"])
def test_what_was_written_around_a_loss_of_tracking_is_not_served(near, store, read, write):
    store.values["k"] = "v1"
    read(near)
    near.near.trust(False)
    if write == "told":
        near.near.trust(True)
        near.near.invalidated([b"k"])
    else:
        near.set("k", "v2")
    assert in_an_outage(near) is MISSING


# Slow reads.


FASTER = {**READS, "set": lambda near: near.set("k", "v2")}


@pytest.mark.parametrize("faster", FASTER.values(), ids=FASTER)
def test_a_slow_read_does_not_bring_back_what_was_replaced_meanwhile(near, store, pool, read, faster):
    near.near.trust(False)
    store.values["k"] = "v1"
    reading = held(store, pool, read, near)
    faster(near.beside(Store({"k": "v2"})))
    store.released.set()
    assert reading.result(PATIENCE) == "v1"
    assert in_an_outage(near) is MISSING


def test_reads_that_overlap_and_find_the_same_keep_the_copy(near, store, pool):
    near.near.trust(False)
    store.values["k"] = "v1"
    near.get("k")
    slow = held(store, pool, near.get, "k")
    assert near.beside(Store(store.values)).get_many(["k"]) == {"k": "v1"}
    store.released.set()
    assert slow.result(PATIENCE) == "v1"
    assert in_an_outage(near) == "v1"


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


def test_threads_that_read_while_tracking_is_lost_never_get_what_is_older_than_their_last_read(clock, together):
    """A number that is counted up, and never told. Every thread reads it, and then fails to."""
    near = near_cache(clock, tracked=True, **FAIL_SAFE)
    truth = itertools.count()

    def fails():
        raise Down("gone")

    def run(number):
        for _ in range(100):
            # So that the circuit breaker lets reads through now and then.
            clock.advance(0.01)
            least = drive(near.get("k", lambda: next(truth)))
            found = drive(near.get("k", fails))
            assert MISSING in (least, found) or found >= least

    assert together(run) == [None] * THREADS


def test_without_fail_safe_no_copy_is_kept_of_what_is_read_while_tracking_is_lost(make, store, read):
    near = make(tracked=True)
    store.values["k"] = "v1"
    near.near.trust(False)
    read(near)
    near.near.trust(True)
    assert len(near.copies) == 0


def test_a_child_of_a_fork_has_no_trust_in_the_copies_that_it_inherits(clock):
    near = near_cache(clock, tracked=True, **FAIL_SAFE)
    near.trust(True)
    drive(near.get("k", lambda: "old"))

    def fails():
        raise Down("gone")

    def child():
        found = (
            drive(near.get("j", lambda: "j")),
            near.cache.get("k"),
            drive(near.get("k", fails)),
            drive(near.get("k", lambda: "new")),
        )
        # The third is a copy for outages.
        assert found == ("j", None, "old", "new")

    assert fork(child)
    assert near.cache.get("k") == "old"


# The store is left alone.


def test_writes_are_dropped_or_refused_as_configured_and_never_where_there_is_no_answer(make, store):
    drops, refuses = make(**FAIL_SAFE), make(**FAIL_SAFE, drop_writes=False)
    store.error = Down("gone")
    assert drops.set("k", 1, dropped="dropped") == "dropped"
    with pytest.raises(Down):
        refuses.set("k", 1, dropped="dropped")
    with pytest.raises(Down):
        drops.set("k", 1)


def test_after_some_failures_the_store_is_left_alone_and_tried_now_and_then(make, store, clock, lines):
    near = make(**FAIL_SAFE)
    store.values["k"] = 1
    store.error = Down("gone")
    for _ in range(10):
        assert near.get("k") is MISSING
    assert len(store.asked) == FAILURES
    with pytest.raises(StoreUnavailable, match="'c' failed lately and is left alone"):
        near.set("k", 1)
    clock.advance(FIRST_PAUSE)
    for _ in range(10):
        assert near.get("k") is MISSING
    assert len(store.asked) == FAILURES + 1
    store.error = None
    clock.advance(10)
    assert near.get("k") == 1
    failed, back = lines()
    assert "'c' fails, and is left alone: Down('gone')" in failed
    assert "'c' answers again" in back


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_calls_of_all_kinds_count_for_the_same_circuit(make, store, call):
    near = make(**FAIL_SAFE)
    store.error = Down("gone")
    assert call(near) in (MISSING, {}, False, None)
    for _ in range(FAILURES):
        near.read("k")
    assert len(store.asked) == FAILURES


ABOUT_THE_VALUE = [
    *(TypeError("t"), ValueError("v"), KeyError("k"), AttributeError("a")),
    *(ModuleNotFoundError("moved"), EOFError("torn"), type("ResponseError", (Exception,), {})()),
]


@pytest.mark.parametrize("error", ABOUT_THE_VALUE, ids=repr)
def test_an_error_about_the_value_is_no_outage_and_reaches_the_caller(make, store, error, lines):
    near = make(**FAIL_SAFE)
    store.error = error
    for call in [*CALLS.values()] * 2:
        with pytest.raises(type(error)) as raised:
            call(near)
        assert raised.value is error
    assert len(store.asked) == 10
    assert lines() == []


# Its figures.


class Slow(Store):
    """Takes a while to answer, also to fail."""

    def __init__(self, clock, seconds, values=()):
        super().__init__(values)
        self.clock = clock
        self.seconds = seconds

    def _ask(self, what, answer):
        self.clock.advance(self.seconds)
        return super()._ask(what, answer)


def figures(near):
    return near.copies.stats().store


def counted(calls):
    return calls.calls, calls.errors, calls.refused


def bucket(calls):
    """The bound of the only bucket with any call."""
    (found,) = (number for number, count in enumerate(calls.buckets) if count)
    return LOAD_BOUNDS[found]


@pytest.mark.parametrize("options", [{}, FAIL_SAFE], ids=["plain", "fail-safe"])
def test_calls_of_the_store_are_counted_and_timed_and_hits_are_none(make, clock, options):
    near = make(**options).beside(Slow(clock, 0.25, {"k": 1, "l": 2}))
    for _ in range(3):
        near.get("k")
        near.get_many(["k", "l"])
    near.has("m")
    near.read("k")
    near.store.seconds = 0.03
    near.set("m", 3)
    near.clear()
    reads, writes = figures(near).reads, figures(near).writes
    assert (counted(reads), counted(writes)) == ((4, 0, 0), (2, 0, 0))
    assert (bucket(reads), bucket(writes)) == (0.25, 0.05)
    assert (reads.seconds, writes.seconds) == (pytest.approx(1.0), pytest.approx(0.06, abs=1e-5))


def test_without_fail_safe_every_error_is_counted_and_no_call_is_refused(make, clock):
    near = make().beside(Slow(clock, 2.0))
    near.store.error = Down("gone")
    for call in [*CALLS.values()] * 3:
        with pytest.raises(Down):
            call(near)
    stats = figures(near)
    assert (counted(stats.reads), counted(stats.writes)) == ((12, 12, 0), (3, 3, 0))
    assert bucket(stats.reads) == 2.5
    assert (stats.breakers, stats.open_breakers) == (0, 0)


def test_what_the_breaker_keeps_from_the_store_is_refused_and_its_state_is_told(make, store, clock):
    near = make(**FAIL_SAFE)
    assert (figures(near).breakers, figures(near).open_breakers) == (1, 0)
    store.error = Down("gone")
    for _ in range(10):
        near.get("k")
        near.set("k", 1, dropped=None)
    stats = figures(near)
    assert stats.reads.errors + stats.writes.errors == stats.reads.calls + stats.writes.calls == FAILURES
    assert stats.reads.refused + stats.writes.refused == 20 - FAILURES
    assert (stats.breakers, stats.open_breakers) == (1, 1)
    store.error = None
    clock.advance(10)
    near.get("k")
    assert figures(near).open_breakers == 0


@pytest.mark.parametrize("error", [TypeError("unhashable"), ValueError("no number")])
def test_an_error_about_the_key_or_the_value_is_none_of_the_store(make, store, error):
    near = make(**FAIL_SAFE)
    store.error = error
    with pytest.raises(type(error)):
        near.get("k")
    assert counted(figures(near).reads) == (1, 0, 0)


def test_the_figures_tell_whether_writes_are_told_where_they_are_to_be(make):
    untold, near = make(), make(tracked=True, trusted=False)
    near.set("k", 1)
    for each in (untold, near):
        assert (figures(each).trackers, figures(each).trusted) == (0, 0)
        # Has the store tell, if it does.
        each.get("k")
    assert (figures(untold).trackers, figures(untold).trusted) == (0, 0)
    for trusted in (False, True, False):
        near.near.trust(trusted)
        assert (figures(near).trackers, figures(near).trusted) == (1, trusted)


def test_calls_that_are_cancelled_are_timed_until_they_end(clock):
    """A read ends with its task, a write goes on."""
    near = near_cache(clock, **FAIL_SAFE)
    begun, released = asyncio.Event(), asyncio.Event()

    async def slow():
        clock.advance(0.5)
        begun.set()
        await released.wait()
        clock.advance(0.5)

    async def cancelled(steps):
        begun.clear()
        task = asyncio.create_task(drive_async(steps))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def main():
        await cancelled(near.read(slow))
        await cancelled(near.write(["k"], slow, dropped=None))
        stats = near.cache.stats().store
        assert (counted(stats.reads), stats.reads.seconds) == ((1, 0, 0), 0.5)
        assert counted(stats.writes) == (0, 0, 0)
        released.set()
        while not near.cache.stats().store.writes.calls:
            await asyncio.sleep(0)
        stats = near.cache.stats().store
        assert (counted(stats.writes), stats.writes.seconds) == ((1, 0, 0), 1.0)
        assert stats.open_breakers == 0

    asyncio.run(main())


def test_the_counts_are_exact_under_threads_and_begin_at_zero_in_the_child_of_a_fork(clock, together):
    near = near_cache(clock)

    def run(number):
        for each in range(100):
            assert drive(near.read(lambda: number)) == number
            drive(near.write([each], lambda: None))

    assert together(run) == [None] * THREADS

    def child():
        drive(near.read(lambda: None))
        stats = near.cache.stats().store
        assert (counted(stats.reads), counted(stats.writes)) == ((1, 0, 0), (0, 0, 0))

    assert fork(child)
    stats = near.cache.stats().store
    assert counted(stats.reads) == counted(stats.writes) == (100 * THREADS, 0, 0)
