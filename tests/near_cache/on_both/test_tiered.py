"""TieredCache: each method reaches both levels, over each kind of cache behind.

The fate of copies is tested in ``tests/near_cache/test_copies.py``, the connection to Redis in
``tests/near_cache/test_redis_tracking.py``.
"""

import asyncio
from contextlib import ExitStack

import pytest

from tests.backends.wrong_timeouts import WRONG_TIMEOUTS, refused_timeout
from tests.guests import needs
from tests.near_cache.stores import Down
from tests.near_cache.tiers import KINDS, TIERS
from tests.waiting import PATIENCE, THREADS, until, until_waiting

NAN, INF = float("nan"), float("inf")
of_any_kind = pytest.mark.parametrize(("name", "kind"), KINDS)


@pytest.fixture
def any_tier(tier_of, name, kind):
    tier = tier_of(name, kind)
    tier.clear()
    return tier


WRITES = {
    "set": (lambda tier: tier.set("k", 2), 2),
    "set_many": (lambda tier: tier.set_many({"k": 3}), 3),
    "count": (lambda tier: tier.count("k"), 2),
    "add": (lambda tier: tier.add("k", 5), 1),
    "delete": (lambda tier: tier.delete("k"), None),
    "delete_many": (lambda tier: tier.delete_many(["k"]), None),
    "clear": (lambda tier: tier.clear(), None),
}


def has_copy(tier, key, value):
    """Read until there is a copy. Redis may report a write only after the value was read."""
    return until(lambda: tier.get(key) == value and tier.key(key) in tier.copies())


@of_any_kind
def test_each_write_reaches_the_cache_behind_and_leaves_no_old_copy(any_tier):
    for name, (write, expected) in WRITES.items():
        any_tier.set("k", 1)
        assert any_tier.behind.get("k") == 1, name
        assert has_copy(any_tier, "k", 1), name
        write(any_tier)
        assert (any_tier.get("k"), any_tier.behind.get("k")) == (expected, expected), name


@of_any_kind
def test_many_are_found_together_and_kept(any_tier):
    # django-redis returns None.
    assert any_tier.set_many({"a": 0, "b": [2], "c": ""}) in ([], None)
    assert any_tier.get_many(["a", "b", "none", "c", "b"]) == {"a": 0, "b": [2], "c": ""}
    assert until(lambda: any_tier.get_many("abc") and any_tier.copies() == [any_tier.key(key) for key in "abc"])
    assert any_tier.get_many(["none"]) == any_tier.get_many([]) == {}


@of_any_kind
def test_one_of_many_threads_that_miss_together_loads(any_tier, together):
    calls = []

    def compute():
        calls.append(1)
        until_waiting(THREADS - 1)
        return ["value"]

    def load(_):
        with ExitStack() as cleanup:
            return any_tier.of_this_thread(cleanup).load("k", compute)

    assert together(load) == [["value"]] * THREADS
    assert calls == [1]
    assert any_tier.behind.get("k") == ["value"]


# Reading.


def test_a_copy_is_read_without_the_cache_behind_and_belongs_to_its_reader(make):
    tier = make()
    tier.behind.set("k", {"list": [1]})
    tier.noted.calls.clear()
    for read in (tier.get, tier.get, lambda key: tier.get_many([key])[key], lambda key: tier.load(key, pytest.fail)):
        got = read("k")
        assert got == {"list": [1]}
        got["list"].append(2)
    assert tier.has("k")
    assert len(tier.noted.calls) == 1
    assert tier.engine.stats().hits == 3
    assert (tier.get("none", "default"), tier.has("none")) == ("default", False)


# Writing.


WITH_TIMEOUT = [
    lambda tier, key, *ttl: tier.set(key, 1, *ttl),
    lambda tier, key, *ttl: tier.add(key, 1, *ttl),
    lambda tier, key, *ttl: tier.load(key, lambda: 1, *ttl),
    lambda tier, key, *ttl: tier.set_many({key: 1}, *ttl),
]


def test_the_cache_behind_gets_each_timeout_exactly(make):
    tier = make(jitter=0.5)
    for ttl in ((1000,), (None,), ()):
        tier.clear()
        tier.noted.calls.clear()
        for number, write in enumerate(WITH_TIMEOUT):
            write(tier, str(number), *ttl)
        seconds = next(iter(tier.timeout(*ttl).values())) if ttl else 300
        assert tier.noted.timeouts() == [seconds] * len(WITH_TIMEOUT)


def test_a_computed_value_whose_timeout_is_over_is_not_stored(make):
    tier = make()
    assert tier.load("k", lambda: 1, lambda value: 0) == 1
    assert tier.behind.get("k") is None


@pytest.mark.pairs(full="adapter", of="wrong")
@pytest.mark.parametrize("wrong", WRONG_TIMEOUTS, ids=repr)
def test_a_wrong_timeout_is_a_type_error_that_names_it_and_never_reaches_the_cache_behind(make, wrong):
    tier = make(fail_safe=100)
    tier.set("k", 1)
    assert tier.get("k") == 1
    tier.noted.calls.clear()
    touch = [type(tier).touch] if hasattr(tier, "touch") else []
    for write in WITH_TIMEOUT + touch:
        for key in ("k", "new"):
            with refused_timeout(tier, wrong):
                write(tier, key, wrong)
    assert tier.noted.calls == []
    assert tier.get("k") == 1


