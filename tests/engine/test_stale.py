"""Stale values, refreshes and timeouts, of take and of its async twin."""

import asyncio
import gc
import logging
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.engine import invariants
from tests.engine.background import full, is_idle, refuse_threads, until_tasks_end, waits_for_room
from tests.waiting import PATIENCE, auntil_waiting, until, until_waiting
from wheelcache import Cache, CacheClosed, LoadTimeout, MissingKey, RemovalCause
from wheelcache.runtime.worker_pool import QUEUE, TIMED_LOADS, refresh_pool, timed_load_pool

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause

SHORT = 0.02
"""Seconds that a caller waits for a loader that is held."""

COUNTS = (
    "hits",
    "misses",
    "stale_hits",
    "loads",
    "load_failures",
    "load_timeouts",
    "coalesced",
    "refreshes",
    "refreshes_dropped",
    "evictions",
    "expirations",
)


class Sync:
    """``take``, whose background is threads."""

    def __init__(self, cache):
        self.cache = cache

    def take(self, *args, **kwargs):
        return self.cache.take(*args, **kwargs)

    def settle(self):
        """Until nothing is loaded or refreshed."""
        assert until(is_idle)

    def held(self, value=None):
        """A loader that returns ``value``, or raises it, when it is released."""
        return HeldInAThread(value)

    def close(self):
        pass


class Async:
    """``atake``, on a loop that goes on from call to call."""

    def __init__(self, cache):
        self.cache = cache
        self.runner = asyncio.Runner()

    def take(self, *args, **kwargs):
        return self.runner.run(self.cache.atake(*args, **kwargs))

    def settle(self):
        self.runner.run(until_tasks_end())

    def held(self, value=None):
        return HeldInALoop(value, self)

    def step_until(self, condition):
        async def steps():
            for _ in range(1000):
                if condition():
                    return
                await asyncio.sleep(0)
            raise AssertionError("never")

        self.runner.run(steps())

    def close(self):
        self.runner.close()


class HeldInAThread:
    def __init__(self, value):
        self.value = value
        self.calls = 0
        self.began = threading.Event()
        self.go = threading.Event()

    def __call__(self):
        self.calls += 1
        self.began.set()
        assert self.go.wait(PATIENCE)
        return outcome(self.value)

    def is_running(self):
        return self.began.wait(PATIENCE)

    def release(self):
        self.go.set()


class HeldInALoop:
    def __init__(self, value, twin):
        self.value = value
        self.twin = twin
        self.calls = 0
        self.go = asyncio.Event()

    async def __call__(self):
        self.calls += 1
        await self.go.wait()
        return outcome(self.value)

    def is_running(self):
        self.twin.step_until(lambda: self.calls)
        return True

    def release(self):
        self.go.set()


class HeldByATask:
    def __init__(self):
        self.began, self.go = asyncio.Event(), asyncio.Event()

    async def __call__(self):
        self.began.set()
        return await self.go.wait()


def outcome(value):
    if isinstance(value, BaseException):
        raise value
    return value


def returns(value):
    return lambda: outcome(value)


def unreached():
    raise AssertionError("this loader is not to run")


def counts(cache):
    """The figures that are not 0."""
    stats = cache.stats()
    return {name: getattr(stats, name) for name in COUNTS if getattr(stats, name)}


@pytest.fixture
def removals():
    return []


@pytest.fixture
def make(clock, removals):
    """Make a cache that tells of its removals. It is checked at the end."""
    made = []

    def make_cache(**options):
        given = {"ttl": 10, "jitter": 0, "log_interval": None, "sample_interval": None}
        given["on_removal"] = lambda *removal: removals.append(removal)
        made.append(Cache(clock=clock, **{**given, **options}))
        return made[-1]

    yield make_cache
    assert until(is_idle)
    for each in made:
        invariants.check(each)


@pytest.fixture
def cache(make):
    return make()


@pytest.fixture
def slow(make):
    """A cache whose wheel removes nothing in the first minute."""
    return make(interval=60)


@pytest.fixture(params=[Sync, Async], ids=["take", "atake"])
def twin_of(request):
    made = []

    def make_twin(cache):
        made.append(request.param(cache))
        return made[-1]

    yield make_twin
    for each in made:
        each.settle()
        each.close()


@pytest.fixture
def twin(twin_of, cache):
    return twin_of(cache)


@pytest.fixture
def pool():
    with ThreadPoolExecutor(32) as made:
        yield made


@pytest.fixture
def steady(monkeypatch):
    """Back-off times without their random factor: 1, 2, 4 ... 60 seconds."""
    monkeypatch.setattr("wheelcache.loading.backoff.random", lambda: 1.0)


# Grace.


