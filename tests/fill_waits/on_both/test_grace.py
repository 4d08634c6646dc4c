"""grace: while one caller computes an expired value, ``get`` returns the old value to the others."""

import threading

import pytest

from tests.caches import is_leased
from tests.waiting import PATIENCE, until_waiting
from wheelcache.runtime.request_scope import end_request

LONG = 1000
"""Seconds of a fill_wait that ends after any test: a result within PATIENCE did not wait for it."""

TTL, GRACE = 60, 30
OLD, NEW = ["old"], ["new"]


@pytest.fixture
def cache(make, clock):
    return make(fill_wait=LONG, grace=GRACE)


def expired(cache, clock):
    """Let the value of "key" expire."""
    cache.set("key", OLD, TTL)
    assert cache.get("key") == OLD
    clock.advance(TTL)


# The option.


def test_grace_needs_a_fill_wait_for_some_of_its_keys(adapter, make):
    for options in (
        {"grace": {"page:": 5}},
        {"grace": 5, "fill_wait": 0},
        {"grace": {"page:": 5}, "fill_wait": {"other:": 5}},
        {"grace": {"page:": 5}, "fill_wait": {"": 0, "page:": 0, "other": 5}},
    ):
        with pytest.raises(adapter.refused) as refused:
            make(**options)
        assert f"{adapter.spelled('grace')}" in str(refused.value)
        assert f"needs {adapter.spelled('fill_wait')}" in str(refused.value)
    for options in (
        {"grace": 0, "fill_wait": 0},
        {"grace": 5},
        {"grace": {"pages": 5}},
        {"grace": {"a": 0}, "fill_wait": {"b": 5}},
        {"grace": 5, "fill_wait": {"page:": 5}},
        {"grace": {"page:": 5}, "fill_wait": 5},
    ):
        make(**options)


@pytest.mark.pairs(full="adapter", of="adapter")
@pytest.mark.parametrize("wrong", [-1, "5", None, True, float("nan"), float("inf"), {1: 5}, {"a": -1}], ids=repr)
def test_a_wrong_grace_is_an_error_that_names_it_and_the_values_that_it_accepts(adapter, make, wrong):
    with pytest.raises(
        adapter.refused, match="a number of seconds >= 0, or a dict of 'pages', 'fragments' and key prefixes"
    ) as refused:
        make(fill_wait=5, grace=wrong)
    assert adapter.spelled("grace") in str(refused.value)


def test_the_longest_prefix_of_a_key_decides_and_keys_without_a_wait_have_no_grace(make, clock, in_thread):
    cache = make(fill_wait={"": LONG, "flag": 0}, grace={"page:": GRACE, "page:new:": 0, "flag": GRACE})
    keys = {"page:1": True, "page:new:1": False, "flag": False, "other": False}
    for key in keys:
        cache.set(key, OLD, TTL)
    assert cache.get_many(keys) == dict.fromkeys(keys, OLD)
    clock.advance(TTL)
    for key, is_returned in keys.items():
        assert cache.get(key) is None
        asking = in_thread(cache.get, key)
        if not is_returned and key != "flag":
            until_waiting()
            cache.set(key, NEW)
        assert asking.result(PATIENCE) == {"flag": None, "page:1": OLD}.get(key, NEW)


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


def test_a_caller_that_may_not_wait_gets_the_old_value_too(cache, clock, in_thread):
    expired(cache, clock)
    cache.get("key")

    def ask_as_holder_of_another_lease():
        assert cache.get("another") is None
        return cache.get("key")

    assert in_thread(ask_as_holder_of_another_lease).result(PATIENCE) == OLD


def test_after_its_grace_the_old_value_is_gone(cache, clock, in_thread):
    expired(cache, clock)
    cache.get("key")
    clock.advance(GRACE - 0.5)
    assert in_thread(cache.get, "key").result(PATIENCE) == OLD
    clock.advance(0.5)
    asking = in_thread(cache.get, "key")
    until_waiting()
    cache.set("key", NEW)
    assert asking.result(PATIENCE) == NEW
    assert cache.engine.stats().stale_hits == 1


def test_an_old_value_whose_grace_is_longer_is_returned_only_for_the_grace_of_the_option(cache, clock, in_thread):
    cache.load("key", lambda: OLD, TTL, grace=10 * GRACE)
    clock.advance(TTL + GRACE)
    cache.get("key")
    asking = in_thread(cache.get, "key")
    until_waiting()
    cache.set("key", NEW)
    assert asking.result(PATIENCE) == NEW


FAILS = {
    "delete of another key": lambda cache: (cache.delete("other"), end_request()),
    "end of the request": lambda cache: end_request(),
}


@pytest.mark.parametrize("fail", FAILS.values(), ids=FAILS)
def test_if_the_caller_that_computes_fails_the_next_computes_and_the_others_continue_with_the_old_value(
    cache, clock, in_thread, fail
):
    expired(cache, clock)
    holder = in_thread(lambda: (cache.get("key"), fail(cache)))
    assert holder.result(PATIENCE)[0] is None
    assert cache.get("key") is None
    assert [in_thread(cache.get, "key").result(PATIENCE) for _ in range(2)] == [OLD, OLD]


