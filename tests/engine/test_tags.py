"""Tags of entries: ``cache.set(key, value, tags=...)`` and ``cache.delete_tags``. The entries of a memoized function
are a group, which leaves in the same way as those of a tag."""

import asyncio
from decimal import Decimal
from enum import StrEnum
from functools import partial

import pytest

from tests.waiting import until
from wheelcache.core.contract import STORED
from wheelcache.errors import MissingKey
from wheelcache.runtime.clock import moment


async def load(cache, key, tags):
    return await cache.aget_or_load(key, lambda: 1, tags=tags)


WAYS_TO_STORE = {
    "set": lambda cache, key, tags: cache.set(key, 1, tags=tags),
    "set, with a TTL": lambda cache, key, tags: cache.set(key, 1, 5, tags=tags),
    "add": lambda cache, key, tags: cache.add(key, 1, tags=tags),
    "set_many": lambda cache, key, tags: cache.set_many({key: 1}, tags=tags),
    "set_many, without jitter": lambda cache, key, tags: cache.set_many({key: 1}, jitter=False, tags=tags),
    "get_or_load": lambda cache, key, tags: cache.get_or_load(key, lambda: 1, tags=tags),
    "aget_or_load": lambda cache, key, tags: asyncio.run(load(cache, key, tags)),
    "incr": lambda cache, key, tags: (cache.set(key, 0, tags=tags), cache.incr(key)),
    "update": lambda cache, key, tags: (cache.set(key, 0, tags=tags), cache.update(key, lambda value: 1)),
    "an Enum": lambda cache, key, tags: cache.set(
        key, 1, tags=[*StrEnum("Tag", [("A", each) for each in tags[:1]]), *tags[1:]]
    ),
    "touch": lambda cache, key, tags: (cache.set(key, 1, tags=tags), cache.touch(key, 5)),
    "set twice": lambda cache, key, tags: (cache.set(key, 0, tags=["other"]), cache.set(key, 1, tags=tags)),
}


@pytest.mark.parametrize("store", WAYS_TO_STORE.values(), ids=WAYS_TO_STORE)
@pytest.mark.parametrize("key", ["key", ("a", 1), ("a", Decimal(1)), ("a",)], ids=repr)
def test_an_entry_leaves_with_any_of_its_tags_or_with_its_group_however_it_was_stored(cache, store, key):
    drops = [partial(cache.delete_tags, "never used", "user:7"), partial(cache.delete_tags, "articles")]
    if type(key) is tuple:
        drops.append(cache.engine.add_group("a").delete)
    for drop in drops:
        store(cache, key, ("user:7", "articles"))
        for other in ("other", "a", ("b", 1)):
            cache.set(other, 1, tags=("user:8",))
        cache.delete_tags()
        assert cache.get(key) == 1
        drop()
        assert cache.get(key) is None
        assert key not in cache
        with pytest.raises(MissingKey):
            cache.expires_in(key)
        assert cache.keys() == ["other", "a", ("b", 1)]


def test_a_group_counts_the_entries_that_leave_and_those_that_are_stored_later_stay(cache):
    group = cache.engine.add_group("a")
    cache.set_many({("a", 1): 1, ("a", 2): 1, ("b", 1): 1})
    assert (group.delete(), group.delete()) == (2, 0)
    cache.set(("a", 1), 2)
    assert cache.get(("a", 1)) == 2


@pytest.mark.parametrize("name", ["a", "#a", "(a", ""])
def test_a_tag_is_no_group_of_keys(cache, name):
    cache.set((name, 1), 1)
    cache.set("tagged", 1, tags=("a",))
    cache.delete_tags("a", "(a", "#a")
    assert cache.keys() == [(name, 1)]
    cache.set("tagged", 1, tags=("a",))
    cache.engine.add_group(name).delete()
    assert cache.keys() == ["tagged"]


