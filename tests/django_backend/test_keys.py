"""Keys: those that Django's make_key makes, with its warnings, whatever prefix, version and function they are of."""

from functools import partial

import pytest
from django.contrib.sessions.backends.cache import KEY_PREFIX as SESSIONS
from django.core.cache import CacheKeyWarning, InvalidCacheKey
from django.core.cache.backends.base import BaseCache
from django.utils.functional import lazystr
from django.utils.safestring import mark_safe

from tests.engines import engine
from tests.python_calls import python_calls
from wheelcache.django_backend import WheelCache

BAD_KEYS = ["with space", "tab\there", "line\nbreak", "nul\0", "del\x7f", "x" * 251, " "]
UNWARNED_KEYS = ["é", "日本語", "\N{NO-BREAK SPACE}", "\N{ZERO WIDTH SPACE}", "\ud800", "🎈", "", "x" * 245]

warns = partial(pytest.warns, CacheKeyWarning)


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


KEYS = [
    *("text", -7, 1.5, True, None, b"bytes", ("a", 1), "%s", "{}", "a:b", Named(), StrSubclass("sub")),
    *(mark_safe("safe"), lazystr("lazy"), *UNWARNED_KEYS, *BAD_KEYS),
]


@pytest.mark.pairs(full="version", of="version")
@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize("key", KEYS, ids=ascii)
@pytest.mark.parametrize("version", [None, 2, "v"])
def test_every_key_means_the_entry_that_djangos_make_key_means(make, key, version):
    cache = make(KEY_PREFIX="p")
    same = BaseCache.make_key(cache, key, version=version)
    # Another key function that makes the same key finds the same entry.
    twin = make(location=cache.location, KEY_FUNCTION=lambda key, prefix, version: key)
    cache.set(key, "value", version=version)
    assert twin.get(same) == cache.get(key, version=version) == "value"
    assert cache.get_many([key], version=version) == {key: "value"}
    assert cache.has_key(key, version=version)
    assert cache.touch(key, version=version)
    assert cache.add(key, "other", version=version) is False
    assert cache.get_or_set(key, "other", version=version) == "value"
    cache.set(key, 5, version=version)
    assert cache.incr(key, version=version) == twin.get(same) == 6
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
    "has_key": lambda cache, key: key in cache,
    "incr": lambda cache, key: cache.incr(key),
    "set_many": lambda cache, key: cache.set_many({key: 1}),
    "delete_many": lambda cache, key: cache.delete_many([key]),
    "incr_version": lambda cache, key: cache.incr_version(key),
}
calls = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


@pytest.mark.pairs(full="key", of="key")
@calls
@pytest.mark.parametrize("key", BAD_KEYS, ids=ascii)
def test_a_bad_key_warns_at_every_call_whether_it_is_there_or_not_and_works(make, call, key):
    cache = make()
    for _ in range(2):
        with warns():
            cache.set(key, 41)
        with warns():
            call(cache, key)
    with warns():
        cache.set(key, 41)
    with warns():
        assert cache.get(key) == 41


@pytest.mark.parametrize("attribute", ["key_prefix", "version", "key_func"])
def test_what_a_key_is_made_of_may_change_at_run_time(make, attribute):
    cache = make()
    before = getattr(cache, attribute)
    cache.set("key", "before")
    changed = {"key_prefix": "other", "version": 9, "key_func": lambda key, prefix, version: f"f({key})"}[attribute]
    setattr(cache, attribute, changed)
    assert cache.get("key") is None
    cache.set("key", "after")
    assert cache.get("key") == "after"
    setattr(cache, attribute, before)
    assert cache.get("key") == "before"


@pytest.mark.parametrize("how", ["KEY_PREFIX", "KEY_FUNCTION", "make_key"])
def test_what_may_make_another_key_each_time_is_asked_at_every_call(make, how):
    class Tenant:
        name = "a"

        def __str__(self):
            return Tenant.name

    class Own(WheelCache):
        def make_key(self, key, version=None):
            return f"{Tenant.name}/{key}"

    given = {"KEY_PREFIX": Tenant(), "KEY_FUNCTION": lambda key, *_: f"{Tenant.name}/{key}"}
    cache = make(cls=Own) if how == "make_key" else make(**{how: given[how]})
    cache.set_many({"key": "of a"})
    Tenant.name = "b"
    assert (cache.get("key"), cache.get_many(["key"]), cache.has_key("key")) == (None, {}, False)
    cache.set("key", "of b")
    Tenant.name = "a"
    assert cache.get("key") == "of a"


@calls
def test_a_subclass_with_a_validate_key_of_its_own_is_asked_at_every_call(make, call):
    class Strict(WheelCache):
        def validate_key(self, key):
            if "secret" in key:
                raise InvalidCacheKey(key)

    make(location="strict").set_many({"secret": 1, "good": 2})
    cache = make(location="strict", cls=Strict)
    assert cache.get("good") == 2
    with pytest.raises(InvalidCacheKey):
        call(cache, "secret")


def test_a_custom_key_function_receives_the_key_the_prefix_and_the_version(make):
    cache = make(KEY_FUNCTION=lambda key, prefix, version: f"{version}-{prefix}-{key[::-1]}", KEY_PREFIX="p", VERSION=3)
    cache.set("abc", 1)
    assert engine(cache).keys() == ["3-p-cba"]
    assert (cache.get("abc"), cache.get("abc", version=4)) == (1, None)


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


@pytest.mark.compiled
def test_the_keys_of_the_first_eight_prefixes_of_a_store_are_in_groups(make):
    for number in range(9):
        cache = make(location="prefixes", KEY_PREFIX=f"p{number}")
        cache.get("user:7")
    found = engine(cache).stats().groups
    assert {name: group.misses for name, group in found.items()} == {"user": 8, "": 1}


@pytest.mark.parametrize("params", [{"KEY_FUNCTION": lambda key, *_: f"{key}:1"}, {"KEY_PREFIX": "shop:é"}])
def test_a_key_of_another_form_is_in_no_group_since_it_may_show_the_key_of_a_session(make, params):
    cache = make(**params)
    cache.get(f"{SESSIONS}secret")
    assert groups(cache) == {""}


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
