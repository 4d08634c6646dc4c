"""A caller gets the value that was set, of any type, and no other caller shares the object."""

import pickle
import sys
import threading
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.utils.safestring import SafeString

from tests.backends.adapters import WITH_ASYNC
from tests.waiting import THREADS

pytestmark = [
    pytest.mark.pairs(full="adapter", of="value"),
    pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True),
]


class Text(str):
    pass


class Number(int):
    pass


IMMUTABLE = [
    *(None, True, 0, -1.5, 2**100, 3j, "text", b"bytes", b"\x80\x05].", Decimal("1.10"), UUID(int=7)),
    *(date(2024, 2, 29), timedelta(days=3), datetime(2024, 1, 1), datetime(2024, 2, 29, 12, tzinfo=UTC)),
    *(datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Zurich")), (1, ("a", None), frozenset({(2, 3)}))),
]
MUTABLE = [
    *([], {}, set(), [1, [2]], {"a": [1]}, {1, 2}, bytearray(b"x"), OrderedDict(a=1), (1, [2])),
    *(((1, (2, {"deep": []})),), frozenset([(1, SafeString("x"))]), SimpleNamespace(a=[1])),
    *(SafeString("<b>"), Text("may have attributes"), Number(3)),
]


@pytest.mark.pairs(full="adapter", of="adapter, objects")
@pytest.mark.parametrize(
    ("value", "objects"), [*((each, 1) for each in IMMUTABLE), *((each, 5) for each in MUTABLE)], ids=repr
)
def test_a_value_is_got_as_it_was_set_and_a_new_object_if_it_can_change(make, value, objects):
    cache = make()
    cache.set("key", value)
    assert cache.has("key")
    got = [cache.get("key"), cache.get("key"), cache.get_many(["key"]).get("key"), cache.load("key", pytest.fail)]
    assert got == [value] * 4
    assert {type(each) for each in got} == {type(value)}
    assert len({id(each) for each in [*got, value]}) == objects


WRITES = {
    "set": lambda cache, value: cache.set("key", value),
    "add": lambda cache, value: cache.add("key", value),
    "set_many": lambda cache, value: cache.set_many({"key": value}),
    "load": lambda cache, value: cache.load("key", lambda: value),
}
READS = {
    "get": lambda cache: cache.get("key"),
    "get_many": lambda cache: cache.get_many(["key"])["key"],
    "load": lambda cache: cache.load("key", pytest.fail),
}


@pytest.mark.pairs(full="adapter")
@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_caller_that_changes_what_it_gave_or_got_does_not_change_what_is_cached(make, write, read):
    cache = make()
    given = ([1], Text("a"))
    written = write(cache, given)
    given[0].append(2)
    given[1].attribute = "changed"
    if isinstance(written, tuple):
        written[0].append(3)
    got = read(cache)
    assert got[0] == [1]
    got[0].append(4)
    got[1].attribute = "changed"
    assert read(cache)[0] == [1]
    assert not hasattr(read(cache)[1], "attribute")


def test_a_cached_none_is_there(make):
    cache = make()
    cache.set("key", None)
    assert cache.has("key")
    assert cache.add("key", 1) is False
    assert cache.load("key", pytest.fail) is None
    assert cache.load("loaded", lambda: None) is None
    assert cache.has("loaded")
    assert cache.delete("key") is True


@pytest.mark.parametrize("value", [lambda: 1, threading.Lock(), (1, threading.Lock())], ids=type)
def test_a_value_that_cannot_be_pickled_raises_and_leaves_what_was_there(make, value):
    cache = make()
    cache.set("old", 1)
    for write in (
        lambda: cache.set("old", value),
        lambda: cache.set_many({"fine": 1, "old": value}),
        lambda: cache.add("new", value),
        lambda: cache.load("new", lambda: value),
    ):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            write()
    assert cache.get_many(["old", "new", "fine"]) == {"old": 1}
    # The load that failed is over.
    assert cache.load("new", lambda: 2) == 2


def test_a_counter_works_on_what_adds_and_what_does_not_is_an_error_that_leaves_the_value(make):
    cache = make()
    cache.set_many({"int": 2**62, "float": 1.5, "list": [1], "decimal": Decimal(1), "text": "text", "dict": {"a": 1}})
    assert (cache.count("int", 2**62), cache.count("int", -(2**63))) == (2**63, 0)
    assert (cache.count("float", 0.25), cache.count("decimal")) == (1.75, 2)
    assert cache.count("list", [2]) == cache.get("list") == [1, 2]
    for key in ("text", "list", "dict"):
        before = cache.get(key)
        with pytest.raises(TypeError):
            cache.count(key)
        assert cache.get(key) == before


# Bounds.


def test_no_more_entries_are_kept_than_max_entries_however_they_come_and_the_least_recently_used_leave(make):
    cache = make(max_entries=7)
    for number in range(20):
        cache.set(str(number), [number])
        cache.add(f"added-{number}", 1)
        cache.load(f"loaded-{number}", lambda: [1])
        cache.set_many({f"many-{each}": each for each in range(20)})
        assert len(cache.engine) <= 7
    assert cache.get_many(f"many-{each}" for each in range(20)) == {f"many-{each}": each for each in range(13, 20)}
    if not cache.has_exact_order:
        return
    cache.get("many-13")
    cache.set("new", 1)
    assert [cache.has(key) for key in ("many-13", "many-14", "new")] == [True, False, True]


@pytest.mark.parametrize(
    "value", ["x" * 1000, b"x" * 1000, list(range(400)), {"a": "x" * 900}, frozenset(["x" * 900])], ids=type
)
def test_max_bytes_bounds_what_the_entries_take(make, value):
    cache = make(max_entries=10_000, max_bytes=50_000)
    cache.set_many({str(number): value for number in range(200)})
    # 800 to 1,200 bytes for a value, as an object or pickled, plus its key and the memory of an entry.
    assert 20 < len(cache.engine) < 65
    assert len(cache.engine) * sys.getsizeof("x" * 700) <= cache.engine.stats().weight <= 50_000
    assert (cache.get("199"), cache.get("0")) == (value, None)
    cache.clear()
    assert cache.engine.stats().weight == 0


def test_a_value_that_alone_is_more_than_max_bytes_is_not_cached_and_leaves_no_old_one(make):
    cache = make(max_bytes=5000)
    cache.set_many({"key": "small", "other": "small"})
    cache.set("key", "x" * 6000)
    assert cache.get_many(["key", "other"]) == {"other": "small"}
    assert cache.add("big", "x" * 6000) is False
    assert cache.set_many({"big": "x" * 6000, "fits": [1]}) == ["big"]
    assert cache.load("big", lambda: ["y" * 6000]) == ["y" * 6000]
    assert cache.get_many(["big", "fits"]) == {"fits": [1]}


def test_the_many_take_iterators_and_more_than_a_batch(make):
    cache = make(max_entries=10_000)
    values = {f"key{number}": [number] for number in range(2000)}
    assert cache.set_many(values, 60) == []
    assert cache.get_many(iter(values)) == values
    cache.delete_many(iter(values))
    assert (cache.get_many(values), cache.get_many([]), cache.set_many({})) == ({}, {}, [])


# Many threads. The guarantees of the engine are tested there.


def test_counters_lose_no_update_and_one_thread_adds_and_one_deletes(make, together, clock):
    cache = make()
    cache.set("sum", 0)
    counted = together(lambda number: [cache.count("sum") for _ in range(20)])
    assert sorted(each for some in counted for each in some) == list(range(1, THREADS * 20 + 1))
    cache.set("expired", "old", 10)
    clock.advance(10)
    for key in ("expired", "missing"):
        won = together(lambda number, key=key: cache.add(key, [number]))
        assert won.count(True) == 1
        assert cache.get(key) == [won.index(True)]
        assert together(lambda number, key=key: cache.delete(key)).count(True) == 1
