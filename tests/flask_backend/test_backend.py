"""cachelib's BaseCache, method by method, and what the backend adds to it."""

import datetime as dt
import gc
import threading
import weakref
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from uuid import UUID

import pytest
from cachelib import BaseCache, SimpleCache
from cachelib.serializers import BaseSerializer, JSONSerializer
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.engines import engine
from tests.waiting import until
from wheelcache.errors import LoadDeadlock
from wheelcache.flask_backend import WheelCache

PATIENCE = 10

IMMUTABLE = [
    None,
    True,
    0,
    -1.5,
    2**100,
    3j,
    "text",
    b"bytes",
    Decimal("1.10"),
    UUID(int=7),
    dt.date(2024, 2, 29),
    dt.datetime(2024, 2, 29, 12, tzinfo=dt.UTC),
    timedelta(days=3),
    (1, ("a", None), frozenset({b"b"})),
]

MUTABLE = [[], {}, set(), [[]], {"a": [1]}, ([],), [frozenset({1})], bytearray(b"b")]


class Text(str):
    """A string that carries an attribute, hence not immutable."""


class Boom(Exception):
    pass


# What is set is what is got.


@pytest.mark.parametrize("value", [*IMMUTABLE, *MUTABLE], ids=repr)
def test_what_was_set_is_got_by_every_way_of_getting(make, value):
    cache = make()
    assert cache.set("key", value) is True
    assert cache.has("key") is True
    assert cache.get("key") == value
    assert type(cache.get("key")) is type(value)
    assert cache.get_many("key", "other") == [value, None]
    assert cache.get_dict("key", "other") == {"key": value, "other": None}
    assert cache.get_or_load("key", pytest.fail) == value


@pytest.mark.parametrize("value", IMMUTABLE, ids=repr)
def test_an_immutable_value_is_the_object_that_was_set(make, value):
    cache = make()
    cache.set("key", value)
    assert cache.get("key") is value


@pytest.mark.parametrize(
    "write",
    [
        lambda cache, value: cache.set("key", value),
        lambda cache, value: cache.add("key", value),
        lambda cache, value: cache.set_many({"key": value}),
        lambda cache, value: cache.get_or_load("key", lambda: value),
    ],
    ids=["set", "add", "set_many", "get_or_load"],
)
@pytest.mark.parametrize(
    "read",
    [
        lambda cache: cache.get("key"),
        lambda cache: cache.get_many("key")[0],
        lambda cache: cache.get_dict("key")["key"],
        lambda cache: cache.get_or_load("key", pytest.fail),
    ],
    ids=["get", "get_many", "get_dict", "get_or_load"],
)
def test_who_changes_what_he_gave_or_got_does_not_change_what_is_cached(make, write, read):
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


def test_the_same_key_twice_in_a_call_gives_two_values_that_share_nothing(make):
    cache = make()
    cache.set("key", [])
    first, second = cache.get_many("key", "key")
    first.append(1)
    assert second == []
    assert cache.get_dict("key", "key") == {"key": []}


def test_a_cached_none_is_there(make):
    cache = make()
    cache.set("key", None)
    assert cache.get("key") is None
    assert cache.has("key") is True
    assert cache.add("key", 1) is False
    assert cache.get_or_load("key", pytest.fail) is None
    assert cache.delete("key") is True


def test_a_value_that_cannot_be_pickled_is_an_error_that_leaves_what_was_there(make):
    cache = make()
    cache.set("key", "before")
    for write in (
        lambda: cache.set("key", threading.Lock()),
        lambda: cache.add("other", threading.Lock()),
        lambda: cache.set_many({"other": 1, "key": threading.Lock()}),
        lambda: cache.get_or_load("other", threading.Lock),
    ):
        with pytest.raises(TypeError, match="pickle"):
            write()
    assert cache.get_many("key", "other") == ["before", None]
    # And the flight that failed is over.
    assert cache.get_or_load("other", lambda: 1) == 1


