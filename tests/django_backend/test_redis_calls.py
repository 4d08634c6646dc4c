"""The calls of django-redis, in addition to its own tests, which ``tests/conformance`` runs."""

import asyncio
import sys
import threading
from datetime import UTC, datetime, timedelta

import pytest
from django.core.cache.backends.base import DEFAULT_TIMEOUT, CacheKeyWarning

from tests.engines import engine
from tests.guests import needs
from tests.waiting import PATIENCE, join, start, until, until_waiting
from wheelcache.core.contract import BATCH
from wheelcache.django_backend import WheelCache, redis_calls
from wheelcache.errors import LockError

pytestmark = pytest.mark.pairs(full="call", of="call")

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
        ("expire", 20, 20),
        ("expire", 0.5, 0.5),
        ("expire", timedelta(minutes=1), 60),
        ("expire", DEFAULT_TIMEOUT, 300),
        ("pexpire", 2500, 2.5),
        ("pexpire", timedelta(minutes=1), 60),
        ("pexpire", DEFAULT_TIMEOUT, 300),
        ("expire_at", 1_000_060, 60),
        ("expire_at", datetime.fromtimestamp(1_000_060), 60),
        ("expire_at", datetime.fromtimestamp(1_000_060, UTC), 60),
        ("pexpire_at", 1_000_060_500, 60.5),
        ("pexpire_at", datetime.fromtimestamp(1_000_060), 60),
    ],
)
def test_a_key_gets_another_time_to_live(make, clock, call, monkeypatch, name, given, left):
    monkeypatch.setattr(redis_calls.time, "time", lambda: 1_000_000)
    cache = make()
    for timeout in (None, 10):
        cache.set("key", 1, timeout)
        assert call(cache, name, "key", given) is True
        assert engine(cache).expires_in(":1:key") == pytest.approx(left)
    assert call(cache, name, "none", given) is False
    assert call(cache, name, "key", given, version=2) is False


@pytest.mark.pairs(full="call", of="call, name")
@pytest.mark.parametrize(
    ("name", "over"), [("expire", 0), ("expire", -1), ("pexpire", -1), ("expire_at", 1), ("pexpire_at", 1)]
)
def test_a_key_whose_time_has_passed_is_deleted(make, call, name, over):
    cache = make()
    cache.set("key", 1)
    assert call(cache, name, "key", over) is True
    assert cache.get("key") is None
    assert call(cache, name, "key", over) is False


@pytest.mark.parametrize("name", ["expire", "pexpire", "expire_at", "pexpire_at"])
def test_a_time_beyond_all_clocks_is_none_or_over(make, call, name):
    cache = make()
    cache.set("key", 1, 10)
    assert call(cache, name, "key", 10**400) is True
    assert cache.ttl("key") is None
    assert call(cache, name, "key", -(10**400)) is True
    assert cache.get("key") is None


@pytest.mark.pairs(full="call")
@pytest.mark.parametrize("name", ["expire", "pexpire", "expire_at", "pexpire_at"])
@pytest.mark.parametrize("wrong", ["10", None, True, float("nan"), [1]])
def test_a_wrong_time_is_an_error(make, clock, call, name, wrong):
    cache = make()
    cache.set("key", 1, 10)
    argument = "when" if name.endswith("at") else "timeout"
    with pytest.raises(TypeError, match=rf"{argument} must be a number or a (timedelta|datetime), not"):
        call(cache, name, "key", wrong)
    assert cache.ttl("key") == 10


def test_persist_is_true_for_a_key_that_had_a_timeout(make, call):
    cache = make()
    cache.set("key", 1, 10)
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
    assert call(cache, "set", "key", 5, 0, xx=True) is True
    assert call(cache, "set", "key", 5, 0, xx=True) is False


def test_a_value_that_replaces_another_by_xx_is_over_with_its_tags(make, call):
    cache = make()
    cache.set("key", 1, tags=["a"])
    assert call(cache, "set", "key", 2, xx=True) is True
    cache.delete_tags("a")
    assert call(cache, "set", "key", 3, xx=True) is False
    assert cache.get("key") is None


@pytest.mark.parametrize("given", [{"nx": True}, {"tags": ["a"]}], ids=str)
def test_xx_cannot_be_given_with_nx_or_tags(make, call, given):
    cache = make()
    with pytest.raises(ValueError, match=f"xx must be False with {next(iter(given))}, not True"):
        call(cache, "set", "key", 1, xx=True, **given)


