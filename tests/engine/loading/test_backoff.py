"""The time until a failed key is tried again."""

from wheelcache.engine.loading.failures import KEYS_AT_MOST, Backoff


def test_pauses_double_up_to_a_minute_and_overflow_nothing(steady):
    backoff = Backoff()
    assert [backoff.failed("k", 0.0) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert {backoff.failed("k", 0.0) for _ in range(2_000)} == {60}


def test_a_pause_ends_when_it_was_said_to_or_if_the_time_is_moved_back(steady):
    backoff = Backoff()
    assert backoff.is_over("k", 0.0)
    backoff.failed("k", 100.0)
    assert [backoff.is_over("k", now) for now in (100.0, 100.999, 101.0, 99.0)] == [False, False, True, True]
    assert backoff.is_over("other", 100.0)


def test_pauses_are_spread_from_half_to_all_of_it():
    pauses = [Backoff().failed("k", 0.0) for _ in range(1000)]
    assert 0.5 <= min(pauses) < 0.55
    assert 0.95 < max(pauses) <= 1.0


def test_success_and_clear_start_over(steady):
    backoff = Backoff()
    for forget in (lambda: backoff.succeeded("k"), backoff.clear):
        assert [backoff.failed("k", 0.0) for _ in range(2)] == [1, 2]
        forget()
        assert backoff.is_over("k", 0.0)
    backoff.succeeded("never failed")


def test_keys_that_failed_are_forgotten_oldest_first_when_there_are_many(steady):
    backoff = Backoff()
    for key in (*range(KEYS_AT_MOST), 0, "one more"):
        backoff.failed(key, 0.0)
    assert [backoff.is_over(key, 0.0) for key in (0, 1, 2)] == [False, True, False]
