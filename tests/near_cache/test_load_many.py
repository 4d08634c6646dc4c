"""Many keys loaded by one call, during loads of single keys."""

import pytest

from tests.engine.loading import conftest as fixtures
from tests.engine.loading.harness import Held, assert_counts, returns
from tests.waiting import PATIENCE, until_waiting
from wheelcache import LoadDeadlock
from wheelcache.engine.loading.request import PLAIN
from wheelcache.near_cache.many_loads import load_many
from wheelcache.runtime.steps import Call, drive, result

cache, make, moments, pool, removals = fixtures.cache, fixtures.make, fixtures.moments, fixtures.pool, fixtures.removals


def load(cache, keys, loader, ttl=10):
    """Load ``keys`` by one call of ``loader(keys)``."""

    def read(keys):
        return result((yield Call(lambda: loader(keys))))

    return drive(load_many(cache.engine, keys, read, ttl, PLAIN))


def test_an_error_reaches_the_caller_and_the_waiters(cache, pool):
    loader = Held(LookupError("no"))
    many = pool.submit(load, cache, ["a", "b"], loader)
    assert loader.is_running()
    waiting = pool.submit(cache.get_or_load, "b", returns("unreached"))
    until_waiting()
    loader.release()
    assert many.exception(PATIENCE) is loader.value
    assert repr(waiting.exception(PATIENCE)) == repr(loader.value)
    assert cache._parts.loads.is_idle
    assert_counts(cache, misses=1, load_failures=2)


def test_it_does_not_wait_for_a_load_in_progress_and_neither_value_is_kept(cache, pool):
    loader = Held("single")
    single = pool.submit(cache.get_or_load, "a", loader)
    assert loader.is_running()
    assert load(cache, ["a", "b"], returns({"a": "of many", "b": 2})) == {"a": "of many", "b": 2}
    loader.release()
    assert single.result(PATIENCE) == "single"
    assert cache.get("a") is None
    assert cache.get("b") == 2


class Incomparable:
    def __eq__(self, other):
        raise TypeError

    __hash__ = None


def test_a_value_that_was_read_beside_an_entry_drops_it_if_it_differs_or_may_differ(cache):
    cache.set("incomparable", Incomparable())
    cache.engine.loads().reconcile("incomparable", Incomparable())
    assert cache.get("incomparable") is None
    cache.set("same", [1])
    cache.set("other", 1)
    cache.engine.loads().reconcile("same", [1])
    cache.engine.loads().reconcile("other", 2)
    cache.engine.loads().reconcile("missing", 1)
    assert cache.get("same") == [1]
    assert cache.get("other") is None


def test_a_loader_of_many_that_takes_one_of_them_is_refused(cache):
    with pytest.raises(LoadDeadlock):
        load(cache, ["a", "b"], lambda keys: {"a": cache.get_or_load("b", returns("unreached"))})


def test_a_weigher_that_raises_for_one_of_many_leaves_no_caller_waiting_for_the_others(make):
    def weigh(key, value):
        if value == 2:
            raise ValueError(value)
        return 1

    cache = make(max_weight=10, weigher=weigh)
    with pytest.raises(ValueError, match="2"):
        load(cache, "abc", lambda missing: {"a": 1, "b": 2, "c": 3}, None)
    assert cache.get_or_load("c", lambda: 4) == 4
    assert cache.get_or_load("b", lambda: 5) == 5
