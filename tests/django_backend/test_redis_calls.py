"""The calls of django-redis, in addition to its own tests, which ``tests/conformance`` runs."""

from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache.backends.base import DEFAULT_TIMEOUT

from tests.engines import engine
from tests.guests import needs
from wheelcache.django_backend import redis_calls

pytestmark = pytest.mark.pairs(full="call", of="call")

AT, IN = ["expire_at", "pexpire_at"], ["expire", "pexpire"]

# The remaining time.


def test_ttl_and_pttl_are_the_time_left(make, clock, call):
    cache = make()
    cache.set("key", 1, 10)
    clock.advance(2.3)
    assert (call(cache, "ttl", "key"), call(cache, "pttl", "key")) == (8, 7700)
    cache.set("key", 1, 10, version=2)
    assert (call(cache, "ttl", "key", version=2), call(cache, "pttl", "key", 2)) == (10, 10000)
    cache.set("key", 1, None)
    assert call(cache, "ttl", "key") is call(cache, "pttl", "key") is None
    assert (call(cache, "ttl", "none"), call(cache, "pttl", "none")) == (0, 0)


@pytest.mark.pairs(full="call", of="call, name")
@pytest.mark.parametrize(
    ("name", "given", "left"),
    [
        *(("expire", 20, 20), ("expire", 0.5, 0.5), ("pexpire", 2500, 2.5)),
        *(("expire_at", 1_000_060, 60), ("pexpire_at", 1_000_060_500, 60.5)),
        *((name, timedelta(minutes=1), 60) for name in ("expire", "pexpire")),
        *((name, DEFAULT_TIMEOUT, 300) for name in ("expire", "pexpire")),
        *((name, datetime.fromtimestamp(1_000_060, UTC), 60) for name in ("expire_at", "pexpire_at")),
        *(("expire", 0, "over"), ("pexpire", -1, "over"), ("expire_at", 1, "over"), ("pexpire_at", 1, "over")),
        *((name, 10**400, None) for name in AT + IN),
        *((name, -(10**400), "over") for name in AT + IN),
    ],
)
def test_a_key_gets_another_time_to_live_or_is_deleted_if_that_has_passed(
    make, clock, call, monkeypatch, name, given, left
):
    monkeypatch.setattr(redis_calls.time, "time", lambda: 1_000_000)
    cache = make()
    cache.set("key", 1, 10)
    assert call(cache, name, "none", given) is call(cache, name, "key", given, version=2) is False
    assert call(cache, name, "key", given) is True
    if left == "over":
        assert cache.get("key") is None
    else:
        assert engine(cache).expires_in(":1:key") == (left and pytest.approx(left))


@pytest.mark.pairs(full="call", of="call, name")
@pytest.mark.parametrize("name", AT + IN)
@pytest.mark.parametrize("wrong", ["10", None, True, float("nan"), [1]])
def test_a_wrong_time_is_an_error(make, clock, call, name, wrong):
    cache = make()
    cache.set("key", 1, 10)
    argument = "when must be a number or a datetime" if name in AT else "timeout must be a number or a timedelta"
    with pytest.raises(TypeError, match=f"{argument}, not"):
        call(cache, name, "key", wrong)
    assert cache.ttl("key") == 10


@pytest.mark.parametrize("timeout", [10, 0.25])
def test_persist_is_true_for_a_key_that_had_a_timeout(make, clock, call, timeout):
    cache = make()
    cache.set("key", 1, timeout)
    assert call(cache, "persist", "key") is True
    assert cache.ttl("key") is None
    assert call(cache, "persist", "key") is call(cache, "persist", "none") is False


# Writing.


def test_nx_stores_only_a_missing_key(make, clock, call):
    cache = make()
    assert call(cache, "set", "key", 1, 10, nx=True) is True
    assert call(cache, "set", "key", 2, 20, nx=True) is False
    assert (cache.get("key"), cache.ttl("key")) == (1, 10)
    assert call(cache, "set", "key", 3, 20) is True


def test_xx_stores_only_an_existing_key(make, clock, call):
    cache = make()
    assert call(cache, "set", "key", 1, 10, xx=True) is False
    assert "key" not in cache
    call(cache, "set", "key", [1], 10, version=2)
    assert call(cache, "set", "key", [2], 20, xx=True) is False
    assert call(cache, "set", "key", [2], 20, version=2, xx=True) is True
    assert (cache.get("key", version=2), cache.ttl("key", 2)) == ([2], 20)
    clock.advance(20)
    assert call(cache, "set", "key", [3], version=2, xx=True) is False
    assert cache.get("key", version=2) is None
    call(cache, "set", "key", 4)
    for wrong in ({"nx": True}, {"tags": ["a"]}):
        with pytest.raises(ValueError, match="xx must be False with"):
            call(cache, "set", "key", 5, xx=True, **wrong)
    assert call(cache, "set", "key", 5, 0, xx=True) is True
    assert call(cache, "set", "key", 5, 0, xx=True) is False


