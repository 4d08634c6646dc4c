"""What the backend answers: keys, timeouts, values, bounds. Beside Django's own contract suite, not instead of it."""

import enum
import threading
import warnings
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import count
from types import SimpleNamespace
from uuid import UUID

import pytest
from django.core.cache import CacheKeyWarning, InvalidCacheKey, cache, caches, close_caches
from django.core.cache.backends.base import BaseCache, default_key_func
from django.core.cache.backends.locmem import LocMemCache
from django.utils.functional import SimpleLazyObject, lazystr
from django.utils.safestring import mark_safe
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.django_backend.conftest import finish_request
from tests.engines import engine
from wheelcache import Cache, ManualClock
from wheelcache.django_backend import WheelCache, stores

BAD_KEYS = ["with space", "tab\there", "line\nbreak", "nul\0", "del\x7f", "x" * 251, " "]
_locations = count()
UNWARNED_KEYS = ["é", "日本語", "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}", "\ud800", "🎈", "", "x" * 245]


def entries(backend):
    return engine(backend)


# Timeouts


@pytest.mark.parametrize("timeout", [0, -1, 0.0])
def test_a_timeout_of_zero_is_over_at_once_as_one_below_it(make, timeout):
    cache = make()
    cache.set("key", 1, timeout)
    assert cache.add("key", 1, timeout) is True
    assert cache.get_or_set("key", lambda: 7, timeout) == 7
    assert cache.set_many({"key": 1, "other": 2}, timeout) == []
    assert len(entries(cache)) == 0
    cache.set("key", 1)
    assert cache.add("key", 2, timeout) is False
    assert cache.get_or_set("key", 2, timeout) == 1
    assert cache.touch("key", timeout) is True
    assert cache.touch("key", timeout) is False
    assert len(entries(cache)) == 0


@pytest.mark.parametrize(("timeout", "left"), [({}, 300), ({"timeout": 10}, 10), ({"timeout": None}, None)], ids=repr)
def test_touch_gives_a_new_timeout_shorter_or_longer(make, clock, timeout, left):
    cache = make()
    cache.set("key", 1, 20)
    clock.advance(10)
    assert cache.touch("key", **timeout)
    assert entries(cache).expires_in(":1:key") == left
    with pytest.raises((TypeError, ValueError)):
        cache.touch("key", "300")
    assert entries(cache).expires_in(":1:key") == left


# Keys


class Colour(enum.StrEnum):
    RED = "red"


class Plain(enum.Enum):
    RED = "red"


class Named:
    def __str__(self):
        return "named"

    def __repr__(self):
        return "Named()"


class StrSubclass(str):
    def __str__(self):
        return "not what it is"


class Formatted(str):
    def __format__(self, spec):
        return "formatted"


class IntSubclass(int):
    def __repr__(self):
        return "repr"


