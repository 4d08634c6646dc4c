"""The notes of misses, and the computations that answer them. ``tests/backends`` has the counts that a site sees."""

from decimal import Decimal

import pytest

from wheelcache import Cache
from wheelcache.engine.loading import misses as module
from wheelcache.runtime.request_scope import end_request

SECOND = 10**9


@pytest.fixture
def now(monkeypatch):
    """Return the moment as a list, to be changed."""
    made = [100 * SECOND]
    monkeypatch.setattr(module, "moment", lambda: made[0])
    yield made
    end_request()


@pytest.fixture
def misses(now):
    return Cache().engine.misses()


@pytest.mark.parametrize("key", ["key", "long" * 100, ("key", 1), b"key", None])
def test_a_write_answers_the_miss_of_its_key_once(misses, now, key):
    misses.note(key)
    assert misses.since(key) == now[0]
    assert misses.pop_miss("another") == 0
    now[0] += SECOND
    assert misses.pop_miss(key) == 100 * SECOND
    assert (misses.pop_miss(key), misses.since(key)) == (0, 0)


def test_equal_keys_share_a_note_and_objects_of_other_types_have_none(misses, now):
    misses.note((1, "a"))
    assert misses.pop_miss((True, "a")) == now[0]
    misses.note((1.0, "a"))
    assert misses.pop_miss((1, "a")) == now[0]
    misses.note(Decimal(1))
    assert misses.pop_miss(Decimal(1)) == misses.pop_miss(1) == 0


@pytest.mark.parametrize(("seconds", "is_answered"), [(60, True), (60.001, False)])
def test_a_write_within_a_minute_of_a_miss_ends_its_computation(misses, now, seconds, is_answered):
    began = now[0]
    misses.note("key")
    now[0] += round(seconds * SECOND)
    assert misses.since("key") == (began if is_answered else 0)
    assert misses.count_computation("key") == (began if is_answered else 0)
    assert misses.counts.read()[0]["loads"] == is_answered


def test_values_that_were_computed_together_share_the_time(misses, now):
    for key in ("a", "b"):
        misses.note(key)
    now[0] += 3 * SECOND
    for key in ("a", "b"):
        misses.count_computation(key, together=2)
    counts, seconds, _ = misses.counts.read()
    assert (counts["loads"], seconds) == (2, 3.0)


def test_after_a_drop_a_write_ends_its_computation_and_answers_no_miss(misses, now):
    misses.note("key")
    misses.outdate_all()
    now[0] += SECOND
    assert misses.since("key") == 0
    assert misses.count_computation("key") == 0
    assert misses.counts.read()[0]["loads"] == 1


def test_a_load_that_a_layer_leaves_out_is_not_counted(misses):
    misses.leave_out(lambda key: key == "page")
    for key in ("page", "key"):
        misses.count_load(key, 1.0)
    assert misses.counts.read()[:2] == (dict.fromkeys(module.LOAD_COUNTS, 0) | {"loads": 1}, 1.0)


def test_a_load_during_which_the_clock_was_moved_back_took_no_time(misses):
    misses.count_load("key", -5.0, has_failed=True)
    counts, seconds, _ = misses.counts.read()
    assert (counts["load_failures"], seconds) == (1, 0.0)
