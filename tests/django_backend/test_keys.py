"""Keys: those that Django's make_key makes, with its warnings, whatever prefix, version and function they are of."""

import enum
import warnings
from functools import partial

import pytest
from django.contrib.sessions.backends.cache import KEY_PREFIX as SESSIONS
from django.core.cache import CacheKeyWarning, InvalidCacheKey
from django.core.cache.backends.base import BaseCache, default_key_func
from django.utils.functional import SimpleLazyObject, lazystr
from django.utils.safestring import mark_safe

from tests.engines import engine
from tests.python_calls import python_calls
from wheelcache.django_backend import WheelCache

BAD_KEYS = ["with space", "tab\there", "line\nbreak", "nul\0", "del\x7f", "x" * 251, " "]
UNWARNED_KEYS = ["é", "日本語", "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}", "\ud800", "🎈", "", "x" * 245]

warns = partial(pytest.warns, CacheKeyWarning)


def raw_key(key, key_prefix, version):
    return key


class Colour(enum.StrEnum):
    RED = "red"


class Named:
    def __str__(self):
        return "named"

    def __repr__(self):
        # The name of a test, which is the same in every process.
        return "Named()"


class StrSubclass(str):
    def __str__(self):
        return "not what it is"

    def __format__(self, spec):
        return "formatted"


class IntSubclass(int):
    def __repr__(self):
        return "repr"


KEYS = [
    *("text", -7, 1.5, True, None, b"bytes", ("a", 1), "%s", "{}", "a:b", Colour.RED, Named(), StrSubclass("sub")),
    *(IntSubclass(3), mark_safe("safe"), lazystr("lazy"), SimpleLazyObject(lambda: "simple lazy")),
    *(*UNWARNED_KEYS, *BAD_KEYS),
]


@pytest.mark.pairs(full="version", of="version")
@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("key", KEYS, ids=ascii)
@pytest.mark.parametrize("version", [None, 2, "v"])
def test_every_key_means_the_entry_that_djangos_make_key_means(make, clock, key, version):
    cache = make(KEY_PREFIX="p")
    same = BaseCache.make_key(cache, key, version=version)
    twin = make(location=cache.location, KEY_FUNCTION=raw_key)
    cache.set(key, "value", version=version)
    # Another key function that makes the same key finds the same entry.
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
    assert len(engine(cache)) == 0