def test_after_the_fill_wait_the_next_caller_computes(make, clock, in_thread):
    cache = make(fill_wait=5, grace=GRACE)
    expired(cache, clock)
    cache.get("key")
    clock.advance(5)
    assert in_thread(lambda: (cache.get("key"), is_leased(cache.engine, cache.key("key")))).result(PATIENCE) == (
        None,
        True,
    )


# Loaders.


def start_loading(cache, in_thread, value, **given):
    """Start a load of "key" in another thread. Return a function that ends it and returns its result."""
    began, may_end = threading.Event(), threading.Event()

    def compute():
        began.set()
        assert may_end.wait(PATIENCE)
        return value()

    loading = in_thread(cache.load, "key", compute, TTL, **given)
    assert began.wait(PATIENCE)

    def end():
        may_end.set()
        return loading.result(PATIENCE)

    return end


def test_while_one_caller_loads_an_expired_value_the_others_get_the_old_one(cache, clock, in_thread):
    assert cache.load("key", lambda: OLD, TTL) == cache.get("key") == OLD
    clock.advance(TTL)
    end = start_loading(cache, in_thread, lambda: NEW)
    for _ in range(2):
        assert cache.load("key", None, TTL) == OLD
    assert end() == NEW
    assert cache.load("key", None, TTL) == NEW
    assert cache.engine.stats().stale_hits == 2


def test_a_load_that_fails_leaves_the_old_value_to_the_others_while_the_next_caller_loads(cache, clock, in_thread):
    expired(cache, clock)
    with pytest.raises(ZeroDivisionError):
        start_loading(cache, in_thread, lambda: 1 // 0)()
    end = start_loading(cache, in_thread, lambda: NEW)
    assert cache.load("key", None, TTL) == OLD
    assert end() == NEW


def test_a_load_that_fails_in_the_background_leaves_the_old_value_too(cache, clock, in_thread):
    expired(cache, clock)
    with pytest.raises(ZeroDivisionError):
        cache.load("key", lambda: 1 // 0, TTL, load_timeout=PATIENCE)
    end = start_loading(cache, in_thread, lambda: NEW)
    assert cache.load("key", None, TTL) == OLD
    assert end() == NEW


def test_a_value_that_is_deleted_while_it_is_loaded_is_not_returned_to_later_callers(cache, clock, in_thread):
    expired(cache, clock)
    end = start_loading(cache, in_thread, lambda: NEW)
    cache.delete("key")
    asking = in_thread(cache.load, "key", lambda: NEW, TTL)
    until_waiting()
    assert end() == asking.result(PATIENCE) == NEW
    assert cache.engine.stats().stale_hits == 0


def test_the_grace_of_a_call_replaces_that_of_the_option(cache, clock):
    cache.load("key", lambda: OLD, TTL, grace=GRACE / 3)
    clock.advance(TTL + GRACE / 2)
    assert len(cache.engine) == 0
    assert cache.load("key", lambda: NEW, TTL) == NEW


# A deleted value is never returned.

DELETES = {
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "clear": lambda cache: cache.clear(),
    "set that is over immediately": lambda cache: cache.set("key", 1, -1),
}


@pytest.mark.parametrize("delete", DELETES.values(), ids=DELETES)
def test_a_deleted_value_is_never_returned(cache, clock, in_thread, delete):
    expired(cache, clock)
    cache.get("key")
    in_thread(delete, cache).result(PATIENCE)
    asking = in_thread(cache.get, "key")
    until_waiting()
    # Otherwise a tier would not keep a value whose computation began before the delete.
    assert cache.get("key") is None
    cache.set("key", NEW)
    assert asking.result(PATIENCE) == NEW
    assert cache.engine.stats().stale_hits == 0


# All other calls.


def test_for_every_other_call_a_value_in_its_grace_has_expired(cache, clock, in_thread):
    expired(cache, clock)
    cache.get("key")

    def look():
        return (
            cache.has("key"),
            cache.get_many(["key"]),
            cache.delete("another"),
            cache.touch("key", TTL) if hasattr(cache, "touch") else False,
        )

    assert in_thread(look).result(PATIENCE) == (False, {}, False, False)
    assert in_thread(cache.load, "key", lambda: NEW).result(PATIENCE) == NEW


def test_add_stores_over_an_old_value_and_what_it_stores_has_no_grace(cache, clock, in_thread):
    """Locks, rate limits and one-time codes keep their timeouts exactly."""
    expired(cache, clock)
    assert cache.add("key", NEW, TTL)
    assert cache.get("key") == NEW
    clock.advance(TTL)
    assert cache.get("key") is None
    asking = in_thread(cache.get, "key")
    until_waiting()
    cache.delete("key")
    assert asking.result(PATIENCE) is None


def test_a_delete_of_a_value_in_its_grace_reports_that_there_was_none(cache, clock):
    expired(cache, clock)
    assert cache.delete("key") is False
    assert len(cache.engine) == 0


def test_old_values_stay_in_memory_for_the_grace_and_no_longer(cache, clock):
    expired(cache, clock)
    assert len(cache.engine) == 1
    clock.advance(GRACE - 1)
    assert len(cache.engine) == 1
    clock.advance(1 + cache.lag)
    assert len(cache.engine) == 0
