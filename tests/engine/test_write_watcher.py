"""The contract of ``WriteWatcher``: parts that follow the writes of a cache, by each way to write."""

import pytest

from wheelcache import Cache
from wheelcache.engine.keys import CALLERS
from wheelcache.engine.write_watcher import WriteMoments, WritesSince, WriteWatcher
from wheelcache.runtime.clock import moment

CACHES = {
    "plain": {},
    "listener": {"on_removal": lambda *removal: None},
    "weigher": {"weigher": lambda key, value: 1, "max_weight": 100},
}
WRITES = {
    "set": lambda cache: cache.set("key", 2),
    "set with a tag": lambda cache: cache.set("key", 2, tags=["other"]),
    "set of a tuple": lambda cache: cache.set(("key",), 2),
    "set_many": lambda cache: cache.set_many({"key": 2}),
    "add": lambda cache: cache.add("new", 2),
    "incr": lambda cache: cache.incr("key"),
    "update": lambda cache: cache.update("key", lambda value: value + 1),
    "replace": lambda cache: cache.engine.replace("key", 2, 10, 0.0),
    "renew": lambda cache: cache.engine.renew("key", 1),
    "touch": lambda cache: cache.touch("key", 10),
    "delete": lambda cache: cache.delete("key"),
    "delete_many": lambda cache: cache.delete_many(["key"]),
    "delete_where": lambda cache: cache.delete_where(lambda key: False),
    "delete_tags": lambda cache: cache.delete_tags("tag"),
    "clear": lambda cache: cache.clear(),
}
WRITTEN = {"add": "new", "set of a tuple": ("key",), "delete_tags": f"{CALLERS}tag"}


@pytest.fixture(params=CACHES)
def cache(request, closed):
    cache = closed(Cache(**CACHES[request.param]))
    cache.set("key", 1, tags=["tag"])
    cache.set(("key",), 1)
    return cache


@pytest.fixture
def moments(cache):
    return cache.engine.watcher(WriteMoments, WriteMoments)


@pytest.mark.parametrize("name", WRITES)
def test_every_write_by_a_caller_has_a_moment(cache, moments, name):
    writes, written = WritesSince(moments, moment()), WRITTEN.get(name, "key")
    assert not writes.contain([written])
    WRITES[name](cache)
    assert writes.contain([written])
    assert not WritesSince(moments, moment()).contain([written])


def test_a_load_is_no_write(cache, moments):
    writes = WritesSince(moments, moment())
    assert cache.get_or_load("new", lambda: 1) == cache.get("new") == 1
    assert not writes.contain(["new"])


class Noted(WriteWatcher):
    def __init__(self):
        self.calls = []
        self.open = {"key": None}

    def refused(self, key):
        self.calls.append(("refused", key))

    def deleted(self, key):
        self.calls.append(("deleted", key))

    def cleared(self):
        self.calls.append("cleared")

    def close(self):
        self.calls.append("close")


def test_a_watcher_is_attached_once_and_notified_until_the_cache_is_closed(cache):
    noted = cache.engine.watcher(Noted, Noted)
    assert cache.engine.watcher(Noted, None) is noted
    cache.engine.watcher(WriteMoments, WriteMoments)
    since = moment()
    cache.delete("key")
    cache.delete_tags("tag")
    cache.engine.set("key", "outdated", 10, tags=("tag",), since=since)
    cache.pop("missing", None)
    cache.clear()
    cache.close()
    assert noted.calls == [("deleted", "key"), ("refused", "key"), ("deleted", "missing"), "cleared", "close"]


# The writes of a transaction.


class TestWritesSince:
    """``others`` are the writes of the cache by others since the transaction began."""

    @pytest.fixture
    def others(self, moments):
        return WritesSince(moments, moment())

    def write(self, cache, transaction):
        with transaction.apply():
            cache.engine.delete("key")

    @pytest.mark.parametrize("order", [None, "before", "between", "after"])
    def test_a_write_of_another_caller_counts_whenever_it_comes(self, cache, others, order):
        for time in ("before", "between", "after"):
            if time == order:
                cache.set("key", "theirs")
            if time != "after":
                self.write(cache, others)
        assert others.contain(["key"]) == (order is not None)

    def test_the_writes_of_a_transaction_within_it_are_its_own_and_it_is_as_old_as_the_older_one(self, cache, moments):
        outer = WritesSince(moments, moment())
        cache.set("before the inner one", 1)
        inner = WritesSince(moments, moment())
        self.write(cache, inner)
        outer.add(inner)
        assert not outer.contain(["key"])
        inner.add(outer)
        assert inner.contain(["before the inner one"])
        assert WritesSince(moments, 0).contain(["key"]), "that of an unknown beginning keeps nothing"


@pytest.mark.parametrize("write", [None, lambda cache: cache.set("key", 1), lambda cache: cache.delete_tags("tag")])
def test_the_value_of_a_transaction_is_stored_unless_others_have_written_its_key_or_dropped_a_tag(
    cache, moments, write
):
    noted, others = cache.engine.watcher(Noted, Noted), WritesSince(moments, moment())
    cache.delete("key")
    others = WritesSince(moments, moment()) if write is None else others
    if write is not None:
        write(cache)
    noted.calls.clear()
    assert cache.engine.store_committed("key", "computed", 10, 0.0, ("tag",), others) == (write is None)
    assert (cache.get("key") == "computed") == (write is None)
    assert noted.calls == ([] if write is None else [("refused", "key")])