def test_a_value_within_its_grace_is_served_at_once_while_one_refresh_runs(cache, clock, twin, removals):
    assert twin.take("k", returns("old"), grace=5) == "old"
    clock.advance(10)
    loader = twin.held("new")
    assert [twin.take("k", loader, grace=5) for _ in range(5)] == ["old"] * 5
    assert loader.is_running()
    assert twin.take("k", loader, grace=5) == "old"
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert twin.take("k", unreached, grace=5) == "new"
    assert cache.expires_in("k") == 10
    assert removals == [("k", "old", EXPIRED)]
    assert counts(cache) == {"hits": 7, "misses": 1, "stale_hits": 6, "loads": 2, "refreshes": 1, "expirations": 1}


def test_a_stale_value_is_never_served_when_its_grace_is_over(slow, clock, twin_of):
    twin = twin_of(slow)
    twin.take("k", returns("old"), grace=5)
    clock.advance(14.875)
    loader = twin.held("new")
    assert twin.take("k", loader, grace=5) == "old"
    clock.advance(0.125)
    assert len(slow) == 1
    assert slow.get("k") is None
    loader.release()
    assert twin.take("k", loader, grace=5) == "new"


def test_who_asks_for_less_grace_is_served_nothing_older_and_who_asks_for_none_loads(cache, clock, twin):
    twin.take("k", returns("old"), grace=5)
    clock.advance(12)
    assert twin.take("k", returns("newer"), grace=1) == "newer"
    clock.advance(12)
    assert twin.take("k", returns("newest")) == "newest"
    assert counts(cache)["misses"] == 3


def test_grace_is_of_the_value_that_was_loaded_with_it(cache, clock, twin):
    cache.set("k", "set")
    clock.advance(10)
    assert twin.take("k", returns("loaded"), grace=5) == "loaded"


def test_a_value_without_a_ttl_needs_no_grace(cache, clock, twin):
    twin.take("k", returns(1), None, grace=5)
    clock.advance(10**6)
    assert twin.take("k", unreached, None, grace=5) == 1


def test_a_refresh_that_fails_ends_the_stale_value_and_the_next_caller_gets_the_error(cache, clock, twin, caplog):
    twin.take("k", returns("old"), grace=50)
    clock.advance(10)
    assert twin.take("k", returns(LookupError("first")), grace=50) == "old"
    twin.settle()
    assert "Loading 'k' into the cache 'default' failed" in caplog.text
    assert len(cache) == 0
    with pytest.raises(LookupError, match="second"):
        twin.take("k", returns(LookupError("second")), grace=50)
    assert twin.take("k", returns("new"), grace=50) == "new"
    assert counts(cache) == {
        "hits": 1,
        "misses": 3,
        "stale_hits": 1,
        "loads": 2,
        "load_failures": 2,
        "refreshes": 1,
        "expirations": 1,
    }


def test_what_is_set_or_deleted_while_a_refresh_runs_wins(cache, clock, twin):
    for change, expected in ((lambda: cache.set("k", "set"), "set"), (lambda: cache.delete("k"), None)):
        cache.clear()
        twin.take("k", returns("old"), grace=5)
        clock.advance(10)
        loader = twin.held("refreshed")
        assert twin.take("k", loader, grace=5) == "old"
        assert loader.is_running()
        change()
        loader.release()
        twin.settle()
        assert cache.get("k") == expected


def test_who_misses_while_a_refresh_runs_waits_for_it_and_loads_nothing(cache, clock, pool):
    cache.take("k", returns("old"), grace=5)
    clock.advance(10)
    loader = HeldInAThread("new")
    cache.take("k", loader, grace=5)
    assert loader.is_running()
    without_grace = pool.submit(cache.take, "k", unreached)
    until_waiting()
    loader.release()
    assert without_grace.result(PATIENCE) == "new"
    assert counts(cache)["coalesced"] == 1


def test_a_stampede_on_a_stale_value_is_served_and_refreshes_one_at_a_time(cache, clock, together):
    cache.take("k", returns("old"), grace=5)
    clock.advance(10)
    loader = HeldInAThread("new")
    assert together(lambda _: cache.take("k", loader, grace=5)) == ["old"] * 32
    assert loader.is_running()
    loader.release()
    assert until(is_idle)
    assert loader.calls == 1
    assert counts(cache) == {"hits": 32, "misses": 1, "stale_hits": 32, "loads": 2, "refreshes": 1, "expirations": 1}


def test_a_stale_hit_is_a_use(make, clock, twin_of, removals):
    cache = make(max_entries=2)
    twin = twin_of(cache)
    twin.take("a", returns("old"), grace=50)
    cache.set("b", 1, ttl=100)
    clock.advance(10)
    loader = twin.held("new")
    twin.take("a", loader, grace=50)
    cache.set("c", 1, ttl=100)
    assert removals == [("b", 1, EVICTED)]
    loader.release()


