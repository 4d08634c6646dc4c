"""Loaders that receive the previous value, and TTLs that are functions of the value, in threads and tasks."""

from functools import partial, wraps
from math import inf

import pytest

from tests.engine.loading.harness import unreached
from tests.waiting import until
from wheelcache import KEEP

pytestmark = pytest.mark.pairs(full="twin", of="twin")


# TTLs.


@pytest.mark.parametrize(("ttl", "expires_in"), [(7, 7), (0.5, 0.5), (inf, None), (10**400, None)])
def test_a_ttl_that_is_a_function_of_the_value_decides_its_lifetime(cache, twin, ttl, expires_in):
    token = {"expires_in": ttl}
    assert twin.get_or_load("token", lambda: token, lambda token: token["expires_in"]) is token
    assert cache.expires_in("token") == expires_in
    assert twin.get_or_load("token", unreached, unreached) is token


@pytest.mark.parametrize("ttl", [None, 0, -inf])
def test_a_value_for_which_the_ttl_is_none_or_over_is_returned_once_and_ends_the_old_one(cache, clock, twin, ttl):
    twin.get_or_load("k", lambda: "old", grace=50)
    clock.advance(10)
    values = iter(range(9))
    assert twin.get_or_load("k", lambda: next(values), lambda value: ttl, grace=50) == "old"
    twin.settle()
    assert len(cache) == 0
    assert [twin.get_or_load("k", lambda: next(values), lambda value: ttl) for _ in range(2)] == [1, 2]


@pytest.mark.parametrize("wrong", ["7", True, float("nan")], ids=repr)
def test_a_wrong_result_of_the_ttl_is_an_error_that_shows_it(cache, twin, wrong):
    match = f"must be a number of seconds, or None not to keep the value, not {wrong!r}"
    with pytest.raises((TypeError, ValueError), match=match):
        twin.get_or_load("k", lambda: 1, lambda value: wrong)
    assert len(cache) == 0
    assert cache.stats().load_failures == 1


def test_refresh_ahead_needs_a_number(cache, twin):
    for _ in range(2):
        with pytest.raises(TypeError, match="refresh_ahead is a fraction of a number of seconds, not of the function"):
            twin.get_or_load("k", lambda: 1, lambda value: 5, refresh_ahead=0.5)
        cache.set("k", 1)


# The previous value.


def with_default(previous=None):
    return previous


def by_name(*, previous):
    return previous


@wraps(with_default)
def decorated(*args, **kwargs):
    return with_default(*args, **kwargs)


class Source:
    def load(self, previous):
        return previous

    __call__ = load


RECEIVING = {
    "with default": with_default,
    "by name": by_name,
    "decorated": decorated,
    "positional": lambda previous: previous,
    "partial": partial(lambda key, previous: previous, "k"),
    "method": Source().load,
    "object": Source(),
}


@pytest.mark.parametrize("loader", RECEIVING.values(), ids=RECEIVING)
def test_a_loader_with_a_parameter_named_previous_receives_the_value_that_it_replaces(cache, clock, twin, loader):
    assert twin.get_or_load("k", loader, grace=5) is None
    cache.delete("k")
    twin.get_or_load("k", lambda: "old", grace=5)
    clock.advance(10)
    assert twin.get_or_load("k", loader, grace=5) == "old"
    twin.settle()
    assert cache.get("k") == "old"


NOT_RECEIVING = {
    "int": (int, 0),
    "another name": (lambda value=7: value, 7),
    "any": (lambda *args, **kwargs: (args, kwargs), ((), {})),
    "bound": (partial(lambda previous: previous, previous="own"), "own"),
    "by position only": (lambda previous="own", /: previous, "own"),
    "local of that name, with a parameter": (lambda value=7: [previous := value] and previous, 7),
}


@pytest.mark.parametrize(("loader", "value"), NOT_RECEIVING.values(), ids=NOT_RECEIVING)
def test_any_other_loader_is_called_without_arguments(cache, twin, loader, value):
    assert twin.get_or_load("k", loader) == value


@pytest.mark.parametrize("how", ["deleted", "expired", "cleared"])
def test_a_value_that_is_gone_is_not_passed(make, clock, twin, ticks, how):
    # The wheel does not remove the expired entry.
    ticks(1000)
    twin.cache = cache = make()
    cache.set("k", "old", 10)
    {"deleted": lambda: cache.delete("k"), "expired": lambda: clock.advance(10), "cleared": cache.clear}[how]()
    assert twin.get_or_load("k", lambda previous: [previous]) == [None]


# KEEP.


def test_keep_renews_the_previous_value_with_the_new_ttl(cache, clock, twin):
    old = ["old"]
    twin.get_or_load("k", lambda: old, 10, grace=50)
    for ttl, expires_in in ((20, 20), (lambda value: 30 if value is old else 0, 30)):
        clock.advance(cache.expires_in("k"))
        assert twin.get_or_load("k", lambda previous: KEEP, ttl, grace=50) is old
        twin.settle()
        assert cache.get("k") is old
        assert cache.expires_in("k") == expires_in
    stats = cache.stats()
    assert (stats.loads, stats.load_failures, stats.stale_hits) == (3, 0, 2)


@pytest.mark.parametrize("loader", [lambda: KEEP, lambda previous: KEEP], ids=["not received", "there is none"])
def test_keep_without_a_previous_value_is_an_error(cache, twin, loader):
    with pytest.raises(ValueError, match="the loader of 'k' returned KEEP, and there is no previous value"):
        twin.get_or_load("k", loader)
    assert len(cache) == 0


# Memoized functions.


def test_a_memoized_function_may_choose_the_lifetime_and_receive_the_previous_value(cache, clock):
    calls = []

    @cache.memoize(lambda value: value[1], grace=5)
    def load(name, seconds=10, *, previous=None):
        calls.append((name, seconds, previous))
        return KEEP if previous else (name, seconds)

    assert load("a") == load(name="a", seconds=10) == ("a", 10)
    assert load("b", 20) == ("b", 20)
    clock.advance(10)
    assert load("a") == ("a", 10)
    assert until(lambda: len(calls) == 3)
    assert calls == [("a", 10, None), ("b", 20, None), ("a", 10, ("a", 10))]
    with pytest.raises(TypeError, match="previous"):
        load("a", previous=1)
    # Any other parameter of that name is an argument of the callers.
    compare = cache.memoize()(lambda current, previous=0: current - previous)
    assert [compare(5, 1), compare(5, previous=2), compare(5)] == [4, 3, 5]


def test_a_function_that_is_decorated_without_parentheses_is_an_error_at_its_first_call_at_the_latest(cache):
    for misuse in (
        lambda: cache.memoize(lambda one, two: 1),
        *(partial(cache.memoize(lambda one: 1), *arguments) for arguments in ((1,), (), (len, len))),
        partial(cache.memoize(lambda one: 1), one=len),
    ):
        with pytest.raises(TypeError, match=r"@cache.memoize\(\), not @cache.memoize on <function"):
            misuse()
    assert cache.memoize(lambda value: 5)(len)("abc") == 3
