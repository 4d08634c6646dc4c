"""The lifetime of a value: exact on a clock that stands still, and with the default jitter."""

import pytest

from tests.backends.adapter import DEFAULT
from tests.backends.adapters import WITH_ASYNC
from tests.backends.wrong_timeouts import WRONG_TIMEOUTS, refused_timeout
from tests.guests import needs

pytestmark = [
    pytest.mark.pairs(full="adapter"),
    pytest.mark.parametrize("adapter", WITH_ASYNC.values(), ids=WITH_ASYNC, indirect=True),
]

ALL_WRITES = {
    "set": lambda cache, ttl=DEFAULT: cache.set("key", [1], ttl),
    "add": lambda cache, ttl=DEFAULT: cache.add("key", [1], ttl),
    "set_many": lambda cache, ttl=DEFAULT: cache.set_many({"key": [1]}, ttl),
    "load": lambda cache, ttl=DEFAULT: cache.load("key", lambda: [1], ttl),
}
writes = pytest.mark.parametrize("write", ALL_WRITES.values(), ids=ALL_WRITES)


@writes
def test_an_entry_is_there_until_its_timeout_or_the_default_one_is_over_and_never_after(make, clock, write):
    given, by_default = make(), make()
    # At run time as well.
    by_default.backend.default_timeout = 10
    write(given, 10)
    write(by_default)
    clock.advance(9.999)
    assert given.get("key") == by_default.get("key") == [1]
    clock.advance(0.001)
    for cache in (given, by_default):
        assert cache.get("key") is None


def test_an_expired_entry_is_never_returned_though_it_is_in_memory(make, clock, ticks):
    ticks(3600)
    expired = {
        "get": lambda cache: cache.get("key") is None,
        "get_many": lambda cache: cache.get_many(["key"]) == {},
        "has": lambda cache: not cache.has("key"),
        "delete": lambda cache: cache.delete("key") is False,
        "add": lambda cache: cache.add("key", 2),
        "load": lambda cache: cache.load("key", lambda: 3) == 3,
    }
    for name, is_gone in expired.items():
        cache = make()
        cache.set("key", 1, 10)
        clock.advance(10)
        assert len(cache.engine) == 1
        assert is_gone(cache), name


@writes
@pytest.mark.parametrize("ttl", [None, float("inf"), 1e300])
def test_without_an_end_an_entry_stays(make, clock, ticks, write, ttl):
    ticks(3600)
    cache, by_default = make(), make(timeout=None)
    write(cache, ttl)
    write(by_default)
    clock.advance(10**6)
    assert cache.get("key") == by_default.get("key") == [1]


@pytest.mark.pairs(full="adapter", of="ttl")
@pytest.mark.parametrize("ttl", [-1, -0.5, -float("inf")])
def test_a_timeout_that_is_over_at_once_stores_nothing_and_takes_away_what_was_there(make, clock, ttl):
    cache = make()
    for _ in range(2):
        assert cache.add("key", [1], ttl) is True
        assert cache.load("key", lambda: [1], ttl) == [1]
        cache.set("key", [1], ttl)
        assert cache.set_many({"key": 1, "other": 2}, ttl) == []
        assert len(cache.engine) == 0
    cache.set_many({"key": "there", "other": "there", "kept": "there"})
    assert cache.add("key", "new", ttl) is False
    assert cache.load("key", pytest.fail, ttl) == "there"
    cache.set("key", "new", ttl)
    cache.set_many({"other": "new"}, ttl)
    assert cache.get_many(["key", "other", "kept"]) == {"kept": "there"}


@pytest.mark.parametrize("wrong", WRONG_TIMEOUTS, ids=repr)
@writes
def test_a_wrong_timeout_is_a_type_error_that_names_it_and_changes_nothing(make, clock, write, wrong):
    cache = make()
    with refused_timeout(cache, wrong):
        write(cache, wrong)
    assert not cache.has("key")
    cache.set("key", "old", 10)
    # Also if the key is there, so that there is nothing to store.
    with refused_timeout(cache, wrong):
        write(cache, wrong)
    if hasattr(cache, "touch"):
        for key in ("key", "none"):
            with refused_timeout(cache, wrong):
                cache.touch(key, wrong)
    assert (cache.get("key"), cache.ttl_left("key")) == ("old", 10)


@needs("fill_waits")
@pytest.mark.parametrize("write", ["set", "set_many", "load"])
def test_a_value_is_kept_for_the_grace_of_its_key_however_it_is_written(make, clock, write):
    cache = make(fill_wait=5, grace={"key": 20})
    ALL_WRITES[write](cache, 10)
    clock.advance(29)
    assert len(cache.engine) == 1
    clock.advance(1 + cache.lag)
    assert len(cache.engine) == 0


# With the default jitter.

KEYS = [f"key-{number}" for number in range(200)]
TWO_WEEKS = 14 * 24 * 3600

FILLS = {
    "set": lambda cache, ttl: [cache.set(key, 1, ttl) for key in KEYS],
    "set_many": lambda cache, ttl: cache.set_many(dict.fromkeys(KEYS, 1), ttl),
    "load": lambda cache, ttl: [cache.load(key, lambda: 1, ttl) for key in KEYS],
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize(("ttl", "spread"), [(100, 5), (TWO_WEEKS, 60)])
def test_what_is_set_lives_at_most_a_twentieth_and_a_minute_shorter_and_does_not_end_all_at_once(
    make, clock, ticks, fill, ttl, spread
):
    # A tick in each second of two weeks would take minutes.
    ticks(3600)
    cache = make(jitter=0.05)
    fill(cache, ttl)
    clock.advance(ttl - spread - 0.5)
    assert len(cache.get_many(KEYS)) == len(KEYS)
    clock.advance(spread / 2)
    assert 0 < len(cache.get_many(KEYS)) < len(KEYS)
    clock.advance(spread / 2 + 0.5)
    assert cache.get_many(KEYS) == {}


@pytest.mark.pairs(full="adapter", of="ttl")
@pytest.mark.parametrize("ttl", [0.5, 300, TWO_WEEKS, DEFAULT], ids=["0.5", "300", "two weeks", "default"])
def test_add_and_touch_keep_their_timeout_exactly_and_a_counter_what_is_left(make, clock, ticks, ttl):
    ticks(3600)
    cache = make(jitter=0.05, timeout=50)
    keys = KEYS
    if hasattr(cache, "touch"):
        keys = KEYS[:100]
        cache.set_many(dict.fromkeys(KEYS[100:], 1), 100 * TWO_WEEKS)
        assert all(cache.touch(key, ttl) for key in KEYS[100:])
    assert all(cache.add(key, 1, ttl) for key in keys)
    clock.advance((50 if ttl is DEFAULT else ttl) - 0.125)
    assert not any(cache.add(key, "another", ttl) for key in KEYS)
    assert [cache.count(key) for key in KEYS] == [2] * len(KEYS)
    clock.advance(0.125)
    assert cache.get_many(KEYS) == {}
