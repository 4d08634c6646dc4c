"""A circuit breaker opens after some failures in a row, and lets a try through now and then."""

from wheelcache.near_cache.store_state import FAILURES, FIRST_PAUSE, CircuitBreaker


def opened():
    breaker = CircuitBreaker()
    assert [breaker.failed(100.0) for _ in range(3)] == [False, False, True]
    return breaker


def test_it_stays_closed_below_so_many_failures_in_a_row():
    breaker = CircuitBreaker()
    for _ in range(10):
        assert not any(breaker.failed(0.0) for _ in range(FAILURES - 1))
        assert breaker.allows(0.0)
        assert not breaker.succeeded()
    assert not breaker.is_open()


def test_after_each_pause_one_try_goes_through_also_if_it_never_says_how_it_ended():
    breaker = opened()
    assert not breaker.allows(100.0 + FIRST_PAUSE - 0.001)
    assert [breaker.allows(100.0 + FIRST_PAUSE) for _ in range(3)] == [True, False, False]
    assert not breaker.allows(100.0 + 2 * FIRST_PAUSE - 0.001)
    assert breaker.allows(100.0 + 2 * FIRST_PAUSE)


def test_pauses_double_with_every_try_that_fails_up_to_the_longest_and_start_anew_after_a_success():
    breaker = opened()
    now, pauses = 100.0, []
    for _ in range(6):
        pauses.append(next(tenths / 10 for tenths in range(1000) if breaker.allows(now + tenths / 10)))
        now += pauses[-1]
        breaker.failed(now)
    assert pauses == [0.5, 1.0, 2.0, 4.0, 5.0, 5.0]
    breaker.succeeded()
    for _ in range(FAILURES):
        breaker.failed(now)
    assert breaker.allows(now + FIRST_PAUSE)