KEYS = [
    "text",
    7,
    -7,
    1.5,
    True,
    None,
    b"bytes",
    ("a", 1),
    frozenset([1]),
    Colour.RED,
    Plain.RED,
    Named(),
    StrSubclass("sub"),
    Formatted("plain"),
    IntSubclass(3),
    mark_safe("safe"),
    lazystr("lazy"),
    SimpleLazyObject(lambda: "simple lazy"),
    date(2024, 2, 29),
    datetime(2024, 2, 29, tzinfo=UTC),
    UUID(int=1),
    Decimal("1.50"),
    "%s",
    "{}",
    "a:b",
    *UNWARNED_KEYS,
    *BAD_KEYS,
]


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("key", KEYS, ids=ascii)
@pytest.mark.parametrize("version", [None, 1, 2, "v"])
def test_every_key_means_the_entry_that_djangos_make_key_means(make, clock, key, version):
    cache = make(KEY_PREFIX="p")
    same = BaseCache.make_key(cache, key, version=version)
    twin = make(location=cache.location, KEY_FUNCTION=lambda key, prefix, version: key)
    cache.set(key, "value", version=version)
    # Whoever makes the same key some other way finds the same entry.
    assert twin.get(same) == "value"
    assert cache.get(key, version=version) == "value"
    assert cache.get_many([key], version=version) == {key: "value"}
    assert cache.has_key(key, version=version)
    assert cache.touch(key, version=version)
    assert cache.add(key, "other", version=version) is False
    assert cache.get_or_set(key, "other", version=version) == "value"
    cache.set(key, 5, version=version)
    assert cache.incr(key, version=version) == 6
    assert twin.get(same) == 6
    assert cache.delete(key, version=version)
    assert cache.set_many({key: "many"}, version=version) == []
    assert twin.get(same) == "many"
    cache.delete_many([key], version=version)
    assert len(entries(cache)) == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda cache, key: cache.get(key),
        lambda cache, key: cache.set(key, 1),
        lambda cache, key: cache.add(key, 1),
        lambda cache, key: cache.touch(key),
        lambda cache, key: cache.delete(key),
        lambda cache, key: cache.get_many([key]),
        lambda cache, key: cache.get_or_set(key, 1),
        lambda cache, key: cache.has_key(key),
        lambda cache, key: key in cache,
        lambda cache, key: cache.incr(key),
        lambda cache, key: cache.decr(key),
        lambda cache, key: cache.set_many({key: 1}),
        lambda cache, key: cache.delete_many([key]),
        lambda cache, key: cache.incr_version(key),
    ],
)
@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_a_bad_key_warns_at_every_call_whether_it_is_there_or_not_and_works(make, clock, call, key):
    cache = make()
    with pytest.warns(CacheKeyWarning):
        cache.set(key, 41)
    for _ in range(3):
        with pytest.warns(CacheKeyWarning):
            call(cache, key)
        with pytest.warns(CacheKeyWarning):
            cache.set(key, 41)
        with pytest.warns(CacheKeyWarning):
            assert cache.get(key) == 41


def test_a_bad_key_never_stands_for_a_good_one(make, clock):
    cache = make()
    with pytest.warns(CacheKeyWarning):
        cache.set("a b", "bad")
    cache.set("ab", "good")
    with pytest.warns(CacheKeyWarning):
        assert cache.get("a b") == "bad"
    assert cache.get("ab") == "good"
    raw = make(location=cache.location, KEY_FUNCTION=lambda key, prefix, version: key)
    assert raw.get(":1:ab") == "good"
    with pytest.warns(CacheKeyWarning):
        assert raw.get(":1:a b") == "bad"
    with pytest.warns(CacheKeyWarning):
        assert raw.get("\0ab") is None
    with pytest.warns(CacheKeyWarning):
        raw.set("\0ab", "with the prefix under which nothing is")
    assert cache.get("ab") == "good"
    with pytest.warns(CacheKeyWarning):
        assert cache.get("\0ab") is None


@pytest.mark.parametrize("key", UNWARNED_KEYS, ids=ascii)
def test_a_key_that_django_does_not_warn_of_does_not_warn(make, clock, key):
    cache = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cache.set(key, 1)
        assert cache.get(key) == 1


def test_two_spellings_of_one_key_are_both_answered_by_get_many(make, clock):
    cache = make()
    cache.set("1", "one")
    assert cache.get_many([1, "1"]) == {1: "one", "1": "one"}


def test_of_two_spellings_of_one_key_set_many_keeps_the_last(make, clock):
    cache = make()
    cache.set_many({1: "first", "1": "last"})
    assert cache.get("1") == "last"


def test_the_many_take_iterators_too(make, clock):
    cache = make()
    cache.set_many({"a": 1, "b": 2, "c": 3})
    assert cache.get_many(iter("abx")) == {"a": 1, "b": 2}
    cache.delete_many(iter("ab"))
    assert cache.get_many("abc") == {"c": 3}
    assert (cache.get_many([]), cache.set_many({}), cache.delete_many([])) == ({}, [], None)


@pytest.mark.parametrize("attribute", ["key_prefix", "version", "key_func"])
def test_what_a_key_is_made_of_may_change_at_run_time(make, clock, attribute):
    cache = make()
    before = getattr(cache, attribute)
    cache.set("key", "before")
    changed = {"key_prefix": "other", "version": 9, "key_func": lambda key, prefix, version: f"f({key})"}[attribute]
    setattr(cache, attribute, changed)
    assert cache.get("key") is None
    cache.set("key", "after")
    assert cache.get("key") == "after"
    setattr(cache, attribute, before)
    assert getattr(cache, attribute) == before
    assert cache.get("key") == "before"


