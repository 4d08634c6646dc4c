"""Invalid options are reported immediately, under the given name."""

import asyncio
from array import array
from math import nan
from pathlib import Path

import pytest

from wheelcache import Cache, ManualClock
from wheelcache.engine import cache_parts
from wheelcache.engine.cache_parts import naming
from wheelcache.engine.guests import needed_module
from wheelcache.engine.option_table import DJANGO, ENGINE, OF_THE_SITE, Setting
from wheelcache.engine.options import secret_or_none
from wheelcache.errors import DirectoryUnusable, FileUnusable

TTL = "a number of seconds > 0"
WHOLE = "a whole number >= 1, or None"


@pytest.mark.parametrize(
    ("argument", "value", "takes"),
    [
        ("name", 5, "a string"),
        *(("max_entries", value, WHOLE) for value in (0, 1.5, True)),
        ("max_weight", -1, WHOLE),
        ("policy", "arc", "'lru' or 'adaptive'"),
        *((name, 5, "callable") for name in ("weigher", "on_removal", "clock")),
        *(("ttl", value, TTL) for value in (0, "5")),
        *(("jitter", value, "a fraction") for value in (1, -0.1)),
        *(("trust", value, "an array of one word") for value in ([1], array("Q", [1, 2]), array("i", [1]))),
    ],
)
def test_a_wrong_argument_is_an_error_that_names_it_what_it_takes_and_what_it_got(argument, value, takes):
    with pytest.raises((TypeError, ValueError)) as raised:
        Cache(**{argument: value})
    assert str(raised.value).startswith(f"{argument} must be {takes}")
    # Long values are cut.
    assert str(raised.value).removesuffix("...").endswith(f"not {value!r:.200}")


def test_options_that_need_each_other_come_together():
    for given in ({"max_weight": 5}, {"weigher": len}):
        with pytest.raises(TypeError, match="max_weight and weigher"):
            Cache(**given)
    with pytest.raises(ValueError, match="policy 'adaptive' needs max_entries, a whole number >= 1, not None"):
        Cache(policy="adaptive")


def test_the_core_in_python_says_that_it_is_not_adaptive(monkeypatch, caplog):
    monkeypatch.setattr(cache_parts, "IMPLEMENTATION", "python")
    Cache("pages", policy="adaptive", max_entries=5)
    assert caplog.text.count("Cache 'pages' evicts by LRU: only the compiled core is adaptive.") == 1


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"PASSWORD": "x"}, "secret"),
        (OF_THE_SITE, "the directory of the site"),
        *((("a", "b"), "a, b"), ("", "''"), ("a", "a"), (Path("/a"), "/a"), (None, "None")),
    ],
)
def test_operators_see_options_in_words_and_no_password(value, words):
    assert ENGINE.settings({"jitter": value}) == [Setting("jitter", words, False)]


def test_an_unusable_directory_is_an_error_that_names_the_option_as_the_interface_does():
    named = pytest.raises(
        DirectoryUnusable, match=r"^FIGURES_DIR must be None, or a private directory .*: it is a file"
    )
    with named, DJANGO.in_errors(), naming("figures_dir"):
        raise FileUnusable("it is a file")


@pytest.mark.parametrize(
    ("secret", "error"), [("", TypeError), (b"", TypeError), (5, TypeError), ("\ud800", ValueError)]
)
def test_a_wrong_secret_is_an_error_that_does_not_show_it(secret, error):
    with pytest.raises(error, match=r"secret must be a string.* bytes") as raised:
        secret_or_none("secret", secret)
    assert not secret or str(secret) not in str(raised.value)
    assert [secret_or_none("secret", each) for each in (None, "é", b"x")] == [None, "é".encode(), b"x"]


def test_a_call_that_needs_a_missing_guest_says_so():
    with pytest.raises(ModuleNotFoundError, match=r"lock\(\) needs wheelcache.nobody, which is not installed"):
        needed_module("nobody", "locks", "lock()")


@pytest.mark.parametrize("weight", [-1, 1.5, None])
def test_a_weigher_must_return_a_whole_number(weight):
    cache = Cache(max_weight=5, weigher=lambda key, value: weight)
    with pytest.raises((TypeError, ValueError), match="the result of the weigher must be a whole number >= 0, not"):
        cache.set("a", 1)


@pytest.mark.parametrize("ttl", [0, -1, nan, "5", [], True])
def test_a_wrong_ttl_of_a_write_is_an_error(ttl):
    cache = Cache(clock=ManualClock())
    cache.set("there", 1)
    for key in ("there", "missing"):
        for write in (cache.set, cache.add, lambda key, _, ttl: cache.set_many({key: 1}, ttl)):
            with pytest.raises((TypeError, ValueError), match="ttl must be a number of seconds > 0, or None"):
                write(key, 1, ttl)
        with pytest.raises((TypeError, ValueError), match="ttl must be a number of seconds > 0, or None"):
            cache.touch(key, ttl)


def unreached():
    raise AssertionError("a wrong argument is an error before anything is loaded")


SECONDS = ("grace", "fail_safe", "timeout", "negative_ttl")
WRONG = [
    *(({name: wrong}, f"{name} must be a number") for name in SECONDS for wrong in (0, "1", nan, True, [])),
    *(({"refresh_ahead": wrong}, "refresh_ahead must be a fraction, 0 < fraction < 1, or None") for wrong in (0, 1)),
    *(({"ttl": wrong}, "ttl must be") for wrong in ("x", -1)),
    ({"grace": "x", "timeout": -1}, "grace must be"),
]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_take_refuses_wrong_arguments_of_a_hit_as_of_a_miss(arguments, message, is_there):
    cache = Cache(clock=ManualClock())
    if is_there:
        cache.set("k", 1)
    for load in (
        lambda: cache.get_or_load("k", unreached, **arguments),
        lambda: asyncio.run(cache.aget_or_load("k", unreached, **arguments)),
        lambda: cache.memoize(**arguments),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            load()
