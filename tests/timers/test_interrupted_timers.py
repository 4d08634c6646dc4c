"""An exception at any point of a call leaves no lock acquired, the wheel thread working, and no waiter waiting."""

from itertools import count

import pytest

from tests.runtime.interruptions import Delivery, Worker, compiled_core, quiet
from tests.waiting import until
from wheelcache import ManualClock
from wheelcache.runtime import worker_pool
from wheelcache.timers import Timers

pytestmark = [pytest.mark.deep, compiled_core]

worker = Worker()


@pytest.fixture(autouse=True)
def threads_end_soon(monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE", 0.05)


class Pending:
    """Timers of every kind, of which one is due before its tick."""

    def __init__(self):
        self.clock = ManualClock()
        self.fired = []
        self.timers = timers = Timers(1.0, lambda key, value: self.fired.append(key), clock=self.clock)
        for key, delay in (("a", 5), ("b", 5), ("far", 700), ("due", 0.5)):
            timers.set_timer(key, 1, delay)
        self.event = timers.after(5)
        self.clock.advance(0.6)


CALLS = {
    "set again": (lambda pending: pending.timers.set_timer("a", 2, 50), ""),
    "set first": (lambda pending: pending.timers.set_timer("new", 1, 1), ""),
    "move": (lambda pending: pending.timers.move_timer("a", 2), ""),
    "move to now": (lambda pending: pending.timers.move_timer("a", 0.5), "a"),
    "move a due timer": (lambda pending: pending.timers.move_timer("due", 20), "due"),
    "remove": (lambda pending: pending.timers.remove_timer("a"), "a"),
    "after": (lambda pending: pending.timers.after(3), ""),
    "every": (lambda pending: pending.timers.every(3, list), ""),
    "drain": (lambda pending: pending.timers.drain(lambda key, value: None), "due a b far"),
}


def interrupted(call):
    """Interrupt ``call`` at each point. Yield the timers and the point."""
    with quiet():
        for target in count(1):
            pending = Pending()
            delivery = Delivery(target)
            was_interrupted = delivery.run(lambda pending=pending: call(pending))
            yield pending, delivery.where
            pending.timers.stop()
            if not was_interrupted:
                return


@pytest.mark.parametrize("name", CALLS)
def test_the_other_timers_fire(name):
    call, affected = CALLS[name]
    expected = {"due", "a", "b", "far"}.difference(affected.split())
    for pending, where in interrupted(call):
        assert worker.does(lambda pending=pending: pending.clock.advance(1000)), f"{where}: a lock is never released"
        assert until(lambda pending=pending: expected <= {*pending.fired}, note=where)
        assert pending.event.is_set(), where


def test_an_advance_leaves_no_waiter_and_the_later_timers():
    for pending, where in interrupted(lambda pending: pending.clock.advance(6)):
        assert worker.does(lambda pending=pending: pending.clock.advance(1000)), f"{where}: a lock is never released"
        assert until(lambda pending=pending: "far" in pending.fired, note=where)
        assert pending.event.is_set(), where


def test_a_stop_that_is_called_again_releases_its_waiters():
    for pending, where in interrupted(lambda pending: pending.timers.stop()):
        assert worker.does(pending.timers.stop), where
        assert pending.event.is_set(), where
