"""A time limit during a call of the cache behind a TieredCache: it is no outage, and reaches the caller."""

import pytest

from tests.near_cache.tiers import WITH_ASYNC
from wheelcache.near_cache.store_state import FAILURES

pytestmark = pytest.mark.servers


class TimeLimit(Exception):
    """As Celery's SoftTimeLimitExceeded, an Exception."""


CALLS = {
    "get": lambda tier: tier.get("other"),
    "get_many": lambda tier: tier.get_many(["other", "another"]),
    "has": lambda tier: tier.has("other"),
    "set": lambda tier: tier.set("k", 2),
    "set_many": lambda tier: tier.set_many({"k": 2}),
    "add": lambda tier: tier.add("k", 2),
    "load": lambda tier: tier.load("other", lambda: 2),
    "count": lambda tier: tier.count("k"),
    "delete": lambda tier: tier.delete("k"),
    "delete_many": lambda tier: tier.delete_many(["k"]),
    "clear": lambda tier: tier.clear(),
}


@pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC)
def test_an_exception_that_is_not_the_stores_reaches_the_caller_of_every_method_and_opens_no_breaker(over, adapter):
    tier = over(adapter, fail_safe=300)
    tier.set("k", 1)
    tier.noted.error = TimeLimit()
    for call in [*CALLS.values()] * FAILURES:
        with pytest.raises(TimeLimit):
            call(tier)
    store = tier.engine.stats().store
    assert (store.reads.errors, store.writes.errors, store.open_breakers) == (0, 0, 0)
    tier.noted.error = None
    assert tier.get("k") == 1
