"""A late value is removed from the store unless a newer one has replaced it: atomically, where the client can do so."""

import pytest
import redis
from django.core.cache.backends.base import BaseCache

from wheelcache.near_cache.late_values import IN_REDIS, remove_own


class Memcached:
    """A client of pymemcache with one value and its number."""

    def __init__(self, *stored):
        self.stored = stored
        self.written = []

    def gets(self, name):
        return self.stored or None

    def cas(self, *args):
        self.written.append(args)


Memcached.__module__ = "pymemcache.client.hash"


@pytest.mark.parametrize(("stored", "written"), [(([1], b"7"), [("k", b"", b"7", -1)]), (([2], b"7"), []), ((), [])])
def test_memcached_replaces_only_the_same_value_by_one_that_is_over(stored, written):
    store = BaseCache({})
    store._cache = Memcached(*stored)
    remove_own(store, "k", [1], get=pytest.fail, delete=pytest.fail)
    assert store._cache.written == written


def test_redis_compares_and_deletes_in_one_step(monkeypatch):
    sent = []
    monkeypatch.setattr(redis.Redis, "eval", lambda self, *args: sent.append(args))
    store = redis.Redis()
    store.serializer = type("Serializer", (), {"dumps": repr})
    remove_own(store, "k", [1], get=pytest.fail, delete=pytest.fail)
    assert sent == [(IN_REDIS, 1, "k", "[1]")]


@pytest.mark.parametrize(("found", "deletes"), [([1], 1), ([2], 0), (None, 0), (lambda: 1, 1)])
def test_other_stores_delete_the_same_value_or_one_that_cannot_be_compared(found, deletes):
    deleted = []
    remove_own(BaseCache({}), "k", [1], get=lambda: found, delete=lambda: deleted.append("k"))
    assert len(deleted) == deletes
