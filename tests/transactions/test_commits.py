"""The end of a block: its invalidations reach all, and its values only if others have not outdated them."""

from contextlib import contextmanager
from itertools import count
from threading import Event

import pytest
from django.core.cache.backends.locmem import LocMemCache
from django.db import OperationalError, connection, transaction

from tests.transactions import conftest
from tests.waiting import PATIENCE, join, start
from wheelcache.django_backend import memoize
from wheelcache.engine.in_memory import InMemory
from wheelcache.host_cache.host_core import lane_of
from wheelcache.near_cache.near_copies import NearCopies

# Not of every cache that may be behind.
WRITES = {**conftest.WRITES, "delete_pattern": lambda cache: cache.delete_pattern("k*")}

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize("alias", ["tiered"])
@pytest.mark.parametrize("invalidate", ["cache_delete", "cache_clear"])
def test_the_first_call_for_a_memoized_function_may_be_within_a_transaction(cache, others, invalidate):
    value, calls = "old", []

    @memoize(60)
    def memoized(number):
        calls.append(number)
        return value

    with transaction.atomic():
        getattr(memoized, invalidate)(*([1] if invalidate == "cache_delete" else []))
        assert others(memoized, 1) == others(memoized, 2) == "old"
        # Committed with the end of the block.
        value = "new"
    assert (memoized(1), memoized(2)) == ("new", "old" if invalidate == "cache_delete" else "new")
    assert calls == ([1, 2, 1] if invalidate == "cache_delete" else [1, 2, 1, 2])


@pytest.mark.parametrize("alias", ["tiered"])
def test_cache_delete_in_a_block_whose_snapshot_hides_the_version_of_the_function_clears_it(cache, monkeypatch):
    numbers = count()

    @memoize(60)
    def memoized(argument):
        return next(numbers)

    assert memoized(1) == 0
    with transaction.atomic(), monkeypatch.context() as hidden:
        hidden.setattr(LocMemCache, "get", lambda self, key, default=None, version=None: default)
        hidden.setattr(LocMemCache, "add", lambda *args, **given: False)
        memoized.cache_delete(1)
    assert [memoized(1), memoized(1)] == [1, 1]


@pytest.mark.parametrize("first", ["set", "get_or_set"])
def test_a_value_that_is_set_after_a_fill_in_the_same_block_removes_the_values_of_others(cache, others, first):
    def fill():
        assert cache.get("key") is None
        cache.set("key", "from before the commit")

    with transaction.atomic():
        assert cache.get("key") is None
        getattr(cache, first)("key", "from before the change of its data")
        cache.set("key", "new")
        others(fill)
    assert others(cache.get, "key") in (None, "new")


@pytest.mark.parametrize("alias", ["wheel", "host"])
def test_a_value_that_replaces_another_in_a_block_keeps_its_tags(cache):
    cache.set("key", "old", tags=["tag"])
    with transaction.atomic():
        assert cache.set("key", "new", xx=True)
    assert cache.get("key") == "new"
    cache.delete_tags("tag")
    assert cache.get("key") is None


@pytest.mark.parametrize("alias", ["tiered"])
def test_values_are_shared_in_the_opposite_order_so_that_a_page_comes_before_its_list_of_headers(cache, monkeypatch):
    shared = []
    monkeypatch.setattr(LocMemCache, "set", lambda self, key, *args, **given: shared.append(key))
    with transaction.atomic():
        cache.set("headers", [])
        cache.set("page", "page")
    assert shared[-2:] == [":1:page", ":1:headers"]


def test_a_block_that_clears_the_cache_shares_no_fill_that_others_outdated(cache, others):
    for write in (cache.delete, transaction.atomic(cache.delete)):
        with transaction.atomic():
            cache.clear()
            assert cache.get("key") is None
            cache.set("key", "old")
            others(write, "key")
        assert cache.get("key") is None


def test_values_are_kept_again_after_a_commit(cache, others):
    with transaction.atomic():
        cache.delete("key")
    assert cache.get_or_set("key", lambda: "new", tags=["tag"]) == "new"
    assert others(cache.get, "key") == "new"