@pytest.mark.parametrize(
    ("tags", "error", "words"),
    [
        ("user:7", TypeError, r"tags must be .* not a single string; write \('user:7',\)"),
        (b"user", TypeError, "tags must be an iterable of at most 64 non-empty strings, not b'user'"),
        (None, TypeError, "not None"),
        ((7,), TypeError, "tags must be an iterable of at most 64 non-empty strings, not 7"),
        (("a", ["b"]), TypeError, r"not \['b'\]"),
        (("a", ""), ValueError, "not ''"),
        ([f"tag {number}" for number in range(65)], ValueError, "at most 64 .* not more: 'tag 0', 'tag 1', 'tag 2'"),
        (tuple([f"tag {number}" for number in range(65)]), ValueError, "at most 64 .* not more: 'tag 0'"),
    ],
    ids=repr,
)
def test_wrong_tags_are_refused_and_change_nothing(cache, tags, error, words):
    cache.set("key", 1)
    for call in (
        lambda: cache.set("key", 2, tags=tags),
        lambda: cache.add("new", 2, tags=tags),
        lambda: cache.set_many({"key": 2}, tags=tags),
        lambda: cache.get_or_load("new", lambda: 2, tags=tags),
        lambda: asyncio.run(load(cache, "new", tags)),
        lambda: cache.memoize(tags=tags),
    ):
        with pytest.raises(error, match=words):
            call()
    assert cache.keys() == ["key"]
    assert cache.get("key") == 1


@pytest.mark.parametrize(("tags", "error"), [((["a"],), TypeError), (("a", ""), ValueError)])
def test_a_wrong_tag_drops_none(cache, tags, error):
    cache.set("key", 1, tags=("a",))
    with pytest.raises(error, match="tags must be non-empty strings, not"):
        cache.delete_tags(*tags)
    assert cache.get("key") == 1


# Values that are computed while a tag is dropped.


def test_a_refresh_keeps_the_tags(cache, clock):
    for value in ("first", "second"):
        cache.get_or_load("key", lambda value=value: value, grace=100, tags=("a",))
        assert until(lambda: cache._parts.loads.is_idle)
        clock.advance(11)
    cache.delete_tags("a")
    assert cache.get_or_load("key", lambda: "new", grace=100, tags=("a",)) == "new"


@pytest.mark.parametrize("key", ["a", ("a", 1)], ids=["tag", "group"])
@pytest.mark.parametrize("options", [{}, {"fail_safe": 100}])
def test_no_stale_value_is_served_after_a_drop(cache, clock, key, options):
    def fail():
        raise ConnectionError

    cache.get_or_load(key, lambda: "old", grace=100, tags=("a",))
    clock.advance(11)
    cache.delete_tags("a") if key == "a" else cache.engine.add_group("a").delete()
    with pytest.raises(ConnectionError):
        cache.get_or_load(key, fail, grace=100, tags=("a",), **options)


@pytest.mark.parametrize("write", ["set", "add"])
def test_a_write_since_a_moment_before_the_drop_leaves_no_value(cache, write):
    store, since = getattr(cache.engine, write), moment()
    cache.delete_tags("a")
    if write == "set":
        cache.set("key", "older")
    assert not store("key", "old", 10, tags=("a",), since=since) & STORED
    assert cache.get("key") is None
    assert store("key", "new", 10, tags=("a",), since=moment()) & STORED


# Memoized functions.


def test_the_tags_of_a_memoized_function_are_made_of_the_arguments(cache):
    @cache.memoize(tags=lambda user, **options: (f"user:{user}", *options))
    def name(user, **options):
        calls.append(user)
        return user

    calls = []
    for _ in range(2):
        assert [name(1), name(2), name(2, long=True)] == [1, 2, 2]
    assert calls == [1, 2, 2]
    cache.delete_tags("user:2")
    assert [name(1), name(2), name(2, long=True)] == [1, 2, 2]
    cache.delete_tags("long")
    name(2, long=True)
    assert calls == [1, 2, 2, 2, 2, 2]


def test_wrong_tags_of_the_arguments_are_an_error_of_the_call(cache):
    name = cache.memoize(tags=lambda user: f"user:{user}")(lambda user: pytest.fail("not called"))
    with pytest.raises(TypeError, match=r"the result of tags must be .* not a single string"):
        name(1)
