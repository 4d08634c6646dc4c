"""An exception at any point of a load leaves no waiter waiting."""

import contextlib
import threading
from itertools import count

import pytest

from tests.engine.loading.harness import outcome, returns
from tests.runtime.interruptions import Delivery, compiled_core, quiet
from tests.waiting import PATIENCE, until
from wheelcache import Cache, ManualClock

pytestmark = [pytest.mark.deep, compiled_core]


def make():
    clock = ManualClock()
    cache = Cache(clock=clock, ttl=10, jitter=0)
    cache.get_or_load("stale", returns("old"), grace=5)
    clock.advance(11)
    return cache


class PlainlyHeld:
    """A ``Held`` without an Event, whose lock an interruption would leave acquired."""

    def __init__(self, value):
        self.value = value
        self.began = False
        self.go = threading.Lock()
        self.go.acquire()

    def __call__(self):
        self.began = True
        self.go.acquire(timeout=PATIENCE)
        return outcome(self.value)


def join(cache, loader, pool, waiters):
    """Let a caller wait for the leader, whose loader runs, or was interrupted before it ran."""
    assert until(lambda: loader.began)
    before = len(waiters.begun)
    waiter = pool.submit(cache.get_or_load, "k", returns("its own"))
    assert until(lambda: waiter.done() or len(waiters.begun) > before)
    loader.go.release()
    return waiter


@pytest.mark.parametrize("error", [None, LookupError("no")], ids=["value", "error"])
def test_an_exception_at_any_point_of_a_leader_leaves_no_waiter_behind(pool, error, waiters):
    """The waiter joins while the leader's loader runs; the interruption comes then, or later."""
    with quiet():
        for target in count(1):
            cache = make()
            loader = PlainlyHeld(error or "the leader's")
            helper = pool.submit(join, cache, loader, pool, waiters)
            delivery = Delivery(target)

            def lead(cache=cache, loader=loader):
                with contextlib.suppress(LookupError):
                    cache.get_or_load("k", loader)

            interrupted = delivery.run(lead)
            loader.began = True
            waiter = helper.result(PATIENCE)
            got = waiter.exception(PATIENCE) or waiter.result()
            assert until(lambda cache=cache: cache._parts.loads.is_idle, note=delivery.where)
            if not interrupted:
                assert repr(got) in (repr(error), repr("the leader's"))
                break
    assert target > 20