def test_bytes_that_look_like_a_pickle_come_back_as_bytes(make):
    cache = make()
    cache.set("key", b"\x80\x05].")
    assert cache.get("key") == b"\x80\x05]."


@pytest.mark.parametrize("key", ["", " ", "a b\n", "é" * 1000, "\x00", "key" * 10_000, "%s {}", "\ud800"])
def test_any_string_is_a_key(make, key):
    cache = make(key_prefix="prefix")
    cache.set(key, [1])
    assert cache.get(key) == [1]
    assert cache.get_dict(key) == {key: [1]}
    assert cache.delete(key) is True


# Return values.


def test_every_public_method_of_cachelibs_base_is_the_backends_own():
    public = [name for name in vars(BaseCache) if not name.startswith("_")]
    assert len(public) >= 12
    for name in public:
        assert name in vars(WheelCache), name


def test_the_many_key_calls_return_the_keys_as_cachelib_documents(make):
    cache = make(key_prefix="p:")
    assert cache.set_many({"a": 1, "b": [2]}) == ["a", "b"]
    assert cache.delete_many("a", "missing", "b") == ["a", "missing", "b"]
    assert cache.set_many({}) == []
    assert cache.delete_many() == []
    assert cache.get_many() == []
    assert cache.get_dict() == {}


@pytest.mark.parametrize("ignored", [True, False])
def test_deleting_a_key_that_is_not_there_is_no_error(make, ignored):
    cache = make(ignore_delete_many_errors=ignored)
    assert cache.delete_many("missing") == ["missing"]
    assert cache.delete("missing") is False


def test_a_value_that_outweighs_max_bytes_is_refused_and_the_others_are_stored(make):
    cache = make(max_bytes=5000)
    assert cache.set("big", "x" * 6000) is False
    assert cache.add("big", "x" * 6000) is False
    assert cache.set_many({"big": "x" * 6000, "small": [1]}) == ["small"]
    assert cache.get_or_load("big", lambda: ["x" * 6000]) == ["x" * 6000]
    assert cache.has("big") is False
    assert cache.get("small") == [1]


def test_a_set_that_is_refused_leaves_no_old_value(make):
    cache = make(max_bytes=5000)
    cache.set("key", "old")
    assert cache.set("key", "x" * 6000) is False
    assert cache.get("key") is None


def test_clear_empties_and_the_cache_goes_on(make):
    cache = make()
    cache.set_many({str(number): [number] for number in range(100)})
    assert cache.clear() is True
    assert cache.clear() is True
    assert not any(cache.has(str(number)) for number in range(100))
    assert cache.add("1", "new") is True


# Counters.


def test_a_counter_starts_at_zero_and_returns_the_new_value(make):
    cache = make()
    assert cache.inc("up") == 1
    assert cache.inc("up", 4) == 5
    assert cache.dec("up", 7) == -2
    assert cache.dec("down") == -1
    assert cache.inc("float", 0.5) == 0.5
    assert cache.inc("float") == 1.5
    assert cache.get_dict("up", "down", "float") == {"up": -2, "down": -1, "float": 1.5}


def test_a_counter_on_none_starts_at_zero(make):
    cache = make()
    cache.set("key", None)
    assert cache.inc("key", 3) == 3


def test_a_counter_keeps_the_expiry_of_its_key_and_a_new_one_has_the_default(make, clock):
    cache = make(default_timeout=10)
    cache.set("key", 1, timeout=100)
    cache.inc("new")
    clock.advance(9)
    cache.inc("key")
    cache.inc("new")
    clock.advance(1)
    assert cache.get_many("key", "new") == [2, None]
    clock.advance(90)
    assert cache.get("key") is None
    assert cache.inc("key") == 1


@pytest.mark.parametrize("value", ["text", [1], {"a": 1}])
def test_what_does_not_add_up_is_an_error_that_leaves_the_value(make, value):
    cache = make()
    cache.set("key", value)
    with pytest.raises(TypeError):
        cache.inc("key")
    assert cache.get("key") == value


