"""What is wrong is said at once, under the name that was given."""

import asyncio

import pytest

from wheelcache import Cache, Timers
from wheelcache.runtime.clock import ManualClock


@pytest.mark.parametrize("name", ["log_interval", "sample_interval", "snapshot_interval"])
@pytest.mark.parametrize("value", [1e-320, 1e-7])
def test_an_interval_that_cannot_be_ticked_is_refused_when_the_cache_is_made(name, value):
    with pytest.raises(ValueError, match=f"{name} must be a number of seconds > 0, .*at least 0.000001"):
        Cache(**{name: value})


@pytest.mark.parametrize("name", ["log_interval", "sample_interval"])
def test_the_shortest_interval_works(name):
    clock = ManualClock()
    cache = Cache(clock=clock, **{name: 1e-6})
    cache.set("k", 1)
    assert cache.get("k") == 1


@pytest.mark.parametrize("stamps", [5, "host", object()])
def test_stamps_that_are_none_are_refused(stamps):
    with pytest.raises(TypeError, match=r"stamps must be a wheelcache\.coherence\.\S+\.SharedStamps, or None, not "):
        Cache(stamps=stamps)


def test_a_key_that_cannot_be_encoded_is_refused_without_being_shown():
    with pytest.raises(ValueError, match="snapshot_key must be a string without lone surrogates, or bytes") as error:
        Cache(snapshot_key="s3cret\ud800")
    assert "s3cret" not in str(error.value)
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__


@pytest.mark.parametrize("secret", ["s3cret\0", b"s3cret\0\0", b"S3cret"])
def test_a_file_is_signed_by_one_secret_only(secret, tmp_path):
    cache = Cache(clock=ManualClock(), ttl=60)
    cache.set("k", 1)
    path = tmp_path / "file"
    cache.save(path, secret="s3cret")
    assert Cache(clock=ManualClock()).load(path, secret=secret) == 0
    assert (tmp_path / "file.refused").exists()


WRONG = [
    ({"grace": "x"}, TypeError, "grace must be"),
    ({"timeout": -1}, ValueError, "timeout must be"),
    ({"refresh_ahead": 2}, ValueError, "refresh_ahead must be"),
    ({"negative_ttl": 0}, ValueError, "negative_ttl must be"),
    ({"fail_safe": True}, TypeError, "fail_safe needs grace"),
    ({"fail_safe": 1}, TypeError, "fail_safe must be"),
    ({"ttl": "x"}, TypeError, "ttl must be"),
    ({"ttl": -1}, ValueError, "ttl must be"),
    ({"grace": "x", "timeout": -1}, TypeError, "grace must be"),
]


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize(("arguments", "error", "message"), WRONG)
def test_take_refuses_wrong_arguments_of_a_hit_as_of_a_miss(arguments, error, message, is_there):
    cache = Cache(clock=ManualClock())
    if is_there:
        cache.set("k", 1)
    with pytest.raises(error, match=message):
        cache.take("k", lambda: 2, **arguments)
    with pytest.raises(error, match=message):
        asyncio.run(cache.atake("k", lambda: 2, **arguments))
    with pytest.raises(error, match=message):
        cache.memoize(**arguments)


def test_take_with_right_arguments_of_a_hit_returns_it():
    cache = Cache(clock=ManualClock())
    cache.set("k", 1)
    assert cache.take("k", lambda: 2, 60, grace=5, refresh_ahead=0.5, fail_safe=True, timeout=3, negative_ttl=1) == 1


def test_timers_refuse_a_secret_that_cannot_be_encoded(tmp_path):
    timers = Timers(1.0, 8, print, clock=ManualClock())
    with pytest.raises(ValueError, match="secret must be a string without lone surrogates"):
        timers.save(tmp_path / "file", secret="\ud800")
