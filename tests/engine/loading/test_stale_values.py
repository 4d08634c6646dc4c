"""Values past their TTL, or close to it: grace, refreshes, fail-safe and None, in threads and tasks."""

import pytest

from tests.engine.loading.harness import assert_counts, returns, unreached
from wheelcache import MissingKey, RemovalCause

EXPIRED, EVICTED, REPLACED, DELETED, CLEARED = RemovalCause


# Grace.


def test_a_value_within_its_grace_is_served_at_once_while_one_refresh_runs(cache, clock, twin, removals):
    twin.get_or_load("k", returns("old"), grace=5)
    clock.advance(10)
    loader = twin.held("new")
    assert [twin.get_or_load("k", loader, grace=5) for _ in range(5)] == ["old"] * 5
    assert loader.is_running()
    assert twin.get_or_load("k", loader, grace=5) == "old"
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert twin.get_or_load("k", unreached, grace=5) == "new"
    assert cache.expires_in("k") == 10
    assert removals == [("k", "old", EXPIRED)]
    assert_counts(cache, hits=1, misses=1, stale_hits=6, loads=2, refreshes=1, expirations=1)


@pytest.mark.pairs(full="twin", of="twin")
@pytest.mark.parametrize(
    ("loaded_with", "asked_with", "ends"),
    [
        ({"grace": 5}, {"grace": 9}, 15),
        ({"grace": 5}, {"grace": 1}, 11),
        ({"grace": 5}, {}, 10),
        ({}, {"grace": 5}, 10),
    ],
    ids=["past the entry's", "past the caller's", "the caller wants none", "the entry has none"],
)
def test_a_value_past_its_grace_is_loaded(make, clock, twin, ticks, loaded_with, asked_with, ends):
    # The wheel removes nothing meanwhile.
    ticks(60)
    twin.cache = make()
    twin.get_or_load("k", returns("old"), **loaded_with)
    clock.advance(ends - 0.125)
    loader = twin.held("new")
    assert twin.get_or_load("k", loader, **asked_with) == "old"
    clock.advance(0.125)
    assert len(twin.cache) == 1
    assert twin.cache.get("k") is None
    loader.release()
    assert twin.get_or_load("k", loader, **asked_with) == "new"
    twin.settle()


def test_a_refresh_that_fails_ends_the_stale_value_and_the_next_caller_gets_the_error(
    cache, clock, twin, caplog, removals
):
    twin.get_or_load("k", returns("old"), grace=50)
    clock.advance(10)
    assert twin.get_or_load("k", returns(LookupError("first")), grace=50) == "old"
    twin.settle()
    assert "Loading 'k' into the cache 'default' failed" in caplog.text
    assert (len(cache), removals) == (0, [("k", "old", EXPIRED)])
    with pytest.raises(LookupError, match="second"):
        twin.get_or_load("k", returns(LookupError("second")), grace=50)
    assert_counts(cache, misses=2, stale_hits=1, refreshes=1, loads=1, load_failures=2, expirations=1)


def test_other_calls_see_no_stale_value_and_leave_it_to_take(cache, clock, removals):
    cache.get_or_load("k", returns(1), grace=5)
    clock.advance(11)
    assert (cache.get("k", "gone"), "k" in cache, cache.keys(), cache.get_many(["k"])) == ("gone", False, [], {})
    assert not cache.touch("k")
    for call in (cache.expires_in, cache.incr):
        with pytest.raises(MissingKey):
            call("k")
    assert removals == []
    assert cache.get_or_load("k", returns(2), grace=5) == 1


# Refresh ahead.


def test_the_first_hit_past_the_fraction_starts_one_refresh_and_returns_at_once(cache, clock, twin, removals):
    twin.get_or_load("k", returns("old"), refresh_ahead=0.8)
    clock.advance(8)
    assert twin.get_or_load("k", unreached, refresh_ahead=0.8) == "old"
    clock.advance(0.125)
    loader = twin.held("new")
    assert [twin.get_or_load("k", loader, refresh_ahead=0.8) for _ in range(3)] == ["old"] * 3
    assert loader.is_running()
    loader.release()
    twin.settle()
    assert loader.calls == 1
    assert cache.expires_in("k") == 10
    assert removals == [("k", "old", REPLACED)]
    clock.advance(10)
    # Past its TTL, it is loaded.
    assert twin.get_or_load("k", returns("newer"), refresh_ahead=0.8) == "newer"
    assert twin.get_or_load("forever", returns(1), None, refresh_ahead=0.8) == 1
    clock.advance(10**5)
    assert twin.get_or_load("forever", unreached, None, refresh_ahead=0.8) == 1
    assert_counts(cache, hits=5, misses=3, loads=4, refreshes=1, expirations=2)