def test_a_key_prefix_that_is_lazy_is_asked_at_every_call_as_django_asks_it(make, clock):
    tenant = ["a"]

    class Tenant:
        def __str__(self):
            return tenant[0]

    cache = make(KEY_PREFIX=Tenant())
    cache.set("key", "of a")
    tenant[0] = "b"
    assert cache.get("key") is None
    cache.set("key", "of b")
    tenant[0] = "a"
    assert cache.get("key") == "of a"


@pytest.mark.parametrize("prefix", ["", "p", "%s", "{}", "p:", None, 5])
def test_any_key_prefix_is_djangos(make, clock, prefix):
    cache = make(KEY_PREFIX=prefix)
    cache.set("key", 1)
    assert entries(cache).keys() == [default_key_func("key", prefix, 1)]
    assert cache.get("key") == 1


def test_a_key_prefix_that_makes_every_key_bad_warns_at_every_call_and_works(make, clock):
    cache = make(KEY_PREFIX="my site")
    for _ in range(2):
        with pytest.warns(CacheKeyWarning):
            cache.set("key", 1)
        with pytest.warns(CacheKeyWarning):
            assert cache.get("key") == 1


def test_versions_keep_entries_apart_and_can_be_raised(make, clock):
    cache = make(VERSION=1)
    cache.set("key", "one")
    cache.set("key", "two", version=2)
    assert (cache.get("key"), cache.get("key", version=1), cache.get("key", version=2)) == ("one", "one", "two")
    assert cache.incr_version("key", delta=4) == 5
    assert (cache.get("key"), cache.get("key", version=5)) == (None, "one")
    assert cache.decr_version("key", version=5) == 4
    assert cache.get("key", version=4) == "one"
    with pytest.raises(ValueError, match="Key 'gone' not found"):
        cache.incr_version("gone")


def test_a_custom_key_function_makes_every_key(make, clock):
    asked = []

    def reversed_key(key, prefix, version):
        asked.append((key, prefix, version))
        return f"{version}-{prefix}-{key[::-1]}"

    cache = make(KEY_FUNCTION=reversed_key, KEY_PREFIX="p", VERSION=3)
    cache.set("abc", 1)
    assert entries(cache).keys() == ["3-p-cba"]
    assert cache.get("abc") == 1
    assert cache.get("abc", version=4) is None
    assert asked[0] == ("abc", "p", 3)
    assert asked.count(("abc", "p", 3)) == 2
    assert ("abc", "p", 4) in asked


def test_a_key_function_may_be_a_dotted_path(make, clock):
    cache = make(KEY_FUNCTION="django.core.cache.backends.base.default_key_func")
    cache.set("key", 1)
    assert cache.get("key") == 1
    assert entries(cache).keys() == [":1:key"]


def test_a_key_function_that_looks_at_the_moment_is_asked_at_every_hit(make, clock):
    tenant = ["a"]
    cache = make(KEY_FUNCTION=lambda key, prefix, version: f"{tenant[0]}/{key}")
    cache.set("key", "of a")
    tenant[0] = "b"
    assert cache.get("key") is None
    tenant[0] = "a"
    assert cache.get("key") == "of a"


def test_a_subclass_with_a_make_key_of_its_own_is_asked_at_every_call(make, clock):
    class Upper(WheelCache):
        def make_key(self, key, version=None):
            return super().make_key(key.upper(), version)

    cache = make(cls=Upper)
    cache.set("key", 1)
    assert entries(cache).keys() == [":1:KEY"]
    assert cache.get("Key") == 1
    cache.set("kEY", 2)
    assert cache.get_many(["KEY"]) == {"KEY": 2}


