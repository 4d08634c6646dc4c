"""Events between two steps of a flight: claim, watch, look again; store, land, close the watch."""

import threading

from tests.loading.harness import assert_counts, returns, unreached
from tests.waiting import PATIENCE, until_waiting
from wheelcache.loading.policy import LoadPolicy
from wheelcache.loading.steps import run


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
    assert cache.parts.loads.is_idle


def test_a_leader_that_finds_the_value_has_its_waiters_look_again(moments, cache, pool):
    moments.before_watch = stop = Stop()
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
    missed = cache.parts.loads.request("k", unreached, 10, LoadPolicy())
    cache.set("k", "written")
    assert run(cache.parts.loads.load(missed)) == "written"
    assert missed.is_hit
    stop.go.set()
    leader.result(PATIENCE)
    assert_counts(cache, hits=1, misses=1, loads=1)


def test_a_caller_that_joins_after_a_delete_between_store_and_landing_does_not_get_the_old_value(moments, cache, pool):
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
