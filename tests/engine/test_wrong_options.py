"""Invalid options are reported immediately, under the given name."""

import asyncio
from array import array
from math import nan

import pytest

from wheelcache import Cache
from wheelcache.runtime.wheel_driver import ManualClock

TTL = "a number of seconds > 0"
WHOLE = "a whole number >= 1, or None"


@pytest.mark.parametrize(
    ("argument", "value", "takes"),
    [
        ("name", 5, "a string"),
        *(("max_entries", value, WHOLE) for value in (0, 1.5, True)),
        ("max_weight", -1, WHOLE),
        *((name, 5, "callable") for name in ("weigher", "on_removal", "clock")),
        *(("ttl", value, TTL) for value in (0, "5")),
        *(("jitter", value, "a fraction") for value in (1, -0.1)),
        *(("trust", value, "an array of one word") for value in (5, [1], array("Q", [1, 2]), array("i", [1]))),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it_what_it_takes_and_what_it_got(argument, value, takes):
    with pytest.raises((TypeError, ValueError)) as raised:
        Cache(**{argument: value})
    assert str(raised.value).startswith(f"{argument} must be {takes}")
    # Long values are cut.
    assert str(raised.value).removesuffix("...").endswith(f"not {value!r:.200}")


def test_a_bound_on_weight_and_a_weigher_come_together():
    for given in ({"max_weight": 5}, {"weigher": len}):
        with pytest.raises(TypeError, match="max_weight and weigher"):
            Cache(**given)


@pytest.mark.parametrize("ttl", [0, -1, nan, "5", [], True])
def test_a_wrong_ttl_of_a_write_is_an_error(ttl):
    cache = Cache(clock=ManualClock())
    cache.set("there", 1)
    for key in ("there", "missing"):
        for write in (
            lambda key: cache.set(key, 1, ttl),
            lambda key: cache.add(key, 1, ttl),
            lambda key: cache.set_many({key: 1}, ttl),
            lambda key: cache.touch(key, ttl),
        ):
            with pytest.raises((TypeError, ValueError), match="ttl must be a number of seconds > 0, or None"):
                write(key)


def unreached():
    raise AssertionError("a wrong argument is an error before anything is loaded")


NO_TIME = (0, -1, "1", float("nan"), float("inf"), True)

WRONG = [
    *(
        ({option: wrong}, (TypeError, ValueError), f"{option} must be")
        for option in ("grace", "fail_safe", "timeout", "negative_ttl", "refresh_ahead")
        for wrong in NO_TIME
    ),
    ({"refresh_ahead": 1}, ValueError, "refresh_ahead must be a fraction, 0 < fraction < 1, or None, not 1"),
    ({"ttl": "x"}, TypeError, "ttl must be"),
    ({"ttl": -1}, ValueError, "ttl must be"),
    ({"grace": "x", "timeout": -1}, TypeError, "grace must be"),
]


@pytest.mark.pairs(full="is_there", of="is_there, message")
@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_take_refuses_wrong_arguments_of_a_hit_as_of_a_miss(arguments, error, message, is_there):
    cache = Cache(clock=ManualClock())
    if is_there:
        cache.set("k", 1)
    with pytest.raises(error, match=message):
        cache.get_or_load("k", unreached, **arguments)
    with pytest.raises(error, match=message):
        asyncio.run(cache.aget_or_load("k", unreached, **arguments))
    with pytest.raises(error, match=message):
        cache.memoize(**arguments)


def test_take_with_right_arguments_of_a_hit_returns_it():
    cache = Cache(clock=ManualClock())
    cache.set("k", 1)
    assert (
        cache.get_or_load("k", lambda: 2, 60, grace=5, refresh_ahead=0.5, fail_safe=5, timeout=3, negative_ttl=1) == 1
    )