# What everything else makes of an entry within its grace.


@pytest.fixture
def graced(cache, clock):
    """A cache with "k", stale: value 1, 11 seconds old, TTL 10, grace 5."""
    cache.take("k", returns(1), grace=5)
    clock.advance(11)
    assert len(cache) == 1
    return cache


def test_nothing_but_take_sees_a_stale_value(graced):
    assert graced.get("k", "gone") == "gone"
    assert "k" not in graced
    assert graced.keys() == []
    assert graced.get_many(["k"]) == {}
    assert not graced.touch("k")
    for call in (graced.expires_in, graced.incr, graced.pop):
        with pytest.raises(MissingKey):
            call("k")


def test_looking_at_a_stale_value_leaves_it_to_take(graced, removals):
    graced.get("k")
    graced.get_many(["k"])
    assert "k" not in graced
    assert not graced.touch("k")
    with pytest.raises(MissingKey):
        graced.incr("k")
    assert removals == []
    loader = HeldInAThread(2)
    assert graced.take("k", loader, grace=5) == 1
    loader.release()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        (lambda cache: cache.delete("k"), False),
        (lambda cache: cache.pop("k", None), None),
        (lambda cache: cache.delete_many(["k"]), 0),
        (lambda cache: cache.evict_to(0), None),
    ],
    ids=["delete", "pop", "delete_many", "evict_to"],
)
def test_what_removes_a_stale_value_counts_it_as_expired_and_says_that_nothing_was_there(
    graced, removals, change, left
):
    assert change(graced) == left
    assert len(graced) == 0
    assert removals == [("k", 1, EXPIRED)]
    stats = graced.stats()
    assert (stats.expirations, stats.evictions) == (1, 0)
    assert graced.take("k", returns(2), grace=5) == 2


def test_a_clear_removes_stale_values_too(graced, removals):
    graced.clear()
    assert len(graced) == 0
    assert [removal[:2] for removal in removals] == [("k", 1)]
    assert graced.take("k", returns(2), grace=5) == 2


@pytest.mark.parametrize("write", [lambda c: c.set("k", 2), lambda c: c.add("k", 2), lambda c: c.set_many({"k": 2})])
def test_what_is_written_over_a_stale_value_has_no_grace(graced, clock, removals, write):
    assert write(graced) in (True, [])
    assert removals == [("k", 1, EXPIRED)]
    assert graced.get("k") == 2
    clock.advance(10)
    assert len(graced) == 0
    assert removals == [("k", 1, EXPIRED), ("k", 2, EXPIRED)]


def test_what_is_loaded_over_a_set_value_has_grace_and_back(slow, clock, removals):
    cache = slow
    cache.set("k", "set")
    clock.advance(10)
    assert len(cache) == 1
    assert cache.take("k", returns("loaded"), grace=5) == "loaded"
    cache.set("k", "set again")
    cache.delete("k")
    assert removals == [
        ("k", "set", EXPIRED),
        ("k", "loaded", REPLACED),
        ("k", "set again", DELETED),
    ]


def test_memory_is_free_when_the_grace_is_over_and_not_before(cache, clock, removals):
    cache.take("k", returns(1), grace=5)
    clock.advance(14.9)
    assert len(cache) == 1
    clock.advance(0.1)
    assert len(cache) == 0
    assert removals == [("k", 1, EXPIRED)]
    assert cache.stats().expirations == 1


def test_a_live_value_with_grace_is_touched_and_counted_up_and_keeps_its_grace(cache, clock, removals):
    cache.take("k", returns(1), grace=5)
    clock.advance(9)
    assert cache.incr("k") == 2
    assert cache.expires_in("k") == 1
    assert cache.touch("k", 20)
    assert cache.expires_in("k") == 20
    clock.advance(20)
    assert cache.get("k") is None
    loader = HeldInAThread(7)
    assert cache.take("k", loader, grace=5) == 2
    assert removals == [("k", 1, REPLACED)]
    loader.release()


def test_a_live_value_with_grace_may_be_made_to_last_for_ever_and_to_expire_again(cache, clock):
    cache.take("k", returns(1), grace=5)
    assert cache.touch("k", None)
    assert cache.expires_in("k") is None
    clock.advance(1000)
    assert cache.touch("k", 1)
    clock.advance(1)
    assert cache.get("k") is None
    clock.advance(5)
    assert len(cache) == 0


def test_a_cache_full_of_stale_values_evicts_the_oldest(make, clock, removals):
    cache = make(max_entries=3)
    for key in "abc":
        cache.take(key, returns(key), grace=50)
    clock.advance(10)
    cache.set("d", "d")
    assert len(cache) == 3
    assert removals == [("a", "a", EXPIRED)]
    for key in "efg":
        cache.take(key, returns(key), grace=50)
    assert removals[1:] == [("b", "b", EXPIRED), ("c", "c", EXPIRED), ("d", "d", EVICTED)]


