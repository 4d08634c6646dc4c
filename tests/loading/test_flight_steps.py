"""What falls between two steps of a flight: claim, watch, look again; store, land, close the watch."""

import threading

from tests.loading.harness import returns, unreached
from tests.waiting import PATIENCE, until_waiting
from wheelcache.loading.steps import run


class Stop:
    """Called by a leader, it stops there once, until it is released."""

    def __init__(self):
        self.reached, self.go = threading.Event(), threading.Event()

    def __call__(self):
        if not self.reached.is_set():
            self.reached.set()
            assert self.go.wait(PATIENCE)


def test_a_value_that_was_set_between_the_miss_and_the_claim_is_not_loaded(site):
    site.before_watch = lambda: site.set("k", "there by now")
    assert site.take("k", unreached) == "there by now"
    assert site.counts() == {"hits": 1}
    assert site.loads.is_idle


def test_a_leader_that_finds_the_value_has_its_waiters_look_again(site, pool):
    site.before_watch = stop = Stop()
    leader = pool.submit(site.take, "k", unreached)
    assert stop.reached.wait(PATIENCE)
    waiting = [pool.submit(site.take, "k", unreached) for _ in range(3)]
    until_waiting(3)
    site.set("k", "there by now")
    stop.go.set()
    assert [each.result(PATIENCE) for each in (leader, *waiting)] == ["there by now"] * 4
    assert site.counts() == {"hits": 4}


def test_a_caller_that_missed_before_a_set_finds_the_value_although_a_load_goes_on(site, pool):
    stop = Stop()
    leader = pool.submit(site.take, "k", lambda: stop() or "old")
    assert stop.reached.wait(PATIENCE)
    missed = site.request("k", unreached)
    site.set("k", "written")
    assert run(site.loads.load(missed)) == "written"
    assert missed.is_hit
    stop.go.set()
    leader.result(PATIENCE)
    assert site.counts() == {"hits": 1, "misses": 1, "loads": 1}


def test_a_caller_that_joins_after_a_delete_between_store_and_landing_does_not_get_the_old_value(site, pool):
    """The watch stays open after the leader's own set, until no caller can join."""
    site.after_set = stop = Stop()
    leader = pool.submit(site.take, "k", returns("old"))
    assert stop.reached.wait(PATIENCE)
    site.delete("k")
    late = pool.submit(site.take, "k", returns("new"))
    until_waiting()
    stop.go.set()
    assert leader.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert site.get("k") == "new"
