"""The figures of the store: its calls, their times and errors, the circuit breaker, and trust in the copies."""

import pytest

from tests.near_cache.stores import FAIL_SAFE, Down
from tests.waiting import THREADS
from wheelcache.engine.stats import LOAD_BOUNDS
from wheelcache.near_cache.store_state import FAILURES


def figures(near):
    return near.copies.stats().store


def counted(calls):
    return calls.calls, calls.errors, calls.refused


def bucket(calls):
    """The bound of the only bucket with any call."""
    (found,) = (number for number, count in enumerate(calls.buckets) if count)
    return LOAD_BOUNDS[found]


@pytest.mark.parametrize("options", [{}, FAIL_SAFE], ids=["plain", "fail-safe"])
def test_calls_of_the_store_are_counted_and_timed_and_hits_are_none(make, store, clock, options):
    near = make(**options)
    store.values = {"k": 1, "l": 2}
    store.before_answer = lambda: clock.advance(0.25)
    for _ in range(3):
        near.get("k")
        near.get_many(["k", "l"])
    near.has("m")
    near.read("k")
    store.before_answer = lambda: clock.advance(0.03)
    near.set("m", 3)
    near.clear()
    reads, writes = figures(near).reads, figures(near).writes
    assert (counted(reads), counted(writes)) == ((4, 0, 0), (2, 0, 0))
    assert (bucket(reads), bucket(writes)) == (0.25, 0.05)
    assert (reads.seconds, writes.seconds) == (pytest.approx(1.0), pytest.approx(0.06, abs=1e-5))


def test_each_look_up_without_a_copy_is_a_hit_or_a_miss_of_the_store(make, store, together):
    near = make()
    store.values = {"k": 1, "l": 2, "n": 4}
    for key in ("k", "k", "m"):
        near.get(key)
    near.get_many(["k", "l", "m"])
    stats = near.copies.stats()
    assert (stats.hits, stats.misses) == (2, 4)
    assert (stats.store.hits, stats.store.misses) == (2, 2)
    assert stats.answered_ratio == 4 / 6
    together(lambda _: near.get("n"))
    stats = near.copies.stats()
    assert stats.hits + stats.store.hits == 4 + THREADS


def test_a_stale_answer_in_an_outage_is_answered_by_neither_tier(make, store, clock):
    near = make(**FAIL_SAFE)
    store.values["k"] = 1
    near.get("k")
    clock.advance(61)
    store.error = Down()
    assert near.get("k") == 1
    stats = near.copies.stats()
    assert (stats.hits, stats.stale_hits, stats.misses, stats.store.hits, stats.store.misses) == (0, 1, 1, 1, 0)
    assert stats.answered_ratio == stats.stale_ratio == 0.5


def test_what_the_breaker_keeps_from_the_store_is_refused_and_its_state_is_told(make, store, clock):
    near = make(**FAIL_SAFE)
    assert (figures(near).breakers, figures(near).open_breakers) == (1, 0)
    store.error = Down("gone")
    for _ in range(10):
        near.get("k")
        near.set("k", 1, result_if_dropped=None)
    stats = figures(near)
    assert stats.reads.errors + stats.writes.errors == stats.reads.calls + stats.writes.calls == FAILURES
    assert stats.reads.refused + stats.writes.refused == 20 - FAILURES
    assert (stats.breakers, stats.open_breakers) == (1, 1)
    store.error = None
    clock.advance(10)
    near.get("k")
    assert figures(near).open_breakers == 0


def test_the_figures_tell_whether_writes_are_told_or_why_not(make):
    untold, near = make(), make(tracked=True, trusted=False)
    assert figures(near).trackers == 0
    for each in (untold, near):
        each.get("k")
    assert (figures(untold).trackers, figures(untold).trusted) == (0, 0)
    found = []
    for event in (lambda: None, near.near.refused, lambda: near.near.trust(True), lambda: near.near.trust(False)):
        event()
        stats = figures(near)
        found.append((stats.trackers, stats.trusted, stats.lost_trackers, stats.refused_trackers))
    assert found == [(1, 0, 1, 0), (1, 0, 0, 1), (1, 1, 0, 0), (1, 0, 1, 0)]