def test_stale_values_weigh_until_their_grace_is_over(make, clock):
    cache = make(max_weight=10, weigher=lambda key, value: value)
    cache.take("a", returns(6), grace=5)
    clock.advance(11)
    assert cache.stats().weight == 6
    cache.set("b", 4)
    assert cache.stats().weight == 10
    cache.take("c", returns(7), grace=5)
    assert cache.keys() == ["c"]
    assert cache.take("heavy", returns(11), grace=5) == 11
    assert "heavy" not in cache
    clock.advance(15)
    assert cache.stats().weight == 0


def test_a_stale_value_is_let_go_when_its_grace_is_over(make, clock):
    class Value:
        pass

    cache = make(on_removal=None)
    value = weakref.ref(cache.take("k", Value, grace=5))
    clock.advance(12)
    assert value() is not None
    clock.advance(5)
    gc.collect()
    assert value() is None


def test_graced_values_leave_nothing_behind_after_many_overwrites_and_deletions(cache, clock, removals):
    for i in range(500):
        cache.take(i % 7, returns(i), 1000, grace=1000)
        cache.delete(i % 7)
        cache.take(i % 5, returns(i), 1000, grace=1000)
    cache.clear()
    assert len(removals) == cache.stats().loads
    invariants.check_timers(cache, clock)


# Refresh ahead.


def test_the_first_hit_past_the_fraction_starts_one_refresh_and_returns_at_once(cache, clock, twin, removals):
    twin.take("k", returns("old"), refresh_ahead=0.8)
    clock.advance(8)
    assert twin.take("k", unreached, refresh_ahead=0.8) == "old"
    clock.advance(0.125)
    loader = twin.held("new")
    assert [twin.take("k", loader, refresh_ahead=0.8) for _ in range(3)] == ["old"] * 3
    assert loader.is_running()
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert cache.get("k") == "new"
    assert cache.expires_in("k") == 10
    assert removals == [("k", "old", REPLACED)]
    assert counts(cache) == {"hits": 5, "misses": 1, "loads": 2, "refreshes": 1}


def test_a_refresh_ahead_that_fails_leaves_the_value_and_the_next_waits_for_a_back_off(
    cache, clock, twin, caplog, steady
):
    twin.take("k", returns("old"), refresh_ahead=0.5)
    clock.advance(6)
    for _ in range(3):
        assert twin.take("k", returns(LookupError()), refresh_ahead=0.5) == "old"
        twin.settle()
    assert caplog.text.count("Loading 'k' into the cache 'default' failed; the next refresh waits for 1.0 s.") == 1
    clock.advance(1)
    assert twin.take("k", returns("new"), refresh_ahead=0.5) == "old"
    twin.settle()
    assert cache.get("k") == "new"
    assert counts(cache) == {"hits": 5, "misses": 1, "loads": 2, "load_failures": 1, "refreshes": 2}


def test_values_that_never_expire_are_not_refreshed(cache, clock, twin):
    twin.take("k", returns(1), None, refresh_ahead=0.5)
    clock.advance(10**6)
    assert twin.take("k", unreached, None, refresh_ahead=0.5) == 1
    assert cache.stats().refreshes == 0


def test_a_value_past_its_ttl_without_grace_is_loaded_and_not_refreshed(cache, clock, twin):
    twin.take("k", returns("old"), refresh_ahead=0.8)
    clock.advance(10)
    assert twin.take("k", returns("new"), refresh_ahead=0.8) == "new"
    assert cache.stats().refreshes == 0


# Fail-safe.


def test_a_stale_value_survives_loaders_that_fail_with_growing_pauses(cache, clock, twin, caplog, steady):
    twin.take("k", returns("old"), grace=1000, fail_safe=True)
    clock.advance(10)
    tries = []

    def loader():
        tries.append(clock())
        raise LookupError("no")

    for _ in range(40):
        assert twin.take("k", loader, grace=1000, fail_safe=True) == "old"
        twin.settle()
        clock.advance(0.5)
    assert tries == [10.0, 11.0, 13.0, 17.0, 25.0]
    assert caplog.text.count("LookupError: no") == 5
    assert counts(cache) == {
        "hits": 40,
        "misses": 1,
        "stale_hits": 40,
        "loads": 1,
        "load_failures": 5,
        "refreshes": 5,
    }
    clock.advance(32)
    assert twin.take("k", returns("new"), grace=1000, fail_safe=True) == "old"
    twin.settle()
    assert twin.take("k", unreached, grace=1000, fail_safe=True) == "new"
    clock.advance(10)
    # What succeeded starts over.
    tries.clear()
    now = clock()
    for _ in range(4):
        twin.take("k", loader, grace=1000, fail_safe=True)
        twin.settle()
        clock.advance(0.5)
    assert tries == [now, now + 1]