@pytest.mark.parametrize("count", [WheelCache.inc, WheelCache.dec])
def test_a_counter_that_max_bytes_refuses_is_none_as_cachelib_documents(make, count):
    assert count(make(max_bytes=1), "key") is None


def test_a_counter_that_grows_beyond_max_bytes_is_none_and_gone(make):
    cache = make(max_bytes=400)
    assert cache.inc("key") == 1
    assert cache.inc("key", 1 << 8000) is None
    assert cache.has("key") is False


def test_a_counter_whose_default_timeout_is_over_at_once_stores_nothing(make):
    cache = make(default_timeout=-1)
    assert cache.inc("key", 3) == 3
    assert cache.inc("key", 3) == 3
    assert cache.has("key") is False


# Timeouts.

TEN_SECONDS = [10, 10.0, timedelta(seconds=10)]
NEVER = [0, 0.0, -0.0, timedelta(), float("inf")]
OVER = [-1, -0.5, timedelta(microseconds=-1), float("-inf")]

WRITES = {
    "set": lambda cache, timeout: cache.set("key", [1], timeout),
    "add": lambda cache, timeout: cache.add("key", [1], timeout=timeout),
    "set_many": lambda cache, timeout: cache.set_many({"key": [1]}, timeout),
    "get_or_load": lambda cache, timeout: cache.get_or_load("key", lambda: [1], timeout),
}
writes = pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)


@writes
@pytest.mark.parametrize("timeout", TEN_SECONDS, ids=repr)
def test_an_entry_expires_exactly_when_its_timeout_is_over(make, clock, write, timeout):
    cache = make()
    write(cache, timeout)
    clock.advance(9.999)
    assert cache.get("key") == [1]
    clock.advance(0.001)
    assert cache.get("key") is None
    assert cache.has("key") is False
    assert cache.get_many("key") == [None]
    assert cache.delete("key") is False
    assert cache.add("key", "new") is True


@writes
@pytest.mark.parametrize("timeout", TEN_SECONDS, ids=repr)
def test_the_default_timeout_is_that_of_a_write_without_one(make, clock, write, timeout):
    cache = make(default_timeout=timeout)
    write(cache, None)
    clock.advance(9.999)
    assert cache.has("key") is True
    clock.advance(0.001)
    assert cache.has("key") is False


@writes
@pytest.mark.parametrize("timeout", NEVER, ids=repr)
def test_a_timeout_of_zero_is_never(make, clock, write, timeout):
    cache = make()
    write(cache, timeout)
    clock.advance(10 * 365 * 86400)
    assert cache.get("key") == [1]


@writes
@pytest.mark.parametrize("timeout", NEVER, ids=repr)
def test_a_default_timeout_of_zero_is_never(make, clock, write, timeout):
    cache = make(default_timeout=timeout)
    write(cache, None)
    clock.advance(10 * 365 * 86400)
    assert cache.get("key") == [1]


@writes
@pytest.mark.parametrize("timeout", OVER, ids=repr)
def test_a_timeout_below_zero_is_over_at_once(make, write, timeout):
    cache = make()
    for _ in range(2):
        assert write(cache, timeout) in (True, ["key"], [1])
        assert cache.has("key") is False


@pytest.mark.parametrize("timeout", OVER, ids=repr)
def test_a_timeout_below_zero_takes_away_what_was_there_but_add_and_get_or_load_leave_it(make, timeout):
    cache = make()
    cache.set("key", "there")
    assert cache.add("key", "new", timeout) is False
    assert cache.get_or_load("key", pytest.fail, timeout) == "there"
    assert cache.get("key") == "there"
    cache.set_many({"key": "new"}, timeout)
    assert cache.has("key") is False
    cache.set("key", "there")
    cache.set("key", "new", timeout)
    assert cache.has("key") is False