def test_a_coroutine_is_not_stored(make):
    tier = make()
    for write in (tier.set, tier.add, lambda key, value: tier.set_many({key: value})):
        with pytest.raises(TypeError, match="can be awaited only once, so it is not cached"):
            write("k", asyncio.sleep(0))
        assert not tier.behind.has("k")


@pytest.mark.pairs(full="adapter", of="write")
@pytest.mark.parametrize(("write", "expected"), WRITES.values(), ids=WRITES)
def test_a_value_is_not_kept_if_its_key_is_written_or_deleted_while_it_is_computed(make, in_thread, write, expected):
    tier = make()

    def compute():
        tier.behind.set("k", 1)
        in_thread(write, tier).result(PATIENCE)
        return "old"

    tier.load("k", compute)
    assert (tier.get("k"), tier.behind.get("k")) == (expected, expected)
    assert tier.load("k", lambda: "new") == ("new" if expected is None else expected)


def test_with_fail_safe_writes_are_dropped_and_clears_forget_what_an_outage_may_return(make, adapter, clock):
    tier = make(fail_safe=100)
    tier.set_many({"k": [1], "m": 3})
    assert tier.get_many(["k", "m"]) == {"k": [1], "m": 3}
    clock.advance(60)
    tier.noted.error = Down()
    assert tier.get("k") == tier.load("k", pytest.fail) == [1]
    assert tier.load("loaded", lambda: "loaded") == "loaded"
    assert (tier.add("k2", 1), tier.delete("m"), tier.set_many({"m": 1})) == (False, False, ["m"])
    if adapter is TIERS["flask"]:
        assert tier.count("m") is None
    else:
        # There is no answer to make up.
        with pytest.raises(ConnectionError):
            tier.count("m")
    assert (tier.get("m"), tier.get("k")) == (None, [1])
    tier.clear()
    assert tier.get("k") is None


@needs("fill_waits")
def test_a_value_that_the_cache_behind_refuses_is_given_to_no_waiter(over, in_thread, monkeypatch):
    tier = over(TIERS["flask"], fill_wait=60)
    assert tier.get("k") is None
    waiter = in_thread(tier.get, "k")
    until_waiting()
    monkeypatch.setattr(tier.noted, "set", lambda *args, **given: False)
    tier.set("k", "value")
    assert waiter.result(PATIENCE) is None


@needs("fill_waits")
@pytest.mark.parametrize("family", ["django", "flask"])
def test_a_value_that_is_over_at_once_is_given_to_no_waiter(over, in_thread, family):
    tier = over(TIERS[family], fill_wait=60)
    assert tier.get("k") is None
    waiter = in_thread(tier.get, "k")
    until_waiting()
    tier.set("k", "value", -1)
    assert waiter.result(PATIENCE) is None


# Redis.

NAMED = {
    "django": {
        "prefix and version": {"KEY_PREFIX": "größe", "VERSION": 30},
        "key function": {"KEY_FUNCTION": lambda key, prefix, version: f"{key}-{version}-{prefix}"},
    },
    "flask": {
        "prefix": {"CACHE_KEY_PREFIX": "größe "},
        "called prefix": {"CACHE_KEY_PREFIX": lambda: "called:"},
    },
}
redises = [
    *(("django", kind, each) for kind in ("redis", "django-redis") for each in NAMED["django"]),
    *(("flask", "redis", each) for each in NAMED["flask"]),
]


@pytest.mark.servers
@pytest.mark.pairs(full="name, kind", of="name, kind")
@pytest.mark.filterwarnings("ignore::django.core.cache.CacheKeyWarning")
@pytest.mark.parametrize(("name", "kind", "named"), redises, ids=[", ".join(each) for each in redises])
def test_what_any_client_writes_and_what_redis_expires_ends_the_copy(over, empty_redis, name, kind, named):
    tier = over(TIERS[name], kind, empty_redis, behind=NAMED[name][named])
    client = empty_redis.client()
    key = "schlüssel"
    tier.set(key, 1)
    (stored_as,) = client.keys()
    assert stored_as.decode() == tier.key(key)
    writes = {
        "another cache": lambda: tier.behind.set(key, 2),
        "another client": lambda: client.delete(stored_as),
        "expiry": lambda: client.pexpire(stored_as, 1),
        "flush": client.flushall,
    }
    for how, write in writes.items():
        tier.set(key, 1)
        assert has_copy(tier, key, 1), how
        write()
        expected = 2 if how == "another cache" else None
        assert until(lambda expected=expected: tier.get(key) == expected, note=how)


# Options.

SECONDS = "a number of seconds > 0"
WRONG = [
    *(("l1_timeout", wrong, SECONDS) for wrong in (0, -1, "1", None, True, NAN, INF, [1])),
    *(("fail_safe", wrong, "a number of seconds >= 0") for wrong in (-1, True, None, "yes", [], NAN, INF)),
    ("max_bytes", 0, "a whole number >= 1"),
    ("jitter", 1, "a fraction"),
]


@pytest.mark.pairs(full="adapter", of="adapter, option")
@pytest.mark.parametrize(("option", "wrong", "takes"), WRONG, ids=[f"{name}={wrong!r}" for name, wrong, _ in WRONG])
def test_a_wrong_option_is_an_error_that_names_it_and_what_it_takes_and_got(make, adapter, option, wrong, takes):
    with pytest.raises(adapter.refused) as refused:
        make(**{option: wrong})
    for part in (adapter.spelled(option), takes, repr(wrong)):
        assert part in str(refused.value)