def test_fail_safe_ends_with_the_grace(cache, clock, twin):
    twin.take("k", returns("old"), grace=5, fail_safe=True)
    clock.advance(14)
    assert twin.take("k", returns(LookupError()), grace=5, fail_safe=True) == "old"
    twin.settle()
    clock.advance(1)
    with pytest.raises(LookupError):
        twin.take("k", returns(LookupError()), grace=5, fail_safe=True)


def test_without_a_stale_value_fail_safe_raises_what_the_loader_raised(cache, twin):
    with pytest.raises(LookupError):
        twin.take("k", returns(LookupError()), grace=5, fail_safe=True)
    assert twin.take("k", returns(1), grace=5, fail_safe=True) == 1


def test_a_caller_with_a_timeout_whose_load_fails_in_time_gets_the_stale_value_too(cache, clock, twin, caplog, steady):
    twin.take("k", returns("old"), grace=50, fail_safe=True)
    clock.advance(10)
    for _ in range(3):
        assert twin.take("k", returns(LookupError()), grace=50, fail_safe=True, timeout=PATIENCE) == "old"
    twin.settle()
    # The pool's thread tells those who wait first.
    assert until(lambda: caplog.text.count("failed; the next refresh waits for 1.0 s.") == 1)
    assert counts(cache) == {"hits": 3, "misses": 1, "stale_hits": 3, "loads": 1, "load_failures": 1}


def test_fail_safe_needs_grace(cache, twin):
    with pytest.raises(TypeError, match="fail_safe needs grace"):
        twin.take("k", unreached, fail_safe=True)


# Timeouts.


def test_who_waited_for_his_timeout_gets_an_error_and_the_value_is_cached_later(cache, twin):
    loader = twin.held("late")
    with pytest.raises(LoadTimeout, match=r"the loader of 'k' takes longer than 0\.02 s") as caught:
        twin.take("k", loader, timeout=SHORT)
    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.key, caught.value.timeout) == ("k", SHORT)
    assert loader.is_running()
    with pytest.raises(LoadTimeout):
        twin.take("k", loader, timeout=SHORT)
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert twin.take("k", unreached, timeout=SHORT) == "late"
    assert counts(cache) == {"hits": 1, "misses": 2, "loads": 1, "load_timeouts": 2}


def test_who_is_answered_in_time_gets_the_value_or_the_error(cache, twin):
    assert twin.take("k", returns(1), timeout=PATIENCE) == 1
    with pytest.raises(LookupError):
        twin.take("other", returns(LookupError()), timeout=PATIENCE)
    assert counts(cache) == {"misses": 2, "loads": 1, "load_failures": 1}


def test_with_a_timeout_the_fresh_value_is_preferred_and_the_stale_one_comes_after_it(cache, clock, twin):
    twin.take("k", returns("old"), grace=50)
    clock.advance(10)
    assert twin.take("k", returns("fresh"), grace=50, timeout=PATIENCE) == "fresh"
    clock.advance(10)
    loader = twin.held("late")
    assert twin.take("k", loader, grace=50, timeout=SHORT) == "fresh"
    loader.release()
    twin.settle()
    assert cache.get("k") == "late"
    assert counts(cache) == {
        "hits": 2,
        "misses": 2,
        "stale_hits": 1,
        "loads": 3,
        "load_timeouts": 1,
        "expirations": 2,
    }


def test_a_load_that_fails_when_nobody_waits_any_more_is_logged(cache, twin, caplog):
    loader = twin.held(LookupError("late"))
    with pytest.raises(LoadTimeout):
        twin.take("k", loader, timeout=SHORT)
    loader.release()
    twin.settle()
    assert until(lambda: "LookupError: late" in caplog.text)
    assert counts(cache) == {"misses": 1, "load_failures": 1, "load_timeouts": 1}


def test_a_timeout_is_the_callers_own(cache, pool):
    loader = HeldInAThread("late")
    patient = pool.submit(cache.take, "k", loader)
    assert loader.is_running()
    with pytest.raises(LoadTimeout):
        cache.take("k", unreached, timeout=SHORT)
    loader.release()
    assert patient.result(PATIENCE) == "late"
    assert counts(cache) == {"misses": 2, "loads": 1, "load_timeouts": 1}


def test_who_joins_a_load_that_somebody_gave_up_gets_its_value(cache, pool):
    loader = HeldInAThread("late")
    with pytest.raises(LoadTimeout):
        cache.take("k", loader, timeout=SHORT)
    patient = pool.submit(cache.take, "k", unreached)
    until_waiting()
    loader.release()
    assert patient.result(PATIENCE) == "late"
    assert counts(cache) == {"misses": 2, "loads": 1, "load_timeouts": 1, "coalesced": 1}


