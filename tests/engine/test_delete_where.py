"""``Cache.delete_where``: the keys for which a function of the caller is true."""

import threading

import pytest

from tests.caches import ticking
from tests.waiting import PATIENCE, join, start
from wheelcache import Cache, RemovalCause
from wheelcache.core.contract import BATCH
from wheelcache.errors import CacheClosed


@pytest.fixture
def cache(clock):
    return Cache(clock=clock, jitter=0, max_entries=None)


def test_the_keys_for_which_it_is_true_are_deleted_and_counted(cache):
    cache.set_many({number: str(number) for number in range(3 * BATCH)})
    assert cache.delete_where(lambda key: key % 3 == 0) == BATCH
    assert len(cache) == 2 * BATCH
    assert not any(key % 3 == 0 for key in cache.keys())
    assert cache.delete_where(lambda key: key % 3 == 0) == 0


def test_the_function_receives_the_keys_of_the_caller_once_each(cache):
    class Key:
        def __init__(self, name):
            self.name = name

        def __eq__(self, other):
            return isinstance(other, Key) and self.name == other.name

        def __hash__(self):
            return hash(self.name)

    keys = [Key("a"), "a", ("a", 1), None, 1.5]
    for key in keys:
        cache.set(key, 1)
    seen = []
    assert cache.delete_where(seen.append) == 0
    assert sorted(map(id, seen)) == sorted(map(id, keys))
    assert cache.delete_where(lambda key: isinstance(key, Key)) == 1
    assert cache.get(Key("a")) is None
    assert len(cache) == 4


def test_expired_keys_are_not_counted(clock):
    cache = ticking(3600)(clock=clock, jitter=0)
    cache.set("old", 1, ttl=10)
    cache.set("new", 1)
    clock.advance(10)
    assert len(cache) == 2
    assert cache.delete_where(lambda key: True) == 1
    assert len(cache) == 0


def test_the_listener_is_called_for_each(cache):
    removed = []
    cache.on_removal = lambda *given: removed.append(given)
    cache.set_many({"a": 1, "b": 2})
    cache.delete_where(lambda key: key == "a")
    assert removed == [("a", 1, RemovalCause.DELETED)]


def test_the_function_may_use_the_cache_and_an_error_of_it_reaches_the_caller(cache):
    cache.set_many({"a": 1, "b": 2})

    def fails(key):
        assert cache.get(key) is not None
        cache.set("c", 3)
        raise LookupError(key)

    with pytest.raises(LookupError):
        cache.delete_where(fails)
    assert sorted(cache.keys()) == ["a", "b", "c"]


def test_a_load_that_began_before_is_not_stored(cache):
    began, go_on, got = threading.Event(), threading.Event(), []

    def load():
        began.set()
        assert go_on.wait(PATIENCE)
        return "old"

    thread = start(lambda: got.append(cache.get_or_load("key", load)))
    assert began.wait(PATIENCE)
    assert cache.delete_where(lambda key: key == "key") == 0
    go_on.set()
    join(thread)
    assert got == ["old"]
    assert cache.get("key") is None


@pytest.mark.parametrize("wrong", [None, "a*", 1])
def test_a_function_that_is_none_is_an_error(cache, wrong):
    with pytest.raises(TypeError, match="predicate must be callable, not"):
        cache.delete_where(wrong)


def test_a_closed_cache_deletes_nothing(cache):
    cache.close()
    with pytest.raises(CacheClosed):
        cache.delete_where(lambda key: True)