def test_a_key_that_is_deleted_during_an_xx_stays_deleted(make):
    """The value is pickled before it is stored."""
    cache = make()

    class Deletes:
        def __reduce__(self):
            cache.delete("key")
            return (list, ())

    cache.set("key", 1)
    assert cache.set("key", Deletes(), xx=True) is False
    assert "key" not in cache


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


def test_many_threads_count_to_their_sum_in_a_key_that_was_missing(make, together):
    cache = make()
    totals = together(lambda number: cache.incr("n", ignore_key_check=True))
    assert sorted(totals) == list(range(1, len(totals) + 1))


def test_delete_many_returns_the_number_of_existing_keys(make, call):
    cache = make()
    cache.set_many({"a": 1, "b": 2})
    assert call(cache, "delete_many", ["a", "b", "c"]) == 2
    assert call(cache, "delete_many", iter(["a"])) == 0


# Patterns.


def all_iterated(cache, pattern, by_tasks, **given):
    async def collect():
        return [key async for key in cache.aiter_keys(pattern, **given)]

    return asyncio.run(collect()) if by_tasks else list(cache.iter_keys(pattern, **given))


def test_patterns_find_the_keys_of_their_alias_and_version(make, call):
    cache = make(KEY_PREFIX="p[*]", location="patterns")
    other = make(KEY_PREFIX="p*", location="patterns")
    cache.set_many({"a1": 1, "a2": 2, "b1": 3})
    cache.set("a3", 1, version=2)
    other.set("a4", 1)
    assert sorted(call(cache, "keys", "a*")) == ["a1", "a2"]
    assert call(cache, "keys", "a*", version=2) == ["a3"]
    assert sorted(call(other, "keys", "*")) == ["a4"]
    for by_tasks in (False, True):
        assert sorted(all_iterated(cache, "[ab]1", by_tasks)) == ["a1", "b1"]
        assert all_iterated(cache, "*", by_tasks, version=2, itersize=1) == ["a3"]
    assert call(cache, "delete_pattern", "*", prefix="p*") == 1
    assert call(cache, "delete_pattern", "a*", itersize=2) == 2
    assert call(cache, "delete_pattern", "a*") == 0
    assert cache.keys("*") == ["b1"]
    assert call(cache, "delete_pattern", "*", version=2) == 1


def test_keys_are_the_originals_with_a_prefix_that_has_colons(make):
    cache = make(KEY_PREFIX="a:b", VERSION="x")
    cache.set("c:d:e", 1)
    assert cache.keys("c:*") == ["c:d:e"]


def test_expired_keys_are_not_found_nor_counted(make, clock, ticks):
    ticks(3600)
    cache = make()
    cache.set("old", 1, 10)
    cache.set("new", 1, 100)
    clock.advance(20)
    assert len(engine(cache)) == 2
    assert cache.keys("*") == list(cache.iter_keys("*")) == ["new"]
    assert cache.delete_pattern("*") == 1


def test_keys_of_which_django_warns_are_found_and_deleted(make):
    cache = make()
    with pytest.warns(CacheKeyWarning):
        cache.set("with space", 1)
    cache.set("plain", 1)
    assert sorted(cache.keys("*")) == ["plain", "with space"]
    assert cache.delete_pattern("with *") == 1
    assert cache.keys("*") == ["plain"]


def test_results_of_memoized_functions_are_no_keys(make):
    cache = make()
    engine(cache).set(("function", 1), 1)
    engine(cache).set(7, 1)
    cache.set("key", 1)
    assert cache.keys("*") == ["key"]
    assert cache.delete_pattern("*") == 1
    assert len(engine(cache)) == 2


def test_a_key_function_may_put_the_key_anywhere(make):
    cache = make(KEY_FUNCTION=lambda key, prefix, version: f"{version}#{key}#{prefix}", KEY_PREFIX="*")
    cache.set_many({"foo": 1, "bar": 2})
    assert cache.keys("f*") == ["foo"]
    assert cache.delete_pattern("f*") == 1
    assert cache.keys("*") == ["bar"]


def test_a_subclass_may_make_the_keys(make):
    class Upside(WheelCache):
        def make_key(self, key, version=None):
            return f"{key}@{self.key_prefix}"

    cache = make(cls=Upside, KEY_PREFIX="p")
    cache.set("foo", 1)
    assert cache.keys("f*") == ["foo"]


@pytest.mark.parametrize("function", [lambda key, prefix, version: str(hash(key)), lambda key, *_: key.upper()])
def test_patterns_of_keys_that_a_function_changes_are_an_error(make, function):
    cache = make(KEY_FUNCTION=function)
    for method in (cache.keys, cache.iter_keys, cache.delete_pattern):
        with pytest.raises(ValueError, match="KEY_FUNCTION must keep keys unchanged"):
            method("a*")