def test_a_subclass_with_a_validate_key_of_its_own_is_asked_at_every_call(make, clock):
    class Strict(WheelCache):
        def validate_key(self, key):
            if "secret" in key:
                raise InvalidCacheKey(key)

    make(location="strict").set_many({"secret": 1, "open": 2})
    cache = make(location="strict", cls=Strict)
    assert cache.get("open") == 2
    for call in (
        lambda: cache.get("secret"),
        lambda: cache.set("secret", 1),
        lambda: cache.add("secret", 1),
        lambda: cache.get_many(["open", "secret"]),
        lambda: cache.set_many({"secret": 1}),
        lambda: cache.delete("secret"),
        lambda: cache.incr("secret"),
        lambda: cache.touch("secret"),
        lambda: cache.has_key("secret"),
        lambda: cache.get_or_set("secret", 1),
        lambda: cache.delete_many(["secret"]),
    ):
        with pytest.raises(InvalidCacheKey):
            call()


def test_a_key_whose_str_raises_leaves_the_cache_as_it_was(make, clock):
    class Broken:
        def __str__(self):
            raise KeyError("str")

    cache = make()
    for call in (cache.get, cache.delete, cache.incr, cache.has_key, cache.touch, lambda key: cache.set(key, 1)):
        with pytest.raises(KeyError, match="str"):
            call(Broken())
    assert len(entries(cache)) == 0


# Values


def test_a_value_that_cannot_be_pickled_culls_nothing(make, clock):
    cache = make({"MAX_ENTRIES": 3, "CULL_FREQUENCY": 0})
    cache.set_many({"a": 1, "b": 2, "c": 3})
    with pytest.raises((TypeError, AttributeError)):
        cache.set("d", threading.Lock())
    with pytest.raises((TypeError, AttributeError)):
        cache.add("d", threading.Lock())
    assert cache.get_many("abc") == {"a": 1, "b": 2, "c": 3}


def test_references_are_kept_as_they_are(make, clock):
    cache = make({"SERIALIZER": "reference"})
    value = {"lock": threading.Lock()}
    cache.set("key", value)
    assert cache.get("key") is value
    assert cache.get_many(["key"])["key"] is value
    assert cache.get_or_set("key", None) is value
    assert cache.get_or_set("loaded", lambda: value) is value
    cache.set("list", [1])
    cache.get("list").append(2)
    assert cache.get("list") == [1, 2]


def test_a_counter_that_is_not_there_is_djangos_error(make):
    cache = make()
    for call in (cache.incr, cache.decr):
        with pytest.raises(ValueError, match="Key 'missing' not found"):
            call("missing")


# Bounds


def test_culling_and_clearing_under_many_writers_breaks_nothing(make, together):
    cache = make({"MAX_ENTRIES": 20, "CULL_FREQUENCY": 0})

    def write(number):
        for step in range(100):
            cache.set(f"{number}-{step}", step, 60)
            cache.get_many([f"{number}-{each}" for each in range(step)])
            if step % 25 == 0:
                cache.clear()

    assert together(write) == [None] * 32
    assert len(entries(cache)) <= 20


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
def test_max_bytes_counts_a_key_that_django_warns_of(make):
    cache = make({"MAX_BYTES": 100_000})
    cache.set("k" * 10_000, 1)
    assert entries(cache).stats().weight > 10_000
    cache.clear()
    assert entries(cache).stats().weight == len(entries(cache)) == 0


@pytest.mark.parametrize(("most", "frequency", "left"), [(30, 3, 20), (30, 0, 0), (30, 1, 0), (30, 30, 29), (9, 2, 5)])
@pytest.mark.parametrize("call", ["set", "add", "set_many", "get_or_set", "aget_or_set"])
def test_cull_frequency_drops_its_share_of_a_full_cache_before_a_new_key(make, clock, most, frequency, left, call):
    cache = make({"MAX_ENTRIES": most, "CULL_FREQUENCY": frequency})
    cache.set_many({str(number): number for number in range(most - 1)})
    cache.set("last", 1)
    assert len(entries(cache)) == most
    {
        "set": lambda: cache.set("new", 1),
        "add": lambda: cache.add("new", 1),
        "set_many": lambda: cache.set_many({"new": 1}),
        "get_or_set": lambda: cache.get_or_set("new", 1),
        "aget_or_set": lambda: run(cache.aget_or_set("new", 1)),
    }[call]()
    assert len(entries(cache)) == left + 1
    assert cache.get("new") == 1
    # The least recently used leave.
    assert ("last" in cache) is (left > 0)


