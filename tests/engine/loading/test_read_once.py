"""Values that can be read only once: coroutines and generators."""

from contextlib import closing
from math import inf

import pytest

from tests.engine.loading.harness import returns
from wheelcache import Cache

AWAIT = r"<coroutine object .*> can be awaited only once, so it is not cached: in a coroutine, await aget_or_set\(\) or"
LIST = "can be read only once, so it is not cached: return a list or a tuple instead"


async def coroutine():
    return 1


def generator():
    yield 1


async def async_generator():
    yield 1


KINDS = pytest.mark.parametrize(
    ("function", "message"), [(coroutine, AWAIT), (generator, f"<generator .*{LIST}"), (async_generator, LIST)]
)


WRITES = {
    "set": lambda cache, value: cache.set("k", value),
    "set, an infinite TTL": lambda cache, value: cache.set("k", value, inf),
    "set with tags": lambda cache, value: cache.set("k", value, tags=("t",)),
    "add": lambda cache, value: cache.add("k", value),
    "add, another kind of key": lambda cache, value: cache.add(("k",), value),
    "set_many": lambda cache, value: cache.set_many({"j": 1, "k": value}),
    "set_many of many batches": lambda cache, value: cache.set_many(dict.fromkeys(range(3000)) | {"k": value}),
    "set_many with tags": lambda cache, value: cache.set_many({"j": 1, "k": value}, tags=("t",)),
    "update": lambda cache, value: (cache.set("k", 1), cache.update("k", lambda old: cache.delete("k") and value)),
}


@pytest.mark.pairs
@pytest.mark.parametrize("plain", [True, False], ids=["plain", "listener"])
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@KINDS
def test_no_write_stores_a_value_that_can_be_read_only_once(plain, write, function, message):
    made = function()
    with closing(Cache(on_removal=None if plain else returns(None))) as cache:
        with pytest.raises(TypeError, match=message):
            write(cache, made)
        # Nothing else was stored either, and the coroutine was closed.
        assert cache.keys() == []
    assert function is not coroutine or made.cr_frame is None


class Awaitable:
    """Neither a coroutine nor a generator, although it has their methods."""

    def __await__(self):
        yield

    def __next__(self):
        raise StopIteration

    send = __next__


@pytest.mark.parametrize("value", [Awaitable(), iter([1]), Awaitable], ids=["awaitable", "iterator", "class"])
def test_other_values_are_stored_as_they_are(cache, value):
    assert cache.set("k", value)
    assert cache.get("k") is value