@pytest.mark.parametrize("wrong", [None, 7, b"a*", ["a*"]])
def test_a_pattern_that_is_no_string_is_an_error(make, call, wrong):
    cache = make()
    cache.set("7", 1)
    for name in ("keys", "delete_pattern"):
        with pytest.raises(TypeError, match="pattern must be a string, not"):
            call(cache, name, wrong)
    with pytest.raises(TypeError, match="pattern must be a string, not"):
        cache.iter_keys(wrong)
    assert cache.get("7") == 1


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "10"])
def test_a_wrong_itersize_is_an_error(make, wrong):
    with pytest.raises((TypeError, ValueError), match="itersize must be a whole number >= 1"):
        make().delete_pattern("*", itersize=wrong)


def test_a_value_that_is_computed_while_its_pattern_is_deleted_is_not_kept(make):
    cache = make()
    began, go_on = threading.Event(), threading.Event()

    def compute():
        began.set()
        assert go_on.wait(PATIENCE)
        return "old"

    thread = start(cache.get_or_set, "user:7:page", compute)
    assert began.wait(PATIENCE)
    cache.delete_pattern("user:7:*")
    go_on.set()
    join(thread)
    assert cache.get("user:7:page") is None


def test_keys_that_stay_are_all_found_while_others_come_and_go(make):
    cache = make({"MAX_ENTRIES": None})
    cache.set_many({f"stays:{number}": 1 for number in range(5 * BATCH)})
    found = []
    for number, key in enumerate(cache.iter_keys("stays:*")):
        found.append(key)
        cache.set(f"comes:{number}", 1)
        cache.delete(f"comes:{number - 100}")
    assert set(found) == {f"stays:{number}" for number in range(5 * BATCH)}


def test_other_tasks_run_between_the_batches_of_a_scan(make):
    cache = make({"MAX_ENTRIES": None})
    cache.set_many({f"key:{number}": 1 for number in range(4 * BATCH)})

    async def turns_during(scan):
        turns, others = 0, asyncio.ensure_future(scan)
        while not others.done():
            turns += 1
            await asyncio.sleep(0)
        return turns

    assert asyncio.run(turns_during(cache.akeys("key:1*"))) > 3
    assert asyncio.run(turns_during(cache.adelete_pattern("key:1*"))) > 3


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


@needs("timers")
def test_a_lock_does_not_hold_a_key_and_no_write_releases_it(make):
    cache = make({"MAX_ENTRIES": 2})
    with cache.lock("name") as lock:
        cache.set("name", "value")
        assert cache.get("name") == "value"
        cache.set_many({"a": 1, "b": 2, "c": 3})
        cache.delete("name")
        cache.clear()
        assert lock.owned()


@needs("timers")
def test_a_lock_ends_with_the_time_of_the_cache(make, clock):
    cache = make()
    lock = cache.lock("name", timeout=10)
    assert lock.acquire()
    clock.advance(10)
    assert not cache.has_key("name")
    with pytest.raises(LockError):
        lock.release()


@needs("timers")
def test_a_lock_waits_for_its_turn(make):
    cache = make()
    lock = cache.lock("name")
    lock.acquire()
    got = []
    thread = start(lambda: got.append(cache.lock("name", sleep=0.001).acquire()))
    until_waiting()
    lock.release()
    join(thread)
    assert got == [True]


@needs("timers")
def test_a_lock_of_a_task(make):
    cache = make()

    async def use():
        async with cache.alock("name"):
            assert await cache.ahas_key("name")
            assert not await cache.alock("name").aacquire(blocking=False)

    asyncio.run(use())
    assert not cache.has_key("name")


def test_a_reader_waits_no_longer_than_for_a_thread_that_computes(make):
    """A hundred batches are deleted while another thread reads: it gets its turn after the switch interval."""
    cache = make({"MAX_ENTRIES": None})
    cache.set_many({f"key:{number}": 1 for number in range(100 * BATCH)})
    before, reads, done = sys.getswitchinterval(), [], threading.Event()

    def read():
        while not done.is_set():
            reads.append(cache.get("key:1"))

    sys.setswitchinterval(1e-4)
    thread = start(read)
    try:
        assert until(lambda: reads)
        count = len(reads)
        cache.delete_pattern("other:*")
        assert len(reads) > count
    finally:
        sys.setswitchinterval(before)
        done.set()
        join(thread)