@pytest.mark.parametrize("options", [{}, pytest.param({"FILL_WAIT": 5}, marks=needs("fill_waits"))], ids=str)
def test_set_returns_whether_the_value_is_stored_or_the_key_was_there_if_its_timeout_is_over(make, call, options):
    cache = make({"MAX_BYTES": 100_000, **options})
    for value in (1, [1], "text"):
        assert call(cache, "set", "key", value) is True
        assert call(cache, "set", "key", value, 10, version=2) is True
    assert call(cache, "set", "key", "x" * 200_000) is False
    assert call(cache, "set", "key", ["x" * 200_000], version=2) is False
    cache.set("key", 1)
    assert call(cache, "set", "key", 1, 0) is True
    assert call(cache, "set", "key", 1, -1) is False


def test_incr_makes_a_missing_key_if_asked_to(make, call):
    cache = make()
    assert call(cache, "incr", "n", 5, ignore_key_check=True) == 5
    assert call(cache, "incr", "n", 2, ignore_key_check=True) == 7
    assert cache.ttl("n") is None
    with pytest.raises(ValueError, match="not found"):
        call(cache, "incr", "none")


def test_delete_many_returns_the_number_of_existing_keys(make, call):
    cache = make()
    cache.set_many({"a": 1, "b": 2})
    assert call(cache, "delete_many", ["a", "b", "c"]) == 2
    assert call(cache, "delete_many", iter(["a"])) == 0


# Patterns.


def test_patterns_find_the_keys_of_their_alias_and_version(make, call):
    cache = make(KEY_PREFIX="p[*]:", location="patterns")
    other = make(KEY_PREFIX="p*", location="patterns")
    cache.set_many({"a1": 1, "a2": 2, "b1": 3})
    cache.set("a3", 1, version=2)
    other.set("a4", 1)
    assert sorted(call(cache, "keys", "a*")) == sorted(cache.iter_keys("a*", 1)) == ["a1", "a2"]
    assert call(cache, "keys", "a*", version=2) == ["a3"]
    assert call(other, "keys", "*") == ["a4"]
    other.set("a5", 1, version=2)
    assert call(cache, "delete_pattern", "*", prefix="p*") == 1
    assert call(cache, "delete_pattern", "*", 2, prefix="p*") == 1
    assert call(cache, "delete_pattern", "a*", itersize=2) == 2
    assert call(cache, "delete_pattern", "a*") == 0
    assert cache.keys("*") == ["b1"]
    assert call(cache, "delete_pattern", "*", version=2) == 1


@pytest.mark.pairs(full="call", of="wrong")
@pytest.mark.parametrize("name", ["keys", "delete_pattern"])
@pytest.mark.parametrize("wrong", [None, 7, b"a*", ["a*"]])
def test_a_pattern_that_is_no_string_is_an_error(make, call, name, wrong):
    with pytest.raises(TypeError, match="pattern must be a string, not"):
        call(make(), name, wrong)


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "10"])
def test_a_wrong_itersize_is_an_error(make, wrong):
    for method in (make().delete_pattern, make().iter_keys):
        with pytest.raises((TypeError, ValueError), match="itersize must be a whole number >= 1"):
            method("*", itersize=wrong)


@pytest.mark.parametrize("function", [lambda key, prefix, version: str(hash(key)), lambda key, *_: key.upper()])
def test_patterns_of_keys_that_a_function_changes_are_an_error(make, function):
    cache = make(KEY_FUNCTION=function)
    for method in (cache.keys, cache.iter_keys, cache.delete_pattern):
        with pytest.raises(ValueError, match="KEY_FUNCTION must keep keys unchanged"):
            method("a*")


def test_a_value_that_is_computed_while_its_pattern_is_deleted_is_not_kept(make):
    cache = make()
    assert cache.get_or_set("user:7:page", lambda: f"old, {cache.delete_pattern('user:7:*')}") == "old, 0"
    assert cache.get("user:7:page") is None


# Locks.


@needs("timers")
def test_a_lock_covers_the_threads_of_this_process(make, call):
    cache, same = make(location="locks"), make(location="locks")
    with cache.lock("name", timeout=10) as lock:
        assert lock.scope == "process"
        assert not same.lock("name").acquire(blocking=False)
        with same.lock("name", version=2, blocking_timeout=0):
            assert lock.owned()
        assert call(cache, "has_key", "name")
        assert not make().has_key("name")
    assert not call(cache, "has_key", "name")
