"""Parts that follow the writes of a cache, by each way to write."""

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


@pytest.mark.parametrize("name", WRITES)
def test_every_write_by_a_caller_has_a_moment(cache, name):
    moments = cache.engine.watcher(WriteMoments, WriteMoments)
    writes = WritesSince(moments, moment())
    written = WRITTEN.get(name, "key")
    assert not writes.contain([written])
    WRITES[name](cache)
    assert writes.contain([written])


def test_a_load_is_no_write(cache):
    moments = cache.engine.watcher(WriteMoments, WriteMoments)
    writes = WritesSince(moments, moment())
    assert cache.get_or_load("new", lambda: 1) == cache.get("new") == 1
    assert not writes.contain(["new"])


class Noted(WriteWatcher):
    def __init__(self):
        self.calls = []

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
    cache.delete("key")
    cache.pop("missing", None)
    cache.clear()
    cache.close()
    assert noted.calls == [("deleted", "key"), ("deleted", "missing"), "cleared", "close"]
