"""Callers of ``get`` wait for the process that missed the key before: see ``fill_waits``."""

import sys
from functools import partial

import pytest

from tests.host_cache.workers import make_cache
from tests.waiting import PATIENCE, until_waiting
from wheelcache.engine.write_watcher import WriteMoments

pytest.importorskip("wheelcache.fill_waits")

from tests.fill_waits.callers import get_or_lease

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has locks of descriptors")

GET = """
from tests.fill_waits.callers import get_or_lease
from wheelcache.runtime.request_scope import end_request
def get(key, wait=1000):
    return get_or_lease(cache, key, wait=wait)
"""


@pytest.fixture
def sites(worker):
    """Two processes, of which the first one has missed "key"."""
    both = worker(), worker()
    for each in both:
        each(GET)
    assert both[0]("get('key')") is None
    return both


def test_a_get_waits_for_the_process_that_missed_the_key_and_returns_its_value(sites):
    holder, waiter = sites
    waiter.begins("get('key')")
    holder("cache.set('key', 'value')")
    assert waiter("result()") == "value"


def test_a_get_goes_on_when_the_process_that_it_waits_for_is_killed(sites):
    holder, waiter = sites
    waiter.begins("get('key')")
    holder.kill()
    assert waiter("result()") is None


@pytest.mark.parametrize("end", ["end_request()", "cache.delete('key')"])
def test_a_get_goes_on_when_the_request_that_it_waits_for_will_not_set_the_key(sites, end):
    holder, waiter = sites
    waiter.begins("get('key')")
    holder(end)
    assert waiter("result()") is None
    # It has the claim now.
    holder.begins("get('key')")
    waiter("cache.set('key', 1)")
    assert holder("result()") == 1


def test_a_get_waits_no_longer_than_its_time(sites):
    assert sites[1]("get('key', wait=0.05)") is None


def test_a_caller_that_holds_the_lease_on_another_key_does_not_wait(sites):
    holder, other = sites
    assert other("get('other')") is None
    assert other("get('key')") is holder("get('other')") is None


def test_a_get_goes_on_when_its_own_process_sets_the_key_and_leaves_no_claim(sites):
    holder, waiter = sites
    waiter.begins("get('key')")
    waiter("cache.set('key', 'set meanwhile')")
    assert waiter("result()") == "set meanwhile"
    holder("end_request()")
    for each in sites:
        assert each("cache.delete('key')")
        assert each("get('key')") is None
        each("end_request()")
        each("cache.set('key', 1)")


def test_a_thousand_leases_need_no_more_descriptors_than_one(sites):
    holder, other = sites
    count = "len(os.listdir('/proc/self/fd'))"
    before = holder(count)
    assert holder("[get(f'key-{number}') for number in range(1000)]") == [None] * 1000
    assert holder(count) == before
    other.begins("get('key-999')")
    holder("cache.set('key-999', 1)")
    assert other("result()") == 1


def test_a_set_during_a_commit_ends_the_lease_on_the_key(view, folder, closed, in_thread):
    cache = closed(make_cache(folder))
    assert get_or_lease(cache, "key", wait=1000) is None
    waiter = in_thread(partial(get_or_lease, cache, "key", "missed", wait=1000))
    until_waiting()
    view().engine.watcher(WriteMoments, WriteMoments).begin_commit(["key"], covers_all=False)
    assert not cache.set("key", "older")
    assert waiter.result(PATIENCE) == "missed"


def test_the_time_of_a_lease_begins_after_the_wait_for_another_process(view, folder, closed, clock, in_thread):
    there, here = closed(make_cache(folder)), view()
    assert get_or_lease(there, "key", wait=1000) is None
    holder = in_thread(partial(get_or_lease, here, "key", wait=10))
    until_waiting()
    clock.advance(8)
    there.delete("key")
    assert holder.result(PATIENCE) is None
    clock.advance(8)
    waiter = in_thread(partial(get_or_lease, here, "key", wait=10))
    until_waiting()
    here.set("key", 1)
    assert waiter.result(PATIENCE) == 1