def test_a_refresh_ahead_that_fails_leaves_the_value_and_the_next_waits_for_a_back_off(
    cache, clock, twin, caplog, steady
):
    twin.get_or_load("k", returns("old"), refresh_ahead=0.5)
    clock.advance(6)
    for _ in range(3):
        assert twin.get_or_load("k", returns(LookupError()), refresh_ahead=0.5) == "old"
        twin.settle()
    assert caplog.text.count("Loading 'k' into the cache 'default' failed; the next refresh waits for 1.0 s.") == 1
    clock.advance(1)
    assert twin.get_or_load("k", returns("new"), refresh_ahead=0.5) == "old"
    twin.settle()
    assert cache.get("k") == "new"


# Fail-safe.


def test_a_stale_value_survives_loaders_that_fail_with_growing_pauses(cache, clock, twin, caplog, steady):
    tries, policy = [], {"grace": 1000, "fail_safe": 1000}

    def loader():
        tries.append(clock())
        raise LookupError("no")

    def ask_for_seconds(seconds):
        tries.clear()
        for _ in range(2 * seconds):
            assert twin.get_or_load("k", loader, **policy) == "old"
            twin.settle()
            clock.advance(0.5)
        return tries

    twin.get_or_load("k", returns("old"), **policy)
    clock.advance(10)
    assert ask_for_seconds(20) == [10.0, 11.0, 13.0, 17.0, 25.0]
    assert caplog.text.count("LookupError: no") == 5
    assert_counts(cache, misses=1, stale_hits=40, loads=1, load_failures=5, refreshes=5)
    clock.advance(32)
    twin.get_or_load("k", returns("old"), **policy)
    twin.settle()
    clock.advance(10)
    # A success starts over.
    now = clock()
    assert ask_for_seconds(2) == [now, now + 1]


@pytest.mark.parametrize("grace", [None, 5, 50], ids=["alone", "as long as the grace", "in a longer grace"])
def test_after_fail_safe_the_error_of_the_loader_reaches_the_callers(clock, twin, grace):
    policy, fails = {"grace": grace, "fail_safe": 5}, returns(LookupError())
    with pytest.raises(LookupError):
        twin.get_or_load("k", fails, **policy)
    twin.get_or_load("k", returns("old"), **policy)
    for seconds in (14, 2)[: 2 if grace == 50 else 1]:
        clock.advance(seconds)
        assert twin.get_or_load("k", fails, **policy) == "old"
        twin.settle()
    clock.advance(2)
    with pytest.raises(LookupError):
        twin.get_or_load("k", fails, **policy)


def test_after_its_grace_an_old_value_is_returned_only_if_loading_fails(cache, clock, twin, caplog, steady):
    policy = {"grace": 5, "fail_safe": 50}
    twin.get_or_load("k", returns("old"), **policy)
    clock.advance(20)
    # The second caller does not try during the pause.
    assert [twin.get_or_load("k", loader, **policy) for loader in (returns(LookupError()), unreached)] == ["old"] * 2
    clock.advance(1)
    assert twin.get_or_load("k", returns("new"), **policy) == "new"
    assert caplog.text.count("LookupError") == 1
    assert_counts(cache, misses=2, stale_hits=2, loads=2, load_failures=1, expirations=1)


def test_after_a_clear_every_key_may_be_loaded_again(cache, clock, twin, steady):
    policy = {"grace": 50, "fail_safe": 50}
    for clear in (cache.clear, lambda: None):
        twin.get_or_load("k", returns("old"), **policy)
        clock.advance(10)
        assert twin.get_or_load("k", returns(LookupError()), **policy) == "old"
        twin.settle()
        clear()
    assert twin.get_or_load("k", unreached, **policy) == "old"


# A value of None.


def test_none_is_kept_for_its_own_ttl_and_is_no_miss(cache, clock, twin):
    assert twin.get_or_load("k", returns(None), negative_ttl=2) is None
    assert cache.expires_in("k") == 2
    assert twin.get_or_load("k", unreached, negative_ttl=2) is None
    clock.advance(2)
    assert twin.get_or_load("k", returns("there"), negative_ttl=2) == "there"
    assert cache.expires_in("k") == 10
    # Without a TTL of its own, it is a value like any other.
    assert twin.get_or_load("other", returns(None)) is None
    assert cache.expires_in("other") == 10
    assert twin.get_or_load("other", unreached) is None
    assert_counts(cache, hits=2, misses=3, loads=3, expirations=1)


def test_a_none_is_refreshed_ahead_by_its_own_ttl(cache, clock, twin):
    policy = {"grace": 50, "refresh_ahead": 0.5, "negative_ttl": 2}
    twin.get_or_load("k", returns(None), **policy)
    assert twin.get_or_load("k", unreached, **policy) is None
    clock.advance(1.5)
    assert twin.get_or_load("k", returns("there"), **policy) is None
    twin.settle()
    assert cache.get("k") == "there"
    twin.get_or_load("other", returns(None), **policy)
    clock.advance(2)
    assert twin.get_or_load("other", returns(1), **policy) == 1, "a None has no grace"
    assert cache.stats().refreshes == 1
