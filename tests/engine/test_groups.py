"""Groups: the entries of one memoized function, and all others whose keys begin with the same name."""

from decimal import Decimal

import pytest

from wheelcache.errors import MissingKey

WAYS_TO_STORE = {
    "set": lambda cache, key: cache.set(key, 1),
    "add": lambda cache, key: cache.add(key, 1),
    "set_many": lambda cache, key: cache.set_many({key: 1}),
    "set_many, without jitter": lambda cache, key: cache.set_many({key: 1}, jitter=False),
    "get_or_load": lambda cache, key: cache.get_or_load(key, lambda: 1),
    "incr": lambda cache, key: (cache.set(key, 0), cache.incr(key)),
    "update": lambda cache, key: (cache.set(key, 0), cache.update(key, lambda value: 1)),
    "touch": lambda cache, key: (cache.set(key, 1), cache.touch(key, 5)),
    "set twice": lambda cache, key: (cache.set(key, 0), cache.set(key, 1)),
}


@pytest.mark.pairs(full="key", of="key")
@pytest.mark.parametrize("store", WAYS_TO_STORE.values(), ids=WAYS_TO_STORE)
@pytest.mark.parametrize("key", [("a", 1), ("a",), ("a", Decimal(1))], ids=repr)
def test_a_group_ends_however_its_entries_were_stored(cache, store, key):
    store(cache, key)
    cache.set(("b", 1), 1)
    cache.set("a", 1)
    assert cache.get(key) == 1
    group = cache.engine.add_group("a")
    assert group.delete() == 1
    assert cache.get(key) is None
    assert key not in cache
    with pytest.raises(MissingKey):
        cache.expires_in(key)
    assert sorted(cache.keys(), key=repr) == ["a", ("b", 1)]
    assert group.delete() == 0


def test_entries_that_are_stored_later_stay(cache):
    cache.set(("a", 1), 1)
    cache.engine.add_group("a").delete()
    cache.set(("a", 1), 2)
    cache.set(("a", 2), 2)
    assert [cache.get(("a", key)) for key in (1, 2)] == [2, 2]


def test_without_a_listener_the_wheel_gives_their_memory_back(cache, clock):
    for key in range(5000):
        cache.set(("a", key), key)
    cache.engine.add_group("a").delete()
    clock.advance(1)
    assert len(cache) == 0
    assert cache.stats().removals["deleted"] == 5000