def test_a_value_deleted_while_its_timed_load_goes_on_is_not_resurrected(cache, twin):
    loader = twin.held("old")
    with pytest.raises(LoadTimeout):
        twin.take("k", loader, timeout=SHORT)
    cache.delete("k")
    loader.release()
    twin.settle()
    assert "k" not in cache


def test_a_loader_with_a_timeout_may_not_take_its_own_key(cache, twin):
    with pytest.raises(RuntimeError, match="takes, itself or through other loaders"):
        twin.take("k", lambda: cache.take("k", unreached), timeout=PATIENCE)


def test_a_blocking_take_in_a_loop_never_loads_beside_a_load_that_was_given_up(cache):
    loader = HeldInAThread("first")
    second = []

    async def main():
        with pytest.raises(LoadTimeout):
            cache.take("k", loader, timeout=SHORT)
        assert loader.is_running()
        with pytest.raises(LoadTimeout):
            cache.take("k", lambda: second.append(1), timeout=SHORT)

    try:
        asyncio.run(main())
        assert second == []
    finally:
        loader.release()


# A value of None.


def test_none_is_remembered_for_as_long_as_it_should_be_and_is_no_miss(cache, clock, twin):
    assert twin.take("k", returns(None), negative_ttl=2) is None
    assert cache.expires_in("k") == 2
    assert twin.take("k", unreached, negative_ttl=2) is None
    clock.advance(2)
    assert twin.take("k", returns("there"), negative_ttl=2) == "there"
    assert cache.expires_in("k") == 10
    assert counts(cache) == {"hits": 1, "misses": 2, "loads": 2, "expirations": 1}


def test_a_none_has_no_grace_and_takes_the_place_of_a_stale_value(cache, clock, twin, removals):
    twin.take("k", returns("old"), grace=50, negative_ttl=2)
    clock.advance(10)
    assert twin.take("k", returns(None), grace=50, negative_ttl=2) == "old"
    twin.settle()
    assert twin.take("k", unreached, grace=50, negative_ttl=2) is None
    clock.advance(2)
    assert len(cache) == 0
    assert removals == [("k", "old", EXPIRED), ("k", None, EXPIRED)]


def test_a_none_is_refreshed_ahead_by_its_own_ttl(cache, clock, twin):
    twin.take("k", returns(None), negative_ttl=2, refresh_ahead=0.5)
    assert twin.take("k", unreached, negative_ttl=2, refresh_ahead=0.5) is None
    clock.advance(1.5)
    assert twin.take("k", returns("there"), negative_ttl=2, refresh_ahead=0.5) is None
    twin.settle()
    assert cache.get("k") == "there"


def test_without_a_ttl_of_its_own_none_is_a_value_like_any_other(cache, clock, twin):
    assert twin.take("k", returns(None)) is None
    clock.advance(9)
    assert twin.take("k", unreached) is None


# Wrong options.


@pytest.mark.parametrize("option", ["grace", "timeout", "negative_ttl", "refresh_ahead", "fail_safe"])
@pytest.mark.parametrize("wrong", [0, -1, "1", float("nan"), float("inf"), True])
def test_a_wrong_option_is_an_error_that_names_it(cache, twin, option, wrong):
    if (option, wrong) == ("fail_safe", True):
        return
    with pytest.raises((TypeError, ValueError), match=f"{option} must be"):
        twin.take("k", unreached, **{option: wrong})
    assert len(cache) == 0


def test_a_fraction_of_one_is_no_time_ahead(cache):
    with pytest.raises(ValueError, match="refresh_ahead must be a fraction, 0 < fraction < 1, or None, not 1"):
        cache.take("k", unreached, refresh_ahead=1)


# The background.


def test_a_full_queue_drops_refreshes_and_counts_them(cache, clock):
    cache.take("k", returns("old"), grace=50)
    clock.advance(10)
    with full(refresh_pool):
        assert cache.take("k", unreached, grace=50) == "old"
    stats = cache.stats()
    assert (stats.refreshes, stats.refreshes_dropped, stats.stale_hits) == (0, 1, 1)
    # What was dropped is tried again.
    assert cache.take("k", returns("new"), grace=50) == "old"
    assert until(is_idle)
    assert cache.get("k") == "new"


