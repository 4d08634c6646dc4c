"""grace: while one caller computes an expired value, ``get`` returns the old value to the others."""

import pytest

from tests.caches import is_leased
from tests.waiting import PATIENCE, until_waiting

LONG = 1000
"""Seconds of a fill_wait that ends after any test: a result within PATIENCE did not wait for it."""

TTL, GRACE = 60, 30
OLD, NEW = ["old"], ["new"]


@pytest.fixture
def cache(make, clock):
    return make(fill_wait=LONG, grace=GRACE)


@pytest.fixture
def expired(cache, clock):
    """The cache, in which the value of "key" has just expired."""
    cache.set("key", OLD, TTL)
    assert cache.get("key") == OLD
    clock.advance(TTL)
    return cache


def wait_for_new(cache, in_thread):
    """Check that a caller waits for the new value."""
    asking = in_thread(lambda: cache.get("key"))
    until_waiting()
    cache.set("key", NEW)
    assert asking.result(PATIENCE) == NEW


def test_grace_needs_a_fill_wait_for_some_of_its_keys(adapter, make):
    page = {"page:": 5}
    for grace, wait in ((page, {}), (5, 0), (page, {"other:": 5}), (page, {"": 0, "page:": 0, "other": 5})):
        with pytest.raises(adapter.refused) as refused:
            make(grace=grace, fill_wait=wait)
        assert f"{adapter.spelled('grace')}" in str(refused.value)
        assert f"needs {adapter.spelled('fill_wait')}" in str(refused.value)
    make(grace={"pages": 5})
    for grace, wait in ((0, 0), ({"a": 0}, {"b": 5}), (5, page), (page, 5)):
        make(grace=grace, fill_wait=wait)


def test_the_longest_prefix_of_a_key_decides_and_keys_without_a_wait_have_no_grace(make, clock, in_thread):
    cache = make(fill_wait={"": LONG, "flag": 0}, grace={"page:": GRACE, "page:new:": 0, "flag": GRACE})
    keys = {"page:1": OLD, "page:new:1": NEW, "flag": None, "other": NEW}
    for key in keys:
        cache.set(key, OLD, TTL)
    clock.advance(TTL)
    for key, found in keys.items():
        assert cache.get(key) is None
        asking = in_thread(cache.get, key)
        if found == NEW:
            until_waiting()
            cache.set(key, NEW)
        assert asking.result(PATIENCE) == found


# Callers of get.


STORES = {
    "set": lambda cache: cache.set("key", OLD, TTL),
    "set_many": lambda cache: cache.set_many({"other": 1, "key": OLD}, TTL),
}


@pytest.mark.parametrize("store", STORES.values(), ids=STORES)
def test_the_first_get_after_the_end_misses_and_the_others_get_the_old_value_until_the_new_one(
    cache, clock, in_thread, store
):
    store(cache)
    assert cache.get("key") == OLD
    clock.advance(TTL)
    assert cache.get("key") is None
    assert is_leased(cache.engine, cache.key("key"))
    found = [in_thread(cache.get, "key").result(PATIENCE) for _ in range(3)]
    assert found == [OLD] * 3
    # Each caller gets a copy of its own.
    assert len({id(each) for each in found}) == 3
    # The caller that computes still misses.
    assert cache.get("key") is None
    cache.set("key", NEW, TTL)
    assert in_thread(cache.get, "key").result(PATIENCE) == NEW
    stats = cache.engine.stats()
    assert (stats.stale_hits, stats.coalesced) == (3, 0)
    assert (stats.groups[""].hits, stats.groups[""].stale_hits) == (stats.hits, 3)


def test_after_its_grace_the_old_value_is_gone_and_has_left_the_memory(expired, clock, in_thread):
    expired.get("key")
    clock.advance(GRACE - 0.5)
    assert in_thread(expired.get, "key").result(PATIENCE) == OLD
    assert len(expired.engine) == 1
    clock.advance(0.5)
    wait_for_new(expired, in_thread)
    assert expired.engine.stats().stale_hits == 1
    expired.set("key", OLD, TTL)
    clock.advance(TTL + GRACE + expired.lag)
    assert len(expired.engine) == 0


def test_an_old_value_whose_grace_is_longer_is_returned_only_for_the_grace_of_the_option(cache, clock, in_thread):
    cache.load("key", lambda: OLD, TTL, grace=10 * GRACE)
    clock.advance(TTL + GRACE)
    cache.get("key")
    wait_for_new(cache, in_thread)


# Loaders.


def test_while_one_caller_loads_an_expired_value_the_others_get_the_old_one(expired, in_thread):
    found = []

    def compute():
        found.append(in_thread(expired.load, "key", None, TTL).result(PATIENCE))
        return NEW

    assert in_thread(expired.load, "key", compute, TTL).result(PATIENCE) == NEW
    assert expired.load("key", None, TTL) == NEW
    assert found == [OLD]
    assert expired.engine.stats().stale_hits == 1


def test_the_grace_of_a_call_replaces_that_of_the_option(cache, clock):
    cache.load("key", lambda: OLD, TTL, grace=GRACE / 3)
    clock.advance(TTL + GRACE / 2)
    assert len(cache.engine) == 0


# A deleted value is never returned.

DELETES = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "clear": lambda cache: cache.clear(),
    "set that is over immediately": lambda cache: cache.set("key", 1, -1),
}


@pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)
def test_a_deleted_value_is_never_returned(expired, in_thread, delete):
    expired.get("key")
    in_thread(delete, expired).result(PATIENCE)
    asking = in_thread(expired.get, "key")
    until_waiting()
    # Otherwise a tier would not keep a value whose computation began before the delete.
    assert expired.get("key") is None
    expired.set("key", NEW)
    assert asking.result(PATIENCE) == NEW
    assert expired.engine.stats().stale_hits == 0


# All other calls.


def test_for_every_other_call_a_value_in_its_grace_has_expired(expired, in_thread):
    expired.get("key")

    def look():
        touched = expired.touch("key", TTL) if hasattr(expired, "touch") else False
        return expired.has("key"), expired.get_many(["key"]), touched

    assert in_thread(look).result(PATIENCE) == (False, {}, False)
    assert expired.delete("key") is False
    assert len(expired.engine) == 0


def test_add_stores_over_an_old_value_and_what_it_stores_has_no_grace(expired, clock, in_thread):
    """Locks, rate limits and one-time codes keep their timeouts exactly."""
    assert expired.add("key", NEW, TTL)
    assert expired.get("key") == NEW
    clock.advance(TTL)
    assert expired.get("key") is None
    wait_for_new(expired, in_thread)
