"""The values that are stored as they are, and those that are serialized."""

import sys
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest

from wheelcache.core.access import Serialized
from wheelcache.engine.codec import Codec, Pickle, is_bare, is_immutable, size_of


class Zone(tzinfo):
    pass


class Text(str):
    __slots__ = ("mutable",)


IMMUTABLE = [
    *("text", 1, None, True, b"bytes", 1.5, Decimal("1.5"), UUID(int=1), timedelta(1), datetime(2026, 1, 1)),
    *(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Rome"))),
    (1, ("a", frozenset([b"b"]))),
]

MUTABLE = [datetime(2026, 1, 1, tzinfo=Zone()), (1, ("a", [])), [], {}, bytearray(b"a"), Text("a"), object()]


@pytest.mark.parametrize("value", IMMUTABLE, ids=repr)
def test_what_cannot_change_is_stored_as_it_is(value):
    assert is_immutable(value)
    assert Codec(Pickle()).encode(value) is value


@pytest.mark.parametrize("value", MUTABLE, ids=lambda value: type(value).__name__)
def test_what_can_change_is_not(value):
    assert not is_immutable(value)


def test_what_is_decoded_is_equal_and_a_copy_of_its_own():
    codec = Codec(Pickle())
    value = {"a": [1]}
    stored = codec.encode(value)
    assert type(stored) is Serialized
    value["a"].append(2)
    assert codec.decode(stored) == {"a": [1]}
    assert codec.decode(stored) is not codec.decode(stored)
    assert codec.decode(codec.encode(bytes(stored))) == bytes(stored), "bytes that look like a pickle are bytes"


def test_nested_tuples_that_share_their_parts_are_walked_once():
    shared = ("leaf",)
    for _ in range(200):
        shared = (shared, shared)
    assert is_immutable(shared)
    assert size_of("key", shared) < 100_000


def test_deep_tuples_need_no_recursion():
    deep = ()
    for _ in range(5 * sys.getrecursionlimit()):
        deep = (deep,)
    assert is_immutable(deep)


def test_a_serializer_that_returns_no_bytes_is_an_error():
    class Text:
        dumps = loads = staticmethod(str)

    with pytest.raises(TypeError, match="must return bytes, not 'a'"):
        Codec(Text(), keep=is_bare).encode("a")


def test_the_size_of_an_entry_counts_all_of_its_key_and_value():
    short, long = "k", "k" * 10_000
    assert size_of((long,), "v") - size_of((short,), "v") == 9_999
    assert size_of(short, (long, (long + "x",))) > 20_000