def run(coroutine):
    """What a coroutine returns that never has to wait."""
    with pytest.raises(StopIteration) as returned:
        coroutine.send(None)
    return returned.value.value


@pytest.mark.parametrize("call", ["set", "set_many", "add", "incr", "touch", "get_or_set"])
def test_writing_a_key_that_is_there_culls_nothing(make, clock, call):
    cache = make({"MAX_ENTRIES": 3, "CULL_FREQUENCY": 0})
    cache.set_many({"a": 1, "b": 2, "c": 3})
    {
        "set": lambda: cache.set("a", 9),
        "set_many": lambda: cache.set_many({"a": 9}),
        "add": lambda: cache.add("a", 9),
        "incr": lambda: cache.incr("a", 8),
        "touch": lambda: cache.touch("a"),
        "get_or_set": lambda: cache.get_or_set("a", 9),
    }[call]()
    assert sorted(cache.get_many("abc")) == ["a", "b", "c"]


def test_a_cull_frequency_that_is_more_than_there_are_entries_still_bounds_the_cache(make, clock):
    cache = make({"MAX_ENTRIES": 3, "CULL_FREQUENCY": 100})
    cache.set_many({"a": 1, "b": 2, "c": 3})
    cache.set("d", 4)
    assert cache.get_many("abcd") == {"b": 2, "c": 3, "d": 4}


# Stores and backend objects


def test_aliases_with_one_location_and_the_same_options_share_entries(make, clock):
    one, other = make({"SLOTS": 8}, location="shared"), make({"SLOTS": 8}, location="shared", TIMEOUT=5, VERSION=2)
    one.set("key", [1], version=2)
    assert other.get("key") == [1]
    other.delete("key")
    assert one.get("key", version=2) is None
    assert one.store is other.store


@pytest.mark.parametrize("options", [{}, {"SLOTS": 16}, {"SLOTS": 8, "MAX_ENTRIES": 5}])
def test_one_location_with_other_options_is_another_store(make, clock, options):
    one, other = make({"SLOTS": 8}, location="apart"), make(options, location="apart")
    one.set("key", 1)
    assert other.get("key") is None


def test_an_alias_without_a_location_has_a_store_too():
    one, other = WheelCache("", {}), WheelCache("", {})
    one.set("key", 1)
    assert other.get("key") == 1


