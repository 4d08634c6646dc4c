"""Leases at asynchronous exceptions, and forks."""

from contextvars import Context
from itertools import count

import pytest

from tests.caches import is_leased
from tests.fill_waits.callers import LONG, MISS, Caller, get_or_lease, line_up
from tests.runtime.forks import fork
from tests.runtime.interruptions import Delivery, compiled_core, quiet
from tests.waiting import PATIENCE, until, until_waiting, waiting
from wheelcache import Cache
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import end_request

FILLING = {
    "set": lambda cache: cache.set("k", 7),
    "set_many": lambda cache: cache.set_many({"k": 7}),
    "get_or_load": lambda cache: cache.get_or_load("k", lambda: 7),
    "elsewhere": lambda cache: LeasedReads(cache.engine).fill("k")(7, ()),
    "get": lambda cache: get_or_lease(cache, "other", wait=1),
}


@compiled_core
@pytest.mark.deep
@pytest.mark.parametrize("fill", FILLING.values(), ids=FILLING)
def test_an_exception_at_any_point_of_a_call_leaves_no_caller_waiting_past_its_time(make_caller, fill):
    with quiet():
        for target in count(1):
            # Not with a ManualClock, by which a wait would never end.
            cache = Cache()
            assert get_or_lease(cache, "k", wait=100) is None
            asked = make_caller(cache=cache).submit(Context().run, get_or_lease, cache, "k", wait=0.05)
            until(lambda asked=asked: waiting() or asked.done())
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: fill(cache))
            assert asked.result(PATIENCE) in (7, None), delivery.where
            assert get_or_lease(cache, "k", wait=0.01) in (7, None), delivery.where
            cache.close()
            end_request()
            if not interrupted:
                break
    assert target > 5


def test_a_child_of_a_fork_has_no_lease_and_no_waiter_of_its_parent(cache, callers):
    (asked,) = line_up("theirs", *callers[:2])
    get_or_lease(cache, "mine", wait=LONG)

    def child():
        # It waits, as a caller without leases.
        other = Caller(cache)
        assert other.gets("new") == MISS
        other.submit(lambda: (until_waiting(), cache.set("new", 1)))
        assert get_or_lease(cache, "new", wait=LONG) == 1
        other.ends()
        assert not is_leased(cache, "mine")
        assert get_or_lease(cache, "theirs", MISS, wait=LONG) == MISS
        assert is_leased(cache, "theirs")

    assert fork(child)
    assert is_leased(cache, "mine")
    assert not asked.done()
