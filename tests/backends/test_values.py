"""What is set is what is got, whatever it is, and belongs to no other caller."""

import enum
import pickle
import sys
import threading
from collections import OrderedDict
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from types import SimpleNamespace
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from django.utils.safestring import SafeString

from tests.waiting import PATIENCE

IMMUTABLE = [
    *(None, True, 0, -1.5, 2**100, 3j, "text", b"bytes", b"\x80\x05].", Decimal("1.10"), UUID(int=7)),
    *(date(2024, 2, 29), timedelta(days=3), datetime(2024, 1, 1), datetime(2024, 2, 29, 12, tzinfo=UTC)),
    datetime(2024, 1, 1, tzinfo=ZoneInfo("Europe/Zurich")),
    datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=2))),
    (1, ("a", None), frozenset({b"b", (2, 3)})),
]

MUTABLE = [
    *([], {}, set(), [1, [2]], {"a": [1]}, {1, 2}, bytearray(b"x"), OrderedDict(a=1), (1, [2])),
    *(((1, (2, {"deep": []})),), frozenset([(1, SafeString("x"))]), SimpleNamespace(a=[1])),
]


class Text(str):
    """May have attributes, hence is not immutable."""


class Colour(enum.StrEnum):
    RED = "red"


class Number(int):
    pass


def all_reads(cache, key="key"):
    return [cache.get(key), cache.get(key), cache.get_many([key]).get(key), cache.load(key, pytest.fail)]


@pytest.mark.parametrize("value", IMMUTABLE, ids=repr)
def test_an_immutable_value_is_the_object_that_was_set(make, value):
    cache = make()
    cache.set("key", value)
    assert cache.has("key")
    assert all(got is value for got in all_reads(cache))


@pytest.mark.parametrize("value", MUTABLE, ids=repr)
def test_a_value_that_can_change_is_an_equal_new_object_at_every_get(make, value):
    cache = make()
    cache.set("key", value)
    got = all_reads(cache)
    assert got == [value] * 4
    assert {type(each) for each in got} == {type(value)}
    assert len({id(each) for each in [*got, value]}) == 5


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
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@writes
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


@pytest.mark.parametrize("value", [SafeString("<b>"), Text("x"), Number(3), Colour.RED, True])
def test_a_subclass_of_an_immutable_type_keeps_its_type(make, value):
    cache = make()
    cache.set("key", value)
    assert cache.get("key") == value
    assert type(cache.get("key")) is type(value)


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
        lambda: cache.set("new", value),
        lambda: cache.set_many({"fine": 1, "old": value}),
        lambda: cache.add("new", value),
        lambda: cache.load("new", lambda: value),
    ):
        with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
            write()
    assert cache.get_many(["old", "new", "fine"]) == {"old": 1}
    # The flight that failed is over.
    assert cache.load("new", lambda: 2) == 2


class Boom(Exception):
    pass


class ExplodesOnLoad:
    def __reduce__(self):
        return _explode, ()


def _explode():
    raise Boom


def test_a_value_that_cannot_be_unpickled_raises_at_the_get(make):
    cache = make()
    cache.set("key", ExplodesOnLoad())
    for call in (cache.get, cache.count, lambda key: cache.get_many([key]), lambda key: cache.load(key, int)):
        with pytest.raises(Boom):
            call("key")
    cache.set("key", "repaired")
    assert cache.get("key") == "repaired"


class Elsewhere:
    """Uses the cache while it is pickled, unpickled or added, in this thread and in another: no lock may be held."""

    cache = None

    def __reduce__(self):
        self.use_the_cache()
        return _unpickled_elsewhere, ()

    @classmethod
    def use_the_cache(cls):
        def use():
            cls.cache.set_many({"b": 1, "c": 2})
            cls.cache.get_many(["b", "c"])
            cls.cache.count("b")

        use()
        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    def __radd__(self, other):
        return self


def _unpickled_elsewhere():
    Elsewhere.use_the_cache()
    return Elsewhere()


def test_no_lock_is_held_while_values_are_pickled_unpickled_and_added(make, monkeypatch):
    cache = make()
    monkeypatch.setattr(Elsewhere, "cache", cache)
    for write in WRITES.values():
        cache.delete("key")
        write(cache, Elsewhere())
        assert isinstance(cache.get("key"), Elsewhere)
        assert len(cache.get_many(["key", "b", "c"])) == 3
    cache.set("number", 1)
    assert isinstance(cache.count("number", Elsewhere()), Elsewhere)


