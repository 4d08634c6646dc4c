"""How long to leave alone what failed."""

import pytest

from wheelcache.loading.backoff import KEYS_AT_MOST, Backoff


@pytest.fixture
def steady(monkeypatch):
    monkeypatch.setattr("wheelcache.loading.backoff.random", lambda: 1.0)


def test_what_never_failed_may_be_tried():
    assert Backoff().is_over("k", 0.0)


def test_pauses_double_up_to_a_minute(steady):
    backoff = Backoff()
    assert [backoff.failed("k", 0.0) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_a_pause_ends_when_it_was_said_to(steady):
    backoff = Backoff()
    backoff.failed("k", 100.0)
    assert not backoff.is_over("k", 100.0)
    assert not backoff.is_over("k", 100.999)
    assert backoff.is_over("k", 101.0)
    assert backoff.is_over("other", 100.0)


def test_pauses_are_spread_from_half_to_all_of_it():
    pauses = [Backoff().failed("k", 0.0) for _ in range(1000)]
    assert 0.5 <= min(pauses) < 0.55
    assert 0.95 < max(pauses) <= 1.0


def test_success_starts_over(steady):
    backoff = Backoff()
    backoff.failed("k", 0.0)
    backoff.failed("k", 0.0)
    backoff.succeeded("k")
    assert backoff.is_over("k", 0.0)
    assert backoff.failed("k", 0.0) == 1
    backoff.succeeded("never failed")


def test_a_million_failures_of_a_key_overflow_nothing(steady):
    backoff = Backoff()
    assert {backoff.failed("k", 0.0) for _ in range(2_000)} == {1, 2, 4, 8, 16, 32, 60}


def test_keys_that_failed_are_forgotten_oldest_first_when_there_are_many(steady):
    backoff = Backoff()
    for key in range(KEYS_AT_MOST):
        backoff.failed(key, 0.0)
    backoff.failed(0, 0.0)
    backoff.failed("one more", 0.0)
    assert backoff.is_over(1, 0.0)
    assert not backoff.is_over(0, 0.0)
    assert not backoff.is_over(2, 0.0)


def test_what_is_cleared_may_be_tried():
    backoff = Backoff()
    backoff.failed("k", 0.0)
    backoff.clear()
    assert backoff.is_over("k", 0.0)