@writes
@pytest.mark.parametrize("wrong", ["60", True, float("nan"), [60], b"1", Decimal(1), 1j], ids=repr)
def test_a_timeout_that_is_none_is_an_error_that_says_what_it_takes(make, write, wrong):
    cache = make()
    with pytest.raises(
        TypeError, match=r"timeout must be a number of seconds \(0 for never\) or a timedelta, not"
    ) as at:
        write(cache, wrong)
    assert repr(wrong) in str(at.value)
    assert cache.has("key") is False


def test_a_new_value_has_a_new_timeout(make, clock):
    cache = make()
    cache.set("longer", 1, 10)
    cache.set("shorter", 1, 100)
    clock.advance(5)
    cache.set("longer", 2, 100)
    cache.set("shorter", 2, 10)
    clock.advance(10)
    assert cache.get_many("longer", "shorter") == [2, None]


def test_expired_entries_leave_memory_while_nobody_touches_the_cache(make, clock):
    cache = make(threshold=3000)
    cache.set_many({str(number): [number] for number in range(3000)}, 60)
    clock.advance(62)
    assert len(engine(cache)) == 0


# The bound.


def test_the_least_recently_used_leaves_first_and_get_and_set_are_uses(make):
    cache = make(3)
    cache.set_many({"a": 1, "b": 2, "c": 3})
    cache.get("a")
    cache.set("b", 22)
    cache.set("d", 4)
    assert cache.get_many("a", "b", "c", "d") == [1, 22, None, 4]


def test_never_more_than_the_threshold_is_kept(make):
    cache = make(7)
    for number in range(100):
        cache.set(str(number), [number])
        cache.add(f"added {number}", 1)
        cache.inc(f"counted {number}")
        cache.get_or_load(f"loaded {number}", lambda: [1])
        cache.set_many({f"many {each}": each for each in range(20)})
        assert len(engine(cache)) <= 7
    assert cache.get_many(*(f"many {each}" for each in range(20))) == [None] * 13 + list(range(13, 20))


def test_never_more_than_max_bytes_is_kept(make):
    cache = make(10_000, max_bytes=20_000)
    for number in range(1000):
        cache.set(str(number), ["x" * 100])
        assert engine(cache).stats().weight <= 20_000
    assert 10 < len(engine(cache)) < 50
    assert cache.get("999") == ["x" * 100]


# Serializers.


class Counting(BaseSerializer):
    """Pickles, and counts how often."""

    def __init__(self):
        self.calls = Counter()

    def dumps(self, value):
        self.calls["dumps"] += 1
        return super().dumps(value)

    def loads(self, data):
        self.calls["loads"] += 1
        return super().loads(data)


class Own(WheelCache):
    serializer = JSONSerializer()


def test_a_serializer_of_the_class_does_the_work(make):
    cache = make(cls=Own)
    cache.set("key", {"a": (1, 2)})
    assert cache.get("key") == {"a": [1, 2]}


def test_a_serializer_set_on_the_object_gets_every_value_but_ints_and_none(make):
    cache = make()
    cache.serializer = Counting()
    cache.set_many({"str": "a", "bool": True, "list": [1], "none": None, "int": 7})
    assert cache.serializer.calls == {"dumps": 3}
    assert cache.get_many("str", "bool", "list", "none", "int") == ["a", True, [1], None, 7]
    assert cache.serializer.calls == {"dumps": 3, "loads": 3}


def test_a_serializer_set_in_between_serves_from_then_on_and_only_its_own_object(make):
    cache, other = make(), make()
    cache.set("before", "text")
    assert cache.get("before") == "text"
    cache.serializer = JSONSerializer()
    cache.set("after", (1, 2))
    other.set("key", (1, 2))
    assert cache.get_many("before", "after") == ["text", [1, 2]]
    assert other.get("key") == (1, 2)
    assert make().serializer is not cache.serializer


def test_a_serializer_that_is_taken_away_leaves_the_one_of_the_class(make):
    cache = make()
    cache.serializer = JSONSerializer()
    del cache.serializer
    cache.set("key", (1, [2]))
    assert cache.get("key") == (1, [2])


