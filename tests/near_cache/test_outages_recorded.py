"""Failed calls of a store are errors of the store, not failed loads, and an outage is one event with start and end."""

from contextlib import nullcontext

import pytest

from tests.guests import needs
from tests.near_cache.stores import CALLS, FAIL_SAFE, Down
from wheelcache.engine.guests import module_of
from wheelcache.near_cache.outages import Outages
from wheelcache.near_cache.store_state import StoreState
from wheelcache.near_cache.written_timeouts import WrittenTimeouts


def events(cache, kind):
    site = module_of("watch", "site").Site([cache])
    return [each for each in site.events(100) if each.kind == kind]


@needs("watch")
@pytest.mark.parametrize("call", ["get", "get_many"])
@pytest.mark.parametrize("options", [{}, FAIL_SAFE], ids=["plain", "fail-safe"])
def test_a_failed_read_of_the_store_is_an_error_of_the_store_and_no_failed_load(make, store, options, call):
    near = make(**options)
    store.error = Down("Connection refused by 10.0.0.7")
    for _ in range(2):
        with nullcontext() if options else pytest.raises(Down):
            CALLS[call](near)
    stats = near.copies.stats()
    assert (stats.load_failures, stats.store.reads.errors) == (0, 2)
    assert events(near.copies, "load failed") == []
    (event,) = events(near.copies, "store failed")
    assert (event.cache, event.sentence()) == ("c", "Down: Connection refused by 10.0.0.7 (2 times)")


def taken(outages):
    """Return the failures since the last call: their kind, their number, and the first and the last time."""
    found = outages.take()
    return found and (found.kind, found.message, found.count, found.first, found.last)


def test_an_outage_lasts_from_the_first_failure_to_the_recovery():
    outages = Outages()
    outages.succeeded(90.0)
    assert taken(outages) is None
    outages.failed(Down("refused"), 100.0)
    outages.failed(TimeoutError("timed out"), 104.0)
    assert taken(outages) == ("Down", "refused", 2, 100.0, 104.0)
    outages.failed(Down("refused"), 700.0)
    assert [taken(outages), taken(outages)] == [("Down", "refused", 1, 100.0, 700.0), None]
    outages.succeeded(1000.0)
    outages.succeeded(1001.0)
    assert taken(outages) == ("", "", 0, 100.0, 1000.0)
    outages.failed(Down("again"), 1100.0)
    assert taken(outages) == ("Down", "again", 1, 1100.0, 1100.0)


def test_the_child_of_a_fork_knows_nothing_of_the_outage_of_its_parent(clock):
    state = StoreState(None, WrittenTimeouts(clock), None)
    state.outages.failed(Down(), 100.0)
    state.after_fork_in_child()
    assert state.take_outage() is None
    state.outages.failed(Down(), 200.0)
    assert state.take_outage().first == 200.0
