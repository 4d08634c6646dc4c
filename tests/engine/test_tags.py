"""Tags of entries: ``cache.set(key, value, tags=...)`` and ``cache.delete_tags``.

The entries of a memoized function are a group, which leaves in the same way as those of a tag. Tests that use
``dropped`` run for both; ``test_groups`` tests the differences.
"""

import asyncio
from collections.abc import Callable, Hashable, Iterator
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

import pytest

from tests.engine.loading.harness import Held
from tests.runtime import forking
from tests.waiting import PATIENCE, until
from wheelcache import Cache, RemovalCause
from wheelcache.runtime.clock import moment


class Dropped(NamedTuple):
    """Two keys, and a call that drops the entries of the first one. ``tags`` are their arguments."""

    key: Hashable
    kept_key: Hashable
    tags: dict[str, Any]
    kept_tags: dict[str, Any]
    drop: Callable[[Cache], object]


DROPPED = {
    "tag": Dropped("a", "b", {"tags": ("a",)}, {"tags": ("b",)}, lambda cache: cache.delete_tags("a")),
    "group": Dropped(("a", 1), ("b", 1), {}, {}, lambda cache: cache.engine.add_group("a").delete()),
}


@pytest.fixture(params=DROPPED.values(), ids=DROPPED)
def dropped(request):
    return request.param


async def load(cache, key, tags):
    return await cache.aget_or_load(key, lambda: 1, tags=tags)


WAYS_TO_STORE = {
    "set": lambda cache, key, tags: cache.set(key, 1, tags=tags),
    "set, with a TTL": lambda cache, key, tags: cache.set(key, 1, 5, tags=tags),
    "add": lambda cache, key, tags: cache.add(key, 1, tags=tags),
    "set_many": lambda cache, key, tags: cache.set_many({key: 1}, tags=tags),
    "get_or_load": lambda cache, key, tags: cache.get_or_load(key, lambda: 1, tags=tags),
    "aget_or_load": lambda cache, key, tags: asyncio.run(load(cache, key, tags)),
    "incr": lambda cache, key, tags: (cache.set(key, 0, tags=tags), cache.incr(key)),
    "update": lambda cache, key, tags: (cache.set(key, 0, tags=tags), cache.update(key, lambda value: 1)),
    "touch": lambda cache, key, tags: (cache.set(key, 1, tags=tags), cache.touch(key, 5)),
    "set twice": lambda cache, key, tags: (cache.set(key, 0, tags=["other"]), cache.set(key, 1, tags=tags)),
}


@pytest.mark.pairs(full="key", of="store")
@pytest.mark.parametrize("store", WAYS_TO_STORE.values(), ids=WAYS_TO_STORE)
@pytest.mark.parametrize("key", ["key", 1, ("user:7", 1)], ids=repr)
def test_an_entry_leaves_with_any_of_its_tags_however_it_was_stored(cache, store, key):
    for tag in ("user:7", "articles"):
        store(cache, key, ("user:7", "articles"))
        cache.set("another", 1, tags=("user:8",))
        cache.set("none", 1)
        assert cache.get(key) == 1
        cache.delete_tags(tag)
        assert cache.get(key) is None
        assert key not in cache
        assert cache.keys() == ["another", "none"]


def test_many_tags_are_dropped_by_one_call(cache):
    for number in range(5):
        cache.set(f"{number}", number, tags=[f"user:{number}"])
    cache.delete_tags("user:1", "user:3", "never used")
    cache.delete_tags()
    assert cache.keys() == ["0", "2", "4"]


def test_a_set_without_tags_removes_them(cache):
    cache.set("key", 1, tags=("a",))
    cache.set("key", 2)
    cache.delete_tags("a")
    assert cache.get("key") == 2


@pytest.mark.parametrize("name", ["a", "#a", "(a", ""])
def test_a_tag_is_no_group_of_keys(cache, name):
    cache.set((name, 1), 1)
    cache.set("tagged", 1, tags=("a",))
    cache.delete_tags("a", "(a", "#a")
    assert cache.keys() == [(name, 1)]
    cache.set("tagged", 1, tags=("a",))
    cache.engine.add_group(name).delete()
    assert cache.keys() == ["tagged"]