# Counters.


def test_a_counter_works_on_whatever_adds(make):
    cache = make()
    cache.set_many({"int": 2**62, "float": 1.5, "list": [1], "decimal": Decimal(1)})
    assert cache.count("int", 2**62) == 2**63
    assert cache.count("int", -(2**63)) == 0
    assert cache.count("float", 0.25) == 1.75
    assert cache.count("list", [2]) == [1, 2]
    assert cache.get("list") == [1, 2]
    assert cache.count("decimal") == 2


@pytest.mark.parametrize("value", ["text", [1], {"a": 1}])
def test_what_does_not_add_up_is_an_error_that_leaves_the_value(make, value):
    cache = make()
    cache.set("key", value)
    with pytest.raises(TypeError):
        cache.count("key")
    assert cache.get("key") == value


# Bounds.


def test_the_least_recently_used_leaves_first_and_get_and_set_are_uses(make):
    cache = make(max_entries=3)
    cache.set_many({"a": 1, "b": 2, "c": 3})
    cache.get("a")
    cache.set("b", 20)
    cache.set("d", 4)
    assert cache.get_many("abcd") == {"a": 1, "b": 20, "d": 4}
    cache.has("a")
    cache.load("b", pytest.fail)
    cache.add("e", 5)
    assert cache.get_many("abde") == {"b": 20, "d": 4, "e": 5}


def test_no_more_entries_are_kept_than_is_said_however_they_come(make):
    cache = make(max_entries=7)
    for number in range(100):
        cache.set(str(number), [number])
        cache.add(f"added-{number}", 1)
        cache.load(f"loaded-{number}", lambda: [1])
        cache.set_many({f"many-{each}": each for each in range(20)})
        assert len(cache.engine) <= 7
    assert cache.get_many(f"many-{each}" for each in range(20)) == {f"many-{each}": each for each in range(13, 20)}


@pytest.mark.parametrize("value", ["x" * 1000, b"x" * 1000, list(range(300)), {"a": "x" * 900}])
def test_max_bytes_bounds_what_the_entries_take(make, value):
    cache = make(max_entries=10_000, max_bytes=50_000)
    for number in range(200):
        cache.set(str(number), value)
        assert cache.engine.stats().weight <= 50_000
    # 1,000 to 1,200 bytes a value, as Python tells and as pickled, its key, and what an entry takes.
    assert 20 < len(cache.engine) < 60
    assert cache.engine.stats().weight >= len(cache.engine) * sys.getsizeof("x" * 900)
    assert cache.get("199") == value
    assert cache.get("0") is None


def test_max_bytes_counts_the_keys(make):
    short, long = make(max_bytes=100_000), make(max_bytes=100_000)
    short.set("k", 1)
    long.set("k" * 200, 1)
    assert long.engine.stats().weight - short.engine.stats().weight == 199


def test_max_bytes_lets_go_of_what_an_overwritten_or_deleted_value_took(make):
    cache = make(max_bytes=10_000)
    for _ in range(50):
        cache.set("key", "x" * 5000)
        cache.set("key", "x")
        cache.set("other", [0] * 100)
        cache.delete("other")
    cache.set("small", 1)
    assert sorted(cache.get_many(["key", "small"])) == ["key", "small"]
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


def test_max_bytes_counts_a_counter_that_grows(make):
    cache = make(max_bytes=10_000)
    cache.set("list", [0])
    cache.count("list", [0] * 1000)
    assert sys.getsizeof(pickle.dumps([0] * 1000)) < cache.engine.stats().weight <= 10_000
    cache.count("list", [0] * 10_000)
    assert not cache.has("list")
    assert cache.engine.stats().weight == 0


def test_clear_empties_and_the_cache_goes_on(make):
    cache = make()
    cache.set_many({str(number): [number] for number in range(100)})
    cache.clear()
    cache.clear()
    assert len(cache.engine) == 0
    assert cache.get_many(map(str, range(100))) == {}
    assert cache.add("1", "new") is True


def test_the_many_store_find_and_delete_more_than_a_batch(make):
    cache = make(max_entries=10_000)
    values = {f"key{number}": [number] for number in range(5000)}
    assert cache.set_many(values, 60) == []
    assert cache.get_many(values) == values
    cache.delete_many(values)
    assert cache.get_many(values) == {}
    assert (cache.get_many([]), cache.set_many({})) == ({}, [])