def test_counters_work_with_any_serializer(make):
    cache = make(cls=Own)
    assert cache.inc("new") == 1
    cache.set("key", 41)
    assert cache.inc("key") == 42
    cache.set("float", 0.5)
    assert cache.inc("float") == 1.5
    assert cache.get_many("new", "key", "float") == [1, 42, 1.5]


class ReturnsText(BaseSerializer):
    def dumps(self, value):
        return repr(value)


def test_a_serializer_that_returns_no_bytes_is_an_error_at_the_write_that_stores_nothing(make):
    cache = make()
    cache.serializer = ReturnsText()
    for write in WRITES.values():
        with pytest.raises(TypeError, match=r"dumps\(\) must return bytes, not '\[1\]'"):
            write(cache, 60)
        assert cache.has("key") is False


class Elsewhere:
    """Its pickling and unpickling have another thread use the cache, which a held lock would make impossible."""

    cache = None

    def __reduce__(self):
        self.have_another_thread_use_the_cache()
        return unpickled_elsewhere, ()

    @classmethod
    def have_another_thread_use_the_cache(cls):
        def use():
            cls.cache.set_many({"b": 1, "c": 2})
            cls.cache.get_many("b", "c")
            cls.cache.inc("b")

        thread = threading.Thread(target=use, daemon=True)
        thread.start()
        thread.join(PATIENCE)
        assert not thread.is_alive()

    def __radd__(self, other):
        return self


def unpickled_elsewhere():
    Elsewhere.have_another_thread_use_the_cache()
    return Elsewhere()


def test_no_lock_is_held_while_values_are_pickled_unpickled_and_added(make, monkeypatch):
    cache = make()
    monkeypatch.setattr(Elsewhere, "cache", cache)
    for write in (
        lambda: cache.set("key", Elsewhere()),
        lambda: cache.add("added", Elsewhere()),
        lambda: cache.set_many({"key": Elsewhere(), "another": Elsewhere()}),
        lambda: cache.get_or_load("loaded", Elsewhere),
    ):
        write()
    assert len(cache.get_many("key", "added", "another", "loaded")) == 4
    assert isinstance(cache.get("key"), Elsewhere)
    cache.set("number", 1)
    assert isinstance(cache.inc("number", Elsewhere()), Elsewhere)


# Single flight.


def test_a_missing_value_is_loaded_once_and_then_got(make, clock):
    cache = make(key_prefix="p:")
    loads = []

    def load():
        loads.append(1)
        return {"loads": len(loads)}

    assert [cache.get_or_load("key", load, 10) for _ in range(3)] == [{"loads": 1}] * 3
    assert cache.get("key") == {"loads": 1}
    clock.advance(10)
    assert cache.get_or_load("key", load, timedelta(seconds=10)) == {"loads": 2}


def test_a_loader_that_raises_stores_nothing(make):
    cache = make()

    def fail():
        raise Boom

    with pytest.raises(Boom):
        cache.get_or_load("key", fail)
    assert cache.has("key") is False


def test_a_key_error_of_the_loader_is_the_loaders(make):
    with pytest.raises(KeyError, match="mine"):
        make().get_or_load("key", lambda: {}["mine"])


def test_a_loader_that_wants_its_own_value_is_an_error_and_no_deadlock(make):
    cache = make(key_prefix="p:")
    with pytest.raises(LoadDeadlock, match="key"):
        cache.get_or_load("key", lambda: cache.get_or_load("key", lambda: 1))
    assert cache.get_or_load("key", lambda: cache.get_or_load("other", lambda: 2)) == 2


def test_what_is_set_while_the_loader_runs_wins(make):
    cache = make()

    def load():
        cache.set("key", ["set"])
        return ["loaded"]

    assert cache.get_or_load("key", load) == ["loaded"]
    assert cache.get("key") == ["set"]