@pytest.mark.parametrize("alias", ["wheel"])
def test_an_invalidation_that_is_interrupted_is_applied(cache, monkeypatch):
    cache.set("key", "old")
    delete_many = InMemory.delete_many

    def interrupted(*args):
        monkeypatch.setattr(InMemory, "delete_many", delete_many)
        raise KeyboardInterrupt

    @transaction.atomic
    def delete():
        cache.delete("key")
        monkeypatch.setattr(InMemory, "delete_many", interrupted)

    with pytest.raises(KeyboardInterrupt):
        delete()
    assert cache.get("key") is None


@pytest.mark.parametrize("alias", ["tiered"])
def test_the_database_is_rolled_back_if_the_store_fails_before_the_commit(cache, on_disk, monkeypatch):
    def fail(*args):
        raise ConnectionError

    @transaction.atomic
    def write():
        connection.cursor().execute("CREATE TABLE made (value integer)")
        cache.delete("key")
        monkeypatch.setattr(NearCopies, "delete_many", fail)

    with pytest.raises(ConnectionError):
        write()
    monkeypatch.undo()
    assert "made" not in connection.introspection.table_names()


def test_deletes_are_applied_if_the_outcome_of_a_commit_by_hand_is_unknown(cache, others, on_disk, monkeypatch):
    def lose():
        raise OperationalError

    cache.set("key", "old")
    transaction.set_autocommit(False)
    cache.delete("key")
    monkeypatch.setattr(connection, "_commit", lose)
    with pytest.raises(OperationalError):
        transaction.commit()
    assert others(cache.get, "key") is None
    monkeypatch.undo()
    connection.close()


@contextmanager
def during_commit(call):
    """Call ``call`` during the commit of this block: after the first invalidation, and before the database commits."""
    commit = connection._commit

    def commit_after_call():
        del connection._commit
        call()
        commit()

    connection._commit = commit_after_call
    with transaction.atomic():
        yield


def in_block(write, cache):
    with transaction.atomic():
        write(cache)


@pytest.mark.pairs
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("own", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("is_block", [False, True])
@pytest.mark.parametrize("alias", ["wheel", "host"])
def test_a_write_during_a_commit_outdates_the_values_of_the_block(cache, others, on_disk, own, write, is_block):
    arguments = (in_block, write, cache) if is_block else (write, cache)
    with during_commit(lambda: others(*arguments)):
        own(cache)
        cache.set("key", "old", tags=["tag"])
    assert cache.get("key") != "old"


@pytest.mark.parametrize("own", ["delete_pattern", "clear"])
@pytest.mark.parametrize("write", ["delete_pattern", "clear"])
@pytest.mark.parametrize("alias", ["wheel", "host"])
def test_no_value_from_before_a_commit_is_kept_if_another_commit_ends_meanwhile(cache, others, on_disk, own, write):
    is_loading, is_committed, loads = Event(), Event(), []

    def load():
        is_loading.set()
        assert is_committed.wait(PATIENCE)
        return "old"

    def commit_another_and_begin_to_load():
        others(in_block, WRITES[write], cache)
        loads.append(start(cache.get_or_set, "key", load))
        assert is_loading.wait(PATIENCE)

    with during_commit(commit_another_and_begin_to_load):
        WRITES[own](cache)
    is_committed.set()
    join(*loads)
    assert cache.get("key") is None


@pytest.mark.parametrize("alias", ["host"])
def test_a_key_with_the_same_floor_hides_no_write_by_others_and_refuses_no_value_of_the_block(cache, others):
    twin = next(name for name in map(str, count()) if lane_of(cache.make_key(name)) == lane_of(cache.make_key("key")))
    with transaction.atomic():
        cache.delete(twin)
        cache.set("key", "old")
        others(cache.set, "key", "new")
    assert cache.get("key") != "old"
    with transaction.atomic():
        cache.delete_many([twin, "key"])
        cache.set_many({"key": "newest", twin: "newest"})
    assert cache.get_many(["key", twin]) == {"key": "newest", twin: "newest"}
