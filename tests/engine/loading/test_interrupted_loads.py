"""An exception at any point of a load leaves no turn without a leader, no waiter waiting, and counts that hold."""

import asyncio
import contextlib
import threading
from itertools import count

import pytest

from tests.engine.loading.harness import outcome, returns, unreached
from tests.runtime.interruptions import Delivery, Interruption, Worker, compiled_core, quiet
from tests.waiting import PATIENCE, until
from wheelcache import Cache, ManualClock
from wheelcache.engine.turns import Turn

pytestmark = [pytest.mark.deep, compiled_core]

KEYS = ("k", "other", "stale")
FOUND_MEANWHILE = "a value found on looking again"

worker = Worker()


def failing(cache, key, **policy):
    with contextlib.suppress(LookupError):
        return cache.get_or_load(key, returns(LookupError()), **policy)


# Each operation, and the number of look-ups that it counts.
OPERATIONS = {
    "a load": (lambda cache: cache.get_or_load("k", returns(7)), 1),
    "a load in a task": (lambda cache: asyncio.run(cache.aget_or_load("k", returns(7))), 1),
    "a load in a load": (lambda cache: cache.get_or_load("k", lambda: cache.get_or_load("other", returns(7))), 2),
    "a load that fails": (lambda cache: failing(cache, "k"), 1),
    FOUND_MEANWHILE: (lambda cache: cache.get_or_load("k", unreached), 1),
    "a stale value and its refresh": (lambda cache: cache.get_or_load("stale", returns(7), grace=5), 1),
    "a load that fails safe": (lambda cache: failing(cache, "stale", grace=5, fail_safe=5, timeout=PATIENCE), 1),
    "a timed load": (lambda cache: cache.get_or_load("k", returns(7), timeout=PATIENCE), 1),
    "a value read beside": (lambda cache: cache.engine.loads().reconcile("stale", 7), 0),
}


def make():
    clock = ManualClock()
    cache = Cache(clock=clock, ttl=10, jitter=0)
    cache.get_or_load("stale", returns("old"), grace=5)
    clock.advance(11)
    return cache


def use_every_key(cache):
    for key in KEYS:
        cache.delete(key)
        assert cache.get_or_load(key, returns("new"), grace=5) == "new"
    cache.stats()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_exception_at_any_point_leaves_the_loads_whole(moments, name):
    operation, may_count = OPERATIONS[name]
    with quiet():
        for target in count(1):
            cache = make()
            before = cache.stats().requests
            if name == FOUND_MEANWHILE:
                moments.before_watch = lambda cache=cache: cache.set("k", 7)
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: operation(cache))
            moments.before_watch = lambda: None
            assert until(lambda cache=cache: cache._parts.loads.is_idle, note=delivery.where)
            counted = cache.stats().requests - before
            assert 0 <= counted <= may_count, delivery.where
            assert worker.does(lambda cache=cache: use_every_key(cache)), f"{delivery.where}: a lock is taken for ever"
            if not interrupted:
                assert counted == may_count
                break
    assert target > 5


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


LOADS = {
    "thread": lambda cache, loader: cache.get_or_load("k", loader),
    "task": lambda cache, loader: asyncio.run(cache.aget_or_load("k", loader)),
}


@pytest.mark.parametrize("load", LOADS)
def test_an_exception_on_entry_of_a_block_after_a_failure_leaves_no_turn_open(monkeypatch, load):
    """From Python 3.14 on, ``with`` calls ``__enter__`` by an instruction that delivers exceptions before the block is
    armed."""
    cache, is_due = make(), False

    def enter(*args):
        if is_due:
            raise Interruption

    def loader():
        nonlocal is_due
        is_due = True
        raise LookupError

    monkeypatch.setattr(Turn, "__enter__", staticmethod(enter))
    with pytest.raises((LookupError, Interruption)):
        LOADS[load](cache, loader)
    assert cache._parts.loads.is_idle