def test_what_is_deleted_or_cleared_while_the_loader_runs_is_not_stored(make):
    cache = make()
    for remove in (lambda: cache.delete("key"), lambda: cache.delete_many("key"), cache.clear):
        assert cache.get_or_load("key", lambda remove=remove: [remove()] and "old") == "old"
        assert cache.has("key") is False


# Keys, stores, memory.


def test_a_prefix_keeps_nothing_from_its_own_cache(make):
    cache = make(key_prefix="p:")
    cache.set("key", 1)
    assert engine(cache).keys() == ["p:key"]
    assert cache.get("p:key") is None
    assert cache.get_dict("key") == {"key": 1}


def test_each_object_has_a_store_of_its_own(make):
    first, second = make(name="same"), make(name="same")
    first.set("key", 1)
    assert second.get("key") is None
    second.clear()
    assert first.get("key") == 1


def test_a_many_key_call_takes_the_lock_once(make, monkeypatch):
    cache = make()
    # With the first write, figures are taken for the first time.
    cache.set("first", 1)
    lock, taken = engine(cache)._lock, []

    class Counted:
        def __enter__(self):
            taken.append(1)
            return lock.__enter__()

        def __exit__(self, *exc_info):
            return lock.__exit__(*exc_info)

    monkeypatch.setattr(engine(cache), "_lock", Counted())
    keys = [str(number) for number in range(200)]
    for call in (
        lambda: cache.set_many({key: [key] for key in keys}, 0),
        lambda: cache.get_many(*keys),
        lambda: cache.get_dict(*keys),
        lambda: cache.delete_many(*keys),
        lambda: cache.set_many(dict.fromkeys(keys, 1), -1),
    ):
        taken.clear()
        call()
        assert len(taken) == 1


def test_a_backend_that_nobody_holds_leaves_memory_with_its_entries(make):
    cache = make(log_interval=60)
    cache.set_many({str(number): [number] for number in range(100)}, 1000)
    cache.get("missing")
    store = weakref.ref(engine(cache))
    del cache
    assert until(lambda: gc.collect() >= 0 and store() is None)


# All of it at once, beside cachelib's own cache in memory.

KEYS = st.sampled_from("abcd")
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.text(max_size=2), st.lists(st.integers(), max_size=2)
)
TIMEOUTS = st.sampled_from([None, 0, 60, timedelta(), timedelta(hours=1)])
CALLS = st.one_of(
    st.tuples(st.sampled_from(["get", "has", "delete"]), st.tuples(KEYS)),
    st.tuples(st.sampled_from(["get_many", "get_dict", "delete_many"]), st.lists(KEYS, max_size=4)),
    st.tuples(st.sampled_from(["set", "add"]), st.tuples(KEYS, VALUES, TIMEOUTS)),
    st.tuples(st.just("set_many"), st.tuples(st.dictionaries(KEYS, VALUES), TIMEOUTS)),
    st.tuples(st.sampled_from(["inc", "dec"]), st.tuples(KEYS, st.integers(-2, 2))),
    st.tuples(st.just("clear"), st.just(())),
)


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(calls=st.lists(CALLS, max_size=40), prefix=st.sampled_from(["", "p:"]))
def test_any_calls_return_and_raise_what_they_do_on_cachelibs_simple_cache(calls, prefix):
    ours, theirs = WheelCache(log_interval=None, key_prefix=prefix), SimpleCache()

    def outcome(cache, name, arguments):
        try:
            return getattr(cache, name)(*arguments)
        except TypeError:
            return TypeError

    for name, arguments in calls:
        assert outcome(ours, name, arguments) == outcome(theirs, name, arguments)


@pytest.mark.parametrize("prefix", ["", "shop:"])
def test_a_key_that_is_no_string_is_the_text_of_it_with_and_without_a_prefix(prefix):
    cache = WheelCache(key_prefix=prefix, log_interval=None)
    assert cache.set(1, "one")
    assert cache.get(1) == cache.get("1") == "one"
    assert cache.has(1)
    assert cache.delete(1)
