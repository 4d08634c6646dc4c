"""Keys whose classes have code of their own, which may be slow, raise, or call the cache."""

import gc
from collections import namedtuple
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from operator import attrgetter
from uuid import UUID
from weakref import ref

import pytest

from tests.runtime.interruptions import returns_in_a_thread
from wheelcache import Cache


class Key:
    """Equal by name; every hash collides; complains if other threads cannot use the cache while its code runs."""

    cache = None

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"Key({self.name})"

    def __hash__(self):
        self.check()
        return 7

    def __eq__(self, other):
        self.check()
        return isinstance(other, Key) and self.name == other.name

    def check(self):
        if Key.cache is not None:
            cache, Key.cache = Key.cache, None
            assert returns_in_a_thread(lambda: cache.delete("no such key")), "a lock is held"
            Key.cache = cache


@pytest.fixture
def cache(clock):
    cache = Key.cache = Cache(clock=clock, jitter=0, max_entries=3)
    yield cache
    Key.cache = None
    assert cache.stats().size == len(cache) <= 3


def test_code_of_a_key_never_runs_under_the_lock_and_the_cache_works_as_a_dict_would(cache, clock):
    removals = []
    cache.on_removal = lambda key, value, cause: removals.append((key.name, value, cause.value))
    cache.set(Key("a"), 1, ttl=5)
    cache.set(Key("a"), 2, ttl=5)
    cache.set_many({Key("b"): 3, Key("c"): 4})
    assert cache.get(Key("a")) == 2
    assert cache.get_many([Key("b"), Key("x")]) == {Key("b"): 3}
    assert cache.get_or_load(Key("b"), int) == 3
    assert cache.incr(Key("b")) == 4
    assert cache.touch(Key("b"), 3)
    assert Key("c") in cache
    assert not cache.add(Key("c"), 1)
    cache.set(Key("d"), 5)
    assert list(map(attrgetter("name"), cache.keys())) == ["a", "b", "d"]
    clock.advance(5)
    assert cache.delete(Key("d"))
    assert removals == [
        *(("a", 1, "replaced"), ("b", 3, "replaced"), ("c", 4, "evicted")),
        *(("b", 4, "expired"), ("a", 2, "expired"), ("d", 5, "deleted")),
    ]


def test_a_key_may_call_back_into_the_cache_with_keys_of_its_hash(cache):
    class Curious(Key):
        def check(self):
            cache.get("plain")
            cache.set("plain", 1)
            cache.set(Key(f"another {len(cache)}"), 1)

        __hash__ = Key.__hash__

    for value in (1, 2):
        cache.set(Curious("a"), value)
    assert (cache.get(Curious("a")), cache.get("plain")) == (2, 1)


def test_a_weigher_gets_the_key_that_the_caller_gave(clock):
    weighed, key = [], Key("a")
    cache = Cache(clock=clock, max_weight=5, weigher=lambda key, value: weighed.append(key) or 1)
    assert cache.set(key, 1)
    assert weighed[0] is key


def test_a_key_that_raises_harms_nothing_and_its_key_error_is_no_miss(cache):
    class Broken(Key):
        def __eq__(self, other):
            raise KeyError("mine")

        __hash__ = Key.__hash__

    cache.set(Key("a"), 1)
    for use in (cache.get, cache.delete, lambda key: cache.set(key, 1), lambda key: cache.get_or_load(key, int)):
        with pytest.raises(KeyError, match="mine"):
            use(Broken("b"))
    assert cache.get(Key("a")) == 1
    assert len(cache) == 1


class Colour(Enum):
    RED = 1


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    "key",
    [
        *("a", 1, 1.5, None, b"a", object(), int, Key("a"), ("a", Key("a")), ("a", (1, frozenset([2]))), Colour.RED),
        *(Decimal(1), Decimal("NaN"), date(2026, 1, 1), frozenset([Decimal(1)]), Fraction(1, 2), UUID(int=1)),
    ],
)
def test_keys_of_every_kind(clock, key):
    cache = Cache(clock=clock)
    cache.set(key, "value", ttl=5)
    assert cache.get(key) == "value"
    assert cache.keys() == [key]
    assert cache.get_many([key]) == {key: "value"}
    clock.advance(6)
    assert len(cache) == 0
    cache.set(key, "value")
    assert cache.delete(key)
    assert cache.get(key) is None


class Liar:
    def __hash__(self):
        return hash("a")

    def __eq__(self, other):
        return other == "a" or isinstance(other, Liar)


@pytest.mark.parametrize(
    ("plain", "other"), [("a", Liar()), (("a",), (Liar(),)), (Point(1, "a"), Point(1, Liar())), (1, Decimal(1))]
)
def test_a_key_with_python_code_that_claims_to_equal_another_kind_is_a_key_of_its_own(clock, plain, other):
    cache = Cache(clock=clock)
    cache.set(plain, "plain")
    cache.set(other, "other")
    assert (cache.get(plain), cache.get(other)) == ("plain", "other")
    assert cache.get_many([plain]) == {plain: "plain"}


@pytest.mark.parametrize("leave", ["expire", "delete", "evict", "clear"])
def test_keys_that_have_left_take_no_memory(clock, leave):
    cache = Cache(clock=clock, ttl=5)
    kept = Key("kept")
    gone = ref(kept)
    for key in (kept, Key("of the same hash"), *map(UUID, ("0" * 32, "1" * 32))):
        cache.set(key, 1)
    del kept, key
    {
        "expire": lambda: clock.advance(6),
        "delete": lambda: cache.delete_many(cache.keys()),
        "evict": lambda: cache.engine.evict_to(0),
        "clear": cache.clear,
    }[leave]()
    clock.advance(6)
    gc.collect()
    assert gone() is None
    assert cache._parts.keys._buckets == {}