CALLS = {
    "get": lambda cache, key: cache.get(key),
    "set": lambda cache, key: cache.set(key, 1),
    "add": lambda cache, key: cache.add(key, 1),
    "touch": lambda cache, key: cache.touch(key),
    "delete": lambda cache, key: cache.delete(key),
    "get_many": lambda cache, key: cache.get_many(["good", key]),
    "get_or_set": lambda cache, key: cache.get_or_set(key, 1),
    "has_key": lambda cache, key: cache.has_key(key),
    "in": lambda cache, key: key in cache,
    "incr": lambda cache, key: cache.incr(key),
    "decr": lambda cache, key: cache.decr(key),
    "set_many": lambda cache, key: cache.set_many({key: 1}),
    "delete_many": lambda cache, key: cache.delete_many([key]),
    "incr_version": lambda cache, key: cache.incr_version(key),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.mark.pairs(full="key", of="key")
@calls
@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_a_bad_key_warns_at_every_call_whether_it_is_there_or_not_and_works(make, clock, call, key):
    cache = make()
    with warns():
        cache.set(key, 41)
    for _ in range(2):
        with warns():
            call(cache, key)
        with warns():
            cache.set(key, 41)
        with warns():
            assert cache.get(key) == 41


def test_a_bad_key_never_stands_for_a_good_one(make, clock):
    cache = make()
    raw = make(location=cache.location, KEY_FUNCTION=raw_key)
    with warns():
        cache.set("a b", "bad")
    cache.set("ab", "good")
    with warns():
        assert cache.get("a b") == "bad"
    assert cache.get("ab") == raw.get(":1:ab") == "good"
    with warns():
        assert raw.get(":1:a b") == "bad"
    with warns():
        assert raw.get("\0ab") is None
    with warns():
        raw.set("\0ab", "with the prefix under which nothing is")
    assert cache.get("ab") == "good"
    with warns():
        assert cache.get("\0ab") is None


def test_a_key_that_django_does_not_warn_of_does_not_warn(make, clock):
    cache = make()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for key in UNWARNED_KEYS:
            cache.set(key, 1)
            assert cache.get(key) == 1


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


@pytest.mark.parametrize("how", ["KEY_PREFIX", "KEY_FUNCTION"])
def test_a_lazy_key_prefix_and_a_key_function_are_asked_at_every_call_as_django_asks_them(make, clock, how):
    tenant = ["a"]

    class Tenant:
        def __str__(self):
            return tenant[0]

    cache = make(**{how: Tenant() if how == "KEY_PREFIX" else lambda key, prefix, version: f"{tenant[0]}/{key}"})
    cache.set("key", "of a")
    tenant[0] = "b"
    assert cache.get("key") is None
    cache.set("key", "of b")
    tenant[0] = "a"
    assert cache.get("key") == "of a"


@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("prefix", ["", "p", "%s", "{}", "p:", None, 5, "my site"])
def test_any_key_prefix_is_djangos(make, clock, prefix):
    cache = make(KEY_PREFIX=prefix)
    cache.set("key", 1)
    assert engine(cache).get(default_key_func("key", prefix, 1)) == (None if prefix == "my site" else 1)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            assert cache.get("key") == 1
        # It makes every key bad.
        assert [each.category for each in warned] == [CacheKeyWarning] * (prefix == "my site")


def groups(cache):
    """Return the names of the groups that had misses."""
    return {name for name, group in engine(cache).stats().groups.items() if group.misses}


@pytest.mark.compiled
def test_the_keys_of_django_are_in_groups_without_their_prefix_and_version(make):
    cache = make(KEY_PREFIX="shop", VERSION=2)
    names = ("template.cache.side.1f", "views.decorators.cache.cache_page..GET.1f", "user:7", "plain")
    for key in (*names, f"{SESSIONS}secret"):
        cache.get(key)
    assert groups(cache) == {"fragment side", "pages", "user", "sessions", ""}


@pytest.mark.parametrize("params", [{"KEY_FUNCTION": lambda key, *_: f"{key}:1"}, {"KEY_PREFIX": "shop:é"}])
def test_a_key_of_another_form_is_in_no_group_since_it_may_show_the_key_of_a_session(make, params):
    cache = make(**params)
    cache.get(f"{SESSIONS}secret")
    assert groups(cache) == {""}


def test_a_custom_key_function_makes_every_key(make, clock):
    asked = []

    def reversed_key(key, prefix, version):
        asked.append((key, prefix, version))
        return f"{version}-{prefix}-{key[::-1]}"

    cache = make(KEY_FUNCTION=reversed_key, KEY_PREFIX="p", VERSION=3)
    cache.set("abc", 1)
    assert engine(cache).keys() == ["3-p-cba"]
    assert (cache.get("abc"), cache.get("abc", version=4)) == (1, None)
    assert asked == [("abc", "p", 3), ("abc", "p", 3), ("abc", "p", 4)]
    cache = make(KEY_FUNCTION="django.core.cache.backends.base.default_key_func")
    cache.set("key", 1)
    assert engine(cache).keys() == [":1:key"]


def test_a_subclass_with_a_make_key_of_its_own_is_asked_at_every_call(make, clock):
    class Upper(WheelCache):
        def make_key(self, key, version=None):
            return super().make_key(key.upper(), version)

    cache = make(cls=Upper)
    cache.set("key", 1)
    assert engine(cache).keys() == [":1:KEY"]
    assert cache.get("Key") == 1
    cache.set("kEY", 2)
    assert cache.get_many(["KEY"]) == {"KEY": 2}


@calls
def test_a_subclass_with_a_validate_key_of_its_own_is_asked_at_every_call(make, clock, call):
    class Strict(WheelCache):
        def validate_key(self, key):
            if "secret" in key:
                raise InvalidCacheKey(key)

    make(location="strict").set_many({"secret": 1, "good": 2})
    cache = make(location="strict", cls=Strict)
    assert cache.get("good") == 2
    with pytest.raises(InvalidCacheKey):
        call(cache, "secret")


@calls
def test_a_key_whose_str_raises_leaves_the_cache_as_it_was(make, clock, call):
    class Broken:
        def __str__(self):
            raise KeyError("str")

    cache = make()
    with pytest.raises(KeyError, match="str"):
        call(cache, Broken())
    assert len(engine(cache)) == 0


@pytest.mark.compiled
def test_plain_calls_are_those_of_the_core(make):
    cache = make()
    cache.set_many({"key": 1, "pickled": [1]})
    # The first miss makes the notes of the thread. Nothing below is due before these entries, so no thread is woken.
    cache.get("missing")
    calls = (
        partial(cache.get, "key"),
        partial(cache.get, "never-set"),
        partial(cache.set, "key", 2),
        partial(cache.set, "key", "text", timeout=600),
        partial(cache.add, "added", 1),
        partial(cache.touch, "key", None),
        partial(cache.delete, "key"),
        partial(cache.incr, "added"),
    )
    assert [python_calls(call) for call in calls] == [[]] * len(calls)


def test_a_default_timeout_that_changes_is_that_of_the_next_calls(make):
    cache = make(TIMEOUT=60)
    cache.set("before", 1)
    cache.default_timeout = None
    cache.set("set", 1)
    cache.add("added", 1)
    cache.touch("before")
    assert [cache.ttl(key) for key in ("set", "added", "before")] == [None] * 3
