"""``Cache.delete_where``: the keys for which a function of the caller is true."""

import pytest

from tests.caches import ticking
from wheelcache import Cache
from wheelcache.core.contract import BATCH


@pytest.fixture
def cache(clock):
    return Cache(clock=clock, jitter=0)


def test_the_keys_for_which_it_is_true_are_deleted_and_counted(cache):
    cache.set_many({number: str(number) for number in range(3 * BATCH)})
    assert cache.delete_where(lambda key: key % 3 == 0) == BATCH
    assert len(cache) == 2 * BATCH
    assert not any(key % 3 == 0 for key in cache.keys())
    assert cache.delete_where(lambda key: key % 3 == 0) == 0


class Key:
    """Equal to all other objects of the class."""

    def __eq__(self, other):
        return isinstance(other, Key)

    def __hash__(self):
        return 1


def test_the_function_receives_the_keys_of_the_caller_once_each(cache):
    keys, seen = [Key(), "a", ("a", 1), None, 1.5], []
    for key in keys:
        cache.set(key, 1)
    assert cache.delete_where(seen.append) == 0
    assert sorted(map(id, seen)) == sorted(map(id, keys))
    assert cache.delete_where(lambda key: isinstance(key, Key)) == 1
    assert cache.get(Key()) is None
    assert len(cache) == 4


def test_expired_keys_are_not_counted(clock):
    cache = ticking(3600)(clock=clock, jitter=0)
    cache.set("old", 1, ttl=10)
    cache.set("new", 1)
    clock.advance(10)
    assert len(cache) == 2
    assert cache.delete_where(lambda key: True) == 1
    assert len(cache) == 0


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
    assert cache.get_or_load("key", lambda: cache.delete_where(lambda key: key == "key")) == 0
    assert cache.get("key") is None


@pytest.mark.parametrize("wrong", [None, "a*"])
def test_a_predicate_that_is_no_function_is_an_error(cache, wrong):
    with pytest.raises(TypeError, match="predicate must be callable, not"):
        cache.delete_where(wrong)
