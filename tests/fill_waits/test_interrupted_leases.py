"""After an exception at any point of a call with a lease, no caller waits forever."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from itertools import count

import pytest

from tests.fill_waits.callers import get_or_lease
from tests.runtime.interruptions import Delivery, compiled_core, quiet
from tests.runtime.test_interrupted_cache import interrupt_everywhere, plain, weighed
from tests.waiting import PATIENCE, until, waiting
from wheelcache import Cache
from wheelcache.fill_waits.leased_reads import LeasedReads
from wheelcache.runtime.request_scope import end_request

pytestmark = [pytest.mark.deep, compiled_core]


def lease(cache):
    get_or_lease(cache, "new", wait=1)
    cache.set("new", 7)


@pytest.mark.parametrize("make", [weighed, plain])
def test_an_exception_at_any_point_of_a_lease_leaves_the_cache_to_all_threads(make):
    assert interrupt_everywhere(make, lease) > 2


FILLING = {
    "set": lambda cache: cache.set("k", 7),
    "set_many": lambda cache: cache.set_many({"k": 7}),
    "get_or_load": lambda cache: cache.get_or_load("k", lambda: 7),
    "lease_fill": lambda cache: LeasedReads(cache.engine).fill("k")(7, ()),
}


@pytest.mark.parametrize("name", FILLING)
def test_an_exception_at_any_point_of_a_fill_leaves_no_caller_waiting_past_its_time(name):
    with quiet(), ThreadPoolExecutor(1) as pool:
        for target in count(1):
            # Not with a ManualClock, by which a wait would never end.
            cache = Cache()
            assert get_or_lease(cache, "k", wait=100) is None
            asked = pool.submit(Context().run, get_or_lease, cache, "k", wait=0.05)
            until(lambda asked=asked: waiting() or asked.done())
            delivery = Delivery(target)
            interrupted = delivery.run(lambda cache=cache: FILLING[name](cache))
            assert asked.result(PATIENCE) in (7, None), delivery.where
            assert get_or_lease(cache, "k", wait=0.01) in (7, None), delivery.where
            cache.close()
            end_request()
            if not interrupted:
                break
    assert target > 5