class Color(StrEnum):
    RED = "red"


class Safe(str):
    """As Django's SafeString, which templates use."""

    def __str__(self):
        return self

    def __format__(self, spec):
        return "otherwise"


@pytest.mark.parametrize("tag", [Color.RED, Safe("red")])
def test_a_tag_may_be_of_a_subclass_of_str(cache, tag):
    cache.set("one", 1, tags=[tag])
    cache.set("two", 1, tags=["red"])
    cache.delete_tags(tag)
    assert cache.keys() == []


@pytest.mark.parametrize(
    ("tags", "error", "words"),
    [
        ("user:7", TypeError, r"tags must be .* not a single string; write \('user:7',\)"),
        (b"user", TypeError, "tags must be an iterable of at most 64 non-empty strings, not b'user'"),
        (7, TypeError, "not 7"),
        (None, TypeError, "not None"),
        ((7,), TypeError, "tags must be an iterable of at most 64 non-empty strings, not 7"),
        (("a", ["b"]), TypeError, r"not \['b'\]"),
        (("a", ""), ValueError, "not ''"),
        ([f"tag {number}" for number in range(65)], ValueError, "at most 64 .* not more: 'tag 0', 'tag 1', 'tag 2'"),
    ],
    ids=repr,
)
def test_wrong_tags_are_refused_and_change_nothing(cache, tags, error, words):
    cache.set("key", 1)
    for call in (
        lambda: cache.set("key", 2, tags=tags),
        lambda: cache.set("key", 2, 5, tags=tags),
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


@pytest.mark.parametrize(
    ("tags", "error"), [((["a"],), TypeError), ((7,), TypeError), (("",), ValueError), (("a", ""), ValueError)]
)
def test_a_wrong_tag_drops_none(cache, tags, error):
    cache.set("key", 1, tags=("a",))
    with pytest.raises(error, match="tags must be non-empty strings, not"):
        cache.delete_tags(*tags)
    assert cache.get("key") == 1


def test_any_iterable_will_do_and_64_tags_may_be_given_twice(cache):
    def generated() -> Iterator[str]:
        yield "a"
        yield "a"

    cache.set("generated", 1, tags=generated())
    cache.set("many", 1, tags={f"{number}" for number in range(64)})
    cache.delete_tags("a", "63")
    assert cache.keys() == []


def test_the_wheel_removes_the_entries_and_notifies_the_listener(cache, clock):
    removals = []
    for key in range(3000):
        cache.set(f"{key}", key, tags=("a", f"{key}"))
    cache.set("b", 1, tags=("b",))
    cache.on_removal = lambda *removal: removals.append(removal)
    cache.delete_tags("a")
    assert removals == [], "the caller is not kept waiting"
    clock.advance(1)
    assert sorted(removals) == sorted((f"{key}", key, RemovalCause.DELETED) for key in range(3000))
    assert len(cache) == 1
    assert cache.stats().removals["deleted"] == 3000


def test_the_wheel_thread_removes_the_entries_by_itself():
    with_thread = Cache()
    for key in range(3000):
        with_thread.set(f"{key}", key, None, tags=("a",) if key % 2 else ("b",))
    for tag, left in (("a", 1500), ("b", 0)):
        with_thread.delete_tags(tag)
        assert until(lambda left=left: len(with_thread) == left)


def test_the_wheel_thread_of_a_forked_child_removes_the_entries_as_well():
    script = """
    cache = Cache()
    for number in range(4):
        cache.set(f"{number}", 1, None, tags=(f"{number}",))
    cache.delete_tags("0")
    until(lambda: len(cache) == 3)

    def drop():
        for left in (2, 1):
            cache.delete_tags(f"{left}")
            until(lambda: len(cache) == left)

    print(in_child(drop))
    cache.delete_tags("3")
    until(lambda: len(cache) == 2)
    """
    assert forking.run(script) == ["0"]


# Values that are computed while a tag is dropped.


def test_a_value_that_is_being_loaded_is_neither_kept_nor_shared_with_later_callers(cache, dropped, in_thread):
    loads_are_apart(in_thread, cache, cache, dropped)


def loads_are_apart(in_thread, here, elsewhere, dropped):
    """A load ``here`` is running during a drop ``elsewhere``."""

    def load(loader):
        return in_thread(partial(here.get_or_load, dropped.key, loader, **dropped.tags))

    old = Held("old")
    early = load(old)
    assert old.is_running()
    dropped.drop(elsewhere)
    late = load(lambda: "new")
    old.release()
    assert early.result(PATIENCE) == "old"
    assert late.result(PATIENCE) == "new"
    assert here.get(dropped.key) == "new"


def test_a_refresh_that_a_drop_overtakes_is_not_kept(cache, clock, in_thread):
    cache.get_or_load("key", lambda: "old", grace=100, tags=("a",))
    clock.advance(11)
    refresh = Held("still old")
    assert cache.get_or_load("key", refresh, grace=100, tags=("a",)) == "old"
    assert refresh.is_running()
    cache.delete_tags("a")
    refresh.release()
    assert until(lambda: cache._parts.loads.is_idle)
    assert cache.get_or_load("key", lambda: "new", grace=100, tags=("a",)) == "new"


def test_a_refresh_keeps_the_tags(cache, clock):
    for value in ("first", "second"):
        cache.get_or_load("key", lambda value=value: value, grace=100, tags=("a",))
        assert until(lambda: cache._parts.loads.is_idle)
        clock.advance(11)
    cache.delete_tags("a")
    assert cache.get_or_load("key", lambda: "new", grace=100, tags=("a",)) == "new"


@pytest.mark.parametrize("options", [{}, {"fail_safe": 100}])
def test_no_stale_value_is_served_after_a_drop(cache, clock, dropped, options):
    def fail():
        raise ConnectionError

    cache.get_or_load(dropped.key, lambda: "old", grace=100, **dropped.tags)
    clock.advance(11)
    dropped.drop(cache)
    with pytest.raises(ConnectionError):
        cache.get_or_load(dropped.key, fail, grace=100, **dropped.tags, **options)


@pytest.mark.parametrize("there", [True, False])
def test_a_set_since_a_moment_before_the_drop_leaves_no_value(cache, there):
    since = moment()
    cache.delete_tags("a")
    if there:
        cache.set("key", "older")
    assert not cache.engine.set("key", "old", 10, tags=("a",), since=since) & 1
    assert cache.get("key") is None
    assert cache.engine.set("key", "new", 10, tags=("a",), since=moment()) & 1


# Memoized functions.


class TestMemoize:
    def test_tags_are_made_of_the_arguments(self, cache):
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
        assert calls == [1, 2, 2, 2, 2]
        cache.delete_tags("long")
        name(2, long=True)
        assert len(calls) == 6

    def test_all_values_may_have_the_same_tags(self, cache):
        @cache.memoize(tags=["names"])
        def name(user):
            calls.append(user)

        calls = []
        name(1), name(2)
        cache.set("key", 1)
        cache.delete_tags("names")
        assert cache.keys() == ["key"]
        name(1)
        assert name.cache_clear() == 1
        name(1)
        assert calls == [1, 2, 1, 1]

    def test_coroutine_functions_have_tags_too(self, cache):
        @cache.memoize(tags=lambda user: (f"user:{user}",))
        async def name(user):
            calls.append(user)
            return user

        calls = []

        async def call():
            await name(1)
            cache.delete_tags("user:1")
            await name(1)

        asyncio.run(call())
        assert calls == [1, 1]

    def test_wrong_tags_of_the_arguments_are_an_error_of_the_call(self, cache):
        @cache.memoize(tags=lambda user: f"user:{user}")
        def name(user):
            raise AssertionError("not called")

        with pytest.raises(TypeError, match=r"the result of tags must be .* not a single string"):
            name(1)