def test_too_many_refreshes_of_event_loops_are_dropped_and_counted(cache, clock):
    async def main():
        go = asyncio.Event()
        for key in range(QUEUE + 1):
            await cache.atake(key, returns("old"), grace=50)
        clock.advance(10)
        stale = [await cache.atake(key, go.wait, grace=50) for key in range(QUEUE + 1)]
        stats = cache.stats()
        go.set()
        await until_tasks_end()
        # What was dropped is tried again.
        stale.append(await cache.atake(QUEUE, returns("new"), grace=50))
        await until_tasks_end()
        return set(stale), stats.refreshes, stats.refreshes_dropped

    assert asyncio.run(main()) == ({"old"}, QUEUE, 1)
    assert cache.get(QUEUE) == "new"


def test_where_no_thread_can_start_refreshes_are_dropped_and_timed_loads_run_in_the_callers(cache, clock, monkeypatch):
    cache.take("k", returns("old"), grace=50, fail_safe=True)
    clock.advance(10)
    refuse_threads(monkeypatch)
    assert cache.take("k", unreached, grace=50) == "old"
    assert counts(cache) == {"hits": 1, "misses": 1, "stale_hits": 1, "loads": 1, "refreshes_dropped": 1}
    assert cache.take("k", returns(LookupError()), grace=50, fail_safe=True, timeout=5) == "old"
    assert cache.take("other", threading.get_ident, timeout=5) == threading.get_ident()


def test_a_timed_load_that_finds_no_room_in_time_gets_the_stale_value(cache, clock):
    cache.take("k", returns("old"), grace=50)
    clock.advance(10)
    with full(timed_load_pool):
        assert cache.take("k", unreached, grace=50, timeout=SHORT) == "old"
        assert cache.stats().load_failures == 0
        assert cache.stats().load_timeouts == 1


def test_who_joins_a_timed_load_that_finds_no_room_loads_himself(cache, pool):
    with full(timed_load_pool):
        timed = pool.submit(cache.take, "k", unreached, timeout=0.3)
        assert until(waits_for_room)
        assert cache.take("k", returns("mine")) == "mine"
        assert isinstance(timed.exception(PATIENCE), LoadTimeout)


def test_a_timeout_holds_however_many_tasks_there_are(cache):
    many = QUEUE + 5

    async def main():
        go = asyncio.Event()
        callers = [asyncio.create_task(cache.atake(i, go.wait, timeout=SHORT)) for i in range(many)]
        done, late = await asyncio.wait(callers, timeout=PATIENCE)
        go.set()
        await asyncio.gather(*callers, return_exceptions=True)
        return [type(each.exception()) for each in done], len(late)

    assert asyncio.run(main()) == ([LoadTimeout] * many, 0)


def test_timed_loads_that_take_timed_loads_never_starve_each_other(cache):
    def nested(depth):
        return depth if depth == 0 else cache.take(depth, lambda: nested(depth - 1), timeout=PATIENCE)

    assert nested(TIMED_LOADS + 2) == 0


def test_closing_a_cache_while_it_refreshes_is_quiet(cache, clock, twin, caplog):
    twin.take("k", returns("old"), grace=50)
    clock.advance(10)
    loader = twin.held("new")
    assert twin.take("k", loader, grace=50) == "old"
    assert loader.is_running()
    cache.close()
    loader.release()
    twin.settle()
    assert caplog.text == ""
    with pytest.raises(CacheClosed):
        twin.take("k", unreached, grace=50)


def test_closing_a_cache_in_a_timed_load_is_quiet(cache, caplog):
    async def main():
        loader = HeldByATask()
        caller = asyncio.create_task(cache.atake("k", loader, timeout=PATIENCE))
        await loader.began.wait()
        cache.close()
        loader.go.set()
        with pytest.raises(CacheClosed):
            await caller
        await asyncio.sleep(0)

    asyncio.run(main())
    assert caplog.text == ""


def test_a_task_that_no_longer_waits_leaves_nothing_that_breaks_when_its_loop_is_closed(cache, pool, caplog):
    loader = HeldInAThread("late")
    leading = pool.submit(cache.take, "k", loader)
    assert loader.is_running()

    async def main():
        with pytest.raises(LoadTimeout):
            await cache.atake("k", unreached, timeout=SHORT)

    asyncio.run(main())
    loader.release()
    assert leading.result(PATIENCE) == "late"
    assert caplog.text == ""


def raise_exit(*args):
    raise SystemExit


def test_a_listener_that_raises_an_exit_in_the_background_keeps_no_caller_waiting(make, clock, pool):
    cache = make(on_removal=raise_exit)
    cache.take("k", returns("old"), grace=50)
    clock.advance(10)
    cache.take("k", returns(LookupError()), grace=50)
    assert until(is_idle)
    assert pool.submit(cache.take, "k", returns("new"), grace=50).result(PATIENCE) == "new"


