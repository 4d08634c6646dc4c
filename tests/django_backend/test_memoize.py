"""Django's ``memoize``: aliases, versions, timeouts, options by kind of cache, counts, and the language.

``tests/backends`` tests the behavior that it shares with Flask, ``tests/engine/loading`` the engine's ``memoize``.
"""

import threading

import pytest
from django.core.cache import caches
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings

from tests.django_backend.conftest import DUMMY, Counted, wheel
from tests.recursion import DEPTH, result_at_depth
from tests.waiting import until
from wheelcache import KEEP
from wheelcache.django_backend import memoize, memoized_functions
from wheelcache.django_backend.memo_arguments import text_of


def test_wrong_arguments_of_the_decorator_are_errors_when_it_decorates():
    def generator():
        yield 1

    wrong = {
        r"memoize is called before it decorates: @memoize\(\)": lambda: memoize(generator),
        "timeout must be a number of seconds": lambda: memoize("60"),
        "cache must be a string, not": lambda: memoize(cache=caches),
        "by_language must be True or False": lambda: memoize(by_language="en"),
        "fail_safe must be a number of seconds > 0": lambda: memoize(fail_safe=True),
        "load_timeout must be": lambda: memoize(load_timeout=-1),
        "with reusable results, not the generator": lambda: memoize()(generator),
        "below any other decorators": lambda: memoize()(property(generator)),
    }
    for message, decorate in wrong.items():
        with pytest.raises((TypeError, ValueError), match=message):
            decorate()


# Where the values are.


def test_the_alias_is_the_callers_choice_and_its_values_are_its_own(site):
    count = Counted()
    load = memoize(cache="other")(lambda key: count())
    load("a")
    caches["default"].clear()
    assert load("a") == [1]
    caches["other"].clear()
    assert load("a") == [2]
    with pytest.raises(ImproperlyConfigured, match="doesn't exist"):
        memoize(cache="unknown")(lambda: 1)()


def test_versions_have_values_of_their_own(any_site):
    counts = [Counted(), Counted()]

    def define(version, count):
        @memoize(version=version)
        def load(key):
            return count(key)

        return load

    old, new = (define(version, count) for version, count in zip((1, 2), counts, strict=True))
    assert [old("a"), new("a"), old("a"), new("a")] == [[1]] * 4
    assert old.cache_delete("a") is True
    assert [old("a"), new("a")] == [[2], [1]]


def test_the_cache_is_looked_up_again_after_a_test_has_overridden_the_settings(site):
    count = Counted()
    load = memoize(60)(lambda key: count())
    assert load("a") == [1]
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert [load("a"), load("a")] == [[2], [3]]
    with override_settings(CACHES={"default": wheel()}):
        assert [load("a"), load("a")] == [[4], [4]]


def test_a_set_has_the_same_text_in_every_process():
    """The order of a set differs between processes."""
    names = frozenset(["red", "green", "blue", "black"])
    text = """frozenset["'black'", "'blue'", "'green'", "'red'"]"""
    assert text_of(names, "load()") == text
    assert text_of(frozenset([names, "a"]), "load()") == f"frozenset{sorted([repr('a'), text])}"


@pytest.mark.parametrize(("name", "is_shared"), [("shop.load", True), ("__main__.load", False), ("shop.twice", False)])
def test_a_value_is_shared_by_processes_if_the_name_of_its_function_means_the_same_in_each(
    monkeypatch, name, is_shared
):
    """Another script may have another function of that name, and another process another first one of two."""
    for _ in range(2):
        memoized_functions._names.add("shop.twice")
    owners = []
    for process in ("one", "other"):
        monkeypatch.setattr(memoized_functions, "_process", process)
        owners.append(memoized_functions._owner_of(name))
    assert (owners[0] == owners[1]) is is_shared


# How long they stay.


@pytest.mark.parametrize(
    ("timeout", "kept", "over"),
    [
        *(((), 9.9, 0.1), ((20,), 19.9, 0.1), ((2.5,), 2.4, 0.1), ((None,), 1e9, None)),
        *(((0,), None, 0), ((-1,), None, 0)),
    ],
)
def test_the_timeout_has_djangos_meaning(clock, timeout, kept, over):
    with override_settings(CACHES={"default": wheel(TIMEOUT=10)}):
        count = Counted()
        load = memoize(*timeout)(lambda key: count())
        load("a")
        if kept is not None:
            clock.advance(kept)
            assert load("a") == [1]
        if over is not None:
            clock.advance(over)
            assert load("a") == [2]


def test_with_a_timeout_of_0_the_value_is_that_of_the_function_itself(site):
    lock = memoize(0)(lambda: threading.Lock())()
    assert lock.acquire()


def test_a_hit_past_refresh_ahead_starts_a_refresh_and_a_none_may_have_a_shorter_life(clock, site):
    count, nothing = Counted(), []
    load = memoize(10, refresh_ahead=0.5)(lambda key: count())
    none = memoize(60, negative_ttl=5)(lambda key: nothing.append(key))
    for seconds in (0, 4, 2):
        clock.advance(seconds)
        assert (load("a"), none("a")) == ([1], None)
    assert until(lambda: load("a") == [2])
    assert nothing == ["a", "a"]


def test_a_function_receives_the_previous_value_and_may_keep_it(clock, site):
    received = []

    @memoize(60, grace=30)
    def load(key, *, previous=None):
        received.append((key, previous))
        return KEEP if previous else [key]

    assert load("a") == ["a"]
    clock.advance(60)
    assert load(key="a") == ["a"]
    assert until(lambda: received == [("a", None), ("a", ["a"])])
    with pytest.raises(TypeError, match="previous"):
        load("a", previous=1)


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_cache_that_has_no_previous_value_passes_none(any_site, timeout):
    load = memoize(timeout)(lambda key, *, previous: [key, previous])
    assert load("a") == ["a", None]


# Kinds of caches.


def test_a_dummy_cache_takes_every_option_and_others_refuse_those_of_a_wheel_cache(any_site):
    load = memoize(60, grace=60, negative_ttl=5)(lambda key: key)
    tagged = memoize(60, tags=["a"])(lambda: [1])
    need = r"need a WheelCache or a HostCache, its tags one of these or a TieredCache, and the cache 'default' is a"
    if any_site != "memory":
        with pytest.raises(ImproperlyConfigured, match=need):
            load("a")
    if any_site == "locmem":
        with pytest.raises(ImproperlyConfigured, match=need):
            tagged()
    with override_settings(CACHES={"default": {"BACKEND": DUMMY}}):
        assert (load("a"), tagged()) == ("a", [1])


# Figures, and depth.


def test_calls_are_counted_and_a_deletion_reports_whether_there_was_a_value(any_site):
    load = memoize(60)(lambda key, b=2: [key, b])
    for _ in range(2):
        assert [load("a"), load("a", 2), load("a", 3)] == [["a", 2], ["a", 2], ["a", 3]]
    assert (load.cache_stats().hits, load.cache_stats().misses, load.cache_stats().calls) == (4, 2, 2)
    assert load.cache_delete(key="a") is True
    assert load.cache_delete("a") is False


@memoize(60)
def count(depth):
    return 0 if depth == 0 else count(depth - 1) + 1


def test_a_recursive_function_reaches_a_fourth_of_the_recursion_limit(site):
    assert result_at_depth(count, DEPTH) == DEPTH