def test_many_threads_that_make_a_backend_first_all_get_one_store(make):
    barrier = threading.Barrier(32)
    made = []

    def first():
        barrier.wait(10)
        made.append(make({"SLOTS": 16}, location="first").store)

    threads = [threading.Thread(target=first) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert len(made) == 32
    assert len(set(map(id, made))) == 1


def test_making_another_backend_of_a_store_starts_nothing(make):
    first = make(location="made again")
    threads = threading.active_count()
    backends = [make(location="made again") for _ in range(1000)]
    assert all(backend.store is first.store for backend in backends)
    assert threading.active_count() == threads


def test_close_leaves_entries_store_and_wheel_alone(make, clock):
    cache = make()
    cache.set_many({"short": 1, "long": 2}, 10)
    cache.touch("long", 100)
    cache.close()
    finish_request()
    assert cache.get_many(["short", "long"]) == {"short": 1, "long": 2}
    cache.close()
    clock.advance(10)
    assert len(entries(cache)) == 1
    cache.set("key", 1)
    assert cache.get("key") == 1


def test_the_default_alias_is_still_there_after_the_end_of_a_request():
    cache.set("key", [1])
    close_caches()
    assert cache.get("key") == [1]
    assert caches["default"].get("key") == [1]


def test_every_thread_has_a_backend_of_its_own_on_the_same_entries():
    caches["default"].set("key", "from the first")
    seen = []

    def other():
        seen.append((caches["default"], caches["default"].get("key")))
        caches["default"].set("key", "from the other")

    thread = threading.Thread(target=other)
    thread.start()
    thread.join(10)
    ((backend, value),) = seen
    assert backend is not caches["default"]
    assert value == "from the first"
    assert caches["default"].get("key") == "from the other"


# Beside LocMemCache, call by call

KEY = st.sampled_from(["a", "b", "c", 1, "1"])
VALUE = st.one_of(st.integers(-3, 3), st.sampled_from(["x", None, [1], (1, [2]), 1.5]))
TIMEOUT = st.sampled_from([None, 0, -1, 1, 5, 20, 2.5])
VERSION = st.sampled_from([None, 1, 2])
CALL = st.one_of(
    st.tuples(st.just("get"), st.tuples(KEY, st.just("default"), VERSION)),
    st.tuples(st.just("set"), st.tuples(KEY, VALUE, TIMEOUT, VERSION)),
    st.tuples(st.just("set"), st.tuples(KEY, VALUE)),
    st.tuples(st.just("add"), st.tuples(KEY, VALUE, TIMEOUT, VERSION)),
    st.tuples(st.just("get_or_set"), st.tuples(KEY, VALUE, TIMEOUT, VERSION)),
    st.tuples(st.just("touch"), st.tuples(KEY, TIMEOUT, VERSION)),
    st.tuples(st.just("delete"), st.tuples(KEY, VERSION)),
    st.tuples(st.just("has_key"), st.tuples(KEY, VERSION)),
    st.tuples(st.just("incr"), st.tuples(KEY, st.integers(-2, 2), VERSION)),
    st.tuples(st.just("decr"), st.tuples(KEY, st.integers(-2, 2), VERSION)),
    st.tuples(st.just("incr_version"), st.tuples(KEY, st.sampled_from([1, 2]), VERSION)),
    st.tuples(st.just("decr_version"), st.tuples(KEY, st.just(1), VERSION)),
    st.tuples(st.just("get_many"), st.tuples(st.lists(KEY, max_size=4, unique_by=str), VERSION)),
    st.tuples(st.just("set_many"), st.tuples(st.dictionaries(KEY, VALUE, max_size=4), TIMEOUT, VERSION)),
    st.tuples(st.just("delete_many"), st.tuples(st.lists(KEY, max_size=4), VERSION)),
    st.tuples(st.just("clear"), st.just(())),
    st.tuples(st.just("wait"), st.tuples(st.sampled_from([1, 2.5, 4, 30]))),
)


def answer(backend, name, arguments):
    try:
        return getattr(backend, name)(*arguments)
    except (ValueError, TypeError) as error:
        return type(error)


@pytest.mark.deep
@settings(max_examples=300, deadline=None)
@given(calls=st.lists(CALL, max_size=30), number=st.integers())
def test_it_answers_every_call_as_locmemcache_does(calls, number):
    clock = ManualClock(1000.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("django.core.cache.backends.locmem.time", SimpleNamespace(time=clock))
        patched.setattr("django.core.cache.backends.base.time", SimpleNamespace(time=clock))
        patched.setattr(stores, "Cache", partial(Cache, clock=clock))
        ours = WheelCache(f"beside LocMemCache {next(_locations)}", {"OPTIONS": {"JITTER": 0}})
        theirs = LocMemCache(f"beside WheelCache {number}", {})
        theirs.clear()
        for name, arguments in calls:
            if name == "wait":
                clock.advance(*arguments)
            else:
                if name == "delete":
                    # LocMemCache says True for an entry that is expired, unless somebody looked at it first.
                    theirs.has_key(*arguments)
                assert answer(ours, name, arguments) == answer(theirs, name, arguments)


@pytest.mark.parametrize("write", ["set", "add", "set_many", "get_or_set"])
@pytest.mark.parametrize("value", ["text", 1.5, [], True])
def test_a_serializer_of_ones_own_gets_every_value_but_ints_and_none_whoever_writes(make, write, value):
    cache = make({"SERIALIZER": "tests.django_backend.serializers.Json"})
    if write == "set_many":
        cache.set_many({"k": value})
    else:
        getattr(cache, write)("k", value)
    assert isinstance(entries(cache).get(":1:k"), bytes)
    assert cache.get("k", "missing") == value
    for bare in (1, None):
        cache.set("bare", bare)
        assert entries(cache).get(":1:bare") is bare