def test_a_log_handler_that_raises_keeps_no_caller_waiting(cache, clock, pool):
    class Broken(logging.Handler):
        def emit(self, record):
            raise OSError("the disk is full")

    cache.take("k", returns("old"), grace=50)
    clock.advance(10)
    broken = Broken()
    logging.getLogger("wheelcache").addHandler(broken)
    try:
        cache.take("k", returns(LookupError()), grace=50)
        assert until(is_idle)
    finally:
        logging.getLogger("wheelcache").removeHandler(broken)
    assert pool.submit(cache.take, "k", returns("new"), grace=50).result(PATIENCE) == "new"
    clock.advance(10)
    assert cache.take("k", returns("newer"), grace=50) == "new"
    assert until(is_idle)
    assert cache.get("k") == "newer"


def test_a_refresh_whose_loop_was_closed_under_it_blocks_no_caller(cache, clock, pool):
    cache.take("k", returns("old"), grace=5)
    clock.advance(10)
    loader = HeldByATask()
    loop = asyncio.new_event_loop()
    loop.run_until_complete(cache.atake("k", loader, grace=5))
    loop.run_until_complete(loader.began.wait())
    loop.close()
    assert pool.submit(cache.take, "k", returns("new")).result(PATIENCE) == "new"


def test_a_refresh_whose_loop_ends_lets_the_next_caller_refresh(cache, clock):
    cache.take("k", returns("old"), grace=5)
    clock.advance(10)
    assert asyncio.run(cache.atake("k", lambda: asyncio.sleep(PATIENCE), grace=5)) == "old"
    assert cache.take("k", returns("new"), grace=5) == "old"
    assert until(is_idle)
    assert cache.get("k") == "new"


def test_who_waits_for_a_refresh_is_not_lost_when_its_task_is_cancelled(cache, clock, pool):
    cache.take("k", returns("old"), grace=5)
    clock.advance(10)

    async def main():
        assert await cache.atake("k", asyncio.Future, grace=5) == "old"
        await asyncio.sleep(0)
        waiting = pool.submit(cache.take, "k", returns("his own"))
        await auntil_waiting()
        return waiting

    assert asyncio.run(main()).result(PATIENCE) == "his own"


def test_who_waits_for_a_timed_load_is_not_lost_when_its_loop_ends(cache, pool):
    async def main():
        with pytest.raises(LoadTimeout):
            await cache.atake("k", asyncio.Future, timeout=SHORT)
        in_a_thread = pool.submit(cache.take, "k", returns("his own"))
        in_a_loop = pool.submit(asyncio.run, cache.atake("k", returns("his own")))
        await auntil_waiting(2)
        return in_a_thread, in_a_loop

    assert [each.result(PATIENCE) for each in asyncio.run(main())] == ["his own"] * 2
    assert counts(cache)["loads"] == 1


def test_the_caller_of_a_timed_load_is_cancelled_and_the_load_goes_on(cache):
    async def main():
        loader = HeldByATask()
        caller = asyncio.create_task(cache.atake("k", loader, timeout=PATIENCE))
        await loader.began.wait()
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
        waiting = asyncio.create_task(cache.atake("k", unreached))
        await asyncio.sleep(0)
        loader.go.set()
        return await waiting

    assert asyncio.run(main()) is True


def test_a_refresh_that_was_left_with_its_loop_keeps_no_caller_waiting(cache, clock, pool):
    """A loop that stands still, and might be run again: ``run_until_complete`` returned, with the refresh begun."""
    cache.take("k", returns("old"), grace=5)
    clock.advance(11)
    loader = HeldByATask()
    loop = asyncio.new_event_loop()
    assert loop.run_until_complete(cache.atake("k", loader, grace=5)) == "old"
    loop.run_until_complete(loader.began.wait())
    clock.advance(5)
    assert pool.submit(cache.take, "k", returns("new")).result(PATIENCE) == "new"
    end(loop)
    assert cache.get("k") == "new"


def end(loop):
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()


def test_refreshes_that_were_left_with_their_loops_take_no_place_of_others(cache, clock):
    keys = range(QUEUE + 1)
    for key in keys:
        cache.take(key, returns("old"), grace=100)
    clock.advance(11)

    async def begin_refreshes(keys):
        for key in keys:
            assert await cache.atake(key, asyncio.Event().wait, grace=100) == "old"

    loops = [asyncio.new_event_loop() for _ in range(2)]
    loops[0].run_until_complete(begin_refreshes(keys[:QUEUE]))
    loops[1].run_until_complete(begin_refreshes(keys[QUEUE:]))
    assert (cache.stats().refreshes, cache.stats().refreshes_dropped) == (QUEUE + 1, 0)
    for loop in loops:
        end(loop)


def test_a_timeout_may_be_longer_than_any_clock_counts(cache):
    assert cache.take("k", lambda: 1, timeout=1e300) == 1
    assert asyncio.run(cache.atake("other", lambda: 2, timeout=1e300)) == 2
