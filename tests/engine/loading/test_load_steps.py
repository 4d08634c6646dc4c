"""Events between two steps of a load: watch, claim, look again; store, end the turn."""

import threading

import pytest

from tests.engine.loading.harness import Held, assert_counts, returns, unreached
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache import LoadTimeout
from wheelcache.engine.loading.request import LoadPolicy
from wheelcache.runtime.alarm import Alarm
from wheelcache.runtime.steps import run


class Stop:
    """A function at which a leader stops once, until it is released."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self):
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(PATIENCE)


def test_a_value_that_was_set_between_the_miss_and_the_claim_is_not_loaded(moments, cache):
    moments.before_watch = lambda: cache.set("k", "there by now")
    assert cache.get_or_load("k", unreached) == "there by now"
    assert_counts(cache, hits=1)
    assert cache._parts.loads.is_idle


def test_a_load_that_cannot_begin_leaves_nothing_behind(moments, cache, twin):
    moments.before_watch = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        twin.get_or_load("k", unreached)
    moments.before_watch = lambda: None
    assert twin.get_or_load("k", returns(1)) == 1
    assert_counts(cache, misses=1, loads=1)


class Claim:
    """The claim of another process, which has ended its load after ``waits``."""

    def __init__(self, waits):
        self.take = iter([False, True]).__next__
        self.release = lambda: None
        self.wait = waits


def test_a_caller_that_another_process_is_ahead_of_receives_its_value_or_loads_or_gives_up(cache, twin):
    loads = cache.engine.loads()
    loads.turns.claims = lambda key: Claim(lambda: cache.set("k", "theirs") and None)
    assert twin.get_or_load("k", unreached) == "theirs"
    cache.delete("k")
    # A write while it waited does not outdate its own value.
    loads.turns.claims = lambda key: Claim(lambda: cache.delete("k") or None)
    assert twin.get_or_load("k", returns("own")) == cache.get("k") == "own"
    loads.turns.claims = lambda key: Claim(Alarm)
    with pytest.raises(LoadTimeout):
        twin.get_or_load("other", unreached, timeout=0.02)
    assert_counts(cache, hits=2, misses=2, loads=1, load_timeouts=1)


def test_a_value_whose_load_ended_between_the_miss_and_the_claim_is_not_loaded_again(moments, cache, pool):
    def load_in_another_thread():
        moments.before_watch = lambda: None
        assert pool.submit(cache.get_or_load, "k", returns("loaded by then")).result(PATIENCE) == "loaded by then"
        assert cache._parts.loads.is_idle

    moments.before_watch = load_in_another_thread
    assert cache.get_or_load("k", unreached) == "loaded by then"
    assert_counts(cache, hits=1, misses=1, loads=1)


def test_of_two_callers_that_find_no_load_in_progress_one_loads(moments, cache, pool):
    loader = Held("loaded")

    def let_another_thread_begin():
        moments.before_watch = lambda: None
        pool.submit(cache.get_or_load, "k", loader)
        assert loader.is_running()

    moments.before_watch = let_another_thread_begin
    waiting_one = pool.submit(cache.get_or_load, "k", unreached)
    assert until(lambda: waiting() == 1 or waiting_one.done())
    loader.release()
    assert waiting_one.result(PATIENCE) == "loaded"


def test_a_value_whose_key_was_deleted_during_its_load_is_not_stored(cache):
    assert cache.get_or_load("k", lambda: cache.delete("k") or "old") == "old"
    assert "k" not in cache


def test_a_leader_that_finds_the_value_has_its_waiters_look_again(moments, cache, pool):
    moments.after_claim = stop = Stop()
    leader = pool.submit(cache.get_or_load, "k", unreached)
    assert stop.reached.wait(PATIENCE)
    waiting = [pool.submit(cache.get_or_load, "k", unreached) for _ in range(3)]
    until_waiting(3)
    cache.set("k", "there by now")
    stop.go.set()
    assert [each.result(PATIENCE) for each in (leader, *waiting)] == ["there by now"] * 4
    assert_counts(cache, hits=4)


def test_a_caller_that_missed_before_a_set_finds_the_value_although_a_load_goes_on(cache, pool):
    stop = Stop()
    leader = pool.submit(cache.get_or_load, "k", lambda: stop() or "old")
    assert stop.reached.wait(PATIENCE)
    missed = cache.engine.loads().request("k", unreached, 10, LoadPolicy())
    cache.set("k", "written")
    assert run(cache.engine.loads().load(missed)) == "written"
    assert missed.is_hit
    stop.go.set()
    leader.result(PATIENCE)
    assert_counts(cache, hits=1, misses=1, loads=1)


def test_a_caller_that_joins_after_a_delete_between_store_and_end_does_not_get_the_old_value(moments, cache, pool):
    """The watch stays open after the leader's own set, until no caller can join."""
    moments.after_set = stop = Stop()
    leader = pool.submit(cache.get_or_load, "k", returns("old"))
    assert stop.reached.wait(PATIENCE)
    cache.delete("k")
    late = pool.submit(cache.get_or_load, "k", returns("new"))
    until_waiting()
    stop.go.set()
    assert leader.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert cache.get("k") == "new"


# Values that are read beside the cache.


class Incomparable:
    def __eq__(self, other):
        raise LookupError

    __hash__ = None


@pytest.mark.parametrize(
    ("cached", "read", "stays"),
    [(1, 1, True), (1, 2, False), (1, True, False), (Incomparable(), Incomparable(), False)],
)
def test_a_value_that_was_read_from_the_source_removes_another_one(cache, cached, read, stays):
    cache.set("k", cached)
    cache.engine.loads().reconcile("k", read)
    assert ("k" in cache) == stays


def test_a_value_that_is_loaded_while_another_caller_reads_the_source_is_not_stored(cache):
    assert cache.get_or_load("k", lambda: cache.engine.loads().reconcile("k", 2) or 1) == 1
    assert "k" not in cache
