"""An exception at any point of a call leaves no lock taken, and loses no timer, no event and no job."""

import threading
from functools import partial
from itertools import count

import pytest

from tests.runtime.interruptions import Delivery, Worker, compiled_core, quiet
from tests.waiting import until
from wheelcache import Cache, ManualClock, Timers
from wheelcache.runtime import worker_pool

pytestmark = [pytest.mark.deep, compiled_core]

worker = Worker()


@pytest.fixture(autouse=True)
def threads_end_soon(monkeypatch):
    monkeypatch.setattr(worker_pool, "IDLE", 0.05)


class Pending:
    """Timers of every kind. All that was set before the interruption has to happen, keyed timers once."""

    def __init__(self, clock):
        self.clock = clock
        self.fired = []
        self.runs = 0
        self.timers = Timers(1.0, lambda key, value: self.fired.append(key), clock=clock)

    def fill(self):
        self.timers.set_timer("a", 1, 5)
        self.timers.set_timer("b", 1, 5)
        self.timers.set_timer("far", 1, 700)
        self.event = self.timers.after(5)
        self.timers.every(5, self.job)

    def job(self):
        self.runs += 1


def set_anew(pending):
    pending.timers.set_timer("a", 2, 50)


def set_first(pending):
    pending.timers.set_timer("new", 1, 1)


def move(pending):
    pending.timers.move_timer("a", 2)


def move_to_now(pending):
    pending.timers.move_timer("a", 0.5)


def move_what_is_due(pending):
    pending.timers.move_timer("due", 20)


def remove(pending):
    pending.timers.remove_timer("a")


def wait(pending):
    pending.timers.after(3)


def repeat(pending):
    pending.timers.every(3, list)


def let_time_pass(pending):
    pending.clock.advance(6)


def drain(pending):
    pending.timers.drain(lambda key, value: pending.fired.append(key))


def came(pending, keys):
    return until(lambda: keys <= {*pending.fired})


def has_run(pending):
    return until(lambda: pending.runs)


MAY_BE_LOST = {remove: {"a"}, set_first: {"new"}, drain: {"due", "a", "b", "far"}}


def interrupted(action, make):
    """What ``make()`` gives, after an exception at one point of ``action``, for each point."""
    with quiet():
        for target in count(1):
            pending = make()
            delivery = Delivery(target)
            was_interrupted = delivery.run(lambda pending=pending: action(pending))
            yield pending, delivery.where
            pending.timers.stop()
            if not was_interrupted:
                return


@pytest.mark.parametrize(
    "action",
    [set_anew, set_first, move, move_to_now, move_what_is_due, remove, wait, repeat, let_time_pass, drain],
    ids=lambda f: f.__name__,
)
def test_all_that_is_pending_comes_in_time(action):
    lost = MAY_BE_LOST.get(action, set())
    seen = []

    def make():
        pending = Pending(ManualClock())
        pending.fill()
        pending.timers.set_timer("due", 1, 0.5)
        # Its time has come, and its tick has not.
        pending.clock.advance(0.6)
        return pending

    for pending, where in interrupted(action, make):
        assert worker.does(lambda pending=pending: pending.clock.advance(1000)), f"{where}: a lock is taken for ever"
        assert came(pending, {"due", "a", "b", "far"} - lost), f"{where}: only {pending.fired} came"
        assert pending.event.is_set(), where
        assert pending.runs >= 199, where
        assert len(pending.timers) == 0, where
        assert pending.timers.lag == 0, where
        seen.append((pending.fired, where))
    assert [(fired, where) for fired, where in seen if len(fired) != len({*fired})] == []


def test_what_a_late_write_takes_out_comes(monkeypatch):
    def refuse(thread):
        if thread.name == "wheelcache-wheel":
            raise RuntimeError("can't start new thread")
        start(thread)

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    now = [0.0]
    # No function in Python: after one that the core calls, the harness raises nothing when the core returns.
    clock = partial(now.__getitem__, 0)

    def make():
        now[0] = 0.0
        pending = Pending(clock)
        pending.fill()
        now[0] = 6.0 + 2
        return pending

    for pending, where in interrupted(set_first, make):
        now[0] += 10
        assert worker.does(lambda pending=pending: pending.timers.set_timer("last", 1, 100)), (
            f"{where}: a lock is taken"
        )
        assert came(pending, {"a", "b"}), f"{where}: only {pending.fired} came"
        # The wheel thread that other tests have left may be at it.
        assert pending.event.wait(10), where
        assert has_run(pending), where
    # It starts as soon as it can, whichever attempt was interrupted.
    monkeypatch.undo()
    left = threading.Event()
    cache = Cache(interval=0.01, on_removal=lambda *removal: left.set())
    cache.set("a", 1, ttl=0.02)
    assert left.wait(10)
    cache.close()


def test_a_stop_that_is_called_again_releases_what_waits():
    def make():
        pending = Pending(ManualClock())
        pending.fill()
        return pending

    for pending, where in interrupted(lambda pending: pending.timers.stop(), make):
        assert worker.does(pending.timers.stop), where
        assert pending.event.is_set(), where
        pending.clock.advance(1000)
        assert pending.runs == 0, where
        assert pending.fired == [], where
