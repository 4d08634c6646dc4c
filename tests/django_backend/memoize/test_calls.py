"""Calls of ``memoize``: counts, recursion, the previous value, and wrong arguments of the decorator.

``tests/backends`` tests the behavior that it shares with Flask, ``tests/engine/loading`` the engine's ``memoize``.
"""

import threading

import pytest
from django.core.cache import caches
from django.test import override_settings

from tests.django_backend.memoize.sites import WHEEL, locmem, tiered, wheel
from tests.engines import engine
from tests.guests import needs
from tests.recursion import DEPTH, DEPTH_OF_METHODS, result_at_depth
from tests.waiting import PATIENCE, until
from wheelcache import KEEP
from wheelcache.django_backend import memoize


def test_with_a_timeout_of_0_the_value_is_that_of_the_function_itself():
    with override_settings(CACHES={"default": wheel()}):
        lock = memoize(0)(lambda: threading.Lock())()
        lock.acquire()
        assert lock.locked()


@pytest.mark.parametrize("options", [{}, {"refresh_ahead": 0.9}], ids=["", "refresh_ahead"])
@pytest.mark.parametrize(
    "given", [{}, pytest.param({"TRANSACTIONS": True}, marks=needs("transactions"))], ids=["", "transactions"]
)
def test_each_call_is_one_look_up(options, given):
    with override_settings(CACHES={"default": wheel(OPTIONS=given)}):
        load = memoize(60, **options)(lambda number: number)
        for number in (1, 1, 1, 2):
            load(number)
        stats = engine(caches["default"]).stats()
        assert (stats.hits, stats.misses) == (2, 2)


@needs("near_cache")
def test_in_front_of_a_store_each_call_is_a_look_up_of_its_value_and_one_of_the_version_of_all_values():
    with override_settings(CACHES={"default": tiered(), "second": locmem()}):
        load = memoize(60)(lambda number: number)
        for calls, number in enumerate((1, 1, 1, 2), 1):
            load(number)
            stats = engine(caches["default"]).stats()
            assert stats.hits + stats.misses == 2 * calls


def test_calls_are_counted_and_a_deletion_reports_whether_there_was_a_value(any_site):
    load = memoize(60)(lambda key, b=2: [key, b])
    for _ in range(2):
        assert [load("a"), load("a", 2), load("a", 3)] == [["a", 2], ["a", 2], ["a", 3]]
    assert (load.cache_stats().hits, load.cache_stats().misses, load.cache_stats().calls) == (4, 2, 2)
    assert load.cache_delete(key="a") is True
    assert load.cache_delete("a") is False


def test_a_recursive_function_reaches_a_fourth_of_the_recursion_limit(site):
    @memoize(60)
    def count(depth):
        return 0 if depth == 0 else count(depth - 1) + 1

    def count_by_the_cache(depth):
        return 0 if depth == 0 else cache.get_or_set(str(depth), lambda: count_by_the_cache(depth - 1)) + 1

    cache = caches["default"]
    for each in (count, count_by_the_cache):
        assert result_at_depth(each) == DEPTH


class Counter:
    @memoize(60)
    def count(self, depth):
        return 0 if depth == 0 else self.count(depth - 1) + 1


def test_a_recursive_method_reaches_a_sixth_of_the_recursion_limit(site):
    assert result_at_depth(Counter().count, DEPTH_OF_METHODS) == DEPTH_OF_METHODS


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


@needs("fill_waits")
@pytest.mark.parametrize("grace", [{f"memoize.{__name__}": 30, "memoize.other": 0}, {"memoize.": 30}])
def test_with_fill_grace_the_first_caller_computes_and_the_others_get_the_old_value(clock, in_thread, grace):
    options = {"JITTER": 0, "FILL_WAIT": {"memoize.": 1000}, "GRACE": grace}
    caches_setting = {"default": wheel(BACKEND=WHEEL, OPTIONS=options)}
    began, may_end, received = threading.Event(), threading.Event(), []

    @memoize(60)
    def load(key, *, previous=None):
        received.append(previous)
        if previous:
            began.set()
            assert may_end.wait(PATIENCE)
        return [len(received)]

    with override_settings(CACHES=caches_setting):
        assert [load("a"), load("a")] == [[1], [1]]
        clock.advance(60)
        computing = in_thread(load, "a")
        assert began.wait(PATIENCE)
        assert [load("a"), load("a")] == [[1], [1]]
        may_end.set()
        assert computing.result(PATIENCE) == load("a") == [2]
    assert received == [None, [1]]


@pytest.mark.parametrize("timeout", [0, 60])
def test_a_cache_that_has_no_previous_value_passes_none(any_site, timeout):
    load = memoize(timeout)(lambda key, *, previous: [key, previous])
    assert load("a") == ["a", None]


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
